
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_outlier: in rotation, ejected, half-open */


#include "util.h"
#include "core/health/kvr_outlier.h"


#define START   4294960000ULL      /* 32 bits of ms wrap in between */


static kvr_outlier_t        o;
static kvr_outlier_fleet_t  fleet;
static uint64_t             now;

static const kvr_outlier_conf_t  conf = {
    .fails = 5, .time = 10000, .budget = 20, .on = 1
};


static void
setup(void)
{
    memset((void *) &o, 0, sizeof(kvr_outlier_t));
    memset((void *) &fleet, 0, sizeof(kvr_outlier_fleet_t));
    now = START;
}


static int
bad(kvr_outlier_e reason, int late, int probe)
{
    return kvr_outlier_bad(&o, &conf, reason, late, probe, now);
}


static int
good(void)
{
    return kvr_outlier_good(&o, now, now);
}


static int
sick(void)
{
    return kvr_outlier_sick(kvr_get(&o.state), now);
}


TEST(test_outlier_row)
{
    int  i;

    setup();

    for (i = 0; i < 20; i++) {
        (void) good();
    }

    for (i = 0; i < 4; i++) {
        util_check(!bad(KVR_OUTLIER_STATUS, 0, 0), "bad %d", i);
    }

    (void) good();

    for (i = 0; i < 4; i++) {
        util_check(!bad(KVR_OUTLIER_STATUS, 0, 0), "again %d", i);
    }

    util_check(bad(KVR_OUTLIER_RESET, 0, 0), "the fifth");
}


/* an answer that begins well and breaks off is as bad as an error */
TEST(test_outlier_late)
{
    int  i;

    setup();

    for (i = 0; i < 20; i++) {
        (void) good();
        (void) kvr_outlier_end(&o, now, now);
    }

    for (i = 0; i < 4; i++) {
        (void) good();
        util_check(!bad(KVR_OUTLIER_BROKEN, 1, 0), "late %d", i);
    }

    (void) good();
    (void) kvr_outlier_end(&o, now, now);

    for (i = 0; i < 5; i++) {
        (void) good();
        util_check(bad(KVR_OUTLIER_BROKEN, 1, 0) == (i == 4), "again %d", i);
    }
}


TEST(test_outlier_share)
{
    int  i, out;

    setup();

    /* two of three, never five in a row */

    for (i = 0, out = 0; i < 20 && !out; i++) {
        out = i % 3 ? bad(KVR_OUTLIER_STATUS, 0, 0) : good();
    }

    util_check(out && i >= KVR_OUTLIER_LEAST, "after %d", i);

    /* below the share, never */

    setup();

    for (i = 0; i < 1000; i++) {
        util_check(!(i % 3 == 0 ? bad(KVR_OUTLIER_STATUS, 0, 0) : good()),
                   "after %d", i);
    }
}


/* an error that may be the client's fault does not eject: a trial begins */
TEST(test_outlier_doubt)
{
    int  i;

    setup();

    for (i = 0; i < 100; i++) {
        util_check(kvr_outlier_doubt(&o, &conf, KVR_OUTLIER_401, 0, 0, now)
                   == (i == 4), "%d", i);
    }

    util_check(kvr_trial_reason(o.trial) == KVR_OUTLIER_401, "on trial");
    util_check(!bad(KVR_OUTLIER_STATUS, 0, 0), "a 5xx does not change it");

    /* an ejected server stays ejected for that error, but not for others */

    setup();

    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_401, now);
    now += conf.time;
    (void) kvr_outlier_begin(&o, &conf, now);
    (void) good();
    (void) kvr_outlier_doubt(&o, &conf, KVR_OUTLIER_400, 0, 1, now);
    util_check(KVR_OUTLIER_PASSED(o.state) == 1, "a second pass counts");
    (void) kvr_outlier_doubt(&o, &conf, KVR_OUTLIER_401, 0, 1, now);
    util_check(KVR_OUTLIER_PASSED(o.state) == 0, "the same");
}


TEST(test_outlier_better)
{
    int            i;
    kvr_outlier_t  other;

    setup();
    memset((void *) &other, 0, sizeof(kvr_outlier_t));

    for (i = 0; i < 10; i++) {
        (void) bad(KVR_OUTLIER_STATUS, 0, 0);
    }

    util_check(kvr_outlier_better(&other, &o, now) == -1, "unknown");

    for (i = 0; i < 10; i++) {
        (void) kvr_outlier_bad(&other, &conf, KVR_OUTLIER_STATUS, 0, 0, now);
    }

    util_check(kvr_outlier_better(&other, &o, now) == 0, "equal shares");

    for (i = 0; i < 9; i++) {
        (void) kvr_outlier_good(&other, now, now);
    }

    util_check(kvr_outlier_better(&other, &o, now) == 0, "not better by half");

    (void) kvr_outlier_good(&other, now, now);

    util_check(kvr_outlier_better(&other, &o, now) == 1, "better by half");

    now += 20 * KVR_OUTLIER_WINDOW;

    util_check(kvr_outlier_better(&other, &o, now) == -1, "long ago");
}


TEST(test_outlier_window)
{
    int  i;

    setup();

    for (i = 0; i < 2 * KVR_OUTLIER_LEAST - 2; i++) {
        util_check(!(i % 2 ? good() : bad(KVR_OUTLIER_STATUS, 0, 0))
                   || i >= KVR_OUTLIER_LEAST, "%d", i);
    }

    /* forgotten */

    now += 10 * KVR_OUTLIER_WINDOW;

    for (i = 0; i < 4; i++) {
        util_check(!bad(KVR_OUTLIER_STATUS, 0, 0), "later %d", i);
    }

    util_check(bad(KVR_OUTLIER_STATUS, 0, 0), "the fifth");
}


/* a returned server is ejected again sooner, for as long as it was ejected */
TEST(test_outlier_sooner)
{
    int       i;
    uint64_t  span;

    setup();

    for (i = 1; i < 5; i++) {
        util_check(!bad(KVR_OUTLIER_STATUS, 0, 0), "bad %d", i);
    }

    util_check(bad(KVR_OUTLIER_STATUS, 0, 0), "the fifth");
    span = kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now);

    for (i = 0; i < KVR_OUTLIER_PASSES; i++) {
        now += 2 * span;
        (void) kvr_outlier_begin(&o, &conf, now);
        (void) good();
    }

    util_check(!kvr_outlier_ejected(o.state), "back");

    now += span - 1;
    util_check(bad(KVR_OUTLIER_STATUS, 0, 0), "the first one");

    (void) good();
    now += 1;
    util_check(!bad(KVR_OUTLIER_STATUS, 0, 0), "later like any other");
}


TEST(test_outlier_doubling)
{
    int       i, probe;
    uint64_t  span;

    setup();

    util_check(kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now)
               == conf.time, "out");
    util_check(kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now) == 0,
               "once");
    util_check(o.reason == KVR_OUTLIER_STATUS, "reason");

    span = conf.time;

    for (i = 0; i < 8; i++) {
        now += span - 1;
        util_check(sick(), "out for %u", (unsigned) span);
        util_check(!kvr_outlier_begin(&o, &conf, now), "no probe");

        now += 1;
        util_check(!sick(), "to be probed");

        probe = kvr_outlier_begin(&o, &conf, now);

        /* one bad answer is enough; the state is "failed" until a good one */

        util_check(probe && sick(), "probed");
        util_check(!kvr_outlier_begin(&o, &conf, now), "one probe at a time");

        util_check(!bad(KVR_OUTLIER_STATUS, 0, 1), "already ejected");

        span *= i < KVR_OUTLIER_DOUBLES ? 2 : 1;
    }

    util_check(span == (uint64_t) conf.time << KVR_OUTLIER_DOUBLES, "bounded");
}


TEST(test_outlier_trickle)
{
    int  i;

    setup();

    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now);

    /* a request sent before the ejection proves nothing */

    now += 5;
    util_check(!kvr_outlier_good(&o, now - 10, now), "before");
    util_check(sick(), "still ejected");

    now += conf.time;

    for (i = 0; i < KVR_OUTLIER_PASSES; i++) {
        util_check(!sick(), "probe %d", i);
        util_check(kvr_outlier_begin(&o, &conf, now), "probe %d", i);
        util_check(sick(), "no other at the same time");
        now += 100;
        util_check(good() == (i == KVR_OUTLIER_PASSES - 1), "answer %d", i);
    }

    util_check(!kvr_outlier_ejected(kvr_get(&o.state)), "back");

    /* ejected again soon after: for longer */

    now += conf.time / 2;
    util_check(kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now)
               == 2 * conf.time, "doubled");

    /* a long time in rotation: it starts again */

    setup();
    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now);
    now += conf.time;

    for (i = 0; i < KVR_OUTLIER_PASSES; i++) {
        (void) kvr_outlier_begin(&o, &conf, now);
        (void) good();
    }

    now += 2 * conf.time;
    util_check(kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now)
               == conf.time, "anew");
}


/* a failed probe discards earlier passes */
TEST(test_outlier_relapse)
{
    int  i;

    setup();

    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now);
    now += conf.time;

    (void) kvr_outlier_begin(&o, &conf, now);
    (void) good();
    util_check(kvr_outlier_begin(&o, &conf, now), "the next");
    (void) bad(KVR_OUTLIER_STATUS, 0, 1);
    util_check(sick(), "failed");

    now += 100 * conf.time;

    for (i = 0; i < KVR_OUTLIER_PASSES; i++) {
        util_check(kvr_outlier_begin(&o, &conf, now), "probe %d", i);
        util_check(good() == (i == KVR_OUTLIER_PASSES - 1), "answer %d", i);
    }
}


/* a server ejected for cut answers must complete some */
TEST(test_outlier_unbroken)
{
    int  i;

    setup();

    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_BROKEN, now);

    for (i = 0; i < KVR_OUTLIER_PASSES; i++) {
        now += 100 * conf.time;
        (void) kvr_outlier_begin(&o, &conf, now);
        util_check(!good(), "a good start");
        util_check(kvr_outlier_end(&o, now, now)
                   == (i == KVR_OUTLIER_PASSES - 1), "good ends");
    }
}


/* the process with the probe is killed: the next probe comes */
TEST(test_outlier_killed)
{
    int  i;

    setup();

    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now);

    for (i = 0; i < 100; i++) {
        now += (uint64_t) conf.time << KVR_OUTLIER_DOUBLES;
        util_check(!sick() && kvr_outlier_begin(&o, &conf, now), "probe %d", i);
    }
}


TEST(test_outlier_slow)
{
    int  i;

    setup();

    for (i = 0; i < KVR_OUTLIER_SAMPLES; i++) {
        util_check(!kvr_outlier_slow(&fleet, 8192, 60000), "unknown");
        kvr_outlier_first(&fleet, 60000);
    }

    setup();

    for (i = 0; i < 100; i++) {
        util_check(!kvr_outlier_slow(&fleet, 8192, 200), "usual");
        kvr_outlier_first(&fleet, 200);
    }

    /* the same work in ten times the time, and ten times the work */

    util_check(kvr_outlier_slow(&fleet, 8192, 2000), "slow");
    util_check(!kvr_outlier_slow(&fleet, 20 * 8192, 2000), "a long prompt");
    util_check(!kvr_outlier_slow(&fleet, 8192, 900), "less than six times");

    /* one slow server of four does not move the median far */

    for (i = 0; i < 1000; i++) {
        (void) kvr_outlier_slow(&fleet, 8192, i % 4 ? 200 : 100000);
    }

    util_check(kvr_outlier_slow(&fleet, 8192, 2000), "still slow");

    /* slow everywhere is normal */

    for (i = 0; i < 200; i++) {
        (void) kvr_outlier_slow(&fleet, 8192, 2000);
    }

    util_check(!kvr_outlier_slow(&fleet, 8192, 2000), "usual now");

    /* fast enough in any fleet */

    setup();

    for (i = 0; i < 100; i++) {
        (void) kvr_outlier_slow(&fleet, 8192, 10);
        kvr_outlier_first(&fleet, 10);
    }

    util_check(!kvr_outlier_slow(&fleet, 8192, KVR_OUTLIER_FLOOR - 1),
               "below the floor");
}


TEST(test_outlier_silent)
{
    int  i;

    setup();

    util_check(kvr_outlier_suspect_after(&fleet, now) == 0, "unknown");

    for (i = 0; i < 1000; i++) {
        kvr_outlier_first(&fleet, i % 50 ? 100 : 4000);
    }

    util_check(kvr_outlier_suspect_after(&fleet, now)
               <= now - KVR_OUTLIER_SILENCE,
               "never sooner");

    for (i = 0; i < 1000; i++) {
        kvr_outlier_first(&fleet, i % 5 ? 100 : 60000);
    }

    util_check(kvr_outlier_suspect_after(&fleet, now) < now - 60000,
               "one in five takes a minute");

    (void) kvr_outlier_begin(&o, &conf, now);
    (void) kvr_outlier_begin(&o, &conf, now + 10);
    util_check(o.asked == now, "since the first");
    kvr_outlier_heard(&o);
    util_check(o.asked == 0, "answered");
}


static uint64_t  renewed;       /* when the server was last restarted */


static uint64_t
mute(uint64_t ms, uint64_t active)
{
    return kvr_outlier_mute(&o, active, renewed, now + ms);
}


/* ms to prefill; firsts: number of earlier first events, after this many ms */
static void
owe(uint64_t ms, int firsts, uint64_t first)
{
    setup();

    while (firsts--) {
        kvr_outlier_first(&fleet, first);
    }

    kvr_outlier_owe(&o, &fleet, 1, ms, 0, now);
}


TEST(test_outlier_mute)
{
    const uint64_t  late = KVR_OUTLIER_PATIENCE, far = 60 * late;

    owe(0, KVR_OUTLIER_USUAL - 1, 10);
    util_check(!mute(far, 1), "no usual time yet");

    owe(0, KVR_OUTLIER_USUAL, 10);
    util_check(!mute(late - 1, 1), "not yet silent");
    util_check(mute(late, 1) == late, "too long");

    kvr_outlier_heard(&o);
    util_check(!mute(far, 2), "any byte ends it");

    /* long prompts, and servers that are always slow */

    owe(late, KVR_OUTLIER_USUAL, 10);
    util_check(!mute(KVR_OUTLIER_OVERDUE * late - 1, 1), "a long prompt");
    util_check(mute(KVR_OUTLIER_OVERDUE * late, 1), "a long prompt, too long");

    owe(0, KVR_OUTLIER_USUAL, late);
    util_check(!mute(KVR_OUTLIER_OVERDUE * late - 1, 1), "the usual time");

    owe(1ULL << 40, KVR_OUTLIER_USUAL, 10);
    util_check(!mute(far, 1), "an endless prompt");

    /*
     * the process of the only request was killed, which the next request finds
     */

    owe(0, KVR_OUTLIER_USUAL, 10);
    util_check(!mute(far, 0), "no request waits");
    util_check(mute(far, 1), "a look changes nothing");
    kvr_outlier_owe(&o, &fleet, 0, 0, 0, now + late);
    util_check(!mute(far, 1), "the next request is no stream");

    owe(0, KVR_OUTLIER_USUAL, 10);
    kvr_outlier_owe(&o, &fleet, 1, 0, 0, now + late);
    util_check(!mute(late + 5, 1) && mute(2 * late, 1) == late,
               "a second stream");

    /* it was restarted after the client left */

    kvr_outlier_unheard(&o, now + late, 0, now + 2 * late);
    util_check(mute(2 * late + 1, 1), "the stream waited too long");
    renewed = now + 2 * late + 1;
    util_check(!mute(2 * late + 1, 1), "lost with the process");
    kvr_outlier_owe(&o, &fleet, 1, 0, renewed, renewed + 1);
    util_check(mute(3 * late + 2, 1) == late, "the new process owes, too");
    renewed = 0;
}


TEST(test_outlier_unheard)
{
    const uint64_t  late = KVR_OUTLIER_PATIENCE, far = 60 * late;

    /* the client closes the connection */

    owe(0, KVR_OUTLIER_USUAL, 10);
    kvr_outlier_unheard(&o, now, 0, now + late - 1);
    util_check(!mute(far, 1), "too soon to tell");

    owe(0, KVR_OUTLIER_USUAL, 10);
    kvr_outlier_unheard(&o, now + 5, 0, now + far);
    util_check(kvr_get(&o.owed), "a later request");
    kvr_outlier_unheard(&o, now, 0, now + late);
    util_check(mute(2 * late, 0) == 2 * late, "it has waited long enough");

    /* later requests change nothing, however short they wait */

    kvr_outlier_owe(&o, &fleet, 1, 0, 0, now + 2 * late);
    kvr_outlier_unheard(&o, now + 2 * late, 0, now + 2 * late + 1);
    util_check(mute(3 * late, 0) == 3 * late, "still silent");
    util_check(mute(late + KVR_OUTLIER_MEMORY - 1, 0), "for a while");
    util_check(!mute(late + KVR_OUTLIER_MEMORY, 0), "not for ever");
    util_check(mute(far, 1) == far, "unless a request waits");
    kvr_outlier_heard(&o);
    util_check(!mute(3 * late, 0), "until it answers");

    owe(0, KVR_OUTLIER_USUAL, 10);
    kvr_outlier_unheard(&o, now, 0, now + late);
    kvr_outlier_owe(&o, &fleet, 1, 0, 0, now + far);
    util_check(mute(far + late, 1) == late, "a later stream counts anew");

    /* nginx times out, whichever request it was */

    setup();
    kvr_outlier_unheard(&o, now, 1, now + KVR_OUTLIER_SILENCE - 1);
    util_check(!mute(far, 0), "a short timeout");
    kvr_outlier_unheard(&o, now, 1, now + KVR_OUTLIER_SILENCE);
    util_check(mute(late, 0) == late, "a timeout");
    kvr_outlier_unheard(&o, now + late, 1, now + far);
    util_check(mute(far, 0) == far, "two timeouts");
    util_check(!mute(far + KVR_OUTLIER_MEMORY, 0), "both ended long ago");

    /* a stream was sent by a worker whose clock is ahead */

    owe(0, KVR_OUTLIER_USUAL, 10);
    kvr_outlier_unheard(&o, now - late, 1, now - 1);
    util_check(mute(0, 0) == 1, "no wait yet");

    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_TIMEOUT, now);
    util_check(!mute(far, 0), "ejected, so not silent");
}


TEST(test_outlier_budget)
{
    int                 i, n;
    kvr_outlier_conf_t  none;

    setup();

    for (i = 0; i < 1000; i++) {
        kvr_outlier_sent(&fleet, 0, now);
    }

    for (n = 0; n < 1000 && kvr_outlier_may_retry(&fleet, &conf, now); n++) {
        kvr_outlier_sent(&fleet, 1, now);
    }

    util_check(n == 200 + KVR_OUTLIER_RESERVE, "%d of 1000", n);

    none = conf;
    none.budget = 0;
    util_check(kvr_outlier_may_retry(&fleet, &none, now), "no limit");

    now += 20 * KVR_OUTLIER_RETRIES;
    util_check(kvr_outlier_may_retry(&fleet, &conf, now), "later");
}


/* a process that has not seen the end of a half window forgets nothing */
TEST(test_outlier_behind)
{
    int       n;
    uint64_t  half;

    setup();

    half = KVR_OUTLIER_RETRIES / 2 + 1;
    now -= now % half;

    for (n = 0; n < 1000 && kvr_outlier_may_retry(&fleet, &conf, now); n++) {
        kvr_outlier_sent(&fleet, 1, now - n % 2);
    }

    util_check(n == KVR_OUTLIER_RESERVE, "%d retries", n);

    /* but a time is not days behind */

    now += 60000 * half;
    util_check(kvr_outlier_may_retry(&fleet, &conf, now), "days later");
}


TEST(test_outlier_spare)
{
    setup();

    (void) kvr_outlier_eject(&o, &conf, KVR_OUTLIER_STATUS, now);
    kvr_outlier_spare(&o, now);
    util_check(!sick() && !kvr_outlier_ejected(kvr_get(&o.state)),
               "taken back");
}
