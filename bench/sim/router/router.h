/*
 * The shipped router (core/, unchanged), and scores that might be better.
 */

#ifndef KVS_ROUTER_H
#define KVS_ROUTER_H


#include "core/policy/kvr_policy.h"
#include "core/hot/kvr_sketch.h"
#include "core/legs/kvr_pull.h"

#include "bench/model/prefix.h"
#include "bench/sim/engine/sim.h"
#include "bench/sim/router/told.h"


typedef enum {
    KVS_STATE_INDEX = 0,     /* core/kvr_index */
    KVS_STATE_TRUE,          /* the replicas' own, and requests on the way */
    KVS_STATE_LRU            /* exact LRU of the right size */
} kvs_state_e;


/* the key of a home */
typedef enum {
    KVS_HOME_CROWD = 0,      /* end of the traffic's shared prefix */
    KVS_HOME_USER,           /* the end of the first message of the user */
    KVS_HOME_BEGIN,          /* the first units */
    KVS_HOME_MAX
} kvs_home_e;


/* state that is forgotten before each decision, as if never learned */
typedef enum {
    KVS_WITHOUT_NOTHING = 0,
    KVS_WITHOUT_RETENTION,
    KVS_WITHOUT_FACTOR,
    KVS_WITHOUT_OUTPUT,
    KVS_WITHOUT_MISSES,
    KVS_WITHOUT_DELAY,
    KVS_WITHOUT_REST,
    KVS_WITHOUT_RATE,
    KVS_WITHOUT_TURNOVER
} kvs_without_e;


typedef struct {
    kvr_policy_e         policy;
    kvs_state_e          state;
    uint32_t             assumed;    /* capacity in MB, 0: the default */
    uint32_t             zone;       /* MB of the index, 0: 16 */
    double               capacity;   /* shares of the true one; 0: default */
    unsigned             reported:1; /* engines report their capacity */
    unsigned             probe:1;    /* engines report counts each second */
    unsigned             metrics:1;  /* and capacity, in tokens of 3 bytes */
    kvs_without_e        without;
    unsigned             replies:1;  /* replies are learned too */
    unsigned             flush:1;    /* engines report restarts */
    unsigned             usage:1;    /* replies report cached tokens */
    unsigned             timed:1;    /* they do not: first tokens are timed */
    unsigned             events:1;   /* engines report stored blocks, */
    unsigned             aliases:1;  /* which are matched to requests */
    double               delay;      /* s until a report arrives */
    double               lost;       /* share of the lines */
    unsigned             strict:1;   /* credit ends at the first holder */
    double               ttl;        /* s, LRU only */
    unsigned             tiers:1;    /* knows tiers below the GPU's memory */
    unsigned             fetch:1;    /* replicas get from each other what
                                        they lack, */
    unsigned             wait:1;     /* requests wait for a sibling that
                                        computes what they have in common */
    uint32_t             ranks;      /* of a server, which it chooses itself;
                                        0: each replica is one */
    double               home;       /* credit of homes, 0: no homes */
    kvs_home_e           home_by;
} kvs_router_conf_t;


typedef struct {
    kvs_sim_t            *sim;
    kvs_router_conf_t     conf;
    unsigned              needs;                /* of the policy */
    kvs_zone_t            zone;
    uint32_t              row;                  /* UINT32_MAX: any */
    double                probed;
    int64_t               current[KVS_REPLICAS];   /* for smooth round robin */

    /* homes */

    kvr_sketch_t         *sketch;
    kvr_home_peer_t       peer[KVS_REPLICAS];

    /* other states than the index */

    kvs_prefix_t         *lru;
    kvs_prefix_t         *coming;               /* submitted, not admitted */
    kvs_told_t           *told;                 /* KV events */
    kvs_prefix_t         *computing;            /* before a first token */
    uint32_t              held[KVS_REPLICAS];   /* units of the request */
    kvr_pull_t            pull;
    kvr_candidate_t       plain[KVS_REPLICAS];  /* without fetching */

    kvs_rng_t             lose;
} kvs_router_t;


extern const kvs_policy_t  kvs_router_policies[];
extern const kvs_policy_t  kvs_router_tiers[];

void *kvs_router_create(kvs_sim_t *sim, const kvs_policy_t *policy);
void kvs_router_destroy(void *data);
uint32_t kvs_router_pick(void *data, kvs_request_t *rq, double now);
void kvs_router_admitted(void *data, kvs_request_t *rq, double now);
void kvs_router_headers(void *data, kvs_request_t *rq, double now);
void kvs_router_first(void *data, kvs_request_t *rq, double now);
void kvs_router_restarted(void *data, uint32_t replica, double now);

/* looks up the replicas' own state, and requests on their way to them */
void kvs_router_true(kvs_router_t *ro, kvs_request_t *rq, kvs_choice_t *ch,
    double now);

/*
 * fetch, wait: make candidates that can fetch; return the replica that the
 * picked one fetches from; return whether a request should wait for a
 * sibling's first token.
 */
kve_replica_t *kvs_router_source(const kvs_router_t *ro,
    const kvs_choice_t *ch, uint32_t i);
void kvs_router_offered(kvs_router_t *ro, kvs_choice_t *ch);
void kvs_router_computed(kvs_router_t *ro, kvs_request_t *rq);
int kvs_router_wait(kvs_router_t *ro, kvs_request_t *rq, kvs_choice_t *ch,
    double now);

/* forgets the parts in conf.without */
void kvs_router_forget(kvs_router_t *ro, double now);

void kvs_router_done(void *data, kvs_request_t *rq, double now, unsigned ok);


#define KVS_ROUTER(name, kind, conf)                                          \
    { name, kind, kvs_router_create, kvs_router_destroy, kvs_router_pick,     \
      kvs_router_admitted, NULL, kvs_router_first, kvs_router_restarted,      \
      kvs_router_done, conf }


#endif
