#ifndef KVS_EMULATED_H
#define KVS_EMULATED_H


#include "bench/sim/contest/contest.h"


/* writes the workload of emulated.py and its results to --out */
int kvs_emulated(const kvs_options_t *o);


#endif
