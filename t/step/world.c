
/*
 * Copyright (C) kvroute contributors
 */


#include "util_hot.h"
#include "world.h"

#include <sys/mman.h>

#include "core/index/kvr_index_line.h"


world_shared_t   *world;
kvr_zone_t        living, victim;
static kvr_registry_t  world_registry;
kvr_pool_t        pool, ejecting;
world_begun_t     begun;
uint64_t          chain[PROMPTS][UNITS];
uint8_t          *world_memory;
size_t            world_size;
kvr_queue_t       waiting;
kvr_queue_item_t  waiter;

static kvr_attempt_t  running;      /* in flight in the surviving process */
static unsigned       table_full;


const char *
world_name(unsigned n)
{
    static const char  *names[NAMES] = {
        "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80",
        "10.0.0.5:80", "10.0.0.6:80", "10.0.0.7:80", "10.0.0.8:80",
        "10.0.0.9:80", "10.0.0.10:80", "10.0.0.11:8000", "10.0.0.12:8000",
        "[::1]:8000", "unix:/run/e"
    };

    return names[n];
}


/* Returns whether a slot belongs to a server. */
static int
world_is(unsigned number, unsigned n)
{
    kvr_peer_t  *peer;

    peer = &living.registry->peer[number];

    return peer->len == strlen(world_name(n))
           && memcmp(peer->name, world_name(n), peer->len) == 0;
}


static void
world_place(void)
{
    size_t   registry, load, index;
    uint8_t  *p;

    registry = sizeof(world_shared_t);
    registry = (registry + KVR_CACHE_LINE - 1) & ~(KVR_CACHE_LINE - 1UL);
    load = registry + kvr_registry_size(NUMBERS);
    load = (load + KVR_CACHE_LINE - 1) & ~(KVR_CACHE_LINE - 1UL);
    index = load + kvr_load_size(ROWS, kvr_registry_columns(NUMBERS));
    index = (index + KVR_CACHE_LINE - 1) & ~(KVR_CACHE_LINE - 1UL);

    if (world_memory == NULL) {
        world_size = index + kvr_index_size(LINES, KVR_PEERS_FEW);
        world_memory = mmap(NULL, world_size, PROT_READ|PROT_WRITE,
                            MAP_SHARED|MAP_ANONYMOUS, -1, 0);
        util_check(world_memory != MAP_FAILED, "no memory");
    }

    p = world_memory;
    memset(p, 0, world_size);

    world = (world_shared_t *) (void *) p;

    kvr_registry_view(&world_registry,
                      (kvr_registry_shared_t *) (void *) (p + registry),
                      NUMBERS);

    living.registry = &world_registry;
    living.hot = &world->hot;
    living.load = (kvr_load_t *) (void *) (p + load);
    living.index = (kvr_index_t *) (void *) (p + index);
}


static void
world_begin(kvr_attempt_t *at, unsigned peer, unsigned prompt)
{
    kvr_begin_t   b = { 0 };
    kvr_insert_t  in = { 0 };

    b.peer = peer;
    b.member = peer;
    b.bytes = UNITS * UNIT;
    b.pending = b.bytes;
    b.resident = kvr_attempt_resident(b.bytes, 0);

    in.chain = chain[prompt];
    in.entries = UNITS;
    in.units = UNITS;

    kvr_attempt_begin(at, &living, &b, NULL, NOW);
    kvr_attempt_insert(at, &living, &in);
}


static int
world_room(void *data, kvr_queue_item_t *item)
{
    (void) data;

    return item != NULL;
}


static int
world_alive(void *data, kvr_load_owner_t owner)
{
    (void) data;

    return owner == LIVING;
}


static void
world_peers(kvr_zone_t *zone, unsigned n)
{
    unsigned     i;
    uint32_t     peer, seat;
    const char  *name;

    for (i = 0; i < n; i++) {
        name = world_name(i);
        peer = kvr_registry_peer(zone->registry, zone->load, zone->row,
                                 zone->index, name, strlen(name), 1 << 20);
        seat = kvr_registry_member(zone->registry, zone->load, zone->row, peer,
                                 "u", 1);

        util_check(i >= PEERS || (peer == i && seat == i),
                   "server %u has slot %u and member %u", i, peer, seat);
        util_check(peer < NUMBERS && seat < living.registry->max_members
                   && living.registry->member[seat].peer == peer,
                   "server %u has slot %u and member %u", i, peer, seat);
    }
}


void
world_init(util_rng_t *rng, unsigned full)
{
    unsigned       i, k;
    kvr_zone_t     dead;
    kvr_index_undo_t  undo;
    kvr_receipt_t  receipt;

    world_place();

        kvr_load_init(living.load, ROWS, kvr_registry_columns(NUMBERS));

    table_full = full;
    kvr_index_init(living.index, full ? FEW : LINES, KVR_PEERS_FEW);

    memset(&pool, 0, sizeof(pool));
    pool.set = kvr_set_below(PEERS);
    pool.max_waiting = -1;

    ejecting = pool;
    ejecting.eject = (kvr_outlier_conf_t) {
        .fails = 2, .time = 1000, .on = 1
    };

    /* two consecutive prompts share a prefix */

    for (i = 0; i < PROMPTS; i++) {
        util_chain(chain[i], 1 + i / 2, UNITS / 2, 100 + i, UNITS);
    }

    victim = living;

    living.row = kvr_load_claim(living.load, LIVING, 1);
    world_peers(&living, PEERS);

    victim.row = kvr_load_claim(living.load, VICTIM, 1);
    world_peers(&victim, PEERS);

    /* and one that died before, with requests in flight, and servers that
       no other process has */

    dead = living;
    dead.row = kvr_load_claim(living.load, DEAD, 1);
    world_peers(&dead, NUMBERS);

    kvr_load_add(living.load, dead.row, 2, 3, 5000);
    kvr_load_add(living.load, dead.row, kvr_registry_column(living.registry, 2), 3, 5000);

    memset(&begun, 0, sizeof(begun));

    for (k = PEERS; k < NUMBERS; k++) {
        kvr_index_insert(living.index, chain[KEPT + 1], UNITS, UNITS, k, 0,
                        &undo);
        begun.units[KEPT + 1][k] = UNITS;
    }

    for (i = 0; i < KEPT; i++) {
        for (k = 0; k < HELD_BY; k++) {
            kvr_index_insert(living.index, chain[i], UNITS, UNITS, k, 0,
                            &undo);
            begun.units[i][k] = UNITS;
        }
    }

    for (i = 0; i < KVR_RECEIPTS + 3; i++) {
        world_receipt(&receipt, util_next(rng));
        (void) kvr_receipt_put(&world->receipts, &receipt);
    }

    world_begin(&running, 1, KEPT);
    begun.units[KEPT][1] = UNITS;

    memset(&waiting, 0, sizeof(waiting));
    kvr_queue_item(&waiter, NOW, KVR_QUEUE_NORMAL,
                   kvr_queue_tenant(&world->board, 77, NOW), 1, 20000, 0);
    waiter.bytes = 1000;
    kvr_queue_insert(&waiting, &world->board, &waiter);
    kvr_queue_publish(&world->board, living.row, &waiting, NOW);

    victim_begin();
}


void
world_receipt(kvr_receipt_t *r, uint64_t n)
{
    memset(r, 0, sizeof(*r));

    n |= 1;
    r->time = n;
    r->hash = kvr_mix(n, 1);
    r->prompt = kvr_mix(n, 2);
    r->matched = kvr_mix(n, 3);
    r->best = kvr_mix(n, 4);
    r->upstream = (uint8_t) kvr_mix(n, 5);
    r->peer = (uint8_t) kvr_mix(n, 6);
    r->policy = (uint8_t) kvr_mix(n, 7);
    r->reason = (uint8_t) kvr_mix(n, 8);
}


/* each count is that of the surviving row; no row of a dead process is left */
static void
check_load(void)
{
    uint32_t           i, n;
    kvr_load_t        *load;
    kvr_load_sum_t     sum, own;
    kvr_load_view_t    view;
    kvr_reservation_load_t    at;
    _Atomic uint64_t  *word;

    load = living.load;

    (void) kvr_load_sweep(load, LIVING, world_alive, NULL, NULL, NULL);
    n = kvr_load_sweep(load, LIVING, world_alive, NULL, NULL, NULL);
    util_check(n == 0, "%u rows are swept twice", n);

    for (i = 0; i < load->rows; i++) {
        util_check(i == living.row || load->row[i].owner == 0,
                   "row %u belongs to a dead process", i);
    }

    word = kvr_load_words(load, living.row);

    for (i = 0; i < load->columns; i++) {
        sum = kvr_load_get(load, i);
        own = kvr_load_split(word[i]);

        util_check(sum.active == own.active && sum.pending == own.pending,
                   "column %u: %u requests and %llu bytes, not %u and %llu",
                   i, sum.active, (unsigned long long) sum.pending,
                   own.active, (unsigned long long) own.pending);
    }

    view = kvr_load_view(load);
    at = kvr_reservation_load(&view, living.registry, 1, NULL);
    util_check(at.active == 1 && at.unanswered == 1
               && at.pending == UNITS * UNIT, "the request in flight: %u %u",
               at.active, at.unanswered);
}


static void
check_lines(void)
{
    uint64_t           i;
    uint32_t           k, p;
    kvr_index_t       *ix;
    kvr_index_undo_t   undo;
    kvr_index_line_t  *line;

    ix = living.index;

    for (i = 0; i < ix->nlines; i++) {
        line = &ix->line[i];

        if (line->key <= KVR_INDEX_CLAIMED) {
            continue;
        }

        util_check(kvr_reduce(line->key, ix->nbuckets) == i / KVR_INDEX_WAYS,
                   "line %llu is in the wrong bucket", (unsigned long long) i);

        /* a session stores its peer differently */

        if (line->key & 1) {
            continue;
        }

        for (k = 0; k < KVR_INDEX_HOLDERS; k++) {
            p = kvr_index_id(line->ids, k, line->stamp[k]);
            util_check(line->stamp[k] == 0 || p < NUMBERS,
                       "line %llu names peer %u", (unsigned long long) i, p);
        }
    }

    /* the sweep frees claims of dead processes, and there is room again */

    ix->clock += 2 * KVR_INDEX_CLAIM;

    for (i = 0; i < 5 * kvr_line_turns(ix) * ix->nlines; i += 1000) {
        kvr_index_insert(ix, chain[0], 0, 1000, NUMBERS, 0, &undo);
    }

    for (i = 0; i < ix->nlines; i++) {
        util_check(ix->line[i].key == 0
                   || ix->line[i].key > KVR_INDEX_CLAIMED,
                   "line %llu is lost for ever", (unsigned long long) i);
    }
}


/* returns the number of a prompt's lines in which a server is a holder */
static unsigned
world_lines(unsigned prompt, unsigned p)
{
    unsigned   i, n;
    kvr_set_t  set;

    for (i = 0, n = 0; i < UNITS; i++) {
        set = kvr_index_holds(living.index, chain[prompt][i], kvr_set_of(p));
        n += !kvr_set_empty(&set, KVR_SET_WORDS);
    }

    return n;
}


/* cached blocks are known, and no server has blocks that it never computed */
static void
check_index(void)
{
    unsigned       i, n, p;
    uint32_t       matched[KVR_PEERS];
    kvr_index_undo_t  undo;

    for (i = 0; i < PROMPTS; i++) {
        memset(matched, 0, sizeof(matched));
        kvr_index_lookup(living.index, chain[i], UNITS, kvr_set_below(NUMBERS),
                         matched);

        for (p = 0; p < NUMBERS; p++) {

            /* the slot's entries of an earlier server do not count */

            if (p >= PEERS && !world_is(p, p)) {
                util_check(matched[p] == 0, "prompt %u: server %u is new and "
                           "has %u blocks", i, p, matched[p]);
            }

            util_check(matched[p] <= begun.units[i][p]
                       || (matched[p] <= UNITS / 2
                           && matched[p] <= begun.units[i ^ 1][p]),
                       "prompt %u: server %u has %u of %u", i, p,
                       matched[p], begun.units[i][p]);

            if (i >= KEPT || p >= HELD_BY || table_full
                || matched[p] == UNITS)
            {
                continue;
            }

            /* a line with more holders than slots can lose one until the next
               insert, if a process dies between slot and mask */

            n = world_lines(i, p);
            util_check(n + 1 == UNITS, "prompt %u: server %u holds all, and is "
                       "has %u, in %u lines", i, p, matched[p], n);

            kvr_index_insert(living.index, chain[i], UNITS, UNITS, p,
                             matched[p], &undo);
            n = kvr_index_lookup(living.index, chain[i], UNITS, kvr_set_of(p),
                                 matched);
            util_check(n == UNITS, "prompt %u: server %u holds all again, and "
                       "has %u", i, p, n);
        }
    }

    check_lines();

    n = table_full ? 1 : UNITS;

    for (p = 0; p < PEERS; p++) {
        kvr_index_insert(living.index, chain[PROMPTS - 1], n, n, p, 0, &undo);
        (void) kvr_index_lookup(living.index, chain[PROMPTS - 1], n,
                                kvr_set_of(p), matched);
        util_check(matched[p] == n, "an insert was not stored: %u", matched[p]);
    }
}


/* no name twice, none incomplete; a new server gets a slot */
static void
check_registry(void)
{
    unsigned     i, k, found;
    kvr_peer_t  *peer;
    kvr_member_t  *seat;

    for (i = 0; i < living.registry->max_members; i++) {
        seat = &living.registry->member[i];
        util_check(!seat->used || living.registry->peer[seat->peer].len,
                   "member %u has no server", i);
    }

    for (i = 0; i < NUMBERS; i++) {
        peer = &living.registry->peer[i];

        if (peer->len == 0) {
            continue;
        }

        for (k = 0, found = 0; k < NAMES; k++) {
            found += world_is(i, k);
        }

        util_check(found == 1, "slot %u has an unknown name", i);

        for (k = 0; k < i; k++) {
            util_check(living.registry->peer[k].len != peer->len
                       || memcmp(living.registry->peer[k].name, peer->name,
                                 peer->len) != 0,
                       "slots %u and %u have one server", i, k);
        }

        util_check(peer->engine.health < KVR_HEALTH_MAX, "health");
        util_check(peer->drain.on <= 1, "draining");
    }

    world_peers(&living, NUMBERS);
}


static void
check_receipts(util_rng_t *rng)
{
    uint64_t       n, last;
    unsigned       seen;
    kvr_receipt_t  r = { 0 }, all;

    last = kvr_get(&world->receipts.last);
    seen = 0;

    /* and those before them in the ring */

    for (n = kvr_max(last, 2 * KVR_RECEIPTS) - 2 * KVR_RECEIPTS + 1;
         n <= last;
         n++)
    {
        if (kvr_receipt_get(&world->receipts, n, &r) != KVR_OK) {
            continue;
        }

        world_receipt(&all, r.time);
        all.number = r.number;
        all.ttft = r.ttft;
        all.stream = r.stream;

        util_check(memcmp(&all, &r, sizeof(r)) == 0 && r.number == n,
                   "receipt %llu is incomplete", (unsigned long long) n);
        seen++;
    }

    util_check(seen >= KVR_RECEIPTS - 1, "%u receipts are left", seen);

    world_receipt(&all, util_next(rng));
    n = kvr_receipt_put(&world->receipts, &all);
    util_check(kvr_receipt_get(&world->receipts, n, &r) == KVR_OK
               && r.time == all.time, "a receipt was not stored");
}


static void
check_stats(void)
{
    uint64_t            i, n;
    double              count;
    kvr_histogram_t     h;
    kvr_hot_keys_t      keys;

    kvr_stats_sum(&world->stats, KVR_STATS_TTFT, KVR_STATS_TTFT, &h);

    for (i = 0, n = 0; i <= KVR_STATS_BUCKETS; i++) {
        n += h.bucket[i];
    }

    util_check(n <= begun.observed && n + 1 >= begun.observed,
               "%llu of %u observations", (unsigned long long) n,
               begun.observed);

    kvr_hot_keys(chain[0], UNITS, &keys);
    count = util_hot_count(&world->hot, keys.key[0], NOW);
    util_check(count <= begun.hot + 0.01, "a prefix of %g requests, "
               "not %u", count, begun.hot);
}


/* admits the waiting request; no other one is counted */
static void
check_queue(void)
{
    int                 rc;
    uint32_t            n;
    uint64_t            now;
    unsigned            i;
    kvr_queue_shared_t  *board;

    board = &world->board;
    now = NOW + KVR_QUEUE_STALE + 100;

    kvr_queue_publish(board, living.row, &waiting, now);

    n = kvr_queue_depth(board, KVR_QUEUE_CLASSES - 1, now);
    util_check(n == 1, "%u requests wait", n);
    util_check(kvr_queue_bytes(board, now) == 1000, "bytes waiting");

    for (i = 0; i < KVR_QUEUE_CLASSES; i++) {
        for (n = 0; kvr_queue_take(board, i) == KVR_OK; n++) {
            util_check(n < 4, "too many requests are to be displaced");
        }
    }

    util_check(kvr_queue_tenant(board, 77, now) == waiter.tenant,
               "a tenant has lost its place");

    rc = kvr_queue_admit(board, living.row, &waiting, &waiter, now,
                         world_room, NULL);
    util_check(rc == KVR_OK, "the waiting request is not admitted: %d", rc);

    n = kvr_queue_retry_after(board, now);
    util_check(n >= 1 && n <= 3600, "Retry-After %u s", n);
}


/* the surviving process's request ends */
static void
check_attempt(void)
{
    unsigned         i;
    kvr_first_t      f = { 0 };
    kvr_settle_t     e = { 0 };
    kvr_load_view_t  view;
    kvr_reservation_load_t  at;

    f.ok = 1;
    f.stream = 1;
    f.plain = 1;
    e.tokens.prompt = UNITS * UNIT / 4;
    e.tokens.completion = 10;
    e.seconds = NOW / 1000;

    (void) kvr_attempt_first(&running, &living, &pool, &f, NOW + 100);
    (void) kvr_attempt_settle(&running, &living, &pool, &e, NOW + 200);
    util_check(kvr_attempt_release(&running, &living), "released before");
    (void) kvr_attempt_end(&running);

    view = kvr_load_view(living.load);

    for (i = 0; i < NUMBERS; i++) {
        at = kvr_reservation_load(&view, living.registry, i, NULL);
        util_check(at.active == 0 && at.pending == 0 && at.resident == 0
                   && at.unanswered == 0, "server %u: %u %u %llu %llu", i,
                   at.active, at.unanswered, (unsigned long long) at.pending,
                   (unsigned long long) at.resident);
    }
}


void
world_check(util_rng_t *rng)
{
    kvr_queue_t       q;
    kvr_attempt_t     attempt;
    kvr_queue_item_t  item;

    /* the surviving process's own state is unchanged by the kill */

    q = waiting;
    item = waiter;
    attempt = running;

    check_load();
    check_registry();
    check_receipts(rng);
    check_stats();
    check_queue();
    check_attempt();
    check_index();
    world_ejection();

    waiting = q;
    waiter = item;
    running = attempt;
}
