/*
 * What the queue's simulation is made of, for its own files only.
 *
 *     fleet.c         engines, results
 *     fleet_queue.c   who waits and who is let in
 *     fleet_events.c  what happens when, and the end of a request
 */

#ifndef KVQ_FLEET_INT_H
#define KVQ_FLEET_INT_H


#include "fleet.h"
#include "replica.h"

#include "core/index/kvr_index.h"
#include "core/policy/kvr_policy.h"
#include "core/queue/kvr_queue.h"
#include "core/state/kvr_zone.h"


#define KVQ_TICK      0.004
#define KVQ_WORKERS   8
#define KVQ_CAPACITY  (64 * 1024 * 1024)
#define KVQ_ZONE      (16 * 1024 * 1024)
#define KVQ_ENTRIES   8192


typedef struct kvq_request_s  kvq_request_t;


/* as in ngx_http_kvroute_queue.h */
typedef enum {
    KVQ_ANY,
    KVQ_CHEAP,
    KVQ_WARM
} kvq_taste_e;


struct kvq_request_s {
    kvr_queue_item_t  item;
    kve_req_t         req;

    kvq_t            *sim;
    kvq_request_t    *link;
    kvq_ask_t         ask;           /* from elsewhere */
    uint64_t         *own;           /* chain, of the streams' */
    const uint64_t   *chain;
    uint32_t          units;
    uint32_t          stream;
    uint32_t          worker;
    uint32_t          replica;
    uint32_t          reserved;      /* replica */
    uint64_t          bytes;
    uint64_t          pending;
    uint64_t          ahead;
    double            start;
    double            given;
    double            ttft;
    kvr_index_undo_t  undo;
    kvr_popular_keys_t  counted;
    uint32_t          rate;          /* of the fastest */
    uint64_t          hit;           /* bytes, as predicted */
    unsigned          held:1;
    unsigned          gated:1;       /* the queue is long */
    unsigned          rather:1;      /* not any place would do */
    kvq_taste_e       taste;
    unsigned          measured:1;
    unsigned          started:1;
    unsigned          out:1;         /* turned away */
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


typedef struct {
    double            t;
    uint64_t          seq;
    kvq_event_e       type;
    void             *data;
} kvq_event_t;


struct kvq_s {
    const kvq_conf_t  *conf;
    kvq_result_t      *res;
    double             now;

    kve_replica_t     *replica[KVS_REPLICAS];
    double             next[KVS_REPLICAS];

    kvr_index_t       *index;
    kvr_load_t        *load;
    kvr_registry_t    *registry;
    kvr_popular_t     *popular;
    kvr_popular_view_t  view;          /* of the request at hand */
    kvr_queue_shared_t *shared;
    kvr_queue_t        waiting[KVQ_WORKERS];
    unsigned           ticking[KVQ_WORKERS];
    uint8_t            tenant[KVQ_STREAMS];

    kvs_rng_t          rng;
    kvs_rng_t          rng_of[KVQ_STREAMS];
    uint64_t           serial;
    uint32_t           given;
    uint32_t           last[KVS_REPLICAS];

    kvq_event_t       *heap;
    size_t             nheap, size;
    uint64_t           seq;

    kvq_request_t     *all;
    uint32_t           left;          /* measured, not over */
    uint64_t           prompt, cached;
    uint32_t           due, done;

    uint64_t           entry[KVQ_ENTRIES];
};


/* fleet_events.c */

void kvq_push(kvq_t *q, double t, kvq_event_e type, void *data);
kvq_event_t kvq_pop(kvq_t *q);
uint64_t kvq_ms(kvq_t *q);
void kvq_over(kvq_t *q, kvq_request_t *rq);
void kvq_reject(kvq_t *q, kvq_request_t *rq, uint32_t *counter);

/* fleet_queue.c */

void kvq_count(kvq_t *q, kvq_request_t *rq, uint32_t replica, int32_t active,
    int32_t unanswered, int64_t pending);
void kvq_enter(kvq_t *q, kvq_request_t *rq);
void kvq_worker_run(kvq_t *q, uint32_t worker);


#endif
