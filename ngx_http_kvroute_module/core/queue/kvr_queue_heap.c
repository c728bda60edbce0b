
/*
 * Copyright (C) kvroute contributors
 */


#include "core/queue/kvr_queue_heap.h"


/* items examined for each one that is wanted */
#define KVR_HEAP_LOOKS  4


kvr_queue_item_t *
kvr_heap_meld(kvr_queue_item_t *a, kvr_queue_item_t *b)
{
    kvr_queue_item_t  *t;

    if (a == NULL || b == NULL) {
        return a ? a : b;
    }

    if ((int32_t) (b->due - a->due) < 0) {
        t = a;
        a = b;
        b = t;
    }

    /* b becomes the first child of a */

    b->prev = a;
    b->next = a->child;

    if (b->next) {
        b->next->prev = b;
    }

    a->child = b;
    a->prev = NULL;
    a->next = NULL;

    return a;
}


/* Melds siblings in pairs, and the pairs from the last one on. */
kvr_queue_item_t *
kvr_heap_pairs(kvr_queue_item_t *list)
{
    kvr_queue_item_t  *a, *b, *next, *done;

    done = NULL;

    while (list) {
        a = list;
        b = a->next;
        next = b ? b->next : NULL;

        a->next = NULL;
        a->prev = NULL;

        if (b) {
            b->next = NULL;
            b->prev = NULL;
        }

        a = kvr_heap_meld(a, b);

        a->next = done;
        done = a;
        list = next;
    }

    a = NULL;

    while (done) {
        next = done->next;
        done->next = NULL;
        a = kvr_heap_meld(a, done);
        done = next;
    }

    return a;
}


uint32_t
kvr_heap_before(kvr_queue_item_t *heap, uint32_t due, kvr_queue_item_t **item,
    uint32_t n)
{
    uint32_t           i, k, looks;
    kvr_queue_item_t  *child;

    item[0] = heap;
    looks = KVR_HEAP_LOOKS * n;

    for (i = 0, k = 1; i < k && k < n; i++) {

        for (child = item[i]->child;
             child && k < n && looks > 0;
             child = child->next, looks--)
        {
            if ((int32_t) (child->due - due) < 0) {
                item[k++] = child;
            }
        }
    }

    return k;
}
