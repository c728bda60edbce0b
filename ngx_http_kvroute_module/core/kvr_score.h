
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SCORE_H_INCLUDED_
#define _KVR_SCORE_H_INCLUDED_


#include "kvr_core.h"


/*
 * What a request costs on a peer, in bytes of prompt to prefill: the delay that
 * it meets there plus the one that it brings to those already running.
 *
 *     cost = ( pending + max(uncached, floor) * (1 + active / 4) ) / weight
 *
 * pending is what must be prefilled before it; its own uncached part delays
 * itself once, and each running request by a share, since prefill chunks and
 * decode steps take turns in an engine's batch.  A prompt that is cached whole
 * still takes its place in the batch: the floor, or a hot prefix would draw
 * all its traffic to one peer.  Bytes serve as well as tokens here, as all
 * terms have the same unit and only the order of the costs matters.
 *
 * Found by simulation (DESIGN.md, section 7; bench/sim repeats it).
 */


#define KVR_SCORE_FLOOR         2048
#define KVR_SCORE_ACTIVE_SHARE  4

/* an adapter that is not loaded, in the same bytes: tens of milliseconds */
#define KVR_SCORE_MODEL         16384


/*
 * pending, uncached: bytes; active: requests; weight: from 1.  Lower is
 * better, and at least KVR_SCORE_FLOOR / weight.
 */
static inline double
kvr_score_cost(uint64_t pending, uint64_t uncached, uint32_t active,
    uint32_t weight)
{
    double  own;

    own = (double) kvr_max(uncached, KVR_SCORE_FLOOR);

    return ((double) pending
            + own * (1.0 + (double) active / KVR_SCORE_ACTIVE_SHARE))
           / (double) weight;
}


#endif /* _KVR_SCORE_H_INCLUDED_ */
