
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SCORE_H_INCLUDED_
#define _KVR_SCORE_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * The cost of a request on a peer, in bytes of prompt to prefill: its own
 * delay, plus the delay that it causes for others.
 *
 *     own  = uncached - shared
 *
 *     cost = ( pending + delay
 *              + 400 * active + resident / 96
 *              + max(own, floor) * (1 + 64 * active / (320 + active))
 *              + own * 3 / 4 + max(own - floor, 0) * 5 * waiting / 4
 *              + uncached * turnover )
 *            / weight
 *
 * pending: bytes to be prefilled before it.  delay: additional time of recent
 * first tokens, from work of other clients or a slower GPU.  For a new prompt
 * delay counts in full, for one that a peer has completely cached a fifth of
 * it: a delay passes, but elsewhere the cached part would have to be computed
 * again. A request in flight slows the others down, and more with a longer
 * context, which each step reads: resident is the context of all of them.
 *
 * The uncached part delays this request once, and requests that share the
 * engine's steps by a part of it, as prefill chunks alternate with decode
 * steps: a fifth if they are few, and for all together less than 64 times the
 * uncached part.  Otherwise long prompts would wait for minutes at the peers
 * that have few requests.  A fully cached prompt still takes a place in the
 * batch: the floor.  Without it a hot prefix would send all its traffic to one
 * peer.
 *
 * What is loaded from a lower tier of the peer's cache counts as uncached, by
 * its price (kvr_tier.h).  If there are lower tiers, pending has also what must
 * leave the GPU's memory first.  With these, and for hybrid models, nothing is
 * shared: kvr_candidate_tiers().
 *
 * What is computed also takes space in the cache and evicts something that may
 * be needed again.  So most of it (3/4) counts once more, and a session does
 * not leave its peer because of a short queue.  Not all of it, because the
 * index can be wrong.
 *
 * It also delays the requests that come while the queue lasts.  The more wait
 * now, the more will come before the queue is empty.  At a load of one half
 * they are as many, at two thirds twice as many: 5/4 for each waiting request.
 * The first bytes, up to the floor, do not: they would tear sessions apart when
 * queues consist of small requests.
 *
 * A prefix that n requests of the last minute had will be needed again, so
 * computing it at one more peer is an investment.  This request bears 1 / (1 +
 * n / (2 * (1 + active))) of it, the rest is "shared".  An idle peer is a good
 * place for the prefix, a busy one only if very many requests have it. For a
 * peer without work for m minutes n counts 1 + m times; otherwise a fleet with
 * little to do would leave that peer empty.
 *
 * What this prompt evicts may be needed again, more likely if it was used
 * recently: turnover is 60 / (60 + t) for a peer that computes as much as it
 * can hold in t seconds.
 *
 * Bytes serve as well as tokens: all terms have the same unit, and only the
 * order of the costs matters.
 *
 * Found by simulation: bench/sim, docs/benchmarks.md.
 */


#define KVR_SCORE_FLOOR          2048
#define KVR_SCORE_ACTIVE         400
#define KVR_SCORE_RESIDENT       96
#define KVR_SCORE_ACTIVE_MOST    64
#define KVR_SCORE_ACTIVE_HALF    320

/* quarters */
#define KVR_SCORE_MOVE           3
#define KVR_SCORE_WAITING        5

#define KVR_SCORE_HOT        2
#define KVR_SCORE_STAY           0.8

/* loading an adapter, in the same bytes: tens of milliseconds */
#define KVR_SCORE_MODEL          16384


/* a request at a peer */
typedef struct {
    uint64_t         pending;    /* bytes */
    uint64_t         uncached;   /* bytes */
    uint64_t         shared;     /* bytes of these, see kvr_hot.h */
    uint64_t         resident;   /* bytes of context in flight */
    double           delay;      /* bytes, see kvr_score_delay() */
    uint32_t         active;     /* requests in flight */
    uint32_t         waiting;    /* of these, without a first event */
    uint32_t         weight;     /* from 1 */
    float            turnover;   /* 0 .. 1, see kvr_index_turnover() */
} kvr_score_t;


/*
 * Returns the share, 0 .. 1, of a prefix of n requests of the last minute that
 * others will use, at a peer with "active" requests in flight that has had no
 * work for "rest" minutes.
 */
static inline double
kvr_score_hot(double n, uint32_t active, uint32_t rest)
{
    n *= 1.0 + (double) (int32_t) rest;

    return n / (n + KVR_SCORE_HOT * (1.0 + (double) (int32_t) active));
}


/*
 * Returns the bytes that a ms of delay counts, at a rate in bytes per ms, for
 * a prompt of these bytes; best: how many of them the best peer has cached.
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


/* Returns the cost: lower is better; at least KVR_SCORE_FLOOR / weight. */
static inline double
kvr_score_cost(const kvr_score_t *s)
{
    double    cost, active;
    uint64_t  own, floor, quarters;

    own = s->uncached - kvr_min(s->shared, s->uncached);
    floor = kvr_max(own, KVR_SCORE_FLOOR);

    /* signed conversions are faster, and few; exact for these sizes */

    active = (double) (int32_t) s->active;

    quarters = 4 * (s->pending + floor)
               + own * KVR_SCORE_MOVE
               + s->waiting * (floor - KVR_SCORE_FLOOR) * KVR_SCORE_WAITING;

    cost = (double) (int64_t) quarters * 0.25
           + s->delay
           + active * (KVR_SCORE_ACTIVE
                       + (double) (int64_t) (KVR_SCORE_ACTIVE_MOST * floor)
                         / (KVR_SCORE_ACTIVE_HALF + active))
           + (double) (int64_t) s->resident / KVR_SCORE_RESIDENT
           + (double) (int64_t) s->uncached * (double) s->turnover;

    return s->weight == 1 ? cost : cost / (double) s->weight;
}


/*
 * Returns a lower bound of kvr_score_cost() for a peer of weight 1, in whole
 * numbers: without waiting requests, context and turnover.
 */
static inline uint64_t
kvr_score_least(uint64_t pending, uint64_t uncached, uint64_t shared,
    uint32_t active)
{
    uint64_t  own;

    own = uncached - kvr_min(shared, uncached);

    return pending + (uint64_t) active * KVR_SCORE_ACTIVE
           + own + own * KVR_SCORE_MOVE / 4;
}


#endif /* _KVR_SCORE_H_INCLUDED_ */
