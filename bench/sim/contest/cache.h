/* Results of a point and a seed, by names of policies, in files. */

#ifndef KVS_CACHE_H
#define KVS_CACHE_H


#include "bench/sim/contest/results.h"


void kvs_cache_load(const kvs_contest_t *c, uint32_t point, uint32_t seed);
void kvs_cache_save(const kvs_contest_t *c, uint32_t point, uint32_t policy,
    uint32_t seed);


#endif
