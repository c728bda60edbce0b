
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DEMAND_H_INCLUDED_
#define _KVR_DEMAND_H_INCLUDED_


/*
 * Tells whether a pool of servers could do all the work, also while it is
 * given only a part of it.
 *
 * It models the queue that would form if the pool were given all of it: each
 * request adds its work, and the servers work all the time.  If the queue
 * grows beyond KVR_DEMAND_MOST, there is more work than they can do, until the
 * queue would have been empty once.  The queue is bounded by KVR_DEMAND_KEPT,
 * which is larger, so a short lull does not change the result.
 *
 * It is one word: the time at which the queue would be empty, in 1/16 ms, and
 * in the lowest bit whether there is too much work.  Processes that write at
 * the same time may lose some work.  All processes share the clock.
 */


#include "core/base/kvr_core.h"


#define KVR_DEMAND_MOST  3000    /* ms */
#define KVR_DEMAND_KEPT  6000
#define KVR_DEMAND_REST  100     /* nearly empty */


typedef _Atomic uint64_t  kvr_demand_t;


/*
 * Adds work; ms: its time.  Returns 1 if there is more than the servers can
 * do.  Memory begins zeroed.
 */
int kvr_demand_add(kvr_demand_t *demand, double ms, uint64_t now);


#endif /* _KVR_DEMAND_H_INCLUDED_ */
