
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Counts requests by model, from the body, and by tenant, from
 * "kvroute_request".  The value of a tenant can be a secret, such as an API key.
 * So the status and the log show "name=" of that directive, or else digits of
 * its hash.
 */


#include "request/ngx_http_kvroute_request.h"


ngx_int_t
ngx_http_kvroute_tally_tenant(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_zone_t *zone)
{
    ngx_str_t                     value;
    ngx_http_request_t           *r;
    ngx_http_kvroute_loc_conf_t  *klcf;

    if (ctx->tenanted) {
        return ctx->tenant.len ? NGX_OK : NGX_DECLINED;
    }

    ctx->tenanted = 1;
    ngx_str_null(&ctx->tenant);

    r = ctx->request;
    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (klcf->request == NULL || klcf->request->tenant == NULL
        || ngx_http_complex_value(r, klcf->request->tenant, &value) != NGX_OK
        || value.len == 0)
    {
        return NGX_DECLINED;
    }

    ctx->tenant_hash = kvr_text_ops()->digest(zone->secret, value.data,
                                              value.len);

    if (klcf->request->name
        && ngx_http_complex_value(r, klcf->request->name, &ctx->tenant)
           == NGX_OK
        && ctx->tenant.len)
    {
        return NGX_OK;
    }

    ctx->tenant.data = ngx_pnalloc(r->pool, 8);

    if (ctx->tenant.data == NULL) {
        ngx_str_null(&ctx->tenant);
        return NGX_DECLINED;
    }

    ctx->tenant.len = ngx_sprintf(ctx->tenant.data, "%08xD",
                                  (uint32_t) ctx->tenant_hash)
                      - ctx->tenant.data;

    return NGX_OK;
}


void
ngx_http_kvroute_tally(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_zone_t *zone, uint32_t upstream,
    const kvr_tally_counts_t *counts, ngx_uint_t ok)
{
    kvr_tally_t                  *tally;
    kvr_tally_owner_t             who;
    ngx_http_kvroute_loc_conf_t  *klcf;

    tally = zone->core.registry->tally;

    who.upstream = upstream;

    who.kind = KVR_TALLY_MODEL;
    who.hash = 0;
    who.name = ctx->model.data;
    who.len = ctx->model.len;

    if (who.len) {

        /* equals the hash in the context, if that is of this zone */

        who.hash = ctx->parsed && ctx->zone == zone
                   ? ctx->model_root
                   : kvr_mix(kvr_text_ops()->digest(zone->secret, who.name,
                                                    who.len), 1);
    }

    kvr_tally_take(tally, &who, counts, ok != 0, (uint64_t) ngx_time());

    klcf = ngx_http_get_module_loc_conf(ctx->request, ngx_http_kvroute_module);

    if ((klcf->request == NULL && !ctx->tenanted)
        || ngx_http_kvroute_tally_tenant(ctx, zone) != NGX_OK)
    {
        return;
    }

    who.kind = KVR_TALLY_TENANT;
    who.hash = ctx->tenant_hash;
    who.name = ctx->tenant.data;
    who.len = ctx->tenant.len;

    kvr_tally_take(tally, &who, counts, ok != 0, (uint64_t) ngx_time());
}
