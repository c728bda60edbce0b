
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests kvr_engine: restarts, other routers' load, preemptions, age, health.
 */


#include "util.h"
#include "core/engine/kvr_engine.h"


static kvr_engine_t   sig;
static kvr_metrics_t  m;


static void
fresh(void)
{
    kvr_engine_reset(&sig);
    memset(&m, 0, sizeof(m));
}


TEST(test_engine_restart)
{
    fresh();

    m.set = KVR_METRICS_QUERIES|KVR_METRICS_HITS|KVR_METRICS_CAPACITY;
    m.queries = 1000;
    m.hits = 500;
    m.capacity = 64;

    util_check(kvr_engine_take(&sig, &m, 0, 0, 1) == 0, "first");
    util_check(sig.capacity == 64, "the capacity");
    util_check(kvr_engine_take(&sig, &m, 0, 0, 2) == 0, "the same");

    /* sums of several processes vary */

    m.queries = 900;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 3) == 0, "slightly lower");

    m.queries = 10;
    m.hits = 0;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 4) == KVR_ENGINE_RESTARTED,
               "from the beginning");

    /* a start time decides */

    m.set |= KVR_METRICS_START;
    m.start = 1.7e9;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 5) == 0, "a new field");
    m.queries = 0;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 6) == 0, "the same process");
    m.start = 1.7e9 + 1;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 6) == 0, "rounded");
    m.start = 1.7e9 + 60;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 6) == KVR_ENGINE_RESTARTED,
               "another process");

    /* two engines in turn at one address are not restarts */

    m.start = 1.7e9;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 7) == 0, "an older one");
    m.start = 1.7e9 + 60;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 8) == 0, "the later one again");
}


/* Tests kvr_engine_same(). */
TEST(test_engine_same)
{
    fresh();

    util_check(!kvr_engine_same(&sig, 1000, 1000), "no report yet");

    m.set = KVR_METRICS_RUNNING|KVR_METRICS_CAPACITY;
    (void) kvr_engine_take(&sig, &m, 0, 0, 1000);
    util_check(!kvr_engine_same(&sig, 1000, 1000), "no report of that kind");

    m.set |= KVR_METRICS_START|KVR_METRICS_QUERIES;
    m.start = 1.7e9;
    m.queries = 1000;
    (void) kvr_engine_take(&sig, &m, 0, 0, 2000);
    util_check(kvr_engine_same(&sig, 2000, 1000), "reported");
    util_check(kvr_engine_same(&sig, 5000, 1000), "a recent report");
    util_check(!kvr_engine_same(&sig, 6000, 1000), "an old report");
    util_check(kvr_engine_same(&sig, 12000, 3600000), "asked seldom");
    util_check(!kvr_engine_same(&sig, 13000, 3600000), "too seldom");

    kvr_engine_refused(&sig, 3000);
    util_check(!kvr_engine_same(&sig, 3000, 1000), "connection refused");
    (void) kvr_engine_take(&sig, &m, 0, 0, 4000);
    util_check(kvr_engine_same(&sig, 4000, 1000), "connected");

    m.queries = 10;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 5000) == 0
               && !kvr_engine_same(&sig, 5000, 1000), "a counter fell");
    (void) kvr_engine_take(&sig, &m, 0, 0, 64000);
    util_check(!kvr_engine_same(&sig, 64000, 1000), "a minute of doubt");
    (void) kvr_engine_take(&sig, &m, 0, 0, 66000);
    util_check(kvr_engine_same(&sig, 66000, 1000), "after the doubt");
}


/* the same restart, detected by several means and more than once */
TEST(test_engine_once)
{
    fresh();

    m.set = KVR_METRICS_QUERIES|KVR_METRICS_HITS|KVR_METRICS_START;
    m.queries = 1000;
    m.hits = 500;
    m.start = 1.7e9;
    (void) kvr_engine_take(&sig, &m, 0, 0, 1);

    /* a counter that the engine reports only when it is not 0 */

    m.set = KVR_METRICS_QUERIES|KVR_METRICS_START;
    m.queries = 2;
    m.start = 1.7e9 + 60;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 2) == KVR_ENGINE_RESTARTED,
               "a restart by its start time");
    m.set = KVR_METRICS_QUERIES|KVR_METRICS_HITS;
    m.queries = 3;
    m.hits = 1;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 3) == 0,
               "no restart by its hits");
    m.set |= KVR_METRICS_START;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 4) == 0,
               "no restart by its start time");

    /* a probe was refused: the restart is reported once */

    m.queries = 1000;
    (void) kvr_engine_take(&sig, &m, 0, 0, 5);

    util_check(!kvr_engine_back(&sig, 6), "was not gone");
    kvr_engine_refused(&sig, 6);
    util_check(kvr_engine_back(&sig, 7), "is back");
    util_check(!kvr_engine_back(&sig, 8), "reported once");

    m.queries = 0;
    m.hits = 0;
    m.start = 1.7e9 + 120;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 9) == 0, "reported already");

    /* a probe that started before the restart was detected is refused now */

    kvr_engine_refused(&sig, 7);
    util_check(!kvr_engine_back(&sig, 10), "reported already");

    /* a probe that was answered before the refusal and is read later */

    util_check(!kvr_engine_past(&sig, 10), "connected");
    kvr_engine_refused(&sig, 11);
    util_check(kvr_engine_past(&sig, 10) && kvr_engine_past(&sig, 11)
               && !kvr_engine_past(&sig, 12), "before the refusal");
    util_check(kvr_engine_take(&sig, &m, 0, 0, 12) == KVR_ENGINE_RESTARTED,
               "gone");
    util_check(!kvr_engine_back(&sig, 13), "reported once");
    util_check(kvr_engine_take(&sig, &m, 0, 0, 14) == 0, "reported once");

    m.start = 1.7e9 + 180;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 15) == KVR_ENGINE_RESTARTED,
               "the next restart");

    /* responses report the restart first, before or after the refusal */

    m.set |= KVR_METRICS_PREEMPTIONS|KVR_METRICS_RUNNING;
    m.queries = 1000;
    m.hits = 500;
    m.preemptions = 1;
    m.running = 8;
    (void) kvr_engine_take(&sig, &m, 0, 0, 16);

    kvr_engine_refused(&sig, 17);
    kvr_engine_renew(&sig, 18);
    util_check(!kvr_engine_back(&sig, 19), "reported already");
    m.start = 1.7e9 + 240;
    m.queries = 20;
    m.hits = 10;
    m.preemptions = 5;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 20) == 0, "reported already");
    util_check(sig.cap == 0, "preemptions may be old: %u", sig.cap);

    m.queries = 0;
    m.hits = 0;
    m.start = 1.7e9 + 300;
    util_check(kvr_engine_take(&sig, &m, 0, 0, 21) == KVR_ENGINE_RESTARTED,
               "the next restart");

    kvr_engine_renew(&sig, 22);
    kvr_engine_refused(&sig, 23);
    util_check(kvr_engine_take(&sig, &m, 0, 0, 24) == KVR_ENGINE_RESTARTED,
               "refused after the report");
}


/* a clock that was ahead; then it was set and the engine restarted */
TEST(test_engine_clock)
{
    unsigned  i;

    for (i = 0; i < 2; i++) {
        fresh();

        m.set = KVR_METRICS_QUERIES|KVR_METRICS_START;
        m.queries = 1000;
        m.start = 4e9;
        (void) kvr_engine_take(&sig, &m, 0, 0, 1);

        kvr_engine_refused(&sig, 2);

        if (i) {
            util_check(kvr_engine_back(&sig, 3), "is back");
        }

        m.start = 1.7e9;
        util_check(kvr_engine_take(&sig, &m, 0, 0, 4)
                   == (i ? 0 : KVR_ENGINE_RESTARTED), "reported once");
        util_check(kvr_engine_take(&sig, &m, 0, 0, 5) == 0, "reported");

        m.start = 1.7e9 + 60;
        util_check(kvr_engine_take(&sig, &m, 0, 0, 6) == KVR_ENGINE_RESTARTED,
                   "the next one, %u", i);
    }
}


TEST(test_engine_foreign)
{
    fresh();

    m.set = KVR_METRICS_RUNNING|KVR_METRICS_WAITING;
    m.running = 5;
    m.waiting = 4;

    (void) kvr_engine_take(&sig, &m, 2, 1, 1);
    util_check(sig.foreign == 0, "once is nothing");

    (void) kvr_engine_take(&sig, &m, 1, 3, 2);
    util_check(sig.foreign == 6, "%u", sig.foreign);

    (void) kvr_engine_take(&sig, &m, 9, 12, 3);
    util_check(sig.foreign == 0, "all requests are ours");

    m.set = 0;
    (void) kvr_engine_take(&sig, &m, 0, 0, 4);
    (void) kvr_engine_take(&sig, &m, 0, 0, 5);
    util_check(sig.foreign == 0, "no report: no load of others");
}


TEST(test_engine_worth)
{
    fresh();

    util_check(kvr_engine_worth(&sig, 5000, 1000) == 0, "no report");

    (void) kvr_engine_take(&sig, &m, 0, 0, 10000);

    util_check(kvr_engine_worth(&sig, 9000, 1000) == 1, "clock put back");
    util_check(kvr_engine_worth(&sig, 12000, 1000) == 1, "new");
    util_check(kvr_engine_worth(&sig, 13500, 1000) == 0.5, "older");
    util_check(kvr_engine_worth(&sig, 15000, 1000) == 0, "old");
    util_check(kvr_engine_worth(&sig, UINT64_MAX, 1000) == 0, "very old");
}


TEST(test_engine_preemptions)
{
    int       i;
    uint32_t  cap;

    fresh();

    m.set = KVR_METRICS_RUNNING|KVR_METRICS_PREEMPTIONS;
    m.running = 40;
    m.preemptions = 7;

    (void) kvr_engine_take(&sig, &m, 0, 0, 1);
    util_check(sig.cap == 0, "earlier preemptions");

    m.preemptions = 9;
    (void) kvr_engine_take(&sig, &m, 0, 0, 2);
    util_check(sig.cap == 30, "%u", sig.cap);

    cap = 30;

    for (i = 0; i < 100 && sig.cap; i++) {
        (void) kvr_engine_take(&sig, &m, 0, 0, 3);
        util_check(sig.cap == 0 || sig.cap > cap, "%u", sig.cap);
        cap = sig.cap;
    }

    util_check(i > 10 && sig.cap == 0, "slowly, and then none: %d", i);

    /* a counter that restarts is no preemption */

    m.set |= KVR_METRICS_QUERIES;
    m.queries = 1000;
    (void) kvr_engine_take(&sig, &m, 0, 0, 4);
    m.queries = 0;
    m.preemptions = 20;
    (void) kvr_engine_take(&sig, &m, 0, 0, 5);
    util_check(sig.cap == 0, "restarted");
}


TEST(test_engine_health)
{
    int  rc;

    fresh();

#define check(result, now)  kvr_engine_check(&sig, result, 2, 2, 1000, now)

    rc = check(KVR_CHECK_FAIL, 1);
    util_check(rc == 0 && sig.health == KVR_HEALTH_UP, "one failed check");
    rc = check(KVR_CHECK_FAIL, 1);
    util_check(rc == 0 && sig.health == KVR_HEALTH_DOWN, "two");
    rc = check(KVR_CHECK_PASS, 1);
    util_check(rc == 0 && sig.health == KVR_HEALTH_DOWN, "one passed check");
    rc = check(KVR_CHECK_PASS, 1);
    util_check(rc == 1 && sig.health == KVR_HEALTH_UP, "back");
    rc = check(KVR_CHECK_LOADING, 1);
    util_check(rc == 0 && sig.health == KVR_HEALTH_STARTING, "loading");
    (void) check(KVR_CHECK_PASS, 1);
    rc = check(KVR_CHECK_PASS, 1);
    util_check(rc == 1 && sig.health == KVR_HEALTH_UP, "loaded");

    util_check(sig.checks == 7 && sig.checks_failed == 2,
               "all checks are counted");
    util_check(sig.unhealthy == 1 && sig.last == KVR_CHECK_PASS, "once down");

    /* busy with requests of our clients */

    sig.success = 10000;
    (void) check(KVR_CHECK_TIMEOUT, 11000);
    (void) check(KVR_CHECK_TIMEOUT, 12000);
    (void) check(KVR_CHECK_TIMEOUT, 12900);
    util_check(sig.health == KVR_HEALTH_UP, "busy");
    (void) check(KVR_CHECK_TIMEOUT, 13000);
    (void) check(KVR_CHECK_TIMEOUT, 14000);
    util_check(sig.health == KVR_HEALTH_DOWN, "hangs");
    (void) check(KVR_CHECK_FAIL, 15000);
    util_check(sig.checks_failed == 8 && sig.unhealthy == 2
               && sig.last == KVR_CHECK_FAIL, "down is down");
}


TEST(test_engine_lora)
{
    fresh();

    m.set = KVR_METRICS_LORA;
    m.max_loras = 2;
    m.loras = 1;
    m.lora[0] = kvr_metrics_lora("a", 1);
    (void) kvr_engine_take(&sig, &m, 0, 0, 1);

    util_check(kvr_engine_lora(&sig, kvr_metrics_lora("a", 1)) == 1, "has");
    util_check(kvr_engine_lora(&sig, kvr_metrics_lora("b", 1)) == 0, "room");

    m.loras = 2;
    m.lora[1] = kvr_metrics_lora("c", 1);
    (void) kvr_engine_take(&sig, &m, 0, 0, 1);

    util_check(kvr_engine_lora(&sig, kvr_metrics_lora("c", 1)) == 1, "has");
    util_check(kvr_engine_lora(&sig, kvr_metrics_lora("b", 1)) == -1, "full");

    m.max_loras = 0;
    (void) kvr_engine_take(&sig, &m, 0, 0, 1);
    util_check(kvr_engine_lora(&sig, kvr_metrics_lora("b", 1)) == 0,
               "unknown limit");
}


static uint64_t
capacity(uint64_t tokens, uint64_t now)
{
    m.set = KVR_METRICS_RUNNING|(tokens ? KVR_METRICS_CAPACITY : 0);
    m.capacity = tokens;

    (void) kvr_engine_take(&sig, &m, 0, 0, now);

    return kvr_engine_capacity(&sig, now, 10);
}


/* of alternating reports the lowest counts, and no old one */
TEST(test_engine_capacity)
{
    unsigned  i;

    fresh();

    util_check(kvr_engine_capacity(&sig, 5, 10) == 0, "no capacity");
    util_check(capacity(4000, 1000) == 4000, "the first");
    util_check(capacity(2000, 1010) == 2000, "a lower one");

    for (i = 0; i < 200; i++) {
        util_check(capacity(i % 2 ? 2000 : UINT64_MAX, 1020) == 2000, "%u", i);
    }

    for (i = 1; i < KVR_ENGINE_HOLD; i++) {
        util_check(capacity(3000 + i, 1030) == 2000, "higher, %u", i);
    }

    util_check(capacity(4000, 1030) == 4000, "often enough");

    /* probes without a capacity */

    util_check(capacity(0, 1030 + 10 * KVR_ENGINE_HOLD) == 4000,
               "the capacity holds");
    util_check(capacity(0, 1031 + 10 * KVR_ENGINE_HOLD) == 0, "too old");
    util_check(kvr_engine_capacity(&sig, 1031 + 10 * KVR_ENGINE_HOLD, 11)
               == 4000, "probes are seldom");
    util_check(kvr_engine_capacity(&sig, 1030 + 1000 * KVR_ENGINE_HOLD, 0)
               == 4000, "no probes");

    /* another process can have more */

    capacity(4000, 2000);
    kvr_engine_refused(&sig, 2001);
    util_check(capacity(8000, 2010) == 8000, "restarted");

    m.set |= KVR_METRICS_NO_CACHE;
    (void) kvr_engine_take(&sig, &m, 0, 0, 3000);
    util_check(kvr_engine_uncached(&sig, 3600, 10)
               && !kvr_engine_uncached(&sig, 3601, 10), "no cache");
}
