
/*
 * Copyright (C) kvroute contributors
 */


#include "core/alias/kvr_attribute.h"
#include "core/index/kvr_index_line.h"


/* words of a record before its keys: generation and peer, the request */
#define KVR_ATTRIBUTE_WORDS                                                   \
    (1 + (int) (sizeof(kvr_alias_request_t) / sizeof(uint64_t)))
#define KVR_ATTRIBUTE_KEYS   (KVR_FIFO_MAX - KVR_ATTRIBUTE_WORDS)

/* ms until all events of a request have come */
#define KVR_ATTRIBUTE_WAIT   1000


static int kvr_attribute_removed(kvr_index_t *ix, uint64_t value,
    uint32_t entry, uint32_t peer, uint64_t units);
static void kvr_attribute_restored(kvr_index_t *ix, uint64_t value,
    uint32_t entry, uint32_t peer, uint64_t behind);
static int kvr_attribute_take(const kvr_feeds_t *h, const uint64_t *word,
    uint32_t n, uint64_t now);


size_t
kvr_attribute_size(uint32_t max_peers, size_t size)
{
    size = kvr_max(size, KVR_ATTRIBUTE_LEAST);
    size = (size + KVR_CACHE_LINE - 1) & ~(size_t) (KVR_CACHE_LINE - 1);

    return sizeof(kvr_aliases_t) + max_peers * size;
}


void
kvr_attribute_init(kvr_aliases_t *aliases, uint32_t max_peers, size_t size)
{
    size = kvr_max(size, KVR_ATTRIBUTE_LEAST);
    size = (size + KVR_CACHE_LINE - 1) & ~(size_t) (KVR_CACHE_LINE - 1);

    aliases->size = size;
    aliases->cells = kvr_alias_cells(size);
    aliases->max_peers = max_peers;
}


kvr_alias_view_t
kvr_attribute_peer(const kvr_feeds_t *h, uint32_t peer)
{
    uint8_t           *p;
    kvr_alias_view_t   v;

    p = (uint8_t *) h->aliases + sizeof(kvr_aliases_t);

    kvr_alias_view(&v, p + peer * h->aliases->size, h->aliases->cells,
                   &h->events[peer].alias);

    return v;
}


int
kvr_attribute_most(const kvr_feeds_t *h, uint32_t peer)
{
    kvr_alias_view_t  v;

    if (h->aliases == NULL) {
        return 0;
    }

    v = kvr_attribute_peer(h, peer);

    return kvr_alias_most(&v);
}


void
kvr_attribute_put(const kvr_feeds_t *h, uint32_t peer,
    kvr_alias_request_t *r)
{
    uint32_t          skip, generation;
    uint64_t          word[KVR_ATTRIBUTE_WORDS];
    kvr_alias_view_t  v;
    kvr_fifo_part_t   part[2];

    if (r->n == 0 || r->from + r->n > KVR_ALIAS_ENTRIES
        || r->bytes > UINT32_MAX)
    {
        return;
    }

    skip = r->n - kvr_min(r->n, KVR_ATTRIBUTE_KEYS);

    r->from += skip;
    r->n -= skip;
    r->key += skip;

    generation = kvr_get(&h->zone->registry->peer[peer].generation);

    word[0] = (uint64_t) generation << 32 | peer;
    memcpy(&word[1], r, sizeof(kvr_alias_request_t));

    part[0] = (kvr_fifo_part_t) { word, KVR_ATTRIBUTE_WORDS };
    part[1] = (kvr_fifo_part_t) { r->key, r->n };

    if (!kvr_fifo_put(&h->aliases->ring, part, 2)) {
        v = kvr_attribute_peer(h, peer);
        kvr_add(&v.count->dropped, 1);
    }
}


void
kvr_attribute_event(const kvr_feeds_t *h, uint32_t id, unsigned source,
    const kvr_kvevent_t *event, uint32_t depth, uint64_t now)
{
    int                removed, below;
    uint64_t           i, n, units;
    kvr_alias_view_t   v;
    kvr_alias_place_t  place;

    v = kvr_attribute_peer(h, id);

    removed = event->type == KVR_KVEVENT_REMOVED;
    n = kvr_min(event->blocks, KVR_KVEVENT_HASHES);
    units = kvr_load_get(h->zone->load, id).pending / KVR_BLOCK;

    /* what leaves GPU memory stays in the tier below it */

    below = kvr_get(&h->zone->registry->peer[id].tier[KVR_TIER_GPU].until) != 0;

    for (i = 0; i < n; i++) {

        if (!kvr_alias_mark(&v, event->hash[i], source, removed, &place)) {
            continue;
        }

        if (removed && below) {
            continue;
        }

        if (removed) {
            kvr_add(&v.count->removed,
                    kvr_attribute_removed(h->zone->index, place.key,
                                          place.entry, id, units + 1));

        } else {
            kvr_attribute_restored(h->zone->index, place.key, place.entry, id,
                                   units);
            kvr_add(&v.count->restored, 1);
        }
    }

    if (!removed) {
        kvr_alias_stored(&v, event, source, depth, now);
    }
}


/*
 * The engine has removed the block in which an entry of a chain ends: takes the
 * peer from the entry's holders.  An insert within the last unconfirmed units,
 * at most as many as these, will be stored afterwards and stays.  So does a
 * holder that only the mask of the line names.  Returns 1 if the peer held it.
 */
static int
kvr_attribute_removed(kvr_index_t *ix, uint64_t value, uint32_t entry,
    uint32_t peer, uint64_t units)
{
    unsigned           s;
    uint32_t           clock, begun, stamp;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    line = kvr_line_find(ix, value);

    if (line == NULL) {
        return 0;
    }

    s = kvr_line_slot(line, kvr_get(&line->ids), peer, &stamp);

    if (s == KVR_INDEX_HOLDERS) {
        return 0;
    }

    p = kvr_index_peer(ix, peer);

    clock = kvr_index_clocked(kvr_index_units(p), peer);
    units = kvr_min(units, kvr_index_ahead(p) >> KVR_INDEX_FRACTION);
    begun = stamp + ((kvr_chain_depth(entry) - 1) << KVR_INDEX_STAMP);

    return (int64_t) ((int32_t) (clock - begun) >> KVR_INDEX_STAMP)
           >= (int64_t) units
           && kvr_line_free(line, s, stamp);
}


/*
 * The engine has stored that block again, for any request.  behind: as of
 * kvr_index_extend().
 */
static void
kvr_attribute_restored(kvr_index_t *ix, uint64_t value, uint32_t entry,
    uint32_t peer, uint64_t behind)
{
    uint32_t           stamp;
    uint64_t           clock;
    kvr_index_line_t  *line;

    clock = kvr_index_clock(ix, peer);
    clock -= kvr_min(behind, clock);

    stamp = kvr_index_stamp(kvr_index_clocked(clock, peer),
                            kvr_chain_depth(entry));

    line = kvr_line_hold(ix, kvr_index_key(value), peer, stamp);

    /* the peer need not hold the blocks behind it */

    if (line) {
        kvr_tag_mark(kvr_tag_line(ix, line));
    }
}


void
kvr_attribute_another(const kvr_feeds_t *h, uint32_t id)
{
    kvr_alias_view_t  v;

    v = kvr_attribute_peer(h, id);
    kvr_alias_another(&v);
}


void
kvr_attribute_flush(const kvr_feeds_t *h, uint32_t id)
{
    kvr_alias_view_t  v;

    v = kvr_attribute_peer(h, id);
    kvr_alias_flush(&v);
}


uint32_t
kvr_attribute_look(const kvr_feeds_t *h, uint32_t most, uint64_t now)
{
    int                rc;
    uint32_t           i;
    uint64_t           at, next, word[KVR_FIFO_MAX];
    kvr_fifo_t        *ring;

    ring = &h->aliases->ring;

    for (i = 0; i < most; i++) {

        at = kvr_get(&ring->tail);
        next = at;

        rc = kvr_fifo_get(ring, &next, word, now);

        if (rc == KVR_DECLINED || rc == KVR_AGAIN) {
            break;
        }

        if (rc > KVR_ATTRIBUTE_WORDS
            && kvr_attribute_take(h, word, (uint32_t) rc, now) == KVR_AGAIN)
        {
            break;
        }

        atomic_store_explicit(&ring->tail, next, memory_order_release);
    }

    return i;
}


static int
kvr_attribute_take(const kvr_feeds_t *h, const uint64_t *word, uint32_t n,
    uint64_t now)
{
    uint32_t             id;
    kvr_alias_view_t     v;
    kvr_alias_request_t  r;

    memcpy(&r, &word[1], sizeof(kvr_alias_request_t));

    if (now < r.now + KVR_ATTRIBUTE_WAIT && now + KVR_ATTRIBUTE_WAIT > r.now) {
        return KVR_AGAIN;
    }

    id = (uint32_t) word[0];

    if (id >= h->aliases->max_peers
        || kvr_get(&h->zone->registry->peer[id].generation) != word[0] >> 32
        || r.prompt == 0)
    {
        return KVR_DECLINED;
    }

    r.key = &word[KVR_ATTRIBUTE_WORDS];
    r.n = n - KVR_ATTRIBUTE_WORDS;

    v = kvr_attribute_peer(h, id);

    (void) kvr_alias_attribute(&v, &r);

    return KVR_OK;
}
