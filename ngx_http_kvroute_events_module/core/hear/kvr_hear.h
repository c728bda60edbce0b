
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HEAR_H_INCLUDED_
#define _KVR_HEAR_H_INCLUDED_


/*
 * Applies KV events to a zone: to the clock and floor of a peer, its capacity,
 * and with aliases to single entries of the index.
 */


#include "core/alias/kvr_attribute.h"
#include "core/route/kvr_route.h"


/* states of a peer's events */
typedef enum {
    KVR_HEAR_OFF = 0,            /* never connected to a publisher */
    KVR_HEAR_STALE,              /* a publisher is missing */
    KVR_HEAR_SILENT,             /* nothing usable was reported */
    KVR_HEAR_FRESH,              /* the index uses the events */
    KVR_HEAR_STATES
} kvr_hear_e;


/* only one process at a time calls these for a peer */

/* Applies an event of a peer's source.  Returns 1 if it emptied the cache. */
int kvr_hear_event(const kvr_heard_t *h, uint32_t peer, unsigned source,
    const kvr_kvevent_t *event, uint64_t now);

/* The engine is a new process: its cache is empty. */
void kvr_hear_another(const kvr_heard_t *h, uint32_t peer, uint64_t now);


/* the peer's events have stopped: inserts alone move its clock */
void kvr_hear_stopped(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);

/* Returns the state.  age: ms since the oldest sign of life of all sources. */
kvr_hear_e kvr_hear_state(const kvr_heard_t *h, uint32_t peer, uint64_t now,
    uint64_t *age);


/* _hooks: data is a kvr_heard_t; counters of kvr_events_t, some with aliases */
#define KVR_HEAR_ALIASED  KVR_COUNTER_OWN

extern const kvr_hooks_t  kvr_hear_hooks;


#endif /* _KVR_HEAR_H_INCLUDED_ */
