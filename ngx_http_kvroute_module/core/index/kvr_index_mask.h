
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INDEX_MASK_H_INCLUDED_
#define _KVR_INDEX_MASK_H_INCLUDED_


/* Masks of lines: the holders that have no slot, and whether they still count. */


#include "core/index/kvr_index_table.h"


/* a peer's bit in a mask */
#define kvr_mask_bit(peer)  kvr_set_bit(peer)


/* what was reckoned for one look-up, where a bit stands for one peer */
typedef struct {
    kvr_set_t          ready;        /* peers in expire[] */
    uint64_t           now;          /* table's clock */
    uint32_t           expire[KVR_PEERS];  /* age at which it forgot */
} kvr_mask_view_t;


/*
 * The mask of a line, and of a set those that it stands for and that still
 * count; depth: of its block, in units.  *below: a block with the same mask must
 * be at that depth or before for another one to count, in units; 0: none would.
 */
uint64_t kvr_mask_read(kvr_index_t *ix, kvr_index_line_t *line,
    const kvr_set_t *set, uint32_t depth, kvr_mask_view_t *view,
    kvr_set_t *masked, uint32_t *below);

/* whether any of those that a mask stands for still counts */
int kvr_mask_counts(kvr_index_t *ix, uint64_t mask, uint32_t masked);

/* the age of a mask at which a peer in it no longer counts */
uint32_t kvr_mask_expire(kvr_index_t *ix, unsigned peer, uint64_t now);

/* reckons what masks are asked of a peer, if there are that many peers */
void kvr_mask_mark(kvr_index_t *ix, unsigned peer);


#endif /* _KVR_INDEX_MASK_H_INCLUDED_ */
