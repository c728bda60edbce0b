
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_score: costs worked out by hand, and what must hold for all of them */


#include "util.h"
#include "kvr_score.h"


typedef struct {
    uint64_t    pending;
    uint64_t    uncached;
    uint32_t    active;
    uint32_t    waiting;
    uint32_t    weight;
    double      cost;
} case_t;


/*
 * All in bytes:
 * (pending + max(uncached, 2048) * (1 + active / 4)
 *  + uncached * (1/2 + waiting))
 * / weight
 */
static const case_t  cases[] = {

    /* an idle peer costs what must be computed and half more, the floor at
       least */

    { 0, 0, 0, 0, 1, 2048 },
    { 0, 1, 0, 0, 1, 2048.5 },
    { 0, 2047, 0, 0, 1, 3071.5 },
    { 0, 2048, 0, 0, 1, 3072 },
    { 0, 2049, 0, 0, 1, 3073.5 },
    { 0, 100000, 0, 0, 1, 150000 },

    /* what waits there comes on top, once */

    { 5000, 0, 0, 0, 1, 7048 },
    { 5000, 100000, 0, 0, 1, 155000 },

    /* each request there is delayed by a quarter */

    { 0, 100000, 1, 0, 1, 175000 },
    { 0, 100000, 5, 0, 1, 275000 },
    { 0, 0, 5, 0, 1, 4608 },
    { 0, 0, 5, 5, 1, 4608 },
    { 0, 1000, 10, 0, 1, 7668 },
    { 5000, 10000, 15, 0, 1, 57500 },

    /* each that waits for its first token by all that is to be computed */

    { 0, 100000, 1, 1, 1, 275000 },
    { 0, 100000, 10, 2, 1, 600000 },
    { 0, 1000, 5, 3, 1, 8108 },

    /* more are waiting than there are: both counts are on their way */

    { 0, 100000, 0, 1, 1, 250000 },

    /* twice the weight, half the cost */

    { 0, 0, 0, 0, 2, 1024 },
    { 5000, 10000, 15, 0, 2, 28750 },
    { 5000, 10000, 15, 0, 5, 11500 },

    /* a full cache is worth many requests, but not any number */

    { 0, 0, 55, 0, 1, 30208 },
    { 0, 12288, 0, 0, 1, 18432 },

    /* a session of 8 KB stays while two like it wait, and one of 32 KB more */

    { 2400, 1200, 2, 2, 1, 8472 },
    { 0, 8192, 0, 0, 1, 12288 },

    /* nothing overflows */

    { 1ULL << 50, 1ULL << 50, 1U << 20, 0, 1,
      (1ULL << 50) * (2.5 + (1U << 18)) }
};


START_TEST(test_score_cases)
{
    double         cost, ratio;
    size_t         i;
    const case_t  *c;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        c = &cases[i];

        cost = kvr_score_cost(c->pending, c->uncached, c->active, c->waiting,
                              c->weight);
        ratio = cost / c->cost;

        util_check(ratio > 1 - 1e-12 && ratio < 1 + 1e-12,
                   "case %zu: %.3f, not %.3f", i, cost, c->cost);
    }
}
END_TEST


START_TEST(test_score_order)
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

        cost = kvr_score_cost(pending, uncached, active, waiting, weight);

        util_check(cost >= (double) KVR_SCORE_FLOOR / weight, "%.3f", cost);

        util_check(kvr_score_cost(pending + 1, uncached, active, waiting,
                                  weight)
                   > cost, "pending");
        util_check(kvr_score_cost(pending, uncached, active + 1, waiting,
                                  weight)
                   > cost, "running");
        util_check(kvr_score_cost(pending, uncached + 1, active, waiting + 1,
                                  weight)
                   > kvr_score_cost(pending, uncached + 1, active, waiting,
                                    weight),
                   "waiting");
        util_check(kvr_score_cost(pending, 0, active, waiting + 1, weight)
                   == kvr_score_cost(pending, 0, active, waiting, weight),
                   "waiting, all cached");
        util_check(kvr_score_cost(pending, uncached, active, waiting,
                                  weight + 1)
                   < cost, "weight");

        util_check(kvr_score_cost(pending, uncached + 1, active, waiting,
                                  weight)
                   > cost, "uncached");
    }
}
END_TEST


int
main(void)
{
    Suite  *s;

    s = suite_create("score");

    util_add(s, "cases", test_score_cases);
    util_add(s, "order", test_score_order);

    return util_run(s);
}
