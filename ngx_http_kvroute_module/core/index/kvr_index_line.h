
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_LINE_H_INCLUDED_
#define _KVR_LINE_H_INCLUDED_


/*
 * Lines of the index and their holders, for core/index and for extensions that
 * read or write single lines.  kvr_index.h has the rules of sharing them.
 */


#include "core/index/kvr_index.h"
#include "core/index/kvr_index_mask.h"
#include "core/index/kvr_index_tag.h"


#define KVR_INDEX_CLAIMED   UINT32_MAX  /* keys up to this one are claims */
#define KVR_INDEX_CLAIM     (1 << 24)   /* units that a claim is valid */

/*
 * A peer's number has 9 bits.  7 are in a byte of ids, whose last bit is a bit
 * of the key; 2 are in the peer's stamp, below the units of its clock.  So
 * the ages of one peer's stamps are plain differences, four to a unit.  A slot
 * without units is free; it keeps the two bits.
 */
#define KVR_INDEX_TAG       0x8080808080808080ULL
#define KVR_INDEX_ID        7           /* bits in ids */
#define KVR_INDEX_IDS       0x7fULL
#define KVR_INDEX_STAMP     2           /* bits in a stamp */
#define KVR_INDEX_HIGH      0x3U
#define KVR_INDEX_HIGHS     0x0000000300000003ULL  /* of two stamps */

_Static_assert(KVR_PEERS <= 1 << (KVR_INDEX_ID + KVR_INDEX_STAMP),
               "a peer's number");


/* clocks and limits of the peers that a lookup meets, read once each */
typedef struct {
    kvr_set_t           known;                   /* peers that are read */
    uint32_t            clock[KVR_PEERS];  /* as in a stamp */
    uint32_t            limit[KVR_PEERS];  /* age of evicted blocks */

    kvr_mask_view_t     mask;
} kvr_line_view_t;


/* the holders of a line's block, of a set of peers */
typedef struct {
    uint32_t            n;
    uint32_t            peer[KVR_INDEX_HOLDERS];
    uint64_t            mask;
    kvr_set_t           masked;      /* by the mask, if it is not 0 */
    uint32_t            below;       /* kvr_mask_read() */
} kvr_line_holders_t;


/* the peers of all slots, free or not: their bits in ids and in stamps */
typedef struct {
    uint64_t            low;
    uint64_t            high;        /* slots 0 2 4 6 at bit 0, 1 3 5 7 at 32 */
} kvr_line_names_t;


/* Reads a peer's clock and limit. */
void kvr_line_peer(kvr_index_t *ix, unsigned peer, kvr_line_view_t *view);

/*
 * Puts a new line in the place of the oldest of its bucket.  Returns NULL if
 * all of them are younger.
 */
kvr_index_line_t *kvr_line_insert(kvr_index_t *ix, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched);

/*
 * Makes the peer a holder of a block, in a new line if there is none.  Returns
 * the line, or NULL if there is no place for it.
 */
kvr_index_line_t *kvr_line_hold(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t stamp);

/*
 * Returns the oldest line of a bucket by the times in the lines, not by the
 * tags, and its key; NULL: all are too young.
 */
kvr_index_line_t *kvr_line_oldest(kvr_index_t *ix, kvr_index_line_t *bucket,
    uint32_t touched, uint64_t *key);

/*
 * Makes the peer a holder of a line, or renews its stamp.  Returns its slot, or
 * KVR_INDEX_HOLDERS if the line now belongs to another block.
 */
unsigned kvr_line_add(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched);

/*
 * Called after a stamp was stored: takes it back if the line or the slot was
 * given away meanwhile, and with it the holder that was moved to the mask.
 */
void kvr_line_settle(kvr_index_line_t *line, uint64_t key, unsigned peer,
    unsigned slot, uint32_t stamp, uint64_t moved);

/*
 * Sweeps the next count lines.  Keeps their tags from growing too old.  One
 * time in kvr_line_turns() it also reads the lines, clears slots whose holders
 * have evicted the block, and frees lines without holders.  Otherwise stamps
 * would wrap after 2^32 units, and claims of killed processes would stay
 * forever.
 */
void kvr_line_sweep(kvr_index_t *ix, uint64_t count);


/* Returns a power of two: large tables cannot wait, small ones need not. */
static inline unsigned
kvr_line_turns(kvr_index_t *ix)
{
    return ix->nlines < 512 || ix->nlines > 1U << 24 ? 1 : 8;
}


/* Returns the peer of a slot with this stamp. */
static inline unsigned
kvr_index_id(uint64_t ids, unsigned slot, uint32_t stamp)
{
    return (unsigned) (ids >> slot * 8 & KVR_INDEX_IDS)
           | (stamp & KVR_INDEX_HIGH) << KVR_INDEX_ID;
}


/* a peer's bits in the ids of a slot, and in stamps */

static inline uint64_t
kvr_index_low(unsigned peer)
{
    return peer & KVR_INDEX_IDS;
}


static inline uint32_t
kvr_index_high(unsigned peer)
{
    return peer >> KVR_INDEX_ID;
}


/* Tells whether a peer needs bits in stamps. */
static inline int
kvr_index_wide(kvr_index_t *ix)
{
    return ix->words > 1 << KVR_INDEX_ID >> 6;
}


/* Tells whether a slot is in use; returns the stamp of an unused one. */

static inline int
kvr_index_used(uint32_t stamp)
{
    return stamp > KVR_INDEX_HIGH;
}


static inline uint32_t
kvr_index_unused(uint32_t stamp)
{
    return stamp & KVR_INDEX_HIGH;
}


/* Returns a clock as in a peer's stamps. */
static inline uint32_t
kvr_index_clocked(uint64_t units, unsigned peer)
{
    return (uint32_t) units << KVR_INDEX_STAMP | kvr_index_high(peer);
}


/*
 * Returns the stamp of a block, for a clock as in stamps.  A stamp without
 * units would mark a free slot; the next one takes its place.
 */
static inline uint32_t
kvr_index_stamp(uint32_t clock, uint32_t depth)
{
    uint32_t  stamp;

    stamp = clock - ((depth - 1) << KVR_INDEX_STAMP);

    return kvr_likely(kvr_index_used(stamp)) ? stamp
                                             : stamp + KVR_INDEX_HIGH + 1;
}


static __attribute__ ((cold, noinline, unused)) uint64_t
kvr_index_key_small(uint64_t h)
{
    return (h + KVR_INDEX_CLAIMED + 1ULL) & ~1ULL;
}


/*
 * Keys of lines: small ones are free lines or claims, even ones blocks, odd
 * ones sessions.
 */
static inline uint64_t
kvr_index_key(uint64_t h)
{
    /* a jump: gcc would not make one by itself */

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


/*
 * A session's stamps are used for other values.  Its peer is in ids alone, in
 * the bytes of two slots.
 */

static inline uint64_t
kvr_line_bind(uint64_t key, unsigned peer)
{
    return kvr_index_low(peer) | (uint64_t) kvr_index_high(peer) << 8
           | (key & KVR_INDEX_TAG);
}


static inline unsigned
kvr_line_bound(uint64_t ids)
{
    return kvr_index_id(ids, 0, (uint32_t) (ids >> 8));
}


/* Returns the line with a key, or NULL. */
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


/* Returns the line of a block, or NULL. */
static inline kvr_index_line_t *
kvr_line_find(kvr_index_t *ix, uint64_t h)
{
    return kvr_line_find_key(ix, kvr_index_key(h));
}


/*
 * Puts a new line in the place of "victim", the oldest by its tag.  epoch is
 * that of touched, or near it.
 */
static inline kvr_index_line_t *
kvr_line_put(kvr_index_t *ix, kvr_index_line_t *victim, _Atomic uint16_t *tag,
    uint64_t key, unsigned peer, uint32_t stamp, uint32_t touched,
    unsigned epoch, uint32_t *evicted)
{
    uint16_t  h;
    uint64_t  old, oldest, free;
    unsigned  i;

    h = kvr_get(tag);
    old = kvr_get(&victim->key);

    /* taken meanwhile, a claim, a session, or as young as the new line */

    if (kvr_unlikely(h == 0 ? old
                     : old <= KVR_INDEX_CLAIMED || (old & 1)
                       || kvr_tag_age(h, epoch) < KVR_TAG_SLACK + 2))
    {
        i = (victim - ix->line) % KVR_INDEX_WAYS;

        tag -= i;
        victim = kvr_line_oldest(ix, victim - i, touched, &oldest);

        if (victim == NULL) {
            return NULL;
        }

        /* a copy, so that it stays in a register */

        old = oldest;
        tag += (victim - ix->line) % KVR_INDEX_WAYS;
    }

    if (kvr_unlikely(!atomic_compare_exchange_strong_explicit(&victim->key,
                          &old, kvr_max(touched, 1), memory_order_acquire,
                          memory_order_relaxed)))
    {
        /* another process is writing here */
        return NULL;
    }

    /* a reader that finds any of the following also finds the claim */

    atomic_thread_fence(memory_order_release);

    kvr_set(&victim->mask, 0);

    /* free slots get the same peer, in case a stamp goes to a wrong one */

    kvr_set(&victim->ids, kvr_index_low(peer) * 0x0101010101010101ULL
                          | (key & KVR_INDEX_TAG));
    kvr_set(&victim->stamp[0], stamp);

    kvr_set(&victim->stamp[1], kvr_index_high(peer));

    free = kvr_index_high(peer) * 0x100000001ULL;

    for (i = 1; i < KVR_INDEX_HOLDERS / 2; i++) {
        kvr_set(&victim->stamps[i], free);
    }

    kvr_set(&victim->touched, touched);

    atomic_store_explicit(&victim->key, key, memory_order_release);

    kvr_set(tag, (uint16_t) (kvr_tag_key(key) << KVR_TAG_KEY | epoch));

    *evicted += (old != 0);

    return victim;
}


/* Returns the peers' bits of all stamps. */
static inline uint64_t
kvr_line_highs(kvr_index_line_t *line)
{
    return (kvr_get(&line->stamps[0]) & KVR_INDEX_HIGHS)
           | (kvr_get(&line->stamps[1]) & KVR_INDEX_HIGHS) << 2
           | (kvr_get(&line->stamps[2]) & KVR_INDEX_HIGHS) << 4
           | (kvr_get(&line->stamps[3]) & KVR_INDEX_HIGHS) << 6;
}


/* Returns the peers of all slots, free or not. */
static inline kvr_line_names_t
kvr_line_names(kvr_index_t *ix, kvr_index_line_t *line)
{
    kvr_line_names_t  names;

    names.low = kvr_get(&line->ids) & ~KVR_INDEX_TAG;
    names.high = 0;

    if (kvr_likely(!kvr_index_wide(ix))) {
        return names;
    }

    names.high = kvr_line_highs(line);

    return names;
}


/* Returns the names of a line that only one peer has had. */
static inline kvr_line_names_t
kvr_line_own(unsigned peer)
{
    kvr_line_names_t  names;

    names.low = kvr_index_low(peer) * 0x0101010101010101ULL;
    names.high = kvr_index_high(peer) * 0x0000005500000055ULL;

    return names;
}


static inline unsigned
kvr_line_name(const kvr_line_names_t *names, unsigned slot)
{
    uint64_t  high;

    high = names->high >> (slot % 2 * 32 + slot / 2 * 2);

    return kvr_index_id(names->low, slot, (uint32_t) high);
}


static inline int
kvr_line_same(const kvr_line_names_t *a, const kvr_line_names_t *b)
{
    return ((a->low ^ b->low) | (a->high ^ b->high)) == 0;
}


/* Tells whether any of them is in a set. */
static inline int
kvr_line_named(const kvr_line_names_t *names, const kvr_set_t *set)
{
    unsigned          i, peer;
    kvr_line_names_t  own;

    peer = kvr_line_name(names, 0);
    own = kvr_line_own(peer);

    /* usual: all slots have the peer that created the line */

    if (kvr_likely(kvr_line_same(names, &own))) {
        return kvr_set_test(set, peer);
    }

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        if (kvr_set_test(set, kvr_line_name(names, i))) {
            return 1;
        }
    }

    return 0;
}


/* Notes a use; returns the bits in which the time differs from the last. */
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


/* Gives a new stamp to a holder whose slot was found in ids as read. */
static inline void
kvr_line_stamp(kvr_index_line_t *line, uint64_t key, uint64_t ids,
    unsigned peer, unsigned slot, uint32_t stamp)
{
    /* no comparison: a stamp from before a restart may look newer */

    kvr_set(&line->stamp[slot], stamp);

    if (kvr_unlikely(atomic_load_explicit(&line->key, memory_order_seq_cst)
                     != key
                     || atomic_load_explicit(&line->ids, memory_order_seq_cst)
                     != ids))
    {
        kvr_line_settle(line, key, peer, slot, stamp, 0);
    }
}


/* Renews the stamp of a slot if the peer holds it. */
static inline int
kvr_line_renew(kvr_index_line_t *line, uint64_t key, unsigned peer,
    unsigned slot, uint32_t stamp, uint32_t touched)
{
    uint32_t  old;
    uint64_t  ids;

    ids = atomic_load_explicit(&line->ids, memory_order_acquire);
    old = kvr_get(&line->stamp[slot]);

    if (kvr_index_id(ids, slot, old) != peer || !kvr_index_used(old)) {
        return 0;
    }

    (void) kvr_line_touch(line, touched);
    kvr_line_stamp(line, key, ids, peer, slot, stamp);

    return 1;
}


/* Returns the slot of a peer, and its stamp; KVR_INDEX_HOLDERS if none. */
static inline unsigned
kvr_line_slot(kvr_index_line_t *line, uint64_t ids, unsigned peer,
    uint32_t *stamp)
{
    unsigned  s;

    for (s = 0; s < KVR_INDEX_HOLDERS; s++) {
        *stamp = kvr_get(&line->stamp[s]);

        if (kvr_index_used(*stamp) && kvr_index_id(ids, s, *stamp) == peer) {
            break;
        }
    }

    return s;
}


/* Frees a slot, unless its stamp has changed. */
static inline int
kvr_line_free(kvr_index_line_t *line, unsigned slot, uint32_t stamp)
{
    return atomic_compare_exchange_strong_explicit(&line->stamp[slot], &stamp,
                                                   kvr_index_unused(stamp),
                                                   memory_order_relaxed,
                                                   memory_order_relaxed);
}


static inline void
kvr_line_view(kvr_line_view_t *view)
{
    view->known = kvr_set_none();
    view->mask.ready = kvr_set_none();
}


/* Tells whether a peer still holds the block with this stamp. */
static inline int
kvr_line_counts(kvr_index_t *ix, kvr_line_view_t *view, unsigned peer,
    uint32_t stamp)
{
    if (kvr_unlikely(!kvr_set_test(&view->known, peer))) {
        kvr_line_peer(ix, peer, view);
    }

    return view->clock[peer] - stamp < view->limit[peer];
}


/* Adds the peer of a slot, if it is in the set and still holds the block. */
static inline void
kvr_line_holder(kvr_index_t *ix, uint32_t stamp, uint64_t ids, unsigned slot,
    const kvr_set_t *set, kvr_line_view_t *view, kvr_line_holders_t *h)
{
    unsigned  id;

    if (!kvr_index_used(stamp)) {
        return;
    }

    id = kvr_index_id(ids, slot, stamp);

    if (!kvr_set_test(set, id)) {
        return;
    }

    h->peer[h->n] = id;
    h->n += (uint32_t) kvr_line_counts(ix, view, id, stamp);
}


/*
 * Reads the peers of a set that hold the line's block; none if the line now
 * belongs to another block.  depth: see kvr_mask_read(); 0: ignore the mask.
 */
static inline __attribute__ ((always_inline)) void
kvr_line_holders(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    const kvr_set_t *set, uint32_t depth, kvr_line_view_t *view,
    kvr_line_holders_t *h)
{
    unsigned  i;
    uint64_t  ids;

    do {
        h->n = 0;
        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

#pragma GCC unroll 4
        for (i = 0; i < KVR_INDEX_HOLDERS; i += 2) {

            /* most lines have one holder, so most slots are free */

            if (kvr_get(&line->stamps[i / 2]) & ~KVR_INDEX_HIGHS) {
                kvr_line_holder(ix, kvr_get(&line->stamp[i]), ids, i, set,
                                view, h);
                kvr_line_holder(ix, kvr_get(&line->stamp[i + 1]), ids, i + 1,
                                set, view, h);
            }
        }

        h->mask = depth ? kvr_get(&line->mask) : 0;

        if (kvr_unlikely(h->mask)) {
            h->mask = kvr_mask_read(ix, line, set, depth, &view->mask,
                                    &h->masked, &h->below);
        }

        /* the line or a slot may have been given away meanwhile */

        atomic_thread_fence(memory_order_acquire);

        if (kvr_unlikely(kvr_get(&line->key) != key)) {
            h->n = 0;
            h->mask = 0;
            return;
        }

    } while (kvr_unlikely(kvr_get(&line->ids) != ids));
}


/*
 * Sets *age to the age of a peer's stamp in a line, in units; below 0 if it is
 * newer than clock, which is as in stamps.  Returns 0 if there is no stamp.
 */
static inline int
kvr_line_age(kvr_index_line_t *line, unsigned peer, uint32_t clock,
    uint32_t *age)
{
    uint32_t  stamp;

    if (kvr_line_slot(line, kvr_get(&line->ids), peer, &stamp)
        == KVR_INDEX_HOLDERS)
    {
        return 0;
    }

    *age = (uint32_t) ((int32_t) (clock - stamp) >> KVR_INDEX_STAMP);

    return 1;
}


#endif /* _KVR_LINE_H_INCLUDED_ */
