
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HEAP_H_INCLUDED_
#define _KVR_HEAP_H_INCLUDED_


/*
 * A pairing heap of waiting requests by due, linked through the items: what
 * kvr_queue.c keeps for each tenant of a class.
 */


#include "core/queue/kvr_queue.h"


/* one heap out of two, either of which may be NULL */
kvr_queue_item_t *kvr_heap_meld(kvr_queue_item_t *a, kvr_queue_item_t *b);

/* one heap out of a list of siblings, such as the children of a root */
kvr_queue_item_t *kvr_heap_pairs(kvr_queue_item_t *list);

/*
 * Those of a heap that are due before a moment, the first of all among them in
 * any case, and at the front: up to n, from 1, after a look at so many more of
 * them.  Those behind are in no order.
 */
uint32_t kvr_heap_before(kvr_queue_item_t *heap, uint32_t due,
    kvr_queue_item_t **item, uint32_t n);


#endif /* _KVR_HEAP_H_INCLUDED_ */
