
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
 *     _queue_status  what is said of it, to clients and in logs
 *
 * Who waits is in the heaps of this worker (core/queue/kvr_queue.h has the
 * order and what the workers share).  A request that waits holds no connection
 * to a peer, and its own event: a timer for its end, posted when it is let in.
 * It is let in by a reservation on a peer, which the request holds from then on
 * (request/ngx_http_kvroute_reserve.c).
 */


#include "request/ngx_http_kvroute_request.h"
#include "core/route/kvr_route.h"


ngx_int_t ngx_http_kvroute_queue_init(ngx_conf_t *cf);
ngx_int_t ngx_http_kvroute_queue_variables(ngx_conf_t *cf);
void ngx_http_kvroute_queue_exit(void);

/*
 * Lets a request in, or has it wait, in a phase before the content's: NGX_DECLINED
 * or NGX_DONE, or an error.
 */
ngx_int_t ngx_http_kvroute_queue_request(ngx_http_request_t *r);

/* bytes of it that must find room in the peer's cache; 0: does not matter */
uint64_t ngx_http_kvroute_queue_fit(ngx_http_kvroute_ctx_t *ctx);

/*
 * Whether a request has been let in, though all peers seem to have all that they
 * may have: its first one has failed, and there is a queue for the others; or
 * nginx still counts connections of a worker that was killed.  It had its place,
 * and goes to one of them all the same.
 */
ngx_uint_t ngx_http_kvroute_queue_again(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf);


#endif /* _NGX_HTTP_KVROUTE_QUEUE_H_INCLUDED_ */
