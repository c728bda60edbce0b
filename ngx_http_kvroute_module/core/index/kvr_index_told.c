
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What other tables say: what they take back, and where they have bound
 * sessions.  What they teach is in kvr_index_insert.c.
 */


#include "core/index/kvr_index_line.h"


/* units that are on their way between two tables, as a rule fewer */
#define KVR_INDEX_TOLD_LAG  128


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
kvr_index_since_told(kvr_index_t *ix, unsigned peer, uint64_t units)
{
    uint64_t  here;

    here = kvr_index_since(ix, peer);
    units = kvr_min(units, KVR_INDEX_CAPACITY_MAX);

    if (units > here + here / 4 + KVR_INDEX_TOLD_LAG) {
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
