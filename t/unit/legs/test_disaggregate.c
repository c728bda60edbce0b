
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_disaggregate: two servers are taken where they cost less, and nothing
 * that makes two legs dearer makes the decision for them.
 */


#include "util.h"
#include "core/legs/kvr_disaggregate.h"


#define PROMPT  40000


/* servers of the two pools, as they are found */
typedef struct {
    uint32_t           streams;    /* at the decode server */
    uint32_t           waiting;    /* of these */
    uint64_t           held;       /* by it */
    uint64_t           busy;       /* pending at the prefill server */
    double             transfer;
} pools_t;


static double
cost(kvr_candidate_t *c)
{
    kvr_decision_t        d;
    kvr_policy_conf_t     conf;
    kvr_policy_request_t  req;

    kvr_policy_conf_init(&conf, KVR_POLICY_KV_CACHE);

    memset(&req, 0, sizeof(kvr_policy_request_t));

    req.policy = KVR_POLICY_KV_CACHE;
    req.conf = &conf;
    req.bytes = PROMPT;
    req.parsed = 1;

    kvr_policy_pick(&req, c, 1, &d);

    ck_assert_uint_eq(d.active, c->active);

    return d.cost;
}


/* as the glue asks */
static kvr_disaggregate_e
decide(const pools_t *p)
{
    double              plain, first, second;
    kvr_candidate_t     c, decode;
    kvr_disaggregate_t  d;

    memset(&c, 0, sizeof(kvr_candidate_t));

    c.weight = 1;
    c.effective_weight = 1;

    decode = c;
    decode.matched = p->held;
    decode.active = p->streams;
    decode.unanswered = p->waiting;

    memset(&d, 0, sizeof(kvr_disaggregate_t));

    d.bytes = PROMPT;
    d.held = p->held;
    d.min = 8192;
    d.streams = p->streams;

    if (kvr_disaggregate_worth(&d) != KVR_DISAGGREGATE_YES) {
        return kvr_disaggregate_worth(&d);
    }

    c.pending = p->busy;

    first = cost(&c);

    c = decode;
    plain = cost(&c);

    c = decode;
    kvr_disaggregate_candidate(&c, PROMPT, p->transfer);
    second = cost(&c);

    return kvr_disaggregate(&d, plain, first, second);
}


START_TEST(test_disaggregate_worth)
{
    kvr_disaggregate_t  d;

    memset(&d, 0, sizeof(kvr_disaggregate_t));

    d.bytes = 8191;
    d.min = 8192;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_SHORT);

    d.bytes = 8192;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_YES);

    d.held = 1;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_CACHED);

    /* more than there is: an index may be wrong */

    d.held = UINT64_MAX;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_CACHED);

    d.min = 0;
    ck_assert_int_eq(kvr_disaggregate_worth(&d), KVR_DISAGGREGATE_YES);
}
END_TEST


START_TEST(test_disaggregate_pools)
{
    unsigned  i;

    static const struct {
        pools_t             pools;
        kvr_disaggregate_e  outcome;
    } c[] = {

        /* nobody is delayed: one server is quicker */

        { { 0, 0, 0, 0, 0.01 }, KVR_DISAGGREGATE_COST },

        /* streams are, the slower the transfer the more it takes */

        { { 1, 0, 0, 0, 0.01 }, KVR_DISAGGREGATE_YES },
        { { 1, 0, 0, 0, 0.3 }, KVR_DISAGGREGATE_YES },
        { { 1, 0, 0, 0, 2.4 }, KVR_DISAGGREGATE_COST },
        { { 3, 0, 0, 0, 2.4 }, KVR_DISAGGREGATE_COST },
        { { 5, 0, 0, 0, 2.4 }, KVR_DISAGGREGATE_YES },

        /* the prefill servers have a queue */

        { { 4, 0, 0, 2 * PROMPT, 0.01 }, KVR_DISAGGREGATE_YES },
        { { 4, 0, 0, 4 * PROMPT, 0.01 }, KVR_DISAGGREGATE_COST },

        /* others are on their way: the link is shared */

        { { 8, 0, 0, 0, 2.4 }, KVR_DISAGGREGATE_YES },
        { { 8, 2, 0, 0, 2.4 }, KVR_DISAGGREGATE_COST },
        { { 8, 2, 0, 0, 0.3 }, KVR_DISAGGREGATE_YES },

        /* the prompt is at the decode server */

        { { 8, 0, 30000, 0, 0.3 }, KVR_DISAGGREGATE_COST },
        { { 8, 0, 35000, 0, 0.01 }, KVR_DISAGGREGATE_CACHED }
    };

    for (i = 0; i < kvr_nelts(c); i++) {
        util_check(decide(&c[i].pools) == c[i].outcome, "case %u: %d", i,
                   (int) decide(&c[i].pools));
    }
}
END_TEST


/* what makes a transfer slower, or longer, never speaks for it */
START_TEST(test_disaggregate_monotone)
{
    pools_t   p;
    unsigned  i, k;

    static const double  transfer[] = { 0, 0.01, 0.1, 0.5, 1, 2, 10, 100 };

    for (i = 0; i < 64; i++) {

        memset(&p, 0, sizeof(pools_t));

        p.streams = i;
        p.waiting = i / 4;

        for (k = 1; k < kvr_nelts(transfer); k++) {
            p.transfer = transfer[k];

            if (decide(&p) == KVR_DISAGGREGATE_YES) {
                p.transfer = transfer[k - 1];
                util_check(decide(&p) == KVR_DISAGGREGATE_YES,
                           "%u streams, transfer %.2f", i, p.transfer);
            }
        }
    }
}
END_TEST


/* words in shared memory may say anything */
START_TEST(test_disaggregate_wild)
{
    double           most;
    kvr_candidate_t  c;

    memset(&c, 0, sizeof(kvr_candidate_t));

    c.weight = 1;
    c.unanswered = INT32_MAX;

    kvr_disaggregate_candidate(&c, INT64_MAX / 2, 100);

    most = KVR_DISAGGREGATE_MOST;

    ck_assert_uint_eq(c.pending, (uint64_t) most);
    ck_assert_uint_eq(c.matched, INT64_MAX / 2);

    /* it has all of it, and more */

    memset(&c, 0, sizeof(kvr_candidate_t));

    c.matched = 100;

    kvr_disaggregate_candidate(&c, 50, 1);

    ck_assert_uint_eq(c.pending, 0);
    ck_assert_uint_eq(c.matched, 50);
}
END_TEST


int
main(void)
{
    Suite  *s;

    s = suite_create("disaggregate");

    util_add(s, "worth", test_disaggregate_worth);
    util_add(s, "pools", test_disaggregate_pools);
    util_add(s, "monotone", test_disaggregate_monotone);
    util_add(s, "wild", test_disaggregate_wild);

    return util_run(s);
}
