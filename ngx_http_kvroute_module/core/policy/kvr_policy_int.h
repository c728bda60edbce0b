
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PICK_H_INCLUDED_
#define _KVR_PICK_H_INCLUDED_


/*
 * The six ways to pick: what kvr_policy_pick() asks, once it has left out whom
 * it leaves out.  Each returns the index of a candidate that is not out (or
 * KVR_POLICY_NONE, if it would rather wait) and sets the reason.
 */


#include "core/policy/kvr_policy.h"


uint32_t kvr_pick_kv_cache(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
uint32_t kvr_pick_least_request(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
uint32_t kvr_pick_round_robin(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
uint32_t kvr_pick_random(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
uint32_t kvr_pick_prefix(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
uint32_t kvr_pick_sticky(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);


#endif /* _KVR_PICK_H_INCLUDED_ */
