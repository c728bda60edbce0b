
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INFLIGHT_H_INCLUDED_
#define _KVR_INFLIGHT_H_INCLUDED_


/*
 * The inserts of a peer that are in flight: made for requests that the peer has
 * not answered yet.  In shared memory, one ring for each peer.
 *
 * An insert comes before the answer, so that siblings of a burst find it.  What
 * it says may not be computed yet: a miss of a sibling proves nothing, and what
 * is in flight is not left out by a refresh, as it may still be undone.
 *
 * A place of the ring names the first new entry of a chain by its value and its
 * index.  It is freed by the answer, or taken by a later insert.
 */


#include "core/base/kvr_core.h"


#define KVR_INFLIGHT_MAX  32     /* inserts that are remembered */


typedef struct {
    _Atomic uint32_t   hand;     /* the next place */
    _Atomic uint32_t   place[KVR_INFLIGHT_MAX];  /* 0: free */
} kvr_inflight_t;


/*
 * An insert is made: its chain is new from this entry on.  Returns what
 * kvr_inflight_answered() takes.
 */
uint32_t kvr_inflight_add(kvr_inflight_t *f, const uint64_t *chain,
    uint32_t entry);

/* the peer answered, or the insert was undone; place may be 0 */
void kvr_inflight_answered(kvr_inflight_t *f, uint32_t place);

/* whether an insert in flight made any of the first n entries of a chain */
int kvr_inflight_any(const kvr_inflight_t *f, const uint64_t *chain,
    uint32_t n);


#endif /* _KVR_INFLIGHT_H_INCLUDED_ */
