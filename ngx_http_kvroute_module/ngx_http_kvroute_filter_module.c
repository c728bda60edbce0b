
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Watches responses stream by.  Nothing is delayed, kept or changed: what
 * comes in goes on in the same call.
 */


#include "ngx_http_kvroute.h"


static ngx_http_kvroute_attempt_t *ngx_http_kvroute_watched(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_filter_init(ngx_conf_t *cf);


static ngx_http_module_t  ngx_http_kvroute_filter_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_kvroute_filter_init,          /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_kvroute_filter_module = {
    NGX_MODULE_V1,
    &ngx_http_kvroute_filter_module_ctx,   /* module context */
    NULL,                                  /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* the attempt whose first event is still to come, if this is its response */
static ngx_http_kvroute_attempt_t *
ngx_http_kvroute_watched(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_attempt_t  *at;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);

    if (ctx == NULL || ctx->attempt == NULL) {
        return NULL;
    }

    at = ctx->attempt;

    /* nginx's own pages come after the peer was freed */

    return at->reserved && !at->started ? at : NULL;
}


static ngx_int_t
ngx_http_kvroute_header_filter(ngx_http_request_t *r)
{
    ngx_uint_t                   stream;
    ngx_http_kvroute_attempt_t  *at;

    at = ngx_http_kvroute_watched(r);

    if (at) {
        /* events that came compressed cannot be told from comments */

        stream = r->headers_out.content_encoding == NULL
                 && r->headers_out.content_type.len >= 17
                 && ngx_strncasecmp(r->headers_out.content_type.data,
                                    (u_char *) "text/event-stream", 17)
                    == 0;

        kvr_usage_init(&at->ctx->usage, (unsigned) stream);
    }

    return ngx_http_next_header_filter(r);
}


static ngx_int_t
ngx_http_kvroute_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t                   *b;
    ngx_chain_t                 *cl;
    ngx_http_kvroute_attempt_t  *at;

    at = ngx_http_kvroute_watched(r);

    if (at == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_size(b) == 0) {
            continue;
        }

        /* what was spooled to a file has begun long ago */

        if (!ngx_buf_in_memory(b)
            || kvr_usage_event(&at->ctx->usage, b->pos, b->last - b->pos))
        {
            ngx_http_kvroute_attempt_first(at);
            break;
        }
    }

    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_kvroute_filter_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_kvroute_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_kvroute_body_filter;

    return NGX_OK;
}
