
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EVENTS_PLACE_H_INCLUDED_
#define _KVR_EVENTS_PLACE_H_INCLUDED_


/*
 * Depths of blocks in their prompts, for blocks that others may continue.
 *
 * An event names the block before its own, but not how many tokens come before
 * that, and the blocks of a whole cache are too many to keep.  Prompts
 * continue where others ended, or branch where others have branched.  So the
 * last block of each event is kept, and all blocks of events that begin a
 * prompt, as far as there is room.
 *
 * Buckets have four words, the youngest first.  At most two are last blocks of
 * events; further ones replace the oldest of these.  Otherwise a block is
 * replaced that none or only one has continued: several requests continue from
 * the end of a system prompt, which must stay.
 *
 * The table is in shared memory, written by one process.  Words are
 * independent.  If the process is killed while it moves a word, it is there
 * twice or missing.
 */


#include "core/base/kvr_core.h"


#define KVR_EVENTS_PLACES   64       /* buckets */
#define KVR_EVENTS_WAYS     4

#define KVR_EVENTS_NOWHERE  UINT32_MAX


typedef struct {
    _Atomic uint64_t   bucket[KVR_EVENTS_PLACES][KVR_EVENTS_WAYS];
} kvr_events_places_t;


/* Returns the depth in tokens of a block's end, or KVR_EVENTS_NOWHERE. */
uint32_t kvr_events_place_find(kvr_events_places_t *p, uint64_t key);

/* Keeps a block, if there is room.  tip: it is the last one of an event. */
void kvr_events_place_keep(kvr_events_places_t *p, uint64_t key,
    uint64_t depth, int tip);


#endif /* _KVR_EVENTS_PLACE_H_INCLUDED_ */
