
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The prompt of a request, read once per location.
 *
 * Thousands of requests can be open for minutes, so they do not keep their
 * chains of hashes.  A chain is computed in this worker's scratch memory for a
 * decision, and again if an attempt fails and its insert must be undone, or for
 * a second attempt.
 *
 * A copy is kept until the first event of the response in two cases:
 *
 *     the chain cannot be computed again: nginx closes the file of a body when
 *     the response begins, and does not keep an unbuffered body
 *
 *     the request waits in the queue, where it is looked up repeatedly; the
 *     chain is at most 1/32 of the prompt's size
 */


#include "request/ngx_http_kvroute_request_int.h"


static ngx_int_t ngx_http_kvroute_prompt_keep(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_prompt_reply(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_prompt_copy(ngx_http_request_t *r,
    ngx_str_t *dst, uint8_t *data, size_t len);
static ngx_uint_t ngx_http_kvroute_prompt_passes(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_prompt_copy_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);
static ngx_int_t ngx_http_kvroute_prompt_parse(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);
static ngx_int_t ngx_http_kvroute_prompt_scratch(ngx_http_request_t *r);


/* scratch memory of this worker, valid for one event */

static uint64_t                *ngx_http_kvroute_digests;
static size_t                   ngx_http_kvroute_max_digests;
static uint64_t                *ngx_http_kvroute_chain;
static size_t                   ngx_http_kvroute_max_chain;
static kvr_prompt_t             ngx_http_kvroute_prompt;


/*
 * The request and zone whose chain is in the scratch memory.  A context disowns
 * it when it ends, because its address can be reused.
 */

typedef struct {
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_zone_t  *zone;
} ngx_http_kvroute_owner_t;

static ngx_http_kvroute_owner_t  ngx_http_kvroute_chain_of;


void
ngx_http_kvroute_prompt_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    ngx_uint_t     i;
    kvr_prompt_t  *pr;

    if (ngx_http_kvroute_prompt_parse(r, ctx, zone) != NGX_OK) {
        return;
    }

    pr = &ngx_http_kvroute_prompt;

    ngx_http_kvroute_prompt_copy(r, &ctx->model, pr->model, pr->model_len);

    for (i = 0; i < KVR_PROMPT_FIELDS; i++) {
        ngx_http_kvroute_prompt_copy(r, &ctx->hint[i], pr->field[i].data,
                                      pr->field[i].len);
    }

    ctx->clean = pr->clean;
    ctx->prioritized = pr->priority_set;
    ctx->priority = (int32_t) ngx_max(ngx_min(pr->priority, INT32_MAX),
                                      -INT32_MAX);

    if (ctx->no_prefill || pr->shape == KVR_PROMPT_NONE) {
        return;
    }

    ctx->parsed = 1;
    ctx->bytes = pr->bytes;
    ctx->extra = pr->extra;
    ctx->skips = pr->skips;
    ctx->unsized = pr->unsized;
    ctx->sampled = pr->sampled;
    ctx->one_engine = pr->one_engine;
    ctx->stream = pr->stream;
    ctx->output = (uint32_t) ngx_min(pr->max_tokens, NGX_MAX_UINT32_VALUE);

    if (ngx_http_kvroute_prompt_keep(r, ctx, zone) != NGX_OK) {
        ctx->parsed = 0;
    }
}


/* Sets the context from the chain that was just computed for a zone. */
static ngx_int_t
ngx_http_kvroute_prompt_keep(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    kvr_prompt_t  *pr;

    pr = &ngx_http_kvroute_prompt;

    ngx_http_kvroute_prompt_free_chain(ctx);

    ctx->zone = zone;
    ctx->units = pr->blocks;
    ctx->entries = pr->n;

    /* without the salt, because tenants share a loaded model */

    ctx->model_root = kvr_mix(pr->model_hash, 1);

    ctx->hash = pr->n ? ngx_http_kvroute_chain[pr->n - 1] : pr->root;

    ngx_http_kvroute_prompt_reply(r, ctx, zone);

    ctx->passing = ngx_http_kvroute_prompt_passes(r);

    if (pr->n == 0 || !ctx->passing) {
        return NGX_OK;
    }

    return ngx_http_kvroute_prompt_copy_chain(r, ctx);
}


/* Keeps the end of the prompt, which the reply will continue. */
static void
ngx_http_kvroute_prompt_reply(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    kvr_prompt_t  *pr;

    pr = &ngx_http_kvroute_prompt;

    if (!pr->tailed) {
        return;
    }

    if (ctx->reply == NULL) {
        ctx->reply = ngx_alloc(sizeof(kvr_reply_t), r->connection->log);
    }

    if (ctx->reply
        && kvr_reply_init(ctx->reply, pr, zone->secret,
                          ctx->endpoint == KVR_ENDPOINT_MESSAGES)
           != KVR_OK)
    {
        ngx_free(ctx->reply);
        ctx->reply = NULL;
    }
}


static void
ngx_http_kvroute_prompt_copy(ngx_http_request_t *r, ngx_str_t *dst,
    uint8_t *data, size_t len)
{
    if (len == 0) {
        return;
    }

    dst->data = ngx_pnalloc(r->pool, len);

    if (dst->data) {
        dst->len = len;
        ngx_memcpy(dst->data, data, len);
    }
}


/* Tells whether nginx frees the body before the request ends. */
static ngx_uint_t
ngx_http_kvroute_prompt_passes(ngx_http_request_t *r)
{
    ngx_chain_t  *cl;

    if (r->request_body_no_buffering) {
        return 1;
    }

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        if (!ngx_buf_in_memory(cl->buf) && !ngx_buf_special(cl->buf)) {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_kvroute_prompt_free_chain(ngx_http_kvroute_ctx_t *ctx)
{
    if (ctx->chain) {
        ngx_free(ctx->chain);
        ctx->chain = NULL;

        if (ctx->passing) {
            ctx->entries = 0;
        }
    }
}


void
ngx_http_kvroute_prompt_disown(ngx_http_kvroute_ctx_t *ctx)
{
    ngx_http_kvroute_prompt_free_chain(ctx);

    if (ngx_http_kvroute_chain_of.ctx == ctx) {
        ngx_http_kvroute_chain_of.ctx = NULL;
    }
}


uint64_t *
ngx_http_kvroute_prompt_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    if (ctx->chain && ctx->zone == zone) {
        return ctx->chain;
    }

    if (ngx_http_kvroute_chain_of.ctx == ctx
        && ngx_http_kvroute_chain_of.zone == zone)
    {
        return ngx_http_kvroute_chain;
    }

    /* nginx does not keep an unbuffered body */

    if (!ctx->parsed
        || r->request_body_no_buffering
        || ngx_http_kvroute_prompt_parse(r, ctx, zone) != NGX_OK)
    {
        return NULL;
    }

    /* another zone has other units and hashes */

    if (ctx->zone != zone
        && ngx_http_kvroute_prompt_keep(r, ctx, zone) != NGX_OK)
    {
        return NULL;
    }

    return ngx_http_kvroute_chain;
}


void
ngx_http_kvroute_prompt_keep_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    uint64_t  *chain;

    if (ctx->entries == 0) {
        return;
    }

    chain = ngx_http_kvroute_prompt_chain(r, ctx, zone);

    /* without a copy: the body can be read again */

    if (chain && ctx->chain == NULL) {
        (void) ngx_http_kvroute_prompt_copy_chain(r, ctx);
    }
}


/* Copies the chain from the scratch memory. */
static ngx_int_t
ngx_http_kvroute_prompt_copy_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx)
{
    size_t  size;

    size = ctx->entries * sizeof(uint64_t);

    ctx->chain = ngx_alloc(size, r->connection->log);

    if (ctx->chain == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(ctx->chain, ngx_http_kvroute_chain, size);

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_prompt_parse(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    ngx_int_t                     rc;
    kvr_prompt_t                 *pr;
    kvr_prompt_conf_t             conf;
    ngx_http_kvroute_loc_conf_t  *klcf;

    pr = &ngx_http_kvroute_prompt;
    ngx_http_kvroute_chain_of.ctx = NULL;

    if (ngx_http_kvroute_prompt_scratch(r) != NGX_OK) {
        return NGX_ERROR;
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    conf.secret = zone->secret;
    conf.salt = ctx->salt.data;
    conf.salt_len = ctx->salt.len;
    conf.path = r->uri.data;
    conf.path_len = r->uri.len;
    conf.no_prefill = !kvr_endpoint_computes(ctx->endpoint);
    conf.digests = ngx_http_kvroute_digests;
    conf.max_digests = ngx_http_kvroute_max_digests;
    conf.chain = ngx_http_kvroute_chain;
    conf.max_chain = ngx_http_kvroute_max_chain;
    conf.names = klcf->names;

    rc = ngx_http_kvroute_body_read(r, pr, &conf);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kvroute prompt: rc %i shape %d bytes %uL entries %uD",
                   rc, pr->shape, pr->bytes, pr->n);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_kvroute_chain_of.ctx = ctx;
    ngx_http_kvroute_chain_of.zone = zone;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_prompt_scratch(ngx_http_request_t *r)
{
    size_t      n, size;
    ngx_log_t  *log;

    size = ngx_http_kvroute_request_limit(r);

    /* the longest body, three short blocks, and media, which count as more */

    n = size / KVR_BLOCK + 8
        + KVR_CANON_MEDIA_MAX * (KVR_CANON_MEDIA_LEN / KVR_BLOCK + 1);

    if (n <= ngx_http_kvroute_max_digests) {
        return NGX_OK;
    }

    log = r->connection->log;

    ngx_http_kvroute_prompt_exit();

    ngx_http_kvroute_max_chain = kvr_chain_entries((uint32_t) n);

    ngx_http_kvroute_digests = ngx_alloc(n * sizeof(uint64_t), log);
    ngx_http_kvroute_chain = ngx_alloc(ngx_http_kvroute_max_chain
                                       * sizeof(uint64_t), log);

    if (ngx_http_kvroute_digests == NULL
        || ngx_http_kvroute_chain == NULL
        || ngx_http_kvroute_body_scratch(size, log) != NGX_OK)
    {
        ngx_http_kvroute_prompt_exit();
        return NGX_ERROR;
    }

    ngx_http_kvroute_max_digests = n;

    return NGX_OK;
}


void
ngx_http_kvroute_prompt_exit(void)
{
    free(ngx_http_kvroute_digests);
    free(ngx_http_kvroute_chain);

    ngx_http_kvroute_body_exit();

    ngx_http_kvroute_digests = NULL;
    ngx_http_kvroute_chain = NULL;

    ngx_http_kvroute_max_digests = 0;
    ngx_http_kvroute_chain_of.ctx = NULL;
}
