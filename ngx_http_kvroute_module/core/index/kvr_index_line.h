
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_LINE_H_INCLUDED_
#define _KVR_LINE_H_INCLUDED_


/*
 * Lines of the index and who holds them: what the index is made of, and of no
 * use to others.  kvr_index.h has the rules by which processes share them.
 */


#include "core/index/kvr_index_tag.h"


#define KVR_INDEX_CLAIMED   UINT32_MAX  /* keys up to here are claims */
#define KVR_INDEX_CLAIM     (1 << 24)   /* units that a claim is good for */
#define KVR_INDEX_FRACTION  8       /* bits of a clock below one unit */

/* the bits of ids that no peer's number takes hold bits of the key */
#define KVR_INDEX_TAG       0xc0c0c0c0c0c0c0c0ULL


/* what a look-up needs to know of the peers that it meets, read once */
typedef struct {
    uint64_t            set;                     /* peers asked for */

    uint64_t            known;                   /* peers in these */
    uint32_t            clock[KVR_INDEX_PEERS];
    uint32_t            limit[KVR_INDEX_PEERS];  /* age at which it forgot */

    uint64_t            ready;                   /* peers in expire[] */
    uint64_t            now;                     /* table's clock */
    uint32_t            expire[KVR_INDEX_PEERS]; /* the same for a mask */
} kvr_line_view_t;


/* reads what is to be known of a peer, for many lines */
void kvr_line_know(kvr_index_t *ix, unsigned peer, kvr_line_view_t *view);

/* those in a line's mask that still count, of the peers asked for */
uint64_t kvr_line_masked(kvr_index_t *ix, kvr_index_line_t *line,
    kvr_line_view_t *view);

/*
 * Puts a new line in the place of one of the oldest of its bucket, unless all
 * are younger, which gives NULL.  Adds 1 to *evicted if another block had to go
 * for this one.
 */
kvr_index_line_t *kvr_line_insert(kvr_index_t *ix, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched, uint32_t *evicted);

/* the oldest of a bucket by the lines' own words, and its key; or NULL */
kvr_index_line_t *kvr_line_oldest(kvr_index_t *ix, kvr_index_line_t *bucket,
    uint32_t touched, uint64_t *key);

/*
 * Makes the peer a holder of a line, or a more recent one; returns its slot,
 * or KVR_INDEX_HOLDERS if the line is another block's by now.
 */
unsigned kvr_line_add(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched);

/*
 * After a stamp: if line or slot was given away meanwhile it is taken back, and
 * so is the holder that was moved to the mask for it.
 */
void kvr_line_settle(kvr_index_line_t *line, uint64_t key, unsigned peer,
    unsigned slot, uint32_t stamp, uint64_t moved);

/*
 * Passes over the next count lines.  Each time it is seen to it that no tag
 * grows too old; one time in kvr_line_turns() the line is read as well, slots
 * cleared whose holders have forgotten the block, and lines without any freed:
 * or stamps would come round again after 2^32 units and claims of killed
 * processes stay for ever.
 */
void kvr_line_sweep(kvr_index_t *ix, uint64_t count);


/* a power of two; very large tables cannot wait, small ones need not */
static inline unsigned
kvr_line_turns(kvr_index_t *ix)
{
    return ix->nlines < 512 || ix->nlines > 1U << 24 ? 1 : 8;
}


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


static __attribute__ ((cold, noinline, unused)) uint64_t
kvr_index_key_small(uint64_t h)
{
    return (h + KVR_INDEX_CLAIMED + 1ULL) & ~1ULL;
}


/*
 * Keys of lines: small ones mean a free line or a claimed one; even ones are
 * of blocks, odd ones of sessions.
 */
static inline uint64_t
kvr_index_key(uint64_t h)
{
    /* a jump, which gcc would not make of it by itself */

    if (kvr_unlikely(h >> 32 == 0)) {
        return kvr_index_key_small(h);
    }

    return h & ~1ULL;
}


static inline uint64_t
kvr_index_session_key(uint64_t h)
{
    return kvr_index_key(h) | 1;
}


/* the line with a key, NULL if there is none */
static inline kvr_index_line_t *
kvr_line_find_key(kvr_index_t *ix, uint64_t key)
{
    uint64_t           n, match;
    kvr_index_line_t  *line;

    n = kvr_reduce(key, ix->nbuckets);

    match = kvr_tag_match(kvr_get(&kvr_tag_bucket(ix, n)->word),
                          kvr_tag_key(key));

    for ( /* void */ ; match; match &= match - 1) {
        line = &ix->line[n * KVR_INDEX_WAYS + kvr_tag_way(match)];

        if (atomic_load_explicit(&line->key, memory_order_acquire) == key) {
            return line;
        }
    }

    return NULL;
}


/* the line of a block */
static inline kvr_index_line_t *
kvr_line_find(kvr_index_t *ix, uint64_t h)
{
    return kvr_line_find_key(ix, kvr_index_key(h));
}


/*
 * The same in the place of a line that tags say is the oldest.  epoch is that
 * of touched, or near it.
 */
static inline kvr_index_line_t *
kvr_line_put(kvr_index_t *ix, kvr_index_line_t *victim, _Atomic uint16_t *tag,
    uint64_t key, unsigned peer, uint32_t stamp, uint32_t touched,
    unsigned epoch, uint32_t *evicted)
{
    uint16_t  h;
    uint64_t  old;
    unsigned  i;

    h = kvr_get(tag);
    old = kvr_get(&victim->key);

    /* taken meanwhile, another one's claim, a session, or as young as this */

    if (kvr_unlikely(h == 0 ? old
                     : old <= KVR_INDEX_CLAIMED || (old & 1)
                       || kvr_tag_age(h, epoch) < KVR_TAG_SLACK + 2))
    {
        i = (victim - ix->line) % KVR_INDEX_WAYS;

        tag -= i;
        victim = kvr_line_oldest(ix, victim - i, touched, &old);

        if (victim == NULL) {
            return NULL;
        }

        tag += (victim - ix->line) % KVR_INDEX_WAYS;
    }

    if (kvr_unlikely(!atomic_compare_exchange_strong_explicit(&victim->key,
                          &old, kvr_max(touched, 1), memory_order_acquire,
                          memory_order_relaxed)))
    {
        /* others are at work here */
        return NULL;
    }

    /* whoever finds anything of what follows, finds the claim as well */

    atomic_thread_fence(memory_order_release);

    kvr_set(&victim->mask, 0);

    /* free slots are the same peer's, should a stamp go astray */

    kvr_set(&victim->ids, peer * 0x0101010101010101ULL
                          | (key & KVR_INDEX_TAG));
    kvr_set(&victim->stamp[0], stamp);

    kvr_set(&victim->stamp[1], 0);

    for (i = 1; i < KVR_INDEX_HOLDERS / 2; i++) {
        kvr_set(&victim->stamps[i], 0);
    }

    kvr_set(&victim->touched, touched);

    atomic_store_explicit(&victim->key, key, memory_order_release);

    kvr_set(tag, (uint16_t) (kvr_tag_key(key) << KVR_TAG_KEY | epoch));

    *evicted += (old != 0);

    return victim;
}


/* all that have a slot, whether free by now or not */
static inline uint64_t
kvr_line_named(uint64_t ids)
{
    unsigned  i;
    uint64_t  set;

    ids &= ~KVR_INDEX_TAG;

    /* as a line is made */

    if (kvr_likely(ids == (ids & 0xff) * 0x0101010101010101ULL)) {
        return 1ULL << (ids & 0xff);
    }

    set = 0;

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        set |= 1ULL << kvr_index_id(ids, i);
    }

    return set;
}


/* it was used: the bits in which the time differs from that of its last use */
static inline uint32_t
kvr_line_touch(kvr_index_line_t *line, uint32_t touched)
{
    uint32_t  last;

    last = kvr_get(&line->touched);

    if ((int32_t) (touched - last) <= 0) {
        return 0;
    }

    kvr_set(&line->touched, touched);

    return touched ^ last;
}


/* gives a new stamp to a holder that is in a slot by ids, as they were read */
static inline void
kvr_line_stamp(kvr_index_line_t *line, uint64_t key, uint64_t ids,
    unsigned peer, unsigned slot, uint32_t stamp)
{
    /* a stamp from before a restart may look newer: age decides */

    kvr_set(&line->stamp[slot], stamp);

    if (kvr_unlikely(atomic_load_explicit(&line->key, memory_order_seq_cst)
                     != key
                     || atomic_load_explicit(&line->ids, memory_order_seq_cst)
                     != ids))
    {
        kvr_line_settle(line, key, peer, slot, stamp, 0);
    }
}


/* the same, if it is there */
static inline int
kvr_line_renew(kvr_index_line_t *line, uint64_t key, unsigned peer,
    unsigned slot, uint32_t stamp, uint32_t touched)
{
    uint64_t  ids;

    ids = atomic_load_explicit(&line->ids, memory_order_acquire);

    if (kvr_index_id(ids, slot) != peer || !kvr_get(&line->stamp[slot])) {
        return 0;
    }

    (void) kvr_line_touch(line, touched);
    kvr_line_stamp(line, key, ids, peer, slot, stamp);

    return 1;
}


static inline void
kvr_line_view(kvr_line_view_t *view, uint64_t set)
{
    view->set = set;
    view->known = 0;
    view->ready = 0;
}


/* the peer of a slot, as a bit, if it holds the block still */
static inline uint64_t
kvr_line_holder(kvr_index_t *ix, uint32_t stamp, uint64_t ids, unsigned slot,
    kvr_line_view_t *view)
{
    unsigned  id;

    if (stamp == 0) {
        return 0;
    }

    id = kvr_index_id(ids, slot);

    if (kvr_unlikely(!(view->known >> id & 1))) {
        kvr_line_know(ix, id, view);
    }

    return (uint64_t) (view->clock[id] - stamp < view->limit[id]) << id;
}


/*
 * Those of the peers asked for that hold the line's block; none if it is
 * another's by now.
 */
static inline __attribute__ ((always_inline)) uint64_t
kvr_line_holders(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    kvr_line_view_t *view)
{
    unsigned  i;
    uint64_t  ids, set;

    do {
        set = 0;
        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

#pragma GCC unroll 4
        for (i = 0; i < KVR_INDEX_HOLDERS; i += 2) {

            /* most lines have one holder, most slots are free */

            if (kvr_get(&line->stamps[i / 2])) {
                set |= kvr_line_holder(ix, kvr_get(&line->stamp[i]), ids, i,
                                       view)
                       | kvr_line_holder(ix, kvr_get(&line->stamp[i + 1]),
                                         ids, i + 1, view);
            }
        }

        if (kvr_unlikely(kvr_get(&line->mask))) {
            set |= kvr_line_masked(ix, line, view);
        }

        /* the line or a slot of it may have been given away meanwhile */

        atomic_thread_fence(memory_order_acquire);

        if (kvr_unlikely(kvr_get(&line->key) != key)) {
            return 0;
        }

    } while (kvr_unlikely(kvr_get(&line->ids) != ids));

    return set & view->set;
}


/* the age of what a peer has in a line, if there is a stamp of it */
static inline int
kvr_line_age(kvr_index_line_t *line, unsigned peer, uint32_t clock,
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


#endif /* _KVR_LINE_H_INCLUDED_ */
