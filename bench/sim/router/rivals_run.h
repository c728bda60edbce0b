#ifndef KVS_RIVALS_RUN_H
#define KVS_RIVALS_RUN_H


#include "bench/sim/engine/sim.h"


extern const kvs_policy_t  kvs_rival_policies[];
extern const kvs_policy_t  kvs_rival_tiers[];


#endif
