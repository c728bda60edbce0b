
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SCORE_H_INCLUDED_
#define _KVR_SCORE_H_INCLUDED_


#include "kvr_core.h"


/*
 * What a request costs on a peer, in bytes of prompt to prefill: the delay that
 * it meets there plus what it brings to others.
 *
 *     cost = ( pending
 *              + max(uncached, floor) * (1 + active / 5)
 *              + uncached * (3/4 + waiting / 2) )
 *            / weight
 *
 * pending is what must be prefilled before it.  Its own uncached part delays
 * itself once, and those that share the engine's steps by a part of it: prefill
 * chunks and decode steps take turns.  A prompt that is cached whole still
 * takes its place in the batch: the floor, or a hot prefix would draw all its
 * traffic to one peer.
 *
 * What has to be computed also takes as much of the cache, and something else
 * goes for it that may be computed again: so most of it counts once more, and
 * a session does not leave its peer for a queue that is gone in a moment.  All
 * of it once more would be too much trust in an index that may be wrong.  And
 * it delays those that wait for their first token, or that come while they do:
 * the longer the queue is, the less a peer should compute that others have.
 * All of it for each that waits tears sessions apart where queues are of small
 * requests.
 *
 * Bytes serve as well as tokens here, as all terms have the same unit and only
 * the order of the costs matters.
 *
 * Found by simulation: bench/sim, docs/benchmarks.md.
 */


#define KVR_SCORE_FLOOR          2048
#define KVR_SCORE_ACTIVE_SHARE   5
#define KVR_SCORE_MOVE           0.75
#define KVR_SCORE_WAITING_SHARE  2

/* an adapter that is not loaded, in the same bytes: tens of milliseconds */
#define KVR_SCORE_MODEL          16384


/*
 * pending, uncached: bytes; active: requests in flight, waiting: those of them
 * that have had no answer yet; weight: from 1.  Lower is better, and at least
 * KVR_SCORE_FLOOR / weight.
 */
static inline double
kvr_score_cost(uint64_t pending, uint64_t uncached, uint32_t active,
    uint32_t waiting, uint32_t weight)
{
    double    cost;
    uint64_t  own;

    own = kvr_max(uncached, KVR_SCORE_FLOOR);

    /* signed, as no machine converts the others as fast; exact up to here */

    cost = (double) (int64_t) pending
           + (double) (int64_t) own
             * (1.0 + (double) (int32_t) active / KVR_SCORE_ACTIVE_SHARE)
           + (double) (int64_t) uncached
             * (KVR_SCORE_MOVE
                + (double) (int32_t) waiting / KVR_SCORE_WAITING_SHARE);

    return weight == 1 ? cost : cost / (double) weight;
}


#endif /* _KVR_SCORE_H_INCLUDED_ */
