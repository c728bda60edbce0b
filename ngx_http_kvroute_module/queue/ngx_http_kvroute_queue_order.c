
/*
 * Copyright (C) kvroute contributors
 */


/* Where in the order a request belongs. */


#include "queue/ngx_http_kvroute_queue.h"


/*
 * What was looked up for a request that waits stays good for 1 ms for each 16
 * entries of its chain, and for 100 ms at most.  So the look-ups of a request
 * take the same small share of the time, however long its prompt is.
 */
#define NGX_HTTP_KVROUTE_QUEUE_ENTRIES   16
#define NGX_HTTP_KVROUTE_QUEUE_KEPT_MAX  100


static ngx_int_t ngx_http_kvroute_queue_string(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, ngx_str_t *value);
static uint32_t *ngx_http_kvroute_queue_looked(ngx_http_kvroute_wait_t *w,
    ngx_msec_t age);


/* where in the order the request belongs */
void
ngx_http_kvroute_queue_item(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w)
{
    off_t                         bytes;
    uint8_t                       tenant;
    uint32_t                      deadline, *matched, most;
    uint64_t                      work, hash;
    ngx_int_t                     class, n, weight;
    ngx_str_t                     value;
    kvr_queue_shared_t           *shared;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_queue_t     *queue;
    ngx_http_kvroute_loc_conf_t  *klcf;

    ctx = w->ctx;
    queue = w->conf->queue;
    shared = queue->shm_zone->data;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    class = KVR_QUEUE_NORMAL;
    tenant = KVR_QUEUE_TENANTS - 1;
    weight = 1;
    deadline = 0;

    if (queue->fifo) {
        kvr_queue_item(&w->item, w->start, class, tenant, 1, 0, 0);
        goto bytes;
    }

    if (ngx_http_kvroute_queue_string(r, klcf->priority, &value) == NGX_OK) {
        n = ngx_http_kvroute_queue_class(&value);
        class = (n == NGX_ERROR) ? class : n;
    }

    if (ngx_http_kvroute_queue_string(r, klcf->priority_max, &value)
        == NGX_OK)
    {
        n = ngx_http_kvroute_queue_class(&value);
        class = (n == NGX_ERROR) ? class : ngx_max(class, n);
    }

    if (ngx_http_kvroute_queue_string(r, klcf->tenant, &value) == NGX_OK) {
        /* keyed: nobody shall be able to choose whose place it is */

        hash = kvr_text_ops()->digest(w->conf->zone->sh->secret, value.data,
                                      value.len);

        tenant = kvr_queue_tenant(shared, hash, w->start);
    }

    if (ngx_http_kvroute_queue_string(r, klcf->weight, &value) == NGX_OK) {
        n = ngx_atoi(value.data, value.len);
        weight = (n < 1) ? 1 : ngx_min(n, 1000);
    }

    if (ngx_http_kvroute_queue_string(r, klcf->deadline, &value) == NGX_OK) {
        n = ngx_parse_time(&value, 0);

        if (n != NGX_ERROR && n > 0) {
            deadline = (uint32_t) ngx_min(n, INT32_MAX / 2);
            w->deadline = 1;
        }
    }

    /* what the peer that holds most of it would still have to compute */

    work = ctx->bytes + ctx->extra;

    matched = ngx_http_kvroute_queue_match(w);

    if (matched) {
        most = ngx_http_kvroute_match_best(matched, w->conf->set);
        work -= ngx_min(work, most * w->conf->zone->sh->unit * KVR_BLOCK);
    }

    kvr_queue_item(&w->item, w->start, class, tenant, weight, work, deadline);

bytes:

    bytes = r->headers_in.content_length_n;
    w->item.bytes = bytes > 0 ? bytes : 0;
}


/*
 * How much of the prompt each peer holds, NULL if nobody knows.  It is asked
 * for when a request comes, whenever room is looked for and when it takes its
 * peer; so it is kept with the request.
 */
uint32_t *
ngx_http_kvroute_queue_match(ngx_http_kvroute_wait_t *w)
{
    uint32_t                 best;
    uint64_t                *chain;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = w->ctx;

    if (!ctx->parsed || ctx->entries == 0 || ctx->skips || w->conf->set == 0) {
        return NULL;
    }

    if (ngx_http_kvroute_queue_kept(w)) {
        return w->matched;
    }

    chain = ngx_http_kvroute_request_chain(w->request, ctx, w->conf->zone);
    if (chain == NULL) {
        return NULL;
    }

    if (w->set) {
        ngx_memzero(w->matched, sizeof(w->matched));
    }

    best = kvr_index_lookup(w->conf->zone->sh->index, chain, ctx->entries,
                            w->conf->set, w->matched);

    ngx_http_kvroute_match_popular(w->conf->zone, chain, best, &w->counted,
                                   &w->popular);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, w->request->connection->log, 0,
                   "kvroute queue: looked up, entries %uD", ctx->entries);

    w->set = w->conf->set;
    w->looked = ngx_current_msec;

    return w->matched;
}


/*
 * Keeps the chain of a request that will wait, so that its body is not read for
 * each look-up; without memory for it that is what happens.  It goes with the
 * first event of the response: ngx_http_kvroute_request_firm().
 */
void
ngx_http_kvroute_queue_retain(ngx_http_kvroute_wait_t *w)
{
    size_t                   size;
    uint64_t                *chain;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = w->ctx;

    if (ctx->entries == 0) {
        return;
    }

    chain = ngx_http_kvroute_request_chain(w->request, ctx, w->conf->zone);

    if (chain == NULL || chain == ctx->chain) {
        return;
    }

    size = ctx->entries * sizeof(uint64_t);

    ctx->chain = ngx_alloc(size, w->request->connection->log);

    if (ctx->chain) {
        ngx_memcpy(ctx->chain, chain, size);
    }
}


/* what is known already and will do to look for room, or NULL */
uint32_t *
ngx_http_kvroute_queue_kept(ngx_http_kvroute_wait_t *w)
{
    ngx_msec_t  age;

    age = w->ctx->entries / NGX_HTTP_KVROUTE_QUEUE_ENTRIES;

    return ngx_http_kvroute_queue_looked(w,
                              ngx_min(age, NGX_HTTP_KVROUTE_QUEUE_KEPT_MAX));
}


/* what was looked up for the queue in this turn of the event loop, or NULL */
uint32_t *
ngx_http_kvroute_queue_matched(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_http_kvroute_wait_t  *w;

    w = ctx->wait;

    return w && w->conf == conf ? ngx_http_kvroute_queue_looked(w, 0) : NULL;
}


static uint32_t *
ngx_http_kvroute_queue_looked(ngx_http_kvroute_wait_t *w, ngx_msec_t age)
{
    if (w->set == 0 || w->set != w->conf->set
        || ngx_current_msec - w->looked > age)
    {
        return NULL;
    }

    return w->matched;
}


/* its prompt is another one now */
void
ngx_http_kvroute_queue_forget(ngx_http_kvroute_ctx_t *ctx)
{
    if (ctx->wait) {
        ctx->wait->looked = ngx_current_msec
                            - NGX_HTTP_KVROUTE_QUEUE_KEPT_MAX - 1;
    }
}


/* a session that may go to one peer only waits for that one */
void
ngx_http_kvroute_queue_own(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_policy_t *policy)
{
    ngx_http_kvroute_attempt_t  at;

    if (!(kvr_policy_needs(policy->conf.policy) & KVR_NEEDS_SESSION)
        || !policy->conf.strict
        || ngx_http_kvroute_request_salt(r, w->ctx) != NGX_OK)
    {
        return;
    }

    ngx_memzero(&at, sizeof(ngx_http_kvroute_attempt_t));

    at.ctx = w->ctx;
    at.conf = w->conf;
    at.policy = policy;
    at.bound = NGX_HTTP_KVROUTE_UNSET_PEER;

    ngx_http_kvroute_session_find(r, &at);

    if (at.bound != NGX_HTTP_KVROUTE_UNSET_PEER) {
        w->own = at.bound;
        w->strict = 1;
    }
}


static ngx_int_t
ngx_http_kvroute_queue_string(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, ngx_str_t *value)
{
    if (cv == NULL || ngx_http_complex_value(r, cv, value) != NGX_OK) {
        return NGX_DECLINED;
    }

    return value->len ? NGX_OK : NGX_DECLINED;
}
