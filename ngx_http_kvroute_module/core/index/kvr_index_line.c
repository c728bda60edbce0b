
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_line.h"


#define KVR_LINE_SESSION  8          /* how many times older it may get */

#define KVR_LINE_RUN      16         /* buckets that are read in a row */

/*
 * kvr_line_known(): factor of a capacity, and largest age of a stamp, that
 * keep a line
 */
#define KVR_LINE_LARGER   32
#define KVR_LINE_OLDEST   (1U << 31)


static uint32_t kvr_line_limit(kvr_index_t *ix, unsigned peer,
    uint32_t *clock);
static unsigned kvr_line_take(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t key, unsigned peer, uint32_t stamp, uint64_t *moved);
static unsigned kvr_line_room(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t ids, uint32_t *held, unsigned *live);
static void kvr_line_to_mask(kvr_index_t *ix, kvr_index_line_t *line,
    unsigned peer, uint64_t now);
static void kvr_line_clean(kvr_index_t *ix, kvr_index_line_t *line,
    uint32_t now, kvr_line_view_t *view);
static inline uint16_t kvr_line_correct(kvr_index_t *ix,
    kvr_index_line_t *line, _Atomic uint16_t *tag, uint16_t h, uint64_t key,
    uint32_t now);


void
kvr_line_peer(kvr_index_t *ix, unsigned peer, kvr_line_view_t *view)
{
    view->limit[peer] = kvr_line_limit(ix, peer, &view->clock[peer]);
    kvr_set_add(&view->known, peer);
}


/*
 * Returns the age of evicted blocks: stamps count if they are after the floor
 * and within the capacity.  Both the age and *clock are as in stamps.
 */
static uint32_t
kvr_line_limit(kvr_index_t *ix, unsigned peer, uint32_t *clock)
{
    uint32_t           capacity;
    uint64_t           now, floor;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    now = kvr_index_units(p);
    floor = kvr_get(&p->floor);
    capacity = kvr_get(&p->capacity);

    *clock = kvr_index_clocked(now, peer);

    /* the peer may have been restarted since the clock was read */

    if (kvr_unlikely(now < floor)) {
        return 0;
    }

    return (uint32_t) kvr_min(capacity, now - floor) << KVR_INDEX_STAMP;
}


kvr_index_line_t *
kvr_line_insert(kvr_index_t *ix, uint64_t key, unsigned peer, uint32_t stamp,
    uint32_t touched)
{
    uint32_t           evicted;
    uint64_t           n;
    unsigned           way, epoch;
    kvr_tag_t         *tag;
    kvr_index_line_t  *line;

    n = kvr_reduce(key, ix->nbuckets);
    tag = kvr_tag_bucket(ix, n);

    epoch = kvr_tag_epoch(ix, touched);
    way = kvr_tag_victim(kvr_get(&tag->word), epoch);

    evicted = 0;
    line = kvr_line_put(ix, &ix->line[n * KVR_INDEX_WAYS + way],
                        &tag->way[way], key, peer, stamp, touched, epoch,
                        &evicted);

    kvr_add(&ix->evicted, evicted);

    return line;
}


kvr_index_line_t *
kvr_line_hold(kvr_index_t *ix, uint64_t key, unsigned peer, uint32_t stamp)
{
    uint32_t           now;
    kvr_index_line_t  *line;

    now = (uint32_t) kvr_get(&ix->clock);
    line = kvr_line_find_key(ix, key);

    if (line == NULL) {
        return kvr_line_insert(ix, key, peer, stamp, now);
    }

    (void) kvr_line_add(ix, line, key, peer, stamp, now);
    kvr_tag_touch(kvr_tag_line(ix, line), kvr_tag_epoch(ix, now));

    return line;
}


kvr_index_line_t *
kvr_line_oldest(kvr_index_t *ix, kvr_index_line_t *bucket, uint32_t touched,
    uint64_t *key)
{
    int32_t            age, oldest;
    uint64_t           k;
    unsigned           i;
    kvr_index_line_t  *line, *victim;

    victim = NULL;
    oldest = 0;
    *key = 0;

    for (i = 0; i < KVR_INDEX_WAYS; i++) {
        line = &bucket[i];
        k = kvr_get(&line->key);

        if (k == 0) {
            *key = 0;
            return line;
        }

        age = (int32_t) (touched - kvr_get(&line->touched));

        /* a session that has not expired may get older than prompts */

        if ((k & 1) && (int32_t) (kvr_get(&line->stamp[0])
                                  - kvr_get(&ix->time)) > 0)
        {
            age /= KVR_LINE_SESSION;
        }

        if (age > oldest && k > KVR_INDEX_CLAIMED) {
            victim = line;
            oldest = age;
            *key = k;
        }
    }

    return victim;
}


unsigned
kvr_line_add(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched)
{
    unsigned  i;
    uint64_t  moved;

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        if (kvr_line_renew(line, key, peer, i, stamp, touched)) {
            return i;
        }
    }

    (void) kvr_line_touch(line, touched);

    moved = 0;
    i = kvr_line_take(ix, line, key, peer, stamp, &moved);

    if (kvr_likely(i != KVR_INDEX_HOLDERS)) {
        kvr_line_settle(line, key, peer, i, stamp, moved);
    }

    return i;
}


void
kvr_line_settle(kvr_index_line_t *line, uint64_t key, unsigned peer,
    unsigned slot, uint32_t stamp, uint64_t moved)
{
    uint64_t  ids;

    key ^= atomic_load_explicit(&line->key, memory_order_seq_cst);
    ids = atomic_load_explicit(&line->ids, memory_order_seq_cst);

    if (kvr_likely(key == 0 && kvr_index_id(ids, slot, stamp) == peer)) {
        return;
    }

    /* the line or the slot belongs to another by now */

    (void) kvr_line_free(line, slot, stamp);

    if (key && moved) {
        atomic_fetch_and_explicit(&line->mask, ~moved, memory_order_relaxed);
    }
}


/*
 * Gives the peer a slot of a line, and returns it, or KVR_INDEX_HOLDERS if the
 * line is another block's by now.  *moved: the holder that moved to the mask.
 */
static unsigned
kvr_line_take(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint64_t *moved)
{
    unsigned  i, live, old;
    uint32_t  held;
    uint64_t  now, ids, new;

    for ( ;; ) {

        /* read first, as a holder can be flushed at any time */

        now = kvr_get(&ix->clock);
        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

        if (kvr_unlikely((ids ^ key) & KVR_INDEX_TAG)) {
            return KVR_INDEX_HOLDERS;
        }

        i = kvr_line_room(ix, line, ids, &held, &live);

        /* the stamps may belong to other holders than those in ids */

        new = atomic_load_explicit(&line->ids, memory_order_acquire);

        if (kvr_unlikely(new != ids)) {
            continue;
        }

        if (kvr_index_used(held) && !kvr_line_free(line, i, held)) {
            continue;
        }

        old = kvr_index_id(ids, i, held);
        new = (ids & ~(KVR_INDEX_IDS << i * 8)) | kvr_index_low(peer) << i * 8;

        if (atomic_compare_exchange_strong_explicit(&line->ids, &ids, new,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed))
        {
            break;
        }
    }

    if (live) {

        /* it still holds the block, but without a stamp */

        kvr_line_to_mask(ix, line, old, now);
        *moved = kvr_mask_bit(old);
    }

    held = kvr_index_unused(held);

    while (!atomic_compare_exchange_strong_explicit(&line->stamp[i], &held,
                                                    stamp,
                                                    memory_order_seq_cst,
                                                    memory_order_relaxed))
    {
        /* another peer was given the slot, before or since */

        ids = atomic_load_explicit(&line->ids, memory_order_acquire);

        if (kvr_index_id(ids, i, kvr_index_used(held) ? held : stamp) != peer) {
            return i;
        }
    }

    /* with more than 64 peers a bit also stands for others */

    if (kvr_unlikely(kvr_get(&line->mask) & kvr_mask_bit(peer))
        && ix->words == 1)
    {
        atomic_fetch_and_explicit(&line->mask, ~kvr_mask_bit(peer),
                                  memory_order_relaxed);
    }

    return i;
}


/*
 * Returns a slot for a new holder: a free one, or that of the oldest.  held:
 * its stamp; live: that holder still counts.
 */
static unsigned
kvr_line_room(kvr_index_t *ix, kvr_index_line_t *line, uint64_t ids,
    uint32_t *held, unsigned *live)
{
    unsigned  i, slot;
    uint32_t  age, oldest, stamp, clock, limit;

    slot = 0;
    oldest = 0;
    *held = 0;

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {
        stamp = kvr_get(&line->stamp[i]);

        if (!kvr_index_used(stamp)) {
            *held = stamp;
            *live = 0;
            return i;
        }

        limit = kvr_line_limit(ix, kvr_index_id(ids, i, stamp), &clock);
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
 * Adds a peer to the mask.  If it would not count there, it begins a new mask:
 * the others may have evicted the block, and a new mask must not extend them.
 */
static void
kvr_line_to_mask(kvr_index_t *ix, kvr_index_line_t *line, unsigned peer,
    uint64_t now)
{
    unsigned  begin;
    uint64_t  mask, new, bit;

    bit = kvr_mask_bit(peer);
    mask = kvr_get(&line->mask);

    do {
        begin = (uint32_t) now - kvr_get(&line->masked)
                >= kvr_mask_expire(ix, peer, now);

        new = begin ? bit : mask | bit;

    } while (!atomic_compare_exchange_weak_explicit(&line->mask, &mask, new,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed));

    if (begin) {
        atomic_store_explicit(&line->masked, (uint32_t) now,
                              memory_order_release);
    }
}


void
kvr_line_sweep(kvr_index_t *ix, uint64_t count)
{
    uint32_t         now;
    uint64_t         hand, first, last, bucket, turn, turns;
    kvr_line_view_t  view;

    count = kvr_min(count, ix->nlines);
    hand = kvr_add(&ix->hand, count);

    /* the buckets that begin with one of these lines */

    first = (hand + KVR_INDEX_WAYS - 1) / KVR_INDEX_WAYS;
    last = (hand + count + KVR_INDEX_WAYS - 1) / KVR_INDEX_WAYS;

    if (first == last) {
        return;
    }

    now = (uint32_t) kvr_get(&ix->clock);
    kvr_line_view(&view);

    turns = kvr_line_turns(ix);
    turn = first / ix->nbuckets;
    bucket = first % ix->nbuckets;

    for ( /* void */ ; first != last; first++) {

        kvr_tag_renew(kvr_tag_bucket(ix, bucket), kvr_tag_epoch(ix, now));

        if (((turn + bucket / KVR_LINE_RUN) & (turns - 1)) == 0) {
            kvr_line_clean(ix, &ix->line[bucket * KVR_INDEX_WAYS], now, &view);
        }

        if (++bucket == ix->nbuckets) {
            bucket = 0;
            turn++;
        }
    }
}


/*
 * Tells whether a peer holds the block, or would hold it if its capacity were
 * multiplied by times.
 */
static inline int
kvr_line_known(kvr_index_t *ix, const kvr_line_view_t *view, unsigned peer,
    uint32_t stamp, uint32_t times)
{
    uint32_t           age;
    uint64_t           units, since;
    kvr_index_peer_t  *p;

    age = view->clock[peer] - stamp;

    if (kvr_likely(age < view->limit[peer])) {
        return 1;
    }

    p = kvr_index_peer(ix, peer);
    units = (uint64_t) kvr_get(&p->capacity) * times;
    since = kvr_index_units(p) - kvr_get(&p->floor);

    return times > 1
           && age < kvr_min(kvr_min(units, since) << KVR_INDEX_STAMP,
                            KVR_LINE_OLDEST);
}


/*
 * Cleans the lines of a bucket.  If it has a free one, it keeps those that
 * larger caches would hold (kvr_index_reuse()).
 */
static void
kvr_line_clean(kvr_index_t *ix, kvr_index_line_t *line, uint32_t now,
    kvr_line_view_t *view)
{
    unsigned           i, id, live, n;
    uint16_t           h;
    uint32_t           stamp, times;
    uint64_t           ids, mask, key;
    _Atomic uint16_t  *tag;

    tag = kvr_tag_line(ix, line);
    times = 1;

    for (n = 0; n < KVR_INDEX_WAYS; n++) {
        if (kvr_get(&line[n].key) == 0) {
            times = KVR_LINE_LARGER;
        }
    }

    for (n = 0; n < KVR_INDEX_WAYS; n++, line++, tag++) {

        /* in this order, or a new line could lose its tag for long */

        h = kvr_get(tag);
        key = atomic_load_explicit(&line->key, memory_order_acquire);

        h = kvr_line_correct(ix, line, tag, h, key, now);

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

        /* usual: one holder, in the first slot, that still holds it */

        stamp = kvr_get(&line->stamp[0]);
        id = kvr_index_id(ids, 0, stamp);

        if (kvr_set_test(&view->known, id)
            && kvr_line_known(ix, view, id, stamp, times)
            && kvr_index_used(stamp)
            && ((kvr_get(&line->stamps[1]) | kvr_get(&line->stamps[2])
                 | kvr_get(&line->stamps[3]) | kvr_get(&line->stamp[1]))
                & ~KVR_INDEX_HIGHS)
               == 0
            && kvr_get(&line->mask) == 0)
        {
            continue;
        }

        for (i = 0; i < KVR_INDEX_HOLDERS; i++) {

            if (i % 2 == 0
                && (kvr_get(&line->stamps[i / 2]) & ~KVR_INDEX_HIGHS) == 0)
            {
                i++;
                continue;
            }

            stamp = kvr_get(&line->stamp[i]);

            if (!kvr_index_used(stamp)) {
                continue;
            }

            id = kvr_index_id(ids, i, stamp);

            if (kvr_set_test(&view->known, id)
                && kvr_line_known(ix, view, id, stamp, times))
            {
                live = 1;
                continue;
            }

            /* the stamp may be newer than the clock that was read */

            kvr_line_peer(ix, id, view);

            if (kvr_line_known(ix, view, id, stamp, times)) {
                live = 1;

            } else {
                (void) kvr_line_free(line, i, stamp);
            }
        }

        mask = kvr_get(&line->mask);

        if (mask && !kvr_mask_counts(ix, mask, kvr_get(&line->masked))) {
            (void) atomic_compare_exchange_strong_explicit(
                       &line->mask, &mask, 0,
                       memory_order_relaxed, memory_order_relaxed);
            mask = 0;
        }

        if (live || mask) {
            continue;
        }

    free:

        if (atomic_compare_exchange_strong_explicit(&line->key, &key, 0,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed))
        {
            kvr_tag_change(tag, h, 0);
        }
    }
}


/* Corrects a tag, and returns it. */
static inline uint16_t
kvr_line_correct(kvr_index_t *ix, kvr_index_line_t *line,
    _Atomic uint16_t *tag, uint16_t h, uint64_t key, uint32_t now)
{
    uint16_t  right;
    uint32_t  age, oldest;

    if (key <= KVR_INDEX_CLAIMED) {
        right = 0;

    } else {

        /* epochs wrap, so ages are limited */

        age = now - kvr_get(&line->touched);
        oldest = (uint32_t) KVR_TAG_OLD << ix->epoch;

        if ((int32_t) age > (int32_t) oldest) {
            age = oldest;
        }

        right = (uint16_t) (kvr_tag_key(key) << KVR_TAG_KEY
                            | kvr_tag_epoch(ix, now - age));

        /* a line with a wrong tag may need a mark */

        right |= ((h ^ right) >> KVR_TAG_KEY ? KVR_TAG_MARK
                                              : h & KVR_TAG_MARK);
    }

    if (kvr_unlikely(h != right)) {
        kvr_tag_change(tag, h, right);
    }

    return right;
}
