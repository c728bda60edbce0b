
/*
 * Copyright (C) kvroute contributors
 */


/* Where in the order a request belongs. */


#include "ngx_http_kvroute_queue.h"


static ngx_int_t ngx_http_kvroute_queue_string(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, ngx_str_t *value);


/* of this worker: what was looked up last, for whom and when */

static uint32_t                  ngx_http_kvroute_queue_scratch[
                                                             KVR_INDEX_PEERS];
static kvr_popular_view_t        ngx_http_kvroute_queue_popular;
static uint64_t                  ngx_http_kvroute_queue_set;
static ngx_msec_t                ngx_http_kvroute_queue_looked;
static ngx_http_kvroute_wait_t  *ngx_http_kvroute_queue_owner;


/* where in the order the request belongs */
void
ngx_http_kvroute_queue_item(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w)
{
    off_t                         bytes;
    uint8_t                       tenant;
    uint32_t                      deadline, *matched, most;
    uint64_t                      work;
    ngx_int_t                     class, n, weight;
    ngx_str_t                     value;
    kvr_queue_board_t            *board;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_queue_t     *queue;
    ngx_http_kvroute_loc_conf_t  *klcf;

    ctx = w->ctx;
    queue = w->conf->queue;
    board = queue->shm_zone->data;

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
        tenant = kvr_queue_tenant(board,
                                  (uint64_t) ngx_crc32_long(value.data,
                                                            value.len)
                                  << 32
                                  | ngx_murmur_hash2(value.data, value.len),
                                  w->start);
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
 * for when a request comes, when room is looked for and when it takes its peer,
 * as a rule in one turn of the event loop: then it is looked up once.
 */
uint32_t *
ngx_http_kvroute_queue_match(ngx_http_kvroute_wait_t *w)
{
    uint32_t                 best;
    uint64_t                *chain;
    kvr_popular_keys_t       keys;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = w->ctx;

    if (!ctx->parsed || ctx->entries == 0 || ctx->skips || w->conf->set == 0) {
        return NULL;
    }

    if (ngx_http_kvroute_queue_matched(ctx, w->conf)) {
        return ngx_http_kvroute_queue_scratch;
    }

    chain = ngx_http_kvroute_request_chain(w->request, ctx, w->conf->zone);
    if (chain == NULL) {
        return NULL;
    }

    ngx_memzero(ngx_http_kvroute_queue_scratch,
                sizeof(ngx_http_kvroute_queue_scratch));

    best = kvr_index_lookup(w->conf->zone->sh->index, chain, ctx->entries,
                            w->conf->set, ngx_http_kvroute_queue_scratch);

    ngx_http_kvroute_match_popular(w->conf->zone, chain, best, &keys,
                                   &ngx_http_kvroute_queue_popular);

    ngx_http_kvroute_queue_owner = w;
    ngx_http_kvroute_queue_set = w->conf->set;
    ngx_http_kvroute_queue_looked = ngx_current_msec;

    w->looked = 1;

    return ngx_http_kvroute_queue_scratch;
}


/* what was just looked up for the queue, or NULL */
uint32_t *
ngx_http_kvroute_queue_matched(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_http_kvroute_wait_t  *w;

    w = ctx->wait;

    /* its memory may have been another's before: the flag is its own */

    if (w == NULL || !w->looked || w != ngx_http_kvroute_queue_owner
        || w->conf != conf
        || conf->set != ngx_http_kvroute_queue_set
        || ngx_current_msec != ngx_http_kvroute_queue_looked)
    {
        return NULL;
    }

    return ngx_http_kvroute_queue_scratch;
}


/* bytes that others use of what a peer with so many units must compute */
uint64_t
ngx_http_kvroute_queue_shared(ngx_http_kvroute_wait_t *w, uint32_t units,
    uint32_t active)
{
    if (!w->looked || w != ngx_http_kvroute_queue_owner) {
        return 0;
    }

    return kvr_popular_shared(&ngx_http_kvroute_queue_popular, units, active);
}


/* a session that may go to one peer only waits for that one */
void
ngx_http_kvroute_queue_own(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_policy_t *policy)
{
    ngx_http_kvroute_attempt_t  at;

    if (policy->conf.policy != KVR_POLICY_STICKY || !policy->conf.strict) {
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
