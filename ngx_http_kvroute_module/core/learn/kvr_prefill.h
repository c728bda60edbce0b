
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PREFILL_H_INCLUDED_
#define _KVR_PREFILL_H_INCLUDED_


/*
 * How fast a peer prefills, how much it has left to do, and how busy that
 * keeps it.
 *
 * The pending bytes of a prompt are taken off all at once, at its first event.
 * Before that the peer has already done a part of them.  That part is reckoned:
 * the time since the last first event, at the peer's rate, but no more than the
 * largest prompt of late, so that a peer that is stuck does not seem to go on.
 *
 * The bytes given in the last KVR_PREFILL_WINDOW are an average that fades.  How
 * much of a window there has been is kept as well: else a peer would seem to
 * have little to do for a minute after its start.  Bytes a second over the rate
 * are the utilization: 1 at the knee, if prefill is the peer's bottleneck.
 *
 * The delay is what first tokens take beyond what was reckoned: because of
 * somebody else's requests, a card that is slower than the others, a cache
 * without room for the requests that run.  It is an average over the last few,
 * and is halved every seven seconds, as a peer that is avoided for its delay
 * tells nothing new.
 *
 * Words stand for themselves; processes that write at the same time may lose an
 * observation.  Times are in ms of a clock that all processes share; 0 is
 * never.
 */


#include "core/base/kvr_core.h"


#define KVR_PREFILL_RATE    16   /* of a rate: one byte a ms */
#define KVR_PREFILL_WINDOW  30000  /* ms */
#define KVR_PREFILL_MINUTE  16   /* of ms: log2, about */
#define KVR_PREFILL_REST    60   /* minutes */


typedef struct {
    _Atomic uint32_t   rate;         /* of prefill, 0: not known yet */
    _Atomic uint32_t   samples;      /* of it, the first ones */
    _Atomic uint32_t   largest;      /* prompt of late, bytes */
    _Atomic uint32_t   base;         /* least time of late, 1/256 ms */
    _Atomic uint64_t   delay;        /* 1/16 ms, and in its upper bits when */

    _Atomic uint64_t   moved;        /* when a prefill began or ended last */
    _Atomic uint64_t   given;        /* when it was given work last, or seen */
    _Atomic uint64_t   remote;       /* when another host gave it work */
    _Atomic uint64_t   bytes;        /* given a second */
    _Atomic uint64_t   given_full;   /* 1/1000000 of a window, of bytes */
} kvr_prefill_t;


typedef struct {
    double             rate;         /* of prefill, bytes/s */
    double             utilization;
} kvr_prefill_load_t;


/* forgets all: the peer is another */
void kvr_prefill_reset(kvr_prefill_t *p);

/*
 * Tells that a peer was given a prompt with so many bytes to prefill, while
 * "pending" bytes were pending there.  Returns the bytes that it has left now,
 * the new ones included.
 */
uint64_t kvr_prefill_give(kvr_prefill_t *p, uint64_t bytes, uint64_t pending,
    uint64_t now);

/*
 * Tells that a prompt had its first event, ms after it was given.  left is what
 * kvr_prefill_give() returned for it.  The rate that is kept is near the upper
 * end of what is seen, as small prompts take longer than their bytes.  It comes
 * down faster while it is new.
 */
void kvr_prefill_first(kvr_prefill_t *p, uint64_t left, uint64_t ms,
    uint64_t now);

/*
 * Tells that a stream had its first event, ms after it was given.  left is what
 * kvr_prefill_give() returned for it, held the bytes of its prompt that the
 * pick counted on, rate that of the fastest peer (as in kvr_prefill_t).  What
 * ms has beyond left / rate, the least time of late and a little for noise is
 * delay; but not what held bytes explain that were not there after all.
 */
void kvr_prefill_waited(kvr_prefill_t *p, uint64_t left, uint64_t held,
    uint64_t ms, uint32_t rate, uint64_t now);

/* how much of a delay is left by now; word: kvr_prefill_t's */
uint32_t kvr_prefill_faded(uint64_t word, uint64_t now);

/* how much of what is pending is left to prefill, in bytes */
uint64_t kvr_prefill_left(kvr_prefill_t *p, uint64_t pending, uint64_t now);

/*
 * Whether a peer has more left than it prefills in half of target ms: the other
 * half is for the prompt to come.  0 if the peer's rate is not known.
 */
int kvr_prefill_full(kvr_prefill_t *p, uint64_t target, uint64_t pending,
    uint64_t now);

/* the load of late */
void kvr_prefill_load(kvr_prefill_t *p, uint64_t now, kvr_prefill_load_t *load);


/* the delay of late, in 1/16 ms; inline, as each decision asks each peer */
static inline uint32_t
kvr_prefill_delay(kvr_prefill_t *p, uint64_t now)
{
    uint64_t  word;

    word = kvr_get(&p->delay);

    return (uint32_t) word ? kvr_prefill_faded(word, now) : 0;
}


/* tells that another host gave it work: it does not rest */
static inline void
kvr_prefill_remote(kvr_prefill_t *p, uint64_t now)
{
    kvr_set(&p->remote, now);
}


/*
 * For how many whole minutes a peer was given no work, at most
 * KVR_PREFILL_REST.  A new peer rests from when it is first asked about.
 */
static inline uint32_t
kvr_prefill_rest(kvr_prefill_t *p, uint64_t now)
{
    uint64_t  given, remote;

    given = kvr_get(&p->given);

    if (kvr_unlikely(given == 0)) {
        kvr_set(&p->given, now);
        return 0;
    }

    remote = kvr_get(&p->remote);
    given = kvr_max(given, remote);

    return now > given
           ? (uint32_t) kvr_min((now - given) >> KVR_PREFILL_MINUTE,
                                KVR_PREFILL_REST)
           : 0;
}


#endif /* _KVR_PREFILL_H_INCLUDED_ */
