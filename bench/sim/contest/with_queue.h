/*
 * kv_cache with the queue, with the contest's workloads.
 */

#ifndef KVS_WITH_QUEUE_H
#define KVS_WITH_QUEUE_H


#include "bench/sim/contest/scenario.h"


/* returns whether bench/queue's model supports a scenario */
int kvs_with_queue_takes(const kvs_scenario_t *sc);

/* like kvs_run() of a policy */
int kvs_with_queue_run(const kvs_fleet_t *fleet, kvs_workload_t *workload,
    double rate, uint32_t requests, uint64_t seed, kvs_result_t *res);


#endif
