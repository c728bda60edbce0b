
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_policy_int.h"

#include <math.h>


static double kvr_policy_least_request_load(const kvr_candidate_t *c,
    uint32_t by);


static const char *const  kvr_policy_least_request_by[] = {
    "active", "pending", "work", NULL
};

_Static_assert(kvr_nelts(kvr_policy_least_request_by) == KVR_BY_MAX + 1,
               "words of by=");


static const kvr_policy_param_t  kvr_policy_least_request_params[] = {
    { "by", KVR_PARAM_WORD, offsetof(kvr_policy_conf_t, by), 0, 0,
      kvr_policy_least_request_by },
    { 0 }
};


const kvr_policy_t  kvr_policy_least_request = {
    .name = "least_request",
    .alias = "least_conn",
    .params = kvr_policy_least_request_params,
    .pick = kvr_policy_least_request_pick
};


uint32_t
kvr_policy_least_request_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        cand[i].cost = kvr_policy_least_request_load(&cand[i], req->conf->by)
                       / cand[i].weight;
    }

    d->reason = KVR_REASON_LOAD;

    return kvr_policy_least_request_cost(req, cand, n, 0);
}


static double
kvr_policy_least_request_load(const kvr_candidate_t *c, uint32_t by)
{
    switch (by) {

    case KVR_BY_PENDING:
        return (double) c->pending;

    case KVR_BY_WORK:
        return (double) c->pending + (double) c->resident;

    default:
        return c->active;
    }
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

        /* most cost more, and are not left out */

        if (kvr_likely(c->cost > least) || c->out
            || (b && !kvr_policy_less(c, b, i, affine, &random, &ties)))
        {
            continue;
        }

        b = c;
        least = c->cost;
    }

    return b ? (uint32_t) (b - cand) : KVR_POLICY_NONE;
}
