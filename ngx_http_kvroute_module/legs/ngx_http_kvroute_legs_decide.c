
/*
 * Copyright (C) kvroute contributors
 */


/* Whether a request has two legs, by itself and by what servers are doing. */


#include "legs/ngx_http_kvroute_legs_int.h"


static ngx_int_t ngx_http_kvroute_legs_decide_cost(
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_reserve_t *reserved, double *cost);


kvr_disaggregate_e
ngx_http_kvroute_legs_decide_kind(ngx_http_kvroute_ctx_t *ctx,
    const kvr_connector_t *connector, kvr_disaggregate_t *d)
{
    kvr_disaggregate_e  e;

    if (!connector->alone) {
        return KVR_DISAGGREGATE_YES;
    }

    if (!ctx->parsed || ctx->light) {
        return KVR_DISAGGREGATE_UNREAD;
    }

    e = kvr_disaggregate_worth(d);

    if (e != KVR_DISAGGREGATE_YES) {
        return e;
    }

    if (ctx->joint || ctx->skips
        || !kvr_connector_serves(connector, ctx->uri.data, ctx->uri.len))
    {
        return KVR_DISAGGREGATE_KIND;
    }

    return KVR_DISAGGREGATE_YES;
}


kvr_disaggregate_e
ngx_http_kvroute_legs_decide(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx, kvr_disaggregate_t *d)
{
    double                        plain, first, second;
    kvr_disaggregate_e            e;
    ngx_http_kvroute_lookup_t    *l;
    ngx_http_kvroute_srv_conf_t  *prefill;

    l = ngx_http_kvroute_lookup(ctx, legs->decode, 1);
    d->held = l ? l->best * legs->decode->zone->core.unit : 0;

    e = kvr_disaggregate_worth(d);

    if (e != KVR_DISAGGREGATE_YES) {
        return e;
    }

    plain = 0;
    second = 0;

    prefill = ngx_http_conf_upstream_srv_conf(legs->conf->upstream,
                                              ngx_http_kvroute_module);

    if (!d->always
        && ngx_http_kvroute_legs_decide_cost(ctx, legs->decode, &ctx->reserved,
                                      &plain)
           != NGX_OK)
    {
        /* nginx has to say what to do */

        return KVR_DISAGGREGATE_NOBODY;
    }

    d->streams = ctx->streams;

    if (ngx_http_kvroute_legs_decide_cost(ctx, prefill, &legs->prefill, &first)
        != NGX_OK)
    {
        e = KVR_DISAGGREGATE_NOBODY;
        goto plain;
    }

    legs->peer = ctx->peer;

    ctx->leg = &legs->leg[1];

    if (ngx_http_kvroute_legs_decide_cost(ctx, legs->decode, &ctx->reserved, &second)
        == NGX_OK)
    {
        e = kvr_disaggregate(d, plain, first, second);

    } else {
        e = KVR_DISAGGREGATE_NOBODY;
    }

plain:

    if (e == KVR_DISAGGREGATE_YES
        && !kvr_connector(legs->conf->connector)->legs)
    {
        return e;
    }

    /* leg 1 is counted when it goes there, in this event */

    ngx_http_kvroute_reserve_release(&legs->prefill);

    if (e != KVR_DISAGGREGATE_YES) {
        ctx->leg = NULL;
        ngx_str_null(&legs->peer);
        (void) ngx_http_kvroute_legs_decide_cost(ctx, legs->decode, &ctx->reserved,
                                          &plain);
    }

    return e;
}


kvr_disaggregate_e
ngx_http_kvroute_legs_decide_must(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx)
{
    double                        cost;
    ngx_int_t                     rc;
    ngx_http_kvroute_srv_conf_t  *prefill;

    if (ctx->extra || ctx->sampled
        || !kvr_connector_serves(kvr_connector(legs->conf->connector),
                                 ctx->uri.data, ctx->uri.len))
    {
        return KVR_DISAGGREGATE_KIND;
    }

    prefill = ngx_http_conf_upstream_srv_conf(legs->conf->upstream,
                                              ngx_http_kvroute_module);

    rc = ngx_http_kvroute_legs_decide_cost(ctx, prefill, &legs->prefill, &cost);

    ngx_http_kvroute_reserve_release(&legs->prefill);

    if (rc != NGX_OK) {
        return KVR_DISAGGREGATE_NOBODY;
    }

    ctx->leg = &legs->leg[1];

    (void) ngx_http_kvroute_legs_decide_cost(ctx, legs->decode, &ctx->reserved, &cost);

    return KVR_DISAGGREGATE_YES;
}


static ngx_int_t
ngx_http_kvroute_legs_decide_cost(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_reserve_t *reserved,
    double *cost)
{
    ngx_int_t  rc;

    rc = ngx_http_kvroute_early(ctx, conf, reserved);

    *cost = ctx->cost;

    return rc;
}
