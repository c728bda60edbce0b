
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_alias: a model of an engine tells what it stores, and requests that end
 * are found in it.  The model knows which block is which place, kvr_alias does
 * not.
 */


#include "util.h"
#include "core/base/kvr_chain.h"
#include "core/alias/kvr_alias.h"


#define CELLS   1024
#define BLOCK   16                   /* tokens */
#define UNIT    256                  /* bytes: four blocks of four to a token */
#define PER     4
#define UNITS   512


typedef struct {
    uint64_t             seed;       /* of its text, from a unit on */
    uint32_t             blocks;
    uint32_t             cached;
    uint64_t             session;    /* that the engine tells */
    uint32_t             before;     /* tokens, or KVR_ALIAS_NOWHERE */
    uint32_t             more;       /* tokens cached, of a block */
    uint64_t             start, first;
    uint64_t             key[UNITS];
    kvr_alias_request_t  r;
} prompt_t;


static kvr_alias_view_t    v;
static kvr_events_alias_t  counts;
static kvr_kvevent_t       event;
static prompt_t            a, b;


static void
setup(void)
{
    size_t   size;
    void    *p;

    size = (kvr_alias_size(CELLS) + 63) & ~(size_t) 63;
    p = aligned_alloc(KVR_CACHE_LINE, size);
    memset(p, 0, size);
    memset((void *) &counts, 0, sizeof(counts));

    kvr_alias_view(&v, p, CELLS, &counts);

    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));

    a.before = b.before = KVR_ALIAS_NOWHERE;
}


static void
teardown(void)
{
    free((void *) v.shared);
}


/* the i-th block of a prompt, for the engine; it has its text in its name */
static uint64_t
hash_of(const prompt_t *p, uint32_t i)
{
    return kvr_mix(p->seed, i + 1);
}


/* and the entry that ends in it, for us */
static uint64_t
key_of(const prompt_t *p, uint32_t entry)
{
    return kvr_mix(kvr_mix(p->seed, 77), entry + 1);
}


static void
make(prompt_t *p, uint64_t seed, uint32_t blocks, uint32_t cached,
    uint64_t first)
{
    uint32_t  i;

    p->seed = seed;
    p->blocks = blocks;
    p->cached = cached;
    p->start = first - 500;
    p->first = first;

    for (i = 0; i < UNITS; i++) {
        p->key[i] = key_of(p, i);
    }
}


static void
store(const prompt_t *p, uint32_t from, uint32_t to, uint64_t now)
{
    uint32_t  i;

    memset(&event, 0, offsetof(kvr_kvevent_t, hash));

    event.type = KVR_KVEVENT_STORED;
    event.rooted = (from == 0);
    event.parent = from ? hash_of(p, from - 1) : 0;
    event.block = BLOCK;
    event.blocks = to - from;
    event.last = hash_of(p, to - 1);

    for (i = from; i < to && i - from < KVR_KVEVENT_HASHES; i++) {
        event.hash[i - from] = hash_of(p, i);
    }

    event.session = p->session;

    kvr_alias_stored(&v, &event, 0, p->before, now);
}


static kvr_alias_e
end(prompt_t *p)
{
    kvr_alias_request_t  *r;

    r = &p->r;

    r->start = p->start;
    r->first = p->first;
    r->now = p->first + 2000;
    r->prompt = p->blocks * BLOCK + 3;
    r->cached = p->cached * BLOCK + p->more;
    r->bytes = (uint64_t) r->prompt * 4;
    r->from = p->r.from;
    r->n = kvr_chain_entries(p->blocks / PER) - r->from;
    r->key = &p->key[r->from];

    return kvr_alias_attribute(&v, r);
}


/* whether a block is known, and for what it is */
static int
known(const prompt_t *p, uint32_t block)
{
    uint32_t           entry;
    kvr_alias_place_t  place;

    if (!kvr_alias_mark(&v, hash_of(p, block), 0, 0, &place)) {
        return 0;
    }

    entry = kvr_chain_entries(block / PER + 1) - 1;

    ck_assert_uint_eq(place.entry, entry);
    ck_assert_uint_eq(place.key, key_of(p, entry));

    return 1;
}


static uint32_t
known_of(const prompt_t *p)
{
    uint32_t  i, n;

    for (i = 0, n = 0; i < p->blocks; i++) {
        n += known(p, i);
    }

    return n;
}


/* other lengths, another time, a run that begins elsewhere: not its own */
TEST(test_alias_none)
{
    make(&a, 1, 40, 8, 10000);

    store(&a, 0, 40, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    store(&a, 8, 44, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    store(&a, 8, 40, 12000);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    /* it was there before the request came */

    a.start = 12500;
    a.first = 12600;
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
    ck_assert_uint_eq(known_of(&a), 0);
    ck_assert_uint_eq(counts.missing, 4);

    /* as many, and nobody knows where they begin: not at the start of a prompt */

    make(&b, 2, 32, 0, 20000);
    store(&a, 8, 40, 19990);
    ck_assert_int_eq(end(&b), KVR_ALIAS_MISSING);
}


/*
 * Where a run begins: behind the last whole block that was cached, and not
 * before the request; by what is told of it, by the run that it goes on from, or
 * if nobody knows anywhere but at the start of a prompt.
 */
TEST(test_alias_begin)
{
    /* a part of a block was cached, and a part of one is at the end */

    make(&a, 1, 40, 8, 10000);
    store(&a, 8, 40, 9990);
    a.more = BLOCK - 1;
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    a.more = 0;

    /* it begins elsewhere, as the engine's order tells: too soon, too late */

    make(&a, 2, 40, 8, 20000);
    a.before = 7 * BLOCK;
    store(&a, 8, 40, 19990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
    a.before = 9 * BLOCK;
    store(&a, 8, 40, 19990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
    a.before = 0;
    store(&a, 8, 40, 19990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
    a.before = 8 * BLOCK;
    store(&a, 8, 40, 19990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 8);

    /* the end of a longer one */

    make(&a, 3, 60, 20, 30000);
    a.before = 8 * BLOCK;
    store(&a, 8, 60, 29990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    /* by the run that it goes on from */

    a.before = KVR_ALIAS_NOWHERE;
    make(&a, 4, 20, 0, 40000);
    store(&a, 0, 20, 39990);
    make(&b, 5, 39, 19, 50000);
    make(&a, 4, 40, 20, 50000);
    store(&a, 20, 40, 49990);
    ck_assert_int_eq(end(&b), KVR_ALIAS_MISSING);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);

    /* chunks, of which the first came before the request */

    make(&a, 6, 40, 0, 60000);
    store(&a, 0, 20, 59400);
    store(&a, 20, 40, 59990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
}


/* the last entry ends with the prompt, in a part of a block: that is not stored */
TEST(test_alias_end)
{
    kvr_alias_place_t  place;

    make(&a, 1, 40, 0, 10000);
    make(&b, 2, 40, 0, 10000);
    store(&a, 0, 40, 9990);
    store(&b, 0, 38, 9990);

    a.r = (kvr_alias_request_t) {
        .start = 9500, .first = 10000, .now = 12000, .prompt = 40 * BLOCK + 3,
        .bytes = 10 * UNIT, .n = 10, .key = a.key
    };

    ck_assert_int_eq(kvr_alias_attribute(&v, &a.r), KVR_ALIAS_ATTRIBUTED);
    ck_assert(known(&a, 39));
    ck_assert(!kvr_alias_mark(&v, hash_of(&b, 0), 0, 0, &place));
}


/* what was cached was stored as a reply, block by block */
TEST(test_alias_reply)
{
    uint32_t  i;

    make(&a, 1, 40, 0, 10000);
    store(&a, 0, 40, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);

    for (i = 40; i < 60; i++) {
        store(&a, i, i + 1, 10000 + i);
    }

    ck_assert(!known(&a, 59));

    make(&a, 1, 80, 60, 30000);
    a.r.from = 9;
    store(&a, 60, 80, 29990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 20);
    ck_assert(known(&a, 59));
    ck_assert(known(&a, 43));
}


/* two of one length at one time, then two that time tells apart */
TEST(test_alias_two)
{
    uint32_t  i;

    make(&a, 1, 40, 0, 10000);
    make(&b, 2, 40, 0, 10100);

    store(&a, 0, 40, 9990);
    store(&b, 0, 40, 10090);
    ck_assert_int_eq(end(&a), KVR_ALIAS_AMBIGUOUS);
    ck_assert_int_eq(end(&b), KVR_ALIAS_AMBIGUOUS);
    ck_assert_uint_eq(counts.used, 0);

    /* where events usually are is not known yet */

    make(&a, 3, 40, 0, 20000);
    make(&b, 4, 40, 0, 20600);
    store(&a, 0, 40, 20050);
    store(&b, 0, 40, 20650);
    ck_assert_int_eq(end(&a), KVR_ALIAS_AMBIGUOUS);

    for (i = 0; i < 16; i++) {
        make(&a, 10 + i, 20 + i, 0, 30000 + 5000 * i);
        store(&a, 0, 20 + i, 30050 + 5000 * i);
        ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    }

    make(&a, 5, 40, 0, 200000);
    make(&b, 6, 40, 0, 200600);
    store(&a, 0, 40, 200050);
    store(&b, 0, 40, 200650);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_int_eq(end(&b), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 10);
    ck_assert_uint_eq(known_of(&b), 10);
    ck_assert_uint_eq(counts.wrong, 0);
}


/* one run, and two requests that fit: of one prompt, and of two */
TEST(test_alias_taken)
{
    make(&a, 1, 40, 0, 10000);
    store(&a, 0, 40, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 10);

    make(&b, 2, 40, 0, 10010);
    ck_assert_int_eq(end(&b), KVR_ALIAS_AMBIGUOUS);
    ck_assert_uint_eq(known_of(&a), 10);
    ck_assert_uint_eq(known_of(&b), 0);
}


/* blocks that were taken for another prompt's are attributed again */
TEST(test_alias_wrong)
{
    kvr_alias_place_t  place;

    /* a's events are lost, and b's are taken for them */

    make(&a, 1, 40, 0, 10000);
    make(&b, 2, 40, 0, 10000);
    store(&b, 0, 40, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert(kvr_alias_mark(&v, hash_of(&b, 39), 0, 1, &place));
    ck_assert_uint_eq(place.key, key_of(&a, 9));

    make(&b, 2, 80, 0, 50000);
    store(&b, 0, 80, 49990);
    ck_assert_int_eq(end(&b), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&b), 20);
    ck_assert_uint_eq(counts.wrong, 10);
    ck_assert_uint_eq(counts.used, 20);
}


/*
 * Two bytes to a token at first, then six: the line from the start is wrong by
 * far, that from the end of the turn before is not.
 */
TEST(test_alias_anchor)
{
    uint32_t           i, n;
    uint64_t           at;
    kvr_alias_place_t  place;

    make(&a, 1, 64, 0, 10000);
    store(&a, 0, 64, 9990);

    a.r = (kvr_alias_request_t) {
        .start = 9500, .first = 10000, .now = 12000, .prompt = 64 * BLOCK,
        .bytes = 64 * BLOCK * 2, .n = 8, .key = a.key
    };

    ck_assert_int_eq(kvr_alias_attribute(&v, &a.r), KVR_ALIAS_ATTRIBUTED);

    store(&a, 64, 128, 19990);

    a.r.start = 19500;
    a.r.first = 20000;
    a.r.now = 22000;
    a.r.prompt = 128 * BLOCK;
    a.r.cached = 64 * BLOCK;
    a.r.bytes = 64 * BLOCK * 8;
    a.r.from = 7;
    a.r.key = &a.key[7];
    a.r.n = 32 - 7;

    ck_assert_int_eq(kvr_alias_attribute(&v, &a.r), KVR_ALIAS_ATTRIBUTED);

    for (i = 64, n = 0; i < 128; i++) {

        if (!kvr_alias_mark(&v, hash_of(&a, i), 0, 0, &place)) {
            continue;
        }

        /* the last token of the entry is in this block */

        at = 64 * BLOCK + ((place.entry + 1) * UNIT - 64 * BLOCK * 2) / 6;
        ck_assert_uint_le((at - 1) / BLOCK, i + 1);
        ck_assert_uint_ge((at - 1) / BLOCK + 1, i);
        n++;
    }

    ck_assert_uint_ge(n, 23);
}


/*
 * Longer tokens follow: a new line ties blocks of the turn before to later
 * entries.  It is not another prompt that had them.
 */
TEST(test_alias_line)
{
    make(&a, 1, 64, 0, 10000);
    store(&a, 0, 64, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);

    store(&a, 64, 128, 19990);

    a.r.start = 19500;
    a.r.first = 20000;
    a.r.now = 22000;
    a.r.prompt = 128 * BLOCK;
    a.r.cached = 64 * BLOCK;
    a.r.bytes = 128 * BLOCK * 6;
    a.r.from = 20;
    a.r.key = &a.key[20];
    a.r.n = 48 - 20;

    ck_assert_int_eq(kvr_alias_attribute(&v, &a.r), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(counts.wrong, 0);
}


/* a session says which is which, whatever the time */
TEST(test_alias_session)
{
    make(&a, 1, 40, 0, 10000);
    make(&b, 2, 40, 0, 10000);
    a.r.session = a.session = 7;
    b.r.session = b.session = 8;

    store(&a, 0, 32, 9990);
    store(&b, 0, 16, 9990);
    store(&b, 16, 40, 30000);
    store(&a, 32, 40, 9991);

    ck_assert_int_eq(end(&b), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&b), 10);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 10);

    /* a session that others had before, with as many blocks */

    make(&a, 3, 40, 0, 49000);
    make(&b, 4, 40, 0, 50000);
    a.session = 8;
    store(&a, 0, 40, 48990);
    store(&b, 0, 40, 49990);
    ck_assert_int_eq(end(&b), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&b), 10);

    ck_assert_uint_eq(counts.attributed, 3);
    ck_assert_uint_eq(counts.session, 3);
    ck_assert_uint_eq(counts.wrong, 0);
}


/*
 * An engine that tells no session, or another one than was asked for: by the
 * time, until it has told one.  Then what has another session is not taken, as
 * that of a client that gives its own; who has none is found by the time.
 */
TEST(test_alias_session_else)
{
    make(&a, 1, 40, 0, 10000);
    a.r.session = 7;
    store(&a, 0, 40, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);

    make(&a, 2, 40, 0, 20000);
    a.session = 99;
    store(&a, 0, 40, 19990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(counts.session, 0);

    make(&b, 3, 40, 0, 30000);
    b.r.session = b.session = 8;
    store(&b, 0, 40, 29990);
    ck_assert_int_eq(end(&b), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(counts.session, 1);

    make(&a, 4, 40, 0, 40000);
    a.session = 99;
    store(&a, 0, 40, 39990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
    ck_assert_uint_eq(known_of(&a), 0);

    a.r.session = 0;
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 10);

    /* another process may be of another version */

    kvr_alias_another(&v);
    ck_assert_uint_eq(known_of(&b), 10);

    make(&a, 5, 40, 0, 50000);
    a.r.session = 7;
    a.session = 0;
    store(&a, 0, 40, 49990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
}


/*
 * Much is stored before a request has ended: the names of its blocks are
 * overwritten, or its runs are, of which the first one is found last.
 */
TEST(test_alias_ring)
{
    uint32_t  i;

    make(&a, 1, 40, 0, 10000);
    store(&a, 0, 40, 9990);

    for (i = 0; i < 8; i++) {
        make(&b, 100 + i, 500, 0, 10000);
        store(&b, 0, 500, 9991);
    }

    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);

    make(&b, 110, 500, 0, 10000);
    store(&b, 0, 500, 9991);

    make(&a, 2, 40, 0, 20000);
    store(&a, 0, 40, 19990);

    for (i = 0; i < 9; i++) {
        make(&b, 200 + i, 500, 0, 20000);
        store(&b, 0, 500, 19991);
    }

    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    make(&a, 3, 40, 0, 30000);
    store(&a, 0, 20, 29990);

    for (i = 0; i < 9; i++) {
        make(&b, 300 + i, 500, 0, 30000);
        store(&b, 0, 500, 29991);
    }

    store(&a, 20, 40, 29992);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    make(&a, 4, 40, 0, 40000);
    store(&a, 0, 20, 39990);

    for (i = 0; i < CELLS / 2 - 1; i++) {
        make(&b, 1000 + i, 3, 0, 40000);
        store(&b, 0, 3, 39991);
    }

    store(&a, 20, 40, 39992);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    make(&a, 5, 40, 0, 50000);
    store(&a, 0, 20, 49990);

    for (i = 0; i < CELLS / 2 - 2; i++) {
        make(&b, 2000 + i, 3, 0, 50000);
        store(&b, 0, 3, 49991);
    }

    store(&a, 20, 40, 49992);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 10);
}


/*
 * Very many runs that might be it, each to be followed far back, of an engine
 * that is broken: nobody looks for long, and what comes later is found.
 */
TEST(test_alias_many)
{
    uint32_t  i;

    make(&a, 1, 460, 0, 10000);
    make(&b, 2, 600, 0, 10000);

    for (i = 1; i < CELLS / 2; i++) {
        store(&b, i, i + 1, 9990);
    }

    ck_assert_int_eq(end(&a), KVR_ALIAS_AMBIGUOUS);
    ck_assert_uint_eq(known_of(&a), 0);

    make(&a, 3, 40, 0, 20000);
    store(&a, 0, 40, 19990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    ck_assert_uint_eq(known_of(&a), 10);
}


/* what a broken engine may tell, and what a client may have it tell */
TEST(test_alias_bounds)
{
    uint32_t             i, k;
    util_rng_t           rng;
    kvr_alias_request_t  r;
    kvr_alias_place_t    place;

    for (i = 0; i < 3000000; i += 77777) {
        k = kvr_alias_cells(i);
        ck_assert(k == 0 || kvr_alias_size(k) <= i);
        ck_assert(i < 16384 || (k && kvr_alias_size(k + 64) > i));
    }

    util_seed(&rng, "bounds", 0);

    for (i = 0; i < 200000; i++) {

        memset(&event, 0, offsetof(kvr_kvevent_t, hash));
        event.type = KVR_KVEVENT_STORED;
        event.rooted = util_below(&rng, 2);
        event.parent = util_below(&rng, 50);
        event.block = util_below(&rng, 3) ? BLOCK : util_below(&rng, 1000);
        event.blocks = util_below(&rng, 50) ? util_below(&rng, 30)
                                            : ~0ULL >> util_below(&rng, 64);
        event.tokens = util_below(&rng, 500);
        event.last = util_below(&rng, 50);
        event.session = util_below(&rng, 3);

        for (k = 0; k < 30; k++) {
            event.hash[k] = util_below(&rng, 50);
        }

        kvr_alias_stored(&v, &event, 0, util_below(&rng, 2)
                         ? KVR_ALIAS_NOWHERE : util_below(&rng, 1000),
                         1000 + i / 16);

        memset(&r, 0, sizeof(r));
        r.session = util_below(&rng, 20) ? 0 : util_below(&rng, 3);
        r.start = 1000 + i / 16 - util_below(&rng, 1000);
        r.first = r.start + util_below(&rng, 1000);
        r.now = r.first + 1000;
        r.prompt = util_below(&rng, 2000) + 1;
        r.cached = util_below(&rng, r.prompt + 1);
        r.bytes = util_below(&rng, 20) ? r.prompt * 4 : util_below(&rng, 9);
        r.from = util_below(&rng, 20);
        r.n = util_below(&rng, 30);
        r.key = a.key;
        a.key[i % UNITS] = util_below(&rng, 100);

        (void) kvr_alias_attribute(&v, &r);

        if (kvr_alias_mark(&v, util_below(&rng, 50), 0, i & 1, &place)) {
            ck_assert_uint_lt(place.entry, KVR_ALIAS_ENTRIES);
        }

        ck_assert_uint_le(counts.used, CELLS);
    }

    ck_assert(counts.attributed && counts.ambiguous && counts.missing
              && counts.wrong);

    kvr_alias_flush(&v);
    ck_assert_uint_eq(counts.used, 0);
    ck_assert(!kvr_alias_mark(&v, 5, 0, 0, &place));
}


/*
 * Eight at a time for a while: prompts that go on, chunks, replies between one
 * another, blocks that are removed.  What is known is right.
 */
TEST(test_alias_traffic)
{
    uint32_t    i, k, from, to, last, right, reply;
    uint64_t    now, seed;
    prompt_t   *p;
    util_rng_t  rng;

    static prompt_t  talk[8];

    util_seed(&rng, "traffic", 0);

    memset(talk, 0, sizeof(talk));

    for (i = 0; i < kvr_nelts(talk); i++) {
        talk[i].before = KVR_ALIAS_NOWHERE;
    }

    now = 100000;
    seed = 100;
    right = 0;

    for (i = 0; i < 4000; i++) {

        /* its first token comes now, its end much later: of the one before */

        now += 20 + util_below(&rng, 200);
        p = &talk[i % 8];

        if (p->blocks && end(p) == KVR_ALIAS_ATTRIBUTED) {
            last = kvr_chain_entries(p->blocks / PER) - 1;
            right += known(p, kvr_chain_depth(last) * PER - 1);
        }

        if (p->blocks == 0 || p->blocks > 200 || util_below(&rng, 4) == 0) {
            from = 0;
            to = 10 + util_below(&rng, 80);
            make(p, seed++, to, 0, now);
            p->r.from = 0;

        } else {
            from = p->blocks + 1 + util_below(&rng, 8);
            p->r.from = kvr_chain_entries(p->blocks / PER) - 1;

            for (reply = p->blocks; reply < from; reply++) {
                store(p, reply, reply + 1, now - 200);
            }

            to = from + 2 + util_below(&rng, 40);
            make(p, p->seed, to, from, now);
        }

        for (k = from; k < to; k += 32) {
            store(p, k, kvr_min(k + 32, to), now - 10 - (to - k));
        }
    }

    util_check(right > 3400 && counts.attributed > 3500
               && counts.wrong < 20,
               "right %u attributed %lu ambiguous %lu missing %lu wrong %lu",
               right, (unsigned long) counts.attributed,
               (unsigned long) counts.ambiguous, (unsigned long) counts.missing,
               (unsigned long) counts.wrong);

    ck_assert(kvr_alias_most(&v));
}


suite_around(setup, teardown);
