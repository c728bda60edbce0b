
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What others say.  Other tables: what they take back, and where they have bound
 * sessions; what they teach is in kvr_index_insert.c.  And engines: which blocks
 * they have removed, and stored again.
 */


#include "core/index/kvr_index_batch.h"


/* units that are on their way between two tables, as a rule fewer */
#define KVR_INDEX_TOLD_LAG  128


void
kvr_index_soon(kvr_index_t *ix, const uint64_t *value, uint32_t n, int lines)
{
    uint32_t     i;
    unsigned     epoch;
    kvr_batch_t  g;

    epoch = kvr_tag_epoch(ix, (uint32_t) kvr_get(&ix->clock));

    for (i = 0; i < n; i += KVR_BATCH) {
        kvr_batch_tags(ix, &g, &value[i], n - i);

        if (lines) {
            kvr_batch_lines(ix, &g, n - i, epoch);
        }
    }
}


void
kvr_index_untaught(kvr_index_t *ix, const uint64_t *value, uint32_t first,
    uint32_t n, uint32_t units, unsigned peer)
{
    unsigned           s;
    uint32_t           i, clock, begun, stamp;
    uint64_t           ids;
    kvr_index_line_t  *line;

    clock = kvr_index_clocked(kvr_index_units(kvr_index_peer(ix, peer)), peer);

    for (i = 0; i < n; i++) {

        line = kvr_line_find(ix, value[i]);

        if (line == NULL) {
            continue;
        }

        ids = kvr_get(&line->ids);

        for (s = 0; s < KVR_INDEX_HOLDERS; s++) {

            stamp = kvr_get(&line->stamp[s]);

            /* an older one is of somebody who did compute it */

            if (!kvr_index_used(stamp) || kvr_index_id(ids, s, stamp) != peer) {
                continue;
            }

            begun = stamp + ((kvr_chain_depth(first + i) - 1)
                             << KVR_INDEX_STAMP);

            if ((clock - begun) >> KVR_INDEX_STAMP <= units) {
                (void) atomic_compare_exchange_strong_explicit(
                           &line->stamp[s], &stamp, kvr_index_unused(stamp),
                           memory_order_relaxed, memory_order_relaxed);
                break;
            }
        }
    }
}


int
kvr_index_gone(kvr_index_t *ix, uint64_t value, uint32_t entry, unsigned peer,
    uint64_t units)
{
    unsigned           s;
    uint32_t           clock, begun, stamp;
    uint64_t           ids;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    line = kvr_line_find(ix, value);

    if (line == NULL) {
        return 0;
    }

    p = kvr_index_peer(ix, peer);

    clock = kvr_index_clocked(kvr_index_units(p), peer);
    units = kvr_min(units, kvr_index_ahead(p) >> KVR_INDEX_FRACTION);
    ids = kvr_get(&line->ids);

    for (s = 0; s < KVR_INDEX_HOLDERS; s++) {

        stamp = kvr_get(&line->stamp[s]);

        if (!kvr_index_used(stamp) || kvr_index_id(ids, s, stamp) != peer) {
            continue;
        }

        begun = stamp + ((kvr_chain_depth(entry) - 1) << KVR_INDEX_STAMP);

        if ((int64_t) ((int32_t) (clock - begun) >> KVR_INDEX_STAMP)
            < (int64_t) units)
        {
            return 0;
        }

        return atomic_compare_exchange_strong_explicit(
                   &line->stamp[s], &stamp, kvr_index_unused(stamp),
                   memory_order_relaxed, memory_order_relaxed);
    }

    return 0;
}


void
kvr_index_again(kvr_index_t *ix, uint64_t value, uint32_t entry, unsigned peer,
    uint32_t behind)
{
    uint32_t           now, stamp, evicted;
    uint64_t           key, clock;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    clock = kvr_index_units(p);
    clock -= kvr_min(behind, clock);

    stamp = kvr_index_stamp(kvr_index_clocked(clock, peer),
                            kvr_chain_depth(entry));

    key = kvr_index_key(value);
    now = (uint32_t) kvr_get(&ix->clock);
    line = kvr_line_find_key(ix, key);

    if (line) {
        (void) kvr_line_add(ix, line, key, peer, stamp, now);
        kvr_tag_touch(kvr_tag_line(ix, line), kvr_tag_epoch(ix, now));

    } else {
        evicted = 0;
        line = kvr_line_insert(ix, key, peer, stamp, now, &evicted);
        kvr_add(&ix->evicted, evicted);
    }

    /* it need not hold those behind it */

    if (line) {
        kvr_tag_mark(kvr_tag_line(ix, line));
    }
}


int
kvr_index_known(kvr_index_t *ix, uint64_t n, uint32_t now,
    kvr_index_known_t *k)
{
    unsigned           s, peer;
    uint32_t           stamp, age;
    uint64_t           key, ids;
    kvr_line_view_t    view;
    kvr_index_line_t  *line;

    line = &ix->line[n];

    key = atomic_load_explicit(&line->key, memory_order_acquire);

    if (key <= KVR_INDEX_CLAIMED) {
        return 0;
    }

    ids = atomic_load_explicit(&line->ids, memory_order_acquire);

    k->key = key;
    k->n = 0;
    k->session = key & 1;
    k->marked = (kvr_get(kvr_tag_line(ix, line)) & KVR_TAG_MARK) != 0;

    if (k->session) {
        k->peer[0] = (uint16_t) kvr_line_bound(ids);
        k->age[0] = kvr_get(&line->stamp[0]) - now;
        k->n = (int32_t) k->age[0] > 0 && kvr_get(&line->stamp[1]);

    } else {
        kvr_line_view(&view);

        for (s = 0; s < KVR_INDEX_HOLDERS; s++) {

            stamp = kvr_get(&line->stamp[s]);

            if (!kvr_index_used(stamp)) {
                continue;
            }

            peer = kvr_index_id(ids, s, stamp);

            /* the bits of two, by a writer that was killed: there is none */

            if (peer >= ix->max_peers) {
                continue;
            }

            kvr_line_know(ix, peer, &view);
            age = view.clock[peer] - stamp;

            if (age < view.limit[peer]) {
                k->peer[k->n] = (uint16_t) peer;
                k->age[k->n++] = age >> KVR_INDEX_STAMP;
            }
        }
    }

    atomic_thread_fence(memory_order_acquire);

    return k->n && kvr_get(&line->key) == key && kvr_get(&line->ids) == ids;
}


void
kvr_index_know(kvr_index_t *ix, uint64_t key, unsigned peer, uint32_t age,
    int marked)
{
    unsigned           s;
    uint32_t           now, held, stamp, evicted;
    uint64_t           ids;
    kvr_line_view_t    view;
    kvr_index_line_t  *line;

    kvr_line_view(&view);
    kvr_line_know(ix, peer, &view);

    if (age >= view.limit[peer] >> KVR_INDEX_STAMP) {
        return;
    }

    stamp = kvr_index_stamp(view.clock[peer], age + 1);

    key = kvr_index_key(key);
    now = (uint32_t) kvr_get(&ix->clock);
    line = kvr_line_find_key(ix, key);

    if (line == NULL) {
        evicted = 0;
        line = kvr_line_insert(ix, key, peer, stamp, now, &evicted);
        kvr_add(&ix->evicted, evicted);

    } else {
        ids = kvr_get(&line->ids);

        for (s = 0; s < KVR_INDEX_HOLDERS; s++) {
            held = kvr_get(&line->stamp[s]);

            if (kvr_index_used(held) && kvr_index_id(ids, s, held) == peer
                && (int32_t) ((stamp | KVR_INDEX_HIGH) - (held | KVR_INDEX_HIGH))
                   <= 0)
            {
                return;
            }
        }

        (void) kvr_line_add(ix, line, key, peer, stamp, now);
    }

    if (line && marked) {
        kvr_tag_mark(kvr_tag_line(ix, line));
    }
}


uint64_t
kvr_index_since(kvr_index_t *ix, unsigned peer)
{
    uint64_t           clock, floor;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    floor = kvr_get(&p->floor);
    clock = kvr_index_units(p);

    return clock - kvr_min(floor, clock);
}


void
kvr_index_since_told(kvr_index_t *ix, unsigned peer, uint64_t units, int new)
{
    uint64_t  here;

    here = kvr_index_since(ix, peer);
    units = kvr_min(units, KVR_INDEX_CAPACITY_MAX);

    if (units > here + (new ? 0 : here / 4 + KVR_INDEX_TOLD_LAG)) {
        kvr_add(&kvr_index_peer(ix, peer)->clock,
                (units - here) << KVR_INDEX_FRACTION);
    }
}


uint32_t
kvr_index_bound_until(kvr_index_t *ix, uint64_t key)
{
    kvr_index_line_t  *line;

    line = kvr_line_find_key(ix, kvr_index_session_key(key));

    return line ? kvr_get(&line->stamp[0]) : 0;
}


/* the third stamp of a session's line says that all have been told of it */
int
kvr_index_bind_told(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t generation, uint32_t expires, uint32_t now, int moved)
{
    uint32_t           bound, before;
    kvr_index_line_t  *line;

    bound = kvr_index_bound(ix, key, now, &before);

    if (bound < KVR_PEERS && bound != peer && !moved) {

        line = kvr_line_find_key(ix, kvr_index_session_key(key));

        if (line && kvr_get(&line->stamp[2])) {
            return 0;
        }
    }

    kvr_index_bind(ix, key, peer, generation, expires);

    line = kvr_line_find_key(ix, kvr_index_session_key(key));

    if (line) {
        kvr_set(&line->stamp[2], 1);
    }

    return 1;
}
