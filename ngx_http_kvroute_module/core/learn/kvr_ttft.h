
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TTFT_H_INCLUDED_
#define _KVR_TTFT_H_INCLUDED_


/*
 * What the time to a first token tells of a peer's cache, where its responses
 * tell nothing: a long prompt that comes at once was there, one that takes as
 * long as computing it was not.
 *
 *     T(held) = base + pace * fresh,  T(lost) = T(held) + pace * inserted
 *
 * base is the least time of a first token, pace the ms that a byte takes: the
 * median of the last few prompts that were mostly new to the peer.  The pace is
 * known if nearly all of them are near it: so an engine with an uneven pace, or
 * one that begins to stream before it computes, tells nothing.  While a peer
 * has had too few of them, the upstream's are taken.
 *
 * Only a peer that had nothing else to prefill is timed, and only a prompt of
 * which T(lost) is several times T(held).  Below the geometric middle of the
 * two it was held.  It was lost, or a good part of it, if it took twice T(held)
 * at least, without what others that came later may have cost, and not much
 * longer than T(lost): that had other reasons.
 *
 * Blocks that only a reply has put into the index prove nothing, whether or not
 * the peer holds them: the engine may not keep replies, or its template may
 * write them otherwise.
 *
 * In shared memory, words that stand for themselves.  Times are in ms.
 */


#include "core/base/kvr_core.h"


#define KVR_TTFT_SEEN     16     /* prompts that the pace is taken from */
#define KVR_TTFT_LEAST    4      /* of these: less say nothing */


/* prompts that were mostly new: ms, less the base, << 32 | bytes */
typedef struct {
    _Atomic uint32_t   hand;
    _Atomic uint64_t   seen[KVR_TTFT_SEEN];
} kvr_ttft_prefill_t;


typedef struct {
    _Atomic uint32_t    base;        /* x 256; 0: not known yet */
    _Atomic uint64_t    given;       /* bytes to compute, ever, as predicted */
    kvr_ttft_prefill_t  prefill;
} kvr_ttft_t;


/* a first token */
typedef struct {
    uint64_t           bytes;        /* of the prompt */
    uint64_t           inserted;     /* of these, by kvr_index_inserted() */
    uint64_t           reply;        /* of these, by none but a reply */
    uint64_t           ms;           /* since it was given */
    uint64_t           given;        /* what kvr_ttft_give() returned */
} kvr_ttft_first_t;


/* what kvr_ttft_first() has found out */
#define KVR_TTFT_NOTHING    0
#define KVR_TTFT_HELD       1
#define KVR_TTFT_LOST       2


/* forgets all: the peer, or the upstream, is another */
void kvr_ttft_reset(kvr_ttft_t *t);
void kvr_ttft_prefill_reset(kvr_ttft_prefill_t *p);

/*
 * Tells that the peer is given a request, whatever it is, with so many bytes to
 * compute.  busy: others have had no answer of it yet.  Returns what
 * kvr_ttft_first() wants to know; 0: this one is not to be timed.
 */
uint64_t kvr_ttft_give(kvr_ttft_t *t, uint64_t bytes, int busy);

/*
 * Tells the time of a first token of a stream.  all: the pace of all peers that
 * are likely to be of its kind, or NULL.  Returns KVR_TTFT_...
 */
int kvr_ttft_first(kvr_ttft_t *t, kvr_ttft_prefill_t *all,
    const kvr_ttft_first_t *f);

/* ms a byte, 0 if it is not known */
double kvr_ttft_prefill(const kvr_ttft_prefill_t *p);


#endif /* _KVR_TTFT_H_INCLUDED_ */
