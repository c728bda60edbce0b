
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A request that continues an answer: a clone of the client's request with
 * another body.  It waits in the queue like any other, counts against the retry
 * budget, and avoids the server that broke the answer.
 */


#include "continue/ngx_http_kvroute_continue.h"
#include "queue/ngx_http_kvroute_queue.h"
#include "core/engine/kvr_dialect.h"


static kvr_answer_cut_e ngx_http_kvroute_continue_prepare(
    ngx_http_kvroute_continue_t *c, kvr_again_t *again, ngx_buf_t **of);
static kvr_answer_cut_e ngx_http_kvroute_continue_allowed(
    ngx_http_kvroute_continue_t *c, uint32_t *most);
static void ngx_http_kvroute_continue_append(void *data, const uint8_t *p,
    size_t len);
static ngx_int_t ngx_http_kvroute_continue_flush(ngx_http_request_t *r);
static void ngx_http_kvroute_continue_enter(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_continue_before(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);


kvr_answer_cut_e
ngx_http_kvroute_continue_start(ngx_http_kvroute_continue_t *c,
    ngx_http_post_subrequest_pt done, ngx_uint_t *limit)
{
    size_t               len;
    ngx_buf_t           *of, *b;
    kvr_again_t          again;
    kvr_answer_cut_e     cut;
    ngx_http_request_t  *sr;

    cut = ngx_http_kvroute_continue_prepare(c, &again, &of);

    if (cut != KVR_ANSWER_WHOLE || again.limit) {
        *limit = again.limit;
        return cut;
    }

    len = (size_t) (of->last - of->pos);

    b = ngx_create_temp_buf(c->request->pool,
                            len + c->answer.given + KVR_AGAIN_MORE);
    if (b == NULL) {
        return KVR_ANSWER_FAILED;
    }

    kvr_splice_put(&again.edits, of->pos, len,
                   ngx_http_kvroute_continue_append, b);
    b->last_buf = 1;

    c->part = NULL;

    sr = ngx_http_kvroute_continue_clone(c, b, done);
    if (sr == NULL) {
        return KVR_ANSWER_FAILED;
    }

    c->part = sr;
    c->broken = 1;
    c->len = 0;
    c->from = 0;
    kvr_answer_next(&c->answer);

    return KVR_ANSWER_WHOLE;
}


ngx_uint_t
ngx_http_kvroute_continue_can(ngx_http_kvroute_continue_t *c)
{
    ngx_buf_t    *of;
    kvr_again_t   again;

    return ngx_http_kvroute_continue_prepare(c, &again, &of)
           == KVR_ANSWER_WHOLE
           && !again.limit;
}


/* Reads the client's body, *of, for a continuation; or the reason why not. */
static kvr_answer_cut_e
ngx_http_kvroute_continue_prepare(ngx_http_kvroute_continue_t *c,
    kvr_again_t *again, ngx_buf_t **of)
{
    kvr_answer_cut_e  cut;

    again->limit = 0;

    cut = ngx_http_kvroute_continue_allowed(c, &again->most);

    if (cut != KVR_ANSWER_WHOLE) {
        return cut;
    }

    *of = ngx_http_kvroute_continue_body(c->request);

    return *of ? kvr_again_read(again, &c->answer, (*of)->pos,
                                (size_t) ((*of)->last - (*of)->pos))
               : KVR_ANSWER_REQUEST;
}


static kvr_answer_cut_e
ngx_http_kvroute_continue_allowed(ngx_http_kvroute_continue_t *c,
    uint32_t *most)
{
    uint32_t                 dialect;
    const char              *name;
    kvr_registry_t          *registry;
    kvr_outlier_fleet_t     *fleet;
    ngx_http_kvroute_ctx_t  *ctx;

    *most = 16;

    if (c->answer.cut) {
        return (kvr_answer_cut_e) c->answer.cut;
    }

    ctx = ngx_http_kvroute_request_get_ctx(c->request);

    if (ctx->legs) {
        return KVR_ANSWER_PREFILL;
    }

    if (!c->moved && c->parts - c->moves >= c->conf->tries) {
        return KVR_ANSWER_TRIES;
    }

    if (!c->upstream->numbered) {
        return KVR_ANSWER_WHOLE;
    }

    registry = c->upstream->zone->core.registry;

    fleet = &registry->upstream[c->upstream->number].fleet;

    if (!c->moved && !kvr_outlier_may_retry(fleet, &c->upstream->eject,
                                            (uint64_t) ngx_current_msec))
    {
        return KVR_ANSWER_BUDGET;
    }

    if (c->peer == KVR_REGISTRY_NONE) {
        return KVR_ANSWER_WHOLE;
    }

    dialect = (uint32_t) kvr_get(&registry->peer[c->peer].engine.engine);

    if (dialect == KVR_DIALECT_AUTO) {
        dialect = c->upstream->engine.engine;
    }

    name = kvr_dialect(dialect)->name;

    if (ngx_strcmp(name, "llamacpp") == 0) {
        *most = 0;
    }

    /* these engines do not continue the last message */

    return c->answer.api == KVR_ANSWER_CHAT && c->answer.given
           && (ngx_strcmp(name, "tgi") == 0 || ngx_strcmp(name, "trtllm") == 0)
           ? KVR_ANSWER_ENGINE : KVR_ANSWER_WHOLE;
}


ngx_buf_t *
ngx_http_kvroute_continue_body(ngx_http_request_t *r)
{
    off_t                     size;
    ssize_t                   n;
    ngx_buf_t                *b, *of;
    ngx_chain_t              *cl, *in;
    ngx_http_request_body_t  *body;

    body = r->request_body;

    if (body == NULL || body->bufs == NULL
        || r->request_body_no_buffering)
    {
        return NULL;
    }

    in = body->bufs;

    if (in->next == NULL && ngx_buf_in_memory(in->buf)) {
        return in->buf;
    }

    for (cl = in, size = 0; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    b = ngx_create_temp_buf(r->pool, (size_t) size + 1);
    if (b == NULL) {
        return NULL;
    }

    for (cl = in; cl; cl = cl->next) {
        of = cl->buf;

        if (ngx_buf_in_memory(of)) {
            b->last = ngx_cpymem(b->last, of->pos, of->last - of->pos);
            continue;
        }

        /* a body in chunks ends with a buffer that has no data */

        if (!of->in_file) {
            continue;
        }

        size = ngx_buf_size(of);
        n = ngx_read_file(of->file, b->last, (size_t) size, of->file_pos);

        if (n != (ssize_t) size) {
            return NULL;
        }

        b->last += n;
    }

    return b;
}


/* a kvr_splice_put_pt */
static void
ngx_http_kvroute_continue_append(void *data, const uint8_t *p, size_t len)
{
    ngx_buf_t *b = data;

    b->last = ngx_cpymem(b->last, p, len);
}


ngx_http_request_t *
ngx_http_kvroute_continue_clone(ngx_http_kvroute_continue_t *c, ngx_buf_t *b,
    ngx_http_post_subrequest_pt done)
{
    ngx_http_request_t          *r, *sr;
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_request_body_t     *body;
    ngx_http_post_subrequest_t  *ps;

    r = c->request;

    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));
    body = ngx_pcalloc(r->pool, sizeof(ngx_http_request_body_t));

    if (ps == NULL || body == NULL) {
        return NULL;
    }

    body->bufs = ngx_alloc_chain_link(r->pool);
    if (body->bufs == NULL) {
        return NULL;
    }

    body->bufs->buf = b;
    body->bufs->next = NULL;

    ps->handler = done;
    ps->data = c;

    if (ngx_http_subrequest(r, &r->uri, &r->args, &sr, ps,
                            NGX_HTTP_SUBREQUEST_CLONE)
        != NGX_OK)
    {
        return NULL;
    }

    /* out of memory: its output must not reach the client, nor an error page */

    ngx_http_set_ctx(sr, c, ngx_http_kvroute_continue_module);
    sr->error_page = 1;
    sr->preserve_body = 1;

    /* nor that of X-Accel-Redirect: nginx allows no redirect */

    sr->uri_changes = 1;

    ctx = ngx_http_kvroute_request_create_ctx(sr);
    if (ctx == NULL) {
        return NULL;
    }

    c->leg.before = ngx_http_kvroute_continue_before;
    ctx->leg = &c->leg;

    if (r->connection->data != sr
        && ngx_http_kvroute_continue_flush(r) != NGX_OK)
    {
        return NULL;
    }

    if (b == NULL) {
        return sr;
    }

    ngx_http_kvroute_request_body_set(sr, body, b->last - b->pos, NULL);
    sr->headers_in.chunked = 0;
    sr->write_event_handler = ngx_http_kvroute_continue_enter;

    return sr;
}


/*
 * Postpones a flush: nginx ends the response if a request that it wakes has
 * nothing to send.  Through the filters it might be lost, as SSI drops it.
 */
static ngx_int_t
ngx_http_kvroute_continue_flush(ngx_http_request_t *r)
{
    ngx_http_postponed_request_t  *pr, **last;

    pr = ngx_pcalloc(r->pool, sizeof(ngx_http_postponed_request_t));
    if (pr == NULL) {
        return NGX_ERROR;
    }

    pr->out = ngx_alloc_chain_link(r->pool);
    if (pr->out == NULL) {
        return NGX_ERROR;
    }

    pr->out->next = NULL;
    pr->out->buf = ngx_calloc_buf(r->pool);
    if (pr->out->buf == NULL) {
        return NGX_ERROR;
    }

    pr->out->buf->flush = 1;

    for (last = &r->postponed; *last; last = &(*last)->next) { /* void */ }

    *last = pr;

    return NGX_OK;
}


/* Queues a clone, which skips the phase that queues requests. */
static void
ngx_http_kvroute_continue_enter(ngx_http_request_t *r)
{
    ngx_int_t  rc;

    rc = ngx_http_kvroute_queue_request(r);

    if (rc == NGX_DONE) {
        return;
    }

    if (rc != NGX_DECLINED) {
        ngx_http_finalize_request(r, rc);
        return;
    }

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


ngx_int_t
ngx_http_kvroute_continue_usage_handler(ngx_http_request_t *r)
{
    size_t                             len;
    ngx_int_t                          rc;
    ngx_buf_t                         *of, *b;
    ngx_chain_t                       *cl;
    kvr_splice_t                       edits;
    ngx_http_kvroute_continue_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_continue_module);

    if (!conf->usage || r != r->main || r->method != NGX_HTTP_POST
        || kvr_answer_api(r->uri.data, r->uri.len) >= KVR_ANSWER_MESSAGES
        || r->headers_in.content_length_n
           > (off_t) ngx_http_kvroute_request_limit(r))
    {
        return NGX_DECLINED;
    }

    rc = ngx_http_kvroute_inspect(r);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (r->request_body == NULL || r->request_body->bufs == NULL
        || r->reading_body || ngx_http_kvroute_continue_asked(r))
    {
        return NGX_DECLINED;
    }

    of = ngx_http_kvroute_continue_body(r);

    if (of == NULL
        || kvr_again_usage(&edits, of->pos, (size_t) (of->last - of->pos))
           != KVR_OK)
    {
        return NGX_DECLINED;
    }

    len = (size_t) (of->last - of->pos);

    b = ngx_create_temp_buf(r->pool, len + KVR_AGAIN_MORE);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL
        || ngx_http_kvroute_continue_ask(r) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    kvr_splice_put(&edits, of->pos, len, ngx_http_kvroute_continue_append, b);
    b->last_buf = 1;

    cl->buf = b;
    cl->next = NULL;

    r->request_body->bufs = cl;
    r->headers_in.content_length_n = b->last - b->pos;
    r->headers_in.content_length = NULL;

    return NGX_DECLINED;
}


/* Makes an attempt of a continuation a retry at another server. */
static ngx_int_t
ngx_http_kvroute_continue_before(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_continue_t  *c;

    c = ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module);
    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx->attempt->tries == 0) {
        ctx->attempt->tries = c->retry;
        ngx_http_kvroute_prepare_avoid(ctx->attempt, c->peer);
    }

    return NGX_OK;
}
