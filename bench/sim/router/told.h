/*
 * What a router hears of the replicas' caches: their KV events, each a while
 * after its step was over.
 *
 * Step one takes how much entered and how old blocks get, by core/events.
 * Step two knows, of the blocks whose place in a chain it could find out, which
 * replica holds them: what it knows of is drawn by request, at the share that
 * attribution of real events has.  An engine's name of a block is its value in
 * the chain here, so nothing is ever attributed wrongly.
 */

#ifndef KVS_TOLD_H
#define KVS_TOLD_H


#include "bench/model/zone.h"
#include "bench/sim/engine/sim.h"


typedef struct kvs_told_s  kvs_told_t;


/* aliases: share of requests that are attributed, 0: step one alone */
kvs_told_t *kvs_told_create(kvs_sim_t *sim, kvs_zone_t *zone, double delay,
    double aliases);
void kvs_told_destroy(kvs_told_t *told);

/* all that has come by now */
void kvs_told_settle(kvs_told_t *told, double now);

/* a request has had its first token */
void kvs_told_attribute(kvs_told_t *told, const kvs_request_t *rq);

/* another process: nothing that was told before counts */
void kvs_told_restarted(kvs_told_t *told, uint32_t replica);

/*
 * What is known by aliases: matched[] is what the index says, and coming[] what
 * is on its way to the replica.
 */
void kvs_told_match(kvs_told_t *told, const kvs_request_t *rq, kvr_set_t set,
    const uint32_t *coming, uint32_t *matched);


#endif
