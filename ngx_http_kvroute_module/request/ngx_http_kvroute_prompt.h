
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_PROMPT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_PROMPT_H_INCLUDED_


#include "request/ngx_http_kvroute_request.h"


/* reads the body for its prompt, and keeps what is to be known of it */
void ngx_http_kvroute_prompt_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* what was made of the body is nobody's any more */
void ngx_http_kvroute_prompt_disown(ngx_http_kvroute_ctx_t *ctx);


#endif /* _NGX_HTTP_KVROUTE_PROMPT_H_INCLUDED_ */
