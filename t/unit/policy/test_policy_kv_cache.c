
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kv_cache computes the costs of few peers of many.  This test computes and
 * compares all costs: the pick, reason, cost and random choices must be equal.
 */


#include "util.h"
#include "core/policy/kvr_policy.h"

#include <math.h>


#define MOST  256


static util_rng_t  rng;


/* the documented order: cost, requests, match, rest, lot */
static uint32_t
plainly(const kvr_policy_request_t *req, const kvr_candidate_t *c, uint32_t n,
    const double *cost)
{
    int       less;
    double    a, b;
    uint32_t  i, best, ties;
    uint64_t  random;

    best = KVR_POLICY_NONE;
    random = req->random;
    ties = 1;

    for (i = 0; i < n; i++) {

        if (c[i].unhealthy) {
            continue;
        }

        if (best == KVR_POLICY_NONE) {
            less = 1;

        } else if (cost[i] != cost[best]) {
            less = cost[i] < cost[best];

        } else if (c[i].active != c[best].active) {
            less = c[i].active < c[best].active;

        } else if (c[i].matched != c[best].matched) {
            less = c[i].matched > c[best].matched;

        } else {
            a = (c[i].idle + 1.0) * c[i].weight;
            b = (c[best].idle + 1.0) * c[best].weight;

            if (a == b) {
                random = kvr_mix(random, i);
                best = kvr_reduce(random, ++ties) ? best : i;
                continue;
            }

            less = a > b;
        }

        if (less) {
            best = i;
            ties = 1;
        }
    }

    return best;
}


/* the cost of a candidate, by the policy's contract */
static double
reckon(const kvr_policy_request_t *req, const kvr_candidate_t *c,
    uint64_t best)
{
    kvr_score_t  s;

    s.delay = kvr_score_delay(req->rate / 256.0, req->bytes, best) * c->delay;
    s.pending = c->pending + (c->evicts ? 2 : c->other) * KVR_SCORE_MODEL;
    s.uncached = req->bytes - kvr_min(c->matched, req->bytes);
    s.shared = c->shared;
    s.resident = c->resident;
    s.active = c->active;
    s.waiting = c->unanswered;
    s.weight = c->weight;
    s.turnover = c->turnover;

    return kvr_score_cost(&s);
}


/* numbers of all sizes, with few or only different values */
static uint64_t
some(uint64_t most, unsigned kinds)
{
    if (kinds) {
        return util_below(&rng, kinds) * most / kinds;
    }

    return (util_next(&rng) >> util_below(&rng, 64)) % (most + 1);
}


TEST(test_choose_same)
{
    double                cost[MOST];
    uint32_t              i, k, n, pick;
    unsigned              kinds, weights, others, unhealthy;
    uint64_t              best;
    unsigned              rate;
    kvr_decision_t        d;
    kvr_candidate_t       c[MOST];
    kvr_policy_request_t  req;

    for (i = 0; i < util_cases(20000); i++) {

        util_seed(&rng, "choose", i);

        memset(&req, 0, sizeof(req));
        memset(c, 0, sizeof(c));

        n = 1 + (uint32_t) util_below(&rng, util_below(&rng, 4) ? 80 : MOST);
        kinds = util_below(&rng, 2) ? 1 + (unsigned) util_below(&rng, 5) : 0;
        weights = util_below(&rng, 3) ? 1 : 3;
        others = util_below(&rng, 4) == 0;
        unhealthy = util_below(&rng, 4) == 0;

        req.policy = KVR_POLICY_KV_CACHE;
        req.parsed = 1;
        req.bytes = some(1 << 24, kinds);
        req.random = util_next(&rng);
        rate = util_below(&rng, 2) ? (unsigned) util_below(&rng, 5000) : 0;
        req.rate = rate;

        for (k = 0; k < n; k++) {
            c[k].weight = 1 + (uint32_t) util_below(&rng, weights);
            c[k].active = (uint32_t) some(200, kinds);
            c[k].unanswered = (uint32_t) some(c[k].active, kinds);
            c[k].pending = some(util_below(&rng, 2) ? 1 << 16 : 1ULL << 36,
                                kinds);
            c[k].matched = some(2 * req.bytes, kinds);
            c[k].shared = util_below(&rng, 2) ? some(req.bytes, kinds) : 0;
            c[k].turnover = (float) some(1000, kinds) / 1000;
            c[k].resident = util_below(&rng, 2) ? some(1 << 20, kinds) : 0;
            c[k].idle = (uint32_t) some(1000, kinds);
            c[k].other = others && util_below(&rng, 2);
            c[k].evicts = c[k].other && util_below(&rng, 2);
            c[k].unhealthy = unhealthy && k && util_below(&rng, 2);
            c[k].out = util_below(&rng, 2);      /* from an earlier decision */
            c[k].cost = (double) util_below(&rng, 1000);

            c[k].delay = rate ? (uint32_t) some(100000, kinds) : 0;
        }

        /* otherwise the rule for small matches can choose another one */

        c[0].matched = kvr_max(c[0].matched, req.bytes / 8 + 1);
        best = 0;

        for (k = 0; k < n; k++) {
            best = kvr_max(best, c[k].matched);
        }

        for (k = 0; k < n; k++) {
            cost[k] = reckon(&req, &c[k], best);
        }

        pick = plainly(&req, c, n, cost);

        kvr_policy_pick(&req, c, n, &d);

        util_check(d.pick == pick, "%u of %u, not %u: %.3f, not %.3f", d.pick,
                   n, pick, cost[d.pick], cost[pick]);
        util_check(d.cost == cost[pick], "cost %.3f, not %.3f", d.cost,
                   cost[pick]);

        for (k = 0; k < n; k++) {
            util_check(c[k].cost == cost[k]
                       || (c[k].cost == INFINITY && cost[k] > cost[pick]),
                       "candidate %u costs %.3f, not %.3f", k, c[k].cost,
                       cost[k]);
        }
    }
}


/* the rule for small matches was skipped: its cost is computed */
TEST(test_choose_small)
{
    uint32_t              k;
    kvr_decision_t        d;
    kvr_candidate_t       c[16] = { 0 };
    kvr_policy_request_t  req = { 0 };

    req.policy = KVR_POLICY_KV_CACHE;
    req.parsed = 1;
    req.bytes = 100000;

    for (k = 0; k < 16; k++) {
        c[k].weight = 1;
    }

    c[0].matched = 10000;
    c[9].idle = 1;

    kvr_policy_pick(&req, c, 16, &d);

    util_check(d.pick == 9 && d.reason == KVR_REASON_COLD, "%u", d.pick);
    util_check(d.cost == reckon(&req, &c[9], 10000), "%.3f", d.cost);
}
