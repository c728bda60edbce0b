
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_whatif: the effect of caches of another size */


#include <math.h>

#include "util.h"
#include "core/learn/kvr_whatif.h"


static kvr_whatif_t  w;
static uint64_t      ms = 1000;     /* ms between two prompts */


/*
 * Prompts of 100 units, all used before, at ages evenly spread from 0 to 4
 * capacities.  So P(x) = 1 - x / 4.  A cache that keeps blocks for the time x
 * has the size x - x^2 / 8, relative to today's size of 7 / 8.
 */
static void
even(uint32_t n)
{
    uint32_t  i, age, ages;

    for (i = 0; i < n; i++) {
        age = i * 37 % 1000 * 4 * KVR_WHATIF_ONE / 1000;
        ages = KVR_WHATIF_AGES;

        kvr_whatif_prompt(&w, 100, age < KVR_WHATIF_ONE ? 100 : 0, 0,
                          i * ms);
        kvr_whatif_reused(&w, 100, kvr_whatif_class(age), 100, 100, &ages);
        kvr_whatif_reused(&w, 100, 0, 0, 0, &ages);
        util_check(ages == 0, "each age was counted");

        kvr_whatif_delivered(&w, 1000, age < KVR_WHATIF_ONE ? 1000 : 0);
        kvr_whatif_first(&w, age < KVR_WHATIF_ONE ? 10 : 100);
    }
}


static void
clean(void)
{
    memset((void *) &w, 0, sizeof(w));
}


static kvr_whatif_estimate_t
estimate(kvr_whatif_change_e change, uint32_t peers)
{
    kvr_whatif_estimate_t  e;

    util_check(kvr_whatif_estimate(&w, change, peers, &e) == KVR_OK, "%s",
               kvr_whatif_name(change));

    return e;
}


static int
near(double a, double b, double most)
{
    return fabs(a - b) <= most;
}


TEST(test_whatif_curve)
{
    size_t  i;

    static const double  times[][2] = {
        { 0.5357, 0.125 }, { 1, 0.25 }, { 1.7143, 0.5 }, { 2, 0.6464 },
        { 2.2857, 1 }, { 64, 1 }
    };

    clean();
    even(4000);

    for (i = 0; i < kvr_nelts(times); i++) {
        util_check(near(kvr_whatif_share(&w, times[i][0]), times[i][1], 0.02),
                   "%.2f: %.3f of %.3f", times[i][0],
                   kvr_whatif_share(&w, times[i][0]), times[i][1]);
    }
}


/* four peers compute a sampled prompt of 100 units in 90 ms */
TEST(test_whatif_wait)
{
    kvr_whatif_estimate_t  e, same;

    /*
     * classes are wide: busy by 0.55 to 0.675; with one peer more by 0.4 to
     * 0.48
     */

    clean();
    ms = 200;
    even(4000);

    e = estimate(KVR_WHATIF_MORE, 4);
    util_check(near(e.first, 0.07, 0.012), "P95 %.3f", e.first);

    e = estimate(KVR_WHATIF_LESS, 4);
    util_check(e.first > 0.2 && e.first < 1.5, "P95 %.3f", e.first);

    /* long pauses do not count */

    clean();
    ms = 100000;
    even(4000);
    util_check(kvr_get(&w.time) == 0, "%u", kvr_get(&w.time));

    clean();
    ms = 1000;
    even(4000);

    e = estimate(KVR_WHATIF_MORE, 4);
    util_check(near(e.first, 0.1, 0.015), "no waiting: P95 %.3f", e.first);

    /* loads from host memory cost a tenth of computing */

    e = estimate(KVR_WHATIF_HOST_4, 4);
    same = estimate(KVR_WHATIF_FOUR, 4);
    util_check(near(e.first - same.first, 0.009, 0.002), "%.3f, %.3f", e.first,
               same.first);
}


TEST(test_whatif_estimate)
{
    kvr_whatif_estimate_t  e;

    clean();
    even(KVR_WHATIF_ENOUGH - 1);
    util_check(kvr_whatif_estimate(&w, KVR_WHATIF_NOW, 4, &e) == KVR_DECLINED,
               "too few");

    clean();
    even(4000);

    e = estimate(KVR_WHATIF_NOW, 4);
    util_check(near(e.cached, 0.25, 0.01) && e.load == 1, "%.3f", e.cached);
    util_check(near(e.first, 0.1, 0.01), "P95 %.3f", e.first);

    e = estimate(KVR_WHATIF_TWICE, 4);
    util_check(near(e.cached, 0.646, 0.02), "twice %.3f", e.cached);
    util_check(near(e.load, 0.354 / 0.75, 0.03), "load %.3f", e.load);
    util_check(near(e.first, 0.1, 0.02), "a third still waits %.3f", e.first);

    util_check(near(e.low, kvr_whatif_share(&w, 1.6), 0.01)
               && near(e.high, kvr_whatif_share(&w, 2.5), 0.01), "%.3f to %.3f",
               e.low, e.high);
    util_check(e.soonest < 0.015 && near(e.latest, e.first * 1.15, 0.003),
               "%.3f to %.3f", e.soonest, e.latest);

    e = estimate(KVR_WHATIF_FOUR, 4);
    util_check(near(e.cached, 1, 0.02), "all is cached: %.3f", e.cached);
    util_check(e.first < 0.015, "no waiting %.3f", e.first);

    /*
     * 5 peers instead of 4 are a quarter more, each with four fifths of the
     * work
     */

    e = estimate(KVR_WHATIF_MORE, 4);
    util_check(near(e.cached, kvr_whatif_share(&w, 1.25), 0.01), "%.3f",
               e.cached);
    util_check(near(e.load, (1 - e.cached) / 0.75 * 0.8, 0.02), "%.3f",
               e.load);

    e = estimate(KVR_WHATIF_LESS, 4);
    util_check(near(e.cached, kvr_whatif_share(&w, 0.75), 0.01) && e.load > 1,
               "%.3f", e.cached);
    util_check(kvr_whatif_estimate(&w, KVR_WHATIF_LESS, 1, &e) == KVR_DECLINED,
               "no peer would be left");

    e = estimate(KVR_WHATIF_HOST_2, 4);
    util_check(near(e.cached, 0.646, 0.02), "host %.3f", e.cached);

    e = estimate(KVR_WHATIF_PERFECT, 4);
    util_check(near(e.cached, 0.25, 0.02), "routed well %.3f", e.cached);

    /* a fifth of half of the blocks in use by requests in flight is missing */

    kvr_set(&w.used, 4000 * KVR_WHATIF_ONE / 2);

    e = estimate(KVR_WHATIF_TWICE, 4);
    util_check(near(e.cached, kvr_whatif_share(&w, 1.9 / 0.9), 0.01), "%.3f",
               e.cached);
    e = estimate(KVR_WHATIF_HOST_2, 4);
    util_check(near(e.cached, kvr_whatif_share(&w, 2 / 0.9), 0.01), "%.3f",
               e.cached);
}


/* replies take room, and are not used again */
TEST(test_whatif_replies)
{
    double  before;

    clean();
    even(4000);

    before = kvr_whatif_share(&w, 2);
    kvr_whatif_reply(&w, 400000);

    /* P(x) = 1 - x / 8: x - x^2 / 16 is twice of 15 / 16 */

    util_check(near(before, 0.646, 0.02)
               && near(kvr_whatif_share(&w, 2), 0.5425, 0.02), "%.3f, %.3f",
               before, kvr_whatif_share(&w, 2));
}


/* engines that deliver less than expected, or report nothing */
TEST(test_whatif_delivered)
{
    uint32_t               i;
    kvr_whatif_estimate_t  e;

    clean();
    even(4000);

    for (i = 0; i < 4000; i++) {
        kvr_whatif_delivered(&w, 1000, 0);
    }

    e = estimate(KVR_WHATIF_NOW, 4);
    util_check(near(e.cached, 0.125, 0.01), "half %.3f", e.cached);
    e = estimate(KVR_WHATIF_TWICE, 4);
    util_check(near(e.cached, 0.587, 0.02),
               "a gain in proportion: %.3f", e.cached);
    e = estimate(KVR_WHATIF_HALF, 4);
    util_check(near(e.cached, kvr_whatif_share(&w, 0.5) / 2, 0.01), "%.3f",
               e.cached);

    clean();
    even(4000);
    kvr_set(&w.prompt, 0);
    e = estimate(KVR_WHATIF_NOW, 4);
    util_check(near(e.cached, 0.25, 0.01),
               "the predicted share: %.3f", e.cached);

    /* invalid values stay within bounds */

    kvr_whatif_delivered(&w, 10, 1000000);
    e = estimate(KVR_WHATIF_FOUR, 4);
    util_check(e.cached <= 1 && e.load >= 0, "%.3f %.3f", e.cached, e.load);

    clean();
    even(4000);

    for (i = 0; i < 3; i++) {
        kvr_whatif_delivered(&w, 1U << 31, 1U << 30);
    }

    e = estimate(KVR_WHATIF_NOW, 4);
    util_check(near(e.cached, 0.5, 0.01), "huge counts %.3f", e.cached);

    /* two processes that write at once can lose one of the sums */

    kvr_set(&w.cached, UINT32_MAX);

    for (i = 0; i < KVR_WHATIF_CHANGES; i++) {
        e = estimate(i, 4);
        util_check(e.cached <= 1 && e.high <= 1 && e.load >= 0, "%s: %.3f %.3f",
                   kvr_whatif_name(i), e.cached, e.load);
    }
}


/* counts decay, and never overflow */
TEST(test_whatif_fade)
{
    uint32_t  i;

    clean();

    for (i = 0; i < 100; i++) {
        even(2000);
    }

    util_check(kvr_get(&w.units) < 3 << 20, "%u", kvr_get(&w.units));
    util_check(near(kvr_whatif_share(&w, 1), 0.25, 0.02), "%.3f",
               kvr_whatif_share(&w, 1));

    for (i = 0; i < 200000; i++) {
        kvr_whatif_prompt(&w, 0, 0, UINT64_MAX, i);
        kvr_whatif_first(&w, UINT64_MAX);
    }

    util_check(kvr_get(&w.requests) <= 2 * 32768, "%u", kvr_get(&w.requests));
    util_check(estimate(KVR_WHATIF_NOW, 4).first > 10, "no wrap");
}


TEST(test_whatif_class)
{
    uint32_t  age, class, last;

    for (age = 0, last = 0; age < 100000; age++) {
        class = kvr_whatif_class(age);
        util_check(class >= last && class <= last + 4
                   && class < KVR_WHATIF_CLASSES, "%u: %u", age, class);
        last = class;
    }

    util_check(kvr_whatif_class(UINT32_MAX) == KVR_WHATIF_CLASSES - 1, "old");
    util_check(kvr_whatif_class(KVR_WHATIF_ONE) == 24, "a capacity");
}
