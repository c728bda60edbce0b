/* Two pools: where disaggregation pays, and how good the decision is. */

#ifndef KVS_POOLS_H
#define KVS_POOLS_H


#include "bench/sim/contest/contest.h"


/* runs the grid, prints tables, writes o->out */
int kvs_pools(const kvs_options_t *o);


#endif
