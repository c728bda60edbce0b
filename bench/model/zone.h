/*
 * The shared memory of a simulated router: like a zone of nginx with one
 * upstream, whose servers are the replicas in order.
 */

#ifndef KVS_ZONE_H
#define KVS_ZONE_H


#include "core/route/kvr_route.h"

#include "bench/model/kvs.h"
#include "replica.h"


typedef struct {
    kvr_zone_t   core;           /* row: that of the first router */
    kvr_pool_t   pool;
    kvr_registry_t  registry;    /* the registry of core */
    kvr_registry_shared_t  *shared;
    uint32_t     rows;           /* routers that share it */
    uint32_t     n;
    uint32_t     member[KVS_REPLICAS];
} kvs_zone_t;


/* allocates zeroed, aligned memory for free() */
void *kvs_zone_alloc(size_t size);

/* capacity: assumed units of a replica's cache, if nothing better is known */
void kvs_zone_create(kvs_zone_t *z, uint32_t rows, uint32_t n,
    uint64_t capacity);

/* the same, with index: its bytes per 64 replicas */
void kvs_zone_create_of(kvs_zone_t *z, uint32_t rows, uint32_t n,
    uint64_t capacity, size_t index);
void kvs_zone_destroy(kvs_zone_t *z);

/* a probe of a replica; capacity: reported tokens, 0: not reported */
void kvs_zone_probed(kvs_zone_t *z, uint32_t replica, const kve_stats_t *st,
    uint64_t capacity, double now);


/* ms of the zone's clock for the simulation's time (s) */
static inline uint64_t
kvs_zone_ms(double now)
{
    return 100000 + (uint64_t) (now * 1000);
}


#endif
