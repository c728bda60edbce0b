/*
 * The simulator's engine: a fleet of replicas in virtual time, sessions of
 * requests by a workload, and a policy that picks a replica for each request.
 * A run is a thread, and depends on its seed only.
 *
 * The course of a request: a session's step is due -> the policy picks,
 * reserves and learns -> the replica has it -> headers -> first token -> done
 * -> the session continues.  Events of the replicas go through the same queue
 * as all others, so policies see them when a client would.
 */

#ifndef KVS_SIM_H
#define KVS_SIM_H


#include "bench/model/events.h"
#include "bench/model/route.h"
#include "bench/model/sample.h"
#include "bench/sim/engine/session.h"


typedef struct kvs_sim_s       kvs_sim_t;
typedef struct kvs_request_s   kvs_request_t;
typedef struct kvs_policy_s    kvs_policy_t;
typedef struct kvs_workload_s  kvs_workload_t;
typedef struct kvs_caches_s    kvs_caches_t;


struct kvs_request_s {
    kve_req_t         req;          /* the replica's view */

    kvs_session_t    *session;      /* NULL: bypasses the router */
    kvs_request_t    *link;
    uint64_t          id;
    uint32_t          gen;          /* changes with each use and attempt */

    /* as a router sees it */

    const uint64_t   *chain;
    uint32_t          units;        /* complete units of the prompt */
    uint32_t          tokens;
    uint64_t          bytes;
    uint64_t          key_session;
    uint64_t          key_text;

    uint32_t          replica;
    uint32_t          router;
    uint32_t          attempts;
    uint32_t          parked;       /* waits for a first token there,
                                       KVS_REPLICAS: it does not */
    double            until;        /* at most until then; 0: never waited */
    double            start;        /* the client sent it */
    double            first;        /* the client got the first token */
    unsigned          measured:1;
    unsigned          submitted:1;
    unsigned          admitted:1;
    unsigned          started:1;    /* this attempt: first token seen */
    unsigned          abort:1;
    unsigned          urgent:1;     /* one session in five */

    /* for the policy */

    kvs_route_t       route;        /* for the shipped router */
    uint64_t          pending;      /* for the rivals */
    uint32_t          charge;
    uint32_t          matched;      /* tokens, as predicted */
    uint32_t          computing;    /* computes units from this one on, */
    unsigned          counted:1;    /* as far as the router knows */
    unsigned          inserted:1;
};


struct kvs_policy_s {
    const char       *name;
    unsigned          kind;
    void           *(*create)(kvs_sim_t *sim, const kvs_policy_t *policy);
    void            (*destroy)(void *data);

    /*
     * Picks one of sim->up and counts the request there.  Or returns
     * KVS_REPLICAS with parked and until set: it is called again at a first
     * token of that replica, or at that time.
     */
    uint32_t        (*pick)(void *data, kvs_request_t *rq, double now);

    /* optional */
    void            (*admitted)(void *data, kvs_request_t *rq, double now);
    void            (*headers)(void *data, kvs_request_t *rq, double now);
    void            (*first)(void *data, kvs_request_t *rq, double now);
    void            (*restarted)(void *data, uint32_t replica, double now);

    /* ok: the replica sent the whole answer */
    void            (*done)(void *data, kvs_request_t *rq, double now,
                            unsigned ok);

    const void       *conf;
};


/* limit of requests that wait for a sibling's first token */
#define KVS_PARKED  4096

/* kinds of policies */
#define KVS_RIVAL      0x01         /* published: counts as a rival */
#define KVS_OURS       0x02
#define KVS_STUDY      0x04         /* for a study only */
#define KVS_QUEUED     0x08         /* with_queue.c runs it, past the knee */
#define KVS_PARAM      0x10         /* ours, with other parameters */
#define KVS_ABLATION   0x40         /* ours, without something */


/* a fleet; times are shares of the run's length */
typedef struct {
    const char       *hardware;
    uint32_t          replicas;
    uint32_t          kv_tokens;    /* 0: the hardware's */
    uint32_t          routers;      /* 0: one */
    unsigned          unshared:1;   /* routers do not share memory */
    double            slow;         /* speed of replica 0, 0: like the others */
    double            small;        /* its KV memory, 0: like the others */
    double            restart_at;   /* replica 1 restarts empty, and is away */
    double            restart_for;  /* s */
    double            add_at;       /* the last replica joins */
    double            foreign;      /* share of load past the router */
    double            aborts;       /* share of requests given up by clients */
    uint32_t          closed;       /* concurrent sessions; no arrivals */
    uint32_t          finite;       /* closed: total number of sessions */
    unsigned          at_once:1;    /* closed: all begin at the same time */
    double            speed;        /* of all replicas, 0: 1 */

    /* tiers below the GPU's memory, in multiples of it; bytes per second */

    double            host, host_rate;
    double            disk, disk_rate;
    unsigned          store:1;      /* all replicas share the disk */

    double            fetch_rate;   /* link of a replica to the others */

    /* hybrid models: tokens between two places at which to resume */

    uint32_t          state;
    unsigned          states:1;     /* each of these places has a state */
} kvs_fleet_t;


typedef struct {
    uint32_t          measured;
    uint32_t          failed;       /* of the measured requests */
    uint32_t          aborted;
    uint32_t          requests;     /* all requests */
    unsigned          capped:1;     /* given up before all were done */

    double            ttft, ttft_p50, ttft_p90, ttft_p95, ttft_p99;
    double            e2e, e2e_p95, e2e_p50, e2e_p90;
    double            tpt, tpt_p99; /* time per token, without the first */
    double            urgent, urgent_p99;   /* TTFT of urgent requests */
    double            throughput;   /* completed in the window, 1/s */
    double            tokens;       /* generated in the window, 1/s */
    double            completed;    /* share of those due in the window */
    double            cached;       /* share of the prompt tokens */
    double            loaded;       /* share from lower tiers */
    double            fetched;      /* share from other replicas */
    double            prefills;     /* computations of a burst's common part */
    uint32_t          flushed;      /* times a router assumed a lost cache */
    double            predicted;    /* share that the router predicts */
    double            imbalance;    /* requests: busiest over the mean */

    /* the same for requests after the first minute; NAN: none */

    double            most, least;
    double            busy;         /* s of steps, over replicas * length */
    double            makespan;
    double            cpu;          /* s */
    double            ideal;        /* cached of what the session had sent */
} kvs_result_t;


struct kvs_sim_s {
    kvs_fleet_t       fleet;
    kve_hw_t          hw;
    uint32_t          n;            /* number of replicas, with absent ones */
    kvr_set_t         up;           /* replicas that can be picked */
    uint32_t          blocks;       /* of a replica's cache, in units */
    double            rate;         /* requests per s */
    double            length;       /* s of arrivals */
    double            window;       /* s; requests due after it are measured */
    double            now;
    uint64_t          seed;
    kvs_rng_t         rng;          /* for the policies */
    kvs_rng_t         chance;       /* for aborts and load of others */

    kve_replica_t    *replica[KVS_REPLICAS];
    double            next[KVS_REPLICAS];
    kvs_caches_t     *caches;       /* NULL: no router sees them */
    uint32_t          picked[KVS_REPLICAS];

    const kvs_policy_t  *policy;
    void             *state[KVS_REPLICAS];   /* one per router, or one */
    uint32_t          nstates;

    kvs_workload_t   *workload;
    kvs_session_t    *coming;       /* the next arrival */
    uint32_t          arrived;
    uint32_t          nsessions;    /* running, for closed fleets */

    kvs_events_t      events;

    kvs_request_t    *parked[KVS_PARKED];
    uint32_t          nparked;

    kvs_request_t    *free;
    void            **slabs;
    size_t            nslabs, slabs_size;
    uint64_t          ids;

    uint32_t          due;          /* measured requests to be done */
    uint32_t          due_total;

    /* samples */

    kvs_sample_t      ttft, e2e, tpt, urgent;
    uint32_t          failed, aborted, requests;
    uint64_t          prompt, cached, loaded, fetched, matched;
    uint64_t          common;       /* computed tokens of common parts */
    uint32_t          flushed;
    kve_blocks_t     *store;
    double            price[KVE_TIERS]; /* of loading, over computing */
    uint64_t          had, found;   /* tokens that the session sent; cached */
    uint64_t          done, done_tokens;     /* in the window */
    uint64_t          load[KVS_REPLICAS];    /* measured requests */
    uint64_t          late[KVS_REPLICAS];    /* sent after settled */
    double            settled;      /* s */
};


/*
 * runs a simulation; requests: total number, unless the fleet says otherwise
 */
int kvs_run(const kvs_fleet_t *fleet, kvs_workload_t *workload,
    const kvs_policy_t *policy, double rate, uint32_t requests, uint64_t seed,
    kvs_result_t *res);

/* advances a replica to now, for policies that look at its state */
void kvs_sim_settle(kvs_sim_t *sim, uint32_t replica);

/*
 * Sets matched[replica] to the leading units of a prompt that an admission
 * would find in the replica now; for policies that call kvs_caches_watch().
 */
void kvs_sim_match(kvs_sim_t *sim, const kvs_request_t *rq, kvr_set_t set,
    uint32_t *matched);


#endif
