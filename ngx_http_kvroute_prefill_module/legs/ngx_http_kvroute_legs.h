
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_


/*
 * Prefill and decode by two servers: two legs, one request.
 *
 *     _legs             whether there are two, and the way from one to the next
 *     _legs_decide      by whom it is served
 *     _legs_body        what the body of a leg loses and gets
 *     _legs_first       leg 1: the subrequest and its answer
 *     _legs_second      leg 2: the client's request with another body
 *     _legs_both        both at the same time
 *     _legs_variables   what became of it, for access logs
 */


#include "request/ngx_http_kvroute_request.h"


/* after the configuration is read: a handler of a phase, if it is needed */
ngx_int_t ngx_http_kvroute_legs_init(ngx_conf_t *cf);

ngx_int_t ngx_http_kvroute_legs_variables(ngx_conf_t *cf);

/*
 * _first: takes the answer of leg 1, of which nothing is sent on.
 * NGX_DECLINED: it is another request's.
 */
ngx_int_t ngx_http_kvroute_legs_header(ngx_http_request_t *r);
ngx_int_t ngx_http_kvroute_legs_answer(ngx_http_request_t *r, ngx_chain_t *in);

/* _both: the answer that the client gets begins */
void ngx_http_kvroute_legs_begun(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs);


#endif /* _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_ */
