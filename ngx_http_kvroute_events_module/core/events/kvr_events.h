
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EVENTS_H_INCLUDED_
#define _KVR_EVENTS_H_INCLUDED_


/*
 * What KV events tell of the cache of a peer: which messages came, how much
 * entered, and how old blocks get.
 *
 * Messages.  Publishers number them from 0.  A number that is missing was lost
 * on its way, and may be had from the replay socket; one that came before is
 * there twice; one that begins again means another publisher: the engine was
 * restarted.  Behind one address there may be a publisher for each rank of data
 * parallelism, a source, each with numbers of its own.
 *
 * Age.  Where the clock of the index stood (kvr_index.h) when a block was
 * stored is kept for a sample of the blocks, chosen by their hashes.  When one
 * of them is removed, the clock tells how old this cache lets blocks get.  Most
 * blocks were used again after they were stored, which nobody tells, and are
 * removed later.  So it is the youngest of those removed that tell what the
 * cache holds: the age that a fifth of them stays below, followed by small steps.
 * Blocks are stamped as in the index, the clock less their depth in the prompt,
 * since a prompt's last blocks are removed first.  Where the depth is not known
 * (kvr_events_place.h) the blocks are left out.  Blocks go to make room for
 * others that are told of later: for these the clock is taken to have moved
 * already.
 *
 * The sample fits its table: when that is three quarters full, half of all
 * blocks are taken from then on.
 *
 * In shared memory, one for each peer, written by the one process that owns its
 * sources.  It may be killed at any point: then a message is read twice or not
 * at all, for a part of it.
 */


#include "core/events/kvr_events_place.h"
#include "core/events/kvr_kvevent.h"


#define KVR_EVENTS_SOURCES  8        /* of a peer */
#define KVR_EVENTS_SAMPLES  128
#define KVR_EVENTS_ENOUGH   16       /* removed blocks that tell an age */
#define KVR_EVENTS_ONE      256      /* fraction of an age */

/* messages that can be lost: a number so far ahead is out of turn */
#define KVR_EVENTS_FAR      (1ULL << 32)


typedef struct {
    _Atomic uint64_t   owner;        /* the process that reads it */
    _Atomic uint64_t   next;         /* number of its next message; 0: none
                                        has come yet */
    _Atomic uint64_t   time;         /* ms, of the last sign of life */
} kvr_events_source_t;


/* whose the blocks are: kvr_alias.h */
typedef struct {
    _Atomic uint64_t   attributed;   /* requests */
    _Atomic uint64_t   session;      /* of these, by what the engine told */
    _Atomic uint64_t   ambiguous;
    _Atomic uint64_t   missing;      /* nothing fits */
    _Atomic uint64_t   dropped;      /* the ring had no room for them */
    _Atomic uint64_t   wrong;        /* aliases, or requests, that were */
    _Atomic uint64_t   gone;         /* entries taken away from the peer, */
    _Atomic uint64_t   again;        /* given back */
    _Atomic uint64_t   used;         /* cells */
} kvr_events_alias_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   messages;
    _Atomic uint64_t   stored;       /* blocks */
    _Atomic uint64_t   removed;
    _Atomic uint64_t   cleared;      /* times all were */
    _Atomic uint64_t   restarts;     /* other publishers */
    _Atomic uint64_t   lost;         /* messages that nobody had any more */
    _Atomic uint64_t   replayed;     /* messages */
    _Atomic uint64_t   repeated;     /* messages that had come before */
    _Atomic uint64_t   garbled;      /* messages */
    _Atomic uint64_t   connects;
    _Atomic uint64_t   tokens;       /* that entered */
    _Atomic uint64_t   connected;    /* sources, now */
    _Atomic uint64_t   fresh;        /* 1: the index goes by them */
    _Atomic uint64_t   refused;      /* answers where they are, of no use */

    _Atomic uint64_t   age;          /* units, x KVR_EVENTS_ONE */
    _Atomic uint64_t   ages;         /* removed blocks that told it */
    _Atomic uint64_t   doubt;        /* ms, since when something is missing */
    _Atomic uint32_t   generation;   /* of the peer's number */
    _Atomic uint32_t   shift;        /* of 2^shift blocks one is sampled */
    _Atomic uint32_t   used;         /* samples */
    _Atomic uint32_t   group;        /* of layers that counts, 0: not known */
    _Atomic uint32_t   block;        /* tokens of a block */
    _Atomic uint64_t   making;       /* blocks removed, for which none have been
                                        stored yet */

    kvr_events_alias_t   alias;
    kvr_events_source_t  source[KVR_EVENTS_SOURCES];
    kvr_events_places_t  places;
    _Atomic uint64_t   sample[KVR_EVENTS_SAMPLES];
} kvr_events_t;


/* what the reader of a source knows of the order of its messages */
typedef struct {
    uint64_t           replayed;     /* those below came by replay */
    uint64_t           empty;        /* those below told of nothing */
    uint64_t           back;         /* the last that was out of turn */
    uint32_t           run;          /* such in a row */
    unsigned           any:1;        /* a message came by this connection */
} kvr_events_order_t;


/* what a message's number says */
typedef enum {
    KVR_EVENTS_NEXT = 0,             /* it is the next one */
    KVR_EVENTS_REPEATED,                /* it has come before, or is far ahead: skip
                                        it */
    KVR_EVENTS_GAP,                  /* from source->next on some are missing */
    KVR_EVENTS_RESTARTED               /* the publisher is another one */
} kvr_events_order_e;


/* nothing is known: of a new peer */
void kvr_events_reset(kvr_events_t *e);

/* another cache, or an empty one: forgets which blocks are there */
void kvr_events_flush(kvr_events_t *e);

/*
 * Judges the number of a message.  After GAP and ANOTHER nothing has changed:
 * the caller asks for a replay, or calls kvr_events_continue() and takes it.
 */
kvr_events_order_e kvr_events_order(const kvr_events_source_t *s,
    kvr_events_order_t *o, uint64_t seq);

/*
 * Goes on with the message of this number.  Returns how many are lost by that,
 * 0 if the publisher is another one.
 */
uint64_t kvr_events_continue(kvr_events_t *e, kvr_events_source_t *s, uint64_t seq,
    uint64_t now);

/* the message of this number has been read */
void kvr_events_read(kvr_events_t *e, kvr_events_source_t *s,
    kvr_events_order_t *o, uint64_t seq, uint64_t now);

/*
 * The message of this number has been read, and had no events.  It may be of
 * another kind, with numbers of its own: so both are the next one after it, the
 * one that has its number and the one that comes after that.
 */
void kvr_events_empty(kvr_events_source_t *s, kvr_events_order_t *o,
    uint64_t seq, uint64_t now);

/* whether an event is of the memory and of the layers that count */
int kvr_events_counts(kvr_events_t *e, const kvr_kvevent_t *event);

/* tokens that an event tells to have entered: for the index's clock */
uint64_t kvr_events_tokens(const kvr_kvevent_t *event);

/*
 * Takes what a source told of stored or removed blocks.  clock: where the
 * peer's clock stands after it, in units; units: of a token.  Returns how many
 * tokens come before the stored ones, or KVR_EVENTS_NOWHERE.
 */
uint32_t kvr_events_take(kvr_events_t *e, const kvr_kvevent_t *event,
    unsigned source, uint64_t clock, double units);

/* how old the cache lets blocks get, in units; 0: not known */
uint64_t kvr_events_age(const kvr_events_t *e);


#endif /* _KVR_EVENTS_H_INCLUDED_ */
