
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DRAIN_H_INCLUDED_
#define _KVR_DRAIN_H_INCLUDED_


/*
 * Draining of a peer: since when, until when, and what still goes there.
 *
 * Sessions are counted by their keys, in a bit map for each minute.  A key
 * sets one bit; the count is the number of keys that set this many bits on
 * average.  It is accurate to a few up to 50, and at most 214.  A map and the
 * number of its minute are one word, so nothing has to be cleared, and a
 * killed process leaves nothing behind.
 *
 * Times are in milliseconds of a clock that all processes share.
 */


#include "core/base/kvr_core.h"


/* ms without a request after which no session is left */
#define KVR_DRAIN_IDLE  60000


typedef struct {
    _Atomic uint32_t   on;           /* 1, and streams that leave in a second
                                        after until */
    _Atomic uint32_t   reported;     /* 1: its being empty was reported */
    _Atomic uint64_t   since;
    _Atomic uint64_t   until;        /* sessions may go there; 0: no end */
    _Atomic uint64_t   last;         /* time of the last request; 0: none */
    _Atomic uint64_t   requests;     /* since the beginning */
    _Atomic uint64_t   seen[2];      /* maps of two minutes */
} kvr_drain_t;


typedef enum {
    KVR_DRAIN_NO = 0,
    KVR_DRAIN_ON,
    KVR_DRAIN_EMPTY                  /* no requests, and none expected */
} kvr_drain_e;


/* Begins draining, or sets another end: timeout in ms from now, 0: none. */
void kvr_drain_begin(kvr_drain_t *d, uint64_t timeout, uint64_t now);

/* Copies on, off and the end from another peer; counts stay. */
void kvr_drain_copy(kvr_drain_t *d, const kvr_drain_t *as);

/* Sets how many streams a second leave once the end is over. */
void kvr_drain_move(kvr_drain_t *d, uint32_t rate);

/*
 * Tells whether one of them has to leave now.  next is kept for the peer: the
 * time of the next one, in us.
 */
int kvr_drain_leaves(const kvr_drain_t *d, _Atomic uint64_t *next,
    uint64_t now);

/* Ends draining; returns whether the peer was drained. */
int kvr_drain_end(kvr_drain_t *d);

/* Notes a request to the peer. */
void kvr_drain_given(kvr_drain_t *d, uint64_t now);

/* Notes the session of that request. */
void kvr_drain_session(kvr_drain_t *d, uint64_t key, uint64_t now);

/* Estimates the sessions with a request in this or the last minute. */
uint32_t kvr_drain_sessions(const kvr_drain_t *d, uint64_t now);

/* Returns the ms until the end; 0: it is over, or there is no end. */
uint64_t kvr_drain_left(const kvr_drain_t *d, uint64_t now);

/* Returns the state; active: requests in flight at the peer. */
kvr_drain_e kvr_drain_state(const kvr_drain_t *d, uint32_t active,
    uint64_t now);

/* Returns 1 once when the peer has become empty. */
int kvr_drain_report(kvr_drain_t *d, uint32_t active, uint64_t now);


static inline int
kvr_drain_on(const kvr_drain_t *d)
{
    return kvr_get(&d->on) != 0;
}


/* Tells whether streams leave. */
static inline int
kvr_drain_moves(const kvr_drain_t *d)
{
    return kvr_get(&d->on) > 1;
}


/* Tells whether the end is over: sessions leave too. */
static inline int
kvr_drain_over(const kvr_drain_t *d, uint64_t now)
{
    uint64_t  until;

    until = kvr_get(&d->until);

    return kvr_drain_on(d) && until && now >= until;
}


#endif /* _KVR_DRAIN_H_INCLUDED_ */
