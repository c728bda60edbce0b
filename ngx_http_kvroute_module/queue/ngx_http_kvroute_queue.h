
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_QUEUE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_QUEUE_H_INCLUDED_


/*
 * The queue of an upstream: requests wait before the content phase until a peer
 * has room for them.
 *
 *     _queue         decides which requests wait, and ends waiting
 *     _queue_order   the position of a request
 *     _queue_room    looks for room, and reserves it
 *     _queue_run     admits waiting requests
 *     _queue_status  rejects requests; variables
 *
 * Waiting requests are in heaps of this worker; core/queue/kvr_queue.h has the
 * order and what workers share.  A waiting request has no connection to a peer,
 * and an event: a timer for its timeout, posted when it is admitted.  Admission
 * makes a reservation at a peer (request/ngx_http_kvroute_reserve.c).
 */


#include "request/ngx_http_kvroute_request.h"
#include "core/route/kvr_route.h"


ngx_int_t ngx_http_kvroute_queue_init(ngx_conf_t *cf);
ngx_int_t ngx_http_kvroute_queue_variables(ngx_conf_t *cf);
void ngx_http_kvroute_queue_exit(void);

/*
 * Admits a request or lets it wait, in a phase before the content phase.
 * Returns NGX_DECLINED, NGX_DONE or an error.
 */
ngx_int_t ngx_http_kvroute_queue_request(ngx_http_request_t *r);

/* Returns the time that the request has waited, ms. */
ngx_msec_t ngx_http_kvroute_queue_time(ngx_http_kvroute_ctx_t *ctx);

/* Returns bytes that must fit into the peer's cache; 0: no condition. */
uint64_t ngx_http_kvroute_queue_fit(ngx_http_kvroute_ctx_t *ctx);

/*
 * Tells whether a request was admitted here, so it may exceed max_conns.  All
 * peers can be full nevertheless: its first peer has failed, or nginx still
 * counts connections of a killed worker.
 */
ngx_uint_t ngx_http_kvroute_queue_again(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf);


#endif /* _NGX_HTTP_KVROUTE_QUEUE_H_INCLUDED_ */
