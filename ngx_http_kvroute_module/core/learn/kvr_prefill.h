
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PREFILL_H_INCLUDED_
#define _KVR_PREFILL_H_INCLUDED_


/*
 * How fast a peer prefills, how much it has left to do, and how busy that
 * keeps it.
 *
 * What is counted as pending is taken off when a prompt has its first event,
 * all at once.  In between the peer has done a part of it: what it does in the
 * time since the last such event, at the rate that it is known for, but no more
 * than the largest prompt of late, so that one that is stuck does not seem to
 * go on.
 *
 * The load of the last KVR_PREFILL_WINDOW is kept in three averages that fade:
 * bytes given, requests ended, and the time that those took.  How much of a
 * window there has been is kept as well, or a peer would seem to have little to
 * do for a minute after its start.  Bytes over the
 * rate are the utilisation, 1 at the knee if prefill is what it has least of.
 * By Little's law requests a second times seconds are the requests in flight;
 * they are also looked at once a second: if the two differ for long, something
 * is counted that is not there.
 *
 * What first tokens take beyond what was reckoned is the delay: somebody else's
 * requests, a card that is slower than the others, a cache without room for
 * those that run.  It is an average over the last few, which is halved every
 * seven seconds, as a peer that is avoided for it tells nothing new.
 *
 * Words stand for themselves; processes that write at the same time may lose an
 * observation.  Times are in ms from any moment but their own; 0 is never.
 */


#include "core/base/kvr_core.h"


#define KVR_PREFILL_RATE    16   /* of a rate: one byte a ms */
#define KVR_PREFILL_WINDOW  30000  /* ms */


typedef struct {
    _Atomic uint32_t   rate;         /* of prefill, 0: not known yet */
    _Atomic uint32_t   samples;      /* of it, the first ones */
    _Atomic uint32_t   largest;      /* prompt of late, bytes */
    _Atomic uint32_t   active;       /* mean of what was seen, 1/1000 */
    _Atomic uint32_t   looks;        /* at it, the first ones */
    _Atomic uint32_t   base;         /* least time of late, 1/256 ms */
    _Atomic uint64_t   delay;        /* 1/16 ms, and in its upper bits when */

    _Atomic uint64_t   moved;        /* when a prefill began or ended last */
    _Atomic uint64_t   given;        /* when it was given work last */
    _Atomic uint64_t   ended;        /* when a request ended last */
    _Atomic uint64_t   bytes;        /* a second */
    _Atomic uint64_t   ends;         /* 1/1000000 a second */
    _Atomic uint64_t   time;         /* of those, 1/1000000 s a second */
    _Atomic uint64_t   given_full;   /* 1/1000000 of a window, of bytes */
    _Atomic uint64_t   ended_full;   /* likewise, of ends and time */
} kvr_prefill_t;


typedef struct {
    double             rate;         /* of prefill, bytes/s */
    double             utilization;
    double             ends;         /* requests/s */
    double             latency;      /* s */
    double             active;       /* seen */
    double             expected;     /* ends * latency */
} kvr_prefill_load_t;


/* forgets all: the peer is another */
void kvr_prefill_reset(kvr_prefill_t *p);

/*
 * Tells that a peer was given a prompt of so many bytes to prefill, with so
 * many pending there before.  Returns how many it has left now.
 */
uint64_t kvr_prefill_give(kvr_prefill_t *p, uint64_t bytes, uint64_t pending,
    uint64_t now);

/*
 * Tells that a prompt had its first event ms after it was given, with so many
 * bytes left then, its own included.  The rate kept is near the upper end of
 * what is seen: small prompts take longer than their bytes.  It comes down
 * faster while it is new.
 */
void kvr_prefill_first(kvr_prefill_t *p, uint64_t left, uint64_t ms,
    uint64_t now);

/*
 * Tells that a stream had its first event ms after it was given, with so many
 * bytes left then, its own included, and so many of its prompt held, at a rate
 * of prefill that the fastest of the peers has: what is longer than that, the
 * least time of late and a little for noise is the delay. But not what is
 * explained by held bytes that were not there after all.
 */
void kvr_prefill_waited(kvr_prefill_t *p, uint64_t left, uint64_t held,
    uint64_t ms, uint32_t rate, uint64_t now);

/* what is left by now of the delay that a word of it tells */
uint32_t kvr_prefill_faded(uint64_t word, uint64_t now);

/* tells that a request ended, ms after it was given */
void kvr_prefill_end(kvr_prefill_t *p, uint64_t ms, uint64_t now);

/* tells how many are in flight; to be called once a second */
void kvr_prefill_sample(kvr_prefill_t *p, uint32_t active);

/* how much of what is pending is left to prefill, in bytes */
uint64_t kvr_prefill_left(kvr_prefill_t *p, uint64_t pending, uint64_t now);

/*
 * Whether a peer has as much left as it should have, for an answer within
 * target ms: more than it prefills in half of that, so that as much is left for
 * the prompt to come.  0 if its rate is not known.
 */
int kvr_prefill_full(kvr_prefill_t *p, uint64_t target, uint64_t pending,
    uint64_t now);

/* the load of late */
void kvr_prefill_load(kvr_prefill_t *p, uint64_t now, kvr_prefill_load_t *load);


/* the delay of late, in 1/KVR_PACE_RATE ms: here, as each decision asks */
static inline uint32_t
kvr_prefill_delay(kvr_prefill_t *p, uint64_t now)
{
    uint64_t  word;

    word = kvr_get(&p->delay);

    return (uint32_t) word ? kvr_prefill_faded(word, now) : 0;
}


#endif /* _KVR_PREFILL_H_INCLUDED_ */
