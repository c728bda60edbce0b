
/*
 * Copyright (C) kvroute contributors
 */


/* Picks the peer that the session is bound to. */


#include "core/policy/kvr_policy_int.h"


static uint32_t kvr_policy_sticky_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);


const kvr_policy_t  kvr_policy_sticky = {
    .name = "sticky",
    .needs = KVR_NEEDS_MATCH | KVR_NEEDS_SESSION | KVR_NEEDS_TURNS
             | KVR_NEEDS_HOME,
    .pick = kvr_policy_sticky_pick
};


static uint32_t
kvr_policy_sticky_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    uint32_t          i, pick, full;
    kvr_candidate_t  *home, *second;

    if (!req->keyed) {
        return kvr_policy_round_robin_pick(req, cand, n, d);
    }

    full = req->busy;

    for (i = 0; i < n; i++) {

        if (!cand[i].bound) {
            continue;
        }

        /* if all are full, the bound one is as good as any */

        if (!cand[i].out) {
            d->reason = KVR_REASON_SESSION;
            return i;
        }

        full = 1;
    }

    /* where other hosts would bind the session */

    home = req->home ? kvr_policy_home(req, cand, n, &second) : NULL;

    pick = home ? (uint32_t) (home - cand)
                : kvr_policy_round_robin_pick(req, cand, n, d);

    d->reason = full ? KVR_REASON_OVERFLOW : KVR_REASON_BIND;

    return pick;
}
