
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A zone's snapshot restores the state, in a table of any size; a bad file is
 * reported and leaves the zone empty; whatever other processes do meanwhile,
 * no peer gets a block that was not inserted for it.
 */


#include "util_registry.h"
#include "util.h"
#include "core/state/kvr_zone_snapshot.h"

#include <pthread.h>


#define LINES     8192
#define PEERS     6
#define CHAINS    60
#define DEPTH     32
#define CAPACITY  100000
#define FEW       64               /* lines */
#define NOW       1700000000ULL
#define HEAD      24


typedef struct {
    uint64_t  key;
    unsigned  peer;
} owner_t;


static uint64_t    chain[CHAINS][DEPTH];
static uint8_t     secret[2][KVR_SECRET_LEN];
static util_rng_t  rng;
static uint8_t     slice[KVR_ZONE_SNAPSHOT_SLICE];


static void
make_for(kvr_zone_t *z, uint64_t lines, uint32_t max_peers)
{
    memset(z, 0, sizeof(kvr_zone_t));

    z->registry = util_registry(max_peers);

    z->load = util_zeroed(kvr_load_size(2, kvr_registry_columns(max_peers)));
    kvr_load_init(z->load, 2, kvr_registry_columns(max_peers));

    z->index = util_zeroed(kvr_index_size(lines, max_peers));
    kvr_index_init(z->index, lines, max_peers);

    z->row = kvr_load_claim(z->load, kvr_load_owner(1, 1), 1);
}


static void
make(kvr_zone_t *z, uint64_t lines)
{
    make_for(z, lines, KVR_PEERS_FEW);
}


static void
drop(kvr_zone_t *z)
{
    free(z->registry);
    free(z->load);
    free(z->index);
}


static uint32_t
peer(kvr_zone_t *z, unsigned i)
{
    char  name[32];

    snprintf(name, sizeof(name), "10.0.0.%u:8000", i);

    return kvr_registry_peer(z->registry, z->load, z->row, z->index, name,
                             strlen(name), CAPACITY);
}


static void
teach(kvr_zone_t *z, unsigned c, unsigned to)
{
    uint32_t          matched[KVR_PEERS];
    kvr_index_undo_t  undo;

    (void) kvr_index_lookup(z->index, chain[c], DEPTH, kvr_set_of(to),
                            matched);
    kvr_index_insert(z->index, chain[c], DEPTH, DEPTH, to, matched[to], &undo);
}


static void
save(kvr_zone_t *z, const uint8_t *key, util_buf_t *file)
{
    size_t               n;
    uint64_t             before;
    kvr_zone_snapshot_t  s;

    memset(file, 0, sizeof(*file));
    kvr_zone_snapshot_begin(&s, z, key);

    while (!s.done) {
        before = s.line;
        n = kvr_zone_snapshot_next(&s, NOW, slice);

        /* the cost of one turn of nginx's event loop */

        util_check(n <= KVR_ZONE_SNAPSHOT_SLICE
                   && s.line - before <= KVR_ZONE_SNAPSHOT_LINES, "a slice");
        util_put(file, slice, n);
    }
}


static kvr_zone_snapshot_e
load(kvr_zone_t *z, const util_buf_t *file, kvr_zone_snapshot_read_t *r)
{
    return kvr_zone_snapshot_read(z, secret[0], file->p, file->len, NOW + 5,
                                  r);
}


/* a changed file with the digest that the key's owner would write */
static void
forge(util_buf_t *file)
{
    uint64_t  digest;

    digest = XXH3_64bits_withSecret(file->p, file->len - 8, secret[0],
                                    KVR_SECRET_LEN);
    memcpy(file->p + file->len - 8, &digest, 8);
}


static void
setup(kvr_zone_t *z)
{
    unsigned  i, k, c;

    util_seed(&rng, "snapshot", 1);

    for (k = 0; k < 2; k++) {
        for (i = 0; i < KVR_SECRET_LEN; i++) {
            secret[k][i] = (uint8_t) util_next(&rng);
        }
    }

    for (c = 0; c < CHAINS; c++) {
        for (i = 0; i < DEPTH; i++) {

        /* some share a prefix */

            chain[c][i] = (c % 3 && i < 12) ? chain[c - 1][i]
                                            : util_next(&rng);
        }
    }

    make(z, LINES);

    for (i = 0; i < PEERS; i++) {
        (void) peer(z, i);
    }

    for (c = 0; c < 2 * CHAINS; c++) {
        teach(z, c % CHAINS, util_below(&rng, PEERS));
    }
}


/* the cached part of each chain, or nothing if they differ */
static unsigned
same(kvr_zone_t *a, kvr_zone_t *b)
{
    unsigned  c, i, n;
    uint32_t  one[KVR_PEERS], two[KVR_PEERS];

    n = 0;

    for (c = 0; c < CHAINS; c++) {
        (void) kvr_index_lookup(a->index, chain[c], DEPTH, util_set(63), one);
        (void) kvr_index_lookup(b->index, chain[c], DEPTH, util_set(63), two);

        for (i = 0; i < PEERS; i++) {
            util_check(two[i] <= one[i], "chain %u, peer %u: %u, was %u", c, i,
                       two[i], one[i]);
            n += one[i] == two[i];
        }
    }

    return n;
}


TEST(test_again)
{
    util_buf_t                file;
    kvr_zone_t                a, b;
    uint32_t                  i, generation;
    kvr_zone_snapshot_read_t  r;

    setup(&a);

    /* a slot that another peer got, and a flush */

    atomic_store(&a.registry->peer[3].generation, 7);
    kvr_index_flush(a.index, 5);
    teach(&a, 1, 5);

    kvr_index_capacity(a.index, 2, 12345, KVR_INDEX_REPORTED);
    kvr_index_bind(a.index, 991, 3, 7, NOW + 100);
    kvr_index_bind(a.index, 992, 3, 7, NOW + 3);

    save(&a, secret[0], &file);
    make(&b, LINES);

    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);
    ck_assert_uint_eq(r.peers, PEERS);
    ck_assert_uint_eq(r.age, 5);
    ck_assert_uint_eq(same(&a, &b), CHAINS * PEERS);

    ck_assert_uint_eq(kvr_get(&kvr_index_peer(b.index, 2)->capacity), 12345);
    ck_assert_uint_eq(kvr_get(&kvr_index_peer(b.index, 2)->source),
                      KVR_INDEX_ASSUMED);

    ck_assert_uint_eq(kvr_index_bound(b.index, 991, NOW + 5, &generation), 3);
    ck_assert_uint_eq(generation, 7);
    ck_assert_uint_eq(kvr_index_bound(b.index, 992, NOW + 1, &generation),
                      KVR_PEERS);

    /* peers in another order keep their blocks */

    for (i = PEERS; i > 0; i--) {
        ck_assert_uint_eq(peer(&b, i - 1), i - 1);
    }

    ck_assert_uint_eq(same(&a, &b), CHAINS * PEERS);
    ck_assert_uint_eq(peer(&b, 77), PEERS);

    /* later inserts work as before */

    for (i = 0; i < CHAINS; i++) {
        teach(&a, i, i % PEERS);
        teach(&b, i, i % PEERS);
    }

    ck_assert_uint_eq(same(&a, &b), CHAINS * PEERS);

    util_drop(&file);
    drop(&a);
    drop(&b);
}


/* more than eight holders: a mask */
TEST(test_mask)
{
    unsigned                  i;
    util_buf_t                file;
    kvr_zone_t                a, b;
    uint32_t                  one[KVR_PEERS], two[KVR_PEERS];
    kvr_zone_snapshot_read_t  r;

    setup(&a);

    for (i = 0; i < 20; i++) {
        teach(&a, 0, peer(&a, i));
    }

    save(&a, secret[0], &file);
    make(&b, LINES);

    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);

    (void) kvr_index_lookup(a.index, chain[0], DEPTH, util_set(0xfffff), one);
    (void) kvr_index_lookup(b.index, chain[0], DEPTH, util_set(0xfffff), two);

    for (i = 0; i < 20; i++) {
        ck_assert_uint_eq(one[i], two[i]);
    }

    ck_assert_uint_eq(two[0], DEPTH);

    util_drop(&file);
    drop(&a);
    drop(&b);
}


TEST(test_sizes)
{
    unsigned                  n, half;
    util_buf_t                file;
    kvr_zone_t                a, b;
    kvr_zone_snapshot_read_t  r;

    setup(&a);
    save(&a, secret[0], &file);

    make(&b, LINES * 3);
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);
    ck_assert_uint_eq(same(&a, &b), CHAINS * PEERS);
    n = (unsigned) r.lines;
    drop(&b);

    make(&b, 256);
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);
    half = same(&a, &b);
    ck_assert_uint_lt(half, CHAINS * PEERS);
    ck_assert_uint_gt(n, 256);
    drop(&b);

    /* a zone for fewer peers */

    make(&b, LINES);
    b.registry->max_peers = 2;
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);
    ck_assert_uint_eq(r.peers, 2);
    (void) same(&a, &b);

    util_drop(&file);
    drop(&a);
    drop(&b);
}


/*
 * A snapshot of a zone for 128 peers, where a bit of a mask stands for two of
 * them.  A zone for 64 peers finds no peers by masks, except those with a slot
 * in the line.  A zone for 512 peers finds all.
 */
TEST(test_narrow)
{
    uint32_t                  i, matched[KVR_PEERS];
    kvr_zone_t                a, b;
    util_buf_t                file;
    kvr_zone_snapshot_read_t  r;

    setup(&b);
    drop(&b);

    make_for(&a, LINES, 128);

    for (i = 0; i < 100; i++) {
        ck_assert_uint_eq(peer(&a, i), i);
    }

    for (i = 0; i < 100; i++) {
        teach(&a, i < 64 ? 1 : 0, i);
    }

    save(&a, secret[0], &file);

    make(&b, LINES);
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);
    ck_assert_uint_eq(r.peers, 64);

    (void) kvr_index_lookup(b.index, chain[0], DEPTH, kvr_set_below(64),
                            matched);

    for (i = 0; i < 64; i++) {
        util_check(matched[i] < DEPTH, "peer %u has it", i);
    }

    drop(&b);

    make_for(&b, LINES, 512);
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);
    ck_assert_uint_eq(r.peers, 100);

    (void) kvr_index_lookup(b.index, chain[0], DEPTH, kvr_set_below(512),
                            matched);

    for (i = 64; i < 100; i++) {
        util_check(matched[i] == DEPTH, "peer %u has %u", i, matched[i]);
    }

    util_drop(&file);
    drop(&a);
    drop(&b);
}


TEST(test_refused)
{
    size_t                    i, n;
    uint8_t                   bit;
    kvr_zone_t                a, b, fresh;
    util_buf_t                file;
    kvr_zone_snapshot_read_t  r;

    setup(&a);
    save(&a, secret[0], &file);

    make(&b, LINES);
    make(&fresh, LINES);

#define refused(why)                                                          \
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_ ## why)

    /* another key, block, version */

    ck_assert_int_eq(kvr_zone_snapshot_read(&b, secret[1], file.p, file.len,
                                            NOW, &r),
                     KVR_ZONE_SNAPSHOT_KEY);

    file.p[13]++;
    refused(VERSION);
    file.p[13]--;

    file.p[8]++;
    refused(VERSION);
    file.p[8]--;

    /* another time */

    ck_assert_int_eq(kvr_zone_snapshot_read(&b, secret[0], file.p, file.len,
                                            NOW + KVR_ZONE_SNAPSHOT_AGE + 1,
                                            &r),
                     KVR_ZONE_SNAPSHOT_OLD);
    ck_assert_int_eq(kvr_zone_snapshot_read(&b, secret[0], file.p, file.len,
                                            NOW - KVR_ZONE_SNAPSHOT_AGE - 1,
                                            &r),
                     KVR_ZONE_SNAPSHOT_OLD);

    /* any byte, any length */

    for (i = 0; i < file.len; i += 1 + util_below(&rng, 40)) {
        bit = (uint8_t) (1 << util_below(&rng, 8));

        file.p[i] ^= bit;
        util_check(load(&b, &file, &r) != KVR_ZONE_SNAPSHOT_OK, "byte %zu", i);
        file.p[i] ^= bit;
    }

    n = file.len;

    for (file.len = 0; file.len < n; file.len += 1 + file.len / 100) {
        util_check(load(&b, &file, &r) != KVR_ZONE_SNAPSHOT_OK, "length %zu",
                   file.len);
    }

    file.len = n;

    /* wrong lengths, of the file and of a record, with a good digest */

    file.p[n - 16]++;
    forge(&file);
    refused(LENGTH);
    file.p[n - 16]--;

    file.p[HEAD] ^= 0x0f;
    forge(&file);
    refused(DAMAGED);

    util_check(memcmp(b.index, fresh.index,
                      kvr_index_size(LINES, KVR_PEERS_FEW)) == 0
               && memcmp(b.registry->peer, fresh.registry->peer,
                         KVR_PEERS_FEW * sizeof(kvr_peer_t)) == 0,
               "a rejected file changes nothing");

    for (i = 0; i < KVR_ZONE_SNAPSHOT_RESULTS; i++) {
        ck_assert_ptr_nonnull(kvr_zone_snapshot_why((kvr_zone_snapshot_e) i));
    }

    util_drop(&file);
    drop(&a);
    drop(&b);
    drop(&fresh);
}


/* an engine that restarted meanwhile: its first answer shows this */
TEST(test_start)
{
    kvr_metrics_t             m = { 0 };
    kvr_zone_t                a, b;
    util_buf_t                file;
    kvr_zone_snapshot_read_t  r;

    setup(&a);

    m.set = KVR_METRICS_START;
    m.start = 1000;

    ck_assert_uint_eq(kvr_engine_take(&a.registry->peer[0].engine, &m, 0, 0,
                                      1), 0);
    ck_assert_uint_eq(kvr_engine_take(&a.registry->peer[1].engine, &m, 0, 0,
                                      1), 0);

    save(&a, secret[0], &file);
    make(&b, LINES);
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);

    ck_assert_uint_eq(kvr_engine_take(&b.registry->peer[0].engine, &m, 0, 0,
                                      1), 0);
    m.start = 2000;
    ck_assert_uint_eq(kvr_engine_take(&b.registry->peer[1].engine, &m, 0, 0,
                                      1), KVR_ENGINE_RESTARTED);
    ck_assert_uint_eq(kvr_engine_take(&b.registry->peer[2].engine, &m, 0, 0,
                                      1), 0);

    util_drop(&file);
    drop(&a);
    drop(&b);
}


/* a slot that gets another peer during the write */
TEST(test_renamed)
{
    size_t                    n;
    uint32_t                  i, matched[KVR_PEERS];
    unsigned                  c;
    kvr_zone_t                a, b;
    util_buf_t                file = { 0 };
    kvr_zone_snapshot_t       s;
    kvr_zone_snapshot_read_t  r;

    setup(&a);
    a.registry->max_peers = PEERS;

    kvr_zone_snapshot_begin(&s, &a, secret[0]);

    while (!s.done) {
        n = kvr_zone_snapshot_next(&s, NOW, slice);
        util_put(&file, slice, n);

        if (s.line >= LINES && !s.done && peer(&a, 100) == KVR_REGISTRY_NONE) {

    /* this process had named all: one is removed, another added */

            kvr_load_release(a.load, a.row);
            a.row = kvr_load_claim(a.load, kvr_load_owner(2, 1), 2);
            ck_assert_uint_lt(peer(&a, 100), PEERS);
        }
    }

    make(&b, LINES);
    ck_assert_int_eq(load(&b, &file, &r), KVR_ZONE_SNAPSHOT_OK);

    i = kvr_registry_find_peer(b.registry, "10.0.0.100:8000", 15);
    ck_assert_uint_lt(i, PEERS);

    for (c = 0; c < CHAINS; c++) {
        (void) kvr_index_lookup(b.index, chain[c], DEPTH, kvr_set_of(i),
                                matched);
        ck_assert_uint_eq(matched[i], 0);
    }

    util_drop(&file);
    drop(&a);
    drop(&b);
}


static _Atomic int  stop;


static void *
teacher(void *data)
{
    unsigned     c;
    util_rng_t   r;
    kvr_zone_t  *z = data;

    util_seed(&r, "teacher", 1);

    while (!atomic_load(&stop)) {
        c = util_below(&r, CHAINS);
        teach(z, c, c / 3 % PEERS);
    }

    return NULL;
}


static int
by_key(const void *a, const void *b)
{
    uint64_t  x = ((const owner_t *) a)->key, y = ((const owner_t *) b)->key;

    return (x > y) - (x < y);
}


/* others insert and evict all the time, each chain for one peer */
TEST(test_torn)
{
    size_t           n;
    unsigned         c, i, k;
    uint64_t         records;
    pthread_t        thread;
    kvr_zone_t       a;
    const uint8_t   *p, *last;
    owner_t          one, *of;

    static owner_t  owner[CHAINS * DEPTH];

    setup(&a);
    drop(&a);
    make(&a, FEW);

    for (i = 0; i < PEERS; i++) {
        (void) peer(&a, i);
    }

    for (c = 0; c < CHAINS; c++) {
        for (i = 0; i < DEPTH; i++) {
            owner[c * DEPTH + i].key = chain[c][i] & ~1ULL;
            owner[c * DEPTH + i].peer = c / 3 % PEERS;
        }
    }

    qsort(owner, CHAINS * DEPTH, sizeof(owner_t), by_key);

    records = 0;
    atomic_store(&stop, 0);
    pthread_create(&thread, NULL, teacher, &a);

    for (k = 0; records < util_cases(5000000); k++) {

        last = kvr_index_snapshot_write(a.index, 0, FEW, slice);

        for (p = slice; p < last; p += n) {

            n = kvr_index_snapshot_length(p, (size_t) (last - p));
            util_check(n != 0, "run %u", k);

            (void) kvr_index_snapshot_get(p + 1, &one.key, 8);
            of = bsearch(&one, owner, CHAINS * DEPTH, sizeof(owner_t), by_key);

            for (i = 0; of && i < (*p & KVR_INDEX_SNAPSHOT_HOLDERS); i++) {
                util_check(p[13 + i * 5] == of->peer,
                           "run %u: a block of peer %u is taken for one of %u",
                           k, of->peer, p[13 + i * 5]);
                records++;
            }
        }
    }

    atomic_store(&stop, 1);
    pthread_join(thread, NULL);

    drop(&a);
}
