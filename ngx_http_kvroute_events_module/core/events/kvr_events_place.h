
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EVENTS_PLACE_H_INCLUDED_
#define _KVR_EVENTS_PLACE_H_INCLUDED_


/*
 * Depths of blocks in their prompts, for blocks that others may continue.
 *
 * An event names the block before its own, but not how many tokens come before
 * that, and the blocks of a whole cache are too many to keep.  The last blocks
 * of known depth are kept, the youngest first, in buckets of four.
 *
 * The table is in shared memory, written by one process.  Words are
 * independent.  If the process is killed while it moves a word, it is there
 * twice or missing.
 */


#include "core/base/kvr_core.h"


#define KVR_EVENTS_PLACES   64       /* buckets */
#define KVR_EVENTS_WAYS     4

#define KVR_EVENTS_NOWHERE  UINT32_MAX


/* a word: 32 bits of the key, 32 of depth; 0 is free */
typedef struct {
    _Atomic uint64_t   bucket[KVR_EVENTS_PLACES][KVR_EVENTS_WAYS];
} kvr_events_places_t;


/* Returns the depth in tokens of a block's end, or KVR_EVENTS_NOWHERE. */
uint32_t kvr_events_place_find(kvr_events_places_t *p, uint64_t key);

/* Keeps a block. */
void kvr_events_place_keep(kvr_events_places_t *p, uint64_t key,
    uint64_t depth);


#endif /* _KVR_EVENTS_PLACE_H_INCLUDED_ */
