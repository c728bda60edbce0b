
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The prefill leg: a subrequest in the client's location.
 *
 * It is a clone: it begins in the phase in which its parent waits, so the same
 * content handler passes it on, with the same headers and the same TLS.  The
 * balancer sends it to the prefill upstream instead (ngx_http_kvroute_leg_t).
 * A prefill can be repeated: nginx tries the next server within the
 * subrequest.
 *
 * Its answer is not sent to the client.  After an error the parent decides how
 * to continue.
 */


#include "legs/ngx_http_kvroute_legs_int.h"


static ngx_int_t ngx_http_kvroute_legs_header(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs);
static ngx_int_t ngx_http_kvroute_legs_answer(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs, ngx_chain_t *in);
static ngx_int_t ngx_http_kvroute_legs_done(ngx_http_request_t *r, void *data,
    ngx_int_t rc);
static void ngx_http_kvroute_legs_ended(ngx_http_kvroute_legs_t *legs);
static void ngx_http_kvroute_legs_entered(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);
static void ngx_http_kvroute_legs_expired(ngx_event_t *ev);


ngx_int_t
ngx_http_kvroute_legs_prefill(ngx_http_kvroute_legs_t *legs)
{
    off_t                    length;
    size_t                   len;
    u_char                  *text;
    ngx_int_t                rc;
    ngx_chain_t             *bufs;
    ngx_http_request_t      *r, *sr;
    ngx_http_kvroute_ctx_t  *main;

    r = legs->request;
    main = ngx_http_kvroute_request_get_ctx(r);

    text = ngx_pnalloc(r->pool, KVR_CONNECTOR_LEN);
    if (text == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_http_kvroute_legs_cut(legs);

    if (rc != NGX_OK) {
        return rc;
    }

    len = kvr_connector_ask(legs->connector, main->endpoint,
                            legs->edit.kept != 0, (char *) text);

    bufs = legs->saved
           ? ngx_http_kvroute_legs_append(legs, text, len, &length)
           : ngx_http_kvroute_legs_without(legs, text, len, &length);

    sr = bufs ? ngx_http_kvroute_legs_subrequest(legs,
                                                 NGX_HTTP_SUBREQUEST_CLONE)
              : NULL;

    if (sr == NULL) {
        (void) ngx_http_kvroute_legs_restore(legs);
        return NGX_ERROR;
    }

    rc = ngx_http_kvroute_legs_give(legs, sr, bufs, length);

    return rc == NGX_OK ? NGX_AGAIN : rc;
}


ngx_http_request_t *
ngx_http_kvroute_legs_subrequest(ngx_http_kvroute_legs_t *legs,
    ngx_uint_t flags)
{
    ngx_http_request_t          *r, *sr;
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_leg_t      *leg;
    ngx_http_post_subrequest_t  *ps;

    r = legs->request;

    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));
    if (ps == NULL) {
        return NULL;
    }

    ps->handler = ngx_http_kvroute_legs_done;
    ps->data = legs;

    if (ngx_http_subrequest(r, &r->uri, &r->args, &sr, ps, flags) != NGX_OK) {
        return NULL;
    }

    ctx = ngx_http_kvroute_request_create_ctx(sr);
    if (ctx == NULL) {
        return NULL;
    }

    leg = &legs->leg[legs->role];

    leg->enter = ngx_http_kvroute_legs_entered;
    leg->header = ngx_http_kvroute_legs_header;
    leg->answer = ngx_http_kvroute_legs_answer;

    ctx->leg = leg;
    ctx->legs = legs;

    return sr;
}


ngx_int_t
ngx_http_kvroute_legs_give(ngx_http_kvroute_legs_t *legs,
    ngx_http_request_t *sr, ngx_chain_t *bufs, off_t length)
{
    ngx_http_request_body_t  *body;

    body = ngx_pcalloc(sr->pool, sizeof(ngx_http_request_body_t));
    if (body == NULL) {
        return NGX_ERROR;
    }

    body->bufs = bufs;
    body->temp_file = legs->client->temp_file;

    ngx_http_kvroute_request_body_set(sr, body, length, NULL);
    sr->headers_in.chunked = 0;

    legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_SENT;
    legs->start = ngx_current_msec;

    return NGX_OK;
}


/*
 * Now in the prefill upstream: undoes what nginx has taken from the location's
 * configuration, such as its cache.
 */
static void
ngx_http_kvroute_legs_entered(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r)
{
    ngx_http_upstream_t      *u;
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    u = r->upstream;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);
    legs = ctx->legs;

    legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_ENTERED;

    /* buffering would wait for the client, who gets none of it */

    if (legs->connector->meet) {
        u->buffering = 0;
    }

    /* a descriptor can be used only once */

    u->store = 0;

#if (NGX_HTTP_CACHE)
    u->cacheable = 0;
#endif
}


static ngx_int_t
ngx_http_kvroute_legs_header(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs)
{
    ngx_uint_t  entered;

    /* the header of a subrequest is not sent */

    r->header_sent = 1;

    legs->status = r->headers_out.status;
    legs->answered = ngx_current_msec;

    /* nginx's timeout is per read, this one is for the whole answer */

    entered = (legs->prefill_state == NGX_HTTP_KVROUTE_PREFILL_ENTERED);

    if (entered && legs->connector->meet == NULL) {
        legs->event.handler = ngx_http_kvroute_legs_expired;
        legs->event.data = r;
        legs->event.log = r->connection->log;

        ngx_add_timer(&legs->event, legs->conf->timeout);
    }

    legs->unread = (!entered
                    || (r->headers_out.content_encoding
                        && r->headers_out.content_encoding->value.len));

#if (NGX_HTTP_CACHE)
    legs->unread |= (r->cached != 0);
#endif

    legs->len = 0;

    if (legs->status != NGX_HTTP_OK || legs->unread || legs->connector->meet) {
        return NGX_OK;
    }

    legs->size = NGX_HTTP_KVROUTE_LEGS_ANSWER;

    if (r->headers_out.content_length_n >= 0) {
        legs->size = ngx_min(legs->size,
                             (size_t) r->headers_out.content_length_n);
    }

    legs->text = ngx_palloc(legs->request->pool, legs->size + 1);

    return legs->text ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_kvroute_legs_answer(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs, ngx_chain_t *in)
{
    size_t        n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            n = (size_t) (b->last - b->pos);

            if (legs->text && legs->len < legs->size) {
                ngx_memcpy(legs->text + legs->len, b->pos,
                           ngx_min(n, legs->size - legs->len));
            }

            legs->len += n;
            b->pos = b->last;
        }

        if (b->in_file) {
            legs->unread = 1;
            b->file_pos = b->file_last;
        }

        if (b->last_in_chain
            && legs->prefill_state == NGX_HTTP_KVROUTE_PREFILL_ENTERED)
        {
            legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_WHOLE;
        }
    }

    return NGX_OK;
}


static void
ngx_http_kvroute_legs_expired(ngx_event_t *ev)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = ev->data;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_error(NGX_LOG_ERR, c->log, NGX_ETIMEDOUT,
                  "kvroute_prefill: answer of the prefill server timed out");

    if (ngx_http_kvroute_request_close(r)) {
        ngx_http_finalize_request(r, NGX_HTTP_GATEWAY_TIME_OUT);
    }

    ngx_http_run_posted_requests(c);
}


/* an error page calls it twice: with the error, and at the end */
static ngx_int_t
ngx_http_kvroute_legs_done(ngx_http_request_t *r, void *data, ngx_int_t rc)
{
    ngx_http_kvroute_legs_t *legs = data;

    ngx_http_kvroute_ctx_t  *ctx;

    if (!ngx_http_kvroute_legs_running(legs)
        || (legs->subrequest && legs->subrequest != r))
    {
        return rc;
    }

    /* if the client has left, nginx ends the request */

    if (rc == NGX_HTTP_CLIENT_CLOSED_REQUEST || r->connection->error) {
        return rc;
    }

    if (legs->event.timer_set) {
        ngx_del_timer(&legs->event);
    }

    legs->time = ngx_current_msec - legs->start;

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        legs->status = rc;
    }

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx) {
        legs->peer = ctx->peer;
    }

    ngx_http_kvroute_legs_ended(legs);

    return NGX_OK;
}


/* FAILED only if the decode server waits for this leg */
static void
ngx_http_kvroute_legs_ended(ngx_http_kvroute_legs_t *legs)
{
    if (legs->connector->meet == NULL
        || (legs->prefill_state == NGX_HTTP_KVROUTE_PREFILL_WHOLE
            && legs->status / 100 == 2)
        || legs->decode_state >= NGX_HTTP_KVROUTE_DECODE_BEGUN)
    {
        legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_ENDED;
        return;
    }

    legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_FAILED;
    ngx_post_event(&legs->event, &ngx_posted_events);
}
