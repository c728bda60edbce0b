/*
 * Which replica holds which block of which prompt, as the other routers keep
 * it: exact, in as much memory as it takes, a list in order of use for each
 * replica.  Also counts what requests in flight hold.
 */

#ifndef KVS_PREFIX_H
#define KVS_PREFIX_H


#include "bench/model/kvs.h"


typedef struct kvs_prefix_s  kvs_prefix_t;


typedef struct {
    uint32_t   stride;       /* units to a block, 1 if 0 */
    uint32_t   capacity;     /* blocks of a replica, 0: no end */
    uint32_t   total;        /* blocks that differ, 0: no end */
    double     ttl;          /* s since the last use, 0: for ever */
    unsigned   any:1;        /* a block missing does not end a match */
} kvs_prefix_conf_t;


kvs_prefix_t *kvs_prefix_create(const kvs_prefix_conf_t *conf);
void kvs_prefix_destroy(kvs_prefix_t *px);

/*
 * How many leading units each replica of the set has, to matched[replica].
 * With last, also the one that used the deepest matched block most recently.
 */
uint32_t kvs_prefix_match(kvs_prefix_t *px, const uint64_t *chain,
    uint32_t units, kvr_set_t set, double now, uint32_t *matched,
    uint32_t *last);

/* a replica has all of it from now on */
void kvs_prefix_insert(kvs_prefix_t *px, const uint64_t *chain,
    uint32_t units, uint32_t replica, double now);

/* a request in flight has it; blocks shared by several count once */
void kvs_prefix_hold(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    uint32_t replica);
void kvs_prefix_drop(kvs_prefix_t *px, const uint64_t *chain, uint32_t units,
    uint32_t replica);

/* blocks of a replica */
uint32_t kvs_prefix_count(const kvs_prefix_t *px, uint32_t replica);

void kvs_prefix_flush(kvs_prefix_t *px, uint32_t replica);


#endif
