/*
 * The index of other routers: the replicas that have a block cached.  It is
 * exact, takes as much memory as needed, and has an LRU list for each replica.
 * It also counts the blocks of requests in flight.
 */

#ifndef KVS_PREFIX_H
#define KVS_PREFIX_H


#include "bench/model/kvs.h"


typedef struct kvs_prefix_s  kvs_prefix_t;


typedef struct {
    uint32_t   stride;       /* units in a block, 1 if 0 */
    uint32_t   capacity;     /* blocks of a replica, 0: unlimited */
    uint32_t   total;        /* different blocks, 0: unlimited */
    double     ttl;          /* s since the last use, 0: unlimited */
    unsigned   any:1;        /* a missing block does not end a match */
} kvs_prefix_conf_t;


kvs_prefix_t *kvs_prefix_create(const kvs_prefix_conf_t *conf);
void kvs_prefix_destroy(kvs_prefix_t *px);

/*
 * Sets matched[replica] to the number of leading units that it has.  If last
 * is given, sets it to the replica that used the deepest matched block most
 * recently.
 */
uint32_t kvs_prefix_match(kvs_prefix_t *px, const uint64_t *chain,
    uint32_t units, kvr_set_t set, double now, uint32_t *matched,
    uint32_t *last);

/* adds all blocks of a chain to a replica */
void kvs_prefix_insert(kvs_prefix_t *px, const uint64_t *chain,
    uint32_t units, uint32_t replica, double now);

/* adds a request in flight; shared blocks count once */
void kvs_prefix_hold(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    uint32_t replica);
void kvs_prefix_drop(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    uint32_t replica);

/* returns the number of blocks of a replica */
uint32_t kvs_prefix_count(const kvs_prefix_t *px, uint32_t replica);

void kvs_prefix_flush(kvs_prefix_t *px, uint32_t replica);


#endif
