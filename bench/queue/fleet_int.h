/*
 * Internal parts of the queue's simulation.
 *
 *     fleet.c         engines, results
 *     fleet_queue.c   which requests wait and which are admitted
 *     fleet_events.c  the clock, and the end of a request
 */

#ifndef KVQ_FLEET_INT_H
#define KVQ_FLEET_INT_H


#include "core/route/kvr_route.h"

#include "bench/model/events.h"
#include "bench/model/route.h"
#include "bench/queue/fleet.h"


#define KVQ_TICK      0.004
#define KVQ_WORKERS   8
#define KVQ_CAPACITY  (64 * 1024 * 1024)


typedef struct kvq_request_s  kvq_request_t;


struct kvq_request_s {
    kvr_queue_item_t  item;
    kve_req_t         req;
    kvs_route_t       route;         /* row: of the worker */

    kvq_t            *sim;
    kvq_request_t    *link;
    kvq_ask_t         ask;           /* the caller's request */
    uint64_t         *own;           /* chain, if it is of a stream */
    uint32_t          stream;
    double            start;
    double            ttft;

    kvr_reservation_t     reserved;
    kvr_admission_prefer_e  prefer;
    uint64_t          fit;           /* bytes, if the queue is long */

    unsigned          later:1;       /* waits for a better place */
    unsigned          measured:1;
    unsigned          out:1;         /* rejected */
};


typedef enum {
    KVQ_ARRIVE,
    KVQ_ASKED,
    KVQ_FIRST,
    KVQ_DONE,
    KVQ_TICKED,
    KVQ_PROBE,
    KVQ_TIMEOUT
} kvq_event_e;


struct kvq_s {
    const kvq_conf_t  *conf;
    kvq_result_t      *res;
    double             now;

    kve_replica_t     *replica[KVS_REPLICAS];
    double             next[KVS_REPLICAS];

    kvs_zone_t         zone;
    kvs_choice_t       choice;        /* of the current request */
    uint64_t           capacity;      /* tokens, of each replica */
    kvr_queue_shared_t *shared;
    kvr_queue_t        waiting[KVQ_WORKERS];
    unsigned           ticking[KVQ_WORKERS];
    uint8_t            tenant[KVQ_STREAMS];

    kvs_rng_t          rng;
    kvs_rng_t          rng_of[KVQ_STREAMS];
    uint64_t           serial;

    kvs_events_t       events;

    kvq_request_t     *all;
    uint32_t           left;          /* measured requests in flight or due */
    uint64_t           prompt, cached;
    uint32_t           due, done;
};


/* fleet_events.c */

uint64_t kvq_ms(kvq_t *q);
void kvq_over(kvq_t *q, kvq_request_t *rq);
void kvq_reject(kvq_t *q, kvq_request_t *rq, uint32_t *counter);

/* fleet_queue.c */

void kvq_enter(kvq_t *q, kvq_request_t *rq);
void kvq_worker_run(kvq_t *q, uint32_t worker);


#endif
