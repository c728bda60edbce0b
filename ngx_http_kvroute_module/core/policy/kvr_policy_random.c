
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_policy.h"


static uint32_t kvr_policy_random_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);


const kvr_policy_t  kvr_policy_random = {
    .name = "random",
    .pick = kvr_policy_random_pick
};


static uint32_t
kvr_policy_random_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    uint32_t  i, pick;
    uint64_t  total, at;

    total = 0;

    for (i = 0; i < n; i++) {
        total += cand[i].out ? 0 : cand[i].weight;
    }

    /* the lower half of the random word can be a counter */

    at = kvr_reduce(kvr_mix(req->random, 1), total);
    pick = 0;

    for (i = 0; i < n; i++) {

        if (cand[i].out) {
            continue;
        }

        pick = i;

        if (at < cand[i].weight) {
            break;
        }

        at -= cand[i].weight;
    }

    d->reason = KVR_REASON_RANDOM;

    return pick;
}
