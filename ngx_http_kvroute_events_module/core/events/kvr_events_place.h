
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EVENTS_PLACE_H_INCLUDED_
#define _KVR_EVENTS_PLACE_H_INCLUDED_


/*
 * How deep in their prompts blocks are, for those from which others may go on.
 *
 * An event names the block that comes before its own.  How many tokens come
 * before that is not said, and cannot be looked up for all blocks of a cache.
 * But prompts go on where others ended, or leave where others have left: so the
 * last block of each event is kept, and all blocks of the events that begin a
 * prompt, as far as there is room.
 *
 * * Buckets of four words, the youngest first.  At most two are last blocks:
 * further ones take the place of the oldest of these.  Otherwise the one goes
 * from which nobody has gone on, or one only: several go on from the end of a
 * system prompt, and that is to stay.
 *
 * In shared memory, written by one process.  A word stands for itself; the one
 * that is being moved when the process is killed is there twice, or not at all.
 */


#include "core/base/kvr_core.h"


#define KVR_EVENTS_PLACES   64       /* buckets */
#define KVR_EVENTS_WAYS     4

#define KVR_EVENTS_NOWHERE  UINT32_MAX


typedef struct {
    _Atomic uint64_t   bucket[KVR_EVENTS_PLACES][KVR_EVENTS_WAYS];
} kvr_events_places_t;


/* the depth in tokens of the end of a block; KVR_EVENTS_NOWHERE: not known */
uint32_t kvr_events_place_find(kvr_events_places_t *p, uint64_t key);

/* keeps it, if there is room; tip: it is the last one of an event */
void kvr_events_place_keep(kvr_events_places_t *p, uint64_t key,
    uint64_t depth, int tip);


#endif /* _KVR_EVENTS_PLACE_H_INCLUDED_ */
