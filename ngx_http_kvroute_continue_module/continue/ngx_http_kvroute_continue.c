
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The end of a part.  nginx finalizes the upstream of the client's request,
 * and then ends the response, unless the request has a subrequest.  So the
 * module starts a subrequest first, whose output follows in the response.
 * Each further part is started when the part before it ends.
 */


#include "continue/ngx_http_kvroute_continue.h"


static void ngx_http_kvroute_continue_move(ngx_event_t *ev);
static kvr_continue_cause_e ngx_http_kvroute_continue_cause(
    ngx_http_kvroute_continue_t *c, ngx_int_t rc);
static void ngx_http_kvroute_continue_next(ngx_http_kvroute_continue_t *c,
    kvr_continue_cause_e cause);


void
ngx_http_kvroute_continue_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_kvroute_continue_t  *c;

    c = ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module);

    c->finalize(r, rc);

    if (c->part != r || c->state == NGX_HTTP_KVROUTE_CONTINUE_ENDED
        || ngx_http_kvroute_continue_gone(r, rc))
    {
        return;
    }

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_THROUGH) {
        c->torn = (rc != NGX_OK);
        return;
    }

    if (ngx_http_kvroute_continue_drain(c) == NGX_ERROR || c->answer.done) {
        return;
    }

    /* the final event of an API that is only watched may have another name */

    if (c->answer.api >= KVR_ANSWER_MESSAGES && rc == NGX_OK
        && !c->answer.failed)
    {
        return;
    }

    ngx_http_kvroute_continue_next(c, ngx_http_kvroute_continue_cause(c, rc));
}


ngx_uint_t
ngx_http_kvroute_continue_gone(ngx_http_request_t *r, ngx_int_t rc)
{
    return rc == NGX_ERROR || rc == NGX_HTTP_CLIENT_CLOSED_REQUEST
           || rc == NGX_HTTP_REQUEST_TIME_OUT || r->connection->error
           || (r->upstream && r->upstream->pipe
               && r->upstream->pipe->downstream_error);
}


void
ngx_http_kvroute_continue_leave(ngx_http_kvroute_continue_t *c)
{
    kvr_answer_t    *a;
    kvr_continue_t  *shared;

    a = &c->answer;
    shared = ngx_http_kvroute_continue_shared(c);

    if (shared == NULL || c->stays || c->moved || a->finished || a->done
        || a->failed
        || !kvr_late_other(&c->upstream->zone->core, &c->upstream->pool,
                           c->peer, (uint64_t) ngx_current_msec)
        || !kvr_drain_leaves(c->drain, &shared->next[c->peer],
                             (uint64_t) ngx_current_msec))
    {
        return;
    }

    c->moved = 1;

    if (!ngx_http_kvroute_continue_can(c)) {
        c->moved = 0;
        c->stays = 1;
        return;
    }

    c->move.handler = ngx_http_kvroute_continue_move;
    c->move.data = c;
    c->move.log = c->request->connection->log;

    ngx_post_event(&c->move, &ngx_posted_events);
}


static void
ngx_http_kvroute_continue_move(ngx_event_t *ev)
{
    ngx_connection_t             *connection;
    ngx_http_request_t           *r;
    ngx_http_kvroute_continue_t  *c;

    c = ev->data;
    r = c->part;
    connection = r->connection;

    ngx_http_set_log_request(connection->log, r);

    if (c->state != NGX_HTTP_KVROUTE_CONTINUE_READING || c->answer.done
        || c->answer.finished || !ngx_http_kvroute_request_close(r))
    {
        c->moved = 0;
        return;
    }

    ngx_http_finalize_request(r, NGX_OK);
    ngx_http_run_posted_requests(connection);
}


/* called again if its output waits for the client */
ngx_int_t
ngx_http_kvroute_continue_done(ngx_http_request_t *r, void *data, ngx_int_t rc)
{
    ngx_http_kvroute_continue_t *c = data;

    if (rc == NGX_HTTP_CLIENT_CLOSED_REQUEST || rc == NGX_HTTP_REQUEST_TIME_OUT
        || r->connection->error)
    {
        return rc;
    }

    if (c->part != r) {
        return NGX_OK;
    }

    if (ngx_http_kvroute_continue_drain(c) == NGX_ERROR) {
        return NGX_ERROR;
    }

    c->request->keepalive = c->keepalive;

    if (!c->answer.done) {
        ngx_http_kvroute_continue_next(c,
                                      ngx_http_kvroute_continue_cause(c, rc));
        return NGX_OK;
    }

    c->part = c->request;
    c->state = NGX_HTTP_KVROUTE_CONTINUE_ENDED;

    return ngx_http_kvroute_continue_send(c, c->request, NGX_HTTP_LAST)
           == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static kvr_continue_cause_e
ngx_http_kvroute_continue_cause(ngx_http_kvroute_continue_t *c, ngx_int_t rc)
{
    if (c->moved) {
        return KVR_CONTINUE_MOVED;
    }

    if (c->answer.failed) {
        return KVR_CONTINUE_ERROR;
    }

    if (rc == NGX_HTTP_GATEWAY_TIME_OUT) {
        return KVR_CONTINUE_TIMEOUT;
    }

    return rc == NGX_OK ? KVR_CONTINUE_SHORT : KVR_CONTINUE_BROKEN;
}


kvr_continue_t *
ngx_http_kvroute_continue_shared(ngx_http_kvroute_continue_t *c)
{
    const kvr_hook_t  *hook;

    hook = c->upstream->zone->core.hooks;

    while (hook && hook->call != &kvr_continue_hooks) {
        hook = hook->next;
    }

    return hook && c->upstream->numbered ? hook->data : NULL;
}


kvr_answer_cut_e
ngx_http_kvroute_continue_another(ngx_http_kvroute_continue_t *c,
    kvr_continue_cause_e cause, ngx_http_post_subrequest_pt done,
    ngx_uint_t *limit)
{
    kvr_answer_cut_e   cut;
    kvr_continue_t    *shared;

    *limit = 0;

    cut = ngx_http_kvroute_continue_start(c, done, limit);

    if (cut != KVR_ANSWER_WHOLE || *limit) {
        return cut;
    }

    c->parts++;
    c->moves += c->moved;
    c->retry = !c->moved;
    c->moved = 0;

    shared = ngx_http_kvroute_continue_shared(c);

    if (shared) {
        kvr_add(&shared->upstream[c->upstream->number].continued[cause], 1);
    }

    ngx_log_error(NGX_LOG_NOTICE, c->request->connection->log, 0,
                  "kvroute_continue: the answer broke off (%s), and is "
                  "continued by another server", kvr_continue_cause(cause));

    return KVR_ANSWER_WHOLE;
}


/* A part has ended too early: starts another one, or ends the answer. */
static void
ngx_http_kvroute_continue_next(ngx_http_kvroute_continue_t *c,
    kvr_continue_cause_e cause)
{
    ngx_uint_t         limit;
    kvr_answer_cut_e   cut;
    kvr_continue_t    *shared;

    limit = 0;
    cut = KVR_ANSWER_WHOLE;

    if (!c->answer.finished) {
        cut = ngx_http_kvroute_continue_another(c, cause,
                                                ngx_http_kvroute_continue_done,
                                                &limit);

        if (cut == KVR_ANSWER_WHOLE && !limit) {
            return;
        }
    }

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_PASSING) {
        ngx_http_kvroute_continue_put(c, (u_char *) "\n\n", 2);
    }

    c->cut = cut;
    c->part = c->request;
    c->state = NGX_HTTP_KVROUTE_CONTINUE_ENDED;

    if (cut != KVR_ANSWER_WHOLE) {
        shared = ngx_http_kvroute_continue_shared(c);

        if (shared) {
            kvr_add(&shared->upstream[c->upstream->number].cut[cut], 1);
        }

        ngx_log_error(NGX_LOG_ERR, c->request->connection->log, 0,
                      "kvroute_continue: the answer broke off (%s), and was "
                      "not continued: %s", kvr_continue_cause(cause),
                      kvr_answer_cut_name(cut));
    }

    kvr_answer_end(&c->answer, (int) limit, ngx_http_kvroute_continue_put, c);

    (void) ngx_http_kvroute_continue_send(c, c->request, NGX_HTTP_LAST);
}
