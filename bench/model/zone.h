/*
 * The shared memory of a simulated router: what a zone of nginx has, with one
 * upstream in it, whose servers are the replicas in their order.
 */

#ifndef KVS_ZONE_H
#define KVS_ZONE_H


#include "core/route/kvr_route.h"

#include "bench/model/kvs.h"
#include "replica.h"


typedef struct {
    kvr_zone_t   core;           /* row: of the first of the routers */
    kvr_pool_t   pool;
    kvr_registry_t  registry;    /* core's */
    kvr_registry_shared_t  *shared;
    uint32_t     rows;           /* routers that share it */
    uint32_t     n;
    uint32_t     member[KVS_REPLICAS];
} kvs_zone_t;


/* zeroed and aligned, to be freed by free() */
void *kvs_zone_alloc(size_t size);

/* capacity: units that a replica is taken to hold, unless it is known better */
void kvs_zone_create(kvs_zone_t *z, uint32_t rows, uint32_t n,
    uint64_t capacity);

/* the same; index: its bytes, for each 64 replicas */
void kvs_zone_create_of(kvs_zone_t *z, uint32_t rows, uint32_t n,
    uint64_t capacity, size_t index);
void kvs_zone_destroy(kvs_zone_t *z);

/* a replica was asked how it is; capacity: tokens, 0: it does not tell */
void kvs_zone_probed(kvs_zone_t *z, uint32_t replica, const kve_stats_t *st,
    uint64_t capacity, double now);


/* ms of the clock that the zone's users share; now: s of the simulation */
static inline uint64_t
kvs_zone_ms(double now)
{
    return 100000 + (uint64_t) (now * 1000);
}


#endif
