
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_POLICY_INT_H_INCLUDED_
#define _KVR_POLICY_INT_H_INCLUDED_


/* Functions that several policies use. */


#include "core/policy/kvr_policy.h"


/* as kvr_policy_pick_pt */

uint32_t kvr_policy_least_request_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
uint32_t kvr_policy_round_robin_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);

/*
 * Returns the candidate of least cost.  Of equal ones it is the one with fewer
 * requests; if affine, then the one with the longer match (below the score's
 * floor it costs the same); then the one that was idle longest, by weight; then
 * a random one, since always the first would get all traffic of an idle fleet.
 */
uint32_t kvr_policy_least_request_cost(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, int affine);


/*
 * Returns the home of req->home's key among the candidates that are not left
 * out, and the second one; NULL if there is none.
 */
kvr_candidate_t *kvr_policy_home(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_candidate_t **second);


/* Tells whether c replaces b, the best so far, which is no cheaper. */
static inline int
kvr_policy_less(kvr_candidate_t *c, kvr_candidate_t *b, uint32_t i, int affine,
    uint64_t *random, uint32_t *ties)
{
    int     less;
    double  idle, best_idle;

    if (c->cost != b->cost) {
        less = c->cost < b->cost;

    } else if (c->active != b->active) {
        less = c->active < b->active;

    } else if (affine && c->matched != b->matched) {
        less = c->matched > b->matched;

    } else {
        /* from 1: the last one must have a chance too */

        idle = ((double) c->idle + 1) * c->weight;
        best_idle = ((double) b->idle + 1) * b->weight;

        if (idle == best_idle) {

            /* each of the equal ones with the same probability */

            *random = kvr_mix(*random, i);

            return kvr_reduce(*random, ++*ties) == 0;
        }

        less = idle > best_idle;
    }

    if (less) {
        *ties = 1;
    }

    return less;
}


#endif /* _KVR_POLICY_INT_H_INCLUDED_ */
