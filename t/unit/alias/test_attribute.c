
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_attribute: finished requests are passed to it, and the events of their
 * blocks change the holders in the index.
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

    s.feeds.aliases = util_zeroed(kvr_attribute_size(UTIL_SCENE_PEERS, 0));
    kvr_attribute_init(s.feeds.aliases, UTIL_SCENE_PEERS, 0);
}


static void
teardown(void)
{
    free(s.feeds.aliases);
    util_scene_free(&s);
}


/* blocks of the prompt, named by their numbers */
static void
tell(kvr_kvevent_type_e type, uint32_t from, uint32_t to, uint64_t now)
{
    uint32_t        i;
    kvr_kvevent_t  *v;

    v = &s.event;
    memset(v, 0, offsetof(kvr_kvevent_t, hash));

    v->type = type;
    v->rooted = (from == 0);
    v->parent = 1000 + from - 1;
    v->block = BLOCK;
    v->blocks = to - from;

    for (i = from; i < to; i++) {
        v->hash[i - from] = 1000 + i;
        v->last = 1000 + i;
    }

    ck_assert(!kvr_sync_event(&s.feeds, s.peer, 0, v, now));
}


/* ends a request of this many units; returns whether it will be matched */
static int
request(uint32_t units, uint32_t matched, uint32_t cached, uint64_t start)
{
    int            rc;
    kvr_begin_t    b = { 0 };
    kvr_first_t    f = { 0 };
    kvr_insert_t   in = { 0 };
    kvr_settle_t   settle = { 0 };
    kvr_attempt_t  a;

    b.peer = s.peer;
    b.member = s.member;
    b.bytes = (uint64_t) units * UNIT + 10;
    b.matched = (uint64_t) matched * UNIT;
    b.pending = b.bytes - b.matched;
    b.resident = b.bytes;
    b.pool = &s.pool;

    kvr_attempt_begin(&a, &s.zone, &b, NULL, start);

    in.chain = s.chain;
    in.entries = kvr_chain_entries(units);
    in.units = units;
    in.held = matched;
    kvr_attempt_insert(&a, &s.zone, &in);

    tell(KVR_KVEVENT_STORED, cached * 4, units * 4, start + 90);

    f.ok = 1;
    f.stream = 1;
    (void) kvr_attempt_first(&a, &s.zone, &s.pool, &f, start + 100);

    (void) kvr_attempt_release(&a, &s.zone);

    settle.tokens.prompt = units * UNIT / 4 + 2;
    settle.tokens.cached = cached ? (int64_t) cached * UNIT / 4 : -1;
    settle.tokens.completion = 5;

    rc = kvr_attempt_settle(&a, &s.zone, &s.pool, &settle, start + 200);

    if (rc & KVR_ATTEMPT_REPORT) {
        kvr_attempt_report(&a, &s.zone, s.chain, &settle.tokens, 0,
                           start + 200);
    }

    (void) kvr_attempt_end(&a);

    return rc & KVR_ATTEMPT_REPORT;
}


static uint32_t
held(void)
{
    uint32_t  matched[KVR_PEERS] = { 0 };

    (void) kvr_index_lookup(s.zone.index, s.chain, UNITS, s.pool.set, matched);

    return matched[s.peer];
}


/* matched, removed, stored again */
TEST(test_attribute_blocks)
{
    kvr_index_undo_t     undo;
    kvr_events_alias_t  *count;

    count = &s.feeds.events[s.peer].alias;

    ck_assert(request(32, 0, 0, 10000));

    /* a little later, after all events */

    ck_assert_uint_eq(kvr_attribute_look(&s.feeds, 10, 10300), 0);
    ck_assert_uint_eq(kvr_attribute_look(&s.feeds, 10, 11300), 1);
    ck_assert_uint_eq(kvr_get(&count->attributed), 1);
    ck_assert_uint_eq(kvr_get(&count->used), 32);
    ck_assert_uint_eq(held(), 32);

    /* the last ten units; blocks that end no unit change nothing */

    tell(KVR_KVEVENT_REMOVED, 88, 128, 12000);
    ck_assert_uint_eq(held(), 22);
    ck_assert_uint_eq(kvr_get(&count->removed), 10);
    tell(KVR_KVEVENT_REMOVED, 84, 87, 12000);
    ck_assert_uint_eq(held(), 22);

    /* by any peer */

    tell(KVR_KVEVENT_STORED, 88, 128, 13000);
    ck_assert_uint_eq(kvr_get(&count->restored), 10);
    ck_assert_uint_eq(held(), 32);

    /* removed, also from the index */

    tell(KVR_KVEVENT_REMOVED, 0, 128, 14000);
    ck_assert_uint_eq(held(), 0);

    tell(KVR_KVEVENT_STORED, 0, 128, 15000);
    ck_assert_uint_eq(held(), 32);
    ck_assert_uint_eq(kvr_get(&count->wrong), 0);

    /* an empty cache, then a new process: blocks keep their names */

    s.event.type = KVR_KVEVENT_CLEARED;
    ck_assert(kvr_sync_event(&s.feeds, s.peer, 0, &s.event, 16000));
    ck_assert_uint_eq(held(), 0);

    tell(KVR_KVEVENT_STORED, 0, 80, 16100);
    ck_assert_uint_eq(held(), 20);

    /* prompts whose blocks are never stored */

    kvr_index_insert(s.zone.index, s.chain, 32, 32, s.peer, 0, &undo);
    s.event.type = KVR_KVEVENT_CLEARED;
    ck_assert(kvr_sync_event(&s.feeds, s.peer, 0, &s.event, 16200));
    ck_assert_uint_eq(held(), 0);

    tell(KVR_KVEVENT_STORED, 0, 128, 16300);
    ck_assert_uint_ge(held(), 31);

    kvr_sync_restart(&s.feeds, s.peer, 17000);
    ck_assert_uint_eq(held(), 0);

    tell(KVR_KVEVENT_STORED, 0, 128, 17100);
    ck_assert_uint_eq(held(), 32);
    ck_assert_uint_eq(kvr_get(&count->used), 32);

    /* another server has the slot */

    kvr_attribute_flush(&s.feeds, s.peer);
    ck_assert_uint_eq(kvr_get(&count->used), 0);

    /* new memory, with old counts */

    kvr_set(&count->used, 32);
    tell(KVR_KVEVENT_STORED, 0, 128, 18000);
    ck_assert_uint_eq(kvr_get(&count->used), 0);
}


/* an event before its prompt came must not be removed */
TEST(test_attribute_coming)
{
    kvr_index_undo_t  undo;

    ck_assert(request(32, 0, 0, 10000));
    ck_assert_uint_eq(kvr_attribute_look(&s.feeds, 10, 11300), 1);

    tell(KVR_KVEVENT_REMOVED, 0, 128, 12000);
    ck_assert_uint_eq(held(), 0);

    kvr_load_add(s.zone.load, s.zone.row, s.peer, 1, 32 * UNIT);
    kvr_index_insert(s.zone.index, s.chain, 32, 32, s.peer, 0, &undo);
    ck_assert_uint_eq(held(), 32);

    tell(KVR_KVEVENT_REMOVED, 100, 128, 12000);
    ck_assert_uint_eq(held(), 32);

    tell(KVR_KVEVENT_STORED, 0, 128, 12100);
    kvr_load_add(s.zone.load, s.zone.row, s.peer, -1, -32 * UNIT);
    tell(KVR_KVEVENT_REMOVED, 100, 128, 12200);
    ck_assert_uint_eq(held(), 25);
}


/*
 * blocks that are stored while requests wait were used earlier: they are older
 */
TEST(test_attribute_waiting)
{
    uint32_t          i, age;
    uint64_t          other[32];
    kvr_index_undo_t  undo;

    ck_assert(request(32, 0, 0, 10000));
    ck_assert_uint_eq(kvr_attribute_look(&s.feeds, 10, 11300), 1);

    tell(KVR_KVEVENT_REMOVED, 0, 128, 12000);

    for (i = 0; i < 32; i++) {
        other[i] = s.chain[i] ^ 1;
    }

    kvr_load_add(s.zone.load, s.zone.row, s.peer, 1, 32 * UNIT);
    kvr_index_insert(s.zone.index, other, 32, 32, s.peer, 0, &undo);

    tell(KVR_KVEVENT_STORED, 0, 128, 12100);
    ck_assert_uint_eq(held(), 32);

    (void) kvr_index_inserted(s.zone.index, s.chain, 32, s.peer, 0, &age);
    ck_assert_uint_ge(age, 63);
}


/* a killed writer, a slot with a new peer, a full ring */
TEST(test_attribute_ring)
{
    uint32_t           i;
    kvr_fifo_t  *ring;

    ring = &s.feeds.aliases->ring;

    tell(KVR_KVEVENT_STORED, 0, 4, 5000);

    kvr_add(&ring->head, 3);
    ck_assert(request(40, 0, 0, 10000));

    for (i = 0; i < 10 && kvr_get(&ring->tail) != kvr_get(&ring->head); i++) {
        (void) kvr_attribute_look(&s.feeds, 10, 20000 + 2000 * i);
    }

    ck_assert_uint_eq(kvr_get(&ring->tail), kvr_get(&ring->head));
    ck_assert_uint_eq(kvr_get(&s.feeds.events[s.peer].alias.attributed), 1);

    ck_assert(request(50, 0, 0, 30000));
    kvr_add(&s.zone.registry->peer[s.peer].generation, 1);
    ck_assert_uint_eq(kvr_attribute_look(&s.feeds, 10, 32000), 1);
    ck_assert_uint_eq(kvr_get(&s.feeds.events[s.peer].alias.attributed), 1);

    for (i = 0; i < 3000; i++) {
        ck_assert(request(40, 0, 0, 40000));
    }

    ck_assert_uint_gt(kvr_get(&s.feeds.events[s.peer].alias.dropped), 0);

    while (kvr_attribute_look(&s.feeds, 100, 50000)) { /* void */ }

    ck_assert_uint_eq(kvr_get(&ring->tail), kvr_get(&ring->head));
}


/* an engine that does not report cached tokens */
TEST(test_attribute_untold)
{
    kvr_events_alias_t  *count;

    count = &s.feeds.events[s.peer].alias;

    tell(KVR_KVEVENT_STORED, 0, 4, 5000);

    ck_assert(request(30, 0, 0, 10000));
    ck_assert(request(40, 30, 0, 20000));
    (void) kvr_attribute_look(&s.feeds, 10, 30000);
    ck_assert_uint_eq(kvr_get(&count->attributed), 1);
    ck_assert_uint_eq(kvr_get(&count->missing), 1);
    ck_assert(!kvr_attribute_most(&s.feeds, s.peer));
}


/* with events of single blocks, age need not decide: less is dropped */
TEST(test_attribute_most)
{
    unsigned           i;
    uint64_t           alone;
    kvr_index_peer_t  *p;
    kvr_alias_view_t   v;

    p = kvr_index_peer(s.zone.index, s.peer);
    v = kvr_attribute_peer(&s.feeds, s.peer);

    for (i = 0; i < 400; i++) {

        if (i >= 40) {
            tell(KVR_KVEVENT_REMOVED, (i - 40) * 32, (i - 39) * 32, 5000);
        }

        s.event.rooted = 1;
        tell(KVR_KVEVENT_STORED, i * 32, i * 32 + 32, 5000);
    }

    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    alone = kvr_get(&p->capacity);

    kvr_set(&v.shared->share, KVR_ALIAS_ONE);
    kvr_capacity_update(&s.zone, &s.pool, s.peer, 5000);
    ck_assert_uint_ge(kvr_get(&p->capacity), 2 * alone);
    ck_assert_uint_le(kvr_get(&p->capacity), 2 * alone + 1);
}


suite_around(setup, teardown);
