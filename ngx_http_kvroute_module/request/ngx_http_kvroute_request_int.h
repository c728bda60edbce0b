
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_REQUEST_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_REQUEST_INT_H_INCLUDED_


#include "request/ngx_http_kvroute_request.h"


/* Allocates scratch memory for bodies of that size; body_exit() frees it. */
ngx_int_t ngx_http_kvroute_body_scratch(size_t size, ngx_log_t *log);
void ngx_http_kvroute_body_exit(void);

/*
 * Reads the part of the body that has been received.  NGX_DECLINED: it cannot
 * be read, is not JSON, or is incomplete although no more is expected.
 */
ngx_int_t ngx_http_kvroute_body_read(ngx_http_request_t *r, kvr_prompt_t *pr,
    kvr_prompt_conf_t *conf);

/* Reads the prompt from the body into the context. */
void ngx_http_kvroute_prompt_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* Frees the chain; the scratch memory is no longer this request's. */
void ngx_http_kvroute_prompt_disown(ngx_http_kvroute_ctx_t *ctx);


#endif /* _NGX_HTTP_KVROUTE_REQUEST_INT_H_INCLUDED_ */
