
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Two legs at the same time, whose servers wait for each other.
 *
 * Leg 1 is a subrequest in the background: the client's request goes on at once
 * and becomes leg 2.  Either may end first, and either leaves the other waiting
 * for minutes if it fails, so
 *
 *     leg 1 fails before leg 2's first token: leg 2 is closed.  As long as the
 *     client has been sent nothing both are made anew, with another room, or
 *     the request is answered with an error; else the answer is cut off
 *
 *     leg 2 ends, well or not, or is answered with an error: leg 1 is closed.
 *     A subrequest that is left would keep the client's connection from the
 *     next request
 *
 *     the client leaves: nginx closes both
 *
 * Neither is done while nginx is busy with the other leg: an event of our own
 * looks at what has become of both, in an event loop's turn where nothing of
 * this request is on the stack.
 *
 * Leg 1 goes to the server that leg 2's body names, or nowhere.
 */


#include "legs/ngx_http_kvroute_legs_int.h"

#include <sys/random.h>


static ngx_int_t ngx_http_kvroute_legs_both_start(
    ngx_http_kvroute_legs_t *legs);
static ngx_int_t ngx_http_kvroute_legs_both_bodies(
    ngx_http_kvroute_legs_t *legs, ngx_str_t *peer);
static ngx_int_t ngx_http_kvroute_legs_both_content(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_legs_both_before(
    ngx_http_kvroute_leg_t *leg, ngx_http_request_t *r);
static void ngx_http_kvroute_legs_both_done(ngx_http_kvroute_legs_t *legs);
static void ngx_http_kvroute_legs_both_ended(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);
static void ngx_http_kvroute_legs_both_event(ngx_event_t *ev);
static void ngx_http_kvroute_legs_both_mend(ngx_http_kvroute_legs_t *legs);
static void ngx_http_kvroute_legs_both_cancel(ngx_http_kvroute_legs_t *legs);
static ngx_uint_t ngx_http_kvroute_legs_both_status(
    ngx_http_kvroute_legs_t *legs);


ngx_int_t
ngx_http_kvroute_legs_both(ngx_http_kvroute_legs_t *legs)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = legs->request;

    if (ngx_http_kvroute_legs_find(legs) != NGX_OK) {
        return NGX_DECLINED;
    }

    legs->tries = legs->conf->tries;

    legs->done = ngx_http_kvroute_legs_both_done;
    legs->leg[1].before = ngx_http_kvroute_legs_both_before;
    legs->leg[1].end = ngx_http_kvroute_legs_both_ended;

    legs->event.handler = ngx_http_kvroute_legs_both_event;
    legs->event.data = legs;
    legs->event.log = r->connection->log;

    /* the file is there until both have read it */

    r->preserve_body = 1;

    rc = ngx_http_kvroute_legs_both_start(legs);

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    legs->outcome = KVR_DISAGGREGATE_NOBODY;

    if (rc == NGX_DECLINED && !legs->connector->alone) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    return rc;
}


/* NGX_DECLINED: there is no prefill server to be had */
static ngx_int_t
ngx_http_kvroute_legs_both_start(ngx_http_kvroute_legs_t *legs)
{
    ngx_int_t                rc;
    ngx_http_request_t      *sr;
    ngx_http_kvroute_ctx_t  *ctx;

    legs->status = 0;
    legs->ended = 0;
    legs->entered = 0;
    legs->odd = 0;
    legs->complete = 0;
    legs->broken = 0;

    sr = ngx_http_kvroute_legs_subrequest(legs, NGX_HTTP_SUBREQUEST_CLONE
                                                |NGX_HTTP_SUBREQUEST_BACKGROUND);
    if (sr == NULL) {
        return NGX_ERROR;
    }

    /* it ends by itself unless it is given something to do */

    sr->content_handler = ngx_http_kvroute_legs_both_content;
    legs->first = sr;

    /*
     * "proxy_cache" is for leg 2, and one must not wait for the other there.  The
     * request line is by the method's name.
     */

    sr->method = NGX_HTTP_UNKNOWN;

    ctx = ngx_http_kvroute_request_get_ctx(sr);

    rc = ngx_http_kvroute_early(ctx, legs->prefill, &ctx->reserved);

    if (rc != NGX_OK) {
        return rc;
    }

    legs->peer = ctx->peer;

    return ngx_http_kvroute_legs_both_bodies(legs, &ctx->peer);
}


static ngx_int_t
ngx_http_kvroute_legs_both_bodies(ngx_http_kvroute_legs_t *legs,
    ngx_str_t *peer)
{
    off_t                    length[2];
    u_char                  *text[2], *colon;
    size_t                   len[2];
    ngx_uint_t               i;
    ngx_chain_t             *bufs[2];
    kvr_meeting_t            meeting;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(legs->request);

    colon = peer->data + peer->len;

    while (colon > peer->data && *--colon != ':') { /* void */ }

    meeting.server = peer->data;
    meeting.server_len = peer->len;
    meeting.host_len = (size_t) (colon - peer->data);
    meeting.port = legs->conf->bootstrap_port;

    if (getrandom(&meeting.room, sizeof(meeting.room), GRND_NONBLOCK)
        != sizeof(meeting.room))
    {
        return NGX_ERROR;
    }

    for (i = 0; i < 2; i++) {
        text[i] = ngx_pnalloc(legs->request->pool,
                              KVR_CONNECTOR_LEN + 2 * peer->len);
        if (text[i] == NULL) {
            return NGX_ERROR;
        }

        len[i] = legs->connector->meet(ctx->endpoint, &meeting, (unsigned) i,
                                       (i ? legs->members : legs->edit.kept)
                                       != 0,
                                       (char *) text[i]);
    }

    bufs[0] = ngx_http_kvroute_legs_without(legs, text[0], len[0], &length[0]);
    bufs[1] = ngx_http_kvroute_legs_append(legs, text[1], len[1], &length[1]);

    if (bufs[0] == NULL || bufs[1] == NULL) {
        return NGX_ERROR;
    }

    legs->member = text[1];
    legs->member_len = len[1] - 1;

    ngx_http_kvroute_legs_send(legs, bufs[1], length[1]);

    return ngx_http_kvroute_legs_give(legs, legs->first, bufs[0], length[0]);
}


static ngx_int_t
ngx_http_kvroute_legs_both_content(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx->legs;

    if (legs->first != r || !legs->running) {
        return NGX_OK;
    }

    ngx_http_kvroute_legs_forget(r);

    return legs->content(r);
}


static void
ngx_http_kvroute_legs_both_done(ngx_http_kvroute_legs_t *legs)
{
    if (legs->entered && legs->complete && legs->status / 100 == 2) {
        return;
    }

    if (!legs->heard && !legs->over) {
        legs->broken = 1;
        ngx_post_event(&legs->event, &ngx_posted_events);
    }
}


void
ngx_http_kvroute_legs_begun(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs)
{
    if (legs->first == NULL) {
        return;
    }

    if (r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE) {
        legs->over = 1;
    }

    ngx_post_event(&legs->event, &ngx_posted_events);
}


/* a try for leg 2: a server that was sent it has met leg 1's, or may have */
static ngx_int_t
ngx_http_kvroute_legs_both_before(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    if (!r->upstream->request_sent) {
        return NGX_OK;
    }

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx->legs;

    if (!legs->connector->alone) {
        return NGX_DECLINED;
    }

    ngx_http_kvroute_legs_plain(legs, KVR_DISAGGREGATE_RETRIED);

    /* leg 1 has nobody to wait for */

    legs->over = 1;
    ngx_post_event(&legs->event, &ngx_posted_events);

    return NGX_OK;
}


static void
ngx_http_kvroute_legs_both_ended(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx && ctx->legs && ctx->legs->first) {
        ngx_post_event(&ctx->legs->event, &ngx_posted_events);
    }
}


static void
ngx_http_kvroute_legs_both_event(ngx_event_t *ev)
{
    ngx_connection_t         *c;
    ngx_http_request_t       *r;
    ngx_http_kvroute_legs_t  *legs;

    legs = ev->data;
    r = legs->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kvroute legs: first %s%s, second %s%s",
                   legs->running ? "running" : "ended",
                   legs->broken ? ", broken" : "",
                   legs->heard ? "heard" : "not heard",
                   legs->over ? ", over" : "");

    /* what leg 1 has come to matters when there is a leg 2, or will be none */

    if (!legs->sent && !legs->over) {
        return;
    }

    if (!legs->over && (r->upstream == NULL || r->upstream->cleanup == NULL)) {
        legs->over = 1;
    }

    if (legs->over) {
        ngx_http_kvroute_legs_both_cancel(legs);

    } else if (legs->broken) {
        ngx_http_kvroute_legs_both_mend(legs);
    }

    ngx_http_run_posted_requests(c);
}


/* leg 1 has failed, and the server of leg 2 waits for it */
static void
ngx_http_kvroute_legs_both_mend(ngx_http_kvroute_legs_t *legs)
{
    ngx_uint_t               status;
    ngx_http_request_t      *r;
    ngx_http_kvroute_ctx_t  *ctx;

    r = legs->request;

    legs->broken = 0;

    if (r->header_sent) {
        legs->over = 1;
        legs->outcome = KVR_DISAGGREGATE_FAILED;

        (void) ngx_http_kvroute_legs_close(r);
        ngx_http_finalize_request(r, NGX_ERROR);

        return;
    }

    status = ngx_http_kvroute_legs_both_status(legs);

    if (status >= NGX_HTTP_INTERNAL_SERVER_ERROR && --legs->tries
        && ngx_http_kvroute_legs_both_start(legs) == NGX_OK)
    {
        /* which closes what was leg 2 until now */

        ngx_http_finalize_request(r, r->content_handler(r));

        return;
    }

    legs->over = 1;
    legs->outcome = KVR_DISAGGREGATE_FAILED;

    if (legs->connector->alone
        && (!legs->conf->strict || status < NGX_HTTP_INTERNAL_SERVER_ERROR))
    {
        /* the decode server computes the prompt, or says what is wrong */

        ctx = ngx_http_kvroute_request_get_ctx(r);
        ctx->leg = NULL;

        ngx_http_kvroute_legs_unsend(legs);
        ngx_http_finalize_request(r, legs->content(r));

        return;
    }

    (void) ngx_http_kvroute_legs_close(r);

    ngx_http_finalize_request(r, (ngx_int_t) status);
}


/*
 * What the client is told.  What is wrong with the request itself the decode
 * server would have said as well, had it been asked to look at it.
 */
static ngx_uint_t
ngx_http_kvroute_legs_both_status(ngx_http_kvroute_legs_t *legs)
{
    if (legs->status / 100 == 4
        && legs->status != NGX_HTTP_REQUEST_TIME_OUT
        && legs->status != NGX_HTTP_TOO_MANY_REQUESTS)
    {
        return legs->status;
    }

    return legs->status == NGX_HTTP_GATEWAY_TIME_OUT
           ? NGX_HTTP_GATEWAY_TIME_OUT : NGX_HTTP_BAD_GATEWAY;
}


static void
ngx_http_kvroute_legs_both_cancel(ngx_http_kvroute_legs_t *legs)
{
    ngx_http_request_t  *sr;

    sr = legs->first;

    if (!legs->running) {
        return;
    }

    legs->running = 0;
    legs->time = ngx_current_msec - legs->start;

    /* before that it looks whether it still has something to do */

    if (ngx_http_kvroute_legs_close(sr)) {
        ngx_http_finalize_request(sr, NGX_OK);
    }
}
