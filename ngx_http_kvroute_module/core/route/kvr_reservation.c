
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_reservation.h"


static void kvr_reservation_drop(const kvr_zone_t *zone, kvr_reservation_t *r,
    int32_t active);
static void kvr_reservation_count(const kvr_zone_t *zone,
    const kvr_reservation_t *r, int32_t active, int32_t unanswered,
    int64_t pending);


void
kvr_reservation_take(const kvr_zone_t *zone, kvr_reservation_t *r)
{
    r->held = 1;

    kvr_reservation_count(zone, r, 1, r->unanswered, (int64_t) r->pending);
}


void
kvr_reservation_sent(const kvr_zone_t *zone, kvr_reservation_t *r)
{
    if (!r->held || !r->queued) {
        return;
    }

    r->queued = 0;

    if (r->peer == KVR_REGISTRY_NONE) {
        return;
    }

    kvr_load_add(zone->load, zone->row,
                 kvr_registry_column(zone->registry, r->member), 1,
                 (int64_t) r->pending);
    kvr_load_add(zone->load, zone->row,
                 kvr_registry_reserved(zone->registry, r->member), -1,
                 -(int64_t) r->pending);
}


void
kvr_reservation_answered(const kvr_zone_t *zone, kvr_reservation_t *r)
{
    kvr_reservation_drop(zone, r, 0);
}


void
kvr_reservation_release(const kvr_zone_t *zone, kvr_reservation_t *r)
{
    kvr_reservation_drop(zone, r, -1);

    r->held = 0;
}


/* Subtracts the request's pending bytes, and with active -1 the request too. */
static void
kvr_reservation_drop(const kvr_zone_t *zone, kvr_reservation_t *r,
    int32_t active)
{
    if (!r->held) {
        return;
    }

    kvr_reservation_count(zone, r, active, -(int32_t) r->unanswered,
                          -(int64_t) r->pending);

    r->unanswered = 0;
    r->pending = 0;
}


static void
kvr_reservation_count(const kvr_zone_t *zone, const kvr_reservation_t *r,
    int32_t active, int32_t unanswered, int64_t pending)
{
    if (r->peer == KVR_REGISTRY_NONE) {
        return;
    }

    kvr_load_add(zone->load, zone->row, r->peer, active, pending);
    kvr_load_add(zone->load, zone->row,
                 r->queued ? kvr_registry_reserved(zone->registry, r->member)
                           : kvr_registry_column(zone->registry, r->member),
                 active, pending);

    /* KV memory for the request's context and its longest reply */

    kvr_load_add(zone->load, zone->row,
                 kvr_registry_resident(zone->registry, r->peer),
                 unanswered, active * (int64_t) r->resident);
}
