
/*
 * Copyright (C) kvroute contributors
 */


/* Picks by nginx's smooth weighted round robin. */


#include "core/policy/kvr_policy_int.h"


const kvr_policy_t  kvr_policy_round_robin = {
    .name = "round_robin",
    .needs = KVR_NEEDS_TURNS,
    .pick = kvr_policy_round_robin_pick
};


uint32_t
kvr_policy_round_robin_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d)
{
    int64_t           total;
    uint32_t          i, best;
    kvr_candidate_t  *c;

    (void) req;

    best = KVR_POLICY_NONE;
    total = 0;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        if (c->out) {
            continue;
        }

        c->current_weight += c->effective_weight;
        total += c->effective_weight;

        if (c->effective_weight < (int64_t) c->weight) {
            c->effective_weight++;
        }

        if (best == KVR_POLICY_NONE
            || c->current_weight > cand[best].current_weight)
        {
            best = i;
        }
    }

    cand[best].current_weight -= total;

    d->reason = KVR_REASON_TURN;

    return best;
}
