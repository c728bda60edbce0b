
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_events: the order of messages, and the age of removed blocks.  The
 * events come from a model of vLLM's cache: the block that was free for
 * longest is removed first, and of a prompt the last block.
 */


#include "util.h"
#include "core/events/kvr_events.h"


#define BLOCK   16                   /* tokens */
#define UNITS   0.25                 /* of a token */
#define NONE    UINT32_MAX
#define TABLE   65536


/* a block of the cache; free blocks are a list, the next to remove first */
typedef struct {
    uint64_t   hash;
    uint32_t   next;
    uint32_t   prev;
    uint32_t   chain;                /* next block of its bucket */
} block_t;


typedef struct {
    uint32_t        size;
    uint32_t        used;
    uint32_t        first;
    uint32_t        last;
    block_t        *block;
    uint32_t        bucket[TABLE];

    double          clock;           /* units */
    kvr_events_t   *e;
    kvr_kvevent_t   event;
} cache_t;


static void
unlink_free(cache_t *c, uint32_t i)
{
    block_t  *b;

    b = &c->block[i];

    *(b->prev == NONE ? &c->first : &c->block[b->prev].next) = b->next;
    *(b->next == NONE ? &c->last : &c->block[b->next].prev) = b->prev;
}


static void
append_free(cache_t *c, uint32_t i)
{
    block_t  *b;

    b = &c->block[i];
    b->prev = c->last;
    b->next = NONE;

    *(c->last == NONE ? &c->first : &c->block[c->last].next) = i;
    c->last = i;
}


static uint32_t
find(cache_t *c, uint64_t hash)
{
    uint32_t  i;

    for (i = c->bucket[hash % TABLE]; i != NONE; i = c->block[i].chain) {
        if (c->block[i].hash == hash) {
            break;
        }
    }

    return i;
}


static void
tell(cache_t *c, kvr_kvevent_type_e type, const uint64_t *hash, uint64_t n,
    const uint64_t *parent)
{
    kvr_kvevent_t  *event;

    event = &c->event;
    memset(event, 0, offsetof(kvr_kvevent_t, hash));

    event->type = type;
    event->blocks = n;
    event->block = type == KVR_KVEVENT_STORED ? BLOCK : 0;
    event->rooted = (parent == NULL);
    event->parent = parent ? *parent : 0;
    event->last = hash[n - 1];
    memcpy(event->hash, hash, kvr_min(n, KVR_KVEVENT_HASHES) * 8);

    ck_assert(kvr_events_counts(c->e, event));

    c->clock += (double) kvr_events_tokens(event) * UNITS;

    kvr_events_take(c->e, event, 0, (uint64_t) c->clock, UNITS);
}


/* computes a prompt; returns how many of its blocks were cached */
static uint32_t
serve(cache_t *c, const uint64_t *hash, uint32_t n)
{
    uint32_t  i, k, held, slot[4096], *place;
    uint64_t  old;

    for (held = 0; held < n; held++) {
        slot[held] = find(c, hash[held]);

        if (slot[held] == NONE) {
            break;
        }

        unlink_free(c, slot[held]);
    }

    for (i = held; i < n; i++) {

        if (c->used < c->size) {
            k = c->used++;

        } else {
            k = c->first;
            unlink_free(c, k);

            old = c->block[k].hash;
            place = &c->bucket[old % TABLE];

            while (*place != k) {
                place = &c->block[*place].chain;
            }

            *place = c->block[k].chain;
            tell(c, KVR_KVEVENT_REMOVED, &old, 1, NULL);
        }

        slot[i] = k;
        c->block[k].hash = hash[i];
        c->block[k].chain = c->bucket[hash[i] % TABLE];
        c->bucket[hash[i] % TABLE] = k;
    }

    /* in steps, like chunks of a prompt, and like replies */

    for (i = held; i < n; i += k) {
        k = kvr_min(n - i, 40);
        tell(c, KVR_KVEVENT_STORED, &hash[i], k, i ? &hash[i - 1] : NULL);
    }

    for (i = n; i-- > 0; /* void */ ) {
        append_free(c, slot[i]);
    }

    return held;
}


static void
begin(cache_t *c, uint32_t size)
{
    memset(c, 0, sizeof(cache_t));

    c->size = size;
    c->first = NONE;
    c->last = NONE;
    c->block = calloc(size, sizeof(block_t));
    c->clock = 5000;
    c->e = aligned_alloc(KVR_CACHE_LINE, sizeof(kvr_events_t));

    memset(c->bucket, 0xff, sizeof(c->bucket));
    kvr_events_reset(c->e);
}


static void
end(cache_t *c)
{
    free(c->block);
    free(c->e);
}


static cache_t  cache;


/* no prompt repeats: the age is the size */
static void
events_age_once(unsigned _i)
{
    double      age, size;
    uint32_t    i, n;
    uint64_t    k, hash[128];
    util_rng_t  r;

    static const uint32_t  sizes[] = { 300, 2000, 20000 };

    begin(&cache, sizes[_i]);
    util_seed(&r, "once", (uint64_t) _i);

    for (k = 0; k < 8 * sizes[_i]; k += n) {
        n = 4 + util_below(&r, 60);

        for (i = 0; i < n; i++) {
            hash[i] = util_next(&r);
        }

        (void) serve(&cache, hash, n);

        ck_assert(kvr_get(&cache.e->used) <= KVR_EVENTS_SAMPLES);

        if (k < sizes[_i] / 2) {
            ck_assert_uint_eq(kvr_events_age(cache.e), 0);
        }
    }

    size = sizes[_i] * BLOCK * UNITS;
    age = (double) kvr_events_age(cache.e);

    util_check(age > 0.9 * size && age < 1.1 * size, "%f of %f, shift %u",
               age, size, kvr_get(&cache.e->shift));

    end(&cache);
}


TEST(test_events_age_once)
{
    unsigned  i;

    for (i = 0; i < 3; i++) {
        events_age_once(i);
    }
}


/*
 * Sessions of several turns with a common prefix: most blocks are used again,
 * and are removed later than their age says.  The index must predict that a
 * prompt's blocks stay for the reported age.
 */
static void
events_age_sessions(unsigned _i)
{
    double      used[40] = { 0 }, left, predicted, delivered;
    uint32_t    i, s, turn[40] = { 0 }, n, len[40], held;
    uint64_t    k, hash[40][600];
    util_rng_t  r;

    static const uint32_t  sizes[] = { 2000, 4000, 6000, 8000, 12000 };

    begin(&cache, sizes[_i]);
    util_seed(&r, "sessions", (uint64_t) _i);

    predicted = 0;
    delivered = 0;

    for (k = 0; k < 4000; k++) {
        s = util_below(&r, 40);

        if (turn[s]++ % 8 == 0) {
            len[s] = 100;

            for (i = 0; i < 100; i++) {
                hash[s][i] = 1000 + i;
            }
        }

        n = len[s] + 10 + util_below(&r, 40);

        for (i = len[s]; i < n; i++) {
            hash[s][i] = util_next(&r);
        }

        /* by the index's rule: the deepest block that is young enough */

        left = (double) kvr_events_age(cache.e) - (cache.clock - used[s]);

        i = len[s];
        len[s] = n;
        held = serve(&cache, hash[s], n);
        used[s] = cache.clock;

        if (k > 2000 && i > 100) {
            delivered += held;
            predicted += kvr_max(100, kvr_min(i, left / BLOCK / UNITS));
        }
    }

    /* by the size instead of the age it is at worst 1.09 */

    predicted /= delivered;

    util_check(predicted > 0.97 && predicted < 1.04, "%f", predicted);

    end(&cache);
}


TEST(test_events_age_sessions)
{
    unsigned  i;

    for (i = 0; i < 5; i++) {
        events_age_sessions(i);
    }
}


/* after a flush: no old blocks, and an initial age */
TEST(test_events_flush)
{
    uint32_t    i, n;
    uint64_t    k, hash[64];
    util_rng_t  r;

    begin(&cache, 1000);
    util_seed(&r, "flush", 0);

    for (k = 0; k < 5000; k += n) {
        n = 20;

        for (i = 0; i < n; i++) {
            hash[i] = util_next(&r);
        }

        (void) serve(&cache, hash, n);
    }

    ck_assert(kvr_events_age(cache.e) != 0);
    tell(&cache, KVR_KVEVENT_REMOVED, hash, n, NULL);
    kvr_events_flush(cache.e);

    ck_assert(kvr_events_age(cache.e) != 0);
    ck_assert_uint_eq(kvr_get(&cache.e->used), 0);

    k = kvr_get(&cache.e->ages);
    kvr_events_take(cache.e, &cache.event, 0, (uint64_t) cache.clock, UNITS);
    ck_assert_uint_eq(kvr_get(&cache.e->ages), k);

    end(&cache);
}


TEST(test_events_counts)
{
    kvr_events_t  *e;

    static kvr_kvevent_t  v;

    e = aligned_alloc(KVR_CACHE_LINE, sizeof(kvr_events_t));
    kvr_events_reset(e);

    v.type = KVR_KVEVENT_REMOVED;
    ck_assert(!kvr_events_counts(e, &v));        /* of which layers? */

    v.type = KVR_KVEVENT_STORED;
    v.group = 1;
    v.part = 1;
    ck_assert(!kvr_events_counts(e, &v));        /* a window only */

    v.part = 0;
    v.elsewhere = 1;
    ck_assert(!kvr_events_counts(e, &v));

    v.elsewhere = 0;
    ck_assert(kvr_events_counts(e, &v));

    v.group = 0;
    ck_assert(!kvr_events_counts(e, &v));        /* another group's copy */

    v.type = KVR_KVEVENT_REMOVED;
    v.group = 1;
    ck_assert(kvr_events_counts(e, &v));

    v.type = KVR_KVEVENT_CLEARED;
    ck_assert(!kvr_events_counts(e, &v));

    /* tokens by blocks, or by ids if the size is missing */

    v.type = KVR_KVEVENT_STORED;
    v.blocks = 3;
    v.block = 16;
    v.tokens = 40;
    ck_assert_uint_eq(kvr_events_tokens(&v), 48);
    v.block = 0;
    ck_assert_uint_eq(kvr_events_tokens(&v), 40);

    free(e);
}


#define FAR  (1LL << 33)


/* sequence numbers: t taken, a again, g a gap, n another publisher */
TEST(test_events_order)
{
    char                  found[64], *p;
    unsigned              i, k;
    kvr_events_t         *e;
    kvr_events_order_t    o;
    kvr_events_source_t  *s;

    static const struct {
        const char  *found;
        uint64_t     lost;
        int64_t      seq[20];                    /* -1: a new connection */
    } cases[] = {
        { "tttt", 0, { 5, 6, 7, 8 } },
        { "tttgt", 2, { 0, 1, 2, 5, 6 } },
        { "ttattatt", 0, { 0, 1, 1, 2, 3, 2, 4, 5 } },       /* doubled */
        { "ttgat", 1, { 1, 2, 4, 3, 5 } },                   /* out of order */
        { "tttntt", 0, { 7, 8, 9, 0, 1, 2 } },               /* restarted */
        { "ttt|gt", 1, { 7, 8, 9, -1, 11, 12 } },
        { "ttt|nt", 0, { 7, 8, 9, -1, 3, 4 } },
        { "ttt|tt", 0, { 7, 8, 9, -1, 10, 11 } },

        /* behind a proxy; the new one's first messages were not seen */

        { "ttaaaaaaant", 0,
          { 100, 101, 3, 4, 5, 6, 7, 8, 9, 10, 11 } },

        /* repeated old messages are not another publisher */

        { "tttttttaaaatt", 0,
          { 1, 2, 3, 4, 5, 6, 7, 3, 4, 5, 6, 8, 9 } },

        /* a gap of too many messages: garbage, or another publisher */

        { "ttatatt", 0, { 5, 6, INT64_MAX, 7, 1LL << 40, 8, 9 } },
        { "ttaaaaaaant", 0,
          { 5, 6, FAR, FAR + 1, FAR + 2, FAR + 3, FAR + 4, FAR + 5, FAR + 6,
            FAR + 7, FAR + 8 } },
        { "tt|nt", 0, { 5, 6, -1, FAR, FAR + 1 } },
        { "ttgt", (1LL << 32) - 1, { 5, 6, 6 + (1LL << 32), 7 + (1LL << 32) } }
    };

    e = aligned_alloc(KVR_CACHE_LINE, sizeof(kvr_events_t));

    for (k = 0; k < kvr_nelts(cases); k++) {

        util_note("case %u", k);

        kvr_events_reset(e);
        memset(&o, 0, sizeof(o));
        s = &e->source[0];
        p = found;

        for (i = 0; i < 20 && (i == 0 || cases[k].seq[i]); i++) {

            if (cases[k].seq[i] == -1) {
                memset(&o, 0, sizeof(o));
                *p++ = '|';
                continue;
            }

            /* 0 in the middle is a number if another one follows it */

            switch (kvr_events_order(s, &o, (uint64_t) cases[k].seq[i])) {

            case KVR_EVENTS_NEXT:
                *p++ = 't';
                kvr_events_read(e, s, &o, (uint64_t) cases[k].seq[i], 1);
                break;

            case KVR_EVENTS_REPEATED:
                *p++ = 'a';
                break;

            case KVR_EVENTS_GAP:
                *p++ = 'g';
                (void) kvr_events_continue(e, s, (uint64_t) cases[k].seq[i], 1);
                kvr_events_read(e, s, &o, (uint64_t) cases[k].seq[i], 1);
                break;

            default:
                *p++ = 'n';
                (void) kvr_events_continue(e, s, (uint64_t) cases[k].seq[i], 1);
                kvr_events_read(e, s, &o, (uint64_t) cases[k].seq[i], 1);
                break;
            }

            if (cases[k].seq[i + 1] == 0 && cases[k].seq[i + 2] == 1) {
                i++;
                ck_assert(kvr_events_order(s, &o, 0) == KVR_EVENTS_RESTARTED);
                (void) kvr_events_continue(e, s, 0, 1);
                kvr_events_read(e, s, &o, 0, 1);
                *p++ = 'n';
            }
        }

        *p = '\0';

        util_check(strcmp(found, cases[k].found) == 0, "%s", found);
        util_check(kvr_get(&e->lost) == cases[k].lost, "lost");
        util_check((kvr_get(&e->doubt) != 0) == (cases[k].lost != 0),
                   "doubt");
    }

    /* messages without events have numbers of their own, or not */

    kvr_events_reset(e);
    memset(&o, 0, sizeof(o));

    kvr_events_read(e, s, &o, 10, 1);
    ck_assert(kvr_events_order(s, &o, 11) == KVR_EVENTS_NEXT);
    kvr_events_empty(s, &o, 11, 1);
    ck_assert(kvr_events_order(s, &o, 11) == KVR_EVENTS_NEXT);
    kvr_events_read(e, s, &o, 11, 1);
    ck_assert(kvr_events_order(s, &o, 12) == KVR_EVENTS_NEXT);
    kvr_events_empty(s, &o, 12, 1);
    kvr_events_empty(s, &o, 13, 1);
    ck_assert(kvr_events_order(s, &o, 15) == KVR_EVENTS_GAP);
    ck_assert(kvr_events_order(s, &o, 14) == KVR_EVENTS_NEXT);
    kvr_events_read(e, s, &o, 14, 1);
    ck_assert(kvr_events_order(s, &o, 15) == KVR_EVENTS_NEXT);

    /* messages of a replay arrive again on the delayed connection */

    kvr_events_reset(e);
    memset(&o, 0, sizeof(o));

    kvr_events_read(e, s, &o, 10, 1);
    ck_assert(kvr_events_order(s, &o, 20) == KVR_EVENTS_GAP);

    for (i = 11; i < 40; i++) {
        kvr_events_read(e, s, &o, i, 1);
    }

    o.replayed = 40;

    for (i = 20; i < 40; i++) {
        ck_assert(kvr_events_order(s, &o, i) == KVR_EVENTS_REPEATED);
    }

    ck_assert(kvr_events_order(s, &o, 40) == KVR_EVENTS_NEXT);

    free(e);
}


/* hostile numbers do no harm except wrong counts */
TEST(test_events_hostile)
{
    uint32_t        i;
    util_rng_t      r;
    kvr_events_t   *e;

    static kvr_kvevent_t  v;

    e = aligned_alloc(KVR_CACHE_LINE, sizeof(kvr_events_t));
    kvr_events_reset(e);
    util_seed(&r, "hostile", 0);

    for (i = 0; i < util_cases(20000); i++) {
        v.type = util_below(&r, 4);
        v.rooted = util_below(&r, 2);
        v.group = util_below(&r, 2);
        v.block = (uint32_t) util_next(&r) >> util_below(&r, 32);
        v.block = kvr_min(v.block, 65536);
        v.blocks = util_next(&r) >> (38 + util_below(&r, 26));
        v.tokens = util_next(&r) >> (32 + util_below(&r, 32));
        v.parent = v.last;
        v.last = util_next(&r);
        v.hash[util_below(&r, KVR_KVEVENT_HASHES)] = util_next(&r);

        if (kvr_events_counts(e, &v)) {
            kvr_events_take(e, &v, util_below(&r, KVR_EVENTS_SOURCES),
                            util_next(&r) >> util_below(&r, 64),
                            UNITS * util_below(&r, 100));
        }

        ck_assert(kvr_get(&e->used) <= KVR_EVENTS_SAMPLES);
    }

    free(e);
}
