
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_policy_int.h"

#include <math.h>


const kvr_policy_t  kvr_policy_least_request = {
    .name = "least_request",
    .alias = "least_conn",
    .pick = kvr_policy_least_request_pick
};


uint32_t
kvr_policy_least_request_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        cand[i].cost = (double) cand[i].active / cand[i].weight;
    }

    d->reason = KVR_REASON_LOAD;

    return kvr_policy_least_request_cost(req, cand, n, 0);
}


uint32_t
kvr_policy_least_request_cost(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, int affine)
{
    double            least;
    uint32_t          i, ties;
    uint64_t          random;
    kvr_candidate_t  *c, *b;

    b = NULL;
    least = INFINITY;
    ties = 1;
    random = req->random;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        /* most candidates cost more */

        if (kvr_likely(c->cost > least) || c->out
            || (b && !kvr_policy_less(c, b, i, affine, &random, &ties)))
        {
            continue;
        }

        b = c;
        least = c->cost;
    }

    return (uint32_t) (b - cand);
}
