
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_eject.h"


/* so many in flight that owe an answer are no accident */
#define KVR_EJECT_SILENT  2


static unsigned kvr_eject_out(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t member, kvr_outlier_e reason, uint64_t now);
static unsigned kvr_eject_back(kvr_member_t *member);
static int kvr_eject_other(const kvr_pool_t *pool, kvr_member_t *own,
    kvr_member_t *m);


kvr_outlier_fleet_t *
kvr_eject_fleet(const kvr_zone_t *zone, uint32_t member)
{
    kvr_registry_t  *registry;

    registry = zone->registry;

    return &registry->upstream[registry->member[member].upstream].fleet;
}


int
kvr_eject_sick(const kvr_zone_t *zone, uint32_t member, uint64_t now)
{
    return member != KVR_REGISTRY_NONE
           && kvr_outlier_sick(kvr_get(&zone->registry->member[member]
                                       .outlier.state), now);
}


void
kvr_eject_begin(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint64_t now)
{
    e->given = now;

    if (e->member == KVR_REGISTRY_NONE || pool == NULL || !pool->eject.on) {
        return;
    }

    e->probe = (unsigned) kvr_outlier_begin(
                                     &zone->registry->member[e->member].outlier,
                                     &pool->eject, now);
}


unsigned
kvr_eject_first(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, int stream, uint64_t now)
{
    uint64_t              ms;
    kvr_member_t         *member;
    kvr_outlier_fleet_t  *fleet;

    if (e->member == KVR_REGISTRY_NONE || !pool->eject.on) {
        return 0;
    }

    fleet = kvr_eject_fleet(zone, e->member);
    member = &zone->registry->member[e->member];
    ms = now - e->given;

    kvr_outlier_first(fleet, ms);

    /* what is no stream begins when all of it is there */

    if (stream && kvr_outlier_slow(fleet, &pool->eject, e->bytes, ms)) {
        return kvr_eject_end(e, zone, pool, KVR_OUTLIER_SLOW, 0, now);
    }

    return kvr_outlier_good(&member->outlier, &pool->eject, e->given, now)
           ? kvr_eject_back(member) : 0;
}


unsigned
kvr_eject_end(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int begun, uint64_t now)
{
    kvr_outlier_t  *o;

    if (e->member == KVR_REGISTRY_NONE || !pool->eject.on || e->counted) {
        return 0;
    }

    o = &zone->registry->member[e->member].outlier;

    if (reason == KVR_OUTLIER_NONE) {
        if (begun) {
            return kvr_outlier_end(o, e->given, now)
                   ? kvr_eject_back(&zone->registry->member[e->member]) : 0;
        }

        if (kvr_get(&o->asked) == e->given) {
            kvr_outlier_heard(o);
        }

        return 0;
    }

    e->counted = 1;

    if (!kvr_outlier_bad(o, &pool->eject, reason, begun, e->probe, now)) {
        return 0;
    }

    return kvr_eject_out(zone, pool, e->member, reason, now);
}


unsigned
kvr_eject_silent(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t member, uint64_t now)
{
    kvr_load_sum_t   sum;
    kvr_outlier_t   *o;

    o = &zone->registry->member[member].outlier;

    sum = kvr_load_get(zone->load, kvr_registry_column(member));

    /* who was killed, or has given up, waits for nothing */

    if (sum.active == 0) {
        kvr_outlier_heard(o);
    }

    if (sum.active < KVR_EJECT_SILENT) {
        return 0;
    }

    return kvr_eject_out(zone, pool, member, KVR_OUTLIER_SILENT, now);
}


static unsigned
kvr_eject_out(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t member,
    kvr_outlier_e reason, uint64_t now)
{
    int            rc, known, better;
    uint32_t       i, n, max, out;
    uint64_t       quiet;
    kvr_member_t  *m, *own;

    n = kvr_set_count(pool->set);

    if (n < 2) {
        return 0;
    }

    own = &zone->registry->member[member];
    quiet = kvr_outlier_quiet(kvr_eject_fleet(zone, member), now);

    for (i = 0, known = 0, better = 0; i < KVR_REGISTRY_MEMBERS; i++) {
        m = &zone->registry->member[i];

        if (m != own && kvr_eject_other(pool, own, m)) {
            rc = reason == KVR_OUTLIER_SILENT
                 ? kvr_get(&m->outlier.asked) - 1 >= quiet
                 : kvr_outlier_better(&m->outlier, &own->outlier, &pool->eject,
                                      now);
            known |= rc >= 0;
            better |= rc > 0;
        }
    }

    if ((known && !better)
        || kvr_outlier_eject(&own->outlier, &pool->eject, reason, now) == 0)
    {
        return 0;
    }

    for (i = 0, out = 0; i < KVR_REGISTRY_MEMBERS; i++) {
        m = &zone->registry->member[i];

        out += kvr_eject_other(pool, own, m)
               && kvr_outlier_out(atomic_load(&m->outlier.state));
    }

    max = kvr_max(n * pool->eject.max / 100, 1);
    max = kvr_min(max, n - 1);

    if (out > max) {
        kvr_outlier_spare(&own->outlier, now);
        return 0;
    }

    kvr_add(&own->ejections, 1);

    return KVR_EJECT_OUT;
}


static unsigned
kvr_eject_back(kvr_member_t *member)
{
    /* it will be warmed up */

    kvr_set(&member->lost, 1);

    return KVR_EJECT_BACK;
}


/* whether a member is of the same upstream, and has not been taken out */
static int
kvr_eject_other(const kvr_pool_t *pool, kvr_member_t *own, kvr_member_t *m)
{
    return atomic_load(&m->used) && m->upstream == own->upstream
           && kvr_set_test(pool->set, m->peer);
}
