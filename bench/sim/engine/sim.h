/*
 * The engine of the simulator: a fleet of replicas in virtual time, sessions
 * of requests that a workload makes, and a policy that gives each request its
 * replica.  One run is one thread and depends on its seed only.
 *
 * A request's way: a session's step falls due -> the policy picks, reserves
 * and learns -> the replica has it -> headers -> first token -> done -> the
 * session goes on.  Events of the replicas go through the same queue as all
 * others, so that policies are told of them when a client would see them.
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

    kvs_session_t    *session;      /* NULL: foreign load */
    kvs_request_t    *link;
    uint64_t          id;
    uint32_t          gen;          /* changes with each use and attempt */

    /* what a router sees of it */

    const uint64_t   *chain;
    uint32_t          units;        /* whole ones of the prompt */
    uint32_t          tokens;
    uint64_t          bytes;
    uint64_t          key_session;
    uint64_t          key_text;

    uint32_t          replica;
    uint32_t          router;
    uint32_t          attempts;
    uint32_t          parked;       /* waits for this replica's first token;
                                       KVS_REPLICAS: it does not */
    double            until;        /* and no longer than that; 0: never did */
    double            start;        /* the client sent it */
    double            first;        /* the client saw the first token */
    unsigned          measured:1;
    unsigned          submitted:1;
    unsigned          admitted:1;
    unsigned          started:1;    /* this attempt: first token seen */
    unsigned          abort:1;
    unsigned          urgent:1;     /* one session in five */

    /* the policy's */

    kvs_route_t       route;        /* of the shipped router */
    uint64_t          pending;      /* of the rivals */
    uint32_t          charge;
    uint32_t          matched;      /* tokens, as predicted */
    uint32_t          computing;    /* units from this one on, */
    unsigned          counted:1;    /* as the router knows */
    unsigned          inserted:1;
};


struct kvs_policy_s {
    const char       *name;
    unsigned          kind;
    void           *(*create)(kvs_sim_t *sim, const kvs_policy_t *policy);
    void            (*destroy)(void *data);

    /*
     * Picks one of sim->up, and counts it in; or KVS_REPLICAS, with parked and
     * until: it is asked again at a first token of that one, or then.
     */
    uint32_t        (*pick)(void *data, kvs_request_t *rq, double now);

    /* optional */
    void            (*admitted)(void *data, kvs_request_t *rq, double now);
    void            (*headers)(void *data, kvs_request_t *rq, double now);
    void            (*first)(void *data, kvs_request_t *rq, double now);
    void            (*restarted)(void *data, uint32_t replica, double now);

    /* ok: the replica answered to the end */
    void            (*done)(void *data, kvs_request_t *rq, double now,
                            unsigned ok);

    const void       *conf;
};


/* those that wait for a sibling's first token, at most */
#define KVS_PARKED  4096

/* kinds of policies */
#define KVS_RIVAL      0x01         /* published: counts as a rival */
#define KVS_OURS       0x02
#define KVS_STUDY      0x04         /* for a study only */
#define KVS_QUEUED     0x08         /* with_queue.c runs it, past the knee */
#define KVS_PARAM      0x10         /* ours, with other parameters */
#define KVS_ABLATION   0x40         /* ours, without something */


/* what is simulated; times as shares of the run's length */
typedef struct {
    const char       *hardware;
    uint32_t          replicas;
    uint32_t          kv_tokens;    /* 0: the hardware's */
    uint32_t          routers;      /* 0: one */
    unsigned          unshared:1;   /* each router by itself */
    double            slow;         /* speed of replica 0, 0: as the others */
    double            small;        /* its share of the KV, 0: as the others */
    double            restart_at;   /* replica 1, cold and away for a while */
    double            restart_for;  /* s */
    double            add_at;       /* the last replica joins */
    double            foreign;      /* share of the load past the router */
    double            aborts;       /* share of requests given up by clients */
    uint32_t          closed;       /* sessions at a time; no arrivals */
    uint32_t          finite;       /* closed: sessions in all */
    unsigned          at_once:1;    /* closed: all begin at the same time */
    double            speed;        /* of all replicas, 0: 1 */

    /* below the GPU's memory, in times of it; bytes a second */

    double            host, host_rate;
    double            disk, disk_rate;
    unsigned          store:1;      /* the disk is one of all replicas */

    double            fetch_rate;   /* of a replica's link to the others */

    /* hybrid models: tokens from one place to resume at to the next */

    uint32_t          state;
    unsigned          states:1;     /* a state is kept at each of them */
} kvs_fleet_t;


typedef struct {
    uint32_t          measured;
    uint32_t          failed;       /* of the measured */
    uint32_t          aborted;
    uint32_t          requests;     /* all of them */
    unsigned          capped:1;     /* given up before all were done */

    double            ttft, ttft_p50, ttft_p90, ttft_p95, ttft_p99;
    double            e2e, e2e_p95, e2e_p50, e2e_p90;
    double            tpt, tpt_p99; /* time per token, the first not counted */
    double            urgent, urgent_p99;   /* TTFT of the urgent ones */
    double            throughput;   /* completed in the window, 1/s */
    double            tokens;       /* put out in the window, 1/s */
    double            completed;    /* in the window, over those due in it */
    double            cached;       /* share of the prompt tokens */
    double            loaded;       /* likewise, from lower tiers */
    double            fetched;      /* likewise, from other replicas */
    double            prefills;     /* bursts: of the common part, by burst */
    uint32_t          flushed;      /* times a router took a cache as lost */
    double            predicted;    /* matched by the router's word */
    double            imbalance;    /* requests: busiest over the mean */

    /* the same of what is sent once a minute has passed; NAN: nothing */

    double            most, least;
    double            busy;         /* s of steps, over replicas * length */
    double            makespan;
    double            cpu;          /* s */
    double            ideal;        /* cached of what the session had sent */
} kvs_result_t;


struct kvs_sim_s {
    kvs_fleet_t       fleet;
    kve_hw_t          hw;
    uint32_t          n;            /* replicas, absent ones too */
    kvr_set_t         up;           /* those that can be picked */
    uint32_t          blocks;       /* of a replica's cache, in units */
    double            rate;         /* requests per s */
    double            length;       /* s of arrivals */
    double            window;       /* s: due after it is measured */
    double            now;
    uint64_t          seed;
    kvs_rng_t         rng;          /* the policies' */
    kvs_rng_t         chance;       /* aborts, foreign load */

    kve_replica_t    *replica[KVS_REPLICAS];
    double            next[KVS_REPLICAS];
    kvs_caches_t     *caches;       /* NULL: no router sees them */
    uint32_t          picked[KVS_REPLICAS];

    const kvs_policy_t  *policy;
    void             *state[KVS_REPLICAS];   /* one a router, or one */
    uint32_t          nstates;

    kvs_workload_t   *workload;
    kvs_session_t    *coming;       /* the next arrival */
    uint32_t          arrived;
    uint32_t          nsessions;    /* alive, for the closed ones */

    kvs_events_t      events;

    kvs_request_t    *parked[KVS_PARKED];
    uint32_t          nparked;

    kvs_request_t    *free;
    void            **slabs;
    size_t            nslabs, slabs_size;
    uint64_t          ids;

    uint32_t          due;          /* measured, to be done */
    uint32_t          due_total;

    /* samples */

    kvs_sample_t      ttft, e2e, tpt, urgent;
    uint32_t          failed, aborted, requests;
    uint64_t          prompt, cached, loaded, fetched, matched;
    uint64_t          common;       /* computed of the bursts' common parts */
    uint32_t          flushed;
    kve_blocks_t     *store;
    double            price[KVE_TIERS]; /* of a load, to computing it */
    uint64_t          had, found;   /* sent before, by the session; cached */
    uint64_t          done, done_tokens;     /* in the window */
    uint64_t          load[KVS_REPLICAS];    /* measured requests */
    uint64_t          late[KVS_REPLICAS];    /* sent after settled */
    double            settled;      /* s */
};


/* a run: requests is their number in all, unless the fleet says otherwise */
int kvs_run(const kvs_fleet_t *fleet, kvs_workload_t *workload,
    const kvs_policy_t *policy, double rate, uint32_t requests, uint64_t seed,
    kvs_result_t *res);

/* brings a replica up to now, for policies that look at its state */
void kvs_sim_settle(kvs_sim_t *sim, uint32_t replica);

/*
 * Leading units of a prompt that an admission would find now in each replica
 * of the set, to matched[replica]; for policies that kvs_caches_watch().
 */
void kvs_sim_match(kvs_sim_t *sim, const kvs_request_t *rq, kvr_set_t set,
    uint32_t *matched);


#endif
