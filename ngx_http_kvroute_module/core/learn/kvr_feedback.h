
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_FEEDBACK_H_INCLUDED_
#define _KVR_FEEDBACK_H_INCLUDED_


/*
 * Compares what was predicted of a peer's cache with what its responses report.
 * In shared memory, one for each peer.
 *
 * A peer has lost its cache (by a restart or a reset) if it has delivered hits
 * before and then, for three distinct prefixes in a row, less than half of what
 * was predicted.  One prefix alone proves nothing, and after a restart only the
 * first of several requests with a common prefix misses.
 *
 * Misses prove nothing if probes would detect a restart: then the engine has
 * more work than its cache can hold, or an operator has emptied the cache.
 * Both are corrected prompt by prompt.
 *
 * Siblings of a burst arrive before the first one's answer: what was predicted
 * for them may not be computed yet, so their misses prove nothing.
 *
 * A hybrid model resumes at few places, so its misses prove nothing
 * (kvr_resume.h).
 *
 * Predictions are not scaled by their success: a peer with lower predictions
 * would be sent less, and then deliver less.  Only the capacity is corrected:
 * a reported one slowly and within bounds.  An assumed one is learned from the
 * ages of what was delivered and what was lost (kvr_retention.h).
 */


#include "core/base/kvr_core.h"
#include "core/learn/kvr_retention.h"
#include "core/learn/kvr_ratio.h"


#define KVR_FEEDBACK_CHAINS  3   /* misses in a row that prove a loss */
#define KVR_FEEDBACK_PAUSE   60  /* s, from one such loss to the next */
#define KVR_FEEDBACK_BLOCKS  4   /* a smaller difference is no miss */
#define KVR_FEEDBACK_ONE     1024  /* 1, as a fixed-point number */
#define KVR_FEEDBACK_OUTPUT  16  /* likewise */


typedef struct {
    _Atomic uint64_t   responses;    /* with a count of cached tokens */
    _Atomic uint64_t   prompt;       /* tokens of these */
    _Atomic uint64_t   predicted;
    _Atomic uint64_t   delivered;
    _Atomic uint64_t   completion;
    _Atomic uint64_t   missed;       /* responses below half of that */

    _Atomic uint64_t   timed_held;   /* judged by the time to first token */
    _Atomic uint64_t   timed_lost;

    _Atomic uint64_t   by_usage;     /* losses of the cache, by evidence */
    _Atomic uint64_t   by_probe;
    _Atomic uint64_t   by_event;

    _Atomic uint64_t   clock;        /* the peer's, before the first miss */
    _Atomic uint64_t   key[KVR_FEEDBACK_CHAINS];
    _Atomic uint32_t   misses;       /* in a row */
    _Atomic uint32_t   hits;         /* 1: it has delivered some */
    _Atomic uint32_t   reports;      /* kinds of responses with the field,
                                        1 << kind each */
    _Atomic uint32_t   flushed;      /* s */

    kvr_ratio_t        bytes;        /* of prompt per token */
    _Atomic uint32_t   output;       /* tokens of a reply, running mean, in
                                        1/KVR_FEEDBACK_OUTPUT; 0: unknown */
    _Atomic uint32_t   factor;       /* of the capacity, in
                                        1/KVR_FEEDBACK_ONE; 0: 1 */
    _Atomic uint32_t   counted;      /* s, of the last response with counts;
                                        0: none */

    kvr_retention_t    retention;
} kvr_feedback_t;


/* one response */
typedef struct {
    uint64_t           bytes;        /* of the prompt */
    uint64_t           matched;      /* bytes that were predicted */
    int64_t            prompt;       /* tokens */
    int64_t            cached;       /* tokens; -1: no such field */
    int64_t            completion;
    uint64_t           key;          /* of what was predicted, or 0 */
    uint64_t           clock;        /* the peer's, before the insert */
    uint64_t           inserted;     /* bytes, by kvr_index_prompted() */
    uint32_t           age;          /* of the deepest of these, units */
    uint32_t           kind;         /* of path and mode, 0 .. 31 */
    uint32_t           block;        /* bytes */
    uint32_t           capacity;     /* units, as reported; 0: unknown */
    uint32_t           speculative;  /* predicted by an unanswered insert */
    uint32_t           unsized;      /* bytes say nothing about tokens */
    uint32_t           sampled;      /* cached is not of this cache alone */
    uint32_t           alive;        /* a restart would be reported */
    uint64_t           step;         /* bytes between places at which the model
                                        resumes; 0: at any block */
} kvr_feedback_response_t;


/* results of kvr_feedback_take() */
#define KVR_FEEDBACK_MISSED  1   /* less than half of what was predicted */
#define KVR_FEEDBACK_FORGOT  2   /* all that it held at *clock is lost */
#define KVR_FEEDBACK_SHORT   4   /* less than predicted, at least half */
#define KVR_FEEDBACK_MORE    8   /* twice what was predicted, or more */


/*
 * Tells whether the blocks of a prompt are so old that the engine may have
 * evicted them.
 */
int kvr_feedback_old(const kvr_feedback_t *l, const kvr_feedback_response_t *r);

/* Takes a response; now in seconds; returns KVR_FEEDBACK_... bits. */
int kvr_feedback_take(kvr_feedback_t *l, const kvr_feedback_response_t *r,
    uint32_t now, uint64_t *clock);

/*
 * Takes the verdict of a first token's time on what was inserted, of this age
 * in units.  It counts only while the peer's responses do not report cached
 * tokens; returns whether it did.
 */
int kvr_feedback_timed(kvr_feedback_t *l, uint32_t age, int held);

/* Forgets what a restart makes void. */
void kvr_feedback_restart(kvr_feedback_t *l);

/* Forgets the size of tokens after ten minutes without a response. */
void kvr_feedback_fade(kvr_feedback_t *l, uint32_t now);

/* Return bytes per token, 4 if unknown; and the factor of the capacity. */
double kvr_feedback_bytes(const kvr_feedback_t *l);
double kvr_feedback_factor(const kvr_feedback_t *l);

/*
 * Returns how many tokens of the reported capacity are usable as cache while so
 * many replies are written.  Blocks of a reply are no cache before its end.  A
 * reply can be at any point, so each takes half of the mean length, together at
 * most half of all tokens.  The factor adds a quarter at most.
 */
double kvr_feedback_usable(const kvr_feedback_t *l, uint64_t tokens,
    uint32_t replies);

#endif /* _KVR_FEEDBACK_H_INCLUDED_ */
