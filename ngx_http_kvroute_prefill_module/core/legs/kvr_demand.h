
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DEMAND_H_INCLUDED_
#define _KVR_DEMAND_H_INCLUDED_


/*
 * Whether servers could do all the work that there is for them, whatever part of
 * it they are given.
 *
 * It is the queue that there would be if they were given all of it: what comes
 * is added, and they work on it all the time.  A queue that grows beyond
 * KVR_DEMAND_MOST says that there is more work than they can do, until it would
 * have been empty once.  It is kept up to KVR_DEMAND_KEPT, which is more: a lull
 * by chance is to say nothing.
 *
 * One word: until when they would work, in 1/16 ms, and in the lowest bit
 * whether it is too much.  Processes that write at the same time may lose some
 * work.  Times are in ms of a clock that all processes share.
 */


#include "core/base/kvr_core.h"


#define KVR_DEMAND_MOST  3000    /* ms */
#define KVR_DEMAND_KEPT  6000
#define KVR_DEMAND_REST  100     /* as good as empty */


typedef _Atomic uint64_t  kvr_demand_t;


/*
 * Adds work that takes them so many ms, any number from 0 on; returns 1 if
 * there is more than they can do.  Memory begins zeroed.
 */
int kvr_demand_add(kvr_demand_t *demand, double ms, uint64_t now);


#endif /* _KVR_DEMAND_H_INCLUDED_ */
