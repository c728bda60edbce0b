#include <stdlib.h>
#include <string.h>

#include "blocks.h"


#define KVE_BLOCK_HASHED   1
#define KVE_BLOCK_RETIRED  4
#define KVE_BLOCK_MARKED   8


typedef struct {
    uint64_t            hash;
    uint32_t            refs;
    uint32_t            prev;       /* LRU list, free blocks only */
    uint32_t            next;
    uint32_t            chain;      /* same bucket of the hash table */
    uint32_t            flags;
} kve_block_t;


struct kve_blocks_s {
    kve_block_t        *block;      /* [slots] */
    uint32_t           *bucket;
    uint32_t            slots;
    uint32_t            shift;      /* 64 - log2(buckets) */
    uint32_t            total;      /* as requested by resize */
    uint32_t            live;       /* not retired */
    uint32_t            nfree;
    uint32_t            head;       /* next victim */
    uint32_t            tail;       /* most recently used */
    uint32_t            retired;    /* singly linked by "next" */
    kve_blocks_removed_pt  removed;
    void               *data;
};


static int kve_blocks_table(kve_blocks_t *b);
static void kve_blocks_forget(kve_blocks_t *b, uint32_t id);
static void kve_blocks_push(kve_blocks_t *b, uint32_t id, int front);
static void kve_blocks_unlink(kve_blocks_t *b, uint32_t id);
static int kve_blocks_grow(kve_blocks_t *b, uint32_t slots);


static inline uint32_t
kve_blocks_slot(const kve_blocks_t *b, uint64_t key)
{
    /* callers can use small numbers as hashes, so they are spread first */

    return (uint32_t) ((key * UINT64_C(0x9e3779b97f4a7c15)) >> b->shift);
}


kve_blocks_t *
kve_blocks_create(uint32_t total)
{
    kve_blocks_t  *b;

    b = calloc(1, sizeof(kve_blocks_t));
    if (b == NULL) {
        return NULL;
    }

    b->head = KVE_BLOCK_NONE;
    b->tail = KVE_BLOCK_NONE;
    b->retired = KVE_BLOCK_NONE;

    if (kve_blocks_resize(b, total) != 0) {
        kve_blocks_destroy(b);
        return NULL;
    }

    return b;
}


void
kve_blocks_destroy(kve_blocks_t *b)
{
    if (b == NULL) {
        return;
    }

    free(b->block);
    free(b->bucket);
    free(b);
}


void
kve_blocks_watch(kve_blocks_t *b, kve_blocks_removed_pt removed, void *data)
{
    b->removed = removed;
    b->data = data;
}


void
kve_blocks_clear(kve_blocks_t *b)
{
    uint32_t  i;

    for (i = 0; i < b->slots; i++) {
        b->block[i].flags &= KVE_BLOCK_RETIRED;
    }

    memset(b->bucket, 0xff, sizeof(uint32_t) << (64 - b->shift));
}


int
kve_blocks_resize(kve_blocks_t *b, uint32_t total)
{
    uint32_t  id;

    if (total > b->slots && kve_blocks_grow(b, total) != 0) {
        return -1;
    }

    b->total = total;

    while (b->live > total && b->head != KVE_BLOCK_NONE) {
        id = b->head;
        kve_blocks_unlink(b, id);
        kve_blocks_forget(b, id);
        b->block[id].flags = KVE_BLOCK_RETIRED;
        b->block[id].next = b->retired;
        b->retired = id;
        b->live--;
    }

    while (b->live < total) {
        id = b->retired;
        b->retired = b->block[id].next;
        b->block[id].flags = 0;
        b->live++;
        kve_blocks_push(b, id, 1);
    }

    return 0;
}


static int
kve_blocks_grow(kve_blocks_t *b, uint32_t slots)
{
    uint32_t       i;
    kve_block_t   *block;

    block = realloc(b->block, slots * sizeof(kve_block_t));
    if (block == NULL) {
        return -1;
    }

    b->block = block;

    for (i = slots; i-- > b->slots; /* void */ ) {
        memset(&b->block[i], 0, sizeof(kve_block_t));
        b->block[i].flags = KVE_BLOCK_RETIRED;
        b->block[i].next = b->retired;
        b->retired = i;
    }

    b->slots = slots;

    return kve_blocks_table(b);
}


static int
kve_blocks_table(kve_blocks_t *b)
{
    uint32_t   i, bits, slot, *bucket;

    for (bits = 4; bits < 31 && (UINT32_C(1) << bits) < b->slots * 2u; bits++) {
        /* void */
    }

    bucket = malloc(sizeof(uint32_t) << bits);

    if (bucket == NULL) {
        return -1;
    }

    memset(bucket, 0xff, sizeof(uint32_t) << bits);

    free(b->bucket);

    b->bucket = bucket;
    b->shift = 64 - bits;

    for (i = 0; i < b->slots; i++) {

        if (b->block[i].flags & KVE_BLOCK_HASHED) {
            slot = kve_blocks_slot(b, b->block[i].hash);
            b->block[i].chain = bucket[slot];
            bucket[slot] = i;
        }
    }

    return 0;
}


uint32_t
kve_blocks_find(const kve_blocks_t *b, uint64_t hash)
{
    uint32_t  id;

    id = b->bucket[kve_blocks_slot(b, hash)];

    while (id != KVE_BLOCK_NONE && b->block[id].hash != hash) {
        id = b->block[id].chain;
    }

    return id;
}


int
kve_blocks_is_held(const kve_blocks_t *b, uint32_t id)
{
    return b->block[id].refs != 0;
}


void
kve_blocks_mark(kve_blocks_t *b, uint32_t id)
{
    b->block[id].flags |= KVE_BLOCK_MARKED;
}


int
kve_blocks_is_marked(const kve_blocks_t *b, uint32_t id)
{
    return (b->block[id].flags & KVE_BLOCK_MARKED) != 0;
}


void
kve_blocks_touch(kve_blocks_t *b, uint64_t hash)
{
    uint32_t  id;

    id = kve_blocks_find(b, hash);

    if (id != KVE_BLOCK_NONE) {
        kve_blocks_hold(b, id);

    } else {
        id = kve_blocks_alloc(b);
        (void) kve_blocks_name(b, id, hash);
    }

    kve_blocks_release(b, id);
}


uint32_t
kve_blocks_alloc(kve_blocks_t *b)
{
    uint32_t  id;

    id = b->head;

    if (id == KVE_BLOCK_NONE) {
        return KVE_BLOCK_NONE;
    }

    kve_blocks_unlink(b, id);
    kve_blocks_forget(b, id);
    b->block[id].refs = 1;

    return id;
}


int
kve_blocks_name(kve_blocks_t *b, uint32_t id, uint64_t hash)
{
    uint32_t      slot, other;
    kve_block_t  *block;

    block = &b->block[id];

    if (block->flags & KVE_BLOCK_HASHED) {
        return 0;
    }

    slot = kve_blocks_slot(b, hash);

    for (other = b->bucket[slot];
         other != KVE_BLOCK_NONE;
         other = b->block[other].chain)
    {
        if (b->block[other].hash == hash) {
            return 0;
        }
    }

    block->hash = hash;
    block->flags |= KVE_BLOCK_HASHED;
    block->chain = b->bucket[slot];
    b->bucket[slot] = id;

    return 1;
}


static void
kve_blocks_forget(kve_blocks_t *b, uint32_t id)
{
    uint32_t     *link;
    kve_block_t  *block;

    block = &b->block[id];

    if (block->flags & KVE_BLOCK_HASHED) {
        link = &b->bucket[kve_blocks_slot(b, block->hash)];

        while (*link != id) {
            link = &b->block[*link].chain;
        }

        *link = block->chain;

        if (b->removed) {
            b->removed(b->data, block->hash);
        }
    }

    block->flags = 0;
}


void
kve_blocks_hold(kve_blocks_t *b, uint32_t id)
{
    if (b->block[id].refs++ == 0) {
        kve_blocks_unlink(b, id);
    }
}


void
kve_blocks_release(kve_blocks_t *b, uint32_t id)
{
    if (--b->block[id].refs != 0) {
        return;
    }

    if (b->live > b->total) {
        kve_blocks_forget(b, id);
        b->block[id].flags = KVE_BLOCK_RETIRED;
        b->block[id].next = b->retired;
        b->retired = id;
        b->live--;
        return;
    }

    /* a nameless block cannot be found again: it is evicted first */

    kve_blocks_push(b, id, !(b->block[id].flags & KVE_BLOCK_HASHED));
}


static void
kve_blocks_push(kve_blocks_t *b, uint32_t id, int front)
{
    kve_block_t  *block;

    block = &b->block[id];

    if (front) {
        block->prev = KVE_BLOCK_NONE;
        block->next = b->head;

        if (b->head != KVE_BLOCK_NONE) {
            b->block[b->head].prev = id;

        } else {
            b->tail = id;
        }

        b->head = id;

    } else {
        block->next = KVE_BLOCK_NONE;
        block->prev = b->tail;

        if (b->tail != KVE_BLOCK_NONE) {
            b->block[b->tail].next = id;

        } else {
            b->head = id;
        }

        b->tail = id;
    }

    b->nfree++;
}


static void
kve_blocks_unlink(kve_blocks_t *b, uint32_t id)
{
    kve_block_t  *block;

    block = &b->block[id];

    if (block->prev != KVE_BLOCK_NONE) {
        b->block[block->prev].next = block->next;

    } else {
        b->head = block->next;
    }

    if (block->next != KVE_BLOCK_NONE) {
        b->block[block->next].prev = block->prev;

    } else {
        b->tail = block->prev;
    }

    b->nfree--;
}


uint32_t
kve_blocks_total(const kve_blocks_t *b)
{
    return b->total;
}


uint32_t
kve_blocks_free(const kve_blocks_t *b)
{
    return b->nfree;
}


uint32_t
kve_blocks_held(const kve_blocks_t *b)
{
    return b->live - b->nfree;
}


uint32_t
kve_blocks_next_victim(const kve_blocks_t *b, uint32_t i)
{
    uint32_t  id;

    id = b->head;

    while (id != KVE_BLOCK_NONE && i--) {
        id = b->block[id].next;
    }

    return id;
}


int
kve_blocks_hash(const kve_blocks_t *b, uint32_t id, uint64_t *hash)
{
    if (!(b->block[id].flags & KVE_BLOCK_HASHED)) {
        return 0;
    }

    *hash = b->block[id].hash;

    return 1;
}


int
kve_blocks_check(const kve_blocks_t *b)
{
    uint32_t  i, id, prev, nfree, retired, named, found, buckets;

    nfree = 0;
    retired = 0;
    named = 0;
    found = 0;
    prev = KVE_BLOCK_NONE;

    for (id = b->head; id != KVE_BLOCK_NONE; id = b->block[id].next) {

        if (b->block[id].refs != 0
            || b->block[id].prev != prev
            || (b->block[id].flags & KVE_BLOCK_RETIRED)
            || ++nfree > b->slots)
        {
            return -1;
        }

        prev = id;
    }

    if (prev != b->tail || nfree != b->nfree) {
        return -2;
    }

    for (i = 0; i < b->slots; i++) {

        if (b->block[i].flags & KVE_BLOCK_RETIRED) {
            retired++;
        }

        if (b->block[i].flags & KVE_BLOCK_HASHED) {
            named++;

            if (kve_blocks_find(b, b->block[i].hash) != i) {
                return -3;
            }
        }
    }

    if (b->live + retired != b->slots) {
        return -4;
    }

    buckets = UINT32_C(1) << (64 - b->shift);

    for (i = 0; i < buckets; i++) {
        for (id = b->bucket[i];
             id != KVE_BLOCK_NONE;
             id = b->block[id].chain)
        {
            found++;
        }
    }

    return found == named ? 0 : -5;
}
