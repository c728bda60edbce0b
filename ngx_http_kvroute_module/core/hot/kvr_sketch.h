
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SKETCH_H_INCLUDED_
#define _KVR_SKETCH_H_INCLUDED_


/*
 * Tells which prefixes much of the traffic shares.  The hash of such a prefix
 * is no key to spread requests by: all 12,031 requests of a published chat
 * trace share their first 512 tokens.  The prefixes of each request are
 * counted at the first, 2nd, 4th .. 1024th entry of the chain, in a sketch
 * that all processes share: one row of counters, so a rare prefix can look
 * more frequent, but never less.  Counts are halved regularly, to follow the
 * traffic.
 */


#include "core/base/kvr_chain.h"


#define KVR_SKETCH_COUNTERS  4096
#define KVR_SKETCH_DEPTHS    11

/* requests counted before all counts are halved */
#define KVR_SKETCH_WINDOW  32768


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint32_t   total;
    _Atomic uint32_t   count[KVR_SKETCH_COUNTERS];
} kvr_sketch_t;


/* Counts the prefixes of a request. */
void kvr_sketch_add(kvr_sketch_t *sketch, const uint64_t *chain, uint32_t n);

/* Returns the share of requests, 0 .. 1, with this prefix; never too low. */
double kvr_sketch_share(kvr_sketch_t *sketch, uint64_t value);

/*
 * Returns the entry of a chain to spread requests by: the first counted depth
 * whose prefix at most half of a peer's share of all requests has, else the
 * deepest.  n is at least 1.
 */
uint32_t kvr_sketch_entry(kvr_sketch_t *sketch, const uint64_t *chain,
    uint32_t n, uint32_t peers);


#endif /* _KVR_SKETCH_H_INCLUDED_ */
