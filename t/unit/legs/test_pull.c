
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_pull: the peer that has most of a prompt, and the cost to fetch it */


#include "util.h"
#include "core/legs/kvr_pull.h"


#define PROMPT  100000


static kvr_candidate_t *
candidates(uint64_t first, uint64_t second, uint64_t third)
{
    uint32_t  i;

    static kvr_candidate_t  c[3];

    memset(c, 0, sizeof(c));

    c[0].matched = first;
    c[1].matched = second;
    c[2].matched = third;

    for (i = 0; i < 3; i++) {
        c[i].weight = 1;
        c[i].place = i;
    }

    return c;
}


static kvr_pull_t
pull(kvr_candidate_t *c, double transfer)
{
    kvr_pull_t  p = { .transfer = transfer, .min = 8192 };

    kvr_pull(&p, c, 3);

    return p;
}


TEST(test_pull)
{
    kvr_pull_t        p;
    kvr_candidate_t  *c;

    c = candidates(0, PROMPT, 20000);
    c[0].turnover = 0.5;
    c[2].shared = 30000;

    p = pull(c, 0.25);

    ck_assert_uint_eq(p.source, 1);
    ck_assert_uint_eq(p.held, PROMPT);

    /* the cost of the transfer, and of the place in the cache */

    ck_assert_uint_eq(c[0].matched, PROMPT);
    ck_assert_uint_eq(c[0].load, PROMPT / 4);
    ck_assert_uint_eq(c[0].fetch, PROMPT / 4);
    ck_assert_uint_eq(c[0].pending, PROMPT * 3 / 4 * 3 / 4 + PROMPT * 3 / 8);

    /* a part that others will use does not count */

    ck_assert_uint_eq(c[2].matched, PROMPT);
    ck_assert_uint_eq(c[2].load, 50000 / 4);
    ck_assert_uint_eq(c[2].pending, 37500 * 3 / 4);
    ck_assert_uint_eq(c[2].shared, 0);

    /* the source itself */

    ck_assert_uint_eq(c[1].load, 0);
    ck_assert_uint_eq(c[1].fetch, 0);
    ck_assert_uint_eq(c[1].pending, 0);
}


/* an idle server that fetches is cheaper than one that computes */
TEST(test_pull_cost)
{
    double            computed;
    kvr_score_t       s = { .uncached = PROMPT, .weight = 1 };
    kvr_candidate_t  *c;

    computed = kvr_score_cost(&s);

    c = candidates(0, PROMPT, 0);
    (void) pull(c, 0.9);

    s.pending = c[0].pending;
    s.uncached = PROMPT - c[0].matched + c[0].load;

    ck_assert_double_lt(kvr_score_cost(&s), computed);

    c = candidates(0, PROMPT, 0);
    (void) pull(c, 0.2);

    s.pending = c[0].pending;
    s.uncached = PROMPT - c[0].matched + c[0].load;

    ck_assert_double_lt(kvr_score_cost(&s), computed * 0.7);
}


TEST(test_pull_source)
{
    kvr_candidate_t  *c;

    /* no server has it, or too little */

    ck_assert_uint_eq(pull(candidates(0, 0, 0), 0.2).source, KVR_PULL_NONE);

    c = candidates(0, 8191, 0);
    ck_assert_uint_eq(pull(c, 0.2).source, 1);
    ck_assert_uint_eq(c[0].matched, 0);

    /* of equal ones, the one with more requests: the other can be fetching */

    c = candidates(PROMPT, PROMPT, 0);
    c[0].active = 3;
    c[1].active = 4;
    ck_assert_uint_eq(pull(c, 0.2).source, 1);

    /* it can still be computing it */

    c = candidates(0, PROMPT, 20000);
    c[1].pending = PROMPT;
    ck_assert_uint_eq(pull(c, 0.2).source, 2);
    ck_assert_uint_eq(c[1].matched, PROMPT);

    c = candidates(0, PROMPT, 20000);
    c[1].pending = PROMPT - 1;
    ck_assert_uint_eq(pull(c, 0.2).source, 1);

    /* it is ejected */

    c = candidates(0, PROMPT, 0);
    c[1].sick = 1;
    ck_assert_uint_eq(pull(c, 0.2).source, KVR_PULL_NONE);

    c = candidates(0, PROMPT, 0);
    c[1].unhealthy = 1;
    ck_assert_uint_eq(pull(c, 0.2).source, KVR_PULL_NONE);

    /* a link that is not faster than the GPU */

    c = candidates(0, PROMPT, 0);
    ck_assert_uint_eq(pull(c, 1).source, KVR_PULL_NONE);
    ck_assert_uint_eq(c[0].matched, 0);
}
