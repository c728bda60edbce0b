
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SCORE_H_INCLUDED_
#define _KVR_SCORE_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * What a request costs on a peer, in bytes of prompt to prefill: the delay that
 * it meets there plus what it brings to others.
 *
 *     own  = uncached - shared
 *
 *     cost = ( pending + delay
 *              + 400 * active + resident / 96
 *              + max(own, floor) * (1 + active / 5)
 *              + own * (3/4 + waiting / 2)
 *              + uncached * turnover )
 *            / weight
 *
 * pending is what must be prefilled before it.  delay is what first tokens took
 * there of late beyond that: work that is not ours, or a slower card.  For a
 * prompt that nobody holds delay counts in full, for one that a peer holds
 * whole a fifth of it: a delay passes, but what is held there would have to be
 * computed anew elsewhere.  A request in flight slows the others down, the more
 * the longer its context is, as each step reads that: resident is the context
 * of all of them.
 *
 * Its own uncached part delays itself once, and those that share the engine's
 * steps by a part of it: prefill chunks and decode steps take turns.  A prompt
 * that is cached whole still takes its place in the batch: the floor, or a hot
 * prefix would draw all its traffic to one peer.
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
 * A beginning that n requests of the last minute had will be asked for again:
 * to compute it at a further peer is an investment.  This request bears
 * 1 / (1 + n / (2 * (1 + active))) of it, the rest is shared.  An idle peer is
 * a good place for the beginning, a busy one only if very many ask for it.  A
 * peer without work for m minutes has seen m times as many pass by: n counts
 * 1 + m times, or a fleet with little to do would leave that peer empty.
 *
 * What goes from a cache for this prompt may be asked for again, the more
 * likely the shorter ago it was used: turnover is 60 / (60 + t) for a peer that
 * computes as much as it can hold in t seconds.
 *
 * Bytes serve as well as tokens here, as all terms have the same unit and only
 * the order of the costs matters.
 *
 * Found by simulation: bench/sim, docs/benchmarks.md.
 */


#define KVR_SCORE_FLOOR          2048
#define KVR_SCORE_ACTIVE         400
#define KVR_SCORE_RESIDENT       96
#define KVR_SCORE_ACTIVE_SHARE   5
#define KVR_SCORE_MOVE           0.75
#define KVR_SCORE_WAITING_SHARE  2
#define KVR_SCORE_HOT        2
#define KVR_SCORE_STAY           0.8

/* an adapter that is not loaded, in the same bytes: tens of milliseconds */
#define KVR_SCORE_MODEL          16384


/* a request at a peer */
typedef struct {
    uint64_t         pending;    /* bytes */
    uint64_t         uncached;   /* bytes */
    uint64_t         shared;     /* bytes of these, see kvr_hot.h */
    uint64_t         resident;   /* bytes of context in flight */
    double           delay;      /* bytes, see kvr_score_delay() */
    uint32_t         active;     /* requests in flight */
    uint32_t         waiting;    /* those of them without an answer yet */
    uint32_t         weight;     /* from 1 */
    float            turnover;   /* 0 .. 1, see kvr_index_turnover() */
} kvr_score_t;


/*
 * The part, 0 .. 1, of a beginning that n requests of the last minute had
 * which is to the use of others, at a peer with so many requests in flight that
 * has rested for so many minutes.
 */
static inline double
kvr_score_hot(double n, uint32_t active, uint32_t rest)
{
    n *= 1.0 + (double) (int32_t) rest;

    return n / (n + KVR_SCORE_HOT * (1.0 + (double) (int32_t) active));
}


/*
 * The bytes that each ms of delay counts, at so many bytes a ms, for a prompt
 * of so many bytes of which the best peer holds so many.
 */
static inline double
kvr_score_delay(double rate, uint64_t bytes, uint64_t best)
{
    best = kvr_min(best, bytes);

    if (best == 0) {
        return rate;
    }

    return rate * (1 - KVR_SCORE_STAY * (double) (int64_t) best
                       / (double) (int64_t) bytes);
}


/* lower is better, and at least KVR_SCORE_FLOOR / weight */
static inline double
kvr_score_cost(const kvr_score_t *s)
{
    double    cost, active;
    uint64_t  own, floor;

    own = s->uncached - kvr_min(s->shared, s->uncached);
    floor = kvr_max(own, KVR_SCORE_FLOOR);

    /* signed, as no machine converts the others as fast; exact up to here */

    active = (double) (int32_t) s->active;

    cost = (double) (int64_t) s->pending
           + s->delay
           + KVR_SCORE_ACTIVE * active
           + (double) (int64_t) s->resident / KVR_SCORE_RESIDENT
           + (double) (int64_t) floor * (1.0 + active / KVR_SCORE_ACTIVE_SHARE)
           + (double) (int64_t) own
             * (KVR_SCORE_MOVE
                + (double) (int32_t) s->waiting / KVR_SCORE_WAITING_SHARE)
           + (double) (int64_t) s->uncached * (double) s->turnover;

    return s->weight == 1 ? cost : cost / (double) s->weight;
}


/*
 * No more than kvr_score_cost() of a peer of weight 1, told in whole numbers:
 * as if nobody waited there, who is there had no context and the cache room.
 */
static inline uint64_t
kvr_score_least(uint64_t pending, uint64_t uncached, uint64_t shared,
    uint32_t active)
{
    uint64_t  own;

    own = uncached - kvr_min(shared, uncached);

    return pending + (uint64_t) active * KVR_SCORE_ACTIVE
           + own + own * (uint64_t) (KVR_SCORE_MOVE * 4) / 4;
}


#endif /* _KVR_SCORE_H_INCLUDED_ */
