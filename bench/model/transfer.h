/*
 * Transfers between servers.  Each server has a link, which its current
 * transfers share equally.  A transfer first takes a setup time without data,
 * and then runs at the lesser of its shares at the two ends.
 */

#ifndef KVS_TRANSFER_H
#define KVS_TRANSFER_H


#include "bench/model/kvs.h"


#define KVS_TRANSFERS  4096


typedef struct {
    uint32_t         from, to;
    double           begin;      /* s: start of the data */
    double           left;       /* bytes */
    void            *data;
} kvs_transfer_t;


typedef struct {
    double           setup;      /* s */
    double           bandwidth;  /* bytes/s of a server's link */
    double           now;
    uint32_t         n;
    uint32_t         flows[KVS_REPLICAS];   /* transfers on a server's link */
    kvs_transfer_t   transfer[KVS_TRANSFERS];
} kvs_network_t;


void kvs_network_init(kvs_network_t *net, double setup, double bandwidth);

void kvs_network_begin(kvs_network_t *net, uint32_t from, uint32_t to,
    double bytes, void *data, double now);

/* returns the time of the next change; INFINITY without transfers */
double kvs_network_next(kvs_network_t *net);

/*
 * advances to now, at most kvs_network_next(); returns a finished one or NULL
 */
void *kvs_network_advance(kvs_network_t *net, double now);


#endif
