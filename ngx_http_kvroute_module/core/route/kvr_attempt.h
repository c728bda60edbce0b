
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ATTEMPT_H_INCLUDED_
#define _KVR_ATTEMPT_H_INCLUDED_


/*
 * One request at one peer, from the pick to the end of the response:
 *
 *     begin     counts the request at the picked peer
 *     insert    makes the peer a holder of the prompt in the index
 *     first     the first event of the response ends the prefill
 *     judge     tells the outlier detection how the response ended
 *     release   takes the request out of the counters
 *     settle    compares what was predicted with what was delivered
 *     end       tells whether the insert must be undone
 *
 * The index is updated at the pick, because siblings of a burst arrive before
 * the first response.  Without a good response the update is undone.
 *
 * The prompt's chain is not kept between these calls: thousands of streams
 * stay open for minutes.  first(), settle() and end() return bits that ask for
 * the chain.  The caller computes it again and calls reinsert(), undo() or
 * report(), after release(): this takes time, and a worker killed meanwhile
 * must not leave the request counted.
 *
 * Ownership.  An attempt belongs to the process that began it.  The first
 * release() returns 1; its caller then calls settle() and end().
 *
 * Times are in milliseconds of a clock that all processes share.
 */


#include "core/route/kvr_candidate.h"
#include "core/route/kvr_eject.h"
#include "core/route/kvr_reservation.h"
#include "core/response/kvr_reply.h"
#include "core/response/kvr_response.h"


/* bits that first(), settle() and end() return, beside KVR_EJECT_... */
#define KVR_ATTEMPT_UNDO      1    /* call undo(): the insert was wrong */
#define KVR_ATTEMPT_REINSERT  2    /* call reinsert(): it was computed again */
#define KVR_ATTEMPT_FORGOT    4    /* the peer has lost its cache */
#define KVR_ATTEMPT_REPORT    8    /* call report(): an extension wants it */

/* a burst is large if more requests wait at the peer */
#define KVR_ATTEMPT_BURST     8


typedef struct {
    kvr_reservation_t    reservation;
    kvr_eject_t          eject;

    uint64_t             start;      /* ms */
    uint64_t             ahead;      /* bytes to prefill then, with its own */
    uint64_t             others;     /* bytes to prefill, of other requests */
    uint64_t             timed;      /* of kvr_ttft_give() */
    uint32_t             waiting;    /* requests there that wait for their first
                                        token, with this one */

    /* set by insert() */

    uint64_t             bytes;      /* of the prompt */
    uint64_t             best;       /* the most that any peer has of it */
    uint64_t             matched;    /* bytes that were predicted as cached */
    uint64_t             predicted;  /* key of the deepest of these, or 0 */
    uint64_t             clock;      /* the peer's, before the insert */
    uint32_t             entries;
    uint32_t             units;
    uint32_t             inserted;   /* units inserted there earlier */
    uint32_t             prompted;   /* of these, not by a reply only */
    uint32_t             age;        /* units, of the deepest of these */
    uint32_t             rate;       /* of the fastest peer, kvr_prefill.h */
    uint32_t             more;       /* units computed beyond the insert's */
    uint32_t             ttft;       /* ms, if it has started */
    kvr_tier_split_t     loaded;     /* what the pick counted on, by tier */
    kvr_index_undo_t     undo;

    unsigned             started:1;  /* the first event has come */
    unsigned             speculative:1;  /* predicted by an insert that may not
                                            be computed yet, or by a mask */
    unsigned             sampled:1;  /* for kvr_whatif.h */
} kvr_attempt_t;


/* a request and the peer that was picked for it */
typedef struct {
    uint32_t             peer;       /* KVR_REGISTRY_NONE: has no slot */
    uint32_t             member;
    uint64_t             bytes;      /* of the prompt */
    uint64_t             matched;    /* bytes of it that the peer has cached */
    uint64_t             best;       /* bytes, the most that any peer holds */
    uint64_t             pending;    /* bytes to prefill */
    uint64_t             resident;   /* bytes of context, with the reply */
    uint32_t             rate;       /* of the fastest peer, kvr_prefill.h */
    const kvr_pool_t    *pool;       /* NULL: peers are never ejected */
    kvr_trial_arm_e      arm;        /* of a trial, */
    uint32_t             doubted;    /* of this member */
    unsigned             no_prefill:1;  /* it has no prompt */
    unsigned             stream:1;   /* it asks for a stream, and its whole
                                        prompt is in bytes */
} kvr_begin_t;


/* a prompt that the peer is about to compute */
typedef struct {
    const uint64_t      *chain;
    uint32_t             entries;
    uint32_t             units;
    uint32_t             held;       /* leading units that the peer has */
    unsigned             skips:1;    /* the engine ignores its cache */
} kvr_insert_t;


/* a first event */
typedef struct {
    unsigned             ok:1;       /* of a 2xx response */
    unsigned             stream:1;
    unsigned             plain:1;    /* the whole prompt was read, and no
                                        adapter is loaded: TTFT depends on
                                        the cache alone */

    kvr_hot_keys_t      *hot;        /* prefixes to be counted, or NULL */
} kvr_first_t;


/* the end of a response that has started */
typedef struct {
    kvr_tokens_t         tokens;
    uint32_t             kind;       /* of path and mode, 0 .. 31 */
    uint32_t             seconds;    /* of a clock that all share */
    unsigned             unsized:1;  /* bytes say nothing about tokens */
    unsigned             sampled:1;  /* see kvr_prompt_t */
} kvr_settle_t;


/*
 * Returns the bytes of context of a prompt with a reply of at most this many
 * tokens, at four bytes a token.  output is 0 if the limit is unknown.
 */
uint64_t kvr_attempt_resident(uint64_t bytes, uint32_t output);

/*
 * Begins an attempt.  reserved is the request's reservation, or NULL.  It is
 * taken over if it counts the same; otherwise it is released after the new one
 * is counted, so that no process sees room in between.
 */
void kvr_attempt_begin(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_begin_t *b, kvr_reservation_t *reserved, uint64_t now);

/* inserts the prompt */
void kvr_attempt_insert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_insert_t *in);

/* Returns KVR_ATTEMPT_REINSERT, KVR_EJECT_... or 0. */
unsigned kvr_attempt_first(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_first_t *f, uint64_t now);

/*
 * Counts a request that has begun as one that has these prefixes, if it is one
 * of a large burst: many wait at its peer, and as many bytes were pending there
 * as it has matched, so these are not computed yet.  Then more peers compute the
 * prefix of the burst.
 */
static inline void
kvr_attempt_burst(const kvr_attempt_t *a, const kvr_zone_t *zone,
    kvr_hot_keys_t *keys)
{
    if (a->waiting > KVR_ATTEMPT_BURST && a->others >= a->matched) {
        kvr_candidate_count(zone, keys, a->reservation.peer, a->start);
    }
}

/* Notes that more of the response has arrived. */
static inline void
kvr_attempt_heard(kvr_attempt_t *a, const kvr_zone_t *zone)
{
    if (a->reservation.member != KVR_REGISTRY_NONE) {
        kvr_outlier_heard(&zone->registry->member[a->reservation.member]
                           .outlier);
    }
}


/*
 * Ends the attempt for the outlier detection.  reason: the engine's fault, or
 * KVR_OUTLIER_NONE.  Returns KVR_EJECT_EJECTED or 0.  After release() it does
 * nothing.
 */
unsigned kvr_attempt_judge(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, uint64_t now);

/* Takes the request out of the counters.  Returns 0 if that was done before. */
int kvr_attempt_release(kvr_attempt_t *a, const kvr_zone_t *zone);

/* Compares prediction and delivery, if the response has token counts. */
unsigned kvr_attempt_settle(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_settle_t *s, uint64_t now);

/* Returns KVR_ATTEMPT_UNDO or 0. */
unsigned kvr_attempt_end(const kvr_attempt_t *a);

/* Calls extensions; session: the engine's name for the request, or 0. */
void kvr_attempt_report(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain, const kvr_tokens_t *tokens, uint64_t session,
    uint64_t now);

/* Inserts again the blocks that the engine had lost and has computed. */
void kvr_attempt_reinsert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain);

/* Inserts a reply, which the engine now has cached behind the prompt. */
void kvr_attempt_extend(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_reply_t *reply);

/* Removes the stamps that this attempt's insert has left. */
void kvr_attempt_undo(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain);


#endif /* _KVR_ATTEMPT_H_INCLUDED_ */
