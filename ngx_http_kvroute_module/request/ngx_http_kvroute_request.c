
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What is kept of a request, and of its body: read by _body, once in a
 * location.
 *
 * Chains of hashes are not kept with requests, which may be open for minutes
 * by the thousand: they are made in this worker's scratch memory when a
 * decision is due, and made again in the rare case that one attempt has failed
 * and its insert must be taken back or a second one taught.  A copy is kept,
 * up to the first event of the response, only of those that could not be made
 * again: nginx closes the file of a body when the response begins, and does
 * not keep at all what it passes on unbuffered.  And of those that wait in the
 * queue, which are looked up again and again: 1/32 of their prompts at most.
 */


#include "ngx_http_kvroute.h"


static void ngx_http_kvroute_cleanup(void *data);
static void ngx_http_kvroute_request_disown(ngx_http_kvroute_ctx_t *ctx);
static ngx_int_t ngx_http_kvroute_request_parse(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone,
    kvr_prompt_t *pr);
static ngx_int_t ngx_http_kvroute_request_scratch(ngx_http_request_t *r);
static ngx_uint_t ngx_http_kvroute_request_passes(ngx_http_request_t *r);
static void ngx_http_kvroute_request_reply(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone,
    kvr_prompt_t *pr);
static ngx_int_t ngx_http_kvroute_request_keep(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone,
    kvr_prompt_t *pr);
static void ngx_http_kvroute_request_copy(ngx_http_request_t *r,
    ngx_str_t *dst, uint8_t *data, size_t len);


/* scratch memory of this worker: of no use after an event is handled */

static uint64_t                *ngx_http_kvroute_digests;
static size_t                   ngx_http_kvroute_max_digests;
static uint64_t                *ngx_http_kvroute_chain;
static size_t                   ngx_http_kvroute_max_chain;
static kvr_prompt_t             ngx_http_kvroute_prompt;
static kvr_documents_t         *ngx_http_kvroute_chunks;
static ngx_uint_t               ngx_http_kvroute_want_chunks;

/* whose chain it is; the context's address alone might be used again */

static ngx_http_kvroute_ctx_t  *ngx_http_kvroute_owner;
static ngx_http_kvroute_ctx_t  *ngx_http_kvroute_chunks_owner;
static ngx_http_kvroute_zone_t *ngx_http_kvroute_owner_zone;


ngx_http_kvroute_ctx_t *
ngx_http_kvroute_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t      *cln;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);

    if (ctx || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    /*
     * if module context was reset, e.g. by an internal redirect, the original
     * one can still be found by its cleanup handler
     */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_http_kvroute_cleanup) {
            ctx = cln->data;

            if (ctx->request == r) {
                ctx->moved = 1;
                ngx_http_set_ctx(r, ctx, ngx_http_kvroute_module);
                return ctx;
            }
        }
    }

    return NULL;
}


ngx_http_kvroute_ctx_t *
ngx_http_kvroute_create_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t      *cln;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_get_ctx(r);

    if (ctx) {
        return ctx;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_kvroute_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;

    ngx_memzero(ctx, sizeof(ngx_http_kvroute_ctx_t));

    ctx->request = r;

    cln->handler = ngx_http_kvroute_cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_kvroute_module);

    return ctx;
}


/* free() comes first as a rule, but not when a worker is made to quit */
static void
ngx_http_kvroute_cleanup(void *data)
{
    ngx_http_kvroute_ctx_t *ctx = data;

    if (ctx->attempt) {
        ngx_http_kvroute_attempt_end(ctx->attempt, NULL, 0);
    }

    ngx_http_kvroute_request_disown(ctx);
}


/*
 * What a location says of the body holds there only: its salt, how much is
 * read, by which path, and whether the reply is learned.  Before anything is
 * asked of the body after an internal redirect, nothing may be left of what was
 * read in the location before.  Until then variables still tell of that.
 */
void
ngx_http_kvroute_request_enter(ngx_http_kvroute_ctx_t *ctx)
{
    ngx_uint_t  i;

    if (!ctx->moved) {
        return;
    }

    ctx->moved = 0;

    /* it may still have to take its insert back */

    if (ctx->attempt) {
        ngx_http_kvroute_attempt_end(ctx->attempt, NULL, 0);
    }

    ngx_http_kvroute_request_disown(ctx);
    ngx_http_kvroute_queue_forget(ctx);

    ctx->salted = 0;
    ctx->read = 0;
    ctx->parsed = 0;
    ctx->skips = 0;
    ctx->odd = 0;
    ctx->passing = 0;
    ctx->prioritized = 0;

    ctx->bytes = 0;
    ctx->extra = 0;
    ctx->entries = 0;
    ctx->output = 0;
    ctx->reply = NULL;

    ngx_str_null(&ctx->salt);
    ngx_str_null(&ctx->model);
    ngx_str_null(&ctx->session);

    for (i = 0; i < KVR_PROMPT_FIELDS; i++) {
        ngx_str_null(&ctx->hint[i]);
    }
}


/* what was made of its body is nobody's any more */
static void
ngx_http_kvroute_request_disown(ngx_http_kvroute_ctx_t *ctx)
{
    ngx_http_kvroute_request_firm(ctx);

    if (ngx_http_kvroute_owner == ctx) {
        ngx_http_kvroute_owner = NULL;
    }

    if (ngx_http_kvroute_chunks_owner == ctx) {
        ngx_http_kvroute_chunks_owner = NULL;
    }
}


/* reads the body, once in a location, as far as it is there */
void
ngx_http_kvroute_request_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    ngx_uint_t     i;
    kvr_prompt_t  *pr;

    if (ctx->read) {
        return;
    }

    ctx->read = 1;

    (void) ngx_http_kvroute_weigh(r, ctx);

    pr = &ngx_http_kvroute_prompt;

    if (!ngx_http_kvroute_body_readable(r)
        || ngx_http_kvroute_request_salt(r, ctx) != NGX_OK
        || ngx_http_kvroute_request_parse(r, ctx, zone, pr) != NGX_OK)
    {
        return;
    }

    ngx_http_kvroute_request_copy(r, &ctx->model, pr->model, pr->model_len);

    for (i = 0; i < KVR_PROMPT_FIELDS; i++) {
        ngx_http_kvroute_request_copy(r, &ctx->hint[i], pr->field[i].data,
                                      pr->field[i].len);
    }

    ctx->prioritized = pr->priority_set;
    ctx->priority = (int32_t) ngx_max(ngx_min(pr->priority, INT32_MAX),
                                      -INT32_MAX);

    if (ctx->light || pr->shape == KVR_PROMPT_NONE) {
        return;
    }

    ctx->parsed = 1;
    ctx->bytes = pr->bytes;
    ctx->extra = pr->extra;
    ctx->skips = pr->skips;
    ctx->odd = pr->odd;
    ctx->output = (uint32_t) ngx_min(pr->max_tokens, NGX_MAX_UINT32_VALUE);

    if (ngx_http_kvroute_request_keep(r, ctx, zone, pr) != NGX_OK) {
        ctx->parsed = 0;
    }
}


/* takes over the chain that was just made for a zone */
static ngx_int_t
ngx_http_kvroute_request_keep(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone,
    kvr_prompt_t *pr)
{
    ngx_http_kvroute_request_firm(ctx);

    if (ctx->zone != zone && ngx_http_kvroute_chunks_owner == ctx) {
        ngx_http_kvroute_chunks_owner = NULL;
    }

    ctx->zone = zone;
    ctx->units = pr->blocks / (uint32_t) zone->unit;
    ctx->entries = pr->n;

    /* without the salt: what a server has loaded it has for all tenants */

    ctx->model_root = kvr_mix(pr->model_hash, 1);

    ctx->hash = pr->n ? ngx_http_kvroute_chain[pr->n - 1] : pr->root;

    ngx_http_kvroute_request_reply(r, ctx, zone, pr);

    ctx->passing = ngx_http_kvroute_request_passes(r);

    if (pr->n == 0 || !ctx->passing) {
        return NGX_OK;
    }

    ctx->chain = ngx_alloc(pr->n * sizeof(uint64_t), r->connection->log);

    if (ctx->chain == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(ctx->chain, ngx_http_kvroute_chain, pr->n * sizeof(uint64_t));

    return NGX_OK;
}


/* keeps where the prompt ended, for its reply to be learned */
static void
ngx_http_kvroute_request_reply(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone,
    kvr_prompt_t *pr)
{
    ngx_http_kvroute_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (!klcf->learn_reply || !pr->tailed) {
        return;
    }

    ctx->reply = ngx_palloc(r->pool, sizeof(kvr_reply_t));

    if (ctx->reply == NULL) {
        return;
    }

    if (kvr_reply_init(ctx->reply, pr, zone->sh->secret, (unsigned) zone->unit,
                       ctx->endpoint == KVR_ENDPOINT_MESSAGES)
        != KVR_OK)
    {
        ctx->reply = NULL;
    }
}


static void
ngx_http_kvroute_request_copy(ngx_http_request_t *r, ngx_str_t *dst,
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


/* whether the body will be gone before the request is */
static ngx_uint_t
ngx_http_kvroute_request_passes(ngx_http_request_t *r)
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


/* the prompt is computed: nobody will ask for its chain any more */
void
ngx_http_kvroute_request_firm(ngx_http_kvroute_ctx_t *ctx)
{
    if (ctx->chain) {
        ngx_free(ctx->chain);
        ctx->chain = NULL;

        if (ctx->passing) {
            ctx->entries = 0;
        }
    }
}


/* the chain of a request that was read: still there, or made again */
uint64_t *
ngx_http_kvroute_request_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    kvr_prompt_t  *pr;

    if (ctx->chain && ctx->zone == zone) {
        return ctx->chain;
    }

    if (ngx_http_kvroute_owner != ctx || ngx_http_kvroute_owner_zone != zone) {

        pr = &ngx_http_kvroute_prompt;

        /* what was passed on unbuffered is gone */

        if (!ctx->parsed
            || r->request_body_no_buffering
            || ngx_http_kvroute_request_parse(r, ctx, zone, pr) != NGX_OK)
        {
            return NULL;
        }

        /* another zone has other units and hashes */

        if (ngx_http_kvroute_request_keep(r, ctx, zone, pr) != NGX_OK) {
            return NULL;
        }
    }

    return ngx_http_kvroute_chain;
}


/*
 * The chunks of a request that was read, after a second reading: they are for
 * the few upstreams whose prompts are made up of shared documents.
 */
kvr_documents_t *
ngx_http_kvroute_request_chunks(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    kvr_documents_t  *chunks;

    if (ngx_http_kvroute_chunks_owner == ctx) {
        return ngx_http_kvroute_chunks;
    }

    /* what is passed on unbuffered may be gone */

    if (!ctx->parsed || r->request_body_no_buffering) {
        return NULL;
    }

    if (ngx_http_kvroute_chunks == NULL) {
        ngx_http_kvroute_chunks = ngx_alloc(sizeof(kvr_documents_t),
                                            r->connection->log);
        if (ngx_http_kvroute_chunks == NULL) {
            return NULL;
        }
    }

    chunks = ngx_http_kvroute_chunks;
    ngx_http_kvroute_want_chunks = 1;

    if (ngx_http_kvroute_request_parse(r, ctx, zone, &ngx_http_kvroute_prompt)
        != NGX_OK)
    {
        chunks = NULL;
    }

    ngx_http_kvroute_want_chunks = 0;
    ngx_http_kvroute_chunks_owner = chunks ? ctx : NULL;

    return chunks;
}


/* tenants are kept apart by it; evaluated once in a location */
ngx_int_t
ngx_http_kvroute_request_salt(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx)
{
    ngx_http_kvroute_loc_conf_t  *klcf;

    if (ctx->salted) {
        return NGX_OK;
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (klcf->salt
        && ngx_http_complex_value(r, klcf->salt, &ctx->salt) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx->salted = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_request_parse(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone,
    kvr_prompt_t *pr)
{
    ngx_int_t          rc;
    kvr_prompt_conf_t  conf;

    ngx_http_kvroute_owner = NULL;

    if (ngx_http_kvroute_request_scratch(r) != NGX_OK) {
        return NGX_ERROR;
    }

    conf.secret = zone->sh->secret;
    conf.salt = ctx->salt.data;
    conf.salt_len = ctx->salt.len;
    conf.path = r->uri.data;
    conf.path_len = r->uri.len;
    conf.light = !kvr_endpoint_computes(ctx->endpoint);
    conf.unit = (unsigned) zone->unit;
    conf.digests = ngx_http_kvroute_digests;
    conf.max_digests = ngx_http_kvroute_max_digests;
    conf.chain = ngx_http_kvroute_chain;
    conf.max_chain = ngx_http_kvroute_max_chain;
    conf.chunks = ngx_http_kvroute_want_chunks ? ngx_http_kvroute_chunks : NULL;

    rc = ngx_http_kvroute_body_read(r, pr, &conf);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kvroute prompt: rc %i shape %d bytes %uL entries %uD",
                   rc, pr->shape, pr->bytes, pr->n);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_kvroute_owner = ctx;
    ngx_http_kvroute_owner_zone = zone;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_request_scratch(ngx_http_request_t *r)
{
    size_t                         n;
    ngx_log_t                     *log;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    /* the longest body, three short blocks, and media that weigh more */

    n = kmcf->max_body / KVR_BLOCK + 8
        + KVR_CANON_MEDIA_MAX * (KVR_CANON_MEDIA_LEN / KVR_BLOCK + 1);

    if (n <= ngx_http_kvroute_max_digests) {
        return NGX_OK;
    }

    log = r->connection->log;

    ngx_http_kvroute_request_exit();

    ngx_http_kvroute_max_chain = kvr_chain_entries((uint32_t) n);

    ngx_http_kvroute_digests = ngx_alloc(n * sizeof(uint64_t), log);
    ngx_http_kvroute_chain = ngx_alloc(ngx_http_kvroute_max_chain
                                       * sizeof(uint64_t), log);

    if (ngx_http_kvroute_digests == NULL
        || ngx_http_kvroute_chain == NULL
        || ngx_http_kvroute_body_scratch(kmcf->max_body, log) != NGX_OK)
    {
        ngx_http_kvroute_request_exit();
        return NGX_ERROR;
    }

    ngx_http_kvroute_max_digests = n;

    return NGX_OK;
}


/* gives the scratch memory back */
void
ngx_http_kvroute_request_exit(void)
{
    free(ngx_http_kvroute_digests);
    free(ngx_http_kvroute_chain);
    free(ngx_http_kvroute_chunks);

    ngx_http_kvroute_body_exit();

    ngx_http_kvroute_chunks = NULL;
    ngx_http_kvroute_chunks_owner = NULL;
    ngx_http_kvroute_digests = NULL;
    ngx_http_kvroute_chain = NULL;

    ngx_http_kvroute_max_digests = 0;
    ngx_http_kvroute_owner = NULL;
}
