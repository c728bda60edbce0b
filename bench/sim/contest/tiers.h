#ifndef KVS_TIERS_H
#define KVS_TIERS_H


#include "bench/sim/contest/contest.h"


/* runs cache tiers and hybrid models: prints a table, writes o->out */
int kvs_tiers(const kvs_options_t *o);


#endif
