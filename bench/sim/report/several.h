/* Several hosts before one fleet: what they lose, and what helps. */

#ifndef KVS_SEVERAL_H
#define KVS_SEVERAL_H


#include "bench/sim/contest/contest.h"


/* prints the table, and writes JSON to o->out; returns KVR_OK */
int kvs_several(const kvs_options_t *o);


#endif
