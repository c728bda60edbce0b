
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_eject: the servers of an upstream, and how many are ejected at once */


#include "util_zone.h"
#include "util.h"
#include "core/state/kvr_snapshot.h"


#define SERVERS  8
#define LINES    256


static kvr_zone_t   zone;
static kvr_pool_t   pool;
static uint32_t     peer[SERVERS];
static uint32_t     member[SERVERS];
static uint64_t     now;


static void
setup(void)
{
    char      name[8];
    uint32_t  i;

    memset(&pool, 0, sizeof(kvr_pool_t));

    util_zone(&zone, SERVERS, LINES);

    for (i = 0; i < SERVERS; i++) {
        snprintf(name, sizeof(name), "a:%u", i);
        peer[i] = kvr_registry_peer(zone.registry, zone.load, zone.row,
                                    zone.index, name, strlen(name), 1 << 20);
        member[i] = kvr_registry_member(zone.registry, zone.load, zone.row,
                                        peer[i], "u", 1);
        kvr_set_add(&pool.set, peer[i]);
    }

    pool.max_waiting = -1;
    pool.upstream = zone.registry->member[member[0]].upstream;
    pool.eject = (kvr_outlier_conf_t) {
        .fails = 5, .time = 10000, .on = 1
    };

    now = 1000000;
}


static void
teardown(void)
{
    util_zone_free(&zone);
}


static kvr_attempt_t
begin(uint32_t i)
{
    kvr_begin_t    b = { 0 };
    kvr_attempt_t  at;

    b.peer = peer[i];
    b.member = member[i];
    b.bytes = 8192;
    b.pending = 8192;
    b.pool = &pool;

    kvr_attempt_begin(&at, &zone, &b, NULL, now);

    return at;
}


static unsigned
end(kvr_attempt_t *at, kvr_outlier_e reason)
{
    unsigned  rc;

    rc = kvr_attempt_judge(at, &zone, &pool, reason, now);
    (void) kvr_attempt_release(at, &zone);
    (void) kvr_attempt_end(at);

    return rc;
}


static unsigned
good(uint32_t i, uint64_t ms)
{
    unsigned       rc;
    kvr_first_t    f = { 0 };
    kvr_attempt_t  at;

    f.ok = 1;
    f.stream = 1;
    f.plain = 1;

    at = begin(i);
    rc = kvr_attempt_first(&at, &zone, &pool, &f, now + ms);

    return rc | end(&at, KVR_OUTLIER_NONE);
}


static unsigned
bad(uint32_t i)
{
    kvr_attempt_t  at;

    at = begin(i);

    return end(&at, KVR_OUTLIER_STATUS);
}


static int
sick(uint32_t i)
{
    kvr_view_t       v = { 0 };
    kvr_candidate_t  c;

    v.zone = &zone;
    v.pool = &pool;
    v.bound = v.pin = v.owner = KVR_PEERS;
    v.now = now;

    kvr_candidate_view(&v);
    kvr_candidate_init(&v, &c, peer[i], member[i], 0);

    if (v.outliers && kvr_eject_looked(&zone, &pool, v.silent, now)) {
        kvr_candidate_init(&v, &c, peer[i], member[i], 0);
    }

    return c.sick;
}


/* picks one of two; the first is ejected, and the second if all is set */
static uint32_t
pick(kvr_policy_e policy, unsigned all)
{
    kvr_decision_t        d;
    kvr_candidate_t       c[2] = { 0 };
    kvr_policy_request_t  req = { 0 };

    c[0].sick = 1;
    c[1].sick = all;
    c[0].weight = c[1].weight = 1;
    c[0].effective_weight = c[1].effective_weight = 1;
    c[0].matched = 8192;
    c[1].active = 10;
    c[1].place = 1;

    req.policy = policy;
    req.bytes = 8192;
    req.parsed = 1;

    kvr_policy_pick(&req, c, 2, &d);

    return d.pick;
}


TEST(test_eject_share)
{
    uint32_t  i, k, out;

    setup();

    (void) good(SERVERS - 1, 100);

    for (i = 0, out = 0; i < SERVERS - 1; i++) {
        for (k = 0; k < 20; k++) {
            (void) bad(i);
        }

        out += (uint32_t) sick(i);
    }

    util_check(out == SERVERS / 2, "%u out", out);
    util_check(!sick(SERVERS - 1), "the good one");

    /* no policy picks it while there are others */

    for (i = 1; i < KVR_POLICIES; i++) {
        util_check(pick((kvr_policy_e) i, 0) == 1, "policy %u", i);
        util_check(pick((kvr_policy_e) i, 1) < 2, "policy %u: all", i);
    }

    /* switched off: ejected servers are used again */

    pool.eject.on = 0;
    util_check(!sick(0), "off");

    teardown();
}


/* all servers fail: none does better, except for the first one */
TEST(test_eject_all)
{
    uint32_t  i, k, out;

    setup();

    for (k = 0; k < 50; k++) {
        for (i = 0; i < SERVERS; i++) {
            (void) bad(i);
        }
    }

    for (i = 0, out = 0; i < SERVERS; i++) {
        out += (uint32_t) sick(i);
    }

    util_check(out == 0, "%u out", out);

    /* the last usable one of two is never ejected */

    pool.set = kvr_set_of(peer[0]);

    for (k = 0; k < 50; k++) {
        (void) bad(0);
    }

    util_check(!sick(0), "alone");

    teardown();
}


TEST(test_eject_back)
{
    uint32_t  k;
    unsigned  rc;

    setup();

    (void) good(1, 100);

    for (k = 0, rc = 0; k < 5; k++) {
        util_check(rc == 0 && !sick(0), "bad %u", k);
        rc = bad(0);
    }

    util_check(rc == KVR_EJECT_EJECTED && sick(0), "out");
    util_check(kvr_get(&zone.registry->member[member[0]].ejections) == 1,
               "counted");

    now += pool.eject.time;

    for (k = 0, rc = 0; k < KVR_OUTLIER_PASSES; k++) {
        util_check(rc == 0 && !sick(0), "probe %u", k);
        rc = good(0, 100);
        now += 200;
    }

    util_check(rc & KVR_EJECT_RETURNED, "back");
    util_check(kvr_get(&zone.registry->member[member[0]].lost), "warmed up");

    teardown();
}


TEST(test_eject_slow)
{
    uint32_t  i, k;

    setup();

    for (k = 0; k < 20; k++) {
        for (i = 1; i < SERVERS; i++) {
            (void) good(i, 100);
        }
    }

    for (k = 0; k < 5; k++) {
        util_check(!sick(0), "slow %u", k);
        (void) good(0, 5000);
    }

    util_check(sick(0), "out");

    teardown();
}


/* a server sends a 4xx answer to a request that came there like this */
static unsigned
refused_as(kvr_outlier_e reason, uint32_t i, kvr_trial_arm_e arm,
    uint32_t doubted)
{
    kvr_attempt_t  at;

    at = begin(i);
    at.eject.arm = arm;
    at.eject.doubted = member[doubted];

    return end(&at, reason);
}


static unsigned
refused(uint32_t i, kvr_trial_arm_e arm, uint32_t doubted)
{
    return refused_as(KVR_OUTLIER_401, i, arm, doubted);
}


static unsigned
served(uint32_t i, kvr_trial_arm_e arm, uint32_t doubted)
{
    kvr_first_t    f = { 0 };
    kvr_attempt_t  at;

    f.ok = 1;

    at = begin(i);
    at.eject.arm = arm;
    at.eject.doubted = member[doubted];

    return kvr_attempt_first(&at, &zone, &pool, &f, now)
           | end(&at, KVR_OUTLIER_NONE);
}


/* a server on trial: it is at fault, or a client is */
TEST(test_eject_trial)
{
    uint32_t              k;
    unsigned              rc;
    kvr_candidate_t       c[2] = { 0 };
    kvr_outlier_fleet_t  *fleet;

    setup();

    fleet = kvr_eject_fleet(&zone, &pool);
    fleet->look = UINT64_MAX;

    for (k = 0; k < 20; k++) {
        util_check(!refused(0, KVR_TRIAL_FIXED, 0), "named");
    }

    util_check(!kvr_outlier_look(fleet, now), "proves nothing");

    for (k = 0; k < 5; k++) {
        util_check(!refused(0, KVR_TRIAL_NONE, 0), "%u", k);
    }

    util_check(kvr_outlier_look(fleet, now) && !sick(0), "on trial");

    for (k = 0, rc = 0; k < 100 && !rc; k++) {
        rc = k % 4 ? served(1, KVR_TRIAL_ELSEWHERE, 0)
                   : refused(0, KVR_TRIAL_THERE, 0);
    }

    util_check(rc == KVR_EJECT_EJECTED && sick(0) && k < 24, "out after %u", k);
    util_check(kvr_get(&zone.registry->member[member[0]].ejections) == 1
               && !sick(1), "ejected once");

    /* both servers give the same answers */

    for (k = 0; k < 5; k++) {
        (void) refused(2, KVR_TRIAL_NONE, 0);
    }

    for (k = 0, rc = 0; k < 100; k++) {
        rc |= k % 4 ? refused(1, KVR_TRIAL_ELSEWHERE, 2)
                    : refused(2, KVR_TRIAL_THERE, 0);
    }

    util_check(rc == 0 && !sick(2), "a client's fault");

    /* a single server gets no trial; only usable others count */

    c[0].doubted = 1;
    util_check(kvr_eject_trial(c, 1, 0) == KVR_TRIAL_NONE, "alone");

    c[1].throttled = 1;
    util_check(kvr_eject_trial(c, 2, 0) == KVR_TRIAL_NONE, "no other one");

    c[1].throttled = 0;
    util_check(kvr_eject_trial(c, 2, 0) == KVR_TRIAL_THERE,
               "to the server on trial");
    util_check(kvr_eject_trial(c, 2, UINT64_MAX) == KVR_TRIAL_ELSEWHERE
               && c[0].sick && !c[1].sick, "elsewhere");

    teardown();
}


/* a sick server gives several kinds of answers */
TEST(test_eject_mixed)
{
    uint32_t       k;
    unsigned       rc;
    kvr_outlier_e  reason[3] = {
        KVR_OUTLIER_401, KVR_OUTLIER_403, KVR_OUTLIER_400
    };

    setup();

    for (k = 0; k < 5; k++) {
        (void) refused_as(reason[k % 3], 0, KVR_TRIAL_NONE, 0);
    }

    for (k = 0, rc = 0; k < 200 && !rc; k++) {
        rc = k % 4 ? served(1, KVR_TRIAL_ELSEWHERE, 0)
                   : refused_as(reason[k / 4 % 3], 0, KVR_TRIAL_THERE, 0);
    }

    util_check(rc == KVR_EJECT_EJECTED && sick(0), "one of three reasons");

    /* errors by other clients' bad requests prove nothing */

    for (k = 0; k < 5; k++) {
        (void) refused(2, KVR_TRIAL_NONE, 0);
    }

    for (k = 0, rc = 0; k < 100 && !rc; k++) {
        rc = k % 4 == 0 ? refused(2, KVR_TRIAL_THERE, 0)
             : k % 4 == 1 ? refused_as(KVR_OUTLIER_422, 1,
                                       KVR_TRIAL_ELSEWHERE, 2)
             : served(1, KVR_TRIAL_ELSEWHERE, 2);
    }

    util_check(rc == KVR_EJECT_EJECTED && sick(2), "beside bad requests");

    /* two of three answers are bad; less than half */

    for (k = 0; k < 20; k++) {
        (void) (k % 3 ? refused(3, KVR_TRIAL_NONE, 0)
                      : served(3, KVR_TRIAL_NONE, 0));
        (void) (k % 3 ? served(4, KVR_TRIAL_NONE, 0)
                      : refused(4, KVR_TRIAL_NONE, 0));
    }

    util_check(kvr_trial_reason(zone.registry->member[member[3]].outlier.trial)
               == KVR_OUTLIER_401, "on trial");
    util_check(!kvr_trial_reason(zone.registry->member[member[4]].outlier
                                 .trial), "not on trial");

    teardown();
}


/* a decision reads the states only if the flag is set, or sometimes */
TEST(test_eject_look)
{
    uint32_t              i, k;
    kvr_outlier_fleet_t  *fleet;

    setup();

    fleet = kvr_eject_fleet(&zone, &pool);

    for (k = 0; k < 20; k++) {
        for (i = 0; i < SERVERS; i++) {
            (void) good(i, 100);
        }
    }

    util_check(!sick(0) && !kvr_outlier_look(fleet, now), "none is ejected");
    util_check(kvr_outlier_look(fleet, now + KVR_OUTLIER_LOOK), "sometimes");

    for (k = 0; k < 5; k++) {
        (void) bad(0);
        (void) bad(1);
    }

    util_check(kvr_outlier_look(fleet, now) && sick(0) && sick(1), "two");

    /* one of them returns */

    while (kvr_outlier_ejected(zone.registry->member[member[0]].outlier
                               .state))
    {
        now += 20000;
        (void) good(0, 100);
    }

    fleet->look = UINT64_MAX;
    util_check(kvr_outlier_look(fleet, now), "one is ejected");

    while (kvr_outlier_ejected(zone.registry->member[member[1]].outlier
                               .state))
    {
        now += 20000;
        (void) good(1, 100);
    }

    util_check(!kvr_outlier_look(fleet, now), "both are back");

    /* killed before it set the flag */

    for (k = 0; k < 5; k++) {
        (void) bad(0);
    }

    fleet->ejected = 0;
    fleet->look = now + KVR_OUTLIER_LOOK;
    now += KVR_OUTLIER_LOOK;
    util_check(sick(0) && kvr_get(&fleet->ejected), "flag set");

    zone.registry->member[member[0]].outlier.state = 0;
    now += KVR_OUTLIER_LOOK;
    util_check(!sick(0) && !kvr_get(&fleet->ejected), "likewise");

    teardown();
}


/* servers that accept requests and never answer */
TEST(test_eject_silent)
{
    uint32_t       i, k;
    kvr_attempt_t  a, b;

    setup();

    for (k = 0; k < 20; k++) {
        for (i = 1; i < SERVERS; i++) {
            (void) good(i, 100);
        }
    }

    a = begin(0);
    now += 2 * KVR_OUTLIER_SILENCE;
    util_check(!sick(0), "one answer proves nothing");

    b = begin(0);
    util_check(!sick(0), "another request has just looked");

    now += KVR_OUTLIER_LOOK;
    util_check(sick(0), "two do");

    (void) end(&a, KVR_OUTLIER_NONE);
    (void) end(&b, KVR_OUTLIER_NONE);
    teardown();

    /* the waiting requests were killed or canceled */

    setup();

    for (k = 0; k < 20; k++) {
        (void) good(1, 100);
        (void) good(2, 100);
    }

    a = begin(0);
    b = begin(0);
    (void) kvr_attempt_release(&a, &zone);
    (void) kvr_attempt_release(&b, &zone);

    now += 100 * KVR_OUTLIER_SILENCE;
    util_check(!sick(0), "no request waits");

    a = begin(0);
    b = begin(0);
    util_check(!sick(0), "new requests have just begun");

    teardown();
}


static kvr_attempt_t
stream(uint32_t i, unsigned whole)
{
    kvr_begin_t    b = { 0 };
    kvr_attempt_t  at;

    b.peer = peer[i];
    b.member = member[i];
    b.bytes = 1024;
    b.pending = 0;
    b.pool = &pool;
    b.stream = !whole;

    kvr_attempt_begin(&at, &zone, &b, NULL, now);

    return at;
}


static uint64_t
mute(uint32_t i, uint64_t ms)
{
    kvr_snapshot_t  s;

    kvr_snapshot(&zone, peer[i], member[i], now + ms, &s);

    return s.mute;
}


/* a single request waits: no ejection, but it is recorded */
TEST(test_eject_mute)
{
    uint32_t              on;
    kvr_outlier_fleet_t  *fleet;
    kvr_first_t           f = { .ok = 1, .stream = 1 }, no = { 0 };
    kvr_attempt_t         a, b, c;

    const uint64_t  late = KVR_OUTLIER_PATIENCE;

    for (on = 0; on < 2; on++) {
        setup();
        pool.eject.on = on;
        fleet = kvr_eject_fleet(&zone, &pool);

        for (kvr_set(&fleet->samples, 0);
             kvr_get(&fleet->samples) < KVR_OUTLIER_USUAL; )
        {
            (void) good(1, 100);
        }

        /* a stream without others before it */

        a = stream(0, 0);
        util_check(mute(0, late) == late, "%u: waits too long", on);
        util_check(mute(1, late) == 0, "at another server");
        now += 10;
        b = stream(0, 0);
        (void) kvr_attempt_first(&a, &zone, &pool, &f, now);
        util_check(!mute(0, late), "%u: answers one", on);

        /* this one waits behind another one, which streams */

        c = stream(0, 0);
        util_check(!mute(0, late), "%u: behind another", on);
        (void) kvr_attempt_first(&b, &zone, &pool, &no, now);
        (void) kvr_attempt_first(&c, &zone, &pool, &f, now);
        (void) end(&b, KVR_OUTLIER_STATUS);

        b = stream(0, 0);
        util_check(mute(0, late), "%u: the next one alone", on);
        kvr_attempt_heard(&a, &zone);
        util_check(!mute(0, late), "%u: an event of an older one", on);

        (void) end(&a, KVR_OUTLIER_NONE);
        (void) end(&b, KVR_OUTLIER_NONE);
        (void) end(&c, KVR_OUTLIER_NONE);

        /* a complete answer without a stream proves nothing, a timeout does */

        a = stream(0, 1);
        util_check(!mute(0, 100 * late), "%u: no stream", on);
        b = stream(0, 0);
        util_check(!mute(0, 100 * late), "%u: behind it", on);
        now += late;
        (void) end(&b, KVR_OUTLIER_NONE);
        util_check(!mute(0, 0), "%u: it left", on);
        (void) end(&a, KVR_OUTLIER_TIMEOUT);
        util_check(mute(0, 1) == late + 1, "%u: timed out", on);

        a = stream(0, 0);
        (void) end(&a, KVR_OUTLIER_BROKEN);
        util_check(mute(0, 1), "%u: no life", on);
        a = stream(0, 0);
        (void) end(&a, KVR_OUTLIER_REFUSED);
        util_check(!mute(0, 1), "%u: another fault", on);

        /* the server restarts */

        now += 2 * late;
        a = stream(0, 0);
        now += late;
        util_check(mute(0, 0), "%u: again", on);
        kvr_engine_renew(&zone.registry->peer[peer[0]].engine, now);
        util_check(!mute(0, 1), "%u: a new process", on);
        b = stream(0, 0);
        now += late;
        util_check(!mute(0, 0), "%u: a's is lost", on);

        (void) end(&a, KVR_OUTLIER_RESET);
        (void) end(&b, KVR_OUTLIER_NONE);
        teardown();
    }

    /* other clients' requests take time there */

    setup();
    kvr_set(&kvr_eject_fleet(&zone, &pool)->samples, KVR_OUTLIER_USUAL);
    kvr_set(&zone.registry->peer[peer[0]].engine.foreign, 1);
    a = stream(0, 0);
    util_check(!mute(0, 100 * late), "with others");
    (void) end(&a, KVR_OUTLIER_NONE);
    teardown();
}
