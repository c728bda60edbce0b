
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HEAP_H_INCLUDED_
#define _KVR_HEAP_H_INCLUDED_


/*
 * A pairing heap of waiting requests by due, linked through the items: what
 * kvr_queue.c keeps for each tenant of a class.
 */


#include "kvr_queue.h"


/* one heap out of two, either of which may be NULL */
kvr_queue_item_t *kvr_heap_meld(kvr_queue_item_t *a, kvr_queue_item_t *b);

/* one heap out of a list of siblings, such as the children of a root */
kvr_queue_item_t *kvr_heap_pairs(kvr_queue_item_t *list);


#endif /* _KVR_HEAP_H_INCLUDED_ */
