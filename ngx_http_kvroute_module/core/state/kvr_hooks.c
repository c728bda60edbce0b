
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_hooks.h"


static void kvr_hooks_reset_one(const kvr_zone_t *zone, const kvr_hook_t *hook,
    kvr_counter_group_e group, uint32_t number);


uint64_t
kvr_hooks_age(const kvr_zone_t *zone, uint32_t peer)
{
    uint64_t           age, most;
    const kvr_hook_t  *hook;

    most = 0;

    for (hook = zone->hooks; hook; hook = hook->next) {
        if (hook->call->age) {
            age = hook->call->age(zone, hook->data, peer);
            most = kvr_max(most, age);
        }
    }

    return most;
}


uint64_t
kvr_hooks_doubt(const kvr_zone_t *zone, uint32_t peer)
{
    uint64_t           doubt, last;
    const kvr_hook_t  *hook;

    last = 0;

    for (hook = zone->hooks; hook; hook = hook->next) {
        if (hook->call->doubt) {
            doubt = hook->call->doubt(zone, hook->data, peer);
            last = kvr_max(last, doubt);
        }
    }

    return last;
}


int
kvr_hooks_wants(const kvr_zone_t *zone, uint32_t peer)
{
    const kvr_hook_t  *hook;

    for (hook = zone->hooks; hook; hook = hook->next) {
        if (hook->call->wants && hook->call->wants(zone, hook->data, peer)) {
            return 1;
        }
    }

    return 0;
}


void
kvr_hooks_reset(const kvr_zone_t *zone, uint32_t peer)
{
    uint32_t           i;
    const kvr_hook_t  *hook;

    for (hook = zone->hooks; hook; hook = hook->next) {

        for (i = 0; i < zone->registry->max_peers; i++) {
            if (peer == KVR_REGISTRY_NONE || peer == i) {
                kvr_hooks_reset_one(zone, hook, KVR_COUNTER_NOW, i);
            }
        }

        if (peer != KVR_REGISTRY_NONE) {
            continue;
        }

        kvr_hooks_reset_one(zone, hook, KVR_COUNTER_ZONE, 0);

        for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
            kvr_hooks_reset_one(zone, hook, KVR_COUNTER_UPSTREAM, i);
        }
    }
}


static void
kvr_hooks_reset_one(const kvr_zone_t *zone, const kvr_hook_t *hook,
    kvr_counter_group_e group, uint32_t number)
{
    void      *base;
    uint32_t   set;

    if (hook->call->base == NULL) {
        return;
    }

    set = 0;
    base = hook->call->base(zone, hook->data, group, number, &set);

    if (base) {
        kvr_counter_reset_rows(hook->call->counters, hook->call->ncounters,
                               group, base);
    }
}
