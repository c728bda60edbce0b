
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SHARE_INDEX_H_INCLUDED_
#define _KVR_SHARE_INDEX_H_INCLUDED_


/* What hosts publish of their indexes, and apply to them. */


#include "core/index/kvr_index.h"


/* a block or a session, published line by line, in any order */
typedef struct {
    uint64_t           key;
    uint32_t           n;            /* holders that count; 1 for a session */
    unsigned           session:1;
    unsigned           marked:1;     /* kvr_index_tag.h */
    uint16_t           peer[KVR_INDEX_HOLDERS];
    uint32_t           age[KVR_INDEX_HOLDERS];  /* units; s left of a session */
} kvr_share_index_t;


/*
 * Reads a line.  Returns 0 if there is nothing in it, or it is changing.  Peers
 * of its mask have no age there, and are left out.  now: s.
 */
int kvr_share_index_read(kvr_index_t *ix, uint64_t line, uint32_t now,
    kvr_share_index_t *k);

/*
 * Makes the peer a holder of a block. age: units of the peer's clock since the
 * insert.  A younger stamp stays: it may be from before the clock was
 * published.
 */
void kvr_share_index_write(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t age, int marked);

/*
 * Undoes an update: removes the peer from n entries, from "first" on, if they
 * are at most "units" of its clock old.
 */
void kvr_share_index_undo(kvr_index_t *ix, const uint64_t *value,
    uint32_t first, uint32_t n, uint32_t units, unsigned peer);

/* Returns the units that the peer has computed since its floor. */
uint64_t kvr_share_index_units(kvr_index_t *ix, unsigned peer);

/*
 * Another host has counted these units since the floor.  Moves the clock to
 * that number if it is far above the own one, or above it at all and this
 * table is new: else the next update could lie deeper in a prompt than the
 * clock is.
 */
void kvr_share_index_advance(kvr_index_t *ix, unsigned peer, uint64_t units,
    int new);

/* Returns until when a session is bound, as last published; 0: it is not. */
uint32_t kvr_share_index_expires(kvr_index_t *ix, uint64_t key);

/*
 * Binds a session as published.  All hosts read the bindings in one order.
 * The first one of a session counts; a later one counts only if its host has
 * moved the session on purpose.
 */
void kvr_share_index_bind(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t generation, uint32_t expires, uint32_t now, int moved);


/* Returns the first published entry from an entry on, except for the last. */
static inline uint32_t
kvr_share_index_next(uint32_t from)
{
    return from + (KVR_INDEX_PUBLISHED + KVR_INDEX_PUBLISHED_AT
                   - from % KVR_INDEX_PUBLISHED)
                  % KVR_INDEX_PUBLISHED;
}


/* Returns how many of from..end - 1 are published. */
static inline uint32_t
kvr_share_index_count(uint32_t from, uint32_t end)
{
    uint32_t  n, before;

    if (from >= end) {
        return 0;
    }

    before = KVR_INDEX_PUBLISHED - KVR_INDEX_PUBLISHED_AT - 1;

    n = (end + before) / KVR_INDEX_PUBLISHED
        - (from + before) / KVR_INDEX_PUBLISHED;

    return n + ((end - 1) % KVR_INDEX_PUBLISHED != KVR_INDEX_PUBLISHED_AT);
}


#endif /* _KVR_SHARE_INDEX_H_INCLUDED_ */
