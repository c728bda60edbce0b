
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CAPACITY_H_INCLUDED_
#define _KVR_CAPACITY_H_INCLUDED_


/*
 * What the index takes the cache of a peer to hold: the engine's word, or what
 * was learned from what it delivered, and no more than it is said to.
 */


#include "core/state/kvr_zone.h"


/* by the engine's word, in tokens, if there is one: else nothing is changed */
void kvr_capacity_told(const kvr_zone_t *zone, uint32_t peer);

/*
 * By the engine's word if there is one, else by what was seen of this peer and
 * of the others of its upstream.
 */
void kvr_capacity_update(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer);


#endif /* _KVR_CAPACITY_H_INCLUDED_ */
