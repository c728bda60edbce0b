
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_alias.  A model of an engine reports the blocks that it stores; finished
 * requests are matched to them.  The model knows which block is where in which
 * prompt, kvr_alias does not.
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
    uint64_t             seed;       /* of its text from this unit on */
    uint32_t             blocks;
    uint32_t             cached;
    uint64_t             session;    /* as the engine reports it */
    uint32_t             before;     /* tokens, or KVR_ALIAS_NOWHERE */
    uint32_t             more;       /* cached tokens of a block */
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


/* returns the engine's name for the i-th block: it contains the text */
static uint64_t
hash_of(const prompt_t *p, uint32_t i)
{
    return kvr_mix(p->seed, i + 1);
}


/* returns the index's entry that ends in it */
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


/* returns whether a block is known, and for what */
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


/* other lengths, another time, a run that begins elsewhere: no match */
TEST(test_alias_none)
{
    make(&a, 1, 40, 8, 10000);

    store(&a, 0, 40, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    store(&a, 8, 44, 9990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    store(&a, 8, 40, 12000);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    /* the block was stored before the request came */

    a.start = 12500;
    a.first = 12600;
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
    ck_assert_uint_eq(known_of(&a), 0);
    ck_assert_uint_eq(counts.missing, 4);

    /* as many blocks, with unknown start: not the start of a prompt */

    make(&b, 2, 32, 0, 20000);
    store(&a, 8, 40, 19990);
    ck_assert_int_eq(end(&b), KVR_ALIAS_MISSING);
}


/*
 * A run begins after the last whole cached block, and not before the request.
 * Its start is known from the report, or from the run that it continues;
 * otherwise it can be anywhere but at the start of a prompt.
 */
TEST(test_alias_begin)
{
    /* cached tokens end within a block, and so does the prompt */

    make(&a, 1, 40, 8, 10000);
    store(&a, 8, 40, 9990);
    a.more = BLOCK - 1;
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
    a.more = 0;

    /* the reported order says that it begins too early, or too late */

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

    /* the end of a longer run */

    make(&a, 3, 60, 20, 30000);
    a.before = 8 * BLOCK;
    store(&a, 8, 60, 29990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);

    /* by the run that it continues */

    a.before = KVR_ALIAS_NOWHERE;
    make(&a, 4, 20, 0, 40000);
    store(&a, 0, 20, 39990);
    make(&b, 5, 39, 19, 50000);
    make(&a, 4, 40, 20, 50000);
    store(&a, 20, 40, 49990);
    ck_assert_int_eq(end(&b), KVR_ALIAS_MISSING);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);

    /* chunks; the first one was stored before the request came */

    make(&a, 6, 40, 0, 60000);
    store(&a, 0, 20, 59400);
    store(&a, 20, 40, 59990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_MISSING);
}


/* the last entry ends with the prompt, within a block, which is not stored */
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


/* the cached part was stored as a reply, block by block */
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


/* two of one length at one time, then two at different times */
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

    /* the usual delay of events is not known yet */

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


/* blocks that were matched to another prompt are matched again */
TEST(test_alias_wrong)
{
    kvr_alias_place_t  place;

    /* a's events are lost, and b's are matched to it */

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
 * First two bytes per token, then six: a line from the start is far off, a
 * line from the end of the previous turn is not.
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

        /* this block has the last token of the entry */

        at = 64 * BLOCK + ((place.entry + 1) * UNIT - 64 * BLOCK * 2) / 6;
        ck_assert_uint_le((at - 1) / BLOCK, i + 1);
        ck_assert_uint_ge((at - 1) / BLOCK + 1, i);
        n++;
    }

    ck_assert_uint_ge(n, 23);
}


/*
 * Longer tokens follow: a new line matches blocks of the previous turn to
 * later entries.  This does not mean that another prompt had them.
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


/* sessions distinguish runs at any time */
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

    /* a session that other requests had, with as many blocks */

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
 * An engine that reports no session, or another one than requested: runs are
 * matched by time until a requested one is reported.  From then on a run with
 * another session does not match, because clients can send their own; a run
 * without a session is matched by time.
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

    /* a new process can be another version */

    kvr_alias_another(&v);
    ck_assert_uint_eq(known_of(&b), 10);

    make(&a, 5, 40, 0, 50000);
    a.r.session = 7;
    a.session = 0;
    store(&a, 0, 40, 49990);
    ck_assert_int_eq(end(&a), KVR_ALIAS_ATTRIBUTED);
}


/*
 * An engine stores much before a request ends: the names of its blocks are
 * overwritten, or its runs are, of which the first one is looked up last.
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
 * A broken engine reports very many runs that match, each with a long history:
 * the search is bounded, and later runs are found.
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


/* anything that a broken engine or a client can send */
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
 * Eight requests at a time: prompts that continue, chunks, interleaved
 * replies, removed blocks.  All matches are right.
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

        /*
         * its first token comes now, its end much later: of the previous one
         */

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
