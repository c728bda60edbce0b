/*
 * What a router hears of the replicas' caches: their KV events, each a while
 * after its step was over.
 *
 * All that is heard goes through core/route, as nginx has it.  An engine's name of
 * a block is its value in the chain here; core does not know that.
 */

#ifndef KVS_TOLD_H
#define KVS_TOLD_H


#include "bench/model/zone.h"
#include "bench/sim/engine/sim.h"


typedef struct kvs_told_s  kvs_told_t;


/* aliases: single blocks are told apart, by attribution */
kvs_told_t *kvs_told_create(kvs_sim_t *sim, kvs_zone_t *zone, double delay,
    unsigned aliases);
void kvs_told_destroy(kvs_told_t *told);

/* all that has come by now */
void kvs_told_settle(kvs_told_t *told, double now);

/* another process: nothing that was told before counts */
void kvs_told_restarted(kvs_told_t *told, uint32_t replica);


#endif
