
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The first event.  Until it comes, the header of a stream is held.  If it is
 * late, a clone of the request goes to a second server.  The first event of
 * either decides whose answer the client receives; the other request is closed.
 * An error loses while the other request is under way.
 *
 * A clone that wins lends its upstream, header and context to the client's
 * request, so variables and added headers are those of its server.
 */


#include "continue/ngx_http_kvroute_continue.h"


/* bytes before the first event that are held, at most */
#define NGX_HTTP_KVROUTE_CONTINUE_HOLD  2048


static ngx_int_t ngx_http_kvroute_continue_race_before(
    ngx_http_kvroute_leg_t *leg, ngx_http_request_t *r);
static void ngx_http_kvroute_continue_race_event(ngx_event_t *ev);
static void ngx_http_kvroute_continue_race_begin(
    ngx_http_kvroute_continue_t *c, ngx_http_kvroute_attempt_t *at);
static kvr_continue_late_e ngx_http_kvroute_continue_race_late(
    ngx_http_kvroute_continue_t *c, ngx_http_kvroute_attempt_t *at);
static ngx_uint_t ngx_http_kvroute_continue_race_streams(
    ngx_http_kvroute_continue_t *c);
static ngx_int_t ngx_http_kvroute_continue_race_done(ngx_http_request_t *r,
    void *data, ngx_int_t rc);
static ngx_uint_t ngx_http_kvroute_continue_race_ends(
    ngx_http_kvroute_continue_t *c, ngx_http_request_t *r, ngx_int_t rc);
static ngx_http_kvroute_continue_racer_t *ngx_http_kvroute_continue_racer(
    ngx_http_kvroute_continue_t *c, ngx_http_request_t *r,
    ngx_http_kvroute_continue_racer_t **other);
static ngx_int_t ngx_http_kvroute_continue_race_won(
    ngx_http_kvroute_continue_t *c, ngx_http_request_t *r);
static void ngx_http_kvroute_continue_race_alone(
    ngx_http_kvroute_continue_t *c);
static void ngx_http_kvroute_continue_race_adopt(ngx_http_request_t *r,
    ngx_http_request_t *sr);


ngx_int_t
ngx_http_kvroute_continue_race_handler(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t            *ctx;
    ngx_http_kvroute_continue_t       *c;
    ngx_http_kvroute_continue_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_continue_module);

    if (conf->late == 0 || r != r->main || r->method != NGX_HTTP_POST
        || ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module))
    {
        return NGX_DECLINED;
    }

    ctx = ngx_http_kvroute_request_create_ctx(r);

    /* a request of two servers has its legs */

    if (ctx == NULL || (ctx->leg && ctx->leg->before
                        != ngx_http_kvroute_continue_race_before))
    {
        return NGX_DECLINED;
    }

    c = ngx_http_kvroute_continue_create(r, conf);
    if (c == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    c->state = NGX_HTTP_KVROUTE_CONTINUE_HELD;
    c->racer[0].request = r;

    c->first.before = ngx_http_kvroute_continue_race_before;
    ctx->leg = &c->first;

    c->deadline.handler = ngx_http_kvroute_continue_race_event;
    c->deadline.data = c;
    c->deadline.log = r->connection->log;

    return NGX_DECLINED;
}


/* Starts the time of an attempt, in an event, as it has no server yet. */
static ngx_int_t
ngx_http_kvroute_continue_race_before(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r)
{
    ngx_http_kvroute_continue_t  *c;

    c = ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module);

    if (c && leg == &c->first && c->state == NGX_HTTP_KVROUTE_CONTINUE_HELD
        && !c->hedged)
    {
        if (c->deadline.timer_set) {
            ngx_del_timer(&c->deadline);
        }

        if (!c->deadline.posted) {
            ngx_post_event(&c->deadline, &ngx_posted_events);
        }
    }

    return NGX_OK;
}


static void
ngx_http_kvroute_continue_race_event(ngx_event_t *ev)
{
    ngx_connection_t             *connection;
    ngx_http_request_t           *r;
    kvr_continue_late_e           late;
    kvr_continue_t               *shared;
    ngx_http_kvroute_attempt_t   *at;
    ngx_http_kvroute_continue_t  *c;

    c = ev->data;
    r = c->request;
    connection = r->connection;

    ngx_http_set_log_request(connection->log, r);

    /* an error_page may have led elsewhere */

    if (ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module) != c
        || c->state != NGX_HTTP_KVROUTE_CONTINUE_HELD || c->hedged)
    {
        return;
    }

    at = ngx_http_kvroute_continue_attempt(r);

    if (at == NULL || at->core.started || !at->conf->numbered) {
        return;
    }

    c->upstream = at->conf;

    if (!ev->timedout) {
        ngx_http_kvroute_continue_race_begin(c, at);
        return;
    }

    ev->timedout = 0;

    if (!ngx_http_kvroute_continue_race_streams(c)) {
        return;
    }

    shared = ngx_http_kvroute_continue_shared(c);
    late = ngx_http_kvroute_continue_race_late(c, at);

    c->late = late;
    kvr_add(&shared->upstream[c->upstream->number].late[late], 1);

    if (late != KVR_CONTINUE_TWICE) {
        return;
    }

    ngx_http_kvroute_continue_at(c, at);

    /* an error of the first server, or its redirect, is not the answer */

    c->page = r->error_page;
    c->changes = r->uri_changes;
    r->error_page = 1;
    r->uri_changes = 1;

    c->hedged = 1;
    c->racer[1].request = ngx_http_kvroute_continue_clone(c, NULL,
                                        ngx_http_kvroute_continue_race_done);

    ngx_log_error(NGX_LOG_INFO, connection->log, 0,
                  "kvroute_first_token: no event yet, another server gets the "
                  "request too");

    ngx_http_run_posted_requests(connection);
}


static void
ngx_http_kvroute_continue_race_begin(ngx_http_kvroute_continue_t *c,
    ngx_http_kvroute_attempt_t *at)
{
    uint64_t         after;
    kvr_late_t      *late;
    kvr_registry_t  *registry;
    kvr_continue_t  *shared;

    shared = ngx_http_kvroute_continue_shared(c);

    if (shared == NULL) {
        return;
    }

    late = &shared->late[c->upstream->number];

    if (!c->earned) {
        c->earned = 1;
        kvr_late_earn(late, c->conf->hedge);
    }

    after = c->conf->late;

    if (after == NGX_HTTP_KVROUTE_CONTINUE_AUTO) {

        if (at->core.reservation.peer == KVR_REGISTRY_NONE) {
            return;
        }

        registry = c->upstream->zone->core.registry;

        after = kvr_late_after(late,
                        &registry->peer[at->core.reservation.peer].prefill,
                        at->core.ahead, (uint64_t) ngx_current_msec);
    }

    if (after) {
        ngx_add_timer(&c->deadline, (ngx_msec_t) after);
    }
}


/* Tells whether the request is sent twice, or why not. */
static kvr_continue_late_e
ngx_http_kvroute_continue_race_late(ngx_http_kvroute_continue_t *c,
    ngx_http_kvroute_attempt_t *at)
{
    kvr_late_t  *late;

    late = &ngx_http_kvroute_continue_shared(c)->late[c->upstream->number];

    if (c->conf->late == NGX_HTTP_KVROUTE_CONTINUE_AUTO) {
        kvr_late_seen(late, 1);
    }

    if (!kvr_late_room(&c->upstream->zone->core, &c->upstream->pool,
                       at->core.reservation.peer, (uint64_t) ngx_current_msec))
    {
        return KVR_CONTINUE_BUSY;
    }

    return kvr_late_spend(late) ? KVR_CONTINUE_TWICE : KVR_CONTINUE_HEDGE;
}


/* Tells whether a stream is asked for, and the body can be sent once more. */
static ngx_uint_t
ngx_http_kvroute_continue_race_streams(ngx_http_kvroute_continue_t *c)
{
    ngx_buf_t  *b;

    b = ngx_http_kvroute_continue_body(c->request);

    return b && kvr_again_streams(b->pos, (size_t) (b->last - b->pos));
}


ngx_int_t
ngx_http_kvroute_continue_race_header(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r)
{
    ngx_http_kvroute_continue_racer_t  *racer, *other;

    racer = ngx_http_kvroute_continue_racer(c, r, &other);

    if (racer == NULL) {
        return NGX_OK;
    }

    if (r != c->request) {
        ngx_http_kvroute_continue_untimed(r);
    }

    if (ngx_http_kvroute_continue_streams(r)
        && ngx_http_kvroute_continue_attempt(r))
    {
        racer->header = 1;
        ngx_http_kvroute_continue_wrap(c, r);

        return NGX_OK;
    }

    if (other->request && !kvr_answer_rejects(r->headers_out.status)) {
        racer->request = NULL;
        return NGX_OK;
    }

    return ngx_http_kvroute_continue_race_won(c, r);
}


ngx_int_t
ngx_http_kvroute_continue_race_body(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r, ngx_chain_t *in)
{
    size_t                              size;
    ngx_chain_t                        *cl;
    ngx_http_kvroute_attempt_t         *at;
    ngx_http_kvroute_continue_racer_t  *racer, *other;

    racer = ngx_http_kvroute_continue_racer(c, r, &other);

    if (racer == NULL || in == NULL) {
        return NGX_DECLINED;
    }

    at = ngx_http_kvroute_continue_attempt(r);

    for (cl = in, size = 0; cl; cl = cl->next) {
        size += (size_t) ngx_buf_size(cl->buf);
    }

    if ((at && at->core.started)
        || racer->len + size > NGX_HTTP_KVROUTE_CONTINUE_HOLD)
    {
        return ngx_http_kvroute_continue_race_won(c, r) == NGX_ERROR
               ? NGX_ERROR : NGX_DECLINED;
    }

    if (racer->held == NULL) {
        racer->held = ngx_pnalloc(r->pool, NGX_HTTP_KVROUTE_CONTINUE_HOLD);
        if (racer->held == NULL) {
            return NGX_ERROR;
        }
    }

    for (cl = in; cl; cl = cl->next) {

        if (ngx_buf_in_memory(cl->buf)) {
            size = (size_t) (cl->buf->last - cl->buf->pos);
            ngx_memcpy(racer->held + racer->len, cl->buf->pos, size);
            racer->len += size;
        }

        cl->buf->pos = cl->buf->last;
    }

    return NGX_OK;
}


void
ngx_http_kvroute_continue_race_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_kvroute_continue_t  *c;

    c = ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module);

    if (c->state != NGX_HTTP_KVROUTE_CONTINUE_HELD
        || !ngx_http_kvroute_continue_race_ends(c, r, rc))
    {
        ngx_http_kvroute_continue_finalize(r, rc);
        return;
    }

    c->finalize(r, rc);
}


/*
 * A stream ends before its first event.  Returns 0 if it is the answer
 * nevertheless.  If no other one is left, the client's request gets the error
 * that nginx has for it.
 */
static ngx_uint_t
ngx_http_kvroute_continue_race_ends(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_uint_t                          limit;
    ngx_http_kvroute_continue_racer_t  *racer, *other;

    racer = ngx_http_kvroute_continue_racer(c, r, &other);

    if (racer == NULL || ngx_http_kvroute_continue_gone(r, rc)) {
        return 1;
    }

    if (other->request) {
        racer->request = NULL;
        return 1;
    }

    if (rc == NGX_OK) {
        (void) ngx_http_kvroute_continue_race_won(c, r);
        return 0;
    }

    if (ngx_http_kvroute_continue_may(r, c->conf)) {

        ngx_http_kvroute_continue_at(c, ngx_http_kvroute_continue_attempt(r));

        if (ngx_http_kvroute_continue_another(c,
                                        rc == NGX_HTTP_GATEWAY_TIME_OUT
                                        ? KVR_CONTINUE_TIMEOUT
                                        : KVR_CONTINUE_BROKEN,
                                        ngx_http_kvroute_continue_race_done,
                                        &limit)
            == KVR_ANSWER_WHOLE)
        {
            racer->request = NULL;
            c->racer[1].request = c->part;
            c->racer[1].header = 0;
            c->racer[1].len = 0;
            c->part = NULL;

            return 1;
        }
    }

    ngx_http_clean_header(r);

    r->upstream->header_sent = 0;
    racer->header = 0;
    racer->len = 0;

    return 1;
}


/* an ngx_http_post_subrequest_pt */
static ngx_int_t
ngx_http_kvroute_continue_race_done(ngx_http_request_t *r, void *data,
    ngx_int_t rc)
{
    ngx_http_kvroute_continue_t *c = data;

    ngx_http_kvroute_continue_racer_t  *racer, *other;

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_HELD) {

        racer = ngx_http_kvroute_continue_racer(c, r, &other);

        if (racer == NULL) {
            return ngx_http_kvroute_continue_gone(r, rc) ? rc : NGX_OK;
        }

        if (other->request && !ngx_http_kvroute_continue_gone(r, rc)) {
            racer->request = NULL;
            ngx_http_kvroute_continue_race_alone(c);
            return NGX_OK;
        }

        return rc;
    }

    if (c->state != NGX_HTTP_KVROUTE_CONTINUE_THROUGH || c->part != r
        || ngx_http_kvroute_continue_gone(r, rc))
    {
        return ngx_http_kvroute_continue_done(r, data, rc);
    }

    c->part = c->request;
    c->state = NGX_HTTP_KVROUTE_CONTINUE_ENDED;

    c->request->keepalive = c->torn ? 0 : c->keepalive;

    return c->torn ? NGX_OK
           : ngx_http_kvroute_continue_send(c, c->request, NGX_HTTP_LAST)
             == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


/* Returns the racer of a request, or NULL if it has lost; and the other one. */
static ngx_http_kvroute_continue_racer_t *
ngx_http_kvroute_continue_racer(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r, ngx_http_kvroute_continue_racer_t **other)
{
    ngx_uint_t  i;

    i = (c->racer[0].request != r);

    *other = &c->racer[!i];

    return c->racer[i].request == r ? &c->racer[i] : NULL;
}


/* Gives the client the answer of this request. */
static ngx_int_t
ngx_http_kvroute_continue_race_won(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r)
{
    ngx_int_t                           rc;
    kvr_late_t                         *late;
    ngx_http_request_t                 *loser;
    kvr_continue_t                     *shared;
    ngx_http_kvroute_attempt_t         *at;
    ngx_http_kvroute_continue_racer_t  *racer, *other;

    racer = ngx_http_kvroute_continue_racer(c, r, &other);

    loser = other->request;
    other->request = NULL;

    shared = c->upstream ? ngx_http_kvroute_continue_shared(c) : NULL;

    at = ngx_http_kvroute_continue_attempt(r);

    if (shared && racer->header && at && at->core.started
        && c->conf->late == NGX_HTTP_KVROUTE_CONTINUE_AUTO)
    {
        late = &shared->late[c->upstream->number];
        kvr_late_first(late, at->core.ttft);

        if (c->deadline.timer_set) {
            kvr_late_seen(late, 0);
        }
    }

    if (c->deadline.timer_set) {
        ngx_del_timer(&c->deadline);
    }

    if (c->hedged && shared) {
        c->late = (r == c->request) ? KVR_CONTINUE_FIRST : KVR_CONTINUE_SECOND;
        kvr_add(&shared->upstream[c->upstream->number].late[c->late], 1);
    }

    c->part = r;

    c->state = racer->header && ngx_http_kvroute_continue_may(r, c->conf)
               ? NGX_HTTP_KVROUTE_CONTINUE_READING
               : NGX_HTTP_KVROUTE_CONTINUE_THROUGH;

    ngx_http_kvroute_continue_at(c, at);

    if (loser && ngx_http_kvroute_request_close(loser)) {
        ngx_http_finalize_request(loser, NGX_OK);
    }

    ngx_http_kvroute_continue_race_alone(c);

    if (r != c->request) {
        ngx_http_kvroute_continue_race_adopt(c->request, r);
        ngx_http_kvroute_continue_untimed(r);
    }

    rc = ngx_http_kvroute_continue_filter_header(c);

    if (rc == NGX_ERROR || racer->len == 0) {
        return rc;
    }

    c->broken = 0;
    ngx_http_kvroute_continue_bytes(c, racer->held, racer->len);

    return ngx_http_kvroute_continue_send(c, r, 0);
}


/* The other request is out: nginx may redirect the client's again. */
static void
ngx_http_kvroute_continue_race_alone(ngx_http_kvroute_continue_t *c)
{
    if (c->changes) {
        c->request->error_page = c->page;
        c->request->uri_changes = c->changes;
        c->changes = 0;
    }
}


static void
ngx_http_kvroute_continue_race_adopt(ngx_http_request_t *r,
    ngx_http_request_t *sr)
{
    ngx_http_kvroute_ctx_t  *ctx;

    r->upstream = sr->upstream;
    r->upstream_states = sr->upstream_states;

    ctx = ngx_http_get_module_ctx(sr, ngx_http_kvroute_module);
    ngx_http_set_ctx(r, ctx, ngx_http_kvroute_module);

    /* that of a first server without a status line is 0.9 */

    r->http_version = sr->http_version;

    r->headers_out = sr->headers_out;
    r->err_status = 0;

    if (r->headers_out.headers.last == &sr->headers_out.headers.part) {
        r->headers_out.headers.last = &r->headers_out.headers.part;
    }

    if (r->headers_out.trailers.last == &sr->headers_out.trailers.part) {
        r->headers_out.trailers.last = &r->headers_out.trailers.part;
    }
}
