
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INDEX_MASK_H_INCLUDED_
#define _KVR_INDEX_MASK_H_INCLUDED_


/* Masks of lines: holders without a slot, and whether they still count. */


#include "core/index/kvr_index_table.h"


/* a peer's bit in a mask */
#define kvr_mask_bit(peer)  kvr_set_bit(peer)


/* ages computed once for a lookup, where a bit stands for one peer */
typedef struct {
    kvr_set_t          ready;        /* peers in expire[] */
    uint64_t           now;          /* table's clock */
    uint32_t           expire[KVR_PEERS];  /* kvr_mask_expire() */
} kvr_mask_view_t;


/*
 * Returns the mask of a line.  Sets *masked to the peers of a set that it
 * names and that still count for a block of this depth, in units. *below: up
 * to which depth a further peer could count for a block with the same mask; 0:
 * none could.
 */
uint64_t kvr_mask_read(kvr_index_t *ix, kvr_index_line_t *line,
    const kvr_set_t *set, uint32_t depth, kvr_mask_view_t *view,
    kvr_set_t *masked, uint32_t *below);

/* Tells whether any peer of a mask still counts. */
int kvr_mask_counts(kvr_index_t *ix, uint64_t mask, uint32_t masked);

/* Returns the age of a mask at which a peer in it no longer counts. */
uint32_t kvr_mask_expire(kvr_index_t *ix, unsigned peer, uint64_t now);

/* Updates a peer's kvr_index_mask_t, if there are more than 64 peers. */
void kvr_mask_mark(kvr_index_t *ix, unsigned peer);


#endif /* _KVR_INDEX_MASK_H_INCLUDED_ */
