
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_attempt.h"
#include "core/route/kvr_capacity.h"
#include "core/state/kvr_hooks.h"


/* tokens of a reply if the request sets no limit */
#define KVR_ATTEMPT_OUTPUT      256

/* and at most: clients ask for far more than they get */
#define KVR_ATTEMPT_MAX_OUTPUT  2048

/* units that other peers have, and this one may load from a store */
#define KVR_ATTEMPT_STORE       8

/* each 16th response updates the capacity */
#define KVR_ATTEMPT_LOOK        16


static void kvr_attempt_price(kvr_attempt_t *a, const kvr_zone_t *zone,
    kvr_upstream_t *upstream, const kvr_feedback_response_t *r);
static void kvr_attempt_store(kvr_attempt_t *a, kvr_upstream_t *upstream,
    const kvr_feedback_response_t *r);
static unsigned kvr_attempt_timed(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint64_t ms, uint64_t now);
static void kvr_attempt_computed(kvr_attempt_t *a, const kvr_zone_t *zone,
    uint32_t found);
static void kvr_attempt_write(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *value, uint32_t first, uint32_t n, uint32_t units,
    uint32_t behind);


static inline kvr_whatif_t *
kvr_attempt_whatif(kvr_attempt_t *a, const kvr_zone_t *zone)
{
    kvr_registry_t  *reg;

    reg = zone->registry;

    return kvr_registry_whatif(reg, reg->member[a->reservation.member]
                                    .upstream);
}


uint64_t
kvr_attempt_resident(uint64_t bytes, uint32_t output)
{
    output = output ? output : KVR_ATTEMPT_OUTPUT;

    return bytes + 4 * (uint64_t) kvr_min(output, KVR_ATTEMPT_MAX_OUTPUT);
}


void
kvr_attempt_begin(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_begin_t *b, kvr_reservation_t *reserved, uint64_t now)
{
    kvr_peer_t         *peer;
    kvr_reservation_t  *r;

    memset(a, 0, sizeof(kvr_attempt_t));

    a->start = now;
    a->bytes = b->bytes;
    a->matched = b->matched;
    a->best = b->best;
    a->rate = b->rate;

    r = &a->reservation;

    r->peer = b->peer;
    r->member = b->member;
    r->pending = b->pending;
    r->resident = b->resident;
    r->unanswered = !b->no_prefill;

    if (reserved && reserved->held && kvr_reservation_same(reserved, r)) {
        *r = *reserved;
        reserved->held = 0;

        kvr_reservation_sent(zone, r);

    } else {
        kvr_reservation_take(zone, r);

        if (reserved) {
            kvr_reservation_release(zone, reserved);
        }
    }

    a->eject.member = b->member;
    a->eject.arm = b->arm;
    a->eject.doubted = b->doubted;

    kvr_eject_begin(&a->eject, zone, b->pool, now);

    if (b->peer == KVR_REGISTRY_NONE) {
        return;
    }

    peer = &zone->registry->peer[b->peer];

    kvr_drain_given(&peer->drain, now);

    /* a request without a prompt says nothing about prefill */

    if (b->no_prefill) {
        return;
    }

    a->others = kvr_load_get(zone->load, b->peer).pending;
    a->others -= kvr_min(a->others, b->pending);

    a->ahead = kvr_prefill_give(&peer->prefill, b->pending, a->others, now);
    a->eject.bytes = a->ahead;

    /* its own is already counted */

    a->waiting = kvr_load_get(zone->load,
                              kvr_registry_resident(zone->registry, b->peer))
                 .active;

    a->timed = kvr_ttft_give(&peer->ttft, b->pending, a->waiting > 1);

    if (a->waiting <= 1) {
        kvr_eject_owe(&a->eject, zone, b->pool, b->stream, b->bytes, b->rate);
    }
}


void
kvr_attempt_insert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_insert_t *in)
{
    int          store;
    uint32_t     k, id, since, held;
    kvr_peer_t  *peer;

    id = a->reservation.peer;

    if (id == KVR_REGISTRY_NONE || in->entries == 0) {
        return;
    }

    peer = &zone->registry->peer[id];
    store = 0;

    if (kvr_unlikely(kvr_get(zone->registry->tiered))
        && a->reservation.member != KVR_REGISTRY_NONE)
    {
        store = kvr_registry_stored(zone->registry,
                     zone->registry->member[a->reservation.member].upstream);
    }

    k = kvr_min(kvr_chain_entries(in->held), in->entries);

    a->entries = in->entries;
    a->units = in->units;
    a->clock = kvr_index_clock(zone->index, id);

    a->sampled = !in->skips
                 && kvr_whatif_sampled(in->chain[in->entries - 1], a->clock)
                 && kvr_attempt_whatif(a, zone);

    if (kvr_unlikely(a->sampled)) {
        kvr_capacity_whatif(zone, kvr_attempt_whatif(a, zone), id, in->chain,
                            in->entries, in->units, in->held, a->start);
    }

    /* the deepest block that the peer is expected to have */

    if (k) {
        a->predicted = in->chain[k - 1];
    }

    /*
     * An engine that ignores its cache reports nothing about it.  It
     * stores the blocks it computes nevertheless, as new ones: the insert is
     * that of a prompt without a match.
     */

    if (!in->skips) {
        a->inserted = kvr_index_inserted(zone->index, in->chain, in->entries,
                                         id, store ? 0 : in->held, &a->age);

        /*
         * Only a mask predicts the prompt, or an insert since which the clock
         * has moved by less than what other requests have pending: it may not
         * be computed yet.  Then a miss proves nothing.
         */

        since = a->age - kvr_min(a->age, a->inserted);

        a->speculative = k && (a->inserted == 0
                               || (uint64_t) since * KVR_BLOCK < a->others);

        a->prompted = kvr_index_prompted(zone->index, in->chain, a->inserted,
                                         id, KVR_REPLY_VALUES, &a->age);
    }

    held = in->held;

    if (kvr_unlikely(kvr_get(zone->registry->tiered))) {
        a->loaded = kvr_tier_split(peer->tier, kvr_min(held, a->inserted),
                                   a->age, store ? held : 0);

        /* loaded blocks take as much of the GPU's memory as new ones */

        held -= a->loaded.host + a->loaded.disk;
    }

    /* entries that another attempt may undo get stamps of this one too */

    if (a->speculative) {
        kvr_index_insert(zone->index, in->chain, in->entries, in->units, id,
                         held, &a->undo);

    } else {
        kvr_index_refresh(zone->index, in->chain, in->entries, in->units, id,
                          held, &a->undo);
    }

    kvr_hooks(zone, inserted, in->chain, in->entries, &a->undo);
}


unsigned
kvr_attempt_first(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_first_t *f, uint64_t now)
{
    unsigned     rc, no_prefill;
    uint64_t     ms, load;
    kvr_peer_t  *peer;

    if (!a->reservation.held || a->started) {
        return 0;
    }

    a->started = 1;

    no_prefill = !a->reservation.unanswered;
    ms = now - a->start;
    a->ttft = (uint32_t) kvr_min(ms, UINT32_MAX);

    kvr_reservation_answered(zone, &a->reservation);
    kvr_attempt_heard(a, zone);

    if (!f->ok) {
        return 0;
    }

    a->undo.valid = 0;

    if (a->reservation.peer == KVR_REGISTRY_NONE) {
        return 0;
    }

    peer = &zone->registry->peer[a->reservation.peer];

    kvr_set(&peer->engine.success, now);

    rc = kvr_eject_first(&a->eject, zone, pool,
                         f->stream && f->plain && !no_prefill, now);

    if (no_prefill) {
        return rc;
    }

    if (f->hot) {
        kvr_candidate_count(zone, f->hot, a->reservation.peer, now);
    }

    if (kvr_unlikely(a->sampled)) {
        kvr_whatif_first(kvr_attempt_whatif(a, zone), ms);
    }

    /* an answer that is no stream arrives complete */

    if (f->stream && f->plain) {
        rc |= kvr_attempt_timed(a, zone, pool, ms, now);
    }

    kvr_prefill_first(&peer->prefill, a->ahead, ms, now);

    if (f->stream) {
        load = kvr_tier_cost(&zone->registry->upstream[pool->upstream].loads,
                             &a->loaded);
        load *= KVR_BLOCK;
        kvr_prefill_waited(&peer->prefill, a->ahead + load, a->matched, ms,
                           a->rate, now);
    }

    return rc;
}


/*
 * Learns the price of loads from a prompt that was delivered as predicted.  The
 * time to its first token is that of loading some of it and computing the rest.
 */
static void
kvr_attempt_price(kvr_attempt_t *a, const kvr_zone_t *zone,
    kvr_upstream_t *upstream, const kvr_feedback_response_t *r)
{
    double       ms, whole;
    uint64_t     bytes;
    kvr_peer_t  *peer;

    bytes = (uint64_t) (a->loaded.host + a->loaded.disk) * KVR_BLOCK;

    if (kvr_likely(bytes == 0)) {
        return;
    }

    if (a->waiting > 1 || a->rate == 0 || bytes <= a->ahead || a->speculative
        || (uint64_t) kvr_max(r->cached, 0) * r->bytes / (uint64_t) r->prompt
           + KVR_FEEDBACK_BLOCKS * r->block < r->matched)
    {
        return;
    }

    peer = &zone->registry->peer[a->reservation.peer];

    ms = (double) KVR_PREFILL_RATE / a->rate;
    whole = ms * (double) bytes;

    kvr_tier_first(&upstream->loads, &a->loaded,
                   a->ttft - kvr_get(&peer->prefill.base) / 256.0
                   - ms * (double) a->ahead, whole);
}


/*
 * If the engine reports neither its capacity nor cached tokens, the time to the
 * first token shows whether it had what was inserted before.
 */
static unsigned
kvr_attempt_timed(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint64_t ms, uint64_t now)
{
    int                  found;
    uint32_t             id;
    kvr_peer_t          *peer;
    kvr_upstream_t      *upstream;
    kvr_ttft_first_t     first;

    id = a->reservation.peer;
    peer = &zone->registry->peer[id];

    if (a->timed == 0 || a->speculative) {
        return 0;
    }

    /* other clients' requests take time as well */

    if (kvr_get(&kvr_index_peer(zone->index, id)->source) >= KVR_INDEX_EXACT
        || kvr_get(&peer->feedback.reports)
        || kvr_get(&peer->engine.foreign))
    {
        return 0;
    }

    upstream = &zone->registry->upstream[
                        zone->registry->member[a->reservation.member].upstream];

    first.bytes = a->bytes;
    first.inserted = (uint64_t) a->inserted * KVR_BLOCK;
    first.reply = (uint64_t) (a->inserted - a->prompted) * KVR_BLOCK;
    first.ms = ms;
    first.given = a->timed;

    found = kvr_ttft_first(&peer->ttft, &upstream->prefill, &first);

    if (found == KVR_TTFT_NOTHING
        || !kvr_feedback_timed(&peer->feedback, a->age, found == KVR_TTFT_HELD))
    {
        return 0;
    }

    if (found == KVR_TTFT_LOST
        || kvr_get(&peer->feedback.timed_held) % KVR_ATTEMPT_LOOK == 1)
    {
        kvr_capacity_update(zone, pool, id, now);
    }

    if (found != KVR_TTFT_LOST || a->matched == 0) {
        return 0;
    }

    kvr_attempt_computed(a, zone, 0);

    return KVR_ATTEMPT_REINSERT;
}


unsigned
kvr_attempt_judge(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, uint64_t now)
{
    if (!a->reservation.held || a->reservation.peer == KVR_REGISTRY_NONE) {
        return 0;
    }

    return kvr_eject_end(&a->eject, zone, pool, reason,
                         a->started && !a->undo.valid, now);
}


int
kvr_attempt_release(kvr_attempt_t *a, const kvr_zone_t *zone)
{
    if (!a->reservation.held) {
        return 0;
    }

    kvr_reservation_release(zone, &a->reservation);

    return 1;
}


unsigned
kvr_attempt_settle(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_settle_t *s, uint64_t now)
{
    int                      found;
    uint32_t                 id, common;
    unsigned                 rc;
    uint64_t                 clock, cached;
    kvr_peer_t              *peer;
    kvr_upstream_t          *upstream;
    kvr_index_peer_t        *p;
    kvr_feedback_response_t  r;

    id = a->reservation.peer;

    if (id == KVR_REGISTRY_NONE || s->tokens.prompt <= 0) {
        return 0;
    }

    peer = &zone->registry->peer[id];
    p = kvr_index_peer(zone->index, id);

    memset(&r, 0, sizeof(kvr_feedback_response_t));

    r.bytes = a->bytes;
    r.matched = a->matched;
    r.prompt = s->tokens.prompt;
    r.cached = s->tokens.cached;
    r.completion = s->tokens.completion;
    r.key = a->predicted;
    r.clock = a->clock;
    r.kind = s->kind;
    r.block = KVR_BLOCK;
    r.capacity = kvr_get(&p->source) >= KVR_INDEX_EXACT ? kvr_get(&p->capacity)
                                                        : 0;
    r.speculative = a->speculative;
    r.inserted = (uint64_t) a->prompted * KVR_BLOCK;
    r.age = a->age;
    r.unsized = s->unsized;
    r.sampled = s->sampled;
    r.alive = (pool->probe && kvr_engine_same(&peer->engine, now, pool->probe))
              || kvr_capacity_complete(zone, id, now);

    upstream = &zone->registry->upstream[pool->upstream];

    if (r.cached >= 0 && a->bytes && !s->sampled && !a->speculative) {
        common = (uint32_t) (r.inserted * (uint64_t) r.prompt / a->bytes);

        /* what was evicted says nothing about the model */

        if (common > (uint64_t) r.cached
            && kvr_feedback_old(&peer->feedback, &r))
        {
            common = 0;
        }

        kvr_resume_take(&upstream->resume, common, (uint32_t) r.cached);
    }

    if (r.cached >= 0 && a->bytes) {
        kvr_attempt_store(a, upstream, &r);
        kvr_attempt_price(a, zone, upstream, &r);
    }

    if (r.cached >= 0 && a->sampled) {
        kvr_whatif_delivered(kvr_attempt_whatif(a, zone),
                             (uint32_t) r.prompt, (uint32_t) r.cached);
    }

    r.step = (uint64_t) (kvr_resume_step(&upstream->resume)
                         * kvr_feedback_bytes(&peer->feedback));

    found = kvr_feedback_take(&peer->feedback, &r, s->seconds, &clock);

    rc = 0;

    if (found & KVR_FEEDBACK_FORGOT) {
        kvr_hooks(zone, flushed, id, clock);
        kvr_index_floor(zone->index, id, clock);

        /* the next probe must not report the same loss again */

        kvr_engine_renew(&peer->engine, now);

        rc |= KVR_ATTEMPT_FORGOT;
    }

    if (found & (KVR_FEEDBACK_MISSED|KVR_FEEDBACK_SHORT)) {
        cached = (uint64_t) kvr_max(s->tokens.cached, 0);

        kvr_attempt_computed(a, zone,
                             (uint32_t) (a->units * cached
                                         / (uint64_t) s->tokens.prompt));
    }

    if (found & KVR_FEEDBACK_MISSED) {
        rc |= a->entries ? KVR_ATTEMPT_REINSERT : 0;
    }

    if (a->entries && !s->unsized && !s->sampled
        && kvr_hooks_wants(zone, id))
    {
        rc |= KVR_ATTEMPT_REPORT;
    }

    /* the capacity is in tokens; their size in bytes is learned on the way */

    if (found & (KVR_FEEDBACK_MISSED|KVR_FEEDBACK_MORE)
        || kvr_get(&peer->feedback.responses) % KVR_ATTEMPT_LOOK == 1)
    {
        kvr_capacity_update(zone, pool, id, now);
    }

    return rc;
}


/*
 * Learns whether peers share a store: a peer delivers tokens that only others
 * were sent.
 */
static void
kvr_attempt_store(kvr_attempt_t *a, kvr_upstream_t *upstream,
    const kvr_feedback_response_t *r)
{
    uint32_t  store;
    uint64_t  own, delivered;

    own = (uint64_t) a->inserted * r->block;
    store = kvr_get(&upstream->store);

    if (store <= KVR_TIER_ONE / 2) {
        own = kvr_max(own, a->matched);
    }

    if (a->best < own + KVR_ATTEMPT_STORE * r->block) {
        return;
    }

    delivered = (uint64_t) r->cached * a->bytes / (uint64_t) r->prompt;

    store -= store / 16;

    if (delivered > own && (delivered - own) * 4 >= (a->best - own) * 3) {
        store += KVR_TIER_ONE / 16;
    }

    kvr_set(&upstream->store, store);
}


unsigned
kvr_attempt_end(const kvr_attempt_t *a)
{
    return a->reservation.peer != KVR_REGISTRY_NONE && a->undo.valid
           ? KVR_ATTEMPT_UNDO : 0;
}


/*
 * The engine found only these units, so it computed more than the insert
 * assumed.  With KV events the clock is moved by their reports.
 */
static void
kvr_attempt_computed(kvr_attempt_t *a, const kvr_zone_t *zone, uint32_t found)
{
    uint32_t  units;

    units = (uint32_t) (a->matched / KVR_BLOCK);
    a->more = units - kvr_min(units, found);

    if (a->more && !kvr_capacity_heard(zone, a->reservation.peer)) {
        kvr_attempt_write(a, zone, NULL, 0, 0, a->more, 0);
    }
}


/* Inserts again, with the stamps of an insert that expected this. */
void
kvr_attempt_reinsert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain)
{
    uint32_t  age;

    age = kvr_index_undo_age(zone->index, &a->undo);

    kvr_attempt_write(a, zone, chain, 0, a->entries, 0,
                      age - kvr_min(age, a->more));
}


void
kvr_attempt_report(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain, const kvr_tokens_t *tokens, uint64_t session,
    uint64_t now)
{
    kvr_settled_t  s;

    s.peer = a->reservation.peer;
    s.chain = chain;
    s.entries = a->entries;
    s.units = a->units;
    s.held = (uint32_t) (a->matched / KVR_BLOCK);
    s.prompted = a->prompted;
    s.bytes = a->bytes;
    s.start = a->start;
    s.first = a->start + a->ttft;
    s.now = now;
    s.session = session;
    s.prompt = tokens->prompt;
    s.cached = tokens->cached;
    s.completion = tokens->completion;

    kvr_hooks(zone, settled, &s);
}


void
kvr_attempt_extend(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_reply_t *reply)
{
    uint32_t  id, units, behind;
    uint64_t  others;

    id = a->reservation.peer;

    /* with KV events the clock has moved already */

    units = kvr_capacity_heard(zone, id) ? 0 : reply->blocks - reply->start;

    /* other requests use their blocks after this; not older than its prompt */

    others = kvr_load_get(zone->load,
                          kvr_registry_resident(zone->registry, id)).pending;
    behind = (uint32_t) kvr_min(others / KVR_BLOCK, UINT32_MAX);

    if (a->entries) {
        behind = kvr_min(behind, kvr_index_undo_age(zone->index, &a->undo));
    }

    if (a->sampled) {
        kvr_whatif_reply(kvr_attempt_whatif(a, zone), units);
    }

    kvr_attempt_write(a, zone, reply->value, reply->first, reply->n, units,
                      behind);
}


static void
kvr_attempt_write(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *value, uint32_t first, uint32_t n, uint32_t units,
    uint32_t behind)
{
    uint32_t  id;

    id = a->reservation.peer;

    kvr_index_extend(zone->index, value, first, n, units, id, behind);
    kvr_hooks(zone, extended, value, first, n, units, id, behind);
}


void
kvr_attempt_undo(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain)
{
    if (a->undo.valid) {
        a->undo.valid = 0;
        kvr_index_undo(zone->index, chain, a->entries, &a->undo);
        kvr_hooks(zone, undone, chain, a->entries, &a->undo);
    }
}
