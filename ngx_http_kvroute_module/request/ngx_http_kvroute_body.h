
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_BODY_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_BODY_H_INCLUDED_


#include "request/ngx_http_kvroute_request.h"


/* memory to read bodies of so many bytes with; body_exit() gives it back */
ngx_int_t ngx_http_kvroute_body_scratch(size_t size, ngx_log_t *log);
void ngx_http_kvroute_body_exit(void);

/*
 * Reads what there is of the body.  NGX_DECLINED: it is not JSON, or cannot be
 * had, or ends too early, which it may as long as more of it is to come.
 */
ngx_int_t ngx_http_kvroute_body_read(ngx_http_request_t *r, kvr_prompt_t *pr,
    kvr_prompt_conf_t *conf);


#endif /* _NGX_HTTP_KVROUTE_BODY_H_INCLUDED_ */
