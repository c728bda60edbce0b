
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_line.h"


#define KVR_INDEX_AHEAD     32      /* entries prefetched ahead */
#define KVR_INDEX_BATCH     128     /* entries looked at at a time */
#define KVR_INDEX_GAP       16      /* absent entries that end a look-up */
#define KVR_INDEX_SAMPLE    1024
#define KVR_INDEX_START     1024    /* clocks start here, clear of 0 */


static int kvr_index_age(kvr_index_line_t *line, unsigned peer,
    uint32_t clock, uint32_t *age);
static uint32_t kvr_index_advance(kvr_index_t *ix, const uint64_t *chain,
    uint32_t n, uint32_t units, unsigned peer, uint32_t matched,
    uint64_t *moved);


_Static_assert(KVR_INDEX_BATCH == 128, "kvr_chain_step");


/* entries of a chain, from the first of a batch on: their keys and lines */
typedef struct {
    kvr_index_line_t  *line[KVR_INDEX_BATCH + KVR_INDEX_AHEAD];
    uint64_t           key[KVR_INDEX_BATCH + KVR_INDEX_AHEAD];
} kvr_index_batch_t;


/*
 * Finds out where an entry is to be looked for, and has that fetched: all of
 * the bucket if it is to be put there.
 */
static inline __attribute__ ((always_inline)) void
kvr_index_place(kvr_index_t *ix, kvr_index_batch_t *b, uint32_t k, uint64_t h,
    int put)
{
    uint64_t           key;
    unsigned           home;
    kvr_index_line_t  *bucket;

    key = kvr_index_key(h);
    home = kvr_line_home(key);
    bucket = kvr_line_bucket(ix, key);

    kvr_line_prefetch(bucket, home);

    if (put) {
        kvr_line_prefetch(bucket, home ^ 2);
    }

    b->key[k] = key;
    b->line[k] = &bucket[home];
}


/* begins a batch of m entries that are left; returns how many it has */
static uint32_t
kvr_index_batch(kvr_index_t *ix, kvr_index_batch_t *b, const uint64_t *chain,
    uint32_t m, uint32_t first)
{
    uint32_t  k;

    if (first) {
        for (k = 0; k < m && k < KVR_INDEX_AHEAD; k++) {
            kvr_index_place(ix, b, k, chain[k], 0);
        }

    } else {
        memcpy(b->line, &b->line[KVR_INDEX_BATCH],
               KVR_INDEX_AHEAD * sizeof(kvr_index_line_t *));
        memcpy(b->key, &b->key[KVR_INDEX_BATCH],
               KVR_INDEX_AHEAD * sizeof(uint64_t));
    }

    return kvr_min(m, KVR_INDEX_BATCH);
}


/* the line of the k-th entry of m, or NULL; asked for one after the other */
static inline __attribute__ ((always_inline)) kvr_index_line_t *
kvr_index_next(kvr_index_t *ix, kvr_index_batch_t *b, const uint64_t *chain,
    uint32_t m, uint32_t k, int put)
{
    uint64_t           key;
    kvr_index_line_t  *line;

    if (kvr_likely(k + KVR_INDEX_AHEAD < m)) {
        kvr_index_place(ix, b, k + KVR_INDEX_AHEAD,
                        chain[k + KVR_INDEX_AHEAD], put);
    }

    key = b->key[k];
    line = b->line[k];

    if (kvr_likely(atomic_load_explicit(&line->key, memory_order_acquire)
                   == key))
    {
        return line;
    }

    line = kvr_line_second(line, key);
    b->line[k] = line;

    return line;
}


size_t
kvr_index_size(uint64_t nlines)
{
    return sizeof(kvr_index_t) + nlines * sizeof(kvr_index_line_t);
}


uint64_t
kvr_index_lines(size_t size)
{
    if (size < kvr_index_size(KVR_INDEX_WAYS)) {
        return 0;
    }

    return (size - sizeof(kvr_index_t)) / sizeof(kvr_index_line_t)
           / KVR_INDEX_WAYS * KVR_INDEX_WAYS;
}


void
kvr_index_init(kvr_index_t *ix, uint64_t nlines)
{
    unsigned  i;

    ix->nlines = nlines;
    ix->nbuckets = nlines / KVR_INDEX_WAYS;

    kvr_set(&ix->clock, KVR_INDEX_START);

    for (i = 0; i < KVR_INDEX_PEERS; i++) {
        kvr_set(&ix->peer[i].clock,
                (uint64_t) KVR_INDEX_START << KVR_INDEX_FRACTION);
        kvr_set(&ix->peer[i].floor, KVR_INDEX_START);
    }
}


void
kvr_index_flush(kvr_index_t *ix, unsigned peer)
{
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];

    kvr_set(&p->floor, kvr_index_units(p));

    /* moved on, so that a mask begun right after the flush is newer than it */

    kvr_set(&p->since, kvr_add(&ix->clock, 1));
}


void
kvr_index_floor(kvr_index_t *ix, unsigned peer, uint64_t clock)
{
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];

    clock = kvr_min(clock, kvr_index_units(p));

    if (clock > kvr_get(&p->floor)) {
        kvr_set(&p->floor, clock);
        kvr_set(&p->since, kvr_add(&ix->clock, 1));
    }
}


uint64_t
kvr_index_clock(kvr_index_t *ix, unsigned peer)
{
    return kvr_index_units(&ix->peer[peer]);
}


void
kvr_index_capacity(kvr_index_t *ix, unsigned peer, uint64_t units,
    unsigned reported)
{
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];

    units = kvr_max(units, 1);
    units = kvr_min(units, KVR_INDEX_CAPACITY_MAX);

    kvr_set(&p->reported, reported);
    kvr_set(&p->capacity, (uint32_t) units);
}


/*
 * A batch at a time: its lines are found from the first one on, and their
 * holders looked at from the last one on.  What is deeper counts, so that a
 * line is passed by that names nobody who was not found deeper already; as a
 * rule that are all but one or two, since the lines of a prompt name the same.
 */
uint32_t
kvr_index_lookup(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint64_t set, uint32_t *matched)
{
    uint32_t           i, k, gap, best, count, absent;
    uint64_t           ids, open, seen, has, done;
    kvr_line_view_t    view;
    kvr_index_line_t  *line;
    kvr_index_batch_t  b;

    for (has = set; has; has &= has - 1) {
        matched[__builtin_ctzll(has)] = 0;
    }

    if (n == 0 || set == 0) {
        return 0;
    }

    kvr_line_view(ix, set, &view);

    seen = 0;
    gap = 0;
    absent = 0;

    for (i = 0; i < n && gap < KVR_INDEX_GAP; i += KVR_INDEX_BATCH) {

        count = kvr_index_batch(ix, &b, &chain[i], n - i, i == 0);

        for (k = 0; k < count; k++) {

            line = kvr_index_next(ix, &b, &chain[i], n - i, k, 0);

            if (kvr_likely(line)) {
                continue;
            }

            gap = (i + k == absent) ? gap + 1 : 1;
            absent = i + k + 1;

            if (gap == KVR_INDEX_GAP) {
                break;
            }
        }

        open = set;
        done = KVR_INDEX_TAG;

        while (k--) {

            line = b.line[k];

            if (kvr_unlikely(line == NULL)) {
                continue;
            }

            ids = kvr_get(&line->ids) & ~KVR_INDEX_TAG;

            if (kvr_likely(((ids ^ done) | (kvr_get(&line->mask) & open))
                           == 0))
            {
                continue;
            }

            has = open & kvr_line_holders(ix, line, b.key[k], &view);

            seen |= has;
            open ^= has;

            for ( /* void */ ; has; has &= has - 1) {
                matched[__builtin_ctzll(has)] = kvr_chain_depth(i + k);
            }

            if (open == 0) {
                break;
            }

            if (!(kvr_line_named(ids) & open)) {
                done = ids;
            }
        }
    }

    best = 0;

    for ( /* void */ ; seen; seen &= seen - 1) {
        best = kvr_max(best, matched[__builtin_ctzll(seen)]);
    }

    return best;
}


uint32_t
kvr_index_taught(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    unsigned peer, uint32_t matched, uint32_t *age)
{
    uint32_t           i, k, a, most, depth;
    uint64_t           clock, floor;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];

    clock = kvr_index_units(p);
    floor = kvr_get(&p->floor);
    most = clock > floor ? (uint32_t) (clock - floor) : 0;

    depth = 0;

    k = kvr_min(kvr_chain_entries(matched), n);

    for (i = k ? k - 1 : 0; i < n; i++) {

        line = kvr_line_find(ix, chain[i]);

        if (line == NULL
            || !kvr_index_age(line, peer, (uint32_t) clock, &a)
            || a >= most)
        {
            break;
        }

        *age = a;
        depth = kvr_chain_depth(i);
    }

    return depth;
}


/* the age of what a peer has in a line, if there is a stamp of it */
static int
kvr_index_age(kvr_index_line_t *line, unsigned peer, uint32_t clock,
    uint32_t *age)
{
    unsigned  s;
    uint32_t  stamp;
    uint64_t  ids;

    ids = kvr_get(&line->ids);

    for (s = 0; s < KVR_INDEX_HOLDERS; s++) {
        stamp = kvr_get(&line->stamp[s]);

        if (stamp && kvr_index_id(ids, s) == peer) {
            *age = clock - stamp;
            return 1;
        }
    }

    return 0;
}


void
kvr_index_learn(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_lesson_t *lesson)
{
    unsigned           slot;
    uint32_t           i, k, clock, now, stamp, depth, fresh, count, per;
    uint32_t           evicted;
    uint64_t           moved;
    kvr_index_line_t  *line;
    kvr_index_batch_t  b;

    matched = kvr_min(matched, units);
    fresh = units - matched;

    clock = kvr_index_advance(ix, chain, n, units, peer, matched, &moved);

    now = (uint32_t) (kvr_add(&ix->clock, fresh) + fresh);

    lesson->clock = clock;
    lesson->matched = matched;
    lesson->peer = (uint8_t) peer;
    lesson->valid = 1;

    evicted = 0;
    slot = 0;

    for (i = 0; i < n; i += KVR_INDEX_BATCH) {

        count = kvr_index_batch(ix, &b, &chain[i], n - i, i == 0);

        depth = kvr_chain_depth(i);
        per = kvr_chain_step(i);

        for (k = 0; k < count; k++, depth += per) {

            stamp = kvr_index_stamp(clock, depth);

            line = kvr_index_next(ix, &b, &chain[i], n - i, k,
                                  depth >= matched);

            if (kvr_unlikely(line == NULL)) {
                evicted += kvr_line_insert(ix, b.key[k], peer, stamp,
                                           now - depth);
                continue;
            }

            /* as a rule it has the same slot in all lines of a prompt */

            if (kvr_likely(kvr_line_renew(line, b.key[k], peer, slot, stamp,
                                          now - depth)))
            {
                continue;
            }

            slot = kvr_line_add(ix, line, b.key[k], peer, stamp, now - depth);
            slot %= KVR_INDEX_HOLDERS;
        }
    }

    if (evicted) {
        kvr_add(&ix->evicted, evicted);
    }

    kvr_line_sweep(ix, moved / 4 + 1);
}


void
kvr_index_extend(kvr_index_t *ix, const uint64_t *value, uint32_t first,
    uint32_t n, uint32_t units, unsigned peer)
{
    uint32_t           i, clock, now, stamp, depth, evicted;
    uint64_t           add;
    kvr_index_line_t  *line;

    add = (uint64_t) kvr_max(units, 1) << KVR_INDEX_FRACTION;

    clock = (uint32_t) ((kvr_add(&ix->peer[peer].clock, add) + add)
                        >> KVR_INDEX_FRACTION);
    now = (uint32_t) (kvr_add(&ix->clock, units) + units);

    evicted = 0;

    for (i = 0; i < n; i++) {

        depth = kvr_chain_depth(first + i);
        stamp = kvr_index_stamp(clock, depth);

        line = kvr_line_find(ix, value[i]);

        if (line) {
            kvr_line_add(ix, line, kvr_index_key(value[i]), peer, stamp,
                         now - depth);

        } else {
            evicted += kvr_line_insert(ix, kvr_index_key(value[i]), peer,
                                       stamp, now - depth);
        }
    }

    if (evicted) {
        kvr_add(&ix->evicted, evicted);
    }

    kvr_line_sweep(ix, units / 4 + 1);
}


/*
 * Moves a peer's clock on by what it must compute: new units, and for what it
 * holds the share of its other blocks that a hit at that age puts further back
 * in an LRU: age / capacity, which is only known if the engine said so.  By one
 * unit at least, so that no two lessons on a prompt have the same stamps.
 */
static uint32_t
kvr_index_advance(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, uint64_t *moved)
{
    uint32_t           capacity, age, k;
    uint64_t           add;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];
    add = (uint64_t) kvr_max(units - matched, 1) << KVR_INDEX_FRACTION;

    capacity = kvr_get(&p->capacity);

    if (matched && capacity && kvr_get(&p->reported)) {

        /* the matched blocks were used together, at the deepest one's age */

        k = kvr_min(kvr_chain_entries(matched), n);
        line = k ? kvr_line_find(ix, chain[k - 1]) : NULL;
        age = 0;

        if (line) {
            (void) kvr_index_age(line, peer, (uint32_t) kvr_index_units(p),
                                 &age);
        }

        age = kvr_min(age, capacity);

        /* the deepest has the stamp of its depth, the first one none */

        age -= kvr_min(age, matched / 2);

        add += ((uint64_t) matched * age << KVR_INDEX_FRACTION) / capacity;
    }

    *moved = add >> KVR_INDEX_FRACTION;

    return (uint32_t) ((kvr_add(&p->clock, add) + add) >> KVR_INDEX_FRACTION);
}


void
kvr_index_forget(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    const kvr_lesson_t *lesson)
{
    unsigned           s;
    uint32_t           i, depth, stamp;
    uint64_t           ids;
    kvr_index_line_t  *line;

    for (i = 0; i < n; i++) {

        depth = kvr_chain_depth(i);

        if (depth <= lesson->matched) {
            continue;
        }

        line = kvr_line_find(ix, chain[i]);

        if (line == NULL) {
            continue;
        }

        ids = kvr_get(&line->ids);

        for (s = 0; s < KVR_INDEX_HOLDERS; s++) {

            stamp = kvr_index_stamp(lesson->clock, depth);

            if (kvr_index_id(ids, s) == lesson->peer
                && atomic_compare_exchange_strong_explicit(&line->stamp[s],
                                                           &stamp, 0,
                                                         memory_order_relaxed,
                                                         memory_order_relaxed))
            {
                break;
            }
        }
    }
}


uint64_t
kvr_index_holds(kvr_index_t *ix, uint64_t key, uint64_t set)
{
    kvr_index_line_t  *line;
    kvr_line_view_t   view;

    line = kvr_line_find(ix, key);

    if (line == NULL) {
        return 0;
    }

    kvr_line_view(ix, set, &view);

    return kvr_line_holders(ix, line, kvr_index_key(key), &view);
}


void
kvr_index_note(kvr_index_t *ix, uint64_t key, unsigned peer)
{
    uint32_t           clock, now;
    kvr_index_line_t  *line;

    now = (uint32_t) kvr_get(&ix->clock);
    clock = (uint32_t) kvr_index_units(&ix->peer[peer]);

    /* a peer that has computed nothing yet can hold something all the same */

    if (clock == (uint32_t) kvr_get(&ix->peer[peer].floor)) {
        kvr_add(&ix->peer[peer].clock, 1 << KVR_INDEX_FRACTION);
        clock++;
    }

    line = kvr_line_find(ix, key);

    key = kvr_index_key(key);

    if (line) {
        kvr_line_add(ix, line, key, peer, kvr_index_stamp(clock, 1), now);

    } else if (kvr_line_insert(ix, key, peer, kvr_index_stamp(clock, 1), now))
    {
        kvr_add(&ix->evicted, 1);
    }
}


uint32_t
kvr_index_bound(kvr_index_t *ix, uint64_t key, uint32_t now, uint32_t *life)
{
    uint32_t           peer, expires;
    kvr_index_line_t  *line;

    kvr_set(&ix->time, now);

    key = kvr_index_session_key(key);
    line = kvr_line_find_key(ix, key);

    if (line == NULL) {
        return KVR_INDEX_PEERS;
    }

    peer = kvr_index_id(kvr_get(&line->ids), 0);
    expires = kvr_get(&line->stamp[0]);
    *life = kvr_get(&line->stamp[1]);

    atomic_thread_fence(memory_order_acquire);

    if (kvr_get(&line->key) != key || (int32_t) (expires - now) <= 0) {
        return KVR_INDEX_PEERS;
    }

    return peer;
}


void
kvr_index_bind(kvr_index_t *ix, uint64_t key, unsigned peer, uint32_t life,
    uint32_t expires)
{
    uint64_t           ids;
    kvr_index_line_t  *line;

    key = kvr_index_session_key(key);
    line = kvr_line_find_key(ix, key);

    if (line == NULL) {

        if (kvr_line_insert(ix, key, peer, expires,
                            (uint32_t) kvr_get(&ix->clock)))
        {
            kvr_add(&ix->evicted, 1);
        }

        line = kvr_line_find_key(ix, key);

        if (line == NULL) {
            return;
        }

    } else {
        ids = kvr_get(&line->ids);

        /* a new peer is none until its life is known */

        if (kvr_index_id(ids, 0) != peer) {
            kvr_set(&line->stamp[1], 0);
            kvr_set(&line->ids, peer | (key & KVR_INDEX_TAG));
        }

        kvr_set(&line->touched, (uint32_t) kvr_get(&ix->clock));
        kvr_set(&line->stamp[0], expires);
    }

    atomic_store_explicit(&line->stamp[1], life, memory_order_release);

    /* the line may have been given to another block, whose slot this is not */

    if (kvr_unlikely(kvr_get(&line->key) != key)) {
        (void) atomic_compare_exchange_strong(&line->stamp[1], &life, 0);
    }
}


double
kvr_index_fill(kvr_index_t *ix, uint64_t seed)
{
    uint32_t  i, used;

    used = 0;

    for (i = 0; i < KVR_INDEX_SAMPLE; i++) {
        seed = kvr_mix(seed, i + 1);
        used += kvr_get(&ix->line[kvr_reduce(seed, ix->nlines)].key) != 0;
    }

    return (double) used / KVR_INDEX_SAMPLE;
}
