/*
 * The queue in virtual time: a fleet of replicas, the router's core and
 * core/kvr_queue as nginx's workers use them, and requests of two classes.
 * A run depends on its conf only.
 */

#ifndef KVQ_FLEET_H
#define KVQ_FLEET_H


#include "bench/model/sample.h"


#define KVQ_STREAMS  3


/* requests of one kind: a shared beginning, the rest their own */
typedef struct {
    double        rate;          /* 1/s */
    uint32_t      prompt;        /* tokens */
    uint32_t      shared;        /* of them, one of so many texts: */
    uint32_t      texts;
    uint32_t      output;
    unsigned      class;
    uint32_t      tenant;
    uint32_t      weight;
    uint32_t      deadline;      /* ms, 0: none */
    double        limit;         /* s to the first token that are good */
} kvq_stream_t;


typedef struct kvq_s  kvq_t;


/* a request from elsewhere */
typedef struct {
    double           t;          /* s */
    uint32_t         stream;
    uint32_t         prompt;     /* tokens */
    uint32_t         output;
    const uint64_t  *chain;      /* of prompt and reply, until next() is told */
    uint32_t         units;
    unsigned         measured:1;
    void            *data;
} kvq_ask_t;


typedef struct {
    const char   *hardware;
    uint32_t      replicas;
    uint32_t      workers;
    double        length;        /* s of arrivals */
    double        window;        /* s from which on they are measured */
    uint64_t      seed;
    unsigned      queue:1;
    unsigned      probed:1;      /* the engines tell the size of their cache */
    uint32_t      target;        /* ms, max_pending=auto; 0: no cap */
    uint32_t      max;
    uint32_t      timeout;       /* ms */
    kvq_stream_t  stream[KVQ_STREAMS];

    /*
     * Requests from elsewhere, in place of the streams' own: first() has those
     * that come by themselves, next() what a request's answer is followed by.
     * Either asks for requests with kvq_submit().
     */

    void        (*first)(void *data, kvq_t *q);
    void        (*next)(void *data, kvq_t *q, const kvq_ask_t *ask,
                        double ttft, double e2e);
    void         *data;
    uint64_t      kv_tokens;     /* 0: the hardware's */
    double        slow;          /* speed of replica 0, 0: as the others */
} kvq_conf_t;


typedef struct {
    uint32_t      arrived;       /* measured ones */
    uint32_t      served;
    uint32_t      waited;
    uint32_t      full, shed, timeouts, late;
    uint32_t      good;
    uint32_t      window_done;   /* completed in the window, by any */
    uint64_t      window_work;   /* bytes let in in the window */
    double        ttft, p50, p99, max_wait;
    kvs_sample_t  sample;        /* served TTFTs, sorted */
} kvq_stats_t;


typedef struct {
    kvq_stats_t   stream[KVQ_STREAMS];
    double        cached;        /* share of the prompt tokens */
    double        completed;     /* of what fell due in the window */
    double        ttft;          /* mean of all */
    double        p50, p95, p99; /* of all */
    double        span;          /* s */
    uint32_t      out_of_order;  /* let in past one due earlier */
    uint64_t      rate;          /* bytes/s learned, mean of the replicas */
} kvq_result_t;


void kvq_run(const kvq_conf_t *conf, kvq_result_t *res);

double kvq_now(kvq_t *q);

/* a request that comes at ask->t, which is not over */
void kvq_submit(kvq_t *q, const kvq_ask_t *ask);
void kvq_free(kvq_result_t *res);


#endif
