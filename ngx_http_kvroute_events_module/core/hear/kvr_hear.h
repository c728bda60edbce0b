
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HEAR_H_INCLUDED_
#define _KVR_HEAR_H_INCLUDED_


/*
 * What KV events change in a zone: the clock and the floor of a peer, what its
 * cache is taken to hold, and which of its blocks are there.
 */


#include "core/alias/kvr_attribute.h"
#include "core/route/kvr_route.h"


/* how the events of a peer are */
typedef enum {
    KVR_HEAR_OFF = 0,            /* no publisher was ever connected to */
    KVR_HEAR_STALE,              /* none is any more, or a rank is missing */
    KVR_HEAR_SILENT,             /* they tell nothing that the index can use */
    KVR_HEAR_FRESH,              /* the index goes by them */
    KVR_HEAR_STATES
} kvr_hear_e;


/* one process at a time calls these for a peer */

/*
 * Takes an event of a peer's source.  Returns 1 if the peer's cache was
 * emptied by it.
 */
int kvr_hear_event(const kvr_heard_t *h, uint32_t peer, unsigned source,
    const kvr_kvevent_t *event, uint64_t now);

/* the engine is another process: it holds nothing */
void kvr_hear_another(const kvr_heard_t *h, uint32_t peer, uint64_t now);


/* the peer's events have stopped: inserts alone move its clock */
void kvr_hear_stopped(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);

/* how they are; age: ms without a sign of life, of the quietest source */
kvr_hear_e kvr_hear_state(const kvr_heard_t *h, uint32_t peer, uint64_t now,
    uint64_t *age);


/*
 * _hooks: with a kvr_heard_t as data; rows of kvr_events_t, some of which need
 * that blocks are told apart
 */
#define KVR_HEAR_ALIASED  KVR_COUNTER_OWN

extern const kvr_hooks_t  kvr_hear_hooks;


#endif /* _KVR_HEAR_H_INCLUDED_ */
