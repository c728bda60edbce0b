
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SCORE_H_INCLUDED_
#define _KVR_SCORE_H_INCLUDED_


#include "kvr_core.h"


/*
 * What a request costs on a peer, in bytes of prompt to prefill: the delay that
 * it meets there plus the one that it brings to those already there.
 *
 *     cost = ( pending
 *              + max(uncached, floor) * (1 + waiting / 4 + running / 8) )
 *            / weight
 *
 * pending is what must be prefilled before it.  Its own uncached part delays
 * itself once.  It also delays the requests that wait for their first token,
 * since prefills share the engine's steps, and those running, since prefill
 * chunks and decode steps take turns; each by a share, as what is moved
 * elsewhere must be computed there and is then cached twice.  A prompt that
 * is cached whole still takes its place in the batch: the floor, or a hot
 * prefix would draw all its traffic to one peer.  Bytes serve as well as
 * tokens here, as all terms have the same unit and only the order of the costs
 * matters.
 *
 * Found by simulation (bench/sim, docs/benchmarks.md), the share of those that
 * wait with real engines: there all of it tore sessions apart (make demo).
 */


#define KVR_SCORE_FLOOR          2048
#define KVR_SCORE_WAITING_SHARE  4
#define KVR_SCORE_RUNNING_SHARE  8   /* a multiple */

/* an adapter that is not loaded, in the same bytes: tens of milliseconds */
#define KVR_SCORE_MODEL         16384


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
    uint64_t  own, share;

    own = kvr_max(uncached, KVR_SCORE_FLOOR);

    /* the two are counted apart, so that one may run ahead of the other */

    share = KVR_SCORE_RUNNING_SHARE
            + (uint64_t) waiting * (KVR_SCORE_RUNNING_SHARE
                                    / KVR_SCORE_WAITING_SHARE)
            + (active - kvr_min(waiting, active));

    /* signed, as no machine converts the others as fast; exact up to here */

    cost = (double) (int64_t) pending
           + (double) (int64_t) own
             * ((double) (int64_t) share / KVR_SCORE_RUNNING_SHARE);

    return weight == 1 ? cost : cost / (double) weight;
}


#endif /* _KVR_SCORE_H_INCLUDED_ */
