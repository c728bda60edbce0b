
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_capacity: how KV events change a peer's clock and capacity, and what is
 * restored when they end.
 */


#include "util_scene.h"
#include "util.h"


#define UNITS  UTIL_SCENE_UNITS
#define UNIT   UTIL_SCENE_UNIT
#define BLOCK  UTIL_SCENE_BLOCK


static util_scene_t  s;


static void
setup(void)
{
    util_scene(&s);
}


static void
teardown(void)
{
    util_scene_free(&s);
}


static uint64_t
clock_now(void)
{
    return kvr_index_clock(s.zone.index, s.peer);
}


static void
insert(uint32_t units, uint32_t matched)
{
    kvr_index_undo_t  undo;

    kvr_index_insert(s.zone.index, s.chain, kvr_chain_entries(units), units,
                     s.peer, matched, &undo);
}


/* the engine's metrics report a capacity */
static void
report(uint64_t tokens, uint64_t now)
{
    kvr_metrics_t  m = { 0 };

    m.set = KVR_METRICS_RUNNING|(tokens ? KVR_METRICS_CAPACITY : 0);
    m.capacity = tokens;

    (void) kvr_engine_take(&s.zone.registry->peer[s.peer].engine, &m, 0, 0,
                           now);
}


static void
is(kvr_index_source_e source, uint64_t units, uint64_t now)
{
    kvr_index_peer_t  *p;

    p = kvr_index_peer(s.zone.index, s.peer);

    kvr_capacity_update(&s.zone, &s.pool, s.peer, now);

    util_check(kvr_get(&p->source) == source && kvr_get(&p->capacity) == units,
               "%u, %s", kvr_get(&p->capacity),
               kvr_capacity_source(kvr_get(&p->source)));
}


/* applies an event with blocks of these units; 0: all cleared */
static int
tell(kvr_kvevent_type_e type, uint32_t units)
{
    uint32_t        i;
    kvr_kvevent_t  *v;

    v = &s.event;
    memset(v, 0, offsetof(kvr_kvevent_t, hash));

    v->type = type;
    v->rooted = 1;
    v->block = BLOCK;
    v->blocks = units * 4;

    for (i = 0; i < v->blocks && i < KVR_KVEVENT_HASHES; i++) {
        v->hash[i] = s.next + i;
        v->last = v->hash[i];
    }

    return kvr_sync_event(&s.feeds, s.peer, 0, v, 5000);
}


static uint32_t
held(void)
{
    uint32_t  matched[KVR_PEERS] = { 0 };

    (void) kvr_index_lookup(s.zone.index, s.chain, UNITS, s.pool.set, matched);

    return matched[s.peer];
}


/* an insert moves the clock, the event of its blocks does not */
TEST(test_capacity_clock)
{
    uint64_t  start;

    /* no events: as before */

    start = clock_now();
    insert(40, 0);
    ck_assert_uint_eq(clock_now(), start + 40);
    ck_assert(!kvr_capacity_complete(&s.zone, s.peer, 5000));

    /* the first event: no prediction before it */

    start = clock_now();
    ck_assert(!tell(KVR_KVEVENT_STORED, 10));
    ck_assert_uint_eq(clock_now(), start + 10);
    ck_assert(kvr_capacity_complete(&s.zone, s.peer, 5000));

    /* a prompt, reported in two parts; then its reply, and another prompt */

    insert(60, 40);
    ck_assert_uint_eq(clock_now(), start + 30);
    tell(KVR_KVEVENT_STORED, 12);
    ck_assert_uint_eq(clock_now(), start + 30);
    tell(KVR_KVEVENT_STORED, 8);
    ck_assert_uint_eq(clock_now(), start + 30);
    tell(KVR_KVEVENT_STORED, 5);
    ck_assert_uint_eq(clock_now(), start + 35);

    /* less was computed than expected: the rest is added */

    insert(30, 0);
    ck_assert_uint_eq(clock_now(), start + 65);
    tell(KVR_KVEVENT_STORED, 10);
    tell(KVR_KVEVENT_STORED, 25);
    ck_assert_uint_eq(clock_now(), start + 70);

    /* other memory tiers, and layers of another group */

    s.next = 1000;
    memset(&s.event, 0, sizeof(s.event));
    s.event.type = KVR_KVEVENT_STORED;
    s.event.block = BLOCK;
    s.event.blocks = 100;
    s.event.elsewhere = 1;
    (void) kvr_sync_event(&s.feeds, s.peer, 0, &s.event, 5000);
    s.event.elsewhere = 0;
    s.event.group = 3;
    (void) kvr_sync_event(&s.feeds, s.peer, 0, &s.event, 5000);
    ck_assert_uint_eq(clock_now(), start + 70);
}


/* events are not trusted if a quarter of the capacity is never confirmed */
TEST(test_capacity_silent)
{
    unsigned  i;

    tell(KVR_KVEVENT_STORED, 1);

    for (i = 0; i < 4; i++) {
        insert(60, 0);
        ck_assert(kvr_capacity_heard(&s.zone, s.peer));
    }

    insert(60, 0);
    ck_assert(!kvr_capacity_heard(&s.zone, s.peer));
    ck_assert(!kvr_capacity_complete(&s.zone, s.peer, 5000));

    /* events are trusted again, and the overdue part is dropped */

    tell(KVR_KVEVENT_STORED, 1);
    ck_assert(kvr_capacity_heard(&s.zone, s.peer));

    kvr_sync_stopped(&s.zone, &s.pool, s.peer, 5000);
    ck_assert(!kvr_capacity_heard(&s.zone, s.peer));

    /* after lost events they are not trusted for a minute */

    tell(KVR_KVEVENT_STORED, 1);
    kvr_set(&s.feeds.events[s.peer].doubt, 5000);
    ck_assert(!kvr_capacity_complete(&s.zone, s.peer, 6000));
    ck_assert(kvr_capacity_complete(&s.zone, s.peer, 70000));
}


/*
 * Replies and misses are no reason for distrust: the engine has reported their
 * blocks before they end.
 */
TEST(test_capacity_replies)
{
    uint32_t       i;
    uint64_t       start;
    kvr_reply_t    reply = { 0 };
    kvr_attempt_t  at = { 0 };

    tell(KVR_KVEVENT_STORED, 10);
    start = clock_now();

    at.reservation.peer = s.peer;
    reply.blocks = 100;

    for (i = 0; i < 100; i++) {
        kvr_attempt_extend(&at, &s.zone, &reply);
    }

    at.entries = 1;

    for (i = 0; i < 100; i++) {
        kvr_attempt_reinsert(&at, &s.zone, s.chain);
    }

    ck_assert_uint_eq(clock_now(), start);
    ck_assert(kvr_capacity_heard(&s.zone, s.peer));
}


TEST(test_capacity_cleared)
{
    kvr_peer_t  *peer;

    peer = &s.zone.registry->peer[s.peer];

    tell(KVR_KVEVENT_STORED, 1);
    insert(UNITS, 0);
    tell(KVR_KVEVENT_STORED, UNITS);
    ck_assert_uint_eq(held(), UNITS);

    kvr_set(&peer->feedback.misses, 2);

    ck_assert(tell(KVR_KVEVENT_CLEARED, 0));
    ck_assert_uint_eq(held(), 0);
    ck_assert_uint_eq(kvr_get(&peer->feedback.by_event), 1);
    ck_assert_uint_eq(kvr_get(&peer->feedback.misses), 0);
    ck_assert_uint_eq(kvr_get(&s.feeds.events[s.peer].cleared), 1);

    /* requests that were in flight then are stored afterwards */

    insert(UNITS, 0);
    kvr_load_add(s.zone.load, s.zone.row, s.peer, 1, UNITS * UNIT);
    ck_assert(tell(KVR_KVEVENT_CLEARED, 0));
    ck_assert_uint_ge(held(), UNITS - 1);

    /* blocks of a new process are not */

    kvr_sync_restart(&s.feeds, s.peer, 5000);
    ck_assert_uint_eq(held(), 0);
    ck_assert_uint_eq(kvr_get(&s.feeds.events[s.peer].restarts), 1);
}


/*
 * the age of removed blocks is the capacity, unless a smaller one is reported
 */
TEST(test_capacity_age)
{
    unsigned           i;
    uint32_t           resident;
    kvr_peer_t        *peer;
    kvr_index_peer_t  *p;

    peer = &s.zone.registry->peer[s.peer];
    p = kvr_index_peer(s.zone.index, s.peer);

    /* a cache of 40 events of 8 units: the 41st evicts the first */

    for (i = 0; i < 400; i++) {

        if (i >= 40) {
            s.next = (i - 40) * 1000;
            tell(KVR_KVEVENT_REMOVED, 8);
        }

        s.next = i * 1000;
        tell(KVR_KVEVENT_STORED, 8);
    }

    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);

    ck_assert_uint_eq(kvr_get(&p->source), KVR_INDEX_EVENTS);
    util_check(kvr_get(&p->capacity) > 300 && kvr_get(&p->capacity) < 340,
               "%u", kvr_get(&p->capacity));

    /* 500 units in flight are in use, and not removed at any age */

    resident = kvr_registry_resident(s.zone.registry, s.peer);

    kvr_load_add(s.zone.load, s.zone.row, resident, 4, 500 * UNIT);
    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    ck_assert_uint_eq(kvr_get(&p->capacity), 500);

    kvr_load_add(s.zone.load, s.zone.row, resident, -4, -500 * UNIT);
    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    ck_assert_uint_lt(kvr_get(&p->capacity), 340);

    /* its metrics report less: 200 units */

    report(200 * UNIT / 4, 5000);
    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    ck_assert_uint_eq(kvr_get(&p->capacity), 200);

    /* the clock contains ten replies in progress, as they are reported */

    kvr_set(&peer->feedback.output, 64 * KVR_FEEDBACK_OUTPUT);
    kvr_load_add(s.zone.load, s.zone.row, s.peer, 10, 0);
    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    ck_assert_uint_eq(kvr_get(&p->capacity), 200);

    /* or by more */

    kvr_set(&peer->engine.capacity, 0);
    report(900 * UNIT / 4, 5000);
    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    util_check(kvr_get(&p->capacity) < 340, "%u", kvr_get(&p->capacity));

    /* without events metrics count, without these the assumption */

    kvr_sync_stopped(&s.zone, &s.pool, s.peer, 5000);
    ck_assert_uint_eq(kvr_get(&p->capacity), 900 - 10 * 64 / 2 * 4 / UNIT);

    kvr_set(&peer->engine.reported, 0);
    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    ck_assert_uint_eq(kvr_get(&p->source), KVR_INDEX_ASSUMED);
    ck_assert_uint_eq(kvr_get(&p->capacity), 1000);
}


/* each source counts until a better one is known, or is lost */
TEST(test_capacity_trust)
{
    unsigned     i;
    kvr_peer_t  *peer;

    peer = &s.zone.registry->peer[s.peer];

    is(KVR_INDEX_ASSUMED, 1000, 5000);

    for (i = 0; i < 20; i++) {
        kvr_retention_note(&peer->feedback.retention, 300, 1);
        kvr_retention_note(&peer->feedback.retention, 600, 0);
    }

    is(KVR_INDEX_LEARNED, 512, 5000);

    report(500 * UNIT / 4, 5000);
    is(KVR_INDEX_REPORTED, 500, 5000);

    kvr_capacity_configured(&s.zone, &s.pool, s.peer, 1, 5000);
    is(KVR_INDEX_CONFIGURED, 1000, 5000);

    kvr_capacity_set(&s.zone, &s.pool, s.peer, 1500, 5000);
    is(KVR_INDEX_SET, 1500, 5000);

    /* a report, a reload, and an upstream with another assumption */

    report(400 * UNIT / 4, 6000);
    kvr_capacity_configured(&s.zone, &s.pool, s.peer, 0, 6000);
    (void) kvr_registry_peer(s.zone.registry, s.zone.load, s.zone.row,
                             s.zone.index, "a:1", 3, 900);
    is(KVR_INDEX_SET, 1500, 6000);

    kvr_capacity_set(&s.zone, &s.pool, s.peer, 0, 6000);
    is(KVR_INDEX_REPORTED, 400, 6000);

    /* it reports that it caches nothing */

    kvr_set(&peer->engine.set, KVR_METRICS_NO_CACHE);
    is(KVR_INDEX_REPORTED, 1, 6000);
    kvr_set(&peer->engine.set, 0);

    kvr_capacity_configured(&s.zone, &s.pool, s.peer, 1, 6000);
    is(KVR_INDEX_CONFIGURED, 900, 6000);
    kvr_capacity_configured(&s.zone, &s.pool, s.peer, 0, 6000);
    is(KVR_INDEX_REPORTED, 400, 6000);
}


/* a capacity that is not reported any more counts for sixty intervals */
TEST(test_capacity_fade)
{
    kvr_index_peer_t  *p;

    p = kvr_index_peer(s.zone.index, s.peer);
    s.pool.probe = 100;

    report(500 * UNIT / 4, 5000);
    is(KVR_INDEX_REPORTED, 500, 11000);

    /* answers without it, or with an absurd value */

    report(0, 10000);
    is(KVR_INDEX_REPORTED, 500, 11000);

    kvr_capacity_fade(&s.zone, &s.pool, s.peer, 11000, 11);
    ck_assert_uint_eq(kvr_get(&p->source), KVR_INDEX_REPORTED);

    kvr_capacity_fade(&s.zone, &s.pool, s.peer, 11001, 11);
    ck_assert_uint_eq(kvr_get(&p->source), KVR_INDEX_ASSUMED);
    ck_assert_uint_eq(kvr_get(&p->capacity), 1000);

    report(500 * UNIT / 4, 12000);
    is(KVR_INDEX_REPORTED, 500, 12000);

    /* no more probes: a minute */

    s.pool.probe = 0;
    kvr_capacity_fade(&s.zone, &s.pool, s.peer, 72000, 72);
    ck_assert_uint_eq(kvr_get(&p->source), KVR_INDEX_REPORTED);
    kvr_capacity_fade(&s.zone, &s.pool, s.peer, 72001, 72);
    ck_assert_uint_eq(kvr_get(&p->source), KVR_INDEX_ASSUMED);
}


/* a report counts up to the possible size, and up to what responses prove */
TEST(test_capacity_lies)
{
    unsigned        i;
    kvr_feedback_t  *feedback;

    feedback = &s.zone.registry->peer[s.peer].feedback;

    report(16000000000ULL, 5000);
    is(KVR_INDEX_REPORTED, 1000, 5000);

    for (i = 0; i < 50; i++) {
        insert(60, 0);
    }

    is(KVR_INDEX_REPORTED, 6000, 5000);

    /* it was emptied: earlier prompts do not count any more */

    kvr_index_flush(s.zone.index, s.peer);
    is(KVR_INDEX_REPORTED, 1000, 5000);

    for (i = 0; i < 50; i++) {
        insert(60, 0);
    }

    for (i = 0; i < 20; i++) {
        kvr_retention_note(&feedback->retention, 300, 1);
        kvr_retention_note(&feedback->retention, 600, 0);
    }

    i = KVR_CAPACITY_PROVED * 512;
    is(KVR_INDEX_REPORTED, i, 5000);

    /* misses lower it, like any report */

    kvr_set(&feedback->factor, KVR_FEEDBACK_ONE / 4);
    is(KVR_INDEX_REPORTED, i / 4, 5000);
}


/*
 * Hits on blocks a quarter older than the report prove lower tiers.  Hits on
 * blocks older than what misses and replies have left of it do not.
 */
TEST(test_capacity_beyond)
{
    unsigned         i;
    kvr_feedback_t  *feedback;

    feedback = &s.zone.registry->peer[s.peer].feedback;

    report(400 * UNIT / 4, 5000);
    kvr_set(&feedback->factor, KVR_FEEDBACK_ONE * 7 / 10);
    is(KVR_INDEX_REPORTED, 279, 5000);

    for (i = 0; i < 20; i++) {
        kvr_retention_note(&feedback->retention, 450, 1);
    }

    is(KVR_INDEX_REPORTED, 279, 5000);

    for (i = 0; i < 20; i++) {
        kvr_retention_note(&feedback->retention, 800, 1);
    }

    is(KVR_INDEX_LEARNED, 1000, 5000);
}


/* a configured size is a guess, which replies raise and lower */
TEST(test_capacity_told)
{
    unsigned          i;
    kvr_retention_t  *seen;

    seen = &s.zone.registry->peer[s.peer].feedback.retention;

    report(400 * UNIT / 4, 5000);
    kvr_capacity_told(&s.zone, &s.pool, s.peer, 900, 0, 5000);
    is(KVR_INDEX_CONFIGURED, 4 * 900, 5000);

    for (i = 0; i < 20; i++) {
        kvr_retention_note(seen, 500, 1);
        kvr_retention_note(seen, 700, 0);
    }

    is(KVR_INDEX_CONFIGURED, 640, 5000);

    for (i = 0; i < 60; i++) {
        kvr_retention_note(seen, 700, 1);
        kvr_retention_note(seen, 3000, 1);
    }

    is(KVR_INDEX_CONFIGURED, 4 * 900, 5000);

    for (i = 0; i < 20; i++) {
        kvr_retention_note(seen, 9000, 1);
        kvr_retention_note(seen, 12000, 0);
    }

    is(KVR_INDEX_CONFIGURED, 10240, 5000);

    /* the operator removes the tier, or sets an absurd size */

    memset((void *) seen, 0, sizeof(kvr_retention_t));

    kvr_capacity_told(&s.zone, &s.pool, s.peer, 100, 0, 5000);
    is(KVR_INDEX_REPORTED, 400, 5000);

    kvr_capacity_told(&s.zone, &s.pool, s.peer, 0, UINT64_MAX, 5000);
    is(KVR_INDEX_CONFIGURED, 1U << 28, 5000);

    kvr_capacity_told(&s.zone, &s.pool, s.peer, 0, 0, 5000);
    is(KVR_INDEX_REPORTED, 400, 5000);
}


/*
 * With any metrics, events, replies and settings in any order, the assumed
 * sizes are bounded, and a load costs at most as much as computing all.
 */
TEST(test_capacity_hostile)
{
    uint32_t           i, matched[KVR_PEERS], loads[KVR_PEERS];
    uint64_t           now, believed;
    util_rng_t         r;
    kvr_tier_t        *tier;
    kvr_pool_t         other;
    kvr_kvevent_t      e, sent[8];
    kvr_index_peer_t  *p;
    kvr_candidate_t    c;
    kvr_view_t         v;

    static const uint64_t  sizes[] = {
        0, 1, 300, 5000, 1000000000000000000ULL, UINT64_MAX
    };

    util_seed(&r, "capacity hostile", 0);
    memset(sent, 0, sizeof(sent));

    p = kvr_index_peer(s.zone.index, s.peer);
    tier = s.zone.registry->peer[s.peer].tier;

    /* another upstream, with another model, uses the same peer */

    other = s.pool;
    other.upstream = s.zone.registry->member[
        kvr_registry_member(s.zone.registry, s.zone.load, s.zone.row, s.peer,
                            "other", 5)].upstream;

    for (i = 0, now = 5000; i < 20000; i++) {

        now += util_below(&r, 2000);

        switch (util_below(&r, 8)) {

        case 0:
            report(sizes[util_below(&r, 6)], now);
            break;

        case 1:
            kvr_capacity_told(&s.zone, &s.pool, s.peer,
                              sizes[util_below(&r, 6)],
                              sizes[util_below(&r, 6)], now);
            break;

        case 2:
            kvr_capacity_set(&s.zone, &s.pool, s.peer,
                             util_below(&r, 4) ? 0 : sizes[util_below(&r, 6)],
                             now);
            break;

        case 3:
            insert(1 + util_below(&r, UNITS), util_below(&r, UNITS));
            break;

        case 4:
            kvr_retention_note(&s.zone.registry->peer[s.peer]
                               .feedback.retention,
                               (uint32_t) util_next(&r) >> util_below(&r, 32),
                               util_below(&r, 2));
            break;

        case 5:
            kvr_capacity_fade(&s.zone, &s.pool, s.peer, now,
                              (uint32_t) (now / 1000));
            break;

        default:
            memset(&e, 0, sizeof(e));

            e.type = util_below(&r, 20) ? 1 + util_below(&r, 2)
                                        : util_below(&r, 4);
            e.elsewhere = util_below(&r, 2);
            e.below = util_below(&r, 2);
            e.rooted = util_below(&r, 2);
            e.block = util_below(&r, 3) ? BLOCK : (uint32_t) util_next(&r);
            e.blocks = util_next(&r) >> (40 + util_below(&r, 24));
            e.tokens = e.blocks * e.block;
            e.hash[0] = e.last = util_below(&r, 100);

            /* again, later, in another order */

            sent[util_below(&r, 8)] = e;
            (void) kvr_sync_event(&s.feeds, s.peer, 0,
                                  &sent[util_below(&r, 8)], now);
        }

        kvr_capacity_update(&s.zone, util_below(&r, 2) ? &s.pool : &other,
                            s.peer, now);

        believed = kvr_get(&p->capacity);

        util_check(believed <= 1U << 28
                   && kvr_get(&tier[KVR_TIER_GPU].until) <= believed
                   && kvr_get(&tier[KVR_TIER_HOST].until) <= believed,
                   "%lu", (unsigned long) believed);

        memset(matched, 0, sizeof(matched));
        kvr_index_lookup(s.zone.index, s.chain, UNITS, s.pool.set, matched);

        memset(&v, 0, sizeof(v));
        memset(&c, 0, sizeof(c));

        if (kvr_candidate_deliver(&s.zone, util_below(&r, 2) ? &s.pool : &other,
                                  s.chain, s.pool.set, matched, loads))
        {
            v.zone = &s.zone;
            v.pool = &s.pool;
            v.bytes = UNITS * UNIT;
            v.loads = loads;
            c.resident = util_next(&r) >> util_below(&r, 64);

            kvr_candidate_tiers(&v, &c, s.peer);
        }

        util_check(matched[s.peer] <= UNITS && c.load <= UNITS * UNIT
                   && c.pending <= UNITS * UNIT, "%u, %lu, %lu",
                   matched[s.peer], (unsigned long) c.load,
                   (unsigned long) c.pending);
    }
}


/* events of blocks in host memory: then reports mean GPU memory only */
TEST(test_capacity_below)
{
    report(400 * UNIT / 4, 5000);
    is(KVR_INDEX_REPORTED, 400, 5000);

    /* events of an unknown memory tier change nothing */

    memset(&s.event, 0, sizeof(s.event));
    s.event.type = KVR_KVEVENT_STORED;
    s.event.elsewhere = 1;
    (void) kvr_sync_event(&s.feeds, s.peer, 0, &s.event, 5000);
    is(KVR_INDEX_REPORTED, 400, 5000);

    s.event.below = 1;
    (void) kvr_sync_event(&s.feeds, s.peer, 0, &s.event, 5000);
    is(KVR_INDEX_LEARNED, 1000, 5000);

    /* a new process can be without it */

    kvr_sync_restart(&s.feeds, s.peer, 5000);
    is(KVR_INDEX_REPORTED, 400, 5000);
}


suite_around(setup, teardown);
