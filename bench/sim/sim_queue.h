/*
 * What the engine of the simulator is made of, for its own files only.
 */

#ifndef KVS_SIM_QUEUE_H
#define KVS_SIM_QUEUE_H


#include "sim.h"


#define KVS_SLAB  256


/* gen: of the request, for events of one of its attempts */
void kvs_sim_push(kvs_sim_t *sim, double t, uint32_t type, void *data,
    uint32_t gen);
void kvs_sim_pop(kvs_sim_t *sim, kvs_event_t *ev);

kvs_request_t *kvs_sim_request(kvs_sim_t *sim);
void kvs_sim_release(kvs_sim_t *sim, kvs_request_t *rq);

/* sim_result.c */

void kvs_sim_sample(kvs_sim_t *sim, const kvs_request_t *rq, double ttft,
    double e2e);
void kvs_sim_result(kvs_sim_t *sim, kvs_result_t *res);


#endif
