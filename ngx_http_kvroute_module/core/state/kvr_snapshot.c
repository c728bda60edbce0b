
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_snapshot.h"


void
kvr_snapshot(const kvr_zone_t *zone, uint32_t peer, uint32_t member,
    uint64_t now, kvr_snapshot_t *s)
{
    uint64_t           time, state;
    kvr_peer_t        *p;
    kvr_outlier_t     *o;
    kvr_load_sum_t     own, reserved, all;
    kvr_index_peer_t  *ip;

    p = &zone->registry->peer[peer];
    ip = kvr_index_peer(zone->index, peer);

    own = kvr_load_get(zone->load, kvr_registry_column(zone->registry, member));
    reserved = kvr_load_get(zone->load,
                            kvr_registry_reserved(zone->registry, member));
    all = kvr_load_here(zone->load, peer);
    s->elsewhere = kvr_load_elsewhere(zone->load, peer).active;

    s->active = own.active + reserved.active;
    s->pending = own.pending + reserved.pending;
    s->active_all = all.active;
    s->pending_all = all.pending;
    s->unanswered = kvr_load_here(zone->load,
                                  kvr_registry_resident(zone->registry, peer))
                    .active;

    s->capacity = kvr_get(&ip->capacity) * KVR_BLOCK;
    s->gpu = kvr_get(&p->tier[KVR_TIER_GPU].until) * KVR_BLOCK;
    s->source = kvr_get(&ip->source);
    s->throttled = kvr_get(&p->engine.pressure) > now;
    o = &zone->registry->member[member].outlier;
    state = kvr_get(&o->state);

    s->ejected = (uint64_t) kvr_outlier_ejected(state);
    s->until = kvr_outlier_sick(state, now) ? KVR_OUTLIER_TIME(state) - now : 0;
    s->why = kvr_get(&o->reason);
    s->last = kvr_get(&o->last);
    s->refusal = kvr_get(&o->refusal);
    s->mute = kvr_outlier_mute(o, s->active, kvr_get(&p->engine.renewed), now);

    s->flushes = kvr_get(&p->feedback.by_usage)
                 + kvr_get(&p->feedback.by_probe)
                 + kvr_get(&p->feedback.by_event);

    s->set = kvr_get(&p->engine.set) | KVR_COUNTER_KNOWN;
    time = kvr_get(&p->engine.time);
    s->age = now > time ? now - time : 0;

    if (time) {
        s->set |= KVR_COUNTER_REPORTS;
    }

    if (zone->united) {
        s->set |= KVR_COUNTER_SHARED;
    }

    s->drain = kvr_drain_state(&p->drain,
                               (uint32_t) (all.active + s->elsewhere), now);

    if (s->drain != KVR_DRAIN_NO) {
        s->drain_requests = kvr_get(&p->drain.requests);
        s->drain_sessions = kvr_drain_sessions(&p->drain, now);
        s->drain_left = kvr_drain_left(&p->drain, now);
        s->set |= KVR_COUNTER_DRAINED
                  | (kvr_get(&p->drain.until) ? KVR_COUNTER_UNTIL : 0);
    }

    kvr_prefill_load(&p->prefill, now, &s->load);

    if (s->load.rate > 0) {
        s->set |= KVR_COUNTER_RATED;
    }
}

