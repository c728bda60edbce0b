
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CAPACITY_H_INCLUDED_
#define _KVR_CAPACITY_H_INCLUDED_


/*
 * What the index takes the cache of a peer to hold: the engine's word, or what
 * was learned from what it delivered, and no more than it is said to.  Where an
 * engine tells by KV events what it stores and removes, the clock of the peer
 * follows what entered, and how old blocks get is what the cache holds.
 */


#include "core/state/kvr_zone.h"


/* whether the engine tells what it stores, and nothing speaks against it */
int kvr_capacity_heard(const kvr_zone_t *zone, uint32_t peer);

/*
 * By the engine's word, in tokens, and by its events, if there is either; else
 * nothing is changed, and KVR_DECLINED returned.
 */
int kvr_capacity_told(const kvr_zone_t *zone, uint32_t peer);

/*
 * By the engine's word if there is one, else by what was seen of this peer and
 * of the others of its upstream.
 */
void kvr_capacity_update(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer);


/*
 * What KV events change.  One process at a time calls these for a peer, and the
 * zone has events, but for kvr_capacity_sure().
 */

/*
 * Takes an event of a peer's source.  Returns 1 if the peer's cache was
 * emptied by it.
 */
int kvr_capacity_event(const kvr_zone_t *zone, uint32_t peer, unsigned source,
    const kvr_kvevent_t *event, uint64_t now);

/* the engine is another process: it holds nothing */
void kvr_capacity_another(const kvr_zone_t *zone, uint32_t peer, uint64_t now);

/* nobody tells of it any more: all is guessed again */
void kvr_capacity_stopped(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer);

/*
 * Whether a restart or a reset of this peer's cache would have been told: it
 * tells what it stores, and none of that was missed in the last minute.
 */
int kvr_capacity_sure(const kvr_zone_t *zone, uint32_t peer, uint64_t now);


#endif /* _KVR_CAPACITY_H_INCLUDED_ */
