
/*
 * Copyright (C) kvroute contributors
 */


/* Where in the order a request belongs. */


#include "ngx_http_kvroute_queue.h"


static ngx_int_t ngx_http_kvroute_queue_string(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, ngx_str_t *value);


/* where in the order the request belongs */
void
ngx_http_kvroute_queue_item(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w)
{
    off_t                         bytes;
    uint8_t                       tenant;
    uint32_t                      deadline, matched[KVR_INDEX_PEERS];
    uint64_t                      work;
    ngx_int_t                     class, n, weight;
    ngx_str_t                     value;
    ngx_uint_t                    i;
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

    if (ngx_http_kvroute_queue_match(w, matched)) {
        n = 0;

        for (i = 0; i < KVR_INDEX_PEERS; i++) {
            if (w->conf->set >> i & 1) {
                n = ngx_max(n, (ngx_int_t) matched[i]);
            }
        }

        n *= w->conf->zone->sh->unit * KVR_BLOCK;
        work -= ngx_min(work, (uint64_t) n);
    }

    kvr_queue_item(&w->item, w->start, class, tenant, weight, work, deadline);

bytes:

    bytes = r->headers_in.content_length_n;
    w->item.bytes = bytes > 0 ? bytes : 0;
}


/* how much of the prompt each peer holds; 0: nobody knows */
ngx_uint_t
ngx_http_kvroute_queue_match(ngx_http_kvroute_wait_t *w, uint32_t *matched)
{
    uint64_t                *chain;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = w->ctx;

    if (!ctx->parsed || ctx->entries == 0 || w->conf->set == 0) {
        return 0;
    }

    chain = ngx_http_kvroute_request_chain(w->request, ctx, w->conf->zone);
    if (chain == NULL) {
        return 0;
    }

    kvr_index_lookup(w->conf->zone->sh->index, chain, ctx->entries,
                     w->conf->set, matched);

    return 1;
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
