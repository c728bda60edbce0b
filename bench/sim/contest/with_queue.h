/*
 * kv_cache with the queue in front, over the contest's workloads.
 */

#ifndef KVS_WITH_QUEUE_H
#define KVS_WITH_QUEUE_H


#include "bench/sim/contest/scenario.h"


/* whether the model of bench/queue has all that a scenario wants */
int kvs_with_queue_takes(const kvs_scenario_t *sc);

/* what kvs_run() is to a policy */
int kvs_with_queue_run(const kvs_fleet_t *fleet, kvs_workload_t *workload,
    double rate, uint32_t requests, uint64_t seed, kvs_result_t *res);


#endif
