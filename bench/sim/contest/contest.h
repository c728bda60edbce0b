/*
 * The contest: each policy in each scenario at each load, with several seeds.
 */

#ifndef KVS_CONTEST_H
#define KVS_CONTEST_H


#include "bench/sim/contest/results.h"


/* runs the contest; the result is never freed */
int kvs_contest_run(kvs_contest_t *c, const kvs_options_t *o);

/* returns the requested policies, at most KVS_POLICIES */
uint32_t kvs_contest_policies(const kvs_options_t *o,
    const kvs_policy_t **policy);

/* calls fn(data, i) for 0 .. n - 1 in several processes, started in order */
void kvs_contest_spread(uint32_t jobs, uint32_t n,
    void (*fn)(void *data, uint32_t i), void *data);

/* returns memory that the processes share */
void *kvs_contest_shared(size_t size);

/* returns the length of a run: sessions and batches must come and go */
uint32_t kvs_scenario_requests(const kvs_scenario_t *sc, double rate,
    uint32_t least);

/* returns whether the name contains one of the parts; "=A": is A */
int kvs_listed(const char *list, const char *name);


#endif
