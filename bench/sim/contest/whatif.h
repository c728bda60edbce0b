#ifndef KVS_WHATIF_H
#define KVS_WHATIF_H


#include "bench/sim/contest/contest.h"


/* another fleet: predicted, then simulated */
int kvs_whatif(const kvs_options_t *o);


#endif
