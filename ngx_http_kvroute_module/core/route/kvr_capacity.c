
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_capacity.h"
#include "core/state/kvr_hooks.h"


/* most peers whose deliveries are added up */
#define KVR_CAPACITY_PEERS  64

/* deliveries of an age this part above a report disprove it */
#define KVR_CAPACITY_CLASS  4

/* a guess: the age of a tier's oldest blocks, in multiples of its size */
#define KVR_CAPACITY_TOLD   4

/* ms after a lost message during which events are not trusted */
#define KVR_CAPACITY_DOUBT  60000


static uint32_t kvr_capacity_replies(const kvr_zone_t *zone, uint32_t id);
static uint64_t kvr_capacity_age(const kvr_zone_t *zone, uint32_t id);
static uint64_t kvr_capacity_learned(const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint32_t id, uint64_t most);
static uint64_t kvr_capacity_reported(const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint32_t id, uint64_t now,
    kvr_index_source_e *source, uint64_t *most);
static void kvr_capacity_sum(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id, kvr_retention_sum_t *sum);
static int kvr_capacity_beyond(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id, uint64_t units);
static void kvr_capacity_tiers(const kvr_zone_t *zone, uint32_t id,
    uint64_t gpu, uint64_t units);
static double kvr_capacity_bound(const kvr_zone_t *zone, uint32_t id);


/*
 * Returns the capacity in units as the engine reports it, by metrics and
 * events; 0: unknown.  Sets *source to the one that was used, and *most to the
 * age that blocks in GPU memory can reach: the report itself.
 */
static uint64_t
kvr_capacity_reported(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id, uint64_t now, kvr_index_source_e *source, uint64_t *most)
{
    double       units, bytes;
    uint64_t     tokens, age;
    kvr_peer_t  *peer;

    peer = &zone->registry->peer[id];

    *source = KVR_INDEX_REPORTED;
    *most = 1;

    if (kvr_engine_uncached(&peer->engine, now, pool->probe)) {
        return 1;
    }

    tokens = kvr_engine_capacity(&peer->engine, now, pool->probe);
    age = kvr_capacity_age(zone, id);

    if (tokens == 0) {
        *source = KVR_INDEX_EVENTS;
        *most = age;
        return age;
    }

    bytes = kvr_feedback_bytes(&peer->feedback) / KVR_BLOCK;
    *most = (uint64_t) ((double) tokens * bytes);

    units = kvr_feedback_usable(&peer->feedback, tokens,
                                kvr_capacity_replies(zone, id)) * bytes;

    units = kvr_min(units, kvr_capacity_bound(zone, id));

    /* the age of removed blocks excludes what requests in flight use */

    if (age && (double) age < units) {
        *source = KVR_INDEX_EVENTS;
        return age;
    }

    return kvr_max((uint64_t) units, 1);
}


/* Returns the most units that a report counts for. */
static double
kvr_capacity_bound(const kvr_zone_t *zone, uint32_t id)
{
    double             proved, sent, bound;
    kvr_peer_t        *peer;
    kvr_index_peer_t  *p;

    peer = &zone->registry->peer[id];
    p = kvr_index_peer(zone->index, id);

    sent = (double) kvr_index_clock(zone->index, id)
           - (double) kvr_get(&p->floor);

    bound = kvr_max(KVR_CAPACITY_SENT * sent, (double) kvr_get(&peer->assumed));

    proved = kvr_retention_get(&peer->feedback.retention)
             * kvr_feedback_factor(&peer->feedback);

    if (proved > 0) {
        bound = kvr_min(bound, KVR_CAPACITY_PROVED * proved);
    }

    return bound;
}


/*
 * Returns the number of replies in progress that the peer's clock does not
 * contain: only prompts are inserted, unless the engine reports what it stores.
 */
static uint32_t
kvr_capacity_replies(const kvr_zone_t *zone, uint32_t id)
{
    uint32_t  active, waiting;

    if (kvr_capacity_heard(zone, id)) {
        return 0;
    }

    active = kvr_load_get(zone->load, id).active;
    waiting = kvr_load_get(zone->load,
                           kvr_registry_resident(zone->registry, id)).active;

    return active - kvr_min(waiting, active);
}


uint64_t
kvr_capacity_expected(const kvr_zone_t *zone, uint32_t id)
{
    return kvr_load_get(zone->load, id).pending / KVR_BLOCK;
}


int
kvr_capacity_heard(const kvr_zone_t *zone, uint32_t id)
{
    return zone->listens && kvr_index_heard(zone->index, id,
                                            kvr_capacity_expected(zone, id));
}


/*
 * Returns the age of removed blocks in units, 0: unknown.  Blocks in use are
 * not removed, however old: where requests in flight fill the cache, the age
 * describes only the small rest.
 */
static uint64_t
kvr_capacity_age(const kvr_zone_t *zone, uint32_t id)
{
    uint64_t  age, used;

    age = kvr_capacity_heard(zone, id) ? kvr_hooks_age(zone, id) : 0;

    if (age == 0) {
        return 0;
    }

    used = kvr_load_get(zone->load,
                        kvr_registry_resident(zone->registry, id)).pending;

    return kvr_max(age, used / KVR_BLOCK);
}


void
kvr_capacity_update(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id, uint64_t now)
{
    uint64_t             units, most, gpu, told, learned;
    kvr_peer_t          *peer;
    kvr_index_source_e   source;

    peer = &zone->registry->peer[id];

    source = KVR_INDEX_SET;
    most = 0;
    units = kvr_get(&peer->capacity);

    if (units == 0 && kvr_get(&peer->fixed)) {
        source = KVR_INDEX_CONFIGURED;
        units = kvr_get(&peer->assumed);
    }

    if (units == 0) {
        units = kvr_capacity_reported(zone, pool, id, now, &source, &most);
    }

    told = kvr_max(kvr_get(&peer->tier[KVR_TIER_HOST].told),
                   kvr_get(&peer->tier[KVR_TIER_DISK].told));
    told = kvr_min(told, KVR_INDEX_CAPACITY_MAX);

    if (units == 0 && told) {
        source = KVR_INDEX_CONFIGURED;
        units = kvr_get(&peer->assumed);
    }

    gpu = units;

    if (told > units) {

        source = KVR_INDEX_CONFIGURED;
        told *= KVR_CAPACITY_TOLD;

        if (kvr_capacity_beyond(zone, pool, id, told)) {
            told = KVR_INDEX_CAPACITY_MAX;
        }

        learned = kvr_capacity_learned(zone, pool, id, told);
        units = kvr_max(units, learned);

    } else if (units == 0
               || (source < KVR_INDEX_CONFIGURED
                   && (kvr_get(&peer->tier[KVR_TIER_HOST].heard)
                       || kvr_capacity_beyond(zone, pool, id,
                                              kvr_max(units, most)))))
    {
        /* events name lower tiers, or replies disprove the report */

        learned = kvr_capacity_learned(zone, pool, id, kvr_get(&peer->assumed));

        source = units || learned < kvr_get(&peer->assumed)
                 ? KVR_INDEX_LEARNED : KVR_INDEX_ASSUMED;
        units = kvr_max(units, learned);
    }

    units = kvr_min(units, KVR_INDEX_CAPACITY_MAX);

    kvr_capacity_tiers(zone, id, gpu, units);
    kvr_index_capacity(zone->index, id, units, source);
}


/* Sets the ages at which blocks leave each tier. */
static void
kvr_capacity_tiers(const kvr_zone_t *zone, uint32_t id, uint64_t gpu,
    uint64_t units)
{
    uint64_t     host;
    kvr_tier_t  *tier;

    tier = zone->registry->peer[id].tier;

    gpu = gpu < units ? gpu : 0;
    host = kvr_get(&tier[KVR_TIER_HOST].told);

    kvr_set(&tier[KVR_TIER_GPU].until, (uint32_t) gpu);
    kvr_set(&tier[KVR_TIER_HOST].until,
            kvr_get(&tier[KVR_TIER_DISK].told) && host < units
            ? (uint32_t) kvr_max(host, gpu) : 0);

    if (gpu) {
        kvr_set(zone->registry->tiered, 1);
    }
}


/* Tells whether replies deliver blocks that are much older than this. */
static int
kvr_capacity_beyond(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id, uint64_t units)
{
    uint32_t              own;
    kvr_retention_sum_t   sum;

    units += units / KVR_CAPACITY_CLASS;

    /* this peer alone may have no lower tier */

    own = kvr_retention_get(&zone->registry->peer[id].feedback.retention);

    if (own && own <= units) {
        return 0;
    }

    kvr_capacity_sum(zone, pool, id, &sum);

    return kvr_retention_beyond(&sum, (uint32_t) kvr_min(units, UINT32_MAX));
}


/* Returns what replies show, at most as many units. */
static uint64_t
kvr_capacity_learned(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id, uint64_t most)
{
    uint64_t              units;
    kvr_retention_sum_t   sum;

    kvr_capacity_sum(zone, pool, id, &sum);

    units = kvr_retention_among(&zone->registry->peer[id].feedback.retention,
                                &sum);

    return units ? kvr_min(units, most) : most;
}


/* Adds up what was seen of a peer and of the others of its pool. */
static void
kvr_capacity_sum(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t id,
    kvr_retention_sum_t *sum)
{
    uint32_t     n, other;
    kvr_set_t    set;
    kvr_peer_t  *peer;

    peer = zone->registry->peer;

    memset(sum, 0, sizeof(kvr_retention_sum_t));
    kvr_retention_add(sum, &peer[id].feedback.retention);

    set = pool->set;

    for (n = 1; n < KVR_CAPACITY_PEERS && kvr_set_next(&set, &other); n++) {
        if (other != id) {
            kvr_retention_add(sum, &peer[other].feedback.retention);
        }
    }
}


void
kvr_capacity_set(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t id,
    uint64_t units, uint64_t now)
{
    kvr_set(&zone->registry->peer[id].capacity, units);
    kvr_capacity_update(zone, pool, id, now);
}


void
kvr_capacity_told(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t id,
    uint64_t host, uint64_t disk, uint64_t now)
{
    kvr_tier_t  *tier;

    tier = zone->registry->peer[id].tier;

    if (kvr_get(&tier[KVR_TIER_HOST].told) != host
        || kvr_get(&tier[KVR_TIER_DISK].told) != disk)
    {
        kvr_set(&tier[KVR_TIER_HOST].told, host);
        kvr_set(&tier[KVR_TIER_DISK].told, disk);
        kvr_capacity_update(zone, pool, id, now);
    }
}


void
kvr_capacity_configured(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t id, unsigned fixed, uint64_t now)
{
    kvr_set(&zone->registry->peer[id].fixed, fixed);

    /* a capacity from a snapshot stands until another is known */

    if (fixed || kvr_get(&kvr_index_peer(zone->index, id)->source)
                 == KVR_INDEX_CONFIGURED)
    {
        kvr_capacity_update(zone, pool, id, now);
    }
}


void
kvr_capacity_fade(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t id,
    uint64_t now, uint32_t seconds)
{
    uint64_t            most;
    kvr_index_source_e  source;

    kvr_feedback_fade(&zone->registry->peer[id].feedback, seconds);

    if (kvr_get(&kvr_index_peer(zone->index, id)->source) == KVR_INDEX_REPORTED
        && kvr_capacity_reported(zone, pool, id, now, &source, &most) == 0)
    {
        kvr_capacity_update(zone, pool, id, now);
    }
}


/*
 * An engine uses all blocks of a request again when it ends, and the reply is
 * inserted then.  So no block is older than one behind it.
 */
void
kvr_capacity_whatif(const kvr_zone_t *zone, kvr_whatif_t *w, uint32_t id,
    const uint64_t *chain, uint32_t entries, uint32_t units, uint32_t held,
    uint64_t now)
{
    uint32_t           i, n, ages, capacity;
    uint64_t           used;
    kvr_index_reuse_t  reuse[KVR_INDEX_REUSES];

    _Static_assert(KVR_INDEX_WHOLE == KVR_WHATIF_ONE, "an age");

    capacity = kvr_get(&kvr_index_peer(zone->index, id)->capacity);

    used = kvr_load_get(zone->load, kvr_registry_resident(zone->registry, id))
           .pending / KVR_BLOCK * KVR_WHATIF_ONE / kvr_max(capacity, 1);

    kvr_whatif_prompt(w, units, held, used, now);

    n = kvr_index_reuse(zone->index, chain, entries, kvr_chain_entries(held),
                        reuse);

    for (i = 0, ages = KVR_WHATIF_AGES; i < n; i++) {
        kvr_whatif_reused(w, units, kvr_whatif_class(reuse[i].age),
                          reuse[i].depth, reuse[i].units, &ages);
    }

    kvr_whatif_reused(w, units, 0, 0, 0, &ages);
}


const char *
kvr_capacity_source(kvr_index_source_e source)
{
    static const char *const  names[] = {
        "assumed", "learned", "reported", "events", "configured", "api"
    };

    _Static_assert(kvr_nelts(names) == KVR_INDEX_SOURCES, "names");

    return names[source];
}


int
kvr_capacity_complete(const kvr_zone_t *zone, uint32_t id, uint64_t now)
{
    uint64_t  doubt;

    if (!kvr_capacity_heard(zone, id)) {
        return 0;
    }

    doubt = kvr_hooks_doubt(zone, id);

    return doubt == 0 || now > doubt + KVR_CAPACITY_DOUBT;
}
