
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HEAP_H_INCLUDED_
#define _KVR_HEAP_H_INCLUDED_


/*
 * A pairing heap of waiting requests by due, linked through the items; one for
 * each tenant of a class.
 */


#include "core/queue/kvr_queue.h"


/* Melds two heaps, either of which may be NULL. */
kvr_queue_item_t *kvr_heap_meld(kvr_queue_item_t *a, kvr_queue_item_t *b);

/* Makes one heap of a list of siblings, such as the children of a root. */
kvr_queue_item_t *kvr_heap_pairs(kvr_queue_item_t *list);

/*
 * Finds up to n items of a heap, n from 1: its root, always first, then items
 * due before a moment, in no order.  Examines at most a few times n items.
 */
uint32_t kvr_heap_before(kvr_queue_item_t *heap, uint32_t due,
    kvr_queue_item_t **item, uint32_t n);


#endif /* _KVR_HEAP_H_INCLUDED_ */
