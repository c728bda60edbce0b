
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DRAIN_H_INCLUDED_
#define _KVR_DRAIN_H_INCLUDED_


/*
 * A peer that is being drained: since when and until when, and what still goes
 * there.
 *
 * Sessions are counted by their keys, in a map of bits for each minute: a key
 * has one bit, and the count is how many keys it takes in the mean to set so
 * many bits.  It is good to a few for up to 50, and says no more than 214.
 * A map has the number of its minute with it, in one word, so nothing has to be
 * cleared, and who is killed leaves nothing behind.
 *
 * Times are in milliseconds of a clock that all processes share.
 */


#include "core/base/kvr_core.h"


/* ms; who has had nothing for so long is taken to have no session left */
#define KVR_DRAIN_IDLE  60000


typedef struct {
    _Atomic uint32_t   on;
    _Atomic uint32_t   reported;     /* somebody was told that it is empty */
    _Atomic uint64_t   since;
    _Atomic uint64_t   until;        /* sessions may go there; 0: no end */
    _Atomic uint64_t   last;         /* a request was given to it; 0: none */
    _Atomic uint64_t   requests;     /* given to it since */
    _Atomic uint64_t   seen[2];      /* sessions of two minutes */
} kvr_drain_t;


typedef enum {
    KVR_DRAIN_NO = 0,
    KVR_DRAIN_ON,
    KVR_DRAIN_EMPTY                  /* nothing runs there, or will */
} kvr_drain_e;


/* begins, or sets another end: timeout in ms from now on, 0: no end */
void kvr_drain_begin(kvr_drain_t *d, uint64_t timeout, uint64_t now);

/* drained as another is, or used as that one; what was counted stays */
void kvr_drain_copy(kvr_drain_t *d, const kvr_drain_t *as);

/* the peer is used again; returns whether it was drained */
int kvr_drain_end(kvr_drain_t *d);

/* a request is given to the peer */
void kvr_drain_given(kvr_drain_t *d, uint64_t now);

/* that request is of this session */
void kvr_drain_session(kvr_drain_t *d, uint64_t key, uint64_t now);

/* about how many sessions have had a request there in this or the last minute */
uint32_t kvr_drain_sessions(const kvr_drain_t *d, uint64_t now);

/* ms until it is over; 0: it is, or there is no end */
uint64_t kvr_drain_left(const kvr_drain_t *d, uint64_t now);

/* active: requests in flight at the peer */
kvr_drain_e kvr_drain_state(const kvr_drain_t *d, uint32_t active,
    uint64_t now);

/* whether it is empty, and nobody was told so: who asks is told */
int kvr_drain_report(kvr_drain_t *d, uint32_t active, uint64_t now);


static inline int
kvr_drain_on(const kvr_drain_t *d)
{
    return kvr_get(&d->on) != 0;
}


/* whether nothing at all is to go there any more, if it can go elsewhere */
static inline int
kvr_drain_over(const kvr_drain_t *d, uint64_t now)
{
    uint64_t  until;

    until = kvr_get(&d->until);

    return kvr_drain_on(d) && until && now >= until;
}


#endif /* _KVR_DRAIN_H_INCLUDED_ */
