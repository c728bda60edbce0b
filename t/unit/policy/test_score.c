
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_score: costs computed by hand, and properties of all costs */


#include "util.h"
#include "core/policy/kvr_score.h"


/* most rows only have a cost */

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"


typedef struct {
    uint64_t    pending;
    uint64_t    uncached;
    uint32_t    active;
    uint32_t    waiting;
    uint32_t    weight;
    double      cost;

    uint64_t    shared;
    float       turnover;
    uint64_t    resident;
} case_t;


/*
 * All in bytes; own is uncached - shared:
 * (pending + 400 * active + resident / 96
 *  + max(own, 2048) * (1 + 64 * active / (320 + active))
 *  + own * 3 / 4 + max(own - 2048, 0) * 5 * waiting / 4
 *  + uncached * turnover) / weight
 */
static const case_t  cases[] = {

    /* an idle peer costs what must be computed and most of it once more, at
       least the floor */

    { 0, 0, 0, 0, 1, 2048 },
    { 0, 1, 0, 0, 1, 2048.75 },
    { 0, 2047, 0, 0, 1, 3583.25 },
    { 0, 2048, 0, 0, 1, 3584 },
    { 0, 2049, 0, 0, 1, 3585.75 },
    { 0, 100000, 0, 0, 1, 175000 },

    /* pending bytes are added once */

    { 5000, 0, 0, 0, 1, 7048 },
    { 5000, 100000, 0, 0, 1, 180000 },

    /* each request there slows down the others, and delays this one */

    { 0, 100000, 1, 0, 1, 175400 + 100000 * 64 / 321.0 },
    { 0, 100000, 80, 0, 1, 175000 + 32000 + 100000 * 12.8 },
    { 0, 100000, 320, 0, 1, 175000 + 128000 + 100000 * 32 },
    { 0, 0, 80, 0, 1, 2048 + 32000 + 2048 * 12.8 },
    { 0, 0, 80, 80, 1, 2048 + 32000 + 2048 * 12.8 },
    { 5000, 10000, 80, 0, 1, 5000 + 17500 + 32000 + 128000 },

    /* each waiting request adds 5/4 of the bytes to compute above the floor */

    { 0, 100000, 80, 1, 1, 175000 + 32000 + 1280000 + 122440 },
    { 0, 100000, 80, 2, 1, 175000 + 32000 + 1280000 + 244880 },
    { 0, 1000, 80, 3, 1, 2048 + 750 + 32000 + 2048 * 12.8 },

    /* more waiting requests than requests: both counts are changing */

    { 0, 100000, 0, 1, 1, 297440 },

    /* twice the weight, half the cost */

    { 0, 0, 0, 0, 2, 1024 },
    { 5000, 10000, 80, 0, 2, 91250 },
    { 5000, 10000, 80, 0, 5, 36500 },

    /* a full cache is worth many requests, but not any number */

    { 0, 0, 24, 0, 1, 2048 + 9600 + 2048 * 64 * 24 / 344.0 },
    { 0, 12288, 0, 0, 1, 21504 },

    /* a session of 8 KB stays while two like it wait, one of 32 KB longer */

    { 2400, 1200, 2, 2, 1, 6148 + 2048 * 128 / 322.0 },
    { 0, 8192, 0, 0, 1, 14336 },

    /* a shared part only counts for the floor */

    { 0, 100000, 0, 0, 1, 87500, 50000, 0 },
    { 0, 100000, 0, 0, 1, 2048, 100000, 0 },
    { 0, 100000, 0, 0, 1, 2048, 200000 },
    { 0, 100000, 80, 2, 1, 32000 + 87500 + 640000 + 119880, 50000, 0 },

    /* evicted blocks that are in use, or not */

    { 0, 100000, 0, 0, 1, 175000 + 25000, 0, 0.25f },
    { 0, 100000, 0, 0, 1, 175000 + 100000, 0, 1 },
    { 0, 100000, 0, 0, 1, 87500 + 50000, 50000, 0.5f },

    /* context of running requests */

    { 0, 0, 80, 0, 1, 2048 + 32000 + 2048 * 12.8 + 512, 0, 0, 49152 },

    /* no overflow */

    { 1ULL << 50, 1ULL << 50, 1U << 20, 0, 1,
      (double) (1ULL << 50)
      * (2.75 + 64.0 * (1U << 20) / (320 + (1U << 20)))
      + 400.0 * (1U << 20) }
};


static double
cost_of(uint64_t pending, uint64_t uncached, uint32_t active,
    uint32_t waiting, uint32_t weight)
{
    kvr_score_t  s = { 0 };

    s.pending = pending;
    s.uncached = uncached;
    s.active = active;
    s.waiting = waiting;
    s.weight = weight;

    return kvr_score_cost(&s);
}


TEST(test_score_cases)
{
    double         cost, ratio;
    size_t         i;
    kvr_score_t    s;
    const case_t  *c;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        c = &cases[i];

        memset(&s, 0, sizeof(s));

        s.pending = c->pending;
        s.uncached = c->uncached;
        s.shared = c->shared;
        s.resident = c->resident;
        s.active = c->active;
        s.waiting = c->waiting;
        s.weight = c->weight;
        s.turnover = c->turnover;

        cost = kvr_score_cost(&s);
        ratio = cost / c->cost;

        util_check(ratio > 1 - 1e-12 && ratio < 1 + 1e-12,
                   "case %zu: %.3f, not %.3f", i, cost, c->cost);
    }
}


/* a delay counts fully for a new prompt, by a fifth for a cached one */
TEST(test_score_delay)
{
    kvr_score_t  s = { 0 };

    s.weight = 1;
    s.delay = 7 * kvr_score_delay(100, 10000, 0);

    util_check(s.delay == 700, "%.3f", s.delay);
    util_check(kvr_score_cost(&s) == 2748, "%.3f", kvr_score_cost(&s));

    s.delay = kvr_score_delay(100, 10000, 5000);
    util_check(s.delay > 59.999 && s.delay < 60.001, "%.3f", s.delay);

    s.delay = kvr_score_delay(100, 10000, 20000);
    util_check(s.delay > 19.999 && s.delay < 20.001, "%.3f", s.delay);

    util_check(kvr_score_delay(0, 10000, 5000) == 0, "no rate");
    util_check(kvr_score_delay(100, 0, 5000) == 100, "no prompt");
}


/* the quick bound is at most the cost, and close to it */
TEST(test_score_least)
{
    double       cost;
    uint64_t     least;
    unsigned     i;
    util_rng_t   r;
    kvr_score_t  s;

    for (i = 0; i < util_cases(100000); i++) {

        util_seed(&r, "score least", i);

        s.delay = util_below(&r, 1000);
        s.pending = util_next(&r) >> (24 + util_below(&r, 40));
        s.uncached = util_next(&r) >> (32 + util_below(&r, 32));
        s.shared = util_below(&r, 2) ? util_next(&r) >> 32 : 0;
        s.active = util_below(&r, 1000);
        s.waiting = util_below(&r, s.active + 1);
        s.turnover = (float) util_below(&r, 100) / 100;
        s.resident = util_next(&r) >> (24 + util_below(&r, 40));
        s.weight = 1;

        cost = kvr_score_cost(&s);
        least = kvr_score_least(s.pending, s.uncached, s.shared, s.active);

        util_check((double) least <= cost, "%.1f, not %.1f", (double) least,
                   cost);

        s.delay = 0;
        s.waiting = 0;
        s.turnover = 0;
        s.resident = 0;
        s.pending += (uint64_t) KVR_SCORE_ACTIVE * s.active;
        s.active = 0;

        cost = kvr_score_cost(&s);

        util_check(s.uncached < KVR_SCORE_FLOOR + s.shared
                   || (double) least + 1 >= cost, "%.1f, not %.1f",
                   (double) least, cost);
    }
}


TEST(test_score_order)
{
    double      cost;
    uint32_t    active, waiting, weight;
    uint64_t    pending, uncached;
    unsigned    i;
    util_rng_t  r;

    for (i = 0; i < util_cases(100000); i++) {

        util_seed(&r, "score order", i);

        pending = util_next(&r) >> (24 + util_below(&r, 40));
        uncached = util_next(&r) >> (32 + util_below(&r, 32));
        active = util_below(&r, 1000);
        waiting = util_below(&r, active + 1);
        weight = 1 + util_below(&r, 100);

        cost = cost_of(pending, uncached, active, waiting, weight);

        util_check(cost >= (double) KVR_SCORE_FLOOR / weight, "%.3f", cost);

        util_check(cost_of(pending + 1, uncached, active, waiting,
                                  weight)
                   > cost, "pending");
        util_check(cost_of(pending, uncached, active + 1, waiting,
                                  weight)
                   > cost, "running");
        util_check(cost_of(pending, uncached + 2049, active, waiting + 1,
                                  weight)
                   > cost_of(pending, uncached + 2049, active, waiting,
                                    weight),
                   "waiting");
        util_check(cost_of(pending, 0, active, waiting + 1, weight)
                   == cost_of(pending, 0, active, waiting, weight),
                   "waiting, all cached");
        util_check(cost_of(pending, uncached, active, waiting,
                                  weight + 1)
                   < cost, "weight");

        util_check(cost_of(pending, uncached + 1, active, waiting,
                                  weight)
                   > cost, "uncached");
    }
}
