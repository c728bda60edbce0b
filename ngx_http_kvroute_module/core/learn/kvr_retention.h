
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RETENTION_H_INCLUDED_
#define _KVR_RETENTION_H_INCLUDED_


/*
 * Learns from responses at which age a peer loses blocks.  An age is a number
 * of units of the peer's clock.  This age, the retention, is the capacity of
 * its cache.
 *
 * A response to a prompt that the peer was sent before is one observation: its
 * deepest block had some age, and the peer delivered it or had lost it.  Each
 * class of ages counts both; four classes make a doubling.
 *
 * A retention explains an observation if a younger block was delivered or an
 * older one was lost.  The retention that explains most observations is taken.
 * If it explains few more than "nothing is ever lost" does, it is unknown.  It
 * is also unknown if the peer never delivered anything: such an engine may
 * always report 0.  Then the assumed capacity counts.
 *
 * Peers of an upstream are mostly alike, and one peer has few observations.
 * So the observations of all peers are added.  A peer has a retention of its
 * own if that explains its observations significantly better.
 *
 * The index keeps some blocks that are too old to count as held.  These are
 * observed too, so the retention can rise.
 *
 * Shared memory has one structure for each peer and one word for each class.
 * If two processes write a word at once, one observation is lost.
 */


#include "core/base/kvr_core.h"


#define KVR_RETENTION_FIRST    8     /* the first class ends at 2^8 units */
#define KVR_RETENTION_CLASSES  76    /* up to 2^27 units */
#define KVR_RETENTION_ENOUGH   4     /* observations that are significant */


typedef struct {
    _Atomic uint16_t   seen[KVR_RETENTION_CLASSES];  /* delivered, lost << 8 */
} kvr_retention_t;


/* for each class of ages: blocks delivered less blocks lost */
typedef struct {
    int32_t            worth[KVR_RETENTION_CLASSES];
} kvr_retention_sum_t;


/* Counts a block of this age, in units, as delivered or lost. */
void kvr_retention_note(kvr_retention_t *h, uint32_t age, int delivered);

/* Returns the retention of one peer in units; 0: unknown. */
uint32_t kvr_retention_get(const kvr_retention_t *h);

/* Adds the observations of a peer to a sum, which starts zeroed. */
void kvr_retention_add(kvr_retention_sum_t *sum, const kvr_retention_t *h);

/* Returns the retention of all peers in a sum; 0: unknown. */
uint32_t kvr_retention_all(const kvr_retention_sum_t *sum);

/*
 * Tells whether the peers in a sum deliver blocks older than this.  There must
 * be an age up to which significantly more of these were delivered than lost.
 */
int kvr_retention_beyond(const kvr_retention_sum_t *sum, uint32_t age);

/*
 * Returns the retention of a peer in units; 0: unknown.  The sum has its own
 * observations and those of its upstream's other peers.  It is that of the sum,
 * unless another one explains the peer's own observations significantly better.
 */
uint32_t kvr_retention_among(const kvr_retention_t *h,
    const kvr_retention_sum_t *sum);


#endif /* _KVR_RETENTION_H_INCLUDED_ */
