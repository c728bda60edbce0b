
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Decides what becomes of a request, and ends its budget.
 */


#include "budget/ngx_http_kvroute_budget.h"


static ngx_int_t ngx_http_kvroute_budget_enter(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_budget_conf_t *conf);
static void ngx_http_kvroute_budget_end(void *data);
static void ngx_http_kvroute_budget_mark(void *data);


/*
 * The queue and early decisions come later, because nginx runs the handlers of
 * a phase in reverse order.
 */
ngx_int_t
ngx_http_kvroute_budget_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_kvroute_ctx_t          *ctx;
    ngx_http_kvroute_budget_t       *b;
    ngx_http_kvroute_budget_conf_t  *conf;

    conf = *(ngx_http_kvroute_budget_conf_t **)
           ngx_http_get_module_loc_conf(r, ngx_http_kvroute_budget_module);

    if (r != r->main || conf == NULL || conf->name == NULL) {
        return NGX_DECLINED;
    }

    b = ngx_http_kvroute_budget_get(r);

    if (b) {

        /* a post_action: the request may still wait in the old location */

        if (b->state == NGX_HTTP_KVROUTE_BUDGET_WAITING) {

            if (b->uri_changes == r->uri_changes) {
                return NGX_DONE;
            }

            b->state = NGX_HTTP_KVROUTE_BUDGET_GONE;
            ngx_http_kvroute_budget_wait_leave(b);
        }

        /* an error_page led back here, which must not bypass the limit */

        if (b->state == NGX_HTTP_KVROUTE_BUDGET_REJECTED) {
            b->again = 1;

            ngx_http_finalize_request(r,
                                   ngx_http_kvroute_budget_charge_reject(b));
            return NGX_DONE;
        }

        return NGX_DECLINED;
    }

    rc = ngx_http_kvroute_inspect(r);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ctx = ngx_http_kvroute_request_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!ngx_http_kvroute_request_weigh(r, ctx) || ctx->no_prefill) {
        return NGX_DECLINED;
    }

    return ngx_http_kvroute_budget_enter(r, ctx, conf);
}


ngx_http_kvroute_budget_t *
ngx_http_kvroute_budget_get(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_kvroute_budget_mark) {
            return cln->data;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_kvroute_budget_enter(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_budget_conf_t *conf)
{
    uint64_t                    key;
    ngx_str_t                   name;
    kvr_budget_t               *budget;
    kvr_budget_limit_t          limit;
    ngx_http_cleanup_t         *end;
    ngx_pool_cleanup_t         *cln;
    kvr_budget_account_t       *account;
    ngx_http_kvroute_budget_t  *b;

    if (ngx_http_complex_value(r, conf->name, &name) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (name.len == 0
        || ngx_http_kvroute_budget_charge_limit(r, conf, &limit) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    budget = conf->shm_zone->data;
    kvr_budget_secret(budget, conf->zone->secret);

    key = kvr_text_ops()->digest(budget->secret, name.data, name.len);
    key = kvr_budget_key(key, &limit);

    account = kvr_budget_account(budget, key, (uint64_t) ngx_current_msec);

    if (account == NULL) {
        kvr_add(&budget->stats.unknown, 1);
        return NGX_DECLINED;
    }

    /* one ends the budget, before the log; the other one is found there */

    end = ngx_http_cleanup_add(r, 0);
    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_kvroute_budget_t));

    if (end == NULL || cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b = cln->data;
    ngx_memzero(b, sizeof(ngx_http_kvroute_budget_t));

    b->request = r;
    b->conf = conf;
    b->key = key;
    b->name = name;
    b->account = account;
    b->limit = limit;
    b->start = ngx_current_msec;
    b->uri_changes = r->uri_changes;
    b->reserved = ngx_http_kvroute_budget_charge_estimate(b, ctx);

    cln->handler = ngx_http_kvroute_budget_mark;
    end->handler = ngx_http_kvroute_budget_end;
    end->data = b;

    if (!ngx_http_kvroute_budget_wait_any(key)
        && ngx_http_kvroute_budget_charge_take(b) == NGX_OK)
    {
        return NGX_DECLINED;
    }

    switch (conf->over) {

    case NGX_HTTP_KVROUTE_BUDGET_QUEUE:
        return ngx_http_kvroute_budget_wait_start(b);

    case NGX_HTTP_KVROUTE_BUDGET_LOW:
        b->state = NGX_HTTP_KVROUTE_BUDGET_LOWERED;
        ctx->lowest = 1;
        kvr_add(&budget->stats.lowered, 1);

        return NGX_DECLINED;

    default:
        ngx_http_finalize_request(r, ngx_http_kvroute_budget_charge_reject(b));

        return NGX_DONE;
    }
}


static void
ngx_http_kvroute_budget_end(void *data)
{
    ngx_http_kvroute_budget_t *b = data;

    if (b->state == NGX_HTTP_KVROUTE_BUDGET_WAITING) {
        b->state = NGX_HTTP_KVROUTE_BUDGET_GONE;
        ngx_http_kvroute_budget_wait_leave(b);
        return;
    }

    if (b->event.posted) {
        ngx_delete_posted_event(&b->event);
    }

    if (b->state == NGX_HTTP_KVROUTE_BUDGET_ADMITTED) {
        ngx_http_kvroute_budget_charge_settle(b);
        ngx_http_kvroute_budget_wait_run(b->key);
    }
}


/* Marks the data of a cleanup. */
static void
ngx_http_kvroute_budget_mark(void *data)
{
    (void) data;
}
