
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RETENTION_H_INCLUDED_
#define _KVR_RETENTION_H_INCLUDED_


/*
 * How old what a peer was taught may be until it is no longer delivered: the
 * capacity of its cache, in units of its clock, as its responses tell it.
 *
 * Each response whose prompt the peer had been taught is one observation: the
 * deepest block had this age, and was delivered or not.  They are counted by
 * age, four classes to a doubling; the retention is the age that divides them
 * best: as many as can be were delivered before it and lost after it.  Few
 * observations say nothing, nor does an engine that has never delivered
 * anything: it may put a 0 there whatever it has.  What was assumed then
 * stands.
 *
 * Peers of one upstream are alike, mostly, and each sees little: so they are
 * counted together.  But where what one of them has seen is divided better, by
 * as much as proves something, at another age, that is its own.
 *
 * What no longer counts as held is observed as well, as long as its line is
 * there: so the retention can also move out again.
 *
 * In shared memory, one for each peer; a word for each class, so that what two
 * processes note at once may be lost, and nothing else.
 */


#include "core/base/kvr_core.h"


#define KVR_RETENTION_FIRST    8     /* 2^8 units are the first class's */
#define KVR_RETENTION_CLASSES  76    /* up to 2^27 units */
#define KVR_RETENTION_ENOUGH   4     /* losses that prove something */


typedef struct {
    _Atomic uint32_t   seen[KVR_RETENTION_CLASSES];  /* delivered, lost << 16 */
} kvr_retention_t;


/* a block of this age, in units, was delivered, or had been lost */
void kvr_retention_note(kvr_retention_t *h, uint32_t age, int delivered);

/* the age in units from which on blocks are lost; 0: not known */
uint32_t kvr_retention_get(const kvr_retention_t *h);

/* adds what was seen of one peer to a sum, of KVR_INDEX_PEERS at most */
void kvr_retention_add(kvr_retention_t *sum, const kvr_retention_t *h);

/*
 * The same for a peer among others that are likely to be alike, of which, its
 * own included, sum is all that was seen: theirs, unless what was seen of it
 * alone says that it is another.
 */
uint32_t kvr_retention_among(const kvr_retention_t *h,
    const kvr_retention_t *sum);


#endif /* _KVR_RETENTION_H_INCLUDED_ */
