
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_REQUEST_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_REQUEST_INT_H_INCLUDED_


#include "request/ngx_http_kvroute_request.h"


/* memory to read bodies of that size with; body_exit() frees it */
ngx_int_t ngx_http_kvroute_body_scratch(size_t size, ngx_log_t *log);
void ngx_http_kvroute_body_exit(void);

/*
 * Reads what has arrived of the body.  NGX_DECLINED: it is not JSON, or not in
 * memory or a file, or ends too early, which it may while more of it is to come.
 */
ngx_int_t ngx_http_kvroute_body_read(ngx_http_request_t *r, kvr_prompt_t *pr,
    kvr_prompt_conf_t *conf);

/* reads the prompt from the body, and keeps its chain and properties */
void ngx_http_kvroute_prompt_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* another request takes the memory of the chain */
void ngx_http_kvroute_prompt_disown(ngx_http_kvroute_ctx_t *ctx);


#endif /* _NGX_HTTP_KVROUTE_REQUEST_INT_H_INCLUDED_ */
