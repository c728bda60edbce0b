
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_line.h"


#define KVR_INDEX_SAMPLE  1024
#define KVR_INDEX_START   1024       /* first value of clocks, away from 0 */

/* kvr_index_turnover_update() */
#define KVR_INDEX_CLOCK_MASK  ((1ULL << KVR_INDEX_TIME_AT) - 1)
#define KVR_INDEX_MINUTE      59U

#define KVR_INDEX_BYTES   (sizeof(kvr_index_line_t) + sizeof(uint16_t))


static size_t
kvr_index_head(uint64_t nlines)
{
    size_t  size;

    size = sizeof(kvr_index_t) + nlines * KVR_INDEX_BYTES;

    return (size + KVR_CACHE_LINE - 1) & ~(size_t) (KVR_CACHE_LINE - 1);
}


/*
 * Rounds up the number of peers: a reader of a slot that is being given away
 * may combine bits of two peers, and that number must be valid.
 */
static uint32_t
kvr_index_peers(uint32_t max_peers)
{
    uint32_t  ids;

    ids = 1 << KVR_INDEX_ID;

    if (max_peers > KVR_PEERS_FEW) {
        max_peers = (max_peers + ids - 1) / ids * ids;
    }

    return max_peers;
}


static size_t
kvr_index_tail(uint32_t max_peers)
{
    size_t  size;

    size = kvr_index_peers(max_peers) * (sizeof(kvr_index_peer_t)
                                         + sizeof(kvr_index_mask_t));

    return (size + KVR_CACHE_LINE - 1) & ~(size_t) (KVR_CACHE_LINE - 1);
}


size_t
kvr_index_size(uint64_t nlines, uint32_t max_peers)
{
    return kvr_index_head(nlines) + kvr_index_tail(max_peers);
}


uint64_t
kvr_index_lines(size_t size, uint32_t max_peers)
{
    if (size < kvr_index_size(KVR_INDEX_WAYS, max_peers)) {
        return 0;
    }

    size -= kvr_index_tail(max_peers);
    size &= ~(size_t) (KVR_CACHE_LINE - 1);

    return (size - sizeof(kvr_index_t)) / KVR_INDEX_BYTES
           / KVR_INDEX_WAYS * KVR_INDEX_WAYS;
}


void
kvr_index_init(kvr_index_t *ix, uint64_t nlines, uint32_t max_peers)
{
    unsigned           i;
    kvr_index_peer_t  *p;

    ix->nlines = nlines;
    ix->nbuckets = nlines / KVR_INDEX_WAYS;
    ix->peers = kvr_index_head(nlines);
    ix->masks = ix->peers + kvr_index_peers(max_peers)
                            * sizeof(kvr_index_peer_t);
    ix->max_peers = max_peers;
    ix->words = kvr_set_words(max_peers);
    ix->epoch = KVR_TAG_SHIFT;

    while (ix->epoch < KVR_TAG_SHIFT_MAX && nlines >> ix->epoch >= 8) {
        ix->epoch++;
    }

    kvr_set(&ix->clock, KVR_INDEX_START);

    for (i = 0; i < max_peers; i++) {
        p = kvr_index_peer(ix, i);

        kvr_set(&p->clock, (uint64_t) KVR_INDEX_START << KVR_INDEX_FRACTION);
        kvr_set(&p->floor, KVR_INDEX_START);
    }
}


void
kvr_index_flush(kvr_index_t *ix, unsigned peer)
{
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    kvr_set(&p->floor, kvr_index_units(p));

    if (kvr_get(&p->ahead)) {
        kvr_set(&p->ahead, 1);
    }

    /* moved, so that a mask that begins right after the flush is newer */

    kvr_set(&p->since, kvr_add(&ix->clock, 1));

    kvr_mask_mark(ix, peer);
}


void
kvr_index_floor(kvr_index_t *ix, unsigned peer, uint64_t clock)
{
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    clock = kvr_min(clock, kvr_index_units(p));

    if (clock > kvr_get(&p->floor)) {
        kvr_set(&p->floor, clock);
        kvr_set(&p->since, kvr_add(&ix->clock, 1));

        kvr_mask_mark(ix, peer);
    }
}


int
kvr_index_heard(kvr_index_t *ix, unsigned peer, uint64_t expected)
{
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    return kvr_get(&p->ahead)
           && kvr_index_ahead(p) <= kvr_index_ahead_max(p, expected);
}


uint64_t
kvr_index_clock(kvr_index_t *ix, unsigned peer)
{
    return kvr_index_units(kvr_index_peer(ix, peer));
}


void
kvr_index_capacity(kvr_index_t *ix, unsigned peer, uint64_t units,
    kvr_index_source_e source)
{
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    units = kvr_max(units, 1);
    units = kvr_min(units, KVR_INDEX_CAPACITY_MAX);

    kvr_set(&p->source, source);
    kvr_set(&p->capacity, (uint32_t) units);

    kvr_mask_mark(ix, peer);
}


/*
 * Keeps two marks of the clock, a minute or more apart, and the result of this
 * second.  Each is one word with its time in the upper bits, so a killed
 * process leaves none half written.
 */
uint64_t
kvr_index_turnover_update(kvr_index_t *ix, unsigned peer, uint32_t time)
{
    double             rate;
    uint64_t           word, mark, before, clock, capacity, moved, age;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    clock = kvr_index_units(p) & KVR_INDEX_CLOCK_MASK;
    capacity = kvr_get(&p->capacity);
    mark = kvr_get(&p->mark);

    if (mark == 0
        || ((time - (uint32_t) (mark >> KVR_INDEX_TIME_AT))
            & KVR_INDEX_TIME_MASK) >= KVR_INDEX_MINUTE)
    {
        word = (uint64_t) time << KVR_INDEX_TIME_AT | clock;

        if (atomic_compare_exchange_strong(&p->mark, &mark, word)) {
            kvr_set(&p->before, mark ? mark : word);
        }
    }

    before = kvr_get(&p->before);

    age = (time - (uint32_t) (before >> KVR_INDEX_TIME_AT))
          & KVR_INDEX_TIME_MASK;
    before &= KVR_INDEX_CLOCK_MASK;
    before = kvr_max(before, kvr_get(&p->floor));

    moved = clock - kvr_min(before, clock);
    rate = 0;

    if (capacity) {
        rate = (double) moved * KVR_INDEX_MINUTE
               / (double) (kvr_max(age, KVR_INDEX_MINUTE) * capacity);
    }

    word = (uint64_t) time << KVR_INDEX_TIME_AT
           | (uint64_t) (rate / (1 + rate) * KVR_INDEX_TURNED);

    kvr_set(&p->turnover, word);

    return word;
}


void
kvr_index_note(kvr_index_t *ix, uint64_t key, unsigned peer)
{
    uint32_t           stamp;
    uint64_t           units;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);
    units = kvr_index_units(p);

    /* a peer that has computed nothing can still hold something */

    if (units == kvr_get(&p->floor)) {
        kvr_add(&p->clock, 1 << KVR_INDEX_FRACTION);
        units++;
    }

    stamp = kvr_index_stamp(kvr_index_clocked(units, peer), 1);

    (void) kvr_line_hold(ix, kvr_index_key(key), peer, stamp);
}


uint32_t
kvr_index_bound(kvr_index_t *ix, uint64_t key, uint32_t now,
    uint32_t *generation)
{
    uint32_t           peer, expires;
    kvr_index_line_t  *line;

    kvr_set(&ix->time, now);

    key = kvr_index_session_key(key);
    line = kvr_line_find_key(ix, key);

    if (line == NULL) {
        return KVR_PEERS;
    }

    peer = kvr_line_bound(kvr_get(&line->ids));
    expires = kvr_get(&line->stamp[0]);
    *generation = kvr_get(&line->stamp[1]);

    atomic_thread_fence(memory_order_acquire);

    if (kvr_get(&line->key) != key || (int32_t) (expires - now) <= 0) {
        return KVR_PEERS;
    }

    return peer;
}


void
kvr_index_bind(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t generation, uint32_t expires)
{
    uint32_t           now;
    uint64_t           ids, bound;
    kvr_index_line_t  *line;

    now = (uint32_t) kvr_get(&ix->clock);

    key = kvr_index_session_key(key);
    line = kvr_line_find_key(ix, key);

    bound = kvr_line_bind(key, peer);

    if (line == NULL) {

        /* it has no generation yet, so it is bound to no peer */

        line = kvr_line_insert(ix, key, 0, expires, now);

        if (line == NULL) {
            return;
        }

        ids = kvr_line_bind(key, 0);

        (void) atomic_compare_exchange_strong(&line->ids, &ids, bound);

    } else {
        ids = kvr_get(&line->ids);

        /* no binding until the generation is known */

        if (ids != bound) {
            kvr_set(&line->stamp[1], 0);
            kvr_set(&line->stamp[2], 0);
            (void) atomic_compare_exchange_strong(&line->ids, &ids, bound);
        }

        kvr_set(&line->touched, now);
        kvr_set(&line->stamp[0], expires);

        kvr_tag_touch(kvr_tag_line(ix, line), kvr_tag_epoch(ix, now));
    }

    atomic_store_explicit(&line->stamp[1], generation, memory_order_release);

    /* if the line is another block's by now, so is the slot */

    if (kvr_unlikely(kvr_get(&line->key) != key)) {
        (void) atomic_compare_exchange_strong(&line->stamp[1], &generation, 0);
    }
}


double
kvr_index_fill(kvr_index_t *ix, uint64_t seed)
{
    uint32_t  i, used;

    used = 0;

    for (i = 0; i < KVR_INDEX_SAMPLE; i++) {
        seed = kvr_mix(seed, i + 1);
        used += kvr_get(&ix->line[kvr_reduce(seed, ix->nlines)].key) != 0;
    }

    return (double) used / KVR_INDEX_SAMPLE;
}
