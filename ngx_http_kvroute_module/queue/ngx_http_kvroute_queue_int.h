
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_QUEUE_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_QUEUE_INT_H_INCLUDED_


#include "queue/ngx_http_kvroute_queue.h"
#include "zone/ngx_http_kvroute_zone.h"
#include "core/route/kvr_route.h"


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

    ngx_http_request_t          *request;
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_srv_conf_t *conf;
    ngx_table_elt_t             *retry;     /* Retry-After */

    ngx_msec_t                   start;
    ngx_msec_t                   time;      /* that it waited, in the end */

    ngx_uint_t                   uri_changes;  /* the request's, when it came */

    uint64_t                     bytes;     /* that must fit in the peer's
                                               cache, or 0 */

    ngx_http_kvroute_queue_state_e  state;
    kvr_admission_prefer_e          prefer;

    unsigned                     later:1;   /* there was room, but not at the
                                               peer that it wants */
    unsigned                     again:1;   /* turned away before */
    unsigned                     deadline:1;
};


/* _queue_order: where in the order the request belongs */
void ngx_http_kvroute_queue_item(ngx_http_kvroute_wait_t *w);

/* what peers hold of its prompt, looked up if what is known is too old */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_queue_lookup(
    ngx_http_kvroute_wait_t *w);

/* the same, if it is known */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_queue_kept(
    ngx_http_kvroute_wait_t *w);

/* _queue_room: reserves a place if there is room; item NULL: gives it back */
int ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item);

/* _queue_run: one more waits here */
void ngx_http_kvroute_queue_start(ngx_http_kvroute_wait_t *w);

/* takes one that waits out of the queue; its event will say so */
void ngx_http_kvroute_queue_leave(ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_queue_state_e state);

/* whether what peers hold counts for who is let in, and when it is known */
ngx_uint_t ngx_http_kvroute_queue_by_cost(ngx_http_kvroute_srv_conf_t *conf);

/* whether n more requests of so many bytes would exceed max or max_bytes */
ngx_uint_t ngx_http_kvroute_queue_over(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t n, uint64_t bytes);

/* _queue_status: turns a request away */
ngx_int_t ngx_http_kvroute_queue_reject(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);


#endif /* _NGX_HTTP_KVROUTE_QUEUE_INT_H_INCLUDED_ */
