/*
 * The contest: every policy on every scenario at every load, by some seeds.
 */

#ifndef KVS_CONTEST_H
#define KVS_CONTEST_H


#include "bench/sim/contest/results.h"


/* all of it; the result lives as long as the process */
int kvs_contest_run(kvs_contest_t *c, const kvs_options_t *o);

/* policies that are asked for, KVS_POLICIES at most */
uint32_t kvs_contest_policies(const kvs_options_t *o,
    const kvs_policy_t **policy);

/* calls fn(data, i) for 0 .. n - 1 in so many processes, in order of start */
void kvs_contest_spread(uint32_t jobs, uint32_t n,
    void (*fn)(void *data, uint32_t i), void *data);

/* memory that the processes share */
void *kvs_contest_shared(size_t size);

/* how long a run must be for sessions and batches to come and go */
uint32_t kvs_scenario_requests(const kvs_scenario_t *sc, double rate,
    uint32_t least);

/* whether one of the comma-separated parts is in the name; "=A": is it */
int kvs_listed(const char *list, const char *name);


#endif
