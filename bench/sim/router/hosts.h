/*
 * Several hosts before one fleet, each with its own index and rows, and their
 * messages: index updates, and loads.
 *
 * A message of a host reaches each other host after the lag, or is lost, for
 * each host on its own, as if a buffer were full.  Loads are absolute, and all
 * are sent again each second; a load older than the lease does not count.
 */

#ifndef KVS_HOSTS_H
#define KVS_HOSTS_H


#include "bench/sim/router/router.h"


#define KVS_HOSTS  16


/* what is sent of the part that the peer had already */
typedef enum {
    KVS_REFRESH_NONE = 0,
    KVS_REFRESH_THIN,        /* the deepest entry, and powers of two before */
    KVS_REFRESH_ALL,
    KVS_REFRESH_MAX
} kvs_refresh_e;


typedef struct {
    kvs_router_conf_t    router;
    uint32_t             hosts;
    unsigned             shared:1;   /* index updates are sent */
    unsigned             load:1;     /* loads are sent */
    kvs_refresh_e        refresh;
    double               lag;        /* s */
    double               loss;       /* share of the messages */
    unsigned             stale:1;    /* loads count however old they are */
} kvs_hosts_conf_t;


/* a policy whose conf is a kvs_hosts_conf_t */
extern const kvs_policy_t  kvs_hosts_policy;


#endif
