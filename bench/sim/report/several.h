/* Several hosts in front of one fleet: what they lose, and what brings it back. */

#ifndef KVS_SEVERAL_H
#define KVS_SEVERAL_H


#include "bench/sim/contest/contest.h"


/* the table, and o->out as JSON; KVR_OK */
int kvs_several(const kvs_options_t *o);


#endif
