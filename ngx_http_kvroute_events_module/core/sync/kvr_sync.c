
/*
 * Copyright (C) kvroute contributors
 */


#include "core/sync/kvr_sync.h"


static uint64_t kvr_sync_stored(kvr_index_t *ix, uint32_t id, uint64_t units,
    uint64_t expected);
static void kvr_sync_cleared(kvr_index_t *ix, uint32_t id, uint64_t units);
static void kvr_sync_forget(const kvr_feeds_t *h, uint32_t id, uint64_t now);


int
kvr_sync_event(const kvr_feeds_t *h, uint32_t id, unsigned source,
    const kvr_kvevent_t *event, uint64_t now)
{
    double             units, add;
    uint32_t           depth;
    uint64_t           clock;
    kvr_events_t      *e;
    const kvr_zone_t  *zone;

    zone = h->zone;
    e = &h->events[id];

    if (event->type == KVR_KVEVENT_CLEARED) {
        kvr_add(&e->cleared, 1);

        kvr_sync_cleared(zone->index, id, kvr_capacity_expected(zone, id));
        kvr_sync_forget(h, id, now);

        return 1;
    }

    if (event->below && event->type == KVR_KVEVENT_STORED) {
        kvr_set(&zone->registry->peer[id].tier[KVR_TIER_HOST].heard, 1);
    }

    if (!kvr_events_counts(e, event)) {
        return 0;
    }

    units = kvr_feedback_bytes(&zone->registry->peer[id].feedback)
            / KVR_BLOCK;

    add = (double) kvr_events_tokens(event) * units;
    add = kvr_min(add, KVR_INDEX_CAPACITY_MAX);

    clock = kvr_sync_stored(zone->index, id,
                            (uint64_t) (add * (1 << KVR_INDEX_FRACTION)),
                            kvr_capacity_expected(zone, id));

    depth = kvr_events_take(e, event, source, clock, units);

    if (h->aliases) {
        kvr_attribute_event(h, id, source, event, depth, now);
    }

    return 0;
}


/*
 * Takes a report of stored blocks, in units with KVR_INDEX_FRACTION bits of
 * fraction.  Inserts have moved the clock in advance, so a report confirms
 * them first; only the rest moves the clock: replies, and prompts that
 * bypassed nginx.  The clock may be ahead by kvr_index_ahead_max(): inserts
 * that are never confirmed are forgotten in the end.
 *
 * Returns the clock without the unconfirmed inserts, in units.
 */
static uint64_t
kvr_sync_stored(kvr_index_t *ix, uint32_t id, uint64_t units,
    uint64_t expected)
{
    uint64_t           ahead, confirmed, left, most;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, id);

    if (kvr_get(&p->ahead) == 0) {
        kvr_set(&p->ahead, 1);
    }

    ahead = kvr_index_ahead(p);
    most = kvr_index_ahead_max(p, expected);

    confirmed = kvr_min(units, ahead);
    left = kvr_min(ahead - confirmed, most);

    /* added, not set: inserts may add to it at the same time */

    if (ahead != left) {
        kvr_add(&p->ahead, left - ahead);
    }

    if (units != confirmed) {
        kvr_add(&p->clock, units - confirmed);
    }

    return (kvr_get(&p->clock) - left) >> KVR_INDEX_FRACTION;
}


/*
 * Forgets what the peer held, except for the last unconfirmed units, at most
 * as many as these: they will be stored afterwards.
 */
static void
kvr_sync_cleared(kvr_index_t *ix, uint32_t id, uint64_t units)
{
    uint64_t           ahead, left;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, id);

    ahead = kvr_index_ahead(p);
    left = kvr_min(ahead, units << KVR_INDEX_FRACTION);

    kvr_index_floor(ix, id, kvr_index_units(p) - (left >> KVR_INDEX_FRACTION));

    /* the rest will never be confirmed */

    if (ahead != left) {
        kvr_add(&p->ahead, left - ahead);
    }
}


void
kvr_sync_stopped(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t id,
    uint64_t now)
{
    kvr_set(&kvr_index_peer(zone->index, id)->ahead, 0);
    kvr_capacity_update(zone, pool, id, now);
}


void
kvr_sync_restart(const kvr_feeds_t *h, uint32_t id, uint64_t now)
{
    kvr_add(&h->events[id].restarts, 1);
    kvr_set(&h->zone->registry->peer[id].tier[KVR_TIER_HOST].heard, 0);

    kvr_index_flush(h->zone->index, id);
    kvr_sync_forget(h, id, now);

    if (h->aliases) {
        kvr_attribute_another(h, id);
    }
}


static void
kvr_sync_forget(const kvr_feeds_t *h, uint32_t id, uint64_t now)
{
    kvr_peer_t        *peer;
    const kvr_zone_t  *zone;

    zone = h->zone;
    peer = &zone->registry->peer[id];

    kvr_events_flush(&h->events[id]);

    kvr_feedback_restart(&peer->feedback);
    kvr_add(&peer->feedback.by_event, 1);

    /* the next probe must not detect the same restart */

    kvr_engine_renew(&peer->engine, now);
}


kvr_sync_e
kvr_sync_state(const kvr_feeds_t *h, uint32_t peer, uint64_t now, uint64_t *age)
{
    uint64_t       time;
    unsigned       i, known;
    kvr_events_t  *e;

    e = &h->events[peer];
    *age = 0;

    for (i = 0, known = 0; i < KVR_EVENTS_SOURCES; i++) {
        time = kvr_get(&e->source[i].time);

        if (time) {
            known++;
            *age = kvr_max(*age, now - kvr_min(time, now));
        }
    }

    if (known == 0) {
        return KVR_SYNC_OFF;
    }

    if (kvr_capacity_heard(h->zone, peer)) {
        return KVR_SYNC_FRESH;
    }

    return kvr_get(&e->connected) < known ? KVR_SYNC_STALE : KVR_SYNC_SILENT;
}
