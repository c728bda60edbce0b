
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
 * (pending + max(uncached, 2048) * (1 + active / 5)
 *  + uncached * (3/4 + waiting / 2))
 * / weight
 */
static const case_t  cases[] = {

    /* an idle peer costs what must be computed and most of it once more, the
       floor at least */

    { 0, 0, 0, 0, 1, 2048 },
    { 0, 1, 0, 0, 1, 2048.75 },
    { 0, 2047, 0, 0, 1, 3583.25 },
    { 0, 2048, 0, 0, 1, 3584 },
    { 0, 2049, 0, 0, 1, 3585.75 },
    { 0, 100000, 0, 0, 1, 175000 },

    /* what waits there comes on top, once */

    { 5000, 0, 0, 0, 1, 7048 },
    { 5000, 100000, 0, 0, 1, 180000 },

    /* each request there is delayed by a fifth */

    { 0, 100000, 1, 0, 1, 195000 },
    { 0, 100000, 5, 0, 1, 275000 },
    { 0, 0, 5, 0, 1, 4096 },
    { 0, 0, 5, 5, 1, 4096 },
    { 0, 1000, 10, 0, 1, 6894 },
    { 5000, 10000, 15, 0, 1, 52500 },

    /* each that waits for its first token by half of what is to be computed */

    { 0, 100000, 1, 1, 1, 245000 },
    { 0, 100000, 10, 2, 1, 475000 },
    { 0, 1000, 5, 3, 1, 6346 },

    /* more are waiting than there are: both counts are on their way */

    { 0, 100000, 0, 1, 1, 225000 },

    /* twice the weight, half the cost */

    { 0, 0, 0, 0, 2, 1024 },
    { 5000, 10000, 15, 0, 2, 26250 },
    { 5000, 10000, 15, 0, 5, 10500 },

    /* a full cache is worth many requests, but not any number */

    { 0, 0, 55, 0, 1, 24576 },
    { 0, 12288, 0, 0, 1, 21504 },

    /* a session of 8 KB stays while two like it wait, and one of 32 KB more */

    { 2400, 1200, 2, 2, 1, 7367.2 },
    { 0, 8192, 0, 0, 1, 14336 },

    /* nothing overflows */

    { 1ULL << 50, 1ULL << 50, 1U << 20, 0, 1,
      (double) (1ULL << 50) * (2.75 + (1U << 20) / 5.0) }
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
