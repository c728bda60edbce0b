
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_disaggregate: two servers are used if that saves more time in answers
 * than it takes, and while prefill servers keep up; kvr_demand: whether they
 * do.
 */


#include "util.h"
#include "core/legs/kvr_disaggregate.h"
#include "core/learn/kvr_prefill.h"


#define PROMPT  40000


/* the servers of the two pools */
typedef struct {
    uint32_t           streams;    /* at the decode server */
    uint64_t           held;       /* cached by it */
    uint64_t           there;      /* cached by the prefill server */
    double             transfer;
    uint64_t           ahead[2];   /* at the decode, at the prefill server */
} pools_t;


/* high: the prefill servers have too much work */
static kvr_disaggregate_e
decide(const pools_t *p, int high)
{
    kvr_demand_t        demand;
    kvr_disaggregate_t  d = { 0 };

    d.bytes = PROMPT;
    d.held = p->held;
    d.min = 8192;
    d.transfer = p->transfer;
    d.streams = p->streams;
    d.prefills = 2;
    d.decodes = 2;
    d.rate = 150 * KVR_PREFILL_RATE;

    d.plain.lacks = PROMPT - p->held;
    d.plain.ahead = d.plain.lacks + p->ahead[0];
    d.prefill.lacks = PROMPT - p->there;
    d.prefill.ahead = d.prefill.lacks + p->ahead[1];

    if (kvr_disaggregate_worth(&d) != KVR_DISAGGREGATE_YES) {
        return kvr_disaggregate_worth(&d);
    }

    demand = 0;

    if (high) {
        (void) kvr_demand_add(&demand, KVR_DEMAND_MOST, 1);
    }

    return kvr_disaggregate(&d, &demand, 1);
}


TEST(test_disaggregate_worth)
{
    kvr_disaggregate_t  d = { 0 };

    d.bytes = 8191;
    d.min = 8192;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_SHORT);

    d.bytes = 8192;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_YES);

    d.held = 1;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_CACHED);

    /* more than the prompt: an index can be wrong */

    d.held = UINT64_MAX;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_CACHED);

    d.min = 0;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_YES);
}


TEST(test_disaggregate_pools)
{
    unsigned  i;

    static const struct {
        pools_t             pools;
        kvr_disaggregate_e  outcome, high;
    } c[] = {

        /* no answer is delayed: one server is faster */

        { { 0, 0, 0, 0.01, { 0, 0 } },
          KVR_DISAGGREGATE_COST, KVR_DISAGGREGATE_COST },

        /* answers are delayed: two servers; a slower transfer costs more */

        { { 1, 0, 0, 0.01, { 0, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_COST },
        { { 1, 0, 0, 0.9, { 0, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_COST },
        { { 2, 0, 0, 2.4, { 0, 0 } },
          KVR_DISAGGREGATE_COST, KVR_DISAGGREGATE_COST },
        { { 3, 0, 0, 2.4, { 0, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_COST },

        /* many are worth little, even then */

        { { 8, 0, 0, 0.01, { 0, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_YES },

        /* prompts wait at the prefill server, or at the decode server */

        { { 4, 0, 0, 0.01, { 0, 4 * PROMPT } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_COST },
        { { 4, 0, 0, 0.3, { PROMPT, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_YES },

        /* more than they can ever do in time: slow, or stuck */

        { { 4, 0, 0, 0.01, { 0, 20 * PROMPT } },
          KVR_DISAGGREGATE_COST, KVR_DISAGGREGATE_COST },

        /* much is cached at the decode server, or at the prefill server */

        { { 8, 20000, 0, 0.3, { 0, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_COST },
        { { 8, 26000, 0, 0.3, { 0, 0 } },
          KVR_DISAGGREGATE_COST, KVR_DISAGGREGATE_COST },
        { { 8, 30000, 0, 0.3, { 0, 0 } },
          KVR_DISAGGREGATE_COST, KVR_DISAGGREGATE_COST },
        { { 8, 30000, 30000, 0.01, { 0, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_YES },
        { { 0, 0, 30000, 0.3, { 0, 0 } },
          KVR_DISAGGREGATE_YES, KVR_DISAGGREGATE_YES },
        { { 8, 35000, 0, 0.01, { 0, 0 } },
          KVR_DISAGGREGATE_CACHED, KVR_DISAGGREGATE_CACHED }
    };

    for (i = 0; i < kvr_nelts(c); i++) {
        util_check(decide(&c[i].pools, 0) == c[i].outcome, "case %u: %d", i,
                   (int) decide(&c[i].pools, 0));
        util_check(decide(&c[i].pools, 1) == c[i].high, "case %u, high: %d", i,
                   (int) decide(&c[i].pools, 1));
    }
}


/* a slower or longer transfer never makes two servers better */
TEST(test_disaggregate_monotone)
{
    int       high;
    pools_t   p;
    unsigned  i, k;

    static const double  transfer[] = { 0, 0.01, 0.1, 0.5, 1, 2, 10, 100 };

    for (i = 0; i < 128; i++) {

        memset(&p, 0, sizeof(pools_t));

        p.streams = i / 2;
        high = (int) i % 2;

        for (k = 1; k < kvr_nelts(transfer); k++) {
            p.transfer = transfer[k];

            if (decide(&p, high) == KVR_DISAGGREGATE_YES) {
                p.transfer = transfer[k - 1];
                util_check(decide(&p, high) == KVR_DISAGGREGATE_YES,
                           "%u streams, transfer %.2f", p.streams, p.transfer);
            }
        }
    }
}


/* sends prompts at this interval; returns whether there were too many */
static int
demand_of(double transfer, uint32_t prefills, uint32_t decodes, uint32_t ms)
{
    uint64_t            now;
    kvr_demand_t        demand;
    kvr_disaggregate_t  d = { 0 };

    d.bytes = PROMPT;
    d.transfer = transfer;
    d.plain.lacks = PROMPT;
    d.plain.ahead = PROMPT;
    d.prefill = d.plain;
    d.streams = 8;
    d.prefills = prefills;
    d.decodes = decodes;
    d.rate = 100 * KVR_PREFILL_RATE;

    demand = 0;

    for (now = 1000; now < 1000000; now += ms) {

        /* two servers, unless it is too much; then they cost more */

        d.prefill.ahead = PROMPT + PROMPT / 4;

        if (kvr_disaggregate(&d, &demand, now) == KVR_DISAGGREGATE_COST) {
            return 1;
        }
    }

    return 0;
}


/* a prompt takes 400 ms */
TEST(test_disaggregate_demand)
{
    ck_assert(!demand_of(0.1, 1, 1, 410));
    ck_assert(demand_of(0.1, 1, 1, 390));

    ck_assert(!demand_of(0.1, 2, 1, 205));
    ck_assert(demand_of(0.1, 2, 1, 195));

    /* its transfer takes 800, at either end of a link */

    ck_assert(!demand_of(2, 2, 2, 410));
    ck_assert(demand_of(2, 2, 2, 390));
    ck_assert(demand_of(2, 6, 2, 390));
    ck_assert(demand_of(2, 2, 6, 390));
    ck_assert(!demand_of(2, 6, 6, 150));

    /* lists can be empty when they are counted */

    ck_assert(demand_of(0.1, 0, 0, 390));
}


TEST(test_disaggregate_demand_word)
{
    kvr_demand_t  demand;

    demand = 0;

    /* in constant use: of 2.5 s 1.5 are left after a second */

    ck_assert_int_eq(kvr_demand_add(&demand, 2000, 500), 0);
    ck_assert_int_eq(kvr_demand_add(&demand, 500, 500), 0);
    ck_assert_int_eq(kvr_demand_add(&demand, 1400, 1500), 0);
    ck_assert_int_eq(kvr_demand_add(&demand, 200, 1500), 1);

    /* too much, until nothing is left */

    ck_assert_int_eq(kvr_demand_add(&demand, 0, 4300), 1);
    ck_assert_int_eq(kvr_demand_add(&demand, 0, 4550), 0);

    /* a pause shorter than the backlog changes nothing */

    ck_assert_int_eq(kvr_demand_add(&demand, KVR_DEMAND_KEPT, 10000), 1);
    ck_assert_int_eq(kvr_demand_add(&demand, 0, 10000 + KVR_DEMAND_MOST), 1);
    ck_assert_int_eq(kvr_demand_add(&demand, 0, 10000 + KVR_DEMAND_KEPT), 0);

    /* the backlog is bounded */

    ck_assert_int_eq(kvr_demand_add(&demand, 1e18, 20000), 1);
    ck_assert_int_eq(kvr_demand_add(&demand, 1e18, 20000), 1);
    ck_assert_int_eq(kvr_demand_add(&demand, 0, 20000 + KVR_DEMAND_KEPT), 0);

    /* a later time: by another process, or a broken word */

    demand = UINT64_MAX;

    ck_assert_int_eq(kvr_demand_add(&demand, 1, 30000), 1);
    ck_assert_int_eq(kvr_demand_add(&demand, 1, 30000 + KVR_DEMAND_KEPT), 0);
}


TEST(test_disaggregate_transfer)
{
    uint32_t  rate;

    rate = 150 * KVR_PREFILL_RATE;

    ck_assert_double_eq_tol(kvr_disaggregate_transfer(0.2, 0, rate), 0.2, 1e-9);
    ck_assert_double_eq_tol(kvr_disaggregate_transfer(0.2, 300, rate), 0.5,
                            1e-9);
    ck_assert_double_eq_tol(kvr_disaggregate_transfer(0.2, 300, 0), 0.2, 1e-9);
    ck_assert_double_eq_tol(kvr_disaggregate_transfer(0.2, 1e-6, rate), 100,
                            1e-9);
}


/* words in shared memory can have any value */
TEST(test_disaggregate_wild)
{
    double           most;
    kvr_candidate_t  c = { 0 };

    c.weight = 1;
    c.unanswered = INT32_MAX;

    kvr_disaggregate_candidate(&c, INT64_MAX / 2, 100);

    most = KVR_DISAGGREGATE_MOST;

    ck_assert_uint_eq(c.pending, (uint64_t) most);
    ck_assert_uint_eq(c.matched, INT64_MAX / 2);

    /* the server has all of the prompt, and more */

    memset(&c, 0, sizeof(kvr_candidate_t));

    c.matched = 100;

    kvr_disaggregate_candidate(&c, 50, 1);

    ck_assert_uint_eq(c.pending, 0);
    ck_assert_uint_eq(c.matched, 50);
}
