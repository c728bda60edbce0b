
/*
 * Copyright (C) kvroute contributors
 */


#include "core/alias/kvr_alias_int.h"


#define KVR_ALIAS_WAYS      4

/* bits of "place": 33 of the name, one if it is removed, entry */
#define KVR_ALIAS_TAG_AT    31
#define KVR_ALIAS_REMOVED   (1ULL << 30)

#define KVR_ALIAS_STEP      64       /* cells: their number is a multiple */

/* the share of attributed requests */
#define KVR_ALIAS_SMOOTH    32       /* requests */
#define KVR_ALIAS_MOST      (KVR_ALIAS_ONE / 2)


static kvr_alias_cell_t *kvr_alias_find(const kvr_alias_view_t *v,
    uint64_t name);
static void kvr_alias_tie(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r, uint64_t number, uint32_t begin,
    uint32_t end);
static kvr_alias_cell_t *kvr_alias_room(const kvr_alias_view_t *v,
    uint64_t name);
static int kvr_alias_set(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r, uint64_t name, uint32_t k);


size_t
kvr_alias_size(uint32_t n)
{
    return sizeof(kvr_alias_t)
           + (size_t) n * sizeof(kvr_alias_cell_t)
           + (size_t) kvr_alias_names(n) * sizeof(uint64_t)
           + (size_t) kvr_alias_runs(n) * (sizeof(kvr_alias_run_t)
                                           + sizeof(uint32_t))
           + (size_t) kvr_alias_anchors(n) * sizeof(kvr_alias_anchor_t);
}


uint32_t
kvr_alias_cells(size_t size)
{
    size_t  each, n;

    if (size < kvr_alias_size(KVR_ALIAS_STEP)) {
        return 0;
    }

    each = kvr_alias_size(KVR_ALIAS_STEP) - sizeof(kvr_alias_t);
    n = (size - sizeof(kvr_alias_t)) / each * KVR_ALIAS_STEP;

    return (uint32_t) kvr_min(n, 1U << 28);
}


void
kvr_alias_view(kvr_alias_view_t *v, void *p, uint32_t n,
    kvr_events_alias_t *counts)
{
    uint8_t  *b;

    b = p;

    v->n = n;
    v->count = counts;
    v->shared = p;
    b += sizeof(kvr_alias_t);
    v->cell = (kvr_alias_cell_t *) (void *) b;
    b += n * sizeof(kvr_alias_cell_t);
    v->run = (kvr_alias_run_t *) (void *) b;
    b += kvr_alias_runs(n) * sizeof(kvr_alias_run_t);
    v->anchor = (kvr_alias_anchor_t *) (void *) b;
    b += kvr_alias_anchors(n) * sizeof(kvr_alias_anchor_t);
    v->name = (_Atomic uint64_t *) (void *) b;
    b += kvr_alias_names(n) * sizeof(uint64_t);
    v->tip = (_Atomic uint32_t *) (void *) b;
}


void
kvr_alias_flush(const kvr_alias_view_t *v)
{
    kvr_alias_t  *a;

    a = v->shared;

    /* memory that was never written stays untouched */

    if (kvr_get(&a->names) == 0) {
        return;
    }

    memset((void *) v->cell, 0, v->n * sizeof(kvr_alias_cell_t));
    memset((void *) v->run, 0, kvr_alias_runs(v->n) * sizeof(kvr_alias_run_t));
    memset((void *) v->tip, 0, kvr_alias_runs(v->n) * sizeof(uint32_t));

    kvr_set(&v->count->used, 0);
    kvr_set(&a->block, 0);
    kvr_set(&a->runs, 0);
    kvr_set(&a->names, 0);
    kvr_set(&a->share, 0);

    kvr_alias_another(v);
}


void
kvr_alias_another(const kvr_alias_view_t *v)
{
    kvr_set(&v->shared->sessions, 0);
}


int
kvr_alias_mark(const kvr_alias_view_t *v, uint64_t hash, unsigned source,
    int removed, kvr_alias_place_t *place)
{
    uint64_t           word;
    kvr_alias_cell_t  *cell;

    cell = kvr_alias_find(v, kvr_mix(hash, source));

    if (cell == NULL) {
        return 0;
    }

    word = kvr_get(&cell->place);

    kvr_set(&cell->place, removed ? word | KVR_ALIAS_REMOVED
                                  : word & ~KVR_ALIAS_REMOVED);

    place->key = kvr_get(&cell->key);
    place->entry = word & (KVR_ALIAS_ENTRIES - 1);

    return 1;
}


static inline kvr_alias_cell_t *
kvr_alias_bucket(const kvr_alias_view_t *v, uint64_t name)
{
    return &v->cell[kvr_reduce(name, v->n / KVR_ALIAS_WAYS) * KVR_ALIAS_WAYS];
}


/* never 0, and from other bits than the bucket */
static inline uint64_t
kvr_alias_tag(uint64_t name)
{
    return name << KVR_ALIAS_TAG_AT | 1ULL << KVR_ALIAS_TAG_AT;
}


static inline uint64_t
kvr_alias_tagged(uint64_t word)
{
    return word >> KVR_ALIAS_TAG_AT << KVR_ALIAS_TAG_AT;
}


static kvr_alias_cell_t *
kvr_alias_find(const kvr_alias_view_t *v, uint64_t name)
{
    unsigned           i;
    uint64_t           tag;
    kvr_alias_cell_t  *cell;

    tag = kvr_alias_tag(name);
    cell = kvr_alias_bucket(v, name);

    for (i = 0; i < KVR_ALIAS_WAYS; i++) {
        if (kvr_alias_tagged(kvr_get(&cell[i].place)) == tag) {
            return &cell[i];
        }
    }

    return NULL;
}


kvr_alias_e
kvr_alias_attribute(const kvr_alias_view_t *v, const kvr_alias_request_t *r)
{
    uint32_t           begin, end, block, share;
    uint64_t           number;
    kvr_alias_e        found;
    kvr_alias_t       *a;
    kvr_alias_run_t   *run;
    kvr_alias_cell_t  *cell;

    a = v->shared;
    block = kvr_get(&a->block);

    if (block == 0 || r->n == 0 || r->bytes == 0
        || r->from + r->n > KVR_ALIAS_ENTRIES)
    {
        return KVR_ALIAS_NOTHING;
    }

    begin = r->cached / block;
    end = r->prompt / block;

    if (begin >= end) {
        return KVR_ALIAS_NOTHING;
    }

    number = 0;
    found = r->unknown ? KVR_ALIAS_MISSING
                       : kvr_alias_run_find(v, r, begin, end, &number);

    if (found == KVR_ALIAS_ATTRIBUTED) {
        run = kvr_alias_run(v, number);

        if (!kvr_get(&run->taken)) {
            kvr_set(&run->taken, 1);
            kvr_alias_tie(v, r, number, begin, end);

        } else {
            cell = kvr_alias_find(v, kvr_get(&run->last));

            /* the same prompt: one request has stored it for both */

            if (cell == NULL || kvr_get(&cell->key) != r->key[r->n - 1]) {
                found = KVR_ALIAS_AMBIGUOUS;
            }
        }
    }

    share = kvr_get(&a->share);

    if (found == KVR_ALIAS_ATTRIBUTED) {
        share += (KVR_ALIAS_ONE - share) / KVR_ALIAS_SMOOTH;

    } else {
        share -= share / KVR_ALIAS_SMOOTH;
    }

    kvr_set(&a->share, share);

    kvr_add(found == KVR_ALIAS_ATTRIBUTED ? &v->count->attributed
            : found == KVR_ALIAS_MISSING ? &v->count->missing
            : &v->count->ambiguous, 1);

    return found;
}


int
kvr_alias_most(const kvr_alias_view_t *v)
{
    return kvr_get(&v->shared->share) >= KVR_ALIAS_MOST;
}


static inline kvr_alias_anchor_t *
kvr_alias_anchor(const kvr_alias_view_t *v, uint64_t key)
{
    return &v->anchor[kvr_reduce(kvr_mix(key, 1), kvr_alias_anchors(v->n))];
}


/*
 * Makes aliases from the last entry and the last block backwards.  Cached
 * blocks were often stored by the previous reply in the same conversation: as
 * far as their runs are still there, they get aliases, too.
 */
static void
kvr_alias_tie(const kvr_alias_view_t *v, const kvr_alias_request_t *r,
    uint64_t number, uint32_t begin, uint32_t end)
{
    double               line, to;
    uint32_t             k, block, depth, tied, tokens;
    uint64_t             word, bytes, at;
    kvr_alias_run_t     *run;
    kvr_alias_anchor_t  *anchor;

    bytes = 0;
    tokens = 0;

    anchor = kvr_alias_anchor(v, r->key[0]);
    word = kvr_get(&anchor->end);

    if (kvr_get(&anchor->key) == r->key[0] && word >> 32 < r->bytes
        && (uint32_t) word < r->prompt)
    {
        bytes = word >> 32;
        tokens = (uint32_t) word;
    }

    line = (double) (r->prompt - tokens) / (double) (r->bytes - bytes);

    run = kvr_alias_run(v, number);
    depth = end - kvr_get(&run->blocks);
    tied = end;

    for (k = r->n; k-- > 0; /* void */ ) {

        at = (uint64_t) kvr_chain_depth(r->from + k) * KVR_BLOCK;

        /* before the anchor: a line from the start to it */

        if (at > bytes) {
            to = tokens + (double) (at - bytes) * line;

        } else {
            to = (double) at * tokens / (double) bytes;
        }

        block = (uint32_t) kvr_min(to, r->prompt);

        /* the block with the entry's last token */

        block -= kvr_min(block, 1);
        block = kvr_min(block / kvr_get(&v->shared->block), end - 1);

        if (block == tied) {
            continue;
        }

        while (block < depth) {
            if (!kvr_alias_run_before(v, &number)) {
                goto done;
            }

            run = kvr_alias_run(v, number);

            if (kvr_get(&run->blocks) > depth) {
                goto done;
            }

            depth -= kvr_get(&run->blocks);
        }

        tied = block;

        if (!kvr_alias_set(v, r, kvr_alias_name(v, run, block - depth), k)
            && block < begin)
        {
            break;
        }
    }

done:

    anchor = kvr_alias_anchor(v, r->key[r->n - 1]);

    if (r->bytes <= UINT32_MAX) {
        kvr_set(&anchor->key, 0);
        kvr_set(&anchor->end, r->bytes << 32 | r->prompt);
        kvr_set(&anchor->key, r->key[r->n - 1]);
    }
}


/* returns a cell for a new name */
static kvr_alias_cell_t *
kvr_alias_room(const kvr_alias_view_t *v, uint64_t name)
{
    unsigned           i;
    uint64_t           word;
    kvr_alias_cell_t  *cell, *cells;

    cells = kvr_alias_bucket(v, name);
    cell = &cells[name >> 48 & (KVR_ALIAS_WAYS - 1)];

    for (i = 0; i < KVR_ALIAS_WAYS; i++) {
        word = kvr_get(&cells[i].place);

        if (word == 0) {
            return &cells[i];
        }

        if (word & KVR_ALIAS_REMOVED) {
            cell = &cells[i];
        }
    }

    return cell;
}


/* makes an alias for the k-th key; 0: it existed */
static int
kvr_alias_set(const kvr_alias_view_t *v, const kvr_alias_request_t *r,
    uint64_t name, uint32_t k)
{
    uint32_t           entry, old;
    uint64_t           word;
    kvr_alias_cell_t  *cell;

    /* names of a very long event are not known */

    if (name == 0) {
        return 1;
    }

    entry = r->from + k;
    cell = kvr_alias_find(v, name);
    word = 0;

    if (cell) {
        word = kvr_get(&cell->place) & KVR_ALIAS_REMOVED;
        old = kvr_get(&cell->place) & (KVR_ALIAS_ENTRIES - 1);

        if (kvr_get(&cell->key) == r->key[k]) {
            return 0;
        }

        /*
         * Within the same prompt only the straight line differed.  Entries
         * before the first key were cached, so a block there was not stored
         * again.
         */

        kvr_add(&v->count->wrong,
                old >= r->from
                && (old - r->from >= r->n
                    || r->key[old - r->from] != kvr_get(&cell->key)));

    } else {
        cell = kvr_alias_room(v, name);
        kvr_add(&v->count->used, kvr_get(&cell->place) == 0);
    }

    word |= kvr_alias_tag(name) | entry;

    kvr_set(&cell->place, 0);
    kvr_set(&cell->key, r->key[k]);
    atomic_store_explicit(&cell->place, word, memory_order_release);

    return 1;
}
