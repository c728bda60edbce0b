/*
 * The caches of all replicas, by block: for routers that see them.
 */

#ifndef KVS_SIM_CACHES_H
#define KVS_SIM_CACHES_H


#include "bench/sim/engine/sim.h"


/* starts to record the caches; routers of a simulation share the table */
void kvs_caches_watch(kvs_sim_t *sim);
void kvs_caches_free(kvs_sim_t *sim);

/* kvs_sim_match() for replicas that are settled */
void kvs_caches_match(kvs_sim_t *sim, const kvs_request_t *rq, kvr_set_t set,
    uint32_t *matched);

/* a new process: empty, without reports of removed blocks */
void kvs_caches_restarted(kvs_sim_t *sim, uint32_t replica);


#endif
