
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Leg 2: the client's request itself, with a body of its own.
 *
 * That body is put in place by the content handler, since other modules may copy
 * the request before, and the client's is put back when the request goes
 * somewhere else: nobody but the decode upstream sees it.
 */


#include "legs/ngx_http_kvroute_legs_int.h"


static ngx_int_t ngx_http_kvroute_legs_second_content(ngx_http_request_t *r);


void
ngx_http_kvroute_legs_send(ngx_http_kvroute_legs_t *legs, ngx_chain_t *bufs,
    off_t length)
{
    ngx_http_request_t  *r;

    r = legs->request;

    legs->second = *legs->client;
    legs->second.bufs = bufs;
    legs->second_length = length;

    if (legs->content == NULL) {
        legs->content = r->content_handler;
        r->content_handler = ngx_http_kvroute_legs_second_content;
    }
}


static ngx_int_t
ngx_http_kvroute_legs_second_content(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx->legs;

    r->request_body = &legs->second;
    r->headers_in.content_length_n = legs->second_length;
    r->headers_in.content_length = NULL;
    legs->changed = 1;
    legs->sent = 1;

    ngx_http_kvroute_legs_forget(r);

    /* leg 1 has failed already */

    if (legs->broken) {
        ngx_post_event(&legs->event, &ngx_posted_events);
    }

    return legs->content(r);
}


void
ngx_http_kvroute_legs_unsend(ngx_http_kvroute_legs_t *legs)
{
    ngx_http_request_t  *r;

    if (!legs->changed) {
        return;
    }

    r = legs->request;

    legs->client->temp_file = legs->second.temp_file;
    legs->client->buf = legs->second.buf;

    r->request_body = legs->client;
    r->headers_in.content_length_n = legs->length;
    r->headers_in.content_length = legs->header;
    legs->changed = 0;

    ngx_http_kvroute_legs_forget(r);
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
