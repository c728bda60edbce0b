
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_index.h"


#define KVR_INDEX_BUSY      1       /* a key that no chain value has */
#define KVR_INDEX_FRACTION  8       /* bits of a clock below one unit */
#define KVR_INDEX_AHEAD     32      /* entries prefetched ahead */
#define KVR_INDEX_GAP       32      /* absent entries that end a look-up */
#define KVR_INDEX_SAMPLE    1024
#define KVR_INDEX_START     1024    /* clocks start here, clear of 0 */


/* what a look-up needs to know of the peers, read once */
typedef struct {
    uint32_t            clock[KVR_INDEX_PEERS];
    uint32_t            limit[KVR_INDEX_PEERS];  /* age at which it forgot */
} kvr_index_view_t;


static kvr_index_line_t *kvr_index_bucket(kvr_index_t *ix, uint64_t key);
static kvr_index_line_t *kvr_index_find(kvr_index_t *ix, uint64_t key);
static uint64_t kvr_index_holders(kvr_index_t *ix, kvr_index_line_t *line,
    kvr_index_view_t *view);
static void kvr_index_view(kvr_index_t *ix, uint64_t set,
    kvr_index_view_t *view);
static uint32_t kvr_index_clock(kvr_index_t *ix, unsigned peer);
static uint32_t kvr_index_limit(kvr_index_t *ix, unsigned peer,
    uint32_t clock);
static uint64_t kvr_index_mask(kvr_index_t *ix, uint64_t mask,
    uint32_t masked);
static uint32_t kvr_index_advance(kvr_index_t *ix, const uint64_t *chain,
    uint32_t n, uint32_t units, unsigned peer, uint32_t matched);
static unsigned kvr_index_insert(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t stamp, uint32_t touched);
static void kvr_index_add(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t key, unsigned peer, uint32_t stamp, uint32_t touched);
static unsigned kvr_index_slot(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t ids);
static void kvr_index_to_mask(kvr_index_t *ix, kvr_index_line_t *line,
    unsigned peer);
static void kvr_index_sweep(kvr_index_t *ix, uint32_t count);


static inline unsigned
kvr_index_id(uint64_t ids, unsigned slot)
{
    return ids >> slot * 8 & (KVR_INDEX_PEERS - 1);
}


/* 0 marks a free slot; the one stamp that it takes the place of is near */
static inline uint32_t
kvr_index_stamp(uint32_t clock, uint32_t depth)
{
    uint32_t  stamp;

    stamp = clock - (depth - 1);

    return stamp ? stamp : 1;
}


/* 0 and 1 mean a free line and a claimed one */
static inline uint64_t
kvr_index_key(uint64_t h)
{
    return h > KVR_INDEX_BUSY ? h : h + 2;
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

    kvr_set(&p->floor, kvr_index_clock(ix, peer));
    kvr_set(&p->masked, (uint32_t) kvr_get(&ix->clock));

    /* so that a bit set right after the flush is newer than it */

    kvr_add(&ix->clock, 1);
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


uint32_t
kvr_index_lookup(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint64_t set, uint32_t *matched)
{
    unsigned           peer;
    uint32_t           i, gap, best;
    uint64_t           alive, has, lost, seen;
    kvr_index_line_t  *line;
    kvr_index_view_t   view;

    for (lost = set; lost; lost &= lost - 1) {
        matched[__builtin_ctzll(lost)] = 0;
    }

    if (n == 0 || set == 0) {
        return 0;
    }

    for (i = 0; i < n && i < KVR_INDEX_AHEAD; i++) {
        __builtin_prefetch(kvr_index_bucket(ix, chain[i]));
    }

    kvr_index_view(ix, set, &view);

    /*
     * alive holds those that have the block before; when one has not got this
     * block its depth so far is noted, and again if it comes back deeper down
     */

    alive = 0;
    seen = 0;
    gap = 0;

    for (i = 0; i < n; i++) {

        if (i + KVR_INDEX_AHEAD < n) {
            __builtin_prefetch(kvr_index_bucket(ix,
                                                chain[i + KVR_INDEX_AHEAD]));
        }

        line = kvr_index_find(ix, chain[i]);

        if (line == NULL) {
            if (++gap == KVR_INDEX_GAP) {
                break;
            }

            has = 0;

        } else {
            gap = 0;
            has = kvr_index_holders(ix, line, &view) & set;

            /* the line may have been given to another block meanwhile */

            atomic_thread_fence(memory_order_acquire);

            if (kvr_get(&line->key) != kvr_index_key(chain[i])) {
                has = 0;
            }
        }

        for (lost = alive & ~has; lost; lost &= lost - 1) {
            matched[__builtin_ctzll(lost)] = kvr_chain_depth(i - 1);
        }

        seen |= has;
        alive = has;
    }

    for ( /* void */ ; alive; alive &= alive - 1) {
        matched[__builtin_ctzll(alive)] = kvr_chain_depth(i - 1);
    }

    best = 0;

    for ( /* void */ ; seen; seen &= seen - 1) {
        peer = (unsigned) __builtin_ctzll(seen);
        best = kvr_max(best, matched[peer]);
    }

    return best;
}


static kvr_index_line_t *
kvr_index_bucket(kvr_index_t *ix, uint64_t key)
{
    return &ix->line[kvr_reduce(key, ix->nbuckets) * KVR_INDEX_WAYS];
}


static kvr_index_line_t *
kvr_index_find(kvr_index_t *ix, uint64_t key)
{
    unsigned           i;
    kvr_index_line_t  *line;

    line = kvr_index_bucket(ix, key);
    key = kvr_index_key(key);

    for (i = 0; i < KVR_INDEX_WAYS; i++) {
        if (atomic_load_explicit(&line[i].key, memory_order_acquire) == key) {
            return &line[i];
        }
    }

    return NULL;
}


/* the set of peers that hold a line's block */
static uint64_t
kvr_index_holders(kvr_index_t *ix, kvr_index_line_t *line,
    kvr_index_view_t *view)
{
    unsigned  i, id;
    uint32_t  stamp;
    uint64_t  ids, mask, set;

    set = 0;
    ids = kvr_get(&line->ids);

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        stamp = kvr_get(&line->stamp[i]);
        id = kvr_index_id(ids, i);

        if (stamp && view->clock[id] - stamp < view->limit[id]) {
            set |= 1ULL << id;
        }
    }

    mask = kvr_get(&line->mask);

    if (kvr_unlikely(mask)) {
        set |= kvr_index_mask(ix, mask, kvr_get(&line->masked));
    }

    return set;
}


static void
kvr_index_view(kvr_index_t *ix, uint64_t set, kvr_index_view_t *view)
{
    unsigned  id;
    uint32_t  clock;

    memset(view->limit, 0, sizeof(view->limit));

    for ( /* void */ ; set; set &= set - 1) {
        id = (unsigned) __builtin_ctzll(set);

        clock = kvr_index_clock(ix, id);

        view->clock[id] = clock;
        view->limit[id] = kvr_index_limit(ix, id, clock);
    }
}


static uint32_t
kvr_index_clock(kvr_index_t *ix, unsigned peer)
{
    return (uint32_t) (kvr_get(&ix->peer[peer].clock) >> KVR_INDEX_FRACTION);
}


/*
 * Stamps after the floor and within the capacity are those of an age below the
 * lesser of both distances.
 */
static uint32_t
kvr_index_limit(kvr_index_t *ix, unsigned peer, uint32_t clock)
{
    uint32_t  capacity, since;

    capacity = kvr_get(&ix->peer[peer].capacity);
    since = clock - kvr_get(&ix->peer[peer].floor);

    return kvr_min(capacity, since);
}


/*
 * Those of a mask that still count.  A masked holder has no stamp of its own,
 * so its age is that of the last holder that was moved to the mask, in units
 * computed by all peers; of those this peer computed a share like that of its
 * whole life.  A mask is needed only where more than eight peers hold a block
 * at a time, a prefix that all the traffic has, so a rough rule will do.
 */
static uint64_t
kvr_index_mask(kvr_index_t *ix, uint64_t mask, uint32_t masked)
{
    unsigned           id;
    uint32_t           now;
    uint64_t           m, age, clock, all;
    kvr_index_peer_t  *p;

    now = (uint32_t) kvr_get(&ix->clock);
    all = kvr_get(&ix->clock) - KVR_INDEX_START + 1;

    for (m = mask; m; m &= m - 1) {
        id = (unsigned) __builtin_ctzll(m);
        p = &ix->peer[id];

        clock = (kvr_get(&p->clock) >> KVR_INDEX_FRACTION) - KVR_INDEX_START;
        age = (uint32_t) (now - masked);

        if ((int32_t) (masked - kvr_get(&p->masked)) <= 0
            || (unsigned __int128) age * clock
               >= (unsigned __int128) kvr_get(&p->capacity) * all)
        {
            mask &= ~(1ULL << id);
        }
    }

    return mask;
}


void
kvr_index_learn(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_lesson_t *lesson)
{
    uint32_t           i, clock, now, stamp, depth, fresh, evicted;
    kvr_index_line_t  *line;

    matched = kvr_min(matched, units);
    fresh = units - matched;

    clock = kvr_index_advance(ix, chain, n, units, peer, matched);

    now = (uint32_t) (kvr_add(&ix->clock, fresh) + fresh);

    lesson->clock = clock;
    lesson->matched = matched;
    lesson->peer = (uint8_t) peer;
    lesson->valid = 1;

    for (i = 0; i < n && i < KVR_INDEX_AHEAD; i++) {
        __builtin_prefetch(kvr_index_bucket(ix, chain[i]), 1);
    }

    evicted = 0;

    for (i = 0; i < n; i++) {

        if (i + KVR_INDEX_AHEAD < n) {
            __builtin_prefetch(kvr_index_bucket(ix,
                                                chain[i + KVR_INDEX_AHEAD]),
                               1);
        }

        depth = kvr_chain_depth(i);
        stamp = kvr_index_stamp(clock, depth);

        line = kvr_index_find(ix, chain[i]);

        if (line) {
            kvr_index_add(ix, line, kvr_index_key(chain[i]), peer, stamp,
                          now - depth);

        } else {
            evicted += kvr_index_insert(ix, chain[i], peer, stamp,
                                        now - depth);
        }
    }

    if (evicted) {
        kvr_add(&ix->evicted, evicted);
    }

    kvr_index_sweep(ix, fresh / 4 + 1);
}


/*
 * Moves a peer's clock on by what it must compute: new units, and for what it
 * holds the share of its other blocks that a hit at that age puts further back
 * in an LRU: age / capacity, which is only known if the engine said so.
 */
static uint32_t
kvr_index_advance(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched)
{
    unsigned           i;
    uint32_t           clock, capacity, age, k, now;
    uint64_t           add, ids;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];
    add = (uint64_t) (units - matched) << KVR_INDEX_FRACTION;

    capacity = kvr_get(&p->capacity);

    if (matched && capacity && kvr_get(&p->reported)) {

        /* the matched blocks were used together, at the deepest one's age */

        k = kvr_min(kvr_chain_entries(matched), n);
        line = k ? kvr_index_find(ix, chain[k - 1]) : NULL;
        age = 0;

        if (line) {
            ids = kvr_get(&line->ids);
            clock = kvr_index_clock(ix, peer);

            for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
                if (kvr_get(&line->stamp[i])
                    && kvr_index_id(ids, i) == peer)
                {
                    age = clock - kvr_get(&line->stamp[i]);
                    break;
                }
            }
        }

        age = kvr_min(age, capacity);

        /* the deepest has the stamp of its depth, the first one none */

        age -= kvr_min(age, matched / 2);

        add += ((uint64_t) matched * age << KVR_INDEX_FRACTION) / capacity;
    }

    clock = (uint32_t) ((kvr_add(&p->clock, add) + add) >> KVR_INDEX_FRACTION);

    /* floors left behind too far would look as if they lay ahead */

    if (clock - kvr_get(&p->floor) > 2 * KVR_INDEX_CAPACITY_MAX) {
        kvr_set(&p->floor, clock - KVR_INDEX_CAPACITY_MAX);
    }

    now = (uint32_t) kvr_get(&ix->clock);

    if (now - kvr_get(&p->masked) > 2 * KVR_INDEX_CAPACITY_MAX) {
        kvr_set(&p->masked, now - KVR_INDEX_CAPACITY_MAX);
    }

    return clock;
}


/* returns 1 if another block had to go for this one */
static unsigned
kvr_index_insert(kvr_index_t *ix, uint64_t key, unsigned peer, uint32_t stamp,
    uint32_t touched)
{
    int32_t            age, oldest;
    uint64_t           old, k;
    unsigned           i;
    kvr_index_line_t  *line, *victim;

    line = kvr_index_bucket(ix, key);
    victim = NULL;
    oldest = 0;
    old = 0;

    for (i = 0; i < KVR_INDEX_WAYS; i++, line++) {
        k = kvr_get(&line->key);

        if (k == 0) {
            victim = line;
            old = 0;
            break;
        }

        age = (int32_t) (touched - kvr_get(&line->touched));

        if (age > oldest && k != KVR_INDEX_BUSY) {
            victim = line;
            oldest = age;
            old = k;
        }
    }

    if (victim == NULL
        || !atomic_compare_exchange_strong_explicit(&victim->key, &old,
                                                    KVR_INDEX_BUSY,
                                                    memory_order_acquire,
                                                    memory_order_relaxed))
    {
        /* all are younger than this block, or others are at work here */
        return 0;
    }

    kvr_set(&victim->mask, 0);
    kvr_set(&victim->ids, (uint64_t) peer);
    kvr_set(&victim->stamp[0], stamp);

    for (i = 1; i < KVR_INDEX_HOLDERS; i++) {
        kvr_set(&victim->stamp[i], 0);
    }

    kvr_set(&victim->touched, touched);

    atomic_store_explicit(&victim->key, kvr_index_key(key),
                          memory_order_release);

    return old != 0;
}


/* makes the peer a holder of a line, or a more recent one */
static void
kvr_index_add(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched)
{
    unsigned  i;
    uint32_t  old;
    uint64_t  ids, new;

    if ((int32_t) (touched - kvr_get(&line->touched)) > 0) {
        kvr_set(&line->touched, touched);
    }

    ids = kvr_get(&line->ids);

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        old = kvr_get(&line->stamp[i]);

        if (old && kvr_index_id(ids, i) == peer) {

            /* a stamp from before a restart may look newer: age decides */

            kvr_set(&line->stamp[i], stamp);
            goto done;
        }
    }

    i = kvr_index_slot(ix, line, ids);

    kvr_set(&line->stamp[i], 0);

    do {
        new = (ids & ~(0xffULL << i * 8)) | (uint64_t) peer << i * 8;

    } while (!atomic_compare_exchange_weak_explicit(&line->ids, &ids, new,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed));

    atomic_store_explicit(&line->stamp[i], stamp, memory_order_release);

    if (kvr_unlikely(kvr_get(&line->mask) >> peer & 1)) {
        atomic_fetch_and_explicit(&line->mask, ~(1ULL << peer),
                                  memory_order_relaxed);
    }

done:

    if (kvr_unlikely(atomic_load_explicit(&line->key, memory_order_acquire)
                     != key))
    {
        /* it is another block's line by now */

        old = stamp;

        (void) atomic_compare_exchange_strong_explicit(&line->stamp[i], &old,
                                                       0, memory_order_relaxed,
                                                       memory_order_relaxed);
    }
}


/* a slot for a new holder: a free one, or that of the oldest */
static unsigned
kvr_index_slot(kvr_index_t *ix, kvr_index_line_t *line, uint64_t ids)
{
    unsigned  i, id, slot;
    uint32_t  age, oldest, stamp, clock;

    slot = 0;
    oldest = 0;

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        stamp = kvr_get(&line->stamp[i]);

        if (stamp == 0) {
            return i;
        }

        id = kvr_index_id(ids, i);
        clock = kvr_index_clock(ix, id);
        age = clock - stamp;

        if (age >= kvr_index_limit(ix, id, clock)) {
            return i;
        }

        if (age >= oldest) {
            oldest = age;
            slot = i;
        }
    }

    /* it is still a holder, if no longer one with a stamp */

    kvr_index_to_mask(ix, line, kvr_index_id(ids, slot));

    return slot;
}


static void
kvr_index_to_mask(kvr_index_t *ix, kvr_index_line_t *line, unsigned peer)
{
    uint64_t  mask, new;

    mask = kvr_get(&line->mask);

    /* the others must not live on by this one's age */

    do {
        new = mask ? kvr_index_mask(ix, mask, kvr_get(&line->masked)) : 0;
        new |= 1ULL << peer;

    } while (!atomic_compare_exchange_weak_explicit(&line->mask, &mask, new,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed));

    kvr_set(&line->masked, (uint32_t) kvr_get(&ix->clock));
    kvr_set(&ix->masks, kvr_get(&ix->masks) + 1);
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

        line = kvr_index_find(ix, chain[i]);

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


/*
 * Clears slots whose holders have forgotten the block and frees lines without
 * any: or stamps would come round again after 2^32 units and claims of killed
 * processes stay for ever.
 */
static void
kvr_index_sweep(kvr_index_t *ix, uint32_t count)
{
    unsigned           i, id, live;
    uint32_t           clock, stamp;
    uint64_t           hand, ids, mask, key;
    kvr_index_line_t  *line;

    count = (uint32_t) kvr_min(count, ix->nlines);

    hand = kvr_add(&ix->hand, count);
    hand %= ix->nlines;

    while (count--) {

        line = &ix->line[hand];
        hand = hand + 1 < ix->nlines ? hand + 1 : 0;

        key = kvr_get(&line->key);

        if (key == 0) {
            continue;
        }

        if (key == KVR_INDEX_BUSY) {
            goto free;
        }

        live = 0;
        ids = kvr_get(&line->ids);

        for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
            stamp = kvr_get(&line->stamp[i]);

            if (stamp == 0) {
                continue;
            }

            id = kvr_index_id(ids, i);
            clock = kvr_index_clock(ix, id);

            if (clock - stamp < kvr_index_limit(ix, id, clock)) {
                live = 1;

            } else {
                (void) atomic_compare_exchange_strong_explicit(
                           &line->stamp[i], &stamp, 0,
                           memory_order_relaxed, memory_order_relaxed);
            }
        }

        mask = kvr_get(&line->mask);

        if (mask && kvr_index_mask(ix, mask, kvr_get(&line->masked)) == 0) {
            (void) atomic_compare_exchange_strong_explicit(
                       &line->mask, &mask, 0,
                       memory_order_relaxed, memory_order_relaxed);
            mask = 0;
        }

        if (live || mask) {
            continue;
        }

    free:

        (void) atomic_compare_exchange_strong_explicit(&line->key, &key, 0,
                                                       memory_order_relaxed,
                                                       memory_order_relaxed);
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
