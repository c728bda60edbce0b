
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CAPACITY_H_INCLUDED_
#define _KVR_CAPACITY_H_INCLUDED_


/*
 * What the index takes the cache of a peer to hold.  kvr_capacity_update()
 * decides it, and nothing else does.  The first of these that is known counts:
 *
 *     set           by the API, until it is taken back
 *     configured    "capacity=" with "!"
 *     events        the age of the blocks that the engine removes
 *     reported      by the engine's metrics, if in the last KVR_ENGINE_HOLD
 *                   intervals; where events tell as well, the lesser
 *     learned       from what it delivered and what it did not
 *     assumed       "capacity="
 *
 * A report may be a lie.  So it counts up to four times what the engine's own
 * responses prove, and up to twice what the peer was sent since it was last found
 * empty, or up to the assumed capacity if that is more.
 *
 * Where an engine publishes KV events, the clock of the peer follows what
 * entered the cache.
 */


#include "core/state/kvr_zone.h"


/* bounds of a report: times what was sent, times what responses prove */
#define KVR_CAPACITY_SENT    2
#define KVR_CAPACITY_PROVED  4


/* whether the engine tells what it stores, and nothing speaks against it */
int kvr_capacity_heard(const kvr_zone_t *zone, uint32_t peer);

/* decides the capacity of a peer anew; the peers of its pool are its like */
void kvr_capacity_update(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);

/* sets it, in units, until it is taken back by 0 */
void kvr_capacity_set(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t units, uint64_t now);

/* whether "capacity=", which the registry has, holds against all reports */
void kvr_capacity_configured(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, unsigned fixed, uint64_t now);

/*
 * Forgets what a peer reports no longer.  For one process to call now and then;
 * now in ms, seconds in those of kvr_feedback_take().
 */
void kvr_capacity_fade(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now, uint32_t seconds);

/* the name of a source, as in the status */
const char *kvr_capacity_source(kvr_index_source_e source);


/* units that requests in flight are still to store */
uint64_t kvr_capacity_expected(const kvr_zone_t *zone, uint32_t peer);

/*
 * Whether a restart or a reset of this peer's cache would have been told: it
 * tells what it stores, and none of that was missed in the last minute.
 */
int kvr_capacity_sure(const kvr_zone_t *zone, uint32_t peer, uint64_t now);


#endif /* _KVR_CAPACITY_H_INCLUDED_ */
