
/*
 * Copyright (C) kvroute contributors
 */


/* The position of a request in the queue. */


#include "queue/ngx_http_kvroute_queue_int.h"
#include "conf/ngx_http_kvroute_conf.h"


/*
 * A look-up of a waiting request is valid for 1 ms per 16 entries of its chain,
 * and at most 100 ms.  So look-ups take the same small share of time, whatever
 * the length of the prompt.
 */
#define NGX_HTTP_KVROUTE_QUEUE_ENTRIES   16
#define NGX_HTTP_KVROUTE_QUEUE_KEPT_MAX  100


static ngx_int_t ngx_http_kvroute_queue_string(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, ngx_str_t *value);


void
ngx_http_kvroute_queue_item(ngx_http_kvroute_wait_t *w)
{
    off_t                         bytes;
    uint8_t                       tenant;
    uint32_t                      deadline;
    uint64_t                      work;
    ngx_int_t                     class, n, weight;
    ngx_str_t                     value;
    kvr_queue_shared_t           *shared;
    ngx_http_request_t           *r;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_words_t     *words;
    ngx_http_kvroute_lookup_t    *l;
    ngx_http_kvroute_loc_conf_t  *klcf;

    static ngx_http_kvroute_words_t  none;

    r = w->request;
    ctx = w->ctx;
    shared = w->conf->queue->shm_zone->data;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    class = KVR_QUEUE_NORMAL;
    tenant = KVR_QUEUE_TENANTS - 1;
    weight = 1;
    deadline = 0;

    words = klcf->request ? klcf->request : &none;

    if (ngx_http_kvroute_queue_string(r, words->priority, &value) == NGX_OK) {
        n = ngx_http_kvroute_conf_queue_class(&value);
        class = (n == NGX_ERROR) ? class : n;
    }

    if (ngx_http_kvroute_queue_string(r, words->max_priority, &value)
        == NGX_OK)
    {
        n = ngx_http_kvroute_conf_queue_class(&value);
        class = (n == NGX_ERROR) ? class : ngx_max(class, n);
    }

    if (ctx->lowest) {
        class = KVR_QUEUE_CLASSES - 1;
    }

    if (ngx_http_kvroute_tally_tenant(ctx, w->conf->zone) == NGX_OK) {
        tenant = kvr_queue_tenant(shared, ctx->tenant_hash, w->start);
    }

    if (ngx_http_kvroute_queue_string(r, words->weight, &value) == NGX_OK) {
        n = ngx_atoi(value.data, value.len);
        weight = (n < 1) ? 1 : ngx_min(n, 1000);
    }

    if (ngx_http_kvroute_queue_string(r, words->deadline, &value) == NGX_OK) {
        n = ngx_parse_time(&value, 0);

        if (n != NGX_ERROR && n > 0) {
            deadline = (uint32_t) ngx_min(n, INT32_MAX / 2);
            w->deadline = 1;
        }
    }

    /* bytes that the peer with the most cached must still compute */

    work = ctx->bytes + ctx->extra;

    l = ngx_http_kvroute_queue_lookup(w);

    if (l) {
        work -= ngx_min(work, (uint64_t) l->best * KVR_BLOCK);
    }

    kvr_queue_item(&w->item, w->start, class, tenant, weight, work, deadline);

    bytes = r->headers_in.content_length_n;
    w->item.bytes = bytes > 0 ? bytes : 0;
}


ngx_http_kvroute_lookup_t *
ngx_http_kvroute_queue_lookup(ngx_http_kvroute_wait_t *w)
{
    ngx_http_kvroute_lookup_t  *l;

    l = ngx_http_kvroute_queue_kept(w);

    if (l) {
        return l;
    }

    l = ngx_http_kvroute_lookup(w->ctx, w->conf, 1);

    if (l) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, w->request->connection->log, 0,
                       "kvroute queue: looked up, entries %uD",
                       w->ctx->entries);
    }

    return l;
}


ngx_http_kvroute_lookup_t *
ngx_http_kvroute_queue_kept(ngx_http_kvroute_wait_t *w)
{
    ngx_msec_t  age;

    age = w->ctx->entries / NGX_HTTP_KVROUTE_QUEUE_ENTRIES;

    return ngx_http_kvroute_lookup_kept(w->ctx, w->conf,
                               ngx_min(age, NGX_HTTP_KVROUTE_QUEUE_KEPT_MAX));
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
