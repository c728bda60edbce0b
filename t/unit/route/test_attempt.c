
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_attempt, kvr_reservation, kvr_admission: the course of a request through
 * the router, without nginx.
 */


#include "core/route/kvr_capacity.h"
#include "util_hot.h"
#include "util_zone.h"
#include "util.h"


#define LINES  1024
#define UNITS  28
#define UNIT   256


typedef struct {
    kvr_zone_t      zone;
    kvr_pool_t      pool;
    kvr_attempt_t   at;
    uint32_t        peer;
    uint32_t        member;
    uint64_t        chain[UNITS];
    kvr_hot_keys_t *hot;         /* of the request, or NULL */
    uint64_t        now;
} scene_t;


static scene_t  s;


static void
setup(void)
{
    uint32_t     i;
    kvr_zone_t  *z;

    memset(&s, 0, sizeof(scene_t));

    z = &s.zone;

    util_zone(z, 4, LINES);

    s.peer = kvr_registry_peer(z->registry, z->load, z->row, z->index,
                               "a:1", 3, 1 << 20);
    s.member = kvr_registry_member(z->registry, z->load, z->row, s.peer, "u",
                                   1);

    s.pool.set = kvr_set_of(s.peer);
    s.pool.max_waiting = -1;

    for (i = 0; i < UNITS; i++) {
        s.chain[i] = kvr_mix(i + 1, 42) | 1ULL << 63;
    }

    s.now = 1000000;
}


static void
teardown(void)
{
    util_zone_free(&s.zone);
}


static void
begin(uint64_t matched, kvr_reservation_t *reserved)
{
    kvr_begin_t  b = { 0 };

    b.peer = s.peer;
    b.member = s.member;
    b.bytes = UNITS * UNIT;
    b.matched = matched;
    b.pending = b.bytes - matched;
    b.resident = kvr_attempt_resident(b.bytes, 0);

    kvr_attempt_begin(&s.at, &s.zone, &b, reserved, s.now);
}


static void
insert(uint32_t held)
{
    kvr_insert_t  in = { 0 };

    in.chain = s.chain;
    in.entries = UNITS;
    in.units = UNITS;
    in.held = held;

    kvr_attempt_insert(&s.at, &s.zone, &in);
}


static unsigned
first(unsigned ok)
{
    kvr_first_t  f = { 0 };

    f.ok = ok;
    f.stream = 1;
    f.plain = 1;
    f.hot = s.hot;

    return kvr_attempt_first(&s.at, &s.zone, &s.pool, &f, s.now);
}


static unsigned
settle(int64_t cached)
{
    kvr_settle_t  e = { 0 };

    e.tokens.prompt = UNITS * UNIT / 4;
    e.tokens.cached = cached;
    e.tokens.completion = 10;
    e.seconds = (uint32_t) (s.now / 1000);

    return kvr_attempt_settle(&s.at, &s.zone, &s.pool, &e, s.now);
}


/* releases and ends it twice: the second time changes nothing */
static unsigned
end(void)
{
    unsigned  rc;

    ck_assert_int_eq(kvr_attempt_release(&s.at, &s.zone), 1);
    rc = kvr_attempt_end(&s.at);
    ck_assert_int_eq(kvr_attempt_release(&s.at, &s.zone), 0);

    return rc;
}


static uint32_t
held(void)
{
    uint32_t  matched[KVR_PEERS] = { 0 };

    kvr_index_lookup(s.zone.index, s.chain, UNITS, s.pool.set, matched);

    return matched[s.peer];
}


static kvr_reservation_load_t
load(void)
{
    kvr_load_view_t  view;

    view = kvr_load_view(s.zone.load);

    return kvr_reservation_load(&view, s.zone.registry, s.peer, NULL);
}


static void
idle(void)
{
    kvr_reservation_load_t  l;

    l = load();

    ck_assert_uint_eq(l.active, 0);
    ck_assert_uint_eq(l.unanswered, 0);
    ck_assert_uint_eq(l.pending, 0);
    ck_assert_uint_eq(l.resident, 0);
}


/* begin, insert, first, settle, end: counted, cached, no longer counted */
TEST(test_attempt_good)
{
    kvr_reservation_load_t  l;

    setup();

    begin(0, NULL);
    insert(0);

    l = load();
    ck_assert_uint_eq(l.active, 1);
    ck_assert_uint_eq(l.unanswered, 1);
    ck_assert_uint_eq(l.pending, UNITS * UNIT);
    ck_assert_uint_eq(l.resident, UNITS * UNIT + 4 * 256);
    ck_assert_uint_eq(held(), UNITS);

    s.now += 100;
    ck_assert_uint_eq(first(1), 0);

    l = load();
    ck_assert_uint_eq(l.active, 1);
    ck_assert_uint_eq(l.unanswered, 0);
    ck_assert_uint_eq(l.pending, 0);
    ck_assert_uint_gt(l.resident, 0);

    s.now += 100;
    ck_assert_uint_eq(settle(0), 0);
    ck_assert_uint_eq(end(), 0);

    idle();
    ck_assert_uint_eq(held(), UNITS);

    teardown();
}


/* without a good answer the insert is undone once */
static void
undone(unsigned answered)
{
    begin(0, NULL);
    insert(0);

    if (answered) {
        ck_assert_uint_eq(first(0), 0);
    }

    ck_assert_uint_eq(end(), KVR_ATTEMPT_UNDO);
    idle();

    kvr_attempt_undo(&s.at, &s.zone, s.chain);
    ck_assert_uint_eq(held(), 0);

    idle();
}


TEST(test_attempt_undone)
{
    setup();

    undone(0);
    undone(1);

    teardown();
}


/* a reservation of the queue is taken over, or released */
static void
reserved(uint64_t pending)
{
    kvr_reservation_t  r = { 0 };

    r.peer = s.peer;
    r.member = s.member;
    r.pending = pending;
    r.resident = kvr_attempt_resident(UNITS * UNIT, 0);
    r.unanswered = 1;

    kvr_reservation_take(&s.zone, &r);
    ck_assert_uint_eq(load().active, 1);

    begin(0, &r);

    ck_assert_uint_eq(r.held, 0);
    ck_assert_uint_eq(load().active, 1);
    ck_assert_uint_eq(load().pending, UNITS * UNIT);

    kvr_reservation_release(&s.zone, &r);
    ck_assert_uint_eq(load().active, 1);

    (void) end();
    idle();
}


TEST(test_attempt_reserved)
{
    setup();

    reserved(UNITS * UNIT);
    reserved(UNITS * UNIT - UNIT);

    teardown();
}


/* returns how far the clock moves; sets *age to the prompt's age then */
static uint64_t
found(uint32_t units, unsigned rc, uint32_t *age)
{
    uint64_t  clock;

    begin(UNITS * UNIT, NULL);
    insert(UNITS);
    first(1);

    clock = kvr_index_clock(s.zone.index, s.peer);

    ck_assert_uint_eq(settle(units * UNIT / 4) & KVR_ATTEMPT_REINSERT, rc);

    if (rc) {
        kvr_attempt_reinsert(&s.at, &s.zone, s.chain);
    }

    (void) end();

    idle();
    ck_assert_uint_eq(held(), UNITS);

    (void) kvr_index_inserted(s.zone.index, s.chain, UNITS, s.peer, 0, age);

    return kvr_index_clock(s.zone.index, s.peer) - clock;
}


/*
 * A part that the engine had to compute again moves the clock, whether or not
 * it was most of the prompt.  The prompt counts as used when its request came.
 */
TEST(test_attempt_missed)
{
    uint32_t  age;

    setup();

    begin(0, NULL);
    insert(0);
    first(1);
    settle(0);
    (void) end();

    ck_assert_uint_eq(found(UNITS, 0, &age), 0);
    ck_assert_uint_eq(age, UNITS);

    ck_assert_uint_eq(found(UNITS / 4, KVR_ATTEMPT_REINSERT, &age),
                      UNITS * 3 / 4);
    ck_assert_uint_eq(age, UNITS - 1);

    ck_assert_uint_eq(found(UNITS * 3 / 4, 0, &age), UNITS / 4);

    teardown();
}


/* returns the age of a reply of one unit, with others in flight or without */
static uint32_t
replied(unsigned others)
{
    uint32_t       age;
    uint64_t       whole[UNITS + 1];
    kvr_reply_t    reply = { 0 };
    kvr_attempt_t  at;

    setup();

    begin(0, NULL);
    insert(0);
    first(1);
    at = s.at;

    memcpy(whole, s.chain, sizeof(s.chain));
    whole[UNITS] = 1ULL << 63 | 77;

    s.chain[0] ^= 1;
    begin(0, NULL);
    insert(0);
    first(1);

    if (!others) {
        (void) end();
    }

    reply.first = UNITS;
    reply.n = 1;
    reply.start = UNITS;
    reply.blocks = UNITS + 1;
    reply.value[0] = whole[UNITS];

    ck_assert_int_eq(kvr_attempt_release(&at, &s.zone), 1);
    kvr_attempt_extend(&at, &s.zone, &reply);

    ck_assert_uint_eq(kvr_index_inserted(s.zone.index, whole, UNITS + 1,
                                         s.peer, 0, &age), UNITS + 1);

    teardown();

    return age;
}


/*
 * A later prompt has moved the clock; the engine uses its blocks after those
 * of a reply that ends earlier.
 */
TEST(test_attempt_reply)
{
    ck_assert_uint_eq(replied(0), UNITS);
    ck_assert_uint_eq(replied(1), UNITS + UNITS);
}


/*
 * The engine always has the same prefix of these prompts cached, after this
 * many units of others; returns where the model seems to resume, in tokens.
 */
static uint32_t
resumes(uint32_t others)
{
    uint32_t          i, step;
    kvr_index_undo_t  undo;

    setup();

    kvr_capacity_set(&s.zone, &s.pool, s.peer, 1000, s.now);

    for (i = 0; i < 20; i++) {
        begin(0, NULL);
        insert(0);
        first(1);
        settle(i ? 1152 : 0);
        (void) end();

        kvr_index_insert(s.zone.index, NULL, 0, others, s.peer, 0, &undo);
    }

    step = kvr_resume_step(&s.zone.registry->upstream[s.pool.upstream].resume);

    teardown();

    return step;
}


/* only a recent prompt shows where a model resumes */
TEST(test_attempt_resumes)
{
    ck_assert_uint_eq(resumes(100), 1152);
    ck_assert_uint_eq(resumes(900), 0);
    ck_assert_uint_eq(resumes(2000), 0);
}


/* a peer without a slot is counted nowhere */
/* three distinct prompts without cached tokens; returns whether it forgot */
static unsigned
forgot(unsigned taught)
{
    uint32_t          i, k;
    kvr_feedback_t   *feedback;
    kvr_index_undo_t  undo;

    setup();

    feedback = &s.zone.registry->peer[s.peer].feedback;
    kvr_set(&feedback->hits, 1);
    kvr_set(&feedback->reports, UINT32_MAX);

    for (i = 0; i < 3; i++) {

        for (k = 0; k < UNITS; k++) {
            s.chain[k] = kvr_mix(k + 1, 100 + i) | 1ULL << 63;
        }

        if (taught) {
            kvr_index_insert(s.zone.index, s.chain, UNITS, UNITS, s.peer, 0,
                             &undo);
        }

        begin(UNITS * UNIT, NULL);
        insert(UNITS);
        util_check(s.at.speculative == !taught, "speculative");
        first(1);
        settle(0);
        (void) end();
    }

    k = (uint32_t) kvr_get(&feedback->by_usage);

    teardown();

    return k;
}


/*
 * A sibling in a burst is predicted by an insert that may not be computed yet:
 * a miss proves nothing.  It is inserted as a whole, because the first one can
 * be undone.
 */
TEST(test_attempt_sibling)
{
    uint32_t       matched[KVR_PEERS];
    kvr_attempt_t  one;

    setup();

    begin(0, NULL);
    insert(0);
    ck_assert(!s.at.speculative);
    one = s.at;

    begin(UNITS * UNIT, NULL);
    insert(UNITS);
    ck_assert(s.at.speculative);

    /* the first one fails: the sibling's insert stays */

    (void) kvr_attempt_release(&one, &s.zone);
    ck_assert_uint_eq(kvr_attempt_end(&one), KVR_ATTEMPT_UNDO);
    kvr_attempt_undo(&one, &s.zone, s.chain);
    (void) kvr_index_lookup(s.zone.index, s.chain, UNITS, s.pool.set, matched);
    ck_assert_uint_eq(matched[s.peer], UNITS);

    first(1);
    (void) end();

    /* nothing is pending any more: a miss is evidence */

    begin(UNITS * UNIT, NULL);
    insert(UNITS);
    ck_assert(!s.at.speculative);

    teardown();
}


/*
 * A part that only a line's mask shows can be another peer's.  If it is
 * missing this does not show a restart, which would drop all blocks of the
 * peer.
 */
TEST(test_attempt_masked)
{
    util_check(forgot(1) == 1, "three inserted prompts are lost");
    util_check(forgot(0) == 0, "blocks of another peer");
}


/* another server got the prompt, and this one gets it now */
static void
ask_other(uint32_t other, uint32_t round, int64_t cached)
{
    uint32_t          i;
    kvr_index_undo_t  undo;

    for (i = 0; i < UNITS; i++) {
        s.chain[i] = kvr_mix(i + 1, 1000 + round) | 1ULL << 63;
    }

    kvr_index_insert(s.zone.index, s.chain, UNITS, UNITS, other, 0, &undo);

    begin(0, NULL);
    s.at.best = UNITS * UNIT;
    insert(0);
    first(1);
    settle(cached);
    end();
}


/* servers with a common store load parts that any of them computed */
TEST(test_attempt_store)
{
    uint32_t          i, other, matched[8], loads[8];
    kvr_set_t         set;
    kvr_zone_t       *z;
    kvr_index_undo_t  undo;

    setup();

    z = &s.zone;
    other = kvr_registry_peer(z->registry, z->load, z->row, z->index, "a:2", 3,
                              1 << 20);
    (void) kvr_registry_member(z->registry, z->load, z->row, other, "u", 1);

    s.pool.upstream = z->registry->member[s.member].upstream;
    set = kvr_set_of(s.peer);
    kvr_set_add(&set, other);

    for (i = 0; i < 12; i++) {
        ask_other(other, i, UNITS * UNIT / 4);
    }

    util_check(!kvr_registry_stored(z->registry, s.pool.upstream),
               "without lower tiers there is no store");

    kvr_set(z->registry->tiered, 1);
    util_check(kvr_registry_stored(z->registry, s.pool.upstream), "a store");

    for (i = 0; i < UNITS; i++) {
        s.chain[i] = kvr_mix(i + 1, 999) | 1ULL << 63;
    }

    kvr_index_insert(z->index, s.chain, UNITS, UNITS, other, 0, &undo);

    memset(matched, 0, sizeof(matched));
    kvr_index_lookup(z->index, s.chain, UNITS, set, matched);

    ck_assert_uint_eq(matched[s.peer], 0);
    ck_assert_int_eq(kvr_candidate_deliver(z, &s.pool, s.chain, set, matched,
                                           loads), 1);
    ck_assert_uint_eq(matched[s.peer], UNITS);
    ck_assert_uint_eq(matched[other], UNITS);
    ck_assert_uint_eq(loads[s.peer], UNITS * 2 / 5);
    ck_assert_uint_eq(loads[other], 0);

    for (i = 12; i < 24; i++) {
        ask_other(other, i, 0);
    }

    util_check(!kvr_registry_stored(z->registry, s.pool.upstream),
               "no more cached tokens");

    teardown();
}


/* a request waits for GPU memory if there is a lower tier */
TEST(test_attempt_room)
{
    uint32_t          loads[KVR_PEERS] = { 0 };
    kvr_view_t        v = { 0 };
    kvr_candidate_t   c = { 0 };
    kvr_tier_t       *gpu;

    setup();

    gpu = &s.zone.registry->peer[s.peer].tier[KVR_TIER_GPU];

    v.zone = &s.zone;
    v.pool = &s.pool;
    v.bytes = 1000;
    v.loads = loads;

    c.resident = 3000;
    c.pending = 10;
    c.shared = 500;
    loads[s.peer] = 3;

    kvr_candidate_tiers(&v, &c, s.peer);
    util_check(c.pending == 10 && c.shared == 500 && c.load == 3 * UNIT,
               "no lower tier");

    kvr_set(&gpu->until, 5000 / UNIT);
    kvr_candidate_tiers(&v, &c, s.peer);
    util_check(c.pending == 10 && c.shared == 0, "room for the prompt");

    kvr_set(&gpu->until, 3200 / UNIT);
    kvr_candidate_tiers(&v, &c, s.peer);
    util_check(c.pending == 10 + 4000 - 3200 / UNIT * UNIT,
               "missing: %lu", (unsigned long) c.pending);

    c.pending = 10;
    kvr_set(&gpu->until, 1);
    c.resident = UINT64_MAX / 2;
    kvr_candidate_tiers(&v, &c, s.peer);
    util_check(c.pending == 10 + 1000, "no more than this request: %lu",
               (unsigned long) c.pending);

    teardown();
}


/* whatever is configured and reported, loads are at most the prompt */
TEST(test_attempt_hostile)
{
    uint32_t    i, other, matched[8], loads[8];
    int64_t     cached;
    kvr_set_t   set;
    util_rng_t  r;

    static const uint64_t  sizes[] = { 0, 1, 20, 1ULL << 32, UINT64_MAX };

    setup();
    util_seed(&r, "attempt hostile", 0);

    other = kvr_registry_peer(s.zone.registry, s.zone.load, s.zone.row,
                              s.zone.index, "a:2", 3, 1 << 20);
    s.pool.upstream = s.zone.registry->member[s.member].upstream;
    set = kvr_set_of(s.peer);
    kvr_set_add(&set, other);

    for (i = 0; i < 3000; i++) {
        s.now += util_below(&r, 3000);

        kvr_capacity_told(&s.zone, &s.pool, s.peer,
                          sizes[util_below(&r, 5)], sizes[util_below(&r, 5)],
                          s.now);
        kvr_capacity_set(&s.zone, &s.pool, s.peer, sizes[util_below(&r, 3)],
                         s.now);

        cached = (int64_t) (util_next(&r) >> (2 + util_below(&r, 61))) - 1;
        ask_other(other, i % 9, cached);

        memset(matched, 0, sizeof(matched));
        kvr_index_lookup(s.zone.index, s.chain, UNITS, set, matched);

        if (kvr_candidate_deliver(&s.zone, &s.pool, s.chain, set, matched,
                                  loads))
        {
            util_check(loads[s.peer] <= UNITS && loads[other] <= UNITS,
                       "%u %u", loads[s.peer], loads[other]);
        }

        util_check(matched[s.peer] <= UNITS && matched[other] <= UNITS,
                   "%u %u", matched[s.peer], matched[other]);
    }

    teardown();
}


TEST(test_attempt_nobody)
{
    uint32_t  peer;

    setup();

    peer = s.peer;
    s.peer = KVR_REGISTRY_NONE;

    begin(0, NULL);
    insert(0);
    ck_assert_uint_eq(first(1), 0);
    ck_assert_uint_eq(settle(0), 0);
    ck_assert_uint_eq(end(), 0);

    s.peer = peer;
    idle();
    ck_assert_uint_eq(held(), 0);

    teardown();
}


/* a request that came when 12 of its 28 units were cached */
static void
admitted(uint32_t held, unsigned taken, kvr_admission_e rc, uint64_t charge)
{
    uint32_t            matched[KVR_PEERS] = { 0 };
    kvr_view_t          v = { 0 };
    kvr_offer_t         offer = { 0 };
    kvr_admission_t     a = { 0 };
    kvr_queue_item_t    item;
    kvr_reservation_t   reserved;

    kvr_queue_item(&item, s.now, 3, 0, 1, 16 * UNIT, 0);

    matched[s.peer] = held;

    v.zone = &s.zone;
    v.pool = &s.pool;
    v.matched = matched;
    v.bound = v.pin = v.owner = KVR_PEERS;
    v.now = s.now;

    kvr_candidate_view(&v);

    offer.peer = s.peer;
    offer.member = s.member;
    offer.weight = 1;
    offer.taken = taken;

    a.view = &v;
    a.item = &item;
    a.bytes = UNITS * UNIT;

    ck_assert_int_eq(kvr_admission_choose(&a, &offer, 1, &reserved), rc);
    ck_assert_uint_eq(item.charge, charge);

    /* arrival decides the order, and the longest wait */

    ck_assert_uint_eq(item.work, 16 * UNIT);
    ck_assert_uint_eq(item.due, s.now + 16 * UNIT / KVR_QUEUE_AGING);
}


/* a tenant is charged for the part to compute at admission */
TEST(test_attempt_charge)
{
    setup();

    admitted(8, 0, KVR_ADMISSION_ROOM, 20 * UNIT);
    admitted(24, 0, KVR_ADMISSION_ROOM, 4 * UNIT);
    admitted(0, 0, KVR_ADMISSION_ROOM, UNITS * UNIT);

    /* no admission, so nothing is known better */

    admitted(0, 1, KVR_ADMISSION_TAKEN, 16 * UNIT);

    teardown();
}


/* a request that was counted at the pick is not counted again */
TEST(test_attempt_counted)
{
    uint32_t        i;
    kvr_hot_keys_t  keys;

    for (i = 0; i < 3; i++) {
        setup();

        /* a large burst waits there, and its prefix is being computed */

        if (i == 2) {
            kvr_load_add(s.zone.load, s.zone.row,
                         kvr_registry_resident(s.zone.registry, s.peer),
                         9, 0);
            kvr_load_add(s.zone.load, s.zone.row, s.peer, 9,
                         UNIT);
        }

        keys = (kvr_hot_keys_t) { .n = 1, .entries = 1, .key = { 7 } };
        s.hot = &keys;

        begin(UNIT, NULL);
        insert(1);

        if (i == 2) {
            kvr_attempt_burst(&s.at, &s.zone, &keys);
        }

        if (i == 1) {
            kvr_candidate_count(&s.zone, &keys, s.peer, s.now);
        }

        ck_assert_double_eq(util_hot_count(s.zone.hot, 7, s.now), i > 0);

        first(1);

        ck_assert_double_eq(util_hot_count(s.zone.hot, 7, s.now), 1);

        s.hot = NULL;
        teardown();
    }
}
