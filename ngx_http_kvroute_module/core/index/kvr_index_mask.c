
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_mask.h"


static void kvr_mask_many(kvr_index_t *ix, uint64_t mask, const kvr_set_t *set,
    uint32_t begun, uint32_t depth, kvr_set_t *masked, uint32_t *below);


/* Few prompts meet a mask, but those that do meet many. */
uint64_t
kvr_mask_read(kvr_index_t *ix, kvr_index_line_t *line, const kvr_set_t *set,
    uint32_t depth, kvr_mask_view_t *view, kvr_set_t *masked, uint32_t *below)
{
    uint32_t  id, age, begun;
    uint64_t  left, mask;

    if (kvr_set_empty(&view->ready, KVR_SET_WORDS)) {
        view->now = kvr_get(&ix->clock);
    }

    /* in this order, or an old mask could pass for a new one */

    begun = atomic_load_explicit(&line->masked, memory_order_acquire);
    mask = kvr_get(&line->mask);
    *masked = kvr_set_none();
    *below = 0;

    if (ix->words > 1) {
        kvr_mask_many(ix, mask, set, begun, depth, masked, below);
        return mask;
    }

    age = (uint32_t) view->now - begun;

    for (left = mask & set->word[0]; left; left &= left - 1) {

        id = (uint32_t) __builtin_ctzll(left);

        if (kvr_unlikely(!kvr_set_test(&view->ready, id))) {
            view->expire[id] = kvr_mask_expire(ix, id, view->now);
            kvr_set_add(&view->ready, id);
        }

        if (age < view->expire[id]) {
            kvr_set_add(masked, id);
        }
    }

    return mask;
}


/*
 * The same where a bit stands for several peers: a peer that has computed less
 * than the block's depth since its start does not hold it.
 */
static void
kvr_mask_many(kvr_index_t *ix, uint64_t mask, const kvr_set_t *set,
    uint32_t begun, uint32_t depth, kvr_set_t *masked, uint32_t *below)
{
    uint32_t           i, k, units;
    uint64_t           at, both, counts, deep, left;
    kvr_index_mask_t  *m;

    m = kvr_index_masks(ix);
    at = (uint64_t) begun << 32 | (KVR_INDEX_MASK_TOP - depth);

    for (i = 0; i < ix->words; i++, m += 64) {

        counts = 0;
        deep = 0;
        left = mask & set->word[i];

        /* without a jump: the processor cannot predict these */

        for (k = 64; left && k--; /* void */) {
            both = kvr_get(&m[k]) + at;
            counts = counts << 1 | both >> 63;
            deep = deep << 1 | (both >> 31 & 1);
        }

        counts &= left;
        masked->word[i] = counts & deep;

        for (left = counts & ~deep; kvr_unlikely(left); left &= left - 1) {
            units = (uint32_t) kvr_get(&m[__builtin_ctzll(left)]);
            *below = kvr_max(*below, kvr_min(units, depth - 1));
        }
    }
}


void
kvr_mask_mark(kvr_index_t *ix, unsigned peer)
{
    uint32_t           after;
    uint64_t           clock, units, now;
    kvr_index_peer_t  *p;

    if (ix->words == 1) {
        return;
    }

    p = kvr_index_peer(ix, peer);

    clock = kvr_index_units(p);
    units = clock - kvr_min(kvr_get(&p->floor), clock);
    units = kvr_min(units, kvr_get(&p->capacity));

    now = kvr_get(&ix->clock);
    after = (uint32_t) now - kvr_mask_expire(ix, peer, now);

    kvr_set(&kvr_index_masks(ix)[peer],
            (uint64_t) (KVR_INDEX_MASK_TOP - 1 - after) << 32 | units);
}


int
kvr_mask_counts(kvr_index_t *ix, uint64_t mask, uint32_t masked)
{
    uint32_t  i;
    uint64_t  now;

    now = kvr_get(&ix->clock);

    for (i = 0; i < ix->max_peers; i++) {

        if ((mask & kvr_mask_bit(i))
            && (uint32_t) now - masked < kvr_mask_expire(ix, i, now))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * Returns the age of a mask at which a peer in it no longer counts.  The peer
 * has no stamp there, so the age is the time in which its cache is turned
 * over, counted from the beginning of the mask in units computed by all peers;
 * the peer's share of them is taken as constant since its restart.  A rough
 * rule is enough: only hot prefixes have masks, and peers that still hold one
 * soon renew their stamps.
 */
uint32_t
kvr_mask_expire(kvr_index_t *ix, unsigned peer, uint64_t now)
{
    double             turn;
    uint64_t           age, units;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    age = now - kvr_get(&p->since);
    units = kvr_index_units(p) - kvr_get(&p->floor);

    /* it can be restarted at any time */

    if ((int64_t) age <= 0 || (int64_t) units < 0) {
        return 0;
    }

    turn = (double) kvr_get(&p->capacity) * (double) age
           / (double) kvr_max(units, 1);

    age = kvr_min(age, INT32_MAX);

    return turn < age ? (uint32_t) turn : (uint32_t) age;
}
