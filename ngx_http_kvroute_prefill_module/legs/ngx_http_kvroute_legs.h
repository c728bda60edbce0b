
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
 *     _legs_prefill     the prefill leg: a subrequest and its answer
 *     _legs_decode      the decode leg: the client's request with another body
 *     _legs_both        both at the same time
 *     _legs_variables   what became of it, for access logs
 */


#include "request/ngx_http_kvroute_request.h"


/* after the configuration is read: a handler of a phase, if it is needed */
ngx_int_t ngx_http_kvroute_legs_init(ngx_conf_t *cf);

ngx_int_t ngx_http_kvroute_legs_variables(ngx_conf_t *cf);

/*
 * Notes a location that has kvroute_prefill: _init() copies what nginx has of it
 * for each leg, when all modules have merged their configurations.
 */
ngx_int_t ngx_http_kvroute_legs_merge(ngx_conf_t *cf,
    ngx_http_kvroute_loc_conf_t *klcf);


#endif /* _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_ */
