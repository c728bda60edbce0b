
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RETENTION_H_INCLUDED_
#define _KVR_RETENTION_H_INCLUDED_


/*
 * How old a block may be before a peer no longer delivers it: the capacity of
 * its cache, in units of its clock, as its responses tell it.
 *
 * Each response to a prompt that was inserted for the peer before is one
 * observation: the deepest block had this age, and was delivered or not.  The
 * observations are counted by age, four classes to a doubling.  The retention
 * is the age that divides them best: as many as can be were delivered below it
 * and lost above it.  Few observations say nothing.  Nor does an engine that
 * has never delivered anything: it may write a 0 whatever it has.  In both
 * cases the assumed capacity stands.
 *
 * The peers of an upstream are mostly alike, and each sees little: so they are
 * counted together.  A peer has a retention of its own where another age
 * divides its own observations better, by as much as proves something.
 *
 * A block that no longer counts as held is observed as well, as long as its
 * line is there: so the retention can also grow again.
 *
 * In shared memory, one for each peer; a word for each class, so that what two
 * processes note at once may be lost, and nothing else.
 */


#include "core/base/kvr_core.h"


#define KVR_RETENTION_FIRST    8     /* 2^8 units are the first class's */
#define KVR_RETENTION_CLASSES  76    /* up to 2^27 units */
#define KVR_RETENTION_ENOUGH   4     /* losses that prove something */


typedef struct {
    _Atomic uint16_t   seen[KVR_RETENTION_CLASSES];  /* delivered, lost << 8 */
} kvr_retention_t;


/* what was seen of several peers: delivered less lost */
typedef struct {
    int32_t            worth[KVR_RETENTION_CLASSES];
} kvr_retention_sum_t;


/* a block of this age, in units, was delivered, or had been lost */
void kvr_retention_note(kvr_retention_t *h, uint32_t age, int delivered);

/* the age in units from which on blocks are lost; 0: not known */
uint32_t kvr_retention_get(const kvr_retention_t *h);

/* adds what was seen of one peer to a sum, which begins zeroed */
void kvr_retention_add(kvr_retention_sum_t *sum, const kvr_retention_t *h);

/* the same as kvr_retention_get() */
uint32_t kvr_retention_all(const kvr_retention_sum_t *sum);

/*
 * The same for a peer among others that are likely to be alike, of which, its
 * own included, sum is all that was seen: theirs, unless what was seen of it
 * alone says that it is another.
 */
uint32_t kvr_retention_among(const kvr_retention_t *h,
    const kvr_retention_sum_t *sum);


#endif /* _KVR_RETENTION_H_INCLUDED_ */
