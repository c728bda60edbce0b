
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_feedback: when a peer has lost its cache and when not, and how its
 * capacity and its bytes per token are corrected.
 */


#include "util.h"
#include "core/learn/kvr_feedback.h"


static kvr_feedback_t  feedback;
static unsigned    speculative;


#define CAPACITY  1000

static uint32_t  age;
static int       reported = 1;
static unsigned  alive;
static unsigned  unsized;
static uint64_t  bytes = 40000;
static int64_t   completion = 1;


static int
take(uint64_t matched, int64_t cached, uint64_t key, uint64_t clock,
    uint32_t now, uint64_t *floor)
{
    kvr_feedback_response_t  r = { 0 };

    r.bytes = bytes;
    r.matched = matched;
    r.prompt = 10000;
    r.cached = cached;
    r.completion = completion;
    r.key = key;
    r.clock = clock;
    r.kind = 3;
    r.block = 256;
    r.capacity = reported ? CAPACITY : 0;
    r.speculative = speculative;
    r.alive = alive;
    r.unsized = unsized;
    r.inserted = age ? matched : 0;
    r.age = age;

    return kvr_feedback_take(&feedback, &r, now, floor);
}


static void
fresh(void)
{
    memset((void *) &feedback, 0, sizeof(feedback));
}


static uint32_t
retention(void)
{
    kvr_retention_sum_t  sum = { 0 };

    kvr_retention_add(&sum, &feedback.retention);

    return kvr_retention_among(&feedback.retention, &sum);
}


TEST(test_loop_forgot)
{
    int       rc;
    uint64_t  floor;

    /* a peer without an earlier hit cannot have lost its cache */

    fresh();

    util_check(take(20000, 0, 1, 10, 100, &floor) == KVR_FEEDBACK_MISSED, "1");
    util_check(take(20000, 0, 2, 11, 100, &floor) == KVR_FEEDBACK_MISSED, "2");
    util_check(take(20000, 0, 3, 12, 100, &floor) == KVR_FEEDBACK_MISSED, "3");

    fresh();

    util_check(take(20000, 5000, 9, 5, 100, &floor) == 0, "a hit");
    util_check(take(20000, 0, 1, 10, 100, &floor) == KVR_FEEDBACK_MISSED, "1");
    util_check(take(20000, 0, 2, 11, 100, &floor) == KVR_FEEDBACK_MISSED, "2");

    /*
     * the same prefix again is no further proof, nor is an unpredicted prompt
     */

    util_check(take(20000, 0, 1, 12, 100, &floor) == KVR_FEEDBACK_MISSED, "1");
    util_check(take(20000, 0, 2, 13, 100, &floor) == KVR_FEEDBACK_MISSED, "2");
    util_check(take(0, 0, 7, 13, 100, &floor) == 0, "cold");
    util_check(take(0, 4000, 7, 13, 100, &floor) == KVR_FEEDBACK_MORE, "surprise");

    rc = take(20000, 2000, 3, 14, 100, &floor);
    util_check(rc == (KVR_FEEDBACK_MISSED|KVR_FEEDBACK_FORGOT) && floor == 10,
               "%d %lu", rc, (unsigned long) floor);
    util_check(feedback.by_usage == 1 && feedback.missed == 5, "counts");

    /* not within a minute, and not without another hit */

    util_check(take(20000, 5000, 9, 20, 110, &floor) == 0, "a hit");
    util_check(take(20000, 0, 1, 21, 120, &floor) == KVR_FEEDBACK_MISSED, "1");
    util_check(take(20000, 0, 2, 22, 130, &floor) == KVR_FEEDBACK_MISSED, "2");
    util_check(take(20000, 0, 3, 23, 159, &floor) == KVR_FEEDBACK_MISSED, "3");
    rc = take(20000, 0, 4, 24, 161, &floor);
    util_check(rc == (KVR_FEEDBACK_MISSED|KVR_FEEDBACK_FORGOT) && floor == 21,
               "%d %lu", rc, (unsigned long) floor);

    /* a hit in between starts the count again */

    util_check(take(20000, 5000, 9, 30, 300, &floor) == 0, "a hit");
    (void) take(20000, 0, 1, 31, 300, &floor);
    (void) take(20000, 0, 2, 32, 300, &floor);
    (void) take(20000, 4990, 3, 33, 300, &floor);
    util_check(take(20000, 0, 4, 34, 300, &floor) == KVR_FEEDBACK_MISSED,
               "a first miss after a hit");

    /* a prediction of less than four blocks is no proof */

    util_check(take(1000, 0, 5, 35, 300, &floor) == 0, "short");
    util_check(take(1024, 0, 5, 35, 300, &floor) == KVR_FEEDBACK_MISSED,
               "four");

    /* half of the prediction is no miss */

    util_check(take(20000, 2500, 6, 35, 300, &floor) == KVR_FEEDBACK_SHORT,
               "half");
    util_check(take(20000, 4750, 6, 35, 300, &floor) == 0, "nearly all");
}


/* a missing field counts as 0 only after the engine has sent it */
TEST(test_loop_absent)
{
    uint64_t  floor;

    fresh();

    util_check(take(20000, -1, 1, 1, 1, &floor) == 0, "never reported");
    util_check(feedback.responses == 0, "not counted");

    util_check(take(20000, 5000, 1, 1, 1, &floor) == 0, "reported");
    util_check(take(20000, -1, 1, 1, 1, &floor) == KVR_FEEDBACK_MISSED,
               "a missing field is 0");
    util_check(feedback.responses == 2, "counted");

    kvr_feedback_restart(&feedback);

    util_check(take(20000, -1, 1, 1, 1, &floor) == 0, "restarted");
}


/* siblings in a burst miss a prefix that is not computed yet */
TEST(test_loop_young)
{
    uint64_t  floor;
    unsigned  i;

    fresh();

    /* such misses prove nothing, and do not change the capacity */

    (void) take(20000, 5000, 9, 5, 100, &floor);

    speculative = 1;

    for (i = 0; i < 10; i++) {
        util_check(take(20000, 0, i, 10 + i, 100, &floor)
                   == KVR_FEEDBACK_MISSED, "young");
    }

    speculative = 0;

    util_check(feedback.missed == 10 && feedback.misses == 0, "no proof");
    util_check(kvr_feedback_factor(&feedback) == 1, "%f",
               kvr_feedback_factor(&feedback));
}


TEST(test_loop_numbers)
{
    int       i;
    double    f;
    uint64_t  floor;

    fresh();

    util_check(kvr_feedback_bytes(&feedback) == 4
               && kvr_feedback_factor(&feedback) == 1, "at first");

    (void) take(20000, 5000, 1, 1, 1, &floor);

    util_check(kvr_feedback_bytes(&feedback) == 4, "%f",
               kvr_feedback_bytes(&feedback));
    util_check(feedback.predicted == 5000 && feedback.delivered == 5000
               && feedback.prompt == 10000, "tokens");

    /* the factor stays within its bounds */

    for (i = 0; i < 2000; i++) {
        (void) take(20000, 0, (uint64_t) i, 1, 1, &floor);
    }

    f = kvr_feedback_factor(&feedback);
    util_check(f == 0.25, "%f", f);

    for (i = 0; i < 2000; i++) {
        (void) take(2000, 9000, (uint64_t) i, 1, 1, &floor);
    }

    f = kvr_feedback_factor(&feedback);
    util_check(f == 2, "%f", f);

    for (i = 0; i < 4000; i++) {
        (void) take(20000, 5000, (uint64_t) i, 1, 1, &floor);
    }

    f = kvr_feedback_factor(&feedback);
    util_check(f > 0.95 && f < 1.3, "%f", f);
}


/* fresh probes would show a restart: misses do not */
TEST(test_loop_alive)
{
    int       i, rc;
    uint64_t  floor;

    fresh();
    alive = 1;

    (void) take(20000, 5000, 9, 5, 100, &floor);

    for (i = 0; i < 50; i++) {
        rc = take(20000, 0, (uint64_t) i, 10, 1000, &floor);
        util_check(rc == KVR_FEEDBACK_MISSED, "%d: %d", i, rc);
    }

    util_check(feedback.by_usage == 0 && feedback.missed == 50, "counts");
    util_check(kvr_feedback_factor(&feedback) < 0.8, "%f",
               kvr_feedback_factor(&feedback));

    /* without probes three misses count again */

    (void) take(20000, 0, 100, 10, 1000, &floor);
    alive = 0;
    rc = take(20000, 0, 101, 11, 1000, &floor);
    util_check(rc == KVR_FEEDBACK_MISSED, "%d", rc);
    rc |= take(20000, 0, 102, 12, 1000, &floor);
    rc |= take(20000, 0, 103, 13, 1000, &floor);
    util_check(rc == (KVR_FEEDBACK_MISSED|KVR_FEEDBACK_FORGOT), "%d", rc);
}


/* a lost old block does not show a restart, if the capacity is known */
TEST(test_loop_old)
{
    int       i, rc;
    uint64_t  floor;

    fresh();

    (void) take(20000, 5000, 9, 5, 100, &floor);

    age = CAPACITY / 2;

    for (i = 0; i < 20; i++) {
        rc = take(20000, 0, (uint64_t) i, 10, 1000, &floor);
        util_check(rc == KVR_FEEDBACK_MISSED, "%d: %d", i, rc);
    }

    util_check(kvr_feedback_factor(&feedback) < 0.8,
               "the capacity is reduced: %f", kvr_feedback_factor(&feedback));

    age = CAPACITY / 2 - 1;
    rc = 0;

    for (i = 0; i < 3; i++) {
        rc |= take(20000, 0, 50 + (uint64_t) i, 10, 1000, &floor);
    }

    util_check(rc == (KVR_FEEDBACK_MISSED|KVR_FEEDBACK_FORGOT), "%d", rc);
}


TEST(test_loop_bytes)
{
    int       i;
    double    was, is;
    uint64_t  floor;

    fresh();

    /* 10000 tokens each */

    for (i = 0; i < 40; i++) {
        bytes = 38000 + (uint64_t) i % 3 * 1000;
        (void) take(0, 0, 1, 1, 1, &floor);
    }

    was = kvr_feedback_bytes(&feedback);
    util_check(was > 3.85 && was < 3.95, "%f", was);

    /* one outlier, large or very large */

    bytes = 2150000;
    (void) take(0, 0, 1, 1, 1, &floor);
    is = kvr_feedback_bytes(&feedback);
    util_check(is > was && is < 1.01 * was, "%f, %f", was, is);

    bytes = 1000;
    (void) take(0, 0, 1, 1, 1, &floor);
    util_check(kvr_feedback_bytes(&feedback) > 0.99 * was, "%f",
               kvr_feedback_bytes(&feedback));

    bytes = INT64_MAX;
    (void) take(0, 0, 1, 1, 1, &floor);
    util_check(kvr_feedback_bytes(&feedback) < 1.01 * was, "%f",
               kvr_feedback_bytes(&feedback));

    /* with a known capacity too */

    is = kvr_feedback_bytes(&feedback);
    unsized = 1;
    (void) take(0, 0, 1, 1, 1, &floor);
    unsized = 0;
    util_check(kvr_feedback_bytes(&feedback) == is, "left out");

    /* another kind of prompts soon gives another mean */

    bytes = 20000;

    for (i = 0; i < 150; i++) {
        (void) take(0, 0, 1, 1, 1, &floor);
    }

    is = kvr_feedback_bytes(&feedback);
    util_check(is > 1.95 && is < 2.1, "%f", is);

    /* the first prompt can be the outlier */

    fresh();
    bytes = 2150000;
    (void) take(0, 0, 1, 1, 1, &floor);
    util_check(kvr_feedback_bytes(&feedback) <= 8, "%f",
               kvr_feedback_bytes(&feedback));

    bytes = 40000;

    for (i = 0; i < 20; i++) {
        (void) take(0, 0, 1, 1, 1, &floor);
    }

    is = kvr_feedback_bytes(&feedback);
    util_check(is < 4.4, "%f", is);

    /* or the usual kind */

    fresh();
    bytes = 10000;
    (void) take(0, 0, 1, 1, 1, &floor);
    util_check(kvr_feedback_bytes(&feedback) == 1, "%f",
               kvr_feedback_bytes(&feedback));
}


/* wrong reports are bounded, and forgotten when reports end */
TEST(test_loop_lies)
{
    int       i;
    uint64_t  floor;

    fresh();
    bytes = INT64_MAX;

    for (i = 0; i < 1000; i++) {
        (void) take(0, 0, 1, 1, 1000, &floor);
    }

    util_check(kvr_feedback_bytes(&feedback) == 16, "%f",
               kvr_feedback_bytes(&feedback));

    bytes = 1000;

    for (i = 0; i < 1000; i++) {
        (void) take(0, 0, 1, 1, 1000, &floor);
    }

    util_check(kvr_feedback_bytes(&feedback) == 0.25, "%f",
               kvr_feedback_bytes(&feedback));

    kvr_set(&feedback.output, 7);
    kvr_set(&feedback.factor, KVR_FEEDBACK_ONE / 4);

    /* a clock that was set back, a pause of ten minutes, a longer one */

    kvr_feedback_fade(&feedback, 900);
    kvr_feedback_fade(&feedback, 1600);
    util_check(kvr_feedback_bytes(&feedback) == 0.25
               && kvr_feedback_factor(&feedback) == 0.25,
               "not yet forgotten");

    kvr_feedback_fade(&feedback, 1601);
    util_check(kvr_feedback_bytes(&feedback) == 4
               && kvr_feedback_factor(&feedback) == 1
               && kvr_get(&feedback.output) == 0, "forgotten");
}


TEST(test_loop_usable)
{
    int       i;
    double    n;
    uint64_t  floor;

    fresh();

    util_check(kvr_feedback_usable(&feedback, 32768, 0) == 32768,
               "the whole cache");
    util_check(kvr_feedback_usable(&feedback, 32768, 64) == 32768,
               "nothing known");

    completion = 200;

    for (i = 0; i < 100; i++) {
        (void) take(20000, 5000, 1, 1, 1, &floor);
    }

    n = kvr_feedback_usable(&feedback, 32768, 64);
    util_check(n > 32768 - 6600 && n < 32768 - 6200, "64 half written: %f", n);
    util_check(kvr_feedback_usable(&feedback, 32768, 100000) == 16384,
               "half at most");

    /* repeated misses correct the value, within bounds */

    for (i = 0; i < 1000; i++) {
        (void) take(2000, 9000, (uint64_t) i, 1, 1, &floor);
    }

    util_check(kvr_feedback_usable(&feedback, 32768, 0) == 1.25 * 32768,
               "more");

    for (i = 0; i < 1000; i++) {
        (void) take(20000, 0, (uint64_t) i, 1, 1, &floor);
    }

    util_check(kvr_feedback_usable(&feedback, 32768, 0) == 8192, "less");

    /* the longest replies */

    fresh();
    completion = INT64_MAX;
    (void) take(20000, 5000, 1, 1, 1, &floor);
    util_check(kvr_feedback_usable(&feedback, 32768, UINT32_MAX) == 16384,
               "bounded");
}


/* an engine of 1000 units that does not report its capacity */
TEST(test_loop_horizon)
{
    int       rc;
    uint32_t  i;
    uint64_t  floor;

    fresh();
    reported = 0;

    for (i = 0; i < 20; i++) {
        age = 900;
        (void) take(20000, 5000, i, 1, 1, &floor);
        age = 1500;
        (void) take(20000, 0, 100 + i, 1, 1, &floor);
    }

    util_check(retention() > 900 && retention() <= 1500, "%u", retention());
    util_check(kvr_feedback_factor(&feedback) >= 0.25, "%f",
               kvr_feedback_factor(&feedback));

    /* old blocks are expected to be lost: this shows no restart */

    rc = 0;

    for (i = 0; i < 10; i++) {
        rc |= take(20000, 0, 200 + i, 5, 1000, &floor);
    }

    util_check(rc == KVR_FEEDBACK_MISSED, "%d", rc);

    /* lost young blocks do */

    age = 10;
    (void) take(20000, 5000, 300, 5, 2000, &floor);
    (void) take(20000, 0, 301, 7, 2000, &floor);
    (void) take(20000, 0, 302, 8, 2000, &floor);
    rc = take(20000, 0, 303, 9, 2000, &floor);
    util_check(rc == (KVR_FEEDBACK_MISSED|KVR_FEEDBACK_FORGOT) && floor == 7,
               "%d", rc);

    /* zeros alone, and misses of siblings, prove nothing */

    fresh();
    speculative = 1;
    age = 1500;

    for (i = 0; i < 50; i++) {
        (void) take(20000, 0, i, 1, 1, &floor);
    }

    util_check(feedback.retention.seen[0] == 0 && retention() == 0, "young");
    speculative = 0;

    for (i = 0; i < 50; i++) {
        (void) take(20000, 0, i, 1, 1, &floor);
    }

    util_check(retention() == 0, "zeros");

    reported = 1;
    age = 0;
}


/* first tokens count if responses report nothing */
TEST(test_loop_timed)
{
    uint32_t  i;
    uint64_t  floor;

    fresh();

    for (i = 0; i < 20; i++) {
        (void) take(20000, -1, i, 1, 1, &floor);
        util_check(kvr_feedback_timed(&feedback, 900, 1), "held");
        util_check(kvr_feedback_timed(&feedback, 1500, 0), "lost");
    }

    util_check(retention() > 900 && retention() <= 1500, "%u", retention());
    util_check(feedback.timed_held == 20 && feedback.timed_lost == 20,
               "counted");

    (void) take(20000, 5000, 1, 1, 1, &floor);
    util_check(!kvr_feedback_timed(&feedback, 100, 0) && feedback.timed_lost
               == 20, "the engine reports");
}
