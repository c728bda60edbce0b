/*
 * The queue in virtual time: a fleet of replicas, the router's core,
 * core/kvr_queue as nginx's workers use it, and requests of two classes.  A
 * run depends on its conf only.
 */

#ifndef KVQ_FLEET_H
#define KVQ_FLEET_H


#include "bench/model/sample.h"


#define KVQ_STREAMS  3


/* requests of one kind: a shared prefix, then text of their own */
typedef struct {
    double        rate;          /* 1/s */
    uint32_t      prompt;        /* tokens */
    uint32_t      shared;        /* tokens, from one of these texts: */
    uint32_t      texts;
    uint32_t      output;
    unsigned      class;
    uint32_t      tenant;
    uint32_t      weight;
    uint32_t      deadline;      /* ms, 0: none */
    double        limit;         /* s of the longest good TTFT */
} kvq_stream_t;


typedef struct kvq_s  kvq_t;


/* a request of the caller */
typedef struct {
    double           t;          /* s */
    uint32_t         stream;
    uint32_t         prompt;     /* tokens */
    uint32_t         output;
    const uint64_t  *chain;      /* of prompt and reply, until next() */
    uint32_t         units;
    unsigned         measured:1;
    void            *data;
} kvq_ask_t;


typedef struct {
    const char   *hardware;
    uint32_t      replicas;
    uint32_t      workers;
    double        length;        /* s of arrivals */
    double        window;        /* s of the start of measurement */
    uint64_t      seed;
    unsigned      queue:1;
    unsigned      probed:1;      /* engines report the size of their cache */
    uint32_t      target;        /* ms, max_pending=auto; 0: no cap */
    uint32_t      max;
    uint32_t      timeout;       /* ms */
    kvq_stream_t  stream[KVQ_STREAMS];

    /*
     * Requests of the caller, instead of the streams.  first() submits those
     * that come by themselves, next() those that follow an answer.  Both
     * submit with kvq_submit().
     */

    void        (*first)(void *data, kvq_t *q);
    void        (*next)(void *data, kvq_t *q, const kvq_ask_t *ask,
                        double ttft, double e2e);
    void         *data;
    uint64_t      kv_tokens;     /* 0: the hardware's */
    double        slow;          /* speed of replica 0, 0: like the others */
} kvq_conf_t;


typedef struct {
    uint32_t      arrived;       /* measured requests */
    uint32_t      served;
    uint32_t      waited;
    uint32_t      full, shed, timeouts, deadline;
    uint32_t      good;
    uint32_t      window_done;   /* requests completed in the window */
    uint64_t      window_work;   /* bytes admitted in the window */
    double        ttft, p50, p99, max_wait;
    kvs_sample_t  sample;        /* served TTFTs, sorted */
} kvq_stats_t;


typedef struct {
    kvq_stats_t   stream[KVQ_STREAMS];
    double        cached;        /* share of the prompt tokens */
    double        completed;     /* share of those due in the window */
    double        ttft;          /* mean of all */
    double        p50, p95, p99; /* of all */
    double        span;          /* s */
    uint32_t      out_of_order;  /* admitted before one due earlier */
    uint64_t      rate;          /* learned bytes/s, mean of the replicas */
} kvq_result_t;


void kvq_run(const kvq_conf_t *conf, kvq_result_t *res);

double kvq_now(kvq_t *q);

/* submits a request that comes at ask->t, not in the past */
void kvq_submit(kvq_t *q, const kvq_ask_t *ask);
void kvq_free(kvq_result_t *res);


#endif
