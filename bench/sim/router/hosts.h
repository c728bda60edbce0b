/*
 * Several hosts in front of one fleet, each with an index and rows of its own,
 * and what they tell each other: lessons, and how much each has where.
 *
 * A message is one host's, and reaches each of the others after the lag, or
 * never: it is lost for each of them apart, as where a buffer is full.  Gauges
 * are absolute, and all of them are told again each second; one that is older
 * than the lease does not count.
 */

#ifndef KVS_HOSTS_H
#define KVS_HOSTS_H


#include "bench/sim/router/router.h"


#define KVS_HOSTS  16


/* what is told of a prompt's part that the peer held already */
typedef enum {
    KVS_REFRESH_NONE = 0,
    KVS_REFRESH_THIN,        /* the deepest, and by powers of two before it */
    KVS_REFRESH_ALL,
    KVS_REFRESH_MAX
} kvs_refresh_e;


typedef struct {
    kvs_router_conf_t    router;
    uint32_t             hosts;
    unsigned             shared:1;   /* lessons are told */
    unsigned             load:1;     /* gauges are told */
    kvs_refresh_e        refresh;
    double               lag;        /* s */
    double               loss;       /* share of the messages */
    unsigned             stale:1;    /* gauges count however old they are */
} kvs_hosts_conf_t;


/* a policy whose conf is a kvs_hosts_conf_t */
extern const kvs_policy_t  kvs_hosts_policy;


#endif
