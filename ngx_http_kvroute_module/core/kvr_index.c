
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_index.h"


#define KVR_INDEX_CLAIMED   UINT32_MAX  /* keys up to here are claims */
#define KVR_INDEX_CLAIM     (1 << 24)   /* units that a claim is good for */
#define KVR_INDEX_FRACTION  8       /* bits of a clock below one unit */
#define KVR_INDEX_AHEAD     32      /* entries prefetched ahead */
#define KVR_INDEX_GAP       32      /* absent entries that end a look-up */
#define KVR_INDEX_SAMPLE    1024
#define KVR_INDEX_SESSION   8       /* how much older it may be to stay */
#define KVR_INDEX_START     1024    /* clocks start here, clear of 0 */

/* the bits of ids that no peer's number takes hold bits of the key */
#define KVR_INDEX_TAG       0xc0c0c0c0c0c0c0c0ULL


/* what a look-up needs to know of the peers, read once */
typedef struct {
    uint32_t            clock[KVR_INDEX_PEERS];
    uint32_t            limit[KVR_INDEX_PEERS];  /* age at which it forgot */

    uint64_t            set;                     /* peers asked for */
    uint64_t            ready;                   /* peers in expire[] */
    uint64_t            now;                     /* table's clock */
    uint32_t            expire[KVR_INDEX_PEERS]; /* the same for a mask */
} kvr_index_view_t;


static kvr_index_line_t *kvr_index_bucket(kvr_index_t *ix, uint64_t key);
static kvr_index_line_t *kvr_index_find(kvr_index_t *ix, uint64_t key);
static kvr_index_line_t *kvr_index_find_key(kvr_index_t *ix, uint64_t key);
static uint64_t kvr_index_holders(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t key, kvr_index_view_t *view);
static void kvr_index_view(kvr_index_t *ix, uint64_t set,
    kvr_index_view_t *view);
static uint32_t kvr_index_limit(kvr_index_t *ix, unsigned peer,
    uint32_t *clock);
static uint64_t kvr_index_masked(kvr_index_t *ix, kvr_index_line_t *line,
    kvr_index_view_t *view);
static uint64_t kvr_index_mask(kvr_index_t *ix, uint64_t mask,
    uint32_t masked);
static uint32_t kvr_index_expire(kvr_index_t *ix, unsigned peer,
    uint64_t now);
static uint32_t kvr_index_advance(kvr_index_t *ix, const uint64_t *chain,
    uint32_t n, uint32_t units, unsigned peer, uint32_t matched,
    uint64_t *moved);
static unsigned kvr_index_insert(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t stamp, uint32_t touched);
static void kvr_index_add(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t key, unsigned peer, uint32_t stamp, uint32_t touched);
static unsigned kvr_index_take(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t key, unsigned peer, uint32_t stamp, uint64_t *moved);
static unsigned kvr_index_slot(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t ids, uint32_t *held, unsigned *live);
static void kvr_index_to_mask(kvr_index_t *ix, kvr_index_line_t *line,
    unsigned peer, uint64_t now);
static void kvr_index_sweep(kvr_index_t *ix, uint64_t count);


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


/* a peer's clock */
static inline uint64_t
kvr_index_units(kvr_index_peer_t *p)
{
    return kvr_get(&p->clock) >> KVR_INDEX_FRACTION;
}


/*
 * Keys of lines: small ones mean a free line or a claimed one; even ones are
 * of blocks, odd ones of sessions.
 */
static inline uint64_t
kvr_index_key(uint64_t h)
{
    if (kvr_unlikely(h <= KVR_INDEX_CLAIMED)) {
        h += KVR_INDEX_CLAIMED + 1ULL;
    }

    return h & ~1ULL;
}


static inline uint64_t
kvr_index_session_key(uint64_t h)
{
    return kvr_index_key(h) | 1;
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
            has = kvr_index_holders(ix, line, kvr_index_key(chain[i]), &view);
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
    return kvr_index_find_key(ix, kvr_index_key(key));
}


static kvr_index_line_t *
kvr_index_find_key(kvr_index_t *ix, uint64_t key)
{
    unsigned           i;
    kvr_index_line_t  *line;

    line = kvr_index_bucket(ix, key);

    for (i = 0; i < KVR_INDEX_WAYS; i++) {
        if (atomic_load_explicit(&line[i].key, memory_order_acquire) == key) {
            return &line[i];
        }
    }

    return NULL;
}


/* those of the peers asked for that hold a line's block */
static uint64_t
kvr_index_holders(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    kvr_index_view_t *view)
{
    unsigned  i, id;
    uint32_t  stamp;
    uint64_t  ids, set;

    do {
        set = 0;
        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

        for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
            stamp = kvr_get(&line->stamp[i]);

            if (stamp) {
                id = kvr_index_id(ids, i);
                set |= (uint64_t) (view->clock[id] - stamp < view->limit[id])
                       << id;
            }
        }

        if (kvr_unlikely(kvr_get(&line->mask))) {
            set |= kvr_index_masked(ix, line, view);
        }

        /* the line or a slot of it may have been given away meanwhile */

        atomic_thread_fence(memory_order_acquire);

        if (kvr_unlikely(kvr_get(&line->key) != key)) {
            return 0;
        }

    } while (kvr_unlikely(kvr_get(&line->ids) != ids));

    return set & view->set;
}


static void
kvr_index_view(kvr_index_t *ix, uint64_t set, kvr_index_view_t *view)
{
    unsigned  id;

    memset(view->limit, 0, sizeof(view->limit));

    view->set = set;
    view->ready = 0;

    for ( /* void */ ; set; set &= set - 1) {
        id = (unsigned) __builtin_ctzll(set);

        view->limit[id] = kvr_index_limit(ix, id, &view->clock[id]);
    }
}


/*
 * Stamps after the floor and within the capacity are those of an age below the
 * lesser of both distances.
 */
static uint32_t
kvr_index_limit(kvr_index_t *ix, unsigned peer, uint32_t *clock)
{
    uint32_t           capacity;
    uint64_t           now, floor;
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];

    now = kvr_index_units(p);
    floor = kvr_get(&p->floor);
    capacity = kvr_get(&p->capacity);

    *clock = (uint32_t) now;

    /* it may have been restarted since the clock was read */

    if (kvr_unlikely(now < floor)) {
        return 0;
    }

    return (uint32_t) kvr_min(capacity, now - floor);
}


/* few prompts meet a mask, but those that do meet many */
static uint64_t
kvr_index_masked(kvr_index_t *ix, kvr_index_line_t *line,
    kvr_index_view_t *view)
{
    unsigned  id;
    uint32_t  age;
    uint64_t  m, mask, bit;

    if (view->ready == 0) {
        view->now = kvr_get(&ix->clock);
    }

    /* in this order, or an old mask might pass for a new one */

    age = (uint32_t) view->now
          - atomic_load_explicit(&line->masked, memory_order_acquire);

    mask = kvr_get(&line->mask) & view->set;

    for (m = mask; m; m &= m - 1) {
        id = (unsigned) __builtin_ctzll(m);
        bit = m & -m;

        if (kvr_unlikely(!(view->ready & bit))) {
            view->expire[id] = kvr_index_expire(ix, id, view->now);
            view->ready |= bit;
        }

        if (age >= view->expire[id]) {
            mask ^= bit;
        }
    }

    return mask;
}


/* those of a mask that still count */
static uint64_t
kvr_index_mask(kvr_index_t *ix, uint64_t mask, uint32_t masked)
{
    uint64_t  m, now;

    now = kvr_get(&ix->clock);

    for (m = mask; m; m &= m - 1) {

        if ((uint32_t) now - masked
            >= kvr_index_expire(ix, (unsigned) __builtin_ctzll(m), now))
        {
            mask ^= m & -m;
        }
    }

    return mask;
}


/*
 * The age of a mask at which a peer in it no longer counts.  It has no stamp
 * there, so it counts from when the mask was begun to when its cache is turned
 * over.  That is in units computed by all peers, of which it is taken to do the
 * same share as since its restart.  A mask is needed only where more than eight
 * peers hold a block at a time, a prefix that much of the traffic has: who
 * still holds it soon says so again, so a rough rule will do.
 */
static uint32_t
kvr_index_expire(kvr_index_t *ix, unsigned peer, uint64_t now)
{
    double             turn;
    uint64_t           all, units;
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];

    all = now - kvr_get(&p->since);
    units = kvr_index_units(p) - kvr_get(&p->floor);

    /* it may be restarted at any time */

    if ((int64_t) all <= 0 || (int64_t) units < 0) {
        return 0;
    }

    turn = (double) kvr_get(&p->capacity) * (double) all
           / (double) kvr_max(units, 1);

    all = kvr_min(all, INT32_MAX);

    return turn < (double) all ? (uint32_t) turn : (uint32_t) all;
}


void
kvr_index_learn(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_lesson_t *lesson)
{
    uint32_t           i, clock, now, stamp, depth, fresh, evicted;
    uint64_t           moved;
    kvr_index_line_t  *line;

    matched = kvr_min(matched, units);
    fresh = units - matched;

    clock = kvr_index_advance(ix, chain, n, units, peer, matched, &moved);

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
            evicted += kvr_index_insert(ix, kvr_index_key(chain[i]), peer,
                                        stamp, now - depth);
        }
    }

    if (evicted) {
        kvr_add(&ix->evicted, evicted);
    }

    kvr_index_sweep(ix, moved / 4 + 1);
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
    unsigned           i;
    uint32_t           clock, capacity, age, k;
    uint64_t           add, ids;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];
    add = (uint64_t) kvr_max(units - matched, 1) << KVR_INDEX_FRACTION;

    capacity = kvr_get(&p->capacity);

    if (matched && capacity && kvr_get(&p->reported)) {

        /* the matched blocks were used together, at the deepest one's age */

        k = kvr_min(kvr_chain_entries(matched), n);
        line = k ? kvr_index_find(ix, chain[k - 1]) : NULL;
        age = 0;

        if (line) {
            ids = kvr_get(&line->ids);
            clock = (uint32_t) kvr_index_units(p);

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

    *moved = add >> KVR_INDEX_FRACTION;

    return (uint32_t) ((kvr_add(&p->clock, add) + add) >> KVR_INDEX_FRACTION);
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

        /* a session that has not expired is worth as many prompts */

        if ((k & 1) && (int32_t) (kvr_get(&line->stamp[0])
                                  - kvr_get(&ix->time)) > 0)
        {
            age /= KVR_INDEX_SESSION;
        }

        if (age > oldest && k > KVR_INDEX_CLAIMED) {
            victim = line;
            oldest = age;
            old = k;
        }
    }

    if (victim == NULL
        || !atomic_compare_exchange_strong_explicit(&victim->key, &old,
                                                    kvr_max(touched, 1),
                                                    memory_order_acquire,
                                                    memory_order_relaxed))
    {
        /* all are younger than this block, or others are at work here */
        return 0;
    }

    /* whoever finds anything of what follows, finds the claim as well */

    atomic_thread_fence(memory_order_release);

    kvr_set(&victim->mask, 0);

    /* free slots are the same peer's, should a stamp go astray */

    kvr_set(&victim->ids, peer * 0x0101010101010101ULL
                          | (key & KVR_INDEX_TAG));
    kvr_set(&victim->stamp[0], stamp);

    for (i = 1; i < KVR_INDEX_HOLDERS; i++) {
        kvr_set(&victim->stamp[i], 0);
    }

    kvr_set(&victim->touched, touched);

    atomic_store_explicit(&victim->key, key, memory_order_release);

    return old != 0;
}


/* makes the peer a holder of a line, or a more recent one */
static void
kvr_index_add(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched)
{
    unsigned  i;
    uint64_t  ids, moved;

    if ((int32_t) (touched - kvr_get(&line->touched)) > 0) {
        kvr_set(&line->touched, touched);
    }

    moved = 0;
    ids = atomic_load_explicit(&line->ids, memory_order_acquire);

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {

        if (kvr_get(&line->stamp[i]) && kvr_index_id(ids, i) == peer) {

            /* a stamp from before a restart may look newer: age decides */

            kvr_set(&line->stamp[i], stamp);
            break;
        }
    }

    if (i == KVR_INDEX_HOLDERS) {
        i = kvr_index_take(ix, line, key, peer, stamp, &moved);
    }

    if (kvr_unlikely(i == KVR_INDEX_HOLDERS)) {
        return;
    }

    key ^= atomic_load_explicit(&line->key, memory_order_seq_cst);
    ids = atomic_load_explicit(&line->ids, memory_order_seq_cst);

    if (kvr_likely(key == 0 && kvr_index_id(ids, i) == peer)) {
        return;
    }

    /* the line or the slot is another's by now */

    (void) atomic_compare_exchange_strong_explicit(&line->stamp[i], &stamp, 0,
                                                   memory_order_relaxed,
                                                   memory_order_relaxed);

    if (key && moved) {
        atomic_fetch_and_explicit(&line->mask, ~moved, memory_order_relaxed);
    }
}


/*
 * Gives the peer a slot of a line, and says which, or KVR_INDEX_HOLDERS if the
 * line is another block's by now; moved is the holder that had to go for it.
 */
static unsigned
kvr_index_take(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint64_t *moved)
{
    unsigned  i, live;
    uint32_t  held;
    uint64_t  now, ids, new;

    for ( ;; ) {

        /* first, for any holder may be flushed at any time */

        now = kvr_get(&ix->clock);
        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

        if (kvr_unlikely((ids ^ key) & KVR_INDEX_TAG)) {
            return KVR_INDEX_HOLDERS;
        }

        i = kvr_index_slot(ix, line, ids, &held, &live);

        /* the stamps may have been other holders' than those in ids */

        new = atomic_load_explicit(&line->ids, memory_order_acquire);

        if (kvr_unlikely(new != ids)) {
            continue;
        }

        if (held
            && !atomic_compare_exchange_strong_explicit(&line->stamp[i],
                                                        &held, 0,
                                                        memory_order_relaxed,
                                                        memory_order_relaxed))
        {
            continue;
        }

        new = (ids & ~((KVR_INDEX_PEERS - 1ULL) << i * 8))
              | (uint64_t) peer << i * 8;

        if (atomic_compare_exchange_strong_explicit(&line->ids, &ids, new,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed))
        {
            break;
        }
    }

    if (live) {

        /* it is still a holder, if no longer one with a stamp */

        kvr_index_to_mask(ix, line, kvr_index_id(ids, i), now);
        *moved = 1ULL << kvr_index_id(ids, i);
    }

    held = 0;

    while (!atomic_compare_exchange_strong_explicit(&line->stamp[i], &held,
                                                    stamp,
                                                    memory_order_seq_cst,
                                                    memory_order_relaxed))
    {
        /* another one was given the slot, before us or since */

        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

        if (kvr_index_id(ids, i) != peer) {
            return i;
        }
    }

    if (kvr_unlikely(kvr_get(&line->mask) >> peer & 1)) {
        atomic_fetch_and_explicit(&line->mask, ~(1ULL << peer),
                                  memory_order_relaxed);
    }

    return i;
}


/*
 * A slot for a new holder: a free one, or that of the oldest.  held is the
 * stamp that it has, live says that this one still counts.
 */
static unsigned
kvr_index_slot(kvr_index_t *ix, kvr_index_line_t *line, uint64_t ids,
    uint32_t *held, unsigned *live)
{
    unsigned  i, slot;
    uint32_t  age, oldest, stamp, clock, limit;

    slot = 0;
    oldest = 0;
    *held = 0;

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        stamp = kvr_get(&line->stamp[i]);

        if (stamp == 0) {
            *held = 0;
            *live = 0;
            return i;
        }

        limit = kvr_index_limit(ix, kvr_index_id(ids, i), &clock);
        age = clock - stamp;

        if (age >= limit) {
            *held = stamp;
            *live = 0;
            return i;
        }

        if (age >= oldest) {
            oldest = age;
            slot = i;
            *held = stamp;
        }
    }

    *live = 1;

    return slot;
}


/*
 * Where it would not count it begins a mask of its own: the others may have
 * forgotten the block and must not live on by this one's being new.
 */
static void
kvr_index_to_mask(kvr_index_t *ix, kvr_index_line_t *line, unsigned peer,
    uint64_t now)
{
    unsigned  begin;
    uint64_t  mask, new, bit;

    bit = 1ULL << peer;
    mask = kvr_get(&line->mask);

    do {
        begin = (uint32_t) now - kvr_get(&line->masked)
                >= kvr_index_expire(ix, peer, now);

        new = begin ? bit : mask | bit;

    } while (!atomic_compare_exchange_weak_explicit(&line->mask, &mask, new,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed));

    if (begin) {
        atomic_store_explicit(&line->masked, (uint32_t) now,
                              memory_order_release);
    }

    kvr_add(&ix->masks, 1);
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
kvr_index_sweep(kvr_index_t *ix, uint64_t count)
{
    unsigned           i, live;
    uint32_t           now, clock, limit, stamp;
    uint64_t           hand, ids, mask, key;
    kvr_index_line_t  *line;

    count = kvr_min(count, ix->nlines);
    now = (uint32_t) kvr_get(&ix->clock);

    hand = kvr_add(&ix->hand, count);
    hand %= ix->nlines;

    while (count--) {

        line = &ix->line[hand];
        hand = hand + 1 < ix->nlines ? hand + 1 : 0;

        key = kvr_get(&line->key);

        if (key == 0) {
            continue;
        }

        if (key <= KVR_INDEX_CLAIMED) {

            if ((int32_t) (now - (uint32_t) key) < KVR_INDEX_CLAIM) {
                continue;
            }

            goto free;
        }

        if (key & 1) {

            if ((int32_t) (kvr_get(&line->stamp[0]) - kvr_get(&ix->time)) > 0) {
                continue;
            }

            goto free;
        }

        live = 0;
        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

        for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
            stamp = kvr_get(&line->stamp[i]);

            if (stamp == 0) {
                continue;
            }

            limit = kvr_index_limit(ix, kvr_index_id(ids, i), &clock);

            if (clock - stamp < limit) {
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


uint64_t
kvr_index_holds(kvr_index_t *ix, uint64_t key, uint64_t set)
{
    kvr_index_line_t  *line;
    kvr_index_view_t   view;

    line = kvr_index_find(ix, key);

    if (line == NULL) {
        return 0;
    }

    kvr_index_view(ix, set, &view);

    return kvr_index_holders(ix, line, kvr_index_key(key), &view);
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

    line = kvr_index_find(ix, key);

    key = kvr_index_key(key);

    if (line) {
        kvr_index_add(ix, line, key, peer, kvr_index_stamp(clock, 1), now);

    } else if (kvr_index_insert(ix, key, peer, kvr_index_stamp(clock, 1), now))
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
    line = kvr_index_find_key(ix, key);

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
    line = kvr_index_find_key(ix, key);

    if (line == NULL) {

        if (kvr_index_insert(ix, key, peer, expires,
                             (uint32_t) kvr_get(&ix->clock)))
        {
            kvr_add(&ix->evicted, 1);
        }

        line = kvr_index_find_key(ix, key);

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
