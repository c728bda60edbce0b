/*
 * Internal parts of the simulator's engine.
 */

#ifndef KVS_SIM_QUEUE_H
#define KVS_SIM_QUEUE_H


#include "bench/sim/engine/sim.h"


#define KVS_SLAB  256


enum {
    KVS_EV_ARRIVE = 1,
    KVS_EV_STEP,
    KVS_EV_HEADERS,
    KVS_EV_FIRST,
    KVS_EV_DONE,
    KVS_EV_LOST,
    KVS_EV_ABORT,
    KVS_EV_FOREIGN,
    KVS_EV_RESTART,
    KVS_EV_RECOVER,
    KVS_EV_ADD,
    KVS_EV_PARKED
};


kvs_request_t *kvs_sim_request(kvs_sim_t *sim);
void kvs_sim_release(kvs_sim_t *sim, kvs_request_t *rq);

/* frees the rest of a run */
void kvs_sim_free(kvs_sim_t *sim);

/* sim_create.c */

void kvs_sim_create(kvs_sim_t *sim);

/* sim_result.c */

void kvs_sim_sample(kvs_sim_t *sim, const kvs_request_t *rq, double ttft,
    double e2e);
void kvs_sim_result(kvs_sim_t *sim, kvs_result_t *res);


#endif
