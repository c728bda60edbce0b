
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TTFT_H_INCLUDED_
#define _KVR_TTFT_H_INCLUDED_


/*
 * Judges a peer's cache by the time to a first token, if its responses report
 * nothing: a long prompt that starts at once was cached, one that takes as long
 * as computing it was not.
 *
 *     T(held) = base + pace * fresh,  T(lost) = T(held) + pace * inserted
 *
 * base is the least time of a first token.  pace is the ms that a byte takes:
 * the median of the last few prompts that were mostly new to the peer.  It is
 * known if nearly all of them are near it; so nothing is concluded from an
 * engine with an uneven pace, or one that starts to stream before it computes.
 * If a peer has too few of them, those of the upstream are used.
 *
 * A prompt is judged only if the peer had nothing else to prefill, and if
 * T(lost) is several times T(held).  Below the geometric mean of the two it
 * was held.  It was lost, or a good part of it, if it took at least twice
 * T(held), without the possible cost of later requests, and not much longer
 * than T(lost): then it had other reasons.
 *
 * Blocks that only a reply has inserted prove nothing: the engine may not keep
 * replies, or its template may write them differently.
 *
 * In shared memory, in independent words.  Times are in ms.
 */


#include "core/base/kvr_core.h"


#define KVR_TTFT_SEEN     16     /* prompts that give the pace */
#define KVR_TTFT_LEAST    4      /* with fewer it is unknown */


/* prompts that were mostly new: ms without the base << 32 | bytes */
typedef struct {
    _Atomic uint32_t   hand;
    _Atomic uint64_t   seen[KVR_TTFT_SEEN];
} kvr_ttft_prefill_t;


typedef struct {
    _Atomic uint32_t    base;        /* in 1/256; 0: unknown */
    _Atomic uint64_t    given;       /* bytes to compute, ever, as predicted */
    kvr_ttft_prefill_t  prefill;
} kvr_ttft_t;


/* a first token */
typedef struct {
    uint64_t           bytes;        /* of the prompt */
    uint64_t           inserted;     /* of these, by kvr_index_inserted() */
    uint64_t           reply;        /* of these, only by a reply */
    uint64_t           ms;           /* since the pick */
    uint64_t           given;        /* result of kvr_ttft_give() */
} kvr_ttft_first_t;


/* results of kvr_ttft_first() */
#define KVR_TTFT_NOTHING    0
#define KVR_TTFT_HELD       1
#define KVR_TTFT_LOST       2


/*
 * Notes that the peer was picked for a request with these bytes to compute.
 * busy: it has other requests without a first event.  Returns the "given" of
 * kvr_ttft_first(); 0: do not judge this one.
 */
uint64_t kvr_ttft_give(kvr_ttft_t *t, uint64_t bytes, int busy);

/*
 * Judges the time of a stream's first token.  all: the pace of all peers that
 * are likely to be alike, or NULL.  Returns KVR_TTFT_...
 */
int kvr_ttft_first(kvr_ttft_t *t, kvr_ttft_prefill_t *all,
    const kvr_ttft_first_t *f);

/* Returns ms per byte, 0 if unknown. */
double kvr_ttft_prefill(const kvr_ttft_prefill_t *p);


#endif /* _KVR_TTFT_H_INCLUDED_ */
