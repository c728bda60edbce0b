
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_POLICY_H_INCLUDED_
#define _KVR_POLICY_H_INCLUDED_


/*
 * The policies: pure functions from what is known of the peers to a pick and
 * the reason for it.  The caller offers only peers that may be had at all, and
 * keeps what the policy writes to the candidate (the smooth round robin's
 * weights) for the next time.
 */


#include "kvr_score.h"


typedef enum {
    KVR_POLICY_OFF = 0,
    KVR_POLICY_KV_CACHE,
    KVR_POLICY_LEAST_REQUEST,
    KVR_POLICY_ROUND_ROBIN,
    KVR_POLICIES
} kvr_policy_e;


typedef enum {
    KVR_REASON_NONE = 0,
    KVR_REASON_AFFINITY,         /* no peer holds more of the prompt */
    KVR_REASON_SPILL,            /* one does, but is busier than it is worth */
    KVR_REASON_COLD,             /* no peer holds any of it */
    KVR_REASON_LOAD,             /* the policy looks at load only */
    KVR_REASON_TURN,             /* round robin */
    KVR_REASON_ONLY,             /* there was no choice */
    KVR_REASON_RETRY,            /* an earlier attempt failed */
    KVR_REASON_UNPARSED,         /* the body gave no prompt: by load */
    KVR_REASON_BODYLESS,         /* no body: nginx's own round robin */
    KVR_REASON_MAX
} kvr_reason_e;


typedef struct {
    uint32_t    weight;          /* from 1 */
    uint32_t    active;          /* requests in flight */
    uint64_t    pending;         /* bytes to be prefilled */
    uint64_t    matched;         /* leading bytes of this prompt it holds */
    uint32_t    idle;            /* picks since it was last given work */

    int64_t     current_weight;  /* in and out: smooth round robin */
    int64_t     effective_weight;

    double      cost;            /* out */
} kvr_candidate_t;


typedef struct {
    kvr_policy_e  policy;
    uint64_t      bytes;         /* of the prompt */
    uint64_t      random;
    unsigned      parsed:1;      /* there is a prompt to speak of */
    unsigned      retry:1;
} kvr_policy_request_t;


typedef struct {
    uint32_t      pick;          /* index of the candidate */
    kvr_reason_e  reason;
    uint64_t      matched;       /* bytes held by the pick */
    uint64_t      best;          /* bytes held by the best of all */
    double        cost;
} kvr_decision_t;


/* picks one of n candidates, n from 1 */
void kvr_policy_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *decision);

/* names as in the configuration and in the access log; NULL: no such number */
const char *kvr_policy_name(kvr_policy_e policy);
const char *kvr_reason_name(kvr_reason_e reason);

/* the policy of a name, aliases too; KVR_POLICIES if there is none */
kvr_policy_e kvr_policy_by_name(const void *name, size_t len);


#endif /* _KVR_POLICY_H_INCLUDED_ */
