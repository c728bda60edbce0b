#include <stdio.h>

#include "bench/model/prefix.h"


#define KVS_NONE  UINT32_MAX


/* a block that at least one replica has */
typedef struct {
    uint64_t   hash;
    kvr_set_t  has;          /* replicas that have it */
    uint32_t   holder;       /* list of kvs_holder_t */
    uint32_t   next;         /* in the bucket; free list */
} kvs_entry_t;


typedef struct {
    uint32_t   entry;
    uint32_t   sibling;      /* the entry's next holder; free list */
    uint32_t   prev, next;   /* the replica's blocks, oldest first */
    uint32_t   replica;
    uint32_t   refs;
    double     time;
} kvs_holder_t;


struct kvs_prefix_s {
    kvs_prefix_conf_t   conf;

    kvs_entry_t        *entry;
    uint32_t            nentries, entries_size, entry_free, live;
    kvs_holder_t       *holder;
    uint32_t            nholders, holders_size, holder_free;

    uint32_t           *bucket;
    unsigned            bits;

    uint32_t            first[KVS_REPLICAS];
    uint32_t            last[KVS_REPLICAS];
    uint32_t            count[KVS_REPLICAS];
};


static void
kvs_prefix_rehash(kvs_prefix_t *px)
{
    uint32_t  i, *b;
    size_t    n;

    px->bits = px->bits ? px->bits + 2 : 12;
    n = (size_t) 1 << px->bits;

    free(px->bucket);
    px->bucket = malloc(n * sizeof(uint32_t));

    if (px->bucket == NULL) {
        abort();
    }

    memset(px->bucket, 0xff, n * sizeof(uint32_t));

    for (i = 0; i < px->nentries; i++) {

        if (!kvr_set_empty(&px->entry[i].has, KVR_SET_WORDS)) {
            b = &px->bucket[kvr_reduce(px->entry[i].hash, n)];
            px->entry[i].next = *b;
            *b = i;
        }
    }
}


kvs_prefix_t *
kvs_prefix_create(const kvs_prefix_conf_t *conf)
{
    kvs_prefix_t  *px;

    px = kvs_alloc(sizeof(kvs_prefix_t));

    px->conf = *conf;
    px->conf.stride = kvr_max(conf->stride, 1);
    px->entry_free = KVS_NONE;
    px->holder_free = KVS_NONE;

    memset(px->first, 0xff, sizeof(px->first));
    memset(px->last, 0xff, sizeof(px->last));

    kvs_prefix_rehash(px);

    return px;
}


void
kvs_prefix_destroy(kvs_prefix_t *px)
{
    free(px->entry);
    free(px->holder);
    free(px->bucket);
    free(px);
}


static uint32_t *
kvs_prefix_slot(kvs_prefix_t *px, uint64_t hash)
{
    uint32_t  *p;

    p = &px->bucket[kvr_reduce(hash, 1ULL << px->bits)];

    while (*p != KVS_NONE && px->entry[*p].hash != hash) {
        p = &px->entry[*p].next;
    }

    return p;
}


static void
kvs_prefix_unlink(kvs_prefix_t *px, kvs_holder_t *h)
{
    if (h->prev != KVS_NONE) {
        px->holder[h->prev].next = h->next;

    } else {
        px->first[h->replica] = h->next;
    }

    if (h->next != KVS_NONE) {
        px->holder[h->next].prev = h->prev;

    } else {
        px->last[h->replica] = h->prev;
    }
}


static void
kvs_prefix_push(kvs_prefix_t *px, uint32_t id)
{
    kvs_holder_t  *h = &px->holder[id];

    h->next = KVS_NONE;
    h->prev = px->last[h->replica];

    if (h->prev != KVS_NONE) {
        px->holder[h->prev].next = id;

    } else {
        px->first[h->replica] = id;
    }

    px->last[h->replica] = id;
}


static void
kvs_prefix_remove(kvs_prefix_t *px, uint32_t id)
{
    uint32_t      *p, *slot, e;
    kvs_entry_t   *entry;
    kvs_holder_t  *h;

    h = &px->holder[id];
    e = h->entry;
    entry = &px->entry[e];

    kvs_prefix_unlink(px, h);
    px->count[h->replica]--;

    for (p = &entry->holder; *p != id; p = &px->holder[*p].sibling) {
        /* void */
    }

    *p = h->sibling;
    kvr_set_del(&entry->has, h->replica);

    h->sibling = px->holder_free;
    px->holder_free = id;

    if (kvr_set_empty(&entry->has, KVR_SET_WORDS)) {
        slot = kvs_prefix_slot(px, entry->hash);
        *slot = entry->next;
        entry->next = px->entry_free;
        px->entry_free = e;
        px->live--;
    }
}


static void
kvs_prefix_expire(kvs_prefix_t *px, uint32_t replica, double now)
{
    uint32_t  id;

    if (px->conf.ttl <= 0) {
        return;
    }

    while ((id = px->first[replica]) != KVS_NONE
           && px->holder[id].time < now - px->conf.ttl)
    {
        kvs_prefix_remove(px, id);
    }
}


uint32_t
kvs_prefix_match(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    kvr_set_t set, double now, uint32_t *matched, uint32_t *last)
{
    double              newest;
    uint32_t            i, k, e, deepest, stride;
    kvr_set_t           alive, has, lost, m;

    stride = px->conf.stride;

    for (m = set; kvr_set_next(&m, &k); /* void */ ) {
        matched[k] = 0;
        kvs_prefix_expire(px, k, now);
    }

    alive = set;
    deepest = KVS_NONE;

    for (i = stride; i <= units; i += stride) {

        e = *kvs_prefix_slot(px, chain[i - 1]);

        if (e == KVS_NONE) {
            break;
        }

        has = kvr_set_andnot(px->entry[e].has,
                             kvr_set_not(px->conf.any ? set : alive));

        if (kvr_set_empty(&has, KVR_SET_WORDS)) {
            break;
        }

        if (px->conf.any) {
            for (m = has; kvr_set_next(&m, &k); /* void */ ) {
                matched[k] += stride;
            }

        } else {

            /* the remaining replicas have all blocks so far */

            lost = kvr_set_andnot(alive, has);

            while (kvr_set_next(&lost, &k)) {
                matched[k] = i - stride;
            }
        }

        alive = has;
        deepest = e;
    }

    i = (i - stride) / stride * stride;

    for (m = alive; !px->conf.any && kvr_set_next(&m, &k); /* void */ ) {
        matched[k] = i;
    }

    if (last) {
        *last = KVS_NONE;

        if (deepest != KVS_NONE) {
            newest = -1;

            for (k = px->entry[deepest].holder;
                 k != KVS_NONE;
                 k = px->holder[k].sibling)
            {
                if (kvr_set_test(&alive, px->holder[k].replica)
                    && px->holder[k].time > newest)
                {
                    newest = px->holder[k].time;
                    *last = px->holder[k].replica;
                }
            }
        }
    }

    return deepest == KVS_NONE ? 0 : i;
}


static void *
kvs_prefix_grow(void *p, uint32_t *size, uint32_t n, size_t elt)
{
    if (n < *size) {
        return p;
    }

    *size = *size ? *size * 2 : 4096;
    p = realloc(p, *size * elt);

    if (p == NULL) {
        abort();
    }

    return p;
}


static uint32_t
kvs_prefix_entry(kvs_prefix_t *px, uint64_t hash)
{
    uint32_t  e, *slot;

    slot = kvs_prefix_slot(px, hash);

    if (*slot != KVS_NONE) {
        return *slot;
    }

    if (px->live > 1U << px->bits) {
        kvs_prefix_rehash(px);
        slot = kvs_prefix_slot(px, hash);
    }

    if (px->entry_free != KVS_NONE) {
        e = px->entry_free;
        px->entry_free = px->entry[e].next;

    } else {
        e = px->nentries++;
        px->entry = kvs_prefix_grow(px->entry, &px->entries_size, e,
                                    sizeof(kvs_entry_t));

        /* the pointer can point to an entry, and the table can have moved */

        slot = kvs_prefix_slot(px, hash);
    }

    px->entry[e].hash = hash;
    px->entry[e].has = kvr_set_none();
    px->entry[e].holder = KVS_NONE;
    px->entry[e].next = KVS_NONE;
    px->live++;

    *slot = e;

    return e;
}


/* returns the replica's entry of a block, and adds it if needed */
static uint32_t
kvs_prefix_holder(kvs_prefix_t *px, uint64_t hash, uint32_t replica, int *new)
{
    uint32_t       e, id;
    kvs_holder_t  *h;

    e = kvs_prefix_entry(px, hash);
    *new = 0;

    if (kvr_set_test(&px->entry[e].has, replica)) {

        for (id = px->entry[e].holder;
             px->holder[id].replica != replica;
             id = px->holder[id].sibling)
        {
            /* void */
        }

        return id;
    }

    if (px->holder_free != KVS_NONE) {
        id = px->holder_free;
        px->holder_free = px->holder[id].sibling;

    } else {
        id = px->nholders++;
        px->holder = kvs_prefix_grow(px->holder, &px->holders_size, id,
                                     sizeof(kvs_holder_t));
    }

    h = &px->holder[id];
    h->entry = e;
    h->replica = replica;
    h->refs = 0;
    h->time = 0;
    h->sibling = px->entry[e].holder;

    px->entry[e].holder = id;
    kvr_set_add(&px->entry[e].has, replica);
    px->count[replica]++;

    kvs_prefix_push(px, id);
    *new = 1;

    return id;
}


void
kvs_prefix_insert(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    uint32_t replica, double now)
{
    int            new;
    uint32_t       i, id, stride, k;
    kvs_holder_t  *h;

    stride = px->conf.stride;

    kvs_prefix_expire(px, replica, now);

    /* from the end, so that heads are the more recently used */

    for (i = units / stride * stride; i >= stride; i -= stride) {

        id = kvs_prefix_holder(px, chain[i - 1], replica, &new);
        h = &px->holder[id];
        h->time = now;

        if (!new) {
            kvs_prefix_unlink(px, h);
            kvs_prefix_push(px, id);
        }

        if (px->conf.capacity && px->count[replica] > px->conf.capacity) {
            kvs_prefix_remove(px, px->first[replica]);
        }

        while (px->conf.total && px->live > px->conf.total) {

            /*
             * nearly the oldest: the oldest of the replica with the most
             * blocks
             */

            for (id = 0, k = 0; k < KVS_REPLICAS; k++) {
                if (px->count[k] > px->count[id]) {
                    id = k;
                }
            }

            kvs_prefix_remove(px, px->first[id]);
        }
    }
}


void
kvs_prefix_hold(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    uint32_t replica)
{
    int       new;
    uint32_t  i, id;

    for (i = 0; i < units; i++) {
        id = kvs_prefix_holder(px, chain[i], replica, &new);
        px->holder[id].refs++;
    }
}


void
kvs_prefix_drop(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    uint32_t replica)
{
    uint32_t  i, e, id;

    for (i = 0; i < units; i++) {

        e = *kvs_prefix_slot(px, chain[i]);

        if (e == KVS_NONE || !(kvr_set_test(&px->entry[e].has, replica))) {
            continue;
        }

        for (id = px->entry[e].holder;
             px->holder[id].replica != replica;
             id = px->holder[id].sibling)
        {
            /* void */
        }

        if (--px->holder[id].refs == 0) {
            kvs_prefix_remove(px, id);
        }
    }
}


uint32_t
kvs_prefix_count(const kvs_prefix_t *px, uint32_t replica)
{
    return px->count[replica];
}


void
kvs_prefix_flush(kvs_prefix_t *px, uint32_t replica)
{
    while (px->first[replica] != KVS_NONE) {
        kvs_prefix_remove(px, px->first[replica]);
    }
}
