/* Internal parts of a run of legs. */

#ifndef KVS_LEGS_INT_H
#define KVS_LEGS_INT_H


#include "bench/sim/legs/legs.h"


typedef struct kvs_pair_s  kvs_pair_t;


/* an attempt at a server, for the router and for the server */
typedef struct {
    kve_req_t         req;
    kvs_route_t       route;
    uint32_t          replica;
    kvs_pair_t       *pair;
} kvs_leg_t;


/* a request; without legs it is leg 2 only */
struct kvs_pair_s {
    kvs_leg_t         leg[2];
    kvr_reservation_t reserved;     /* of leg 2, while leg 1 runs */
    kvs_session_t    *session;
    kvs_step_t       *step;
    kvs_pair_t       *free;
    double            start;
    double            first;
    unsigned          apart:1;
    unsigned          measured:1;
};


typedef struct {
    const kvs_legs_conf_t  *conf;
    kvs_sim_t        *load;         /* the workload's simulation */
    kvs_workload_t   *workload;
    kvs_session_t    *coming;

    uint32_t          n;
    kve_replica_t    *replica[KVS_REPLICAS];
    double            next[KVS_REPLICAS];
    kvs_network_t     network;
    kvs_events_t      events;
    double            now, length, window;

    kvs_zone_t        zone;
    kvs_zone_t        pool[2];      /* prefill and decode, in one zone */
    double            link;         /* parameter of the directive, bytes/ms */
    double            transfer;     /* value from it */
    kvr_demand_t      demand;
    kvs_rng_t         rng;

    kvs_pair_t       *pairs;        /* free ones */
    void            **slabs;
    size_t            nslabs, slabs_size;

    uint32_t          due, measured, done, apart, good;
    uint64_t          prompt, computed, transferred;
    kvs_sample_t      ttft, tpt;
    double            gaps_sum;
    uint64_t          gaps;
    uint64_t         *gap;          /* by length, see kvs_legs_gap() */
} kvs_legs_t;


/* legs_rule.c: the decision for a request */
kvr_disaggregate_e kvs_legs_rule(kvs_legs_t *legs, kvs_pair_t *pair);

/* reserves a place for leg 2, while leg 1 runs */
void kvs_legs_reserve(kvs_legs_t *legs, kvs_pair_t *pair);

/* picks a server for a leg (0 or 1), and counts and learns the request */
void kvs_legs_pick(kvs_legs_t *legs, kvs_pair_t *pair, uint32_t leg,
    kvr_reservation_t *reserved);

/* legs_result.c */
void kvs_legs_first(kvs_legs_t *legs, kvs_pair_t *pair);
void kvs_legs_tokens(kvs_legs_t *legs, kvs_pair_t *pair);
void kvs_legs_result(kvs_legs_t *legs, kvs_legs_result_t *res);
#define KVS_LEGS_GAPS  1400


#endif
