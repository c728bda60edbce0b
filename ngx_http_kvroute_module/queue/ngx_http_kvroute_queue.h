
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_QUEUE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_QUEUE_H_INCLUDED_


/*
 * The queue of an upstream: requests that wait before the content phase until
 * a peer has room for them.
 *
 *     _queue         who has to wait, and how waiting ends
 *     _queue_order   where in the order a request belongs
 *     _queue_room    whether there is room, and what is reserved for it
 *     _queue_run     who is let in
 *     _queue_status  what is said of it, to clients and in the status
 *     _queue_conf    directives
 *
 * Who waits is in the heaps of this worker (core/queue/kvr_queue.h has the
 * order and what the workers share).  A request that waits holds no connection
 * to a peer, and its own event: a timer for its end, posted when it is let in.
 * It is let in by a reservation on a peer, counted in this process's row as any
 * other request; get() returns it for the peer that it takes, and if there
 * never is a get() the request's cleanup does.
 */


#include "ngx_http_kvroute.h"
#include "core/route/kvr_route.h"


_Static_assert(KVR_QUEUE_PEERS == KVR_INDEX_PEERS, "claims of peers");


/* states of a request, as the access log has them */

typedef enum {
    NGX_HTTP_KVROUTE_QUEUE_NONE = 0,
    NGX_HTTP_KVROUTE_QUEUE_PASSED,
    NGX_HTTP_KVROUTE_QUEUE_WAITING,
    NGX_HTTP_KVROUTE_QUEUE_WAITED,
    NGX_HTTP_KVROUTE_QUEUE_FULL,
    NGX_HTTP_KVROUTE_QUEUE_TIMEOUT,
    NGX_HTTP_KVROUTE_QUEUE_LATE,
    NGX_HTTP_KVROUTE_QUEUE_SHED,
    NGX_HTTP_KVROUTE_QUEUE_ABORTED,
    NGX_HTTP_KVROUTE_QUEUE_STATES
} ngx_http_kvroute_queue_state_e;


struct ngx_http_kvroute_wait_s {
    kvr_queue_item_t             item;
    ngx_event_t                  event;
    ngx_queue_t                  link;      /* of strict ones */

    ngx_http_request_t          *request;
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_srv_conf_t *conf;
    ngx_table_elt_t             *retry;     /* Retry-After */

    ngx_msec_t                   start;
    ngx_msec_t                   time;      /* that it waited, in the end */

    uint32_t                     own;       /* the only peer, of strict ones */
    ngx_uint_t                   uri_changes;  /* of the request, when it came */

    kvr_reservation_t            reserved;
    uint64_t                     bytes;     /* to fit in the cache, or 0 */

    ngx_http_kvroute_queue_state_e  state;
    kvr_admission_wish_e            wish;

    /* what peers hold of its prompt, as it was last looked up */

    uint64_t                     set;       /* of these peers; 0: never */
    ngx_msec_t                   looked;
    uint32_t                     matched[KVR_INDEX_PEERS];  /* units */
    kvr_popular_view_t           popular;
    kvr_popular_keys_t           counted;

    unsigned                     later:1;   /* there was room, elsewhere
                                               than it should go */
    unsigned                     again:1;   /* turned away before */
    unsigned                     deadline:1;
    unsigned                     strict:1;
};


/* _queue */

void ngx_http_kvroute_queue_leave(ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_queue_state_e state);

/* _queue_order */

void ngx_http_kvroute_queue_item(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);
void ngx_http_kvroute_queue_own(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w, ngx_http_kvroute_policy_t *policy);
uint32_t *ngx_http_kvroute_queue_match(ngx_http_kvroute_wait_t *w);
uint32_t *ngx_http_kvroute_queue_kept(ngx_http_kvroute_wait_t *w);
void ngx_http_kvroute_queue_retain(ngx_http_kvroute_wait_t *w);

/* _queue_room */

int ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item);
void ngx_http_kvroute_queue_return(ngx_http_kvroute_wait_t *w);

/* _queue_run */

void ngx_http_kvroute_queue_start(ngx_http_kvroute_wait_t *w);
ngx_uint_t ngx_http_kvroute_queue_choosy(ngx_http_kvroute_srv_conf_t *conf);
uint32_t ngx_http_kvroute_queue_row(ngx_http_kvroute_srv_conf_t *conf);
void ngx_http_kvroute_queue_apart(ngx_http_kvroute_wait_t *w, ngx_uint_t in);
ngx_uint_t ngx_http_kvroute_queue_over(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t n, uint64_t bytes);

/* _queue_status */

ngx_int_t ngx_http_kvroute_queue_reject(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);
const char *ngx_http_kvroute_queue_state(ngx_http_kvroute_queue_state_e state);


#endif /* _NGX_HTTP_KVROUTE_QUEUE_H_INCLUDED_ */
