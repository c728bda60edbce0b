/*
 * What the router is made of, for its own files only.
 *
 *     router.c        what it knows, who is picked, how a request goes on
 *     router_learn.c  what first tokens and replies tell
 */

#ifndef KVS_ROUTER_INT_H
#define KVS_ROUTER_INT_H


#include "core/state/kvr_zone.h"
#include "core/learn/kvr_feedback.h"
#include "core/learn/kvr_prefill.h"
#include "core/learn/kvr_ttft.h"

#include "prefix.h"
#include "router.h"


#define KVS_ROUTER_CAPACITY  (64 * 1024 * 1024)   /* the module's default */
#define KVS_ROUTER_ZONE      (16 * 1024 * 1024)
#define KVS_ROUTER_ENTRIES   8192
#define KVS_ROUTER_PROBE     1.0                  /* s */


typedef struct {
    kvs_sim_t            *sim;
    kvs_router_conf_t     conf;

    kvr_index_t          *index;
    kvr_load_t           *load;
    uint32_t              rows;
    uint32_t              given;
    uint32_t              last[KVS_REPLICAS];   /* given at its last pick */
    int64_t               current[KVS_REPLICAS];   /* smooth round robin's */
    uint32_t              prefilling[KVS_REPLICAS];
    uint64_t              resident[KVS_REPLICAS];  /* bytes in flight */

    /* load that is not ours, by the engines' own word */

    double                probed;
    uint32_t              others[KVS_REPLICAS];
    uint32_t              others_waiting[KVS_REPLICAS];

    /* what replies told */

    kvr_feedback_t        feedback[KVS_REPLICAS];
    kvr_ttft_t            ttft[KVS_REPLICAS];
    kvr_ttft_prefill_t    prefill;
    uint32_t              assumed;              /* units */

    kvr_popular_t        *popular;
    kvr_prefill_t         pace[KVS_REPLICAS];

    /* policy prefix */

    kvr_sketch_t         *hot;
    kvr_ring_t            ring;

    /* other states than the index */

    kvs_prefix_t         *lru;
    kvs_prefix_t         *coming;               /* submitted, not admitted */

    kvs_rng_t             lose;
    uint64_t              chain[KVS_ROUTER_ENTRIES];
} kvs_router_t;


/* the entries of a chain that the index is to have, to ro->chain */
uint32_t kvs_router_chain(kvs_router_t *ro, const uint64_t *chain,
    uint32_t units);

/* router_learn.c */

void kvs_router_teach(kvs_router_t *ro, kvs_request_t *rq, double now,
    const uint64_t *chain, uint32_t units, uint32_t matched);
void kvs_router_settle(kvs_router_t *ro, kvs_request_t *rq, double now);
void kvs_router_timed(kvs_router_t *ro, kvs_request_t *rq, double now);


#endif
