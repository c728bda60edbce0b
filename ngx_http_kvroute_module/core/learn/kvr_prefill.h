
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PREFILL_H_INCLUDED_
#define _KVR_PREFILL_H_INCLUDED_


/*
 * Estimates how fast a peer prefills, how much it has left, and how busy it is.
 *
 * A prompt's pending bytes are subtracted all at once, at its first event.
 * Before that the peer has already done a part of them: the time since the
 * last first event, at the peer's rate, but at most the largest recent prompt,
 * so that a stuck peer does not seem to progress.
 *
 * The bytes of the last KVR_PREFILL_WINDOW are a fading average.  The part of
 * the window that has passed is kept too, otherwise a peer would seem idle for
 * a minute after its start.  Bytes per second over the rate are the
 * utilization: 1 at the saturation point, if prefill is the peer's bottleneck.
 *
 * The delay is the time of first tokens beyond this estimate: by other
 * clients' requests, a slower GPU, or a cache that is too small for the
 * running requests. It is an average of the last few, and halves every seven
 * seconds, because a peer that is avoided for its delay reports nothing new.
 *
 * Words are independent; of two processes that write at once one observation
 * can be lost.  Times are in ms of a clock that all processes share; 0 is
 * never.
 */


#include "core/base/kvr_core.h"


#define KVR_PREFILL_RATE    16   /* of a rate: one byte per ms */
#define KVR_PREFILL_WINDOW  30000  /* ms */
#define KVR_PREFILL_MINUTE  16   /* log2 of its ms, about */
#define KVR_PREFILL_REST    60   /* minutes */


typedef struct {
    _Atomic uint32_t   rate;         /* of prefill, 0: unknown */
    _Atomic uint32_t   samples;      /* of the rate, up to KVR_PREFILL_NEW */
    _Atomic uint32_t   largest;      /* recent prompt, bytes */
    _Atomic uint32_t   base;         /* least recent time, 1/256 ms */
    _Atomic uint64_t   delay;        /* 1/16 ms; its time in the upper bits */

    _Atomic uint64_t   moved;        /* last start or end of a prefill */
    _Atomic uint64_t   given;        /* last pick, or first decision */
    _Atomic uint64_t   remote;       /* last pick by another host */
    _Atomic uint64_t   bytes;        /* per second */
    _Atomic uint64_t   given_full;   /* passed part of a window, 1/1000000 */
} kvr_prefill_t;


typedef struct {
    double             rate;         /* of prefill, bytes/s */
    double             utilization;
} kvr_prefill_load_t;


/*
 * Notes that a peer was picked for a prompt with these bytes to prefill,
 * while "pending" bytes were pending.  Returns the bytes that are left now,
 * including the new ones.
 */
uint64_t kvr_prefill_give(kvr_prefill_t *p, uint64_t bytes, uint64_t pending,
    uint64_t now);

/*
 * Notes the first event of a prompt, ms after the pick.  left is the result of
 * kvr_prefill_give().  The rate is near the upper end of the samples, because
 * small prompts take longer than their bytes.  It falls faster while it is new.
 */
void kvr_prefill_first(kvr_prefill_t *p, uint64_t left, uint64_t ms,
    uint64_t now);

/*
 * Notes the first event of a stream, ms after the pick.  left is the result of
 * kvr_prefill_give(), held the bytes of the prompt that were predicted as
 * cached, rate that of the fastest peer (as in kvr_prefill_t).  The delay is
 * what exceeds left / rate, the least recent time and some noise, unless the
 * held bytes explain it, if they were lost.
 */
void kvr_prefill_waited(kvr_prefill_t *p, uint64_t left, uint64_t held,
    uint64_t ms, uint32_t rate, uint64_t now);

/* Returns the delay of a word by now. */
uint32_t kvr_prefill_faded(uint64_t word, uint64_t now);

/* Returns how many of the pending bytes are left to prefill. */
uint64_t kvr_prefill_left(kvr_prefill_t *p, uint64_t pending, uint64_t now);

/*
 * Tells whether a peer has more left than it prefills in half of target ms: the
 * other half is for the new prompt.  0 if the peer's rate is unknown.
 */
int kvr_prefill_full(kvr_prefill_t *p, uint64_t target, uint64_t pending,
    uint64_t now);

/* Returns the recent load. */
void kvr_prefill_load(kvr_prefill_t *p, uint64_t now, kvr_prefill_load_t *load);


/* Returns the delay, in 1/16 ms; inline, as each decision reads each peer. */
static inline uint32_t
kvr_prefill_delay(kvr_prefill_t *p, uint64_t now)
{
    uint64_t  word;

    word = kvr_get(&p->delay);

    return (uint32_t) word ? kvr_prefill_faded(word, now) : 0;
}


/* Notes a pick by another host: the peer does not rest. */
static inline void
kvr_prefill_remote(kvr_prefill_t *p, uint64_t now)
{
    kvr_set(&p->remote, now);
}


/*
 * Returns for how many whole minutes a peer was not picked, at most
 * KVR_PREFILL_REST.  A new peer rests from the first decision on.
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
