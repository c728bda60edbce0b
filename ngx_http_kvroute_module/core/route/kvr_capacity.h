
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CAPACITY_H_INCLUDED_
#define _KVR_CAPACITY_H_INCLUDED_


/*
 * The capacity that the index assumes for a peer's cache.  Only
 * kvr_capacity_update() sets it.  The first known one of these counts:
 *
 *     set           by the API, until it is taken back
 *     configured    "capacity=" with "!"
 *     events        the age of the blocks that the engine removes
 *     reported      by the engine's metrics within the last KVR_ENGINE_HOLD
 *                   intervals; with events too, the smaller one
 *     learned       from deliveries and misses
 *     assumed       "capacity="
 *
 * This is GPU memory.  With lower tiers (host memory or disk, kvr_tier.h) the
 * capacity is that of the largest tier: as configured ("capacity=64m+256m"), or
 * learned if KV events name such tiers, or replies deliver much older blocks
 * than the engine reports.  Replies raise and lower the configured one, too:
 * the clock counts each load of a block, so the age at which blocks leave is
 * no size.
 *
 * A report can be wrong.  So it counts for at most four times what responses
 * prove, and at most twice what the peer was sent since it was last empty, or
 * the assumed capacity if that is more.
 *
 * If an engine publishes KV events, the peer's clock follows what enters the
 * cache.
 */


#include "core/state/kvr_zone.h"


/* bounds of a report: multiples of the bytes sent, and of those proved */
#define KVR_CAPACITY_SENT    2
#define KVR_CAPACITY_PROVED  4


/* Tells whether the engine reports what it stores, and confirms inserts. */
int kvr_capacity_heard(const kvr_zone_t *zone, uint32_t peer);

/* Updates the capacity; peers of the pool are assumed to be alike. */
void kvr_capacity_update(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);

/* Sets the capacity in units; 0 takes it back. */
void kvr_capacity_set(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t units, uint64_t now);

/* Sets the sizes of the lower tiers in units; 0: none, or unknown. */
void kvr_capacity_told(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t host, uint64_t disk, uint64_t now);

/* Sets whether "capacity=" overrides all reports. */
void kvr_capacity_configured(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, unsigned fixed, uint64_t now);

/*
 * Forgets what a peer no longer reports.  One process calls it now and then;
 * now is in ms, seconds are those of kvr_feedback_take().
 */
void kvr_capacity_fade(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now, uint32_t seconds);

/*
 * Counts a prompt that is sent to a peer, which has the first held units, for
 * estimates of what other capacities would bring.  Called before its insert.
 */
void kvr_capacity_whatif(const kvr_zone_t *zone, kvr_whatif_t *w,
    uint32_t peer, const uint64_t *chain, uint32_t entries, uint32_t units,
    uint32_t held, uint64_t now);

/* Returns the name of a source, as in the status. */
const char *kvr_capacity_source(kvr_index_source_e source);

/* Returns the units that requests in flight will still store. */
uint64_t kvr_capacity_expected(const kvr_zone_t *zone, uint32_t peer);

/*
 * Tells whether a restart or a reset of this peer's cache would be reported:
 * events are used, and none was missed in the last minute.
 */
int kvr_capacity_complete(const kvr_zone_t *zone, uint32_t peer, uint64_t now);


#endif /* _KVR_CAPACITY_H_INCLUDED_ */
