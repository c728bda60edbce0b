/*
 * KV events as a router receives them, some time after the step of the
 * replica.
 *
 * All events go through core/route, as in nginx.  Here an engine's name of a
 * block is its value in the chain; core does not know that.
 */

#ifndef KVS_TOLD_H
#define KVS_TOLD_H


#include "bench/model/zone.h"
#include "bench/sim/engine/sim.h"


typedef struct kvs_told_s  kvs_told_t;


/* aliases: 1: events of blocks are attributed to requests */
kvs_told_t *kvs_told_create(kvs_sim_t *sim, kvs_zone_t *zone, double delay,
    unsigned aliases);
void kvs_told_destroy(kvs_told_t *told);

/* applies all events received by now */
void kvs_told_settle(kvs_told_t *told, double now);

/* a new process: earlier events do not count */
void kvs_told_restarted(kvs_told_t *told, uint32_t replica);


#endif
