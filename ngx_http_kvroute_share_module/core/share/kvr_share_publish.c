
/*
 * Copyright (C) kvroute contributors
 */


/* Records that workers write to the ring, in the middle of a request. */


#include "core/share/kvr_share.h"


/* a binding is published again after this part of its time */
#define KVR_SHARE_PUBLISH_PART  8


static void kvr_share_publish(kvr_share_t *s, kvr_share_type_e type,
    uint32_t peer, kvr_fifo_part_t part[4]);


void
kvr_share_publish_update(const kvr_zone_t *zone, void *data,
    const uint64_t *chain, uint32_t n, const kvr_index_undo_t *undo)
{
    uint32_t          i, k, from, first, units, m;
    uint64_t          fixed[2], value[KVR_SHARE_VALUES / 2 + 1];
    kvr_fifo_part_t  part[4] = { 0 };

    first = kvr_min(kvr_chain_entries(undo->matched), n);
    units = kvr_min(undo->moved, KVR_SHARE_UNITS);

    /*
     * Also publish some values of the earlier part of the prompt, for hosts
     * that missed them: of a very long prompt the last ones, and none if the
     * prompt was published a short while ago.
     */

    from = first - kvr_min((KVR_SHARE_VALUES / 2 - 1) * KVR_INDEX_PUBLISHED,
                           first);

    if (undo->first == n) {
        from = first;
    }

    m = 0;

    for (i = kvr_share_index_next(from); i < first; i += KVR_INDEX_PUBLISHED) {
        value[m++] = chain[i];
    }

    if (from < first
        && (first - 1) % KVR_INDEX_PUBLISHED != KVR_INDEX_PUBLISHED_AT)
    {
        value[m++] = chain[first - 1];
    }

    k = kvr_max(undo->first, first);

    /* only the first record moves the clock */

    do {
        i = kvr_min(n - k, KVR_SHARE_VALUES - m);

        fixed[0] = kvr_share_pair(units, from);
        fixed[1] = kvr_share_pair(first, 0);

        part[1] = (kvr_fifo_part_t) { fixed, 2 };
        part[2] = (kvr_fifo_part_t) { value, m };
        part[3] = (kvr_fifo_part_t) { &chain[k], i };

        kvr_share_publish(data, KVR_SHARE_UPDATE, undo->peer, part);

        k += i;
        from = first = k;
        units = 0;
        m = 0;

    } while (k < n);
}


void
kvr_share_publish_reply(const kvr_zone_t *zone, void *data,
    const uint64_t *value, uint32_t first, uint32_t n, uint32_t units,
    uint32_t peer, uint32_t behind)
{
    uint32_t          i, m;
    uint64_t          fixed[2];
    kvr_fifo_part_t  part[4] = { 0 };

    i = 0;

    do {
        m = kvr_min(n - i, KVR_SHARE_VALUES);

        fixed[0] = kvr_share_pair(i ? 0 : kvr_min(units, KVR_SHARE_UNITS),
                                  first + i);
        fixed[1] = kvr_share_pair(first + i, behind);

        part[1] = (kvr_fifo_part_t) { fixed, 2 };
        part[2] = (kvr_fifo_part_t) { n ? &value[i] : fixed, m };

        kvr_share_publish(data, KVR_SHARE_UPDATE, peer, part);

        i += m;

    } while (i < n);
}


void
kvr_share_publish_undo(const kvr_zone_t *zone, void *data,
    const uint64_t *chain, uint32_t n, const kvr_index_undo_t *undo)
{
    uint32_t          first, units, m;
    uint64_t          fixed;
    kvr_fifo_part_t  part[4] = { 0 };

    /* entries of this insert are about as old as the clock has moved since */

    units = kvr_index_undo_age(zone->index, undo);
    units = 2 * kvr_min(units, KVR_SHARE_UNITS) + undo->moved;

    for (first = kvr_chain_entries(undo->matched); first < n; first += m) {
        m = kvr_min(n - first, KVR_SHARE_VALUES);

        fixed = kvr_share_pair(units, first);

        part[1] = (kvr_fifo_part_t) { &fixed, 1 };
        part[2] = (kvr_fifo_part_t) { &chain[first], m };

        kvr_share_publish(data, KVR_SHARE_UNDO, undo->peer, part);
    }
}


void
kvr_share_publish_hot(const kvr_zone_t *zone, void *data,
    const kvr_hot_keys_t *keys, uint32_t peer)
{
    uint32_t         i;
    uint64_t         word[KVR_HOT_POINTS];
    kvr_fifo_part_t  part[4] = { 0 };

    if (keys->n == 0) {
        return;
    }

    for (i = 0; i < keys->n; i++) {
        word[i] = keys->key[i];
    }

    part[1] = (kvr_fifo_part_t) { word, keys->n };

    kvr_share_publish(data, KVR_SHARE_HOT, peer, part);
}


/* publishes a binding, but not each time it is refreshed */
void
kvr_share_publish_bind(const kvr_zone_t *zone, void *data, uint64_t key,
    uint32_t peer, uint32_t seconds, uint32_t now)
{
    uint32_t          bound, generation, left;
    uint64_t          fixed[2];
    kvr_fifo_part_t  part[4] = { 0 };

    bound = kvr_index_bound(zone->index, key, now, &generation);
    left = bound < KVR_PEERS ? kvr_share_index_expires(zone->index, key) - now
                             : 0;

    if (bound == peer && left <= seconds
        && seconds - left <= seconds / KVR_SHARE_PUBLISH_PART)
    {
        return;
    }

    fixed[0] = key;
    fixed[1] = kvr_share_pair(seconds, bound < KVR_PEERS && bound != peer);

    part[1] = (kvr_fifo_part_t) { fixed, 2 };

    kvr_share_publish(data, KVR_SHARE_BIND, peer, part);
}


void
kvr_share_publish_floor(const kvr_zone_t *zone, void *data, uint32_t peer,
    uint64_t clock)
{
    uint64_t          fixed, now;
    kvr_fifo_part_t  part[4] = { 0 };

    now = kvr_index_clock(zone->index, peer);
    fixed = now - kvr_min(clock, now);

    part[1] = (kvr_fifo_part_t) { &fixed, 1 };

    kvr_share_publish(data, KVR_SHARE_FLOOR, peer, part);
}


/* writes a record, of which part[0] is the head */
static void
kvr_share_publish(kvr_share_t *s, kvr_share_type_e type, uint32_t peer,
    kvr_fifo_part_t part[4])
{
    uint64_t  head;

    head = kvr_share_head(type, peer, part[1].n + part[2].n + part[3].n);
    part[0] = (kvr_fifo_part_t) { &head, 1 };

    if (kvr_fifo_put(&s->ring, part, 4)
        && type == KVR_SHARE_UPDATE)
    {
        kvr_add(&s->stats.sent, 1);
    }
}
