
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_capacity.h"


/* peers that tell of the others, at most */
#define KVR_CAPACITY_PEERS  64


static void kvr_capacity_learned(const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint32_t id);


void
kvr_capacity_told(const kvr_zone_t *zone, uint32_t id)
{
    double       units, bytes;
    uint32_t     active, waiting;
    uint64_t     tokens;
    kvr_peer_t  *peer;

    peer = &zone->registry->peer[id];
    tokens = kvr_get(&peer->engine.capacity);

    if (kvr_get(&peer->engine.set) & KVR_METRICS_NO_CACHE) {
        kvr_index_capacity(zone->index, id, 1, 1);
        return;
    }

    if (tokens == 0) {
        return;
    }

    /* a new peer's tokens are taken to be as long as those of the others */

    bytes = kvr_ratio_get(&peer->feedback.bytes);

    if (bytes == 0) {
        bytes = kvr_model_busiest(zone->registry->models);
    }

    if (bytes == 0) {
        bytes = kvr_feedback_bytes(&peer->feedback);
    }

    /* those that are answered: prompts are in the index, replies are not */

    active = kvr_load_get(zone->load, id).active;
    waiting = kvr_load_get(zone->load,
                           kvr_registry_resident(zone->registry, id)).active;

    units = kvr_feedback_usable(&peer->feedback, tokens,
                                active - kvr_min(waiting, active))
            * bytes / (double) zone->unit;

    units = kvr_min(units, KVR_INDEX_CAPACITY_MAX);

    kvr_index_capacity(zone->index, id, (uint64_t) units, 1);
}


void
kvr_capacity_update(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id)
{
    if (kvr_get(&kvr_index_peer(zone->index, id)->reported)) {
        kvr_capacity_told(zone, id);

    } else {
        kvr_capacity_learned(zone, pool, id);
    }
}


static void
kvr_capacity_learned(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id)
{
    uint32_t         n, other;
    uint64_t         units, learned;
    kvr_set_t        set;
    kvr_peer_t      *peer;
    kvr_retention_t  sum;

    peer = zone->registry->peer;

    sum = peer[id].feedback.retention;
    set = pool->set;

    for (n = 1; n < KVR_CAPACITY_PEERS && kvr_set_next(&set, &other); n++) {
        if (other != id) {
            kvr_retention_add(&sum, &peer[other].feedback.retention);
        }
    }

    units = pool->capacity / zone->unit;
    learned = kvr_feedback_retention(&peer[id].feedback, &sum);

    kvr_index_capacity(zone->index, id,
                       learned ? kvr_min(learned, units) : units, 0);
}
