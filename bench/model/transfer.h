/*
 * Transfers between servers: each server has a link of its own, which its
 * transfers of the moment share in equal parts.  A transfer takes a setup time
 * during which nothing flows, and then goes at the lesser of its shares at its
 * two ends.
 */

#ifndef KVS_TRANSFER_H
#define KVS_TRANSFER_H


#include "bench/model/kvs.h"


#define KVS_TRANSFERS  4096


typedef struct {
    uint32_t         from, to;
    double           begin;      /* s: when bytes begin to flow */
    double           left;       /* bytes */
    void            *data;
} kvs_transfer_t;


typedef struct {
    double           setup;      /* s */
    double           bandwidth;  /* bytes/s of a server's link */
    double           now;
    uint32_t         n;
    uint32_t         flows[KVS_REPLICAS];   /* through a server's link */
    kvs_transfer_t   transfer[KVS_TRANSFERS];
} kvs_network_t;


void kvs_network_init(kvs_network_t *net, double setup, double bandwidth);

void kvs_network_begin(kvs_network_t *net, uint32_t from, uint32_t to,
    double bytes, void *data, double now);

/* when something changes next: INFINITY without transfers */
double kvs_network_next(kvs_network_t *net);

/* goes on to now, at most kvs_network_next(); one that is over, or NULL */
void *kvs_network_advance(kvs_network_t *net, double now);


#endif
