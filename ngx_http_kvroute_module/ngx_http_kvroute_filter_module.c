
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Reads responses as they pass.  Nothing is delayed, kept or changed: each call
 * passes on its input.
 */


#include "request/ngx_http_kvroute_request.h"
#include "conf/ngx_http_kvroute_conf.h"
#include "engine/ngx_http_kvroute_engine.h"
#include "balance/ngx_http_kvroute_balance.h"


static ngx_http_kvroute_attempt_t *ngx_http_kvroute_watched(
    ngx_http_request_t *r);
static kvr_response_mode_e ngx_http_kvroute_mode(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
static ngx_uint_t ngx_http_kvroute_is_type(ngx_http_request_t *r,
    const char *type);
static ngx_int_t ngx_http_kvroute_header_next(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_body_next(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_kvroute_filter_init(ngx_conf_t *cf);


static ngx_http_module_t  ngx_http_kvroute_filter_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_kvroute_filter_init,          /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    ngx_http_kvroute_conf_check_pass       /* merge location configuration */
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


/* Returns the attempt if this is its response and it is still being read. */
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

    /* after free() nginx may send a page of its own */

    return at->core.reservation.held && at->watched ? at : NULL;
}


static ngx_int_t
ngx_http_kvroute_header_filter(ngx_http_request_t *r)
{
    ngx_uint_t                   stream, status, readable;
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_attempt_t  *at;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    /* get() was not called: the response is nginx's own, or from its cache */

    if (ctx && ctx->reserved.conf) {
        ngx_http_kvroute_reserve_release(&ctx->reserved);
    }

    at = ngx_http_kvroute_watched(r);

    if (at == NULL || r->upstream == NULL) {
        return ngx_http_kvroute_header_next(r);
    }

    stream = ngx_http_kvroute_is_type(r, "text/event-stream");

    at->stream = stream || ngx_http_kvroute_is_type(r, "application/x-ndjson");

    status = r->upstream->headers_in.status_n;

    /* after the upgrade, data bypasses all filters */

    if (status == NGX_HTTP_SWITCHING_PROTOCOLS) {
        ngx_http_kvroute_attempt_first(at);
        at->watched = 0;
        return ngx_http_kvroute_header_next(r);
    }

    readable = (at->core.reservation.peer != KVR_REGISTRY_NONE && status >= 200
                && status <= 299);

    /* of a compressed response only the time of its start is used */

    if (r->headers_out.content_encoding
        && r->headers_out.content_encoding->value.len)
    {
        readable = 0;
        stream = 0;
    }

    kvr_response_init(&at->ctx->usage,
                      readable ? ngx_http_kvroute_mode(r, at)
                               : KVR_RESPONSE_FIRST,
                      (unsigned) stream);

    return ngx_http_kvroute_header_next(r);
}


/* Passes the header on, unless a leg keeps it from the client. */
static ngx_int_t
ngx_http_kvroute_header_next(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);

    rc = (ctx && ctx->leg && ctx->leg->header)
         ? ctx->leg->header(r, ctx->legs) : NGX_DECLINED;

    return rc == NGX_DECLINED ? ngx_http_next_header_filter(r) : rc;
}


/* Compares the type of a response, without its parameters. */
static ngx_uint_t
ngx_http_kvroute_is_type(ngx_http_request_t *r, const char *type)
{
    size_t      len;
    ngx_str_t  *s;

    s = &r->headers_out.content_type;
    len = ngx_strlen(type);

    return s->len >= len
           && ngx_strncasecmp(s->data, (u_char *) type, len) == 0;
}


/*
 * Returns how much of a response to read.  Token counts are needed for a prompt
 * that was read, for tenants and for variables.  The Responses API has an id,
 * which leads later requests to the same engine.
 */
static kvr_response_mode_e
ngx_http_kvroute_mode(ngx_http_request_t *r, ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_loc_conf_t  *klcf;

    if (at->ctx->reply) {
        return KVR_RESPONSE_REPLY;
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (at->ctx->parsed
        || (klcf->request && klcf->request->tenant)
        || ngx_http_kvroute_variables_tokens(r)
        || at->ctx->endpoint == KVR_ENDPOINT_RESPONSES)
    {
        return KVR_RESPONSE_TOKENS;
    }

    return KVR_RESPONSE_FIRST;
}


static ngx_int_t
ngx_http_kvroute_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    int                          more;
    ngx_buf_t                   *b;
    ngx_chain_t                 *cl;
    kvr_response_t              *u;
    kvr_reply_t                 *reply;
    ngx_http_kvroute_attempt_t  *at;

    at = ngx_http_kvroute_watched(r);

    if (at == NULL) {
        return ngx_http_kvroute_body_next(r, in);
    }

    u = &at->ctx->usage;
    reply = at->ctx->reply;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_size(b) == 0) {
            continue;
        }

        /* a part in a file is not read: the response began before it */

        if (!ngx_buf_in_memory(b)) {
            u->first = 1;
            more = 0;

            if (reply) {
                reply->bad = 1;
            }

        } else {
            more = kvr_response_read(u, b->pos, b->last - b->pos,
                                     reply ? kvr_reply_part : NULL, reply);
        }

        if (u->first) {

            if (!at->core.started) {
                ngx_http_kvroute_attempt_first(at);

            } else {
                kvr_attempt_heard(&at->core, &at->conf->zone->core);
            }

            if (at->core.started && at->conf->health) {
                ngx_http_kvroute_attempt_alive(at);
            }
        }

        if (u->id_done && !at->named) {
            at->named = 1;

            if (at->core.reservation.peer != KVR_REGISTRY_NONE
                && !ngx_http_kvroute_balance_fallback(at))
            {
                ngx_http_kvroute_session_name(at->ctx, at->conf,
                                              at->core.reservation.peer, u->id,
                                              u->id_len);
            }
        }

        /* the rest only shows that the peer is alive */

        if (!more) {
            at->watched = (at->conf->health && u->mode == KVR_RESPONSE_FIRST);
            break;
        }
    }

    return ngx_http_kvroute_body_next(r, in);
}


static ngx_int_t
ngx_http_kvroute_body_next(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t                rc;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);

    rc = (ctx && ctx->leg && ctx->leg->answer)
         ? ctx->leg->answer(r, ctx->legs, in) : NGX_DECLINED;

    return rc == NGX_DECLINED ? ngx_http_next_body_filter(r, in) : rc;
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
