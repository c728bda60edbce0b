
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INFLIGHT_H_INCLUDED_
#define _KVR_INFLIGHT_H_INCLUDED_


/*
 * Inserts of a peer for requests that it has not answered yet.  In shared
 * memory, one ring for each peer.
 *
 * An insert comes before the answer, so that siblings of a burst find it.  Its
 * blocks may not be computed yet: a sibling's miss proves nothing, and a
 * refresh writes these entries again, because the insert can still be undone.
 *
 * A place of the ring has the value and the index of the first new entry of a
 * chain.  The answer frees it, or a later insert replaces it.
 */


#include "core/base/kvr_core.h"


#define KVR_INFLIGHT_MAX  32     /* inserts that are kept */


typedef struct {
    _Atomic uint32_t   hand;     /* the next place */
    _Atomic uint32_t   place[KVR_INFLIGHT_MAX];  /* 0: free */
} kvr_inflight_t;


/*
 * Adds an insert whose chain is new from this entry on.  Returns the argument
 * of kvr_inflight_answered().
 */
uint32_t kvr_inflight_add(kvr_inflight_t *f, const uint64_t *chain,
    uint32_t entry);

/* Removes an insert that was answered or undone; place may be 0. */
void kvr_inflight_answered(kvr_inflight_t *f, uint32_t place);

/* Tells whether an unanswered insert made one of the first n entries. */
int kvr_inflight_any(const kvr_inflight_t *f, const uint64_t *chain,
    uint32_t n);


#endif /* _KVR_INFLIGHT_H_INCLUDED_ */
