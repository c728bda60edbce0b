
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Two legs at the same time, whose servers wait for each other.
 *
 * The prefill leg is a subrequest in the background; the client's request
 * continues at once as the decode leg.  Either leg may end first, and a leg
 * that fails leaves the other one waiting for minutes.  So:
 *
 *  * The prefill leg fails before the first token: the decode leg is closed.
 *    If nothing was sent to the client yet, another pair with another room is
 *    tried, or the client gets an error; otherwise the answer is cut off.
 *  * The decode leg ends, or its answer is an error: the prefill leg is closed.
 *    A remaining subrequest would block the client's next request.
 *  * The client leaves: nginx closes both.
 *
 * A leg is never closed from within a call for the other one: a posted event of
 * our own looks at both states, when nothing of this request is on the stack.
 *
 * The prefill leg goes only to the server that the decode leg's body names.
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
static ngx_int_t ngx_http_kvroute_legs_both_header(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs);
static void ngx_http_kvroute_legs_both_ended(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);
static void ngx_http_kvroute_legs_both_event(ngx_event_t *ev);
static void ngx_http_kvroute_legs_both_failed(ngx_http_kvroute_legs_t *legs);
static void ngx_http_kvroute_legs_both_cancel(ngx_http_kvroute_legs_t *legs);
static ngx_uint_t ngx_http_kvroute_legs_both_status(
    ngx_http_kvroute_legs_t *legs);


ngx_int_t
ngx_http_kvroute_legs_both(ngx_http_kvroute_legs_t *legs)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_kvroute_leg_t  *leg;

    r = legs->request;

    if (ngx_http_kvroute_legs_find(legs) != NGX_OK) {
        return NGX_DECLINED;
    }

    legs->tries = NGX_HTTP_KVROUTE_LEGS_TRIES;

    leg = &legs->leg[KVR_LEG_DECODE];

    leg->before = ngx_http_kvroute_legs_both_before;
    leg->header = ngx_http_kvroute_legs_both_header;
    leg->end = ngx_http_kvroute_legs_both_ended;

    legs->event.handler = ngx_http_kvroute_legs_both_event;
    legs->event.data = legs;
    legs->event.log = r->connection->log;

    /* both legs read the file */

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


/* NGX_DECLINED: no prefill server is usable */
static ngx_int_t
ngx_http_kvroute_legs_both_start(ngx_http_kvroute_legs_t *legs)
{
    ngx_int_t                rc;
    ngx_http_request_t      *sr;
    ngx_http_kvroute_ctx_t  *ctx;

    legs->status = 0;
    legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_IDLE;

    sr = ngx_http_kvroute_legs_subrequest(legs,
                                          NGX_HTTP_SUBREQUEST_CLONE
                                          |NGX_HTTP_SUBREQUEST_BACKGROUND);
    if (sr == NULL) {
        return NGX_ERROR;
    }

    sr->content_handler = ngx_http_kvroute_legs_both_content;
    legs->subrequest = sr;

    /*
     * An unknown method bypasses "proxy_cache", where one leg would wait for
     * the other.  nginx makes the request line from the method's name.
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
    off_t                    length;
    size_t                   len;
    u_char                  *text;
    kvr_leg_e                role;
    ngx_int_t                rc;
    ngx_chain_t             *bufs;
    kvr_meeting_t            meeting;
    const kvr_leg_e         *plan;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(legs->request);

    if (ngx_http_kvroute_legs_meeting(legs, peer, &meeting) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = NGX_OK;
    plan = legs->connector->plan;

    do {
        role = *plan++;

        text = ngx_pnalloc(legs->request->pool,
                           KVR_CONNECTOR_LEN + 2 * peer->len);
        if (text == NULL) {
            return NGX_ERROR;
        }

        if (role == KVR_LEG_DECODE) {
            len = legs->connector->meet(ctx->endpoint, &meeting, role,
                                        legs->members != 0, (char *) text);
            bufs = ngx_http_kvroute_legs_append(legs, text, len, &length);

        } else {
            len = legs->connector->meet(ctx->endpoint, &meeting, role,
                                        legs->edit.kept != 0, (char *) text);
            bufs = ngx_http_kvroute_legs_without(legs, text, len, &length);
        }

        if (bufs == NULL) {
            return NGX_ERROR;
        }

        if (role == KVR_LEG_DECODE) {
            legs->member = text;
            legs->member_len = len - 1;

            ngx_http_kvroute_legs_send(legs, bufs, length);

        } else {
            rc = ngx_http_kvroute_legs_give(legs, legs->subrequest, bufs,
                                            length);
        }

    } while (role != KVR_LEG_DECODE && rc == NGX_OK);

    return rc;
}


ngx_int_t
ngx_http_kvroute_legs_meeting(ngx_http_kvroute_legs_t *legs, ngx_str_t *server,
    kvr_meeting_t *meeting)
{
    u_char  *colon;

    colon = server->data + server->len;

    while (colon > server->data && *--colon != ':') { /* void */ }

    meeting->server = server->data;
    meeting->server_len = server->len;
    meeting->host_len = (size_t) (colon - server->data);
    meeting->port = legs->conf->bootstrap_port;

    return getrandom(&meeting->room, sizeof(meeting->room), GRND_NONBLOCK)
           == sizeof(meeting->room) ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_kvroute_legs_both_content(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx->legs;

    if (legs->subrequest != r || !ngx_http_kvroute_legs_running(legs)) {
        return NGX_OK;
    }

    ngx_http_kvroute_request_body_forget(r);

    return legs->content(r);
}


/* the answer to the client begins */
static ngx_int_t
ngx_http_kvroute_legs_both_header(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs)
{
    if (r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE) {
        legs->decode_state = NGX_HTTP_KVROUTE_DECODE_OVER;
    }

    ngx_post_event(&legs->event, &ngx_posted_events);

    return NGX_DECLINED;
}


/*
 * Before an attempt of the decode leg.  If it was sent before, that server may
 * have met the prefill server, so the room cannot be used again.
 */
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

    /* no decode server will meet the prefill server */

    legs->decode_state = NGX_HTTP_KVROUTE_DECODE_OVER;
    ngx_post_event(&legs->event, &ngx_posted_events);

    return NGX_OK;
}


static void
ngx_http_kvroute_legs_both_ended(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx && ctx->legs && ctx->legs->subrequest) {
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

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kvroute legs: prefill %d, decode %d",
                   legs->prefill_state, legs->decode_state);

    /* the decode leg has not begun */

    if (legs->decode_state == NGX_HTTP_KVROUTE_DECODE_IDLE) {
        return;
    }

    if (r->upstream == NULL || r->upstream->cleanup == NULL) {
        legs->decode_state = NGX_HTTP_KVROUTE_DECODE_OVER;
    }

    if (legs->decode_state == NGX_HTTP_KVROUTE_DECODE_OVER) {
        ngx_http_kvroute_legs_both_cancel(legs);

    } else if (legs->prefill_state == NGX_HTTP_KVROUTE_PREFILL_FAILED) {
        ngx_http_kvroute_legs_both_failed(legs);
    }

    ngx_http_run_posted_requests(c);
}


/* the prefill leg has failed, and the decode server waits for it: retries */
static void
ngx_http_kvroute_legs_both_failed(ngx_http_kvroute_legs_t *legs)
{
    ngx_uint_t               status;
    ngx_http_request_t      *r;
    ngx_http_kvroute_ctx_t  *ctx;

    r = legs->request;

    legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_CLOSED;

    if (r->header_sent) {
        legs->decode_state = NGX_HTTP_KVROUTE_DECODE_OVER;
        legs->outcome = KVR_DISAGGREGATE_FAILED;

        (void) ngx_http_kvroute_request_close(r);
        ngx_http_finalize_request(r, NGX_ERROR);

        return;
    }

    status = ngx_http_kvroute_legs_both_status(legs);

    if (status >= NGX_HTTP_INTERNAL_SERVER_ERROR && --legs->tries
        && ngx_http_kvroute_legs_both_start(legs) == NGX_OK)
    {
        /* this closes the previous decode leg */

        ngx_http_finalize_request(r, r->content_handler(r));

        return;
    }

    legs->decode_state = NGX_HTTP_KVROUTE_DECODE_OVER;
    legs->outcome = KVR_DISAGGREGATE_FAILED;

    if (legs->connector->alone
        && (!legs->conf->strict || status < NGX_HTTP_INTERNAL_SERVER_ERROR))
    {
        /* the decode server computes the prompt, or reports the error */

        ctx = ngx_http_kvroute_request_get_ctx(r);
        ctx->leg = NULL;

        ngx_http_kvroute_legs_unsend(legs);
        ngx_http_finalize_request(r, legs->content(r));

        return;
    }

    (void) ngx_http_kvroute_request_close(r);

    ngx_http_finalize_request(r, (ngx_int_t) status);
}


/*
 * Returns the status for the client: that of the prefill server if the request
 * itself is wrong, as the decode server would answer the same.
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

    sr = legs->subrequest;

    if (!ngx_http_kvroute_legs_running(legs)) {
        return;
    }

    legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_CLOSED;
    legs->time = ngx_current_msec - legs->start;

    /* the state is set first: the subrequest's handlers check it */

    if (ngx_http_kvroute_request_close(sr)) {
        ngx_http_finalize_request(sr, NGX_OK);
    }
}
