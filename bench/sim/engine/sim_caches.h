/*
 * What all replicas hold, by block: for routers that see it.
 */

#ifndef KVS_SIM_CACHES_H
#define KVS_SIM_CACHES_H


#include "bench/sim/engine/sim.h"


/* from now on it is known; several routers of a simulation share it */
void kvs_caches_watch(kvs_sim_t *sim);
void kvs_caches_free(kvs_sim_t *sim);

/* kvs_sim_match(), of replicas that are settled */
void kvs_caches_match(kvs_sim_t *sim, const kvs_request_t *rq, kvr_set_t set,
    uint32_t *matched);

/* a new process, which has nothing, and tells nothing of that */
void kvs_caches_restarted(kvs_sim_t *sim, uint32_t replica);


#endif
