
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The operations of a process on shared memory, as in the glue.
 */


#include "world.h"


static kvr_queue_t        own;
static kvr_queue_item_t   items[8];
static unsigned           nitems;
static kvr_reservation_t  reserved;


static int
victim_alive(void *data, kvr_load_owner_t owner)
{
    (void) data;

    return owner != DEAD;
}


/* A request at a server, from the choice to its end. */
static void
victim_request(util_rng_t *rng, kvr_reservation_t *r)
{
    unsigned            peer, prompt, rc;
    uint32_t            matched[KVR_PEERS];
    kvr_begin_t         b = { 0 };
    kvr_first_t         f = { 0 };
    kvr_insert_t        in = { 0 };
    kvr_settle_t        e = { 0 };
    kvr_attempt_t       at = { 0 };
    kvr_hot_keys_t      keys;

    peer = r ? r->peer : util_below(rng, PEERS);
    prompt = util_below(rng, PROMPTS);

    (void) kvr_index_lookup(victim.index, chain[prompt], UNITS,
                            kvr_set_of(peer), matched);

    b.peer = peer;
    b.member = peer;
    b.bytes = UNITS * UNIT;
    b.matched = (uint64_t) matched[peer] * UNIT;
    b.pending = b.bytes - b.matched;
    b.resident = kvr_attempt_resident(b.bytes, 0);

    in.chain = chain[prompt];
    in.entries = UNITS;
    in.units = UNITS;
    in.held = matched[peer];

    kvr_attempt_begin(&at, &victim, &b, r, NOW);

    begun.units[prompt][peer] = UNITS;
    kvr_attempt_insert(&at, &victim, &in);

    f.ok = util_below(rng, 4) != 0;
    f.stream = util_below(rng, 2);
    f.plain = 1;

    if (prompt == 0 && in.held == UNITS) {
        kvr_hot_keys(chain[0], UNITS, &keys);
        f.hot = &keys;
        begun.hot++;
    }

    rc = 0;

    if (util_below(rng, 5)) {
        rc |= kvr_attempt_first(&at, &victim, &pool, &f, NOW + 100);

        /* as predicted, if cached prompts must stay cached */

        e.tokens.prompt = UNITS * UNIT / 4;
        e.tokens.cached = peer < HELD_BY || util_below(rng, 2)
                          ? (int64_t) matched[peer] * UNIT / 4 : 0;
        e.tokens.completion = 10;
        e.seconds = NOW / 1000;

        if (f.ok) {
            rc |= kvr_attempt_settle(&at, &victim, &pool, &e, NOW + 200);
        }
    }

    if (kvr_attempt_release(&at, &victim)) {
        rc |= kvr_attempt_end(&at);
    }

    if (rc & KVR_ATTEMPT_REINSERT) {
        kvr_attempt_reinsert(&at, &victim, chain[prompt]);
    }

    if (rc & KVR_ATTEMPT_UNDO) {
        kvr_attempt_undo(&at, &victim, chain[prompt]);
    }
}


static void
victim_requests(util_rng_t *rng)
{
    victim_request(rng, NULL);
}


/* Servers fail, get a trial, are ejected, and are probed. */
static void
victim_eject(util_rng_t *rng)
{
    uint64_t       now;
    unsigned       i, n, bad, late, last, fails;
    kvr_begin_t    b = { 0 };
    kvr_first_t    f = { 0 };
    kvr_outlier_e  fault;
    kvr_attempt_t  at;

    b.member = b.peer = util_below(rng, PEERS);
    b.pool = &ejecting;
    b.doubted = util_below(rng, PEERS);
    f.ok = 1;

    fault = util_below(rng, 2) ? KVR_OUTLIER_BROKEN : KVR_OUTLIER_401;
    now = NOW;
    n = 4 + util_below(rng, 4);
    bad = util_below(rng, 4);
    late = util_below(rng, 2);
    last = util_below(rng, 2);

    for (i = 0; i < n; i++) {

        fails = last ? i >= n - bad : i < bad;
        b.arm = (kvr_trial_arm_e) (KVR_TRIAL_NONE + util_below(rng, 3));

        kvr_attempt_begin(&at, &victim, &b, NULL, now);

        if (!fails || late) {
            (void) kvr_attempt_first(&at, &victim, &ejecting, &f, now);
        }

        (void) kvr_attempt_judge(&at, &victim, &ejecting,
                                 fails ? fault : KVR_OUTLIER_NONE, now);
        (void) kvr_attempt_release(&at, &victim);
        (void) kvr_attempt_end(&at);

        if (kvr_outlier_look(kvr_eject_fleet(&victim, &ejecting), now)) {
            (void) kvr_eject_looked(&victim, &ejecting, KVR_REGISTRY_NONE,
                                    now);
        }

        if (!fails) {
            now += 64 * ejecting.eject.time;
        }
    }
}


static int
victim_room(void *data, kvr_queue_item_t *item)
{
    util_rng_t  *rng = data;

    if (item == NULL) {
        kvr_reservation_release(&victim, &reserved);
        return 0;
    }

    memset(&reserved, 0, sizeof(reserved));
    reserved.peer = util_below(rng, PEERS);
    reserved.member = reserved.peer;
    reserved.pending = item->work;
    reserved.resident = item->work;
    reserved.unanswered = 1;
    reserved.queued = 1;

    kvr_reservation_take(&victim, &reserved);

    return 1;
}


/* Requests wait, are admitted, and leave. */
static void
victim_queue(util_rng_t *rng)
{
    uint64_t           now;
    unsigned           class;
    kvr_queue_key_t    key;
    kvr_queue_item_t  *item;

    now = NOW + util_below(rng, 20);

    if (nitems < kvr_nelts(items)) {
        item = &items[nitems++];
        class = util_below(rng, KVR_QUEUE_CLASSES);

        kvr_queue_item(item, now, class,
                       kvr_queue_tenant(&world->board, util_below(rng, 5), now),
                       1 + util_below(rng, 3), 100 + util_below(rng, 90000),
                       0);
        item->bytes = 500;
        kvr_queue_insert(&own, &world->board, item);
    }

    kvr_queue_publish(&world->board, victim.row, &own, now);

    for (class = 0; class < KVR_QUEUE_CLASSES; class++) {
        if (kvr_get(&world->board.wanted[class])) {
            (void) kvr_queue_take(&world->board, class);
        }
    }

    item = kvr_queue_first(&own, &world->board, &key);

    if (item == NULL) {
        return;
    }

    switch (util_below(rng, 4)) {

    case 0:
        kvr_queue_remove(&own, item);
        kvr_add(&world->board.stats[item->class].gone, 1);
        break;

    case 1:
        (void) kvr_queue_want(&world->board, util_below(rng, 8), now);
        break;

    default:
        if (kvr_queue_admit(&world->board, victim.row, &own, item, now,
                            victim_room, rng)
            == KVR_OK)
        {
            victim_request(rng, &reserved);
        }
    }

    kvr_queue_publish(&world->board, victim.row, &own, now);
    (void) kvr_queue_long(&world->board, PEERS, now);
}


static void
victim_servers(util_rng_t *rng)
{
    uint32_t     peer;
    unsigned     n;
    const char  *name;

    n = util_below(rng, NAMES);
    name = world_name(n);

    peer = kvr_registry_peer(victim.registry, victim.load, victim.row,
                             victim.index, name, strlen(name),
                             1 + util_below(rng, 1 << 20));

    if (peer != KVR_REGISTRY_NONE) {
        (void) kvr_registry_member(victim.registry, victim.load, victim.row,
                                 peer, util_below(rng, 2) ? "u" : "w", 1);
    }
}


/* A reload changes the names, or the process ends and another one starts. */
static void
victim_process(util_rng_t *rng)
{
    uint64_t  names[KVR_REGISTRY_NAMES] = { 0 };

    names[0] = 7;

    kvr_load_rename(victim.load, victim.row, names);

    if (util_below(rng, 2)) {
        kvr_load_hold(victim.load, victim.row, 5);
        kvr_load_hold(victim.load, victim.row, 0);
        kvr_load_release(victim.load, victim.row);
        victim.row = kvr_load_claim(victim.load, VICTIM, 2);
    }
}


static void
victim_sweep(util_rng_t *rng)
{
    (void) rng;

    (void) kvr_load_sweep(victim.load, VICTIM, victim_alive, NULL, NULL, NULL);
}


/* Updates the last server's state. */
static void
victim_engine(util_rng_t *rng)
{
    uint64_t       now;
    kvr_peer_t    *peer;
    kvr_metrics_t  m;

    now = NOW + util_below(rng, 1000);
    peer = &living.registry->peer[PEERS - 1];

    switch (util_below(rng, 7)) {

    case 0:
        kvr_index_flush(victim.index, PEERS - 1);
        break;

    case 1:
        kvr_index_capacity(victim.index, PEERS - 1,
                           1000 + util_below(rng, 1 << 20),
                           KVR_INDEX_REPORTED);
        break;

    case 2:
        (void) kvr_index_turnover(victim.index, PEERS - 1, now);
        kvr_set(&peer->drain.on, util_below(rng, 2));
        break;

    case 3:
        memset(&m, 0, sizeof(m));
        m.set = KVR_METRICS_RUNNING|KVR_METRICS_WAITING|KVR_METRICS_KV
                |KVR_METRICS_CAPACITY|KVR_METRICS_LORA;
        m.running = util_below(rng, 20);
        m.kv = 0.5;
        m.capacity = 100000;
        m.loras = 2;
        (void) kvr_engine_take(&peer->engine, &m, 1, 1, now);
        break;

    case 4:
        (void) kvr_engine_check(&peer->engine,
                                util_below(rng, 2) ? KVR_CHECK_FAIL
                                                   : KVR_CHECK_PASS,
                                1, 1, 1000, now);
        break;

    case 5:
        kvr_engine_renew(&peer->engine, now);
        kvr_engine_refused(&peer->engine, now);
        (void) kvr_engine_back(&peer->engine, now);
        break;

    default:
        kvr_registry_reset(victim.registry,
                           util_below(rng, 2) ? PEERS - 1
                                              : KVR_REGISTRY_NONE);
    }
}


static void
victim_session(util_rng_t *rng)
{
    uint64_t  key;
    uint32_t  life;
    unsigned  prompt;

    key = kvr_mix(util_below(rng, 20), 99) | 1ULL << 63;
    kvr_index_bind(victim.index, key, PEERS - 1, 1 + util_below(rng, 100),
                   NOW / 1000 + 60);
    (void) kvr_index_bound(victim.index, key, NOW / 1000, &life);

    key = kvr_mix(util_below(rng, 20), 98) | 1ULL << 63;
    kvr_index_note(victim.index, key, PEERS - 1);

    prompt = KEPT + util_below(rng, PROMPTS - KEPT);
    begun.units[prompt][PEERS - 1] = UNITS;
    kvr_index_extend(victim.index, &chain[prompt][UNITS / 2], UNITS / 2,
                     UNITS / 2, UNITS / 2, PEERS - 1, 0);
}


static void
victim_told(util_rng_t *rng)
{
    uint64_t       n;
    kvr_receipt_t  r;

    world_receipt(&r, util_next(rng));
    n = kvr_receipt_put(&world->receipts, &r);
    kvr_receipt_ttft(&world->receipts, n, 123, 1);

    begun.observed++;
    kvr_stats_observe(&world->stats, KVR_STATS_TTFT, util_below(rng, 1 << 24));
}


static const struct {
    const char  *name;
    void       (*run)(util_rng_t *rng);
} ops[] = {
    { "requests", victim_requests },
    { "ejection", victim_eject },
    { "queue", victim_queue },
    { "servers", victim_servers },
    { "rows", victim_process },
    { "sweep", victim_sweep },
    { "engines", victim_engine },
    { "sessions", victim_session },
    { "receipts", victim_told },
    { NULL, NULL }
};


const char *
victim_op(unsigned n)
{
    return ops[n].name;
}


void
victim_begin(void)
{
    memset(&own, 0, sizeof(own));
    nitems = 0;
}


void
victim_do(unsigned op, util_rng_t *rng)
{
    ops[op].run(rng);
}
