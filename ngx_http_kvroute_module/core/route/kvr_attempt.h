
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ATTEMPT_H_INCLUDED_
#define _KVR_ATTEMPT_H_INCLUDED_


/*
 * One request at one peer, from the pick to the end of the response:
 *
 *     begin     the peer is picked: the request is counted there
 *     insert    the index takes the peer to hold the prompt from now on
 *     first     the first event of the response: the prefill is over
 *     judge     how the answer ended, if the engine is to blame
 *     release   the request is counted out
 *     settle    what was predicted is held against what was delivered
 *     end       what did not come true is undone
 *
 * The index learns at the pick, since siblings of a burst come before the
 * first one's answer.  What it learned is undone if no good answer came.
 *
 * The chain of the prompt is not kept between these calls: streams stay open
 * for minutes, by the thousand.  first(), settle() and end() return bits that
 * say what they want the chain for.  The caller makes the chain again, and
 * calls reinsert(), undo() or report() with it: after release(), as it takes time, and
 * who is killed meanwhile must not leave the request counted.
 *
 * Ownership.  An attempt belongs to the process that began it.  It is released
 * once: whoever calls release() and is told 1 goes on to settle() and end().
 *
 * Times are in milliseconds of a clock that all processes share.
 */


#include "core/route/kvr_eject.h"
#include "core/route/kvr_reservation.h"
#include "core/response/kvr_reply.h"
#include "core/response/kvr_response.h"


/* what first(), settle() and end() return; KVR_EJECT_... of first(), judge() */
#define KVR_ATTEMPT_UNDO      1    /* the insert did not come true: undo() */
#define KVR_ATTEMPT_REINSERT  2    /* it was computed again: reinsert() */
#define KVR_ATTEMPT_FORGOT    4    /* the peer has lost all that it held */
#define KVR_ATTEMPT_REPORT    8    /* an extension wants it: report() */


typedef struct {
    kvr_reservation_t    reservation;
    kvr_eject_t          eject;

    uint64_t             start;      /* ms */
    uint64_t             ahead;      /* bytes to prefill then, its own too */
    uint64_t             timed;      /* of kvr_ttft_give() */

    /* of the insert */

    uint64_t             bytes;      /* of the prompt */
    uint64_t             matched;    /* bytes of it that the pick counted on */
    uint64_t             predicted;  /* key of the deepest of these, or 0 */
    uint64_t             clock;      /* the peer's, before */
    uint64_t             inflight;   /* of kvr_inflight_add() */
    uint32_t             entries;
    uint32_t             units;
    uint32_t             inserted;   /* units inserted there before */
    uint32_t             prompted;   /* of these, not by a reply only */
    uint32_t             age;        /* units, of the deepest of these */
    uint32_t             rate;       /* the fastest peer's, kvr_prefill.h */
    uint32_t             more;       /* units computed beyond the insert's */
    uint32_t             ttft;       /* ms, if it has started */
    kvr_index_undo_t     undo;

    unsigned             started:1;  /* the first event has come */
    unsigned             speculative:1;  /* predicted by an unanswered one, or
                                            by the mask of a line */
} kvr_attempt_t;


/* where a request goes, and what it brings */
typedef struct {
    uint32_t             peer;       /* KVR_REGISTRY_NONE: has no number */
    uint32_t             member;
    uint64_t             bytes;      /* of the prompt */
    uint64_t             matched;    /* bytes of it that the peer holds */
    uint64_t             pending;    /* bytes to prefill */
    uint64_t             resident;   /* bytes of context that it comes to */
    uint32_t             rate;       /* the fastest one's, kvr_prefill.h */
    const kvr_pool_t    *pool;       /* NULL: nobody is ejected */
    kvr_trial_arm_e      arm;        /* of a trial, which may be */
    uint32_t             doubted;    /*   this member's */
    unsigned             light:1;    /* computes nothing: no prefill */
} kvr_begin_t;


/* the prompt that the peer is about to compute */
typedef struct {
    const uint64_t      *chain;
    uint32_t             entries;
    uint32_t             units;
    uint32_t             held;       /* leading units that the peer holds */
    unsigned             skips:1;    /* the engine will not look in its cache */
} kvr_insert_t;


/* a first event */
typedef struct {
    unsigned             ok:1;       /* of a 2xx response */
    unsigned             stream:1;
    unsigned             plain:1;    /* all of the prompt was read, and there
                                        is no adapter to be loaded: its time
                                        tells of the cache */

    kvr_hot_keys_t      *hot;        /* beginning to be counted, or NULL */
} kvr_first_t;


/* the end of a response that has begun */
typedef struct {
    kvr_tokens_t         tokens;
    uint32_t             kind;       /* of endpoint and mode, 0 .. 31 */
    uint32_t             seconds;    /* of a clock that all share */
    unsigned             odd:1;      /* bytes tell nothing of its tokens */
    unsigned             sampled:1;  /* see kvr_prompt_t */
} kvr_settle_t;


/*
 * Bytes of context that a prompt comes to with a reply of so many tokens at
 * most, four bytes to a token; output is 0 if nobody said.
 */
uint64_t kvr_attempt_resident(uint64_t bytes, uint32_t output);

/*
 * Begins.  reserved is what the request holds already, or NULL: it is taken
 * over if it counts the same, else given back after the new one is counted, so
 * that nobody sees room in between.
 */
void kvr_attempt_begin(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_begin_t *b, kvr_reservation_t *reserved, uint64_t now);

/* inserts the prompt */
void kvr_attempt_insert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_insert_t *in);

/* returns KVR_ATTEMPT_REINSERT, KVR_EJECT_... or 0 */
unsigned kvr_attempt_first(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_first_t *f, uint64_t now);

/* more of the answer has come */
static inline void
kvr_attempt_heard(kvr_attempt_t *a, const kvr_zone_t *zone)
{
    if (a->reservation.member != KVR_REGISTRY_NONE) {
        kvr_outlier_heard(&zone->registry->member[a->reservation.member]
                           .outlier);
    }
}


/*
 * How the answer ended: what the engine is to blame for, else KVR_OUTLIER_NONE.
 * Returns KVR_EJECT_OUT or 0; does nothing after release().
 */
unsigned kvr_attempt_judge(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, uint64_t now);

/* counts the request out; returns 0 if that was done before */
int kvr_attempt_release(kvr_attempt_t *a, const kvr_zone_t *zone);

/* for a response that has begun and told of tokens; returns bits */
unsigned kvr_attempt_settle(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_settle_t *s, uint64_t now);

/* returns KVR_ATTEMPT_UNDO or 0 */
unsigned kvr_attempt_end(kvr_attempt_t *a, const kvr_zone_t *zone);

/* hands it to extensions; session: what the engine calls the request, or 0 */
void kvr_attempt_report(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain, const kvr_tokens_t *tokens, uint64_t session,
    uint64_t now);

/* what was not found there was computed again: writes it again */
void kvr_attempt_reinsert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain);

/* the engine holds what it has written: values that go on with the chain */
void kvr_attempt_extend(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_reply_t *reply);

/* takes back what still carries this attempt's stamps */
void kvr_attempt_undo(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain);


#endif /* _KVR_ATTEMPT_H_INCLUDED_ */
