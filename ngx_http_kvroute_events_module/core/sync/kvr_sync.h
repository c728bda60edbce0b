
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SYNC_H_INCLUDED_
#define _KVR_SYNC_H_INCLUDED_


/*
 * Applies KV events to a zone: to the clock and floor of a peer, its capacity,
 * and with aliases to single entries of the index.
 */


#include "core/alias/kvr_attribute.h"
#include "core/route/kvr_route.h"


/* states of a peer's events */
typedef enum {
    KVR_SYNC_OFF = 0,            /* never connected to a publisher */
    KVR_SYNC_STALE,              /* a publisher is missing */
    KVR_SYNC_SILENT,             /* nothing usable was reported */
    KVR_SYNC_FRESH,              /* the index uses the events */
    KVR_SYNC_STATES
} kvr_sync_e;


/* only one process at a time calls these for a peer */

/* Applies an event of a peer's source.  Returns 1 if it emptied the cache. */
int kvr_sync_event(const kvr_feeds_t *h, uint32_t peer, unsigned source,
    const kvr_kvevent_t *event, uint64_t now);

/* The engine is a new process: its cache is empty. */
void kvr_sync_restart(const kvr_feeds_t *h, uint32_t peer, uint64_t now);


/* the peer's events have stopped: inserts alone move its clock */
void kvr_sync_stopped(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);

/* Returns the state.  age: ms since the oldest sign of life of all sources. */
kvr_sync_e kvr_sync_state(const kvr_feeds_t *h, uint32_t peer, uint64_t now,
    uint64_t *age);


/* _hooks: data is a kvr_feeds_t; counters of kvr_events_t, some with aliases */
#define KVR_SYNC_ALIASED  KVR_COUNTER_OWN

extern const kvr_hooks_t  kvr_sync_hooks;


#endif /* _KVR_SYNC_H_INCLUDED_ */
