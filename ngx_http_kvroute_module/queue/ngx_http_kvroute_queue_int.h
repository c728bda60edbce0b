
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_QUEUE_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_QUEUE_INT_H_INCLUDED_


#include "queue/ngx_http_kvroute_queue.h"
#include "zone/ngx_http_kvroute_zone.h"
#include "core/route/kvr_route.h"


/* $kvroute_queue_status */

typedef enum {
    NGX_HTTP_KVROUTE_QUEUE_NONE = 0,
    NGX_HTTP_KVROUTE_QUEUE_PASSED,
    NGX_HTTP_KVROUTE_QUEUE_WAITING,
    NGX_HTTP_KVROUTE_QUEUE_WAITED,
    NGX_HTTP_KVROUTE_QUEUE_FULL,
    NGX_HTTP_KVROUTE_QUEUE_TIMEOUT,
    NGX_HTTP_KVROUTE_QUEUE_DEADLINE,
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
    ngx_msec_t                   time;      /* it has waited */

    ngx_uint_t                   uri_changes;  /* of the request, at first */

    uint64_t                     bytes;     /* must fit into the peer's cache;
                                               0: no condition */

    ngx_http_kvroute_queue_state_e  state;
    kvr_admission_prefer_e          prefer;

    unsigned                     later:1;   /* there was room, but not at a
                                               peer it wants */
    unsigned                     again:1;   /* rejected before */
    unsigned                     deadline:1;
};


/* _queue_order: Sets the position of a request. */
void ngx_http_kvroute_queue_item(ngx_http_kvroute_wait_t *w);

/* Returns what peers have cached, looked up again if it is too old. */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_queue_lookup(
    ngx_http_kvroute_wait_t *w);

/* Returns the same if it is not too old, or NULL. */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_queue_kept(
    ngx_http_kvroute_wait_t *w);

/* _queue_room: Makes a reservation if there is room; item NULL: releases it. */
int ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item);

/* _queue_run: Adds a request to the queue. */
void ngx_http_kvroute_queue_start(ngx_http_kvroute_wait_t *w);

/* Removes a request from the queue, and posts its event. */
void ngx_http_kvroute_queue_leave(ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_queue_state_e state);

/* Tells whether cached bytes count for admission. */
ngx_uint_t ngx_http_kvroute_queue_by_cost(ngx_http_kvroute_srv_conf_t *conf);

/* Tells whether n more requests exceed max. */
ngx_uint_t ngx_http_kvroute_queue_over(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t n);

/* _queue_status: Returns what ngx_http_finalize_request() needs. */
ngx_int_t ngx_http_kvroute_queue_reject(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);


#endif /* _NGX_HTTP_KVROUTE_QUEUE_INT_H_INCLUDED_ */
