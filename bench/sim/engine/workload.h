/*
 * Workloads: they make the sessions.
 */

#ifndef KVS_WORKLOAD_H
#define KVS_WORKLOAD_H


#include "bench/sim/engine/sim.h"


#define KVS_POOL  256


typedef enum {
    KVS_HOT = 0,         /* shared prefixes, by popularity; one step */
    KVS_AGENTS,          /* growing context and pauses: also people's chats */
    KVS_MIXED,           /* long documents among chats */
    KVS_RAG,             /* shared documents in varying order */
    KVS_BURST,           /* siblings at once */
    KVS_ASKED,           /* documents, each used by several users */
    KVS_TRACE            /* Mooncake's */
} kvs_shape_e;


/* mean and sigma of the logarithm */
typedef struct {
    double           mean;
    double           sigma;
} kvs_spread_t;


typedef struct {
    kvs_shape_e      shape;
    uint32_t         prefixes;     /* system prompts, kinds, documents */
    double           zipf;         /* their popularity */
    uint32_t         prefix_min;   /* tokens */
    uint32_t         prefix_max;
    kvs_spread_t     question;     /* tokens: new in each step */
    kvs_spread_t     task;         /* agents: extra tokens in the first step */
    kvs_spread_t     output;
    kvs_spread_t     steps;
    kvs_spread_t     pause;        /* s */
    kvs_spread_t     document;     /* mixed: tokens of the long ones */
    double           share;        /* mixed: of long ones; hot: of the surge */
    double           from, to;     /* hot: surge, as shares of the run */
    uint32_t         parts;        /* rag: documents; burst: siblings;
                                      asked: users of a document; mixed:
                                      documents, 0: each is asked once */
    double           spread;       /* burst: s between first and last, */
                                   /* and between the first one's lead and */
    const char      *trace;        /* file name */
} kvs_shape_t;


typedef struct kvs_trace_s  kvs_trace_t;


struct kvs_workload_s {
    kvs_shape_t      shape;
    kvs_trace_t     *trace;
    kvs_zipf_t       zipf;

    /* for the run */

    double           steps;        /* mean requests of a session */
    double           prompt;       /* mean tokens */
    double           output;

    kvs_rng_t        rng;
    double           clock;
    uint64_t         serial;
    uint32_t         siblings;     /* siblings of the current burst to come */
    double           start;        /* start of the burst */
    uint64_t         group;
    uint32_t         group_prefix;
    uint64_t         pool[KVS_POOL];    /* asked: current documents, and */
    uint32_t         users[KVS_POOL];   /* users still to ask for each */
    double           phase;        /* elapsed share of the run */
    uint32_t         limit;        /* longest prompt with its reply */
    size_t           position;     /* in the trace */
    size_t           count;
};


/* returns NULL if the shape needs a trace that is missing */
kvs_workload_t *kvs_workload_create(const kvs_shape_t *shape,
    const char *traces);
void kvs_workload_destroy(kvs_workload_t *w);

/* prepares a run; limit: tokens of the longest request */
void kvs_workload_start(kvs_workload_t *w, uint64_t seed, uint32_t limit);

/* makes the next session; rate in requests per second */
kvs_session_t *kvs_workload_next(kvs_workload_t *w, const kvs_sim_t *sim);

/* workload_trace.c */

kvs_trace_t *kvs_trace_load(const char *path);
void kvs_trace_destroy(kvs_trace_t *t);

/* jitters the times, which the traces give in steps of three seconds */
void kvs_trace_start(kvs_trace_t *t, kvs_rng_t *rng);

/* returns the i-th request by time, in mean intervals since the start */
kvs_session_t *kvs_trace_session(kvs_trace_t *t, size_t i, uint32_t limit,
    double *time);
size_t kvs_trace_size(const kvs_trace_t *t);


#endif
