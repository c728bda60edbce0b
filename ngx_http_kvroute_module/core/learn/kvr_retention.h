
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RETENTION_H_INCLUDED_
#define _KVR_RETENTION_H_INCLUDED_


/*
 * The age at which a peer no longer delivers a block: the capacity of its
 * cache, in units of its clock, learned from its responses.
 *
 * Each response to a prompt that was inserted for the peer before is one
 * observation: its deepest block had this age, and was delivered or lost.
 * Observations are counted by age, four classes to a doubling.  The retention
 * is the age that divides them best: most were delivered below it and lost
 * above it.  With few observations it is unknown, and also if the engine has
 * never delivered anything, since it may always report 0.  Then the assumed
 * capacity counts.
 *
 * The peers of an upstream are mostly alike, and each has few observations, so
 * these are added up.  A peer has its own retention if its own observations are
 * divided significantly better by another age.
 *
 * Blocks that no longer count as held are observed too, as long as their lines
 * exist, so the retention can grow again.
 *
 * In shared memory, one for each peer, with a word for each class: of two
 * processes that write at once one observation can be lost, and nothing else.
 */


#include "core/base/kvr_core.h"


#define KVR_RETENTION_FIRST    8     /* the first class ends at 2^8 units */
#define KVR_RETENTION_CLASSES  76    /* up to 2^27 units */
#define KVR_RETENTION_ENOUGH   4     /* losses that are significant */


typedef struct {
    _Atomic uint16_t   seen[KVR_RETENTION_CLASSES];  /* delivered, lost << 8 */
} kvr_retention_t;


/* observations of several peers: delivered less lost */
typedef struct {
    int32_t            worth[KVR_RETENTION_CLASSES];
} kvr_retention_sum_t;


/* Adds an observation: a block of this age, in units. */
void kvr_retention_note(kvr_retention_t *h, uint32_t age, int delivered);

/* Returns the age in units from which on blocks are lost; 0: unknown. */
uint32_t kvr_retention_get(const kvr_retention_t *h);

/* Adds the observations of one peer to a sum, which starts zeroed. */
void kvr_retention_add(kvr_retention_sum_t *sum, const kvr_retention_t *h);

/* Returns the same for a sum. */
uint32_t kvr_retention_all(const kvr_retention_sum_t *sum);

/*
 * Whether blocks older than this are delivered: as many of them, up to some
 * age, as prove something.
 */
int kvr_retention_beyond(const kvr_retention_sum_t *sum, uint32_t age);

/*
 * Returns the same for a peer whose observations, and those of peers that are
 * likely to be alike, are in sum: theirs, unless its own are divided
 * significantly better elsewhere.
 */
uint32_t kvr_retention_among(const kvr_retention_t *h,
    const kvr_retention_sum_t *sum);


#endif /* _KVR_RETENTION_H_INCLUDED_ */
