
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PULL_H_INCLUDED_
#define _KVR_PULL_H_INCLUDED_


/*
 * A request for a cached prefix can wait for the peer that has it, or another
 * peer can compute it again.  With connector=pull there is a third way:
 * another peer fetches it from the first one.
 *
 * The source is the peer with the most cached bytes.  The index knows a prompt
 * from the pick on, before it is computed.  While a prefix is being computed,
 * at least its bytes are pending, so a peer is a source only if fewer bytes
 * are pending there.  While it is being fetched, few are pending.  So of peers
 * that have as much, the source is the one with most requests: it is the least
 * likely to be waiting for the prefix itself.
 *
 * Each peer is then a candidate as if it had these bytes cached.  The transfer
 * takes transfer * missing, which counts as a load from a lower tier of the
 * cache, and as pending at the peer that is picked.  Fetched bytes take space
 * in the cache like computed ones, so 3/4 of them and their turnover count,
 * except for what other requests will use (kvr_score.h).  If a transfer takes
 * as long as computing, there is none.
 *
 * Found by simulation: make bench-burst, bench/sim/LAB.md.
 */


#include "core/policy/kvr_policy.h"


#define KVR_PULL_NONE  UINT32_MAX


typedef struct {
    double             transfer;  /* time of a byte / time to compute it */
    uint64_t           min;       /* bytes that are worth it, from 1 */

    /* set by kvr_pull() */

    uint32_t           source;    /* index of its candidate, or NONE */
    uint64_t           held;      /* bytes that it has cached */
} kvr_pull_t;


/* Finds the source, and changes the candidates that can fetch from it. */
void kvr_pull(kvr_pull_t *p, kvr_candidate_t *cand, uint32_t n);


#endif /* _KVR_PULL_H_INCLUDED_ */
