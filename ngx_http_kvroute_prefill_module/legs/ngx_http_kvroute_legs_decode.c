
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The decode leg: the client's request, with a body of its own.
 *
 * The content handler sets that body, because other modules may copy the
 * request before.  The client's body is restored if the request goes
 * elsewhere, so only the decode upstream gets the new one.
 */


#include "legs/ngx_http_kvroute_legs_int.h"


static ngx_int_t ngx_http_kvroute_legs_decode_content(ngx_http_request_t *r);


void
ngx_http_kvroute_legs_send(ngx_http_kvroute_legs_t *legs, ngx_chain_t *bufs,
    off_t length)
{
    ngx_http_request_t  *r;

    r = legs->request;

    legs->body = *legs->client;
    legs->body.bufs = bufs;
    legs->body_length = length;

    if (legs->content == NULL) {
        legs->content = r->content_handler;
        r->content_handler = ngx_http_kvroute_legs_decode_content;
    }
}


static ngx_int_t
ngx_http_kvroute_legs_decode_content(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx->legs;

    ngx_http_kvroute_request_body_set(r, &legs->body, legs->body_length, NULL);

    if (legs->decode_state == NGX_HTTP_KVROUTE_DECODE_IDLE) {
        legs->decode_state = NGX_HTTP_KVROUTE_DECODE_SENT;
    }

    /* the prefill leg may have failed already */

    if (legs->prefill_state == NGX_HTTP_KVROUTE_PREFILL_FAILED) {
        ngx_post_event(&legs->event, &ngx_posted_events);
    }

    return legs->content(r);
}


void
ngx_http_kvroute_legs_unsend(ngx_http_kvroute_legs_t *legs)
{
    ngx_http_request_t  *r;

    r = legs->request;

    if (r->request_body != &legs->body) {
        return;
    }

    legs->client->temp_file = legs->body.temp_file;
    legs->client->buf = legs->body.buf;

    ngx_http_kvroute_request_body_set(r, legs->client, legs->length,
                                      legs->header);
}


void
ngx_http_kvroute_legs_plain(ngx_http_kvroute_legs_t *legs,
    kvr_disaggregate_e outcome)
{
    ngx_http_kvroute_ctx_t  *ctx;

    if (legs->member) {
        ngx_memset(legs->member, ' ', legs->member_len);
    }

    legs->outcome = outcome;

    ctx = ngx_http_kvroute_request_get_ctx(legs->request);
    ctx->leg = NULL;
}
