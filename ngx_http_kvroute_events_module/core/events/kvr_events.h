
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EVENTS_H_INCLUDED_
#define _KVR_EVENTS_H_INCLUDED_


/*
 * KV events of a peer: which messages were read, how much entered its cache,
 * and at which age blocks are removed.
 *
 * Messages.  Publishers number them from 0.  A missing number is a lost
 * message, which the replay socket may still have; a lower one is repeated;
 * numbers that begin again are those of another process: the engine was
 * restarted.  A server may have several publishers (sources), one for each
 * rank of data parallelism.
 *
 * Age.  For a sample of the blocks, chosen by their hashes, the position of
 * the index's clock (kvr_index.h) at storing is kept.  When such a block is
 * removed, the clock shows its age.  Most blocks were used again after they
 * were stored, which is not reported, and are older when removed.  So the
 * youngest removed blocks show the cache's capacity: the age that a fifth of
 * them stays below, followed by small steps.  Blocks are stamped as in the
 * index, with the clock minus their depth in the prompt, because a prompt's
 * last blocks are removed first.  Blocks of unknown depth (kvr_events_place.h)
 * are left out.  Blocks are removed to make room for others reported later, so
 * the clock counts as if it had moved for these already.
 *
 * When the sample's table is three quarters full, half of the blocks are
 * dropped and no longer chosen.
 *
 * The state is in shared memory, one for each peer, written by the process
 * that owns its sources.  If that is killed, a message is read twice or not at
 * all, or a part of it is.
 */


#include "core/events/kvr_events_place.h"
#include "core/events/kvr_kvevent.h"


#define KVR_EVENTS_SOURCES  8        /* of a peer */
#define KVR_EVENTS_SAMPLES  128
#define KVR_EVENTS_ENOUGH   16       /* removed blocks until the age counts */
#define KVR_EVENTS_ONE      256      /* fraction of an age */

/* a number this far ahead is invalid, not a gap */
#define KVR_EVENTS_FAR      (1ULL << 32)


typedef struct {
    _Atomic uint64_t   next;         /* number of its next message; 0: no
                                        message yet */
    _Atomic uint64_t   time;         /* ms, of the last sign of life */
} kvr_events_source_t;


/* counters of aliases: kvr_alias.h */
typedef struct {
    _Atomic uint64_t   attributed;   /* requests */
    _Atomic uint64_t   session;      /* of these, by their session */
    _Atomic uint64_t   ambiguous;
    _Atomic uint64_t   missing;      /* no run fits */
    _Atomic uint64_t   dropped;      /* no room in the ring */
    _Atomic uint64_t   wrong;        /* blocks claimed by two prompts */
    _Atomic uint64_t   removed;      /* entries that the peer lost */
    _Atomic uint64_t   restored;
    _Atomic uint64_t   used;         /* cells */
} kvr_events_alias_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   messages;
    _Atomic uint64_t   stored;       /* blocks */
    _Atomic uint64_t   removed;
    _Atomic uint64_t   cleared;      /* times the cache was emptied */
    _Atomic uint64_t   restarts;     /* new processes */
    _Atomic uint64_t   lost;         /* messages, not in any replay */
    _Atomic uint64_t   replayed;     /* messages */
    _Atomic uint64_t   repeated;     /* messages received twice */
    _Atomic uint64_t   garbled;      /* invalid messages */
    _Atomic uint64_t   connects;
    _Atomic uint64_t   tokens;       /* that entered */
    _Atomic uint64_t   connected;    /* sources, now */
    _Atomic uint64_t   fresh;        /* 1: the index uses the events */
    _Atomic uint64_t   refused;      /* unusable answers with port=auto */

    _Atomic uint64_t   age;          /* units, x KVR_EVENTS_ONE */
    _Atomic uint64_t   ages;         /* removed blocks it is from */
    _Atomic uint64_t   doubt;        /* ms, since when events may be missing */
    _Atomic uint32_t   generation;   /* of the peer's slot */
    _Atomic uint32_t   shift;        /* one of 2^shift blocks is sampled */
    _Atomic uint32_t   used;         /* samples */
    _Atomic uint32_t   group;        /* of layers that counts; 0: not known */
    _Atomic uint32_t   block;        /* tokens of a block */
    _Atomic uint64_t   making;       /* blocks removed before others are stored
                                        in their place */

    kvr_events_alias_t   alias;
    kvr_events_source_t  source[KVR_EVENTS_SOURCES];
    kvr_events_places_t  places;
    _Atomic uint64_t   sample[KVR_EVENTS_SAMPLES];
} kvr_events_t;


/* the order of a source's messages, kept by its reader */
typedef struct {
    uint64_t           replayed;     /* lower numbers were replayed */
    uint64_t           empty;        /* lower numbers had no events */
    uint64_t           back;         /* the last number out of order */
    uint32_t           run;          /* such numbers in a row */
    unsigned           any:1;        /* a message came by this connection */
} kvr_events_order_t;


/* meanings of a message's number */
typedef enum {
    KVR_EVENTS_NEXT = 0,             /* the next message */
    KVR_EVENTS_REPEATED,             /* received before, or invalid: skip it */
    KVR_EVENTS_GAP,                  /* messages from next are missing */
    KVR_EVENTS_RESTARTED             /* the publisher is a new process */
} kvr_events_order_e;


/* Resets the state for a new peer. */
void kvr_events_reset(kvr_events_t *e);

/* Forgets all blocks: the cache was emptied, or belongs to a new process. */
void kvr_events_flush(kvr_events_t *e);

/*
 * Classifies the number of a message.  GAP and RESTARTED change nothing: the
 * caller requests a replay, or calls kvr_events_continue().
 */
kvr_events_order_e kvr_events_order(const kvr_events_source_t *s,
    kvr_events_order_t *o, uint64_t seq);

/*
 * Continues with the message of this number.  Returns the number of messages
 * lost, 0 after a restart.
 */
uint64_t kvr_events_continue(kvr_events_t *e, kvr_events_source_t *s,
    uint64_t seq, uint64_t now);

/* The message of this number was read. */
void kvr_events_read(kvr_events_t *e, kvr_events_source_t *s,
    kvr_events_order_t *o, uint64_t seq, uint64_t now);

/*
 * The message of this number was read and had no events.  It may be of another
 * kind with numbers of its own, so both its number and the one after it count
 * as the next.
 */
void kvr_events_empty(kvr_events_source_t *s, kvr_events_order_t *o,
    uint64_t seq, uint64_t now);

/*
 * Returns whether an event is about the GPU's memory and the layers that
 * count.
 */
int kvr_events_counts(kvr_events_t *e, const kvr_kvevent_t *event);

/* Returns the tokens that entered the cache by an event. */
uint64_t kvr_events_tokens(const kvr_kvevent_t *event);

/*
 * Applies an event of stored or removed blocks.  clock: the peer's clock after
 * it; units: of a token.  Returns the number of tokens before the stored ones,
 * or KVR_EVENTS_NOWHERE.
 */
uint32_t kvr_events_take(kvr_events_t *e, const kvr_kvevent_t *event,
    unsigned source, uint64_t clock, double units);

/* Returns the age at which the cache removes blocks, in units; 0: not known. */
uint64_t kvr_events_age(const kvr_events_t *e);


#endif /* _KVR_EVENTS_H_INCLUDED_ */
