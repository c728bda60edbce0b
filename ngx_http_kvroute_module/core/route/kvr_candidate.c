
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_candidate.h"
#include "core/state/kvr_hooks.h"



/* caps use an engine's report while it is worth more than this */
#define KVR_CANDIDATE_FRESH  0.5

/* a peer that warms up is considered in at least 1 / 16 of decisions */
#define KVR_CANDIDATE_WARM   16

/* share of the cache; below it any prompt fits */
#define KVR_CANDIDATE_USED    0.5

/* share of the cache that replies fill until the next probe */
#define KVR_CANDIDATE_GROWTH  0.03

/* bytes of prompts in the cache for each that is not prefilled yet */
#define KVR_CANDIDATE_WHOLE   1.5


static void kvr_candidate_special(const kvr_view_t *v, kvr_candidate_t *c,
    uint32_t peer);
static void kvr_candidate_outlier(kvr_view_t *v, kvr_candidate_t *c,
    uint32_t member);
static void kvr_candidate_signals(const kvr_view_t *v, kvr_candidate_t *c,
    kvr_engine_t *s);
static int kvr_candidate_cold(const kvr_view_t *v, uint32_t peer,
    uint32_t member);
static int kvr_candidate_full(kvr_peer_t *peer, const kvr_pool_t *pool,
    uint64_t pending, uint64_t fit, uint64_t now);
static int kvr_candidate_fresh(const kvr_pool_t *pool, const kvr_engine_t *s,
    uint64_t now);
static int kvr_candidate_unhealthy(const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint32_t peer);
static int kvr_candidate_throttled(const kvr_zone_t *zone, uint32_t peer,
    uint64_t now);


void
kvr_candidate_view(kvr_view_t *v)
{
    const kvr_pool_t     *pool;
    kvr_outlier_fleet_t  *fleet;

    pool = v->pool;

    v->load = kvr_load_view(v->zone->load);
    v->picks = kvr_get(v->zone->registry->given);
    v->memo.shared = 0;
    v->memo.units = UINT32_MAX;
    v->memo.active = 0;
    v->memo.rest = 0;
    v->rate = 0;

    v->capped = pool->max_pending || pool->target_ttft
                || pool->max_waiting >= 0;

    v->silent = KVR_REGISTRY_NONE;
    v->outliers = 0;

    if (pool->eject.on) {
        fleet = kvr_eject_fleet(v->zone, pool);
        v->outliers = (unsigned) kvr_outlier_look(fleet, v->now);

        if (kvr_unlikely(v->outliers)) {
            v->suspect_after = kvr_outlier_suspect_after(fleet, v->now);
        }
    }

    v->signals = pool->health || pool->probe;

    v->special_any = v->bound < KVR_PEERS || v->pin < KVR_PEERS
              || v->owner < KVR_PEERS || v->models;

    v->extra = v->special_any || v->outliers || v->capped || v->signals
              || pool->slow_start;

    if (!v->special_any) {
        return;
    }

    v->special = kvr_set_none();

    if (v->bound < KVR_PEERS) {
        kvr_set_add(&v->special, v->bound);
    }

    if (v->pin < KVR_PEERS) {
        kvr_set_add(&v->special, v->pin);
    }

    if (v->owner < KVR_PEERS) {
        kvr_set_add(&v->special, v->owner);
    }

    if (v->models) {
        v->special = kvr_set_or(v->special, kvr_set_not(*v->models));
        v->special = kvr_set_or(v->special, *v->evicts);
    }
}


void
kvr_candidate_hot(const kvr_zone_t *zone, const uint64_t *chain,
    uint32_t units, uint64_t now, kvr_hot_keys_t *keys,
    kvr_hot_view_t *view)
{
    if ((uint64_t) units * KVR_BLOCK <= KVR_SCORE_FLOOR) {
        units = 0;
    }

    kvr_hot_keys(chain, kvr_chain_entries(units), keys);
    kvr_hot_view(zone->hot, keys, now, view);
}


void
kvr_candidate_count(const kvr_zone_t *zone, kvr_hot_keys_t *keys,
    uint32_t peer, uint64_t now)
{
    kvr_hot_add(zone->hot, keys, now);
    kvr_hooks(zone, counted, keys, peer);

    keys->n = 0;
}


int
kvr_candidate_deliver(const kvr_zone_t *zone, const kvr_pool_t *pool,
    const uint64_t *chain, kvr_set_t set, uint32_t *matched, uint32_t *loads)
{
    int                 tiers;
    uint32_t            id, age, stored;
    kvr_set_t           all;
    kvr_peer_t         *peer;
    kvr_resume_t       *resume;
    kvr_upstream_t     *upstream;
    kvr_tier_split_t    split;

    upstream = &zone->registry->upstream[pool->upstream];
    resume = &upstream->resume;

    if (kvr_likely(kvr_resume_step(resume) == 0
                   && kvr_get(zone->registry->tiered) == 0))
    {
        return 0;
    }

    tiers = kvr_resume_step(resume) != 0;
    stored = 0;
    all = set;

    if (kvr_registry_stored(zone->registry, pool->upstream)) {
        while (kvr_set_next(&all, &id)) {
            stored = kvr_max(stored, matched[id]);
        }
    }

    while (kvr_set_next(&set, &id)) {

        peer = &zone->registry->peer[id];
        loads[id] = 0;

        if (stored || kvr_get(&peer->tier[KVR_TIER_GPU].until)) {
            tiers = 1;

            if (matched[id] == 0
                || !kvr_index_age(zone->index,
                                  chain[kvr_chain_entries(matched[id]) - 1],
                                  id, &age))
            {
                age = 0;
            }

            split = kvr_tier_split(peer->tier, matched[id], age, stored);
            loads[id] = kvr_tier_cost(&upstream->loads, &split);

            matched[id] = kvr_max(matched[id], stored);
        }

        if (matched[id]) {
            matched[id] = kvr_resume_units(resume, matched[id],
                                           kvr_feedback_bytes(&peer->feedback));
        }
    }

    return tiers;
}


void
kvr_candidate_extra(kvr_view_t *v, kvr_candidate_t *c, uint32_t peer,
    uint32_t member)
{
    const kvr_pool_t  *pool;

    pool = v->pool;

    if (v->special_any && kvr_set_test(&v->special, peer)) {
        kvr_candidate_special(v, c, peer);
    }

    if (v->outliers) {
        kvr_candidate_outlier(v, c, member);
    }

    if (v->capped && kvr_candidate_capped(v->zone, pool, peer, v->fit, v->own,
                                          v->now))
    {
        c->full = 1;
    }

    if (v->signals) {
        kvr_candidate_signals(v, c, &v->zone->registry->peer[peer].engine);
        c->unhealthy = kvr_candidate_unhealthy(v->zone, pool, peer);
    }

    if (pool->slow_start && kvr_candidate_cold(v, peer, member)) {
        c->cold = 1;
    }
}


/*
 * A request waits if the contexts in flight and its own exceed the GPU's
 * memory.  What is missing counts as pending, but no more than this request:
 * where all peers are always full, moves would only be computed again.
 *
 * A hot prefix is no cheaper here because others will use it.  With lower
 * tiers, each peer would get each hot prefix whenever its memory is full, and
 * more memory would be missing.  A hybrid model may not resume behind it.
 */
void
kvr_candidate_tiers(const kvr_view_t *v, kvr_candidate_t *c, uint32_t peer)
{
    uint64_t       gpu, context;
    kvr_resume_t  *resume;

    c->load = (uint64_t) v->loads[peer] * KVR_BLOCK;

    gpu = KVR_BLOCK * (uint64_t)
          kvr_get(&v->zone->registry->peer[peer].tier[KVR_TIER_GPU].until);

    resume = &v->zone->registry->upstream[v->pool->upstream].resume;

    if (gpu || kvr_resume_step(resume)) {
        c->shared = 0;
    }

    context = c->resident + v->bytes;

    if (gpu && context > gpu) {
        c->pending += kvr_min(context - gpu, v->bytes);
    }
}


/* Sets the flags of a peer that the request treats differently. */
static void
kvr_candidate_special(const kvr_view_t *v, kvr_candidate_t *c, uint32_t peer)
{
    c->bound = (peer == v->bound);
    c->pinned = (peer == v->pin);
    c->owner = (peer == v->owner);

    if (v->models) {
        c->other = !kvr_set_test(v->models, peer);
        c->evicts = kvr_set_test(v->evicts, peer);
    }
}


/* Tells whether a peer is ejected, on trial or silent. */
static void
kvr_candidate_outlier(kvr_view_t *v, kvr_candidate_t *c, uint32_t member)
{
    uint64_t        state;
    kvr_outlier_t  *o;

    o = &v->zone->registry->member[member].outlier;
    state = kvr_get(&o->state);

    if (kvr_outlier_ejected(state)) {
        c->sick = kvr_outlier_sick(state, v->now);

    } else {
        c->doubted = (kvr_trial_reason(kvr_get(&o->trial)) != 0);

        if (kvr_get(&o->asked) - 1 < v->suspect_after) {
            v->silent = member;
        }

        if (!c->doubted) {
            return;
        }
    }

    /* the ejecting process may have been killed before it set the flag */

    kvr_set(&kvr_eject_fleet(v->zone, v->pool)->ejected, 1);
}


/* Sets what the engine reports. */
static void
kvr_candidate_signals(const kvr_view_t *v, kvr_candidate_t *c, kvr_engine_t *s)
{
    double             worth;
    uint32_t           cap;
    const kvr_pool_t  *pool;

    pool = v->pool;

    if (pool->probe == 0) {
        return;
    }

    worth = kvr_engine_worth(s, v->now, pool->probe);

    c->active += (uint32_t) (kvr_get(&s->foreign) * worth);

    cap = kvr_get(&s->cap);

    if (cap && worth > KVR_CANDIDATE_FRESH && c->active >= cap) {
        c->full = 1;
    }
}


/* Tells whether this decision leaves out a peer that warms up. */
static int
kvr_candidate_cold(const kvr_view_t *v, uint32_t peer, uint32_t member)
{
    uint32_t         since, age, span;
    kvr_registry_t  *registry;

    registry = v->zone->registry;
    span = v->pool->slow_start;

    since = kvr_get(&registry->member[member].since);
    since = kvr_max(kvr_get(&registry->peer[peer].since), since);

    if (since == 0) {
        return 0;
    }

    age = v->seconds - since;

    return age < span
           && kvr_reduce(kvr_mix(v->random, peer + 1), span)
              >= kvr_max(age, span / KVR_CANDIDATE_WARM);
}


int
kvr_candidate_capped(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t fit, const kvr_reservation_t *own, uint64_t now)
{
    int            fresh;
    uint64_t       pending;
    kvr_peer_t    *known;
    kvr_engine_t  *s;

    if (peer == KVR_REGISTRY_NONE) {
        return 0;
    }

    known = &zone->registry->peer[peer];
    s = &known->engine;

    fresh = kvr_candidate_fresh(pool, s, now);

    if (pool->max_waiting >= 0 && fresh
        && kvr_get(&s->set) & KVR_METRICS_WAITING
        && (int64_t) kvr_get(&s->waiting) > pool->max_waiting)
    {
        return 1;
    }

    if (pool->max_pending == 0 && pool->target_ttft == 0) {
        return 0;
    }

    pending = kvr_load_get(zone->load, peer).pending;

    if (own && own->held && own->peer == peer) {
        pending -= kvr_min(own->pending, pending);
    }

    if (pool->target_ttft == 0) {
        return pending >= pool->max_pending;
    }

    /* idle, as far as is known: the usual case below saturation */

    if (pending == 0 && fit == 0) {
        return 0;
    }

    return kvr_candidate_full(known, pool, pending, fresh ? fit : 0, now);
}


/*
 * Tells whether a peer has enough work, with max_pending=auto: by
 * kvr_prefill_full(), and by what still fits into its cache.  Beyond that,
 * requests would wait inside the engine, in no order.  pending: bytes that are
 * not prefilled; fit: bytes of the new prompt, 0 if the cache does not matter.
 * Unknown values are no limit.
 */
static int
kvr_candidate_full(kvr_peer_t *peer, const kvr_pool_t *pool, uint64_t pending,
    uint64_t fit, uint64_t now)
{
    double  cache, used;

    if (kvr_prefill_full(&peer->prefill, pool->target_ttft, pending, now)) {
        return 1;
    }

    used = kvr_get(&peer->engine.kv) / 10000.0;

    if (fit == 0 || used < KVR_CANDIDATE_USED) {
        return 0;
    }

    cache = (double) kvr_engine_capacity(&peer->engine, now, pool->probe)
            * kvr_feedback_bytes(&peer->feedback);

    return cache > 0
           && KVR_CANDIDATE_WHOLE * (double) pending + (double) fit
              > (1 - KVR_CANDIDATE_GROWTH - used) * cache;
}


/* Tells whether the engine's last report still counts. */
static int
kvr_candidate_fresh(const kvr_pool_t *pool, const kvr_engine_t *s,
    uint64_t now)
{
    return pool->probe
           && kvr_engine_worth(s, now, pool->probe) > KVR_CANDIDATE_FRESH;
}


static int
kvr_candidate_unhealthy(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer)
{
    return peer != KVR_REGISTRY_NONE && pool->health
           && kvr_get(&zone->registry->peer[peer].engine.health)
              != KVR_HEALTH_UP;
}


/* Tells whether a peer has asked for a pause that is not over. */
static int
kvr_candidate_throttled(const kvr_zone_t *zone, uint32_t peer, uint64_t now)
{
    return peer != KVR_REGISTRY_NONE
           && kvr_get(&zone->registry->peer[peer].engine.pressure) > now;
}


int
kvr_candidate_draining(const kvr_zone_t *zone, uint32_t peer)
{
    return peer != KVR_REGISTRY_NONE
           && kvr_drain_on(&zone->registry->peer[peer].drain);
}


int
kvr_candidate_spared(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now)
{
    return kvr_candidate_draining(zone, peer)
           || kvr_candidate_throttled(zone, peer, now)
           || kvr_candidate_unhealthy(zone, pool, peer);
}
