
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The context of a request, which survives internal redirects.
 */


#include "request/ngx_http_kvroute_request_int.h"
#include "core/route/kvr_route.h"


static void ngx_http_kvroute_request_cleanup(void *data);


ngx_http_kvroute_ctx_t *
ngx_http_kvroute_request_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t      *cln;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);

    if (ctx || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    /* an internal redirect resets contexts: find it by its cleanup handler */

    cln = r->pool->cleanup;

    do {
        ctx = ngx_http_kvroute_request_next(&cln);
    } while (ctx && ctx->request != r);

    if (ctx) {
        ctx->moved = 1;
        ngx_http_set_ctx(r, ctx, ngx_http_kvroute_module);
    }

    return ctx;
}


ngx_http_kvroute_ctx_t *
ngx_http_kvroute_request_next(ngx_pool_cleanup_t **cln)
{
    ngx_http_kvroute_ctx_t  *ctx;

    for (ctx = NULL; *cln && ctx == NULL; *cln = (*cln)->next) {
        if ((*cln)->handler == ngx_http_kvroute_request_cleanup) {
            ctx = (*cln)->data;
        }
    }

    return ctx;
}


ngx_int_t
ngx_http_kvroute_request_park(ngx_http_request_t *r)
{
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    r->write_event_handler = ngx_http_request_empty_handler;

    /* detect that the client closes the connection */

    if (r->post_action) {
        r->read_event_handler = ngx_http_block_reading;

    } else {
        r->read_event_handler = ngx_http_test_reading;

        if (r->connection->read->ready && !r->connection->read->posted) {
            ngx_post_event(r->connection->read, &ngx_posted_events);
        }
    }

    return NGX_OK;
}


void
ngx_http_kvroute_request_resume(ngx_http_request_t *r)
{
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
}


ngx_int_t
ngx_http_kvroute_request_phase(ngx_conf_t *cf, ngx_http_handler_pt handler)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = handler;

    return NGX_OK;
}


ngx_http_kvroute_ctx_t *
ngx_http_kvroute_request_create_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t      *cln;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

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

    cln->handler = ngx_http_kvroute_request_cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_kvroute_module);

    return ctx;
}


/* Ends the attempt, which nginx does not do when a worker quits. */
static void
ngx_http_kvroute_request_cleanup(void *data)
{
    ngx_http_kvroute_ctx_t *ctx = data;

    if (ctx->attempt) {
        ctx->end(ctx->attempt);
    }

    ngx_http_kvroute_reserve_release(&ctx->reserved);
    ngx_http_kvroute_prompt_disown(ctx);

    ngx_free(ctx->lookup);
    ngx_free(ctx->reply);
}


/*
 * The salt, the size limit and the path depend on the location.  So after an
 * internal redirect everything read from the body is cleared, as late as
 * possible: until then variables have the old values.
 */
void
ngx_http_kvroute_request_enter(ngx_http_kvroute_ctx_t *ctx)
{
    ngx_uint_t  i;

    if (!ctx->moved) {
        return;
    }

    ctx->moved = 0;

    /* it may have to undo its insert, with the old chain */

    if (ctx->attempt) {
        ctx->end(ctx->attempt);
    }

    ngx_http_kvroute_prompt_disown(ctx);

    if (ctx->lookup) {
        ctx->lookup->conf = NULL;
    }

    ctx->salted = 0;
    ctx->tenanted = 0;
    ctx->read = 0;
    ctx->parsed = 0;
    ctx->skips = 0;
    ctx->unsized = 0;
    ctx->sampled = 0;
    ctx->one_engine = 0;
    ctx->stream = 0;
    ctx->clean = 0;
    ctx->passing = 0;
    ctx->prioritized = 0;
    ctx->early = 0;

    ctx->bytes = 0;
    ctx->extra = 0;
    ctx->entries = 0;
    ctx->output = 0;

    ngx_free(ctx->reply);
    ctx->reply = NULL;

    ngx_str_null(&ctx->salt);
    ngx_str_null(&ctx->model);
    ngx_str_null(&ctx->session);
    ngx_str_null(&ctx->tenant);

    for (i = 0; i < KVR_PROMPT_FIELDS; i++) {
        ngx_str_null(&ctx->hint[i]);
    }
}


ngx_uint_t
ngx_http_kvroute_request_weigh(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx)
{
    ngx_uint_t  body;

    body = r->request_body
           && r->headers_in.content_length_n != 0
           && (r->request_body->bufs || r->reading_body);

    if (ctx->uri.data != r->uri.data || ctx->uri.len != r->uri.len) {
        ctx->uri = r->uri;
        ctx->endpoint = kvr_endpoint(r->uri.data, r->uri.len);
    }

    ctx->no_prefill = !body || !kvr_endpoint_computes(ctx->endpoint);

    if (ctx->no_prefill) {
        ctx->parsed = 0;
        ctx->bytes = 0;
        ctx->extra = 0;

    } else if (!ctx->parsed) {

        /* an unread body counts by its length */

        ctx->bytes = ngx_max(r->headers_in.content_length_n, 0);
    }

    return body;
}


void
ngx_http_kvroute_request_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone)
{
    if (ctx->read) {
        return;
    }

    ctx->read = 1;

    (void) ngx_http_kvroute_request_weigh(r, ctx);

    if (ngx_http_kvroute_request_readable(r) == NGX_OK
        && ngx_http_kvroute_request_salt(r, ctx) == NGX_OK)
    {
        ngx_http_kvroute_prompt_read(r, ctx, zone);
    }
}


uint64_t
ngx_http_kvroute_request_resident(ngx_http_kvroute_ctx_t *ctx)
{
    return ctx->no_prefill ? 0 : kvr_attempt_resident(ctx->bytes, ctx->output);
}


ngx_http_kvroute_policy_t *
ngx_http_kvroute_request_policy(ngx_http_request_t *r,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t *bypass)
{
    ngx_http_kvroute_policy_t    *policy;
    ngx_http_kvroute_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    policy = klcf->policy ? klcf->policy : &conf->policy;

    *bypass = (policy->kind == KVR_POLICY_OFF);

    return policy;
}


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


ngx_uint_t
ngx_http_kvroute_request_close(ngx_http_request_t *r)
{
    if (r->upstream == NULL || r->upstream->cleanup == NULL) {
        return 0;
    }

    r->main->count++;
    (*r->upstream->cleanup)(r);

    return 1;
}
