
/*
 * Copyright (C) kvroute contributors
 */


#include "core/share/kvr_share_index.h"
#include "core/index/kvr_index_line.h"


/* units that are on their way between two hosts, usually fewer */
#define KVR_SHARE_INDEX_LAG  128


int
kvr_share_index_read(kvr_index_t *ix, uint64_t n, uint32_t now,
    kvr_share_index_t *k)
{
    unsigned           s, peer;
    uint32_t           stamp;
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

            /* a killed writer can leave the bits of two peers: no such peer */

            if (peer >= ix->max_peers) {
                continue;
            }

            if (kvr_line_counts(ix, &view, peer, stamp)) {
                k->peer[k->n] = (uint16_t) peer;
                k->age[k->n++] = (view.clock[peer] - stamp) >> KVR_INDEX_STAMP;
            }
        }
    }

    atomic_thread_fence(memory_order_acquire);

    return k->n && kvr_get(&line->key) == key && kvr_get(&line->ids) == ids;
}


void
kvr_share_index_write(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t age, int marked)
{
    uint32_t           held, stamp;
    kvr_line_view_t    view;
    kvr_index_line_t  *line;

    kvr_line_view(&view);
    kvr_line_peer(ix, peer, &view);

    if (age >= view.limit[peer] >> KVR_INDEX_STAMP) {
        return;
    }

    stamp = kvr_index_stamp(view.clock[peer], age + 1);

    key = kvr_index_key(key);
    line = kvr_line_find_key(ix, key);

    if (line
        && kvr_line_slot(line, kvr_get(&line->ids), peer, &held)
           != KVR_INDEX_HOLDERS
        && (int32_t) ((stamp | KVR_INDEX_HIGH) - (held | KVR_INDEX_HIGH)) <= 0)
    {
        return;
    }

    line = kvr_line_hold(ix, key, peer, stamp);

    if (line && marked) {
        kvr_tag_mark(kvr_tag_line(ix, line));
    }
}


void
kvr_share_index_undo(kvr_index_t *ix, const uint64_t *value, uint32_t first,
    uint32_t n, uint32_t units, unsigned peer)
{
    unsigned           s;
    uint32_t           i, clock, begun, stamp;
    kvr_index_line_t  *line;

    clock = kvr_index_clocked(kvr_index_clock(ix, peer), peer);

    for (i = 0; i < n; i++) {

        line = kvr_line_find(ix, value[i]);

        if (line == NULL) {
            continue;
        }

        s = kvr_line_slot(line, kvr_get(&line->ids), peer, &stamp);
        begun = stamp + ((kvr_chain_depth(first + i) - 1) << KVR_INDEX_STAMP);

        /* an older stamp belongs to a request that the peer did compute */

        if (s != KVR_INDEX_HOLDERS
            && (clock - begun) >> KVR_INDEX_STAMP <= units)
        {
            (void) kvr_line_free(line, s, stamp);
        }
    }
}


uint64_t
kvr_share_index_units(kvr_index_t *ix, unsigned peer)
{
    uint64_t  clock, floor;

    floor = kvr_get(&kvr_index_peer(ix, peer)->floor);
    clock = kvr_index_clock(ix, peer);

    return clock - kvr_min(floor, clock);
}


void
kvr_share_index_advance(kvr_index_t *ix, unsigned peer, uint64_t units,
    int new)
{
    uint64_t  here;

    here = kvr_share_index_units(ix, peer);
    units = kvr_min(units, KVR_INDEX_CAPACITY_MAX);

    if (units > here + (new ? 0 : here / 4 + KVR_SHARE_INDEX_LAG)) {
        kvr_add(&kvr_index_peer(ix, peer)->clock,
                (units - here) << KVR_INDEX_FRACTION);
    }
}


uint32_t
kvr_share_index_expires(kvr_index_t *ix, uint64_t key)
{
    kvr_index_line_t  *line;

    line = kvr_line_find_key(ix, kvr_index_session_key(key));

    return line ? kvr_get(&line->stamp[0]) : 0;
}


/* the third stamp of a session's line says that the binding was published */
void
kvr_share_index_bind(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t generation, uint32_t expires, uint32_t now, int moved)
{
    uint32_t           bound, before;
    kvr_index_line_t  *line;

    bound = kvr_index_bound(ix, key, now, &before);

    if (bound < KVR_PEERS && bound != peer && !moved) {

        line = kvr_line_find_key(ix, kvr_index_session_key(key));

        if (line && kvr_get(&line->stamp[2])) {
            return;
        }
    }

    kvr_index_bind(ix, key, peer, generation, expires);

    line = kvr_line_find_key(ix, kvr_index_session_key(key));

    if (line) {
        kvr_set(&line->stamp[2], 1);
    }
}
