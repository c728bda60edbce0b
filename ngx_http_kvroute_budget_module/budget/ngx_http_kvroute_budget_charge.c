
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Charges requests.  At arrival the body has been read, and what a server has
 * cached of the prompt is looked up if the upstream is known by then.  At the
 * end each context of the request, which are those of its subrequests too, has
 * what the engine reported.
 */


#include "budget/ngx_http_kvroute_budget.h"
#include "zone/ngx_http_kvroute_zone.h"


static ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_budget_charge_upstream(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_budget_charge_headers(
    ngx_http_kvroute_budget_t *b);
static ngx_int_t ngx_http_kvroute_budget_charge_header(ngx_http_request_t *r,
    const char *name, const char *format, ...);
static void ngx_http_kvroute_budget_charge_tally(ngx_http_kvroute_budget_t *b,
    uint64_t admitted, uint64_t tokens);
static void ngx_http_kvroute_budget_charge_part(ngx_http_kvroute_budget_t *b,
    ngx_http_kvroute_ctx_t *ctx, kvr_budget_use_t *use);


ngx_int_t
ngx_http_kvroute_budget_charge_limit(ngx_http_request_t *r,
    ngx_http_kvroute_budget_conf_t *conf, kvr_budget_limit_t *limit)
{
    ngx_str_t  rate;

    if (ngx_http_complex_value(r, conf->rate, &rate) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (kvr_budget_read_rate(rate.data, rate.len, limit) != KVR_OK) {

        if (rate.len) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "kvroute budget: invalid rate \"%V\", expected e.g. "
                          "100k/m: the request is not limited", &rate);
        }

        return NGX_DECLINED;
    }

    if (conf->burst >= 0) {
        limit->burst = conf->burst;
    }

    return NGX_OK;
}


double
ngx_http_kvroute_budget_charge_estimate(ngx_http_kvroute_budget_t *b,
    ngx_http_kvroute_ctx_t *ctx)
{
    uint64_t                      cached;
    kvr_budget_use_t              use;
    ngx_http_kvroute_lookup_t    *l;
    ngx_http_kvroute_srv_conf_t  *conf;

    cached = 0;
    conf = ngx_http_kvroute_budget_charge_upstream(b->request);

    if (conf) {
        l = ngx_http_kvroute_lookup(ctx, conf, 1);
        cached = l ? (uint64_t) l->best * KVR_BLOCK : 0;
    }

    kvr_budget_estimate(b->account, ctx->bytes + ctx->extra, cached,
                        ctx->output, &use);

    return kvr_budget_cost(&use, (kvr_budget_charge_e) b->conf->charge);
}


/* Returns the upstream if it is known and its servers can be read, or NULL. */
static ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_budget_charge_upstream(ngx_http_request_t *r)
{
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = ngx_http_kvroute_pass_expected(r);

    if (conf == NULL || conf->zone == NULL
        || ngx_http_kvroute_peers_current(conf, 1, r->connection->log)
           != NGX_OK)
    {
        return NULL;
    }

    return conf;
}


ngx_int_t
ngx_http_kvroute_budget_charge_take(ngx_http_kvroute_budget_t *b)
{
    uint64_t               now;
    kvr_budget_t          *budget;
    kvr_budget_account_t  *account;

    now = (uint64_t) ngx_current_msec;
    budget = b->conf->shm_zone->data;

    /* while the request waited it may have been paid, and replaced */

    account = kvr_budget_account(budget, b->key, now);

    if (account) {
        b->account = account;
    }

    if (kvr_budget_take(b->account, &b->limit, b->reserved, now) != KVR_OK) {
        return NGX_DECLINED;
    }

    b->state = NGX_HTTP_KVROUTE_BUDGET_ADMITTED;

    kvr_add(&budget->stats.admitted, 1);
    kvr_add(&budget->stats.reserved, (uint64_t) b->reserved);

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_budget_charge_reject(ngx_http_kvroute_budget_t *b)
{
    u_char                        text[256];
    kvr_budget_t                 *budget;
    kvr_tally_counts_t            counts;
    ngx_http_request_t           *r;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_srv_conf_t  *conf;

    r = b->request;

    if (!b->again) {
        b->state = NGX_HTTP_KVROUTE_BUDGET_REJECTED;

        budget = b->conf->shm_zone->data;
        kvr_add(&budget->stats.rejected, 1);
        ngx_http_kvroute_budget_charge_tally(b, 0, 0);

        ctx = ngx_http_kvroute_request_get_ctx(r);
        conf = ngx_http_kvroute_budget_charge_upstream(r);

        if (ctx && conf) {
            ngx_memzero((void *) &counts, sizeof(kvr_tally_counts_t));
            counts.rejects = 1;

            ngx_http_kvroute_tally(ctx, conf->zone, (uint32_t) conf->number,
                                   &counts, 0);
        }

        /* a location that responds instead sets headers of its own */

        if (ngx_http_kvroute_send_paged(r)) {
            return NGX_HTTP_TOO_MANY_REQUESTS;
        }
    }

    if (ngx_http_kvroute_budget_charge_headers(b) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    (void) ngx_sprintf(text, "{\"error\":{\"message\":\"token budget exceeded, "
                       "try again in %uL ms\",\"type\":\"tokens\",\"param\":"
                       "null,\"code\":\"rate_limit_exceeded\"}}%Z",
                       kvr_budget_wait(b->account, &b->limit,
                                       (uint64_t) ngx_current_msec));

    return ngx_http_kvroute_send_text(r, NGX_HTTP_TOO_MANY_REQUESTS,
                                      (char *) text);
}


/* Adds Retry-After, and the headers of OpenAI. */
static ngx_int_t
ngx_http_kvroute_budget_charge_headers(ngx_http_kvroute_budget_t *b)
{
    uint64_t             now, wait, reset;
    ngx_http_request_t  *r;

    r = b->request;
    now = (uint64_t) ngx_current_msec;
    wait = kvr_budget_wait(b->account, &b->limit, now);
    reset = kvr_budget_reset(b->account, now);

    if (ngx_http_kvroute_budget_charge_header(r, "Retry-After", "%uL%Z",
                                        ngx_max((wait + 999) / 1000, 1))
        != NGX_OK
        || ngx_http_kvroute_budget_charge_header(r, "x-ratelimit-limit-tokens",
                                        "%.0f%Z", b->limit.burst)
           != NGX_OK
        || ngx_http_kvroute_budget_charge_header(r,
                                        "x-ratelimit-remaining-tokens",
                                        "%.0f%Z",
                                        kvr_budget_left(b->account, &b->limit,
                                                        now))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_budget_charge_header(r, "x-ratelimit-reset-tokens",
                                        reset < 1000 ? "%uLms%Z" : "%uLs%Z",
                                        reset < 1000 ? reset
                                                     : (reset + 999) / 1000);
}


static ngx_int_t
ngx_http_kvroute_budget_charge_header(ngx_http_request_t *r, const char *name,
    const char *format, ...)
{
    u_char   *value;
    va_list   args;

    value = ngx_pnalloc(r->pool, 2 * NGX_INT64_LEN);
    if (value == NULL) {
        return NGX_ERROR;
    }

    va_start(args, format);
    (void) ngx_vslprintf(value, value + 2 * NGX_INT64_LEN, format, args);
    va_end(args);

    return ngx_http_kvroute_headers_add(r, name, (char *) value)
           ? NGX_OK : NGX_ERROR;
}


void
ngx_http_kvroute_budget_charge_settle(ngx_http_kvroute_budget_t *b)
{
    uint64_t                 now;
    kvr_budget_t            *budget;
    kvr_budget_use_t         use;
    ngx_pool_cleanup_t      *cln;
    kvr_budget_account_t    *account;
    ngx_http_kvroute_ctx_t  *ctx;

    now = (uint64_t) ngx_current_msec;
    budget = b->conf->shm_zone->data;

    /* it may have owed nothing, and have been replaced */

    account = kvr_budget_account(budget, b->key, now);

    if (account == NULL) {
        return;
    }

    b->account = account;

    ngx_memzero(&use, sizeof(kvr_budget_use_t));

    for (cln = b->request->pool->cleanup;
         (ctx = ngx_http_kvroute_request_next(&cln)) != NULL;
         /* void */ )
    {
        ngx_http_kvroute_budget_charge_part(b, ctx, &use);
    }

    b->charged = kvr_budget_cost(&use, (kvr_budget_charge_e) b->conf->charge);

    kvr_budget_charge(b->account, &b->limit, b->charged - b->reserved, now);
    kvr_add(&budget->stats.charged, (uint64_t) b->charged);
    ngx_http_kvroute_budget_charge_tally(b, 1, (uint64_t) b->charged);
}


/* Counts a request for the status: admitted, or rejected. */
static void
ngx_http_kvroute_budget_charge_tally(ngx_http_kvroute_budget_t *b,
    uint64_t admitted, uint64_t tokens)
{
    kvr_budget_t        *budget;
    kvr_tally_owner_t    owner;
    kvr_tally_counts_t   counts;

    budget = b->conf->shm_zone->data;

    owner.kind = KVR_TALLY_TENANT;
    owner.upstream = 0;
    owner.hash = b->key;
    owner.name = b->name.data;
    owner.len = b->name.len;

    ngx_memzero((void *) &counts, sizeof(kvr_tally_counts_t));
    counts.requests = admitted;
    counts.rejects = 1 - admitted;
    counts.computed = tokens;

    kvr_tally_take(&budget->tally, &owner, &counts, tokens != 0,
                   (uint64_t) ngx_time());
}


/*
 * Adds what one context has used.  An answer that has not begun costs nothing,
 * unless the client has left: the engine may have computed the prompt.  Some
 * engines send their header before that.
 */
static void
ngx_http_kvroute_budget_charge_part(ngx_http_kvroute_budget_t *b,
    ngx_http_kvroute_ctx_t *ctx, kvr_budget_use_t *use)
{
    kvr_tokens_t         tokens;
    kvr_reply_t         *reply;
    kvr_budget_part_t    part;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (!ctx->decided
        || (!ctx->ttft_set
            && (!r->connection->error || r->upstream == NULL
                || r->upstream->headers_in.status_n >= 300)))
    {
        return;
    }

    reply = ctx->reply;
    kvr_response_tokens(&ctx->usage, &tokens);

    part.bytes = ctx->bytes + ctx->extra;
    part.cached = ctx->parsed ? ctx->matched : 0;
    part.reply = (reply && !reply->bad && reply->begun)
                 ? (reply->blocks - reply->start) * KVR_BLOCK + reply->fill : 0;
    part.tokens[0] = tokens.prompt;
    part.tokens[1] = tokens.cached;
    part.tokens[2] = tokens.completion;
    part.decode = (ctx->leg && ctx->leg->decode);

    kvr_budget_add(b->account, &part, use);
}
