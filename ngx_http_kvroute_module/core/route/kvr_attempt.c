
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_attempt.h"
#include "core/route/kvr_capacity.h"
#include "core/response/kvr_reply.h"


/* tokens of a reply when nobody says */
#define KVR_ATTEMPT_OUTPUT      256

/* and at most: clients ask for far more than they get */
#define KVR_ATTEMPT_MAX_OUTPUT  2048

/* one in so many responses is a reason to look at the capacity again */
#define KVR_ATTEMPT_LOOK        16


static unsigned kvr_attempt_timed(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint64_t ms);
static void kvr_attempt_answered(kvr_attempt_t *a, const kvr_zone_t *zone);


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
    uint32_t            waiting;
    uint64_t            before;
    kvr_peer_t         *peer;
    kvr_reservation_t  *r;

    memset(a, 0, sizeof(kvr_attempt_t));

    a->start = now;
    a->bytes = b->bytes;
    a->matched = b->matched;
    a->rate = b->rate;

    r = &a->reservation;

    r->peer = b->peer;
    r->seat = b->seat;
    r->pending = b->pending;
    r->resident = b->resident;
    r->unanswered = !b->light;

    if (reserved && reserved->held && kvr_reservation_same(reserved, r)) {
        *r = *reserved;
        reserved->held = 0;

        kvr_reservation_sent(zone, r);

    } else {
        kvr_reserve(zone, r);

        if (reserved) {
            kvr_release(zone, reserved);
        }
    }

    /* what is no prompt tells nothing of how fast prompts are computed */

    if (b->peer == KVR_REGISTRY_NONE || b->light) {
        return;
    }

    peer = &zone->registry->peer[b->peer];

    before = kvr_load_get(zone->load, b->peer).pending;
    before -= kvr_min(before, b->pending);

    a->ahead = kvr_pace_give(&peer->pace, b->pending, before, now);

    /* its own is counted already */

    waiting = kvr_load_get(zone->load, kvr_registry_resident(b->peer)).active;

    a->timed = kvr_timing_give(&peer->timing, b->pending, waiting > 1);
}


void
kvr_attempt_insert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_insert_t *in)
{
    uint32_t     k, id;
    kvr_loop_t  *loop;

    id = a->reservation.peer;

    if (id == KVR_REGISTRY_NONE || in->entries == 0) {
        return;
    }

    loop = &zone->registry->peer[id].loop;
    k = kvr_min(kvr_chain_entries(in->held), in->entries);

    a->entries = in->entries;
    a->units = in->units;
    a->clock = kvr_index_clock(zone->index, id);

    /* what it is held to: the deepest block that it is believed to have */

    if (k) {
        a->predicted = in->chain[k - 1];
        a->young = kvr_inflight_any(&loop->inflight, in->chain, k);
    }

    /*
     * An engine that does not look into its cache says nothing of what is
     * there.  It keeps what it computes all the same, as so many new blocks:
     * the insert is that of a prompt of which nothing was held.
     */

    if (!in->skips) {
        a->taught = kvr_index_taught(zone->index, in->chain, in->entries, id,
                                     in->held, &a->age);

        a->prompted = kvr_index_prompted(zone->index, in->chain, a->taught,
                                         id, KVR_REPLY_VALUES, &a->age);
    }

    if (k < in->entries) {
        a->awaited = kvr_inflight_add(&loop->inflight, in->chain, k);
    }

    /* what another attempt may still undo gets stamps of this one as well */

    if (a->young) {
        kvr_index_learn(zone->index, in->chain, in->entries, in->units, id,
                        in->held, &a->lesson);

    } else {
        kvr_index_repeat(zone->index, in->chain, in->entries, in->units, id,
                         in->held, &a->lesson);
    }
}


unsigned
kvr_attempt_first(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_first_t *f, uint64_t now)
{
    unsigned     rc, light;
    uint64_t     ms;
    kvr_peer_t  *peer;

    if (!a->reservation.held || a->started) {
        return 0;
    }

    a->started = 1;

    light = !a->reservation.unanswered;
    ms = now - a->start;

    kvr_reservation_answered(zone, &a->reservation);
    kvr_attempt_answered(a, zone);

    if (!f->ok) {
        return 0;
    }

    a->lesson.valid = 0;

    if (a->reservation.peer == KVR_REGISTRY_NONE) {
        return 0;
    }

    peer = &zone->registry->peer[a->reservation.peer];

    kvr_set(&peer->signal.success, now);

    if (light) {
        return 0;
    }

    rc = 0;

    if (f->popular) {
        kvr_popular_add(zone->popular, f->popular, now);
    }

    /* what is no stream begins when all of it is there */

    if (f->stream && f->plain) {
        rc = kvr_attempt_timed(a, zone, pool, ms);
    }

    kvr_pace_first(&peer->pace, a->ahead, ms, now);

    if (f->stream) {
        kvr_pace_waited(&peer->pace, a->ahead, a->matched, ms, a->rate, now);
    }

    return rc;
}


/*
 * Of an engine that tells neither what it can hold nor what it held, the time
 * to the first token says whether it held what was inserted there before.
 */
static unsigned
kvr_attempt_timed(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, uint64_t ms)
{
    int                  found;
    uint32_t             id;
    kvr_peer_t          *peer;
    kvr_upstream_t      *upstream;
    kvr_timing_first_t   first;

    id = a->reservation.peer;
    peer = &zone->registry->peer[id];

    if (a->timed == 0 || a->young) {
        return 0;
    }

    /* others' requests take time as well */

    if (kvr_get(&zone->index->peer[id].reported)
        || kvr_get(&peer->loop.told)
        || kvr_get(&peer->signal.foreign))
    {
        return 0;
    }

    upstream = &zone->registry->upstream[
                        zone->registry->seat[a->reservation.seat].upstream];

    first.bytes = a->bytes;
    first.taught = (uint64_t) a->taught * zone->unit;
    first.reply = (uint64_t) (a->taught - a->prompted) * zone->unit;
    first.ms = ms;
    first.given = a->timed;

    found = kvr_timing_first(&peer->timing, &upstream->pace, &first);

    if (found == KVR_TIMING_NOTHING
        || !kvr_loop_timed(&peer->loop, a->age, found == KVR_TIMING_HELD))
    {
        return 0;
    }

    if (found == KVR_TIMING_LOST
        || kvr_get(&peer->loop.timed_held) % KVR_ATTEMPT_LOOK == 1)
    {
        kvr_capacity_update(zone, pool, id);
    }

    a->found = 0;

    return found == KVR_TIMING_LOST && a->matched ? KVR_ATTEMPT_REINSERT : 0;
}


int
kvr_attempt_release(kvr_attempt_t *a, const kvr_zone_t *zone)
{
    if (!a->reservation.held) {
        return 0;
    }

    kvr_release(zone, &a->reservation);

    return 1;
}


unsigned
kvr_attempt_settle(kvr_attempt_t *a, const kvr_zone_t *zone,
    const kvr_pool_t *pool, const kvr_settle_t *s, uint64_t now)
{
    int                   found;
    uint32_t              id;
    unsigned              rc;
    uint64_t              clock, cached;
    kvr_peer_t           *peer;
    kvr_index_peer_t     *p;
    kvr_loop_response_t   r;

    id = a->reservation.peer;

    if (id == KVR_REGISTRY_NONE || s->tokens.prompt <= 0) {
        return 0;
    }

    peer = &zone->registry->peer[id];
    p = &zone->index->peer[id];

    memset(&r, 0, sizeof(kvr_loop_response_t));

    r.bytes = a->bytes;
    r.matched = a->matched;
    r.prompt = s->tokens.prompt;
    r.cached = s->tokens.cached;
    r.completion = s->tokens.completion;
    r.key = a->predicted;
    r.clock = a->clock;
    r.kind = s->kind;
    r.block = (uint32_t) zone->unit;
    r.capacity = kvr_get(&p->reported) ? kvr_get(&p->capacity) : 0;
    r.young = a->young;
    r.taught = (uint64_t) a->prompted * zone->unit;
    r.age = a->age;
    r.odd = s->odd;
    r.sampled = s->sampled;
    r.alive = pool->probe && kvr_signal_same(&peer->signal, now, pool->probe);

    found = kvr_loop_take(&peer->loop, &r, s->seconds, &clock);

    rc = 0;

    if (found & KVR_LOOP_FORGOT) {
        kvr_index_floor(zone->index, id, clock);

        /* the next probe is not to tell the same again */

        kvr_signal_renew(&peer->signal, now);

        rc |= KVR_ATTEMPT_FORGOT;
    }

    if (found & KVR_LOOP_MISSED) {
        cached = (uint64_t) kvr_max(s->tokens.cached, 0);

        a->found = (uint32_t) (a->units * cached
                               / (uint64_t) s->tokens.prompt);

        rc |= a->entries ? KVR_ATTEMPT_REINSERT : 0;
    }

    /* tokens of the capacity are bytes to us, and how many becomes clear */

    if (found & KVR_LOOP_MISSED
        || kvr_get(&peer->loop.responses) % KVR_ATTEMPT_LOOK == 1)
    {
        kvr_capacity_update(zone, pool, id);
    }

    return rc;
}


unsigned
kvr_attempt_end(kvr_attempt_t *a, const kvr_zone_t *zone, uint64_t now)
{
    uint32_t  id;

    id = a->reservation.peer;

    kvr_attempt_answered(a, zone);

    if (id == KVR_REGISTRY_NONE) {
        return 0;
    }

    kvr_pace_end(&zone->registry->peer[id].pace, now - a->start, now);

    return a->lesson.valid ? KVR_ATTEMPT_UNDO : 0;
}


/* others may be held to what this one has brought there */
static void
kvr_attempt_answered(kvr_attempt_t *a, const kvr_zone_t *zone)
{
    kvr_peer_t  *peer;

    if (a->awaited) {
        peer = &zone->registry->peer[a->reservation.peer];
        kvr_inflight_answered(&peer->loop.inflight, a->awaited);
        a->awaited = 0;
    }
}


void
kvr_attempt_reinsert(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain)
{
    kvr_lesson_t  lesson;

    kvr_index_learn(zone->index, chain, a->entries, a->units,
                    a->reservation.peer, a->found, &lesson);
}


void
kvr_attempt_undo(kvr_attempt_t *a, const kvr_zone_t *zone,
    const uint64_t *chain)
{
    if (a->lesson.valid) {
        a->lesson.valid = 0;
        kvr_index_forget(zone->index, chain, a->entries, &a->lesson);
    }
}
