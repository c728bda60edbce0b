
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
 * Makes the peer a holder of a block, which was inserted so many units of the
 * peer's clock ago.  A younger stamp stays: it may be from before the clock was
 * published.
 */
void kvr_share_index_write(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t age, int marked);

/*
 * Undoes an update: the peer holds none of n entries from "first" on, if its
 * clock has moved by at most so many units since.
 */
void kvr_share_index_undo(kvr_index_t *ix, const uint64_t *value,
    uint32_t first, uint32_t n, uint32_t units, unsigned peer);

/* Returns the units that the peer has computed since its floor. */
uint64_t kvr_share_index_units(kvr_index_t *ix, unsigned peer);

/*
 * Another host has counted so many.  Moves the clock there if that is far more
 * than here, or any more and this table is new: the next update may lie deeper
 * in a prompt than the clock could tell.
 */
void kvr_share_index_advance(kvr_index_t *ix, unsigned peer, uint64_t units,
    int new);

/* Returns until when a session is bound, as last published; 0: it is not. */
uint32_t kvr_share_index_expires(kvr_index_t *ix, uint64_t key);

/*
 * Binds a session as published.  All hosts read this in one order, and the
 * first that binds a session has bound it: a later one counts only if it has
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
