
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_LATE_H_INCLUDED_
#define _KVR_LATE_H_INCLUDED_


/*
 * First tokens that are late, by upstream: when a request is late, and how many
 * may be sent to a second peer.
 *
 * The P99 is learned as a factor of the time that a prompt should take at its
 * peer, or if that is unknown, of the mean time.  The factor rises by a fifth
 * for each late first token, and falls by a 512th for each other, so it rests
 * where one of a hundred is late, but not below 2.
 *
 * In shared memory, in independent words.  Times are in ms.
 */


#include "core/route/kvr_route.h"


/* second requests that may be saved up */
#define KVR_LATE_SAVED  5

/* ms of prefill beyond which a peer has no room for a second request */
#define KVR_LATE_ROOM   1000


typedef struct {
    _Atomic uint32_t  factor;    /* 1/256; 0: KVR_LATE_FACTOR */
    _Atomic uint32_t  mean;      /* 1/16 ms; 0: unknown */
    _Atomic uint32_t  credit;    /* 1/100 of a second request */
} kvr_late_t;


/*
 * Returns the learned P99 of a first token; ahead: the bytes that the peer will
 * prefill, with the request's.  0: unknown.
 */
uint64_t kvr_late_after(kvr_late_t *l, kvr_prefill_t *p, uint64_t ahead,
    uint64_t now);

/* Notes the time of a first token. */
void kvr_late_first(kvr_late_t *l, uint64_t ms);

/* Notes whether a first token was late by kvr_late_after(). */
void kvr_late_seen(kvr_late_t *l, int late);

/* Notes a request; percent: how many of all may be sent twice. */
void kvr_late_earn(kvr_late_t *l, uint32_t percent);

/* Takes a second request out of the credit; returns 0 if there is none. */
int kvr_late_spend(kvr_late_t *l);

/*
 * Tells whether at least half of the other peers can take a second request:
 * the fleet is below its knee.
 */
int kvr_late_room(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);

/* Tells whether a stream that leaves a peer has another one to go to. */
int kvr_late_other(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);


#endif /* _KVR_LATE_H_INCLUDED_ */
