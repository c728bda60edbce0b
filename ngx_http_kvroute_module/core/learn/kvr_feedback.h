
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_FEEDBACK_H_INCLUDED_
#define _KVR_FEEDBACK_H_INCLUDED_


/*
 * What was predicted of a peer's cache against what its responses told: in
 * shared memory, one for each peer.
 *
 * A peer has forgotten all (it was restarted, or its cache was reset) if it has
 * delivered hits before and then, for three distinct prefixes in a row, less
 * than half of what was predicted.  One prefix alone proves nothing; and after
 * a restart only the first of several requests with a common beginning finds
 * nothing.
 *
 * Misses prove nothing where probes would tell a restart: then the engine runs
 * more than it can hold, or its cache was emptied by hand.  Either is put right
 * prompt by prompt.
 *
 * Siblings of a burst come before the first one's answer: what they were
 * predicted to find may not be computed yet.  So their misses prove nothing.
 *
 * Predictions are not scaled by how well they did: a peer with lower
 * predictions is sent less, and then delivers less.  Only the capacity is
 * corrected.  One that the engine told is corrected slowly and within bounds;
 * one that was only assumed is learned from the age of what was delivered and
 * of what was not (kvr_retention.h).
 */


#include "core/learn/kvr_inflight.h"
#include "core/learn/kvr_retention.h"
#include "core/learn/kvr_ratio.h"


#define KVR_FEEDBACK_CHAINS  3   /* in a row: it forgot */
#define KVR_FEEDBACK_PAUSE   60  /* s, from one such finding to the next */
#define KVR_FEEDBACK_BLOCKS  4   /* less than this is no miss */
#define KVR_FEEDBACK_ONE     1024  /* of what is kept as a fixed-point number */
#define KVR_FEEDBACK_OUTPUT  16  /* likewise */


typedef struct {
    _Atomic uint64_t   responses;    /* with a count of cached tokens */
    _Atomic uint64_t   prompt;       /* tokens of these, ever */
    _Atomic uint64_t   predicted;
    _Atomic uint64_t   delivered;
    _Atomic uint64_t   completion;
    _Atomic uint64_t   missed;       /* responses below half */

    _Atomic uint64_t   timed_held;   /* by the time of the first token */
    _Atomic uint64_t   timed_lost;

    _Atomic uint64_t   by_usage;     /* times it was found to have forgotten */
    _Atomic uint64_t   by_probe;
    _Atomic uint64_t   by_event;

    _Atomic uint64_t   clock;        /* peer's, before the first of the three */
    _Atomic uint64_t   key[KVR_FEEDBACK_CHAINS];
    _Atomic uint32_t   misses;       /* in a row */
    _Atomic uint32_t   hits;         /* it has delivered some */
    _Atomic uint32_t   reports;      /* kinds of responses with the field,
                                        1 << kind each */
    _Atomic uint32_t   flushed;      /* s */

    kvr_ratio_t        bytes;        /* of prompt a token */
    _Atomic uint32_t   output;       /* tokens of a reply, a running mean, x
                                        KVR_FEEDBACK_OUTPUT; 0: not known */
    _Atomic uint32_t   factor;       /* of capacity, likewise; 0: 1 */
    _Atomic uint32_t   counted;      /* s, when a response last told its tokens;
                                        0: none did */

    kvr_inflight_t     inflight;

    kvr_retention_t    retention;
} kvr_feedback_t;


/* one response */
typedef struct {
    uint64_t           bytes;        /* of the prompt */
    uint64_t           matched;      /* bytes that were predicted */
    int64_t            prompt;       /* tokens */
    int64_t            cached;       /* tokens; -1: no such field */
    int64_t            completion;
    uint64_t           key;          /* of what was predicted, 0: nothing */
    uint64_t           clock;        /* the peer's, before the insert */
    uint64_t           inserted;     /* bytes, by kvr_index_prompted() */
    uint32_t           age;          /* of the deepest of these, units */
    uint32_t           kind;         /* of endpoint and mode, 0 .. 31 */
    uint32_t           block;        /* bytes */
    uint32_t           capacity;     /* units, the engine's word; 0: none */
    uint32_t           speculative;  /* predicted by what had no answer yet */
    uint32_t           unsized;      /* bytes say nothing about tokens */
    uint32_t           sampled;      /* cached tells nothing of this cache */
    uint32_t           alive;        /* a restart would be told by probes */
} kvr_feedback_response_t;


/* what kvr_feedback_take() has found out */
#define KVR_FEEDBACK_MISSED  1   /* less than half of what was predicted */
#define KVR_FEEDBACK_FORGOT  2   /* all is lost that it held at *clock */
#define KVR_FEEDBACK_SHORT   4   /* less than predicted, half of it at least */


/* takes a response; now in seconds; returns KVR_FEEDBACK_... bits */
int kvr_feedback_take(kvr_feedback_t *l, const kvr_feedback_response_t *r,
    uint32_t now, uint64_t *clock);

/*
 * The time of a first token told whether the peer held what was inserted for
 * it, of this age in units.  Counts only while the peer's responses tell
 * nothing; returns whether it did.
 */
int kvr_feedback_timed(kvr_feedback_t *l, uint32_t age, int held);

/* the peer was restarted */
void kvr_feedback_restart(kvr_feedback_t *l);

/* forgets the size of tokens when no response has told it for ten minutes */
void kvr_feedback_fade(kvr_feedback_t *l, uint32_t now);

/* bytes a token, four while none was seen; the factor of its capacity */
double kvr_feedback_bytes(const kvr_feedback_t *l);
double kvr_feedback_factor(const kvr_feedback_t *l);

/*
 * How many of the tokens that the engine said it can hold are cache, while it
 * writes so many replies.  A block of a reply is no cache before the reply is
 * complete.  A reply may be at any point, so half of its mean length is taken
 * off for each, at most half of all tokens.  The factor adds a quarter at most.
 */
double kvr_feedback_usable(const kvr_feedback_t *l, uint64_t tokens,
    uint32_t replies);

#endif /* _KVR_FEEDBACK_H_INCLUDED_ */
