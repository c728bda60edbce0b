
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_snapshot.h"
#include "core/index/kvr_index_line.h"


#define KVR_INDEX_SNAPSHOT_FIXED  (1 + 8 + 4)


static uint8_t *kvr_index_snapshot_line(kvr_index_t *ix,
    kvr_index_line_t *line, kvr_line_view_t *view, uint8_t *p);
static uint8_t *kvr_index_snapshot_holders(kvr_index_t *ix,
    kvr_index_line_t *line, uint64_t ids, kvr_line_view_t *view,
    unsigned *head, uint8_t *p);
static uint32_t kvr_index_snapshot_touched(kvr_index_t *ix, uint32_t touched);


uint8_t *
kvr_index_snapshot_write(kvr_index_t *ix, uint64_t first, uint64_t count,
    uint8_t *p)
{
    uint64_t         i, last;
    kvr_line_view_t  view;

    last = first + kvr_min(count, ix->nlines - kvr_min(first, ix->nlines));

    kvr_line_view(&view);

    for (i = first; i < last; i++) {
        p = kvr_index_snapshot_line(ix, &ix->line[i], &view, p);
    }

    return p;
}


/* Returns the end of the record, or its start if there is none. */
static uint8_t *
kvr_index_snapshot_line(kvr_index_t *ix, kvr_index_line_t *line,
    kvr_line_view_t *view, uint8_t *p)
{
    uint8_t   *begin;
    uint16_t   id;
    unsigned   head;
    uint32_t   touched, expires, generation;
    uint64_t   key, ids;

    begin = p;

    key = atomic_load_explicit(&line->key, memory_order_acquire);

    if (key <= KVR_INDEX_CLAIMED) {
        return begin;
    }

    ids = atomic_load_explicit(&line->ids, memory_order_acquire);
    touched = kvr_get(&line->touched);

    p = kvr_index_snapshot_put(p + 1, &key, 8);
    p = kvr_index_snapshot_put(p, &touched, 4);

    if (key & 1) {
        head = KVR_INDEX_SNAPSHOT_SESSION;

        id = (uint16_t) kvr_line_bound(ids);
        expires = kvr_get(&line->stamp[0]);
        generation = kvr_get(&line->stamp[1]);

        p = kvr_index_snapshot_put(p, &id, 2);
        p = kvr_index_snapshot_put(p, &expires, 4);
        p = kvr_index_snapshot_put(p, &generation, 4);

    } else {
        head = 0;
        p = kvr_index_snapshot_holders(ix, line, ids, view, &head, p);

        if (head == 0) {
            return begin;
        }

        if (kvr_get(kvr_tag_line(ix, line)) & KVR_TAG_MARK) {
            head |= KVR_INDEX_SNAPSHOT_MARK;
        }
    }

    atomic_thread_fence(memory_order_acquire);

    if (kvr_get(&line->key) != key || kvr_get(&line->ids) != ids) {
        return begin;
    }

    *begin = (uint8_t) head;

    return p;
}


static uint8_t *
kvr_index_snapshot_holders(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t ids, kvr_line_view_t *view, unsigned *head, uint8_t *p)
{
    uint16_t  id;
    unsigned  i;
    uint32_t  stamp, masked;
    uint64_t  mask;

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {

        stamp = kvr_get(&line->stamp[i]);

        if (!kvr_index_used(stamp)) {
            continue;
        }

        id = (uint16_t) kvr_index_id(ids, i, stamp);

        /* the stamp may be newer than the clock that was read */

        if (!kvr_line_counts(ix, view, id, stamp)
            && (int32_t) (view->clock[id] - stamp) >= 0)
        {
            continue;
        }

        p = kvr_index_snapshot_put(p, &id, 2);
        p = kvr_index_snapshot_put(p, &stamp, 4);

        *head += 1;
    }

    /* in this order, or an old mask could pass for a new one */

    masked = atomic_load_explicit(&line->masked, memory_order_acquire);
    mask = kvr_get(&line->mask);

    if (mask) {
        p = kvr_index_snapshot_put(p, &mask, 8);
        p = kvr_index_snapshot_put(p, &masked, 4);

        *head |= KVR_INDEX_SNAPSHOT_MASK;
    }

    return p;
}


size_t
kvr_index_snapshot_length(const uint8_t *p, size_t len)
{
    size_t    n;
    unsigned  holders;
    uint64_t  key;

    if (len < KVR_INDEX_SNAPSHOT_FIXED) {
        return 0;
    }

    (void) kvr_index_snapshot_get(p + 1, &key, 8);

    holders = *p & KVR_INDEX_SNAPSHOT_HOLDERS;

    if (key <= KVR_INDEX_CLAIMED) {
        return 0;
    }

    if (key & 1) {
        if (*p != KVR_INDEX_SNAPSHOT_SESSION) {
            return 0;
        }

        n = KVR_INDEX_SNAPSHOT_FIXED + 2 + 4 + 4;

    } else {
        if (*p & ~(KVR_INDEX_SNAPSHOT_HOLDERS|KVR_INDEX_SNAPSHOT_MASK
                   |KVR_INDEX_SNAPSHOT_MARK)
            || holders > KVR_INDEX_HOLDERS)
        {
            return 0;
        }

        n = KVR_INDEX_SNAPSHOT_FIXED + holders * 6
            + (*p & KVR_INDEX_SNAPSHOT_MASK ? 12 : 0);
    }

    return n <= len ? n : 0;
}


unsigned
kvr_index_snapshot_read(kvr_index_t *ix, const uint8_t *p, kvr_set_t set,
    uint32_t peers, uint32_t now)
{
    uint8_t            head;
    uint16_t           id, first;
    unsigned           i, n;
    uint32_t           touched, stamp, masked, held[KVR_INDEX_HOLDERS];
    uint64_t           key, ids, mask, known;
    kvr_index_line_t  *line;
    kvr_line_view_t    view;

    head = *p;
    p = kvr_index_snapshot_get(p + 1, &key, 8);
    p = kvr_index_snapshot_get(p, &touched, 4);

    /* a line that moved was written twice */

    if (kvr_line_find_key(ix, key)) {
        return 0;
    }

    touched = kvr_index_snapshot_touched(ix, touched);

    if (head & KVR_INDEX_SNAPSHOT_SESSION) {

        p = kvr_index_snapshot_get(p, &id, 2);
        p = kvr_index_snapshot_get(p, &stamp, 4);
        (void) kvr_index_snapshot_get(p, &held[0], 4);

        if (id >= KVR_PEERS || !kvr_set_test(&set, id)
            || (int32_t) (stamp - now) <= 0)
        {
            return 0;
        }

        line = kvr_line_insert(ix, key, 0, stamp, touched);

        if (line) {
            kvr_set(&line->ids, kvr_line_bind(key, id));
            kvr_set(&line->stamp[1], held[0]);
        }

        return line != NULL;
    }

    kvr_line_view(&view);

    n = 0;
    first = 0;
    ids = 0;

    for (i = 0; i < (head & KVR_INDEX_SNAPSHOT_HOLDERS); i++) {

        p = kvr_index_snapshot_get(p, &id, 2);
        p = kvr_index_snapshot_get(p, &stamp, 4);

        if (id >= KVR_PEERS || !kvr_set_test(&set, id)
            || kvr_set_test(&view.known, id) || !kvr_index_used(stamp)
            || kvr_index_unused(stamp) != kvr_index_high(id))
        {
            continue;
        }

        if (kvr_line_counts(ix, &view, id, stamp)) {

            if (n == 0) {
                first = id;
            }

            ids |= kvr_index_low(id) << n * 8;
            held[n++] = stamp;
        }
    }

    mask = 0;
    masked = 0;

    if (head & KVR_INDEX_SNAPSHOT_MASK) {
        p = kvr_index_snapshot_get(p, &mask, 8);
        (void) kvr_index_snapshot_get(p, &masked, 4);

        for (i = 0, known = 0; i < KVR_SET_WORDS; i++) {
            known |= set.word[i];
        }

        mask &= known;

        if (peers > KVR_PEERS_FEW && ix->words == 1) {
            mask = 0;
        }
    }

    if (n == 0 && mask == 0) {
        return 0;
    }

    line = kvr_line_insert(ix, key, first, n ? held[0] : kvr_index_high(first),
                           touched);

    if (line == NULL) {
        return 0;
    }

    for (i = 1; i < n; i++) {
        kvr_set(&line->stamp[i], held[i]);
    }

    for (i = n; i < KVR_INDEX_HOLDERS; i++) {
        ids |= kvr_index_low(first) << i * 8;
    }

    kvr_set(&line->ids, ids | (key & KVR_INDEX_TAG));
    kvr_set(&line->mask, mask);
    kvr_set(&line->masked, masked);

    if (head & KVR_INDEX_SNAPSHOT_MARK) {
        kvr_tag_mark(kvr_tag_line(ix, line));
    }

    return 1;
}


/* Limits a time: not after the clock, nor older than the sweep allows. */
static uint32_t
kvr_index_snapshot_touched(kvr_index_t *ix, uint32_t touched)
{
    uint32_t  now, age, oldest;

    now = (uint32_t) kvr_get(&ix->clock);
    oldest = (uint32_t) KVR_TAG_OLD << ix->epoch;
    age = now - touched;

    if ((int32_t) age < 0) {
        age = 0;
    }

    return now - kvr_min(age, oldest);
}
