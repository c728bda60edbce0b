
/*
 * Copyright (C) kvroute contributors
 */


/* Decides whether a request gets two legs. */


#include "legs/ngx_http_kvroute_legs_int.h"
#include "zone/ngx_http_kvroute_zone.h"


static kvr_disaggregate_e ngx_http_kvroute_legs_decide_cost(
    ngx_http_kvroute_legs_t *legs, ngx_http_kvroute_ctx_t *ctx,
    kvr_disaggregate_t *d);
static uint32_t ngx_http_kvroute_legs_decide_at(
    ngx_http_kvroute_reserve_t *reserved, kvr_disaggregate_t *d,
    kvr_disaggregate_at_t *at);


kvr_disaggregate_e
ngx_http_kvroute_legs_decide_kind(ngx_http_kvroute_ctx_t *ctx,
    const kvr_connector_t *connector, kvr_disaggregate_t *d)
{
    kvr_disaggregate_e  e;

    if (!connector->alone) {
        return KVR_DISAGGREGATE_YES;
    }

    if (!ctx->parsed || ctx->no_prefill) {
        return KVR_DISAGGREGATE_UNREAD;
    }

    e = kvr_disaggregate_worth(d);

    if (e != KVR_DISAGGREGATE_YES) {
        return e;
    }

    if (ctx->one_engine || ctx->skips
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
    kvr_disaggregate_e          e;
    ngx_http_kvroute_lookup_t  *l;

    l = ngx_http_kvroute_lookup(ctx, legs->decode, 1);
    d->held = l ? (uint64_t) l->best * KVR_BLOCK : 0;

    e = kvr_disaggregate_worth(d);

    if (e != KVR_DISAGGREGATE_YES) {
        return e;
    }

    e = ngx_http_kvroute_legs_decide_cost(legs, ctx, d);

    if (e == KVR_DISAGGREGATE_YES) {
        legs->leg[KVR_LEG_DECODE].transfer = d->transfer;
        ctx->leg = &legs->leg[KVR_LEG_DECODE];

        if (ngx_http_kvroute_early(ctx, legs->decode, &ctx->reserved)
            != NGX_OK)
        {
            e = KVR_DISAGGREGATE_NOBODY;
        }
    }

    if (e != KVR_DISAGGREGATE_YES) {
        ctx->leg = NULL;
        ngx_str_null(&legs->peer);
    }

    /* the prefill leg is counted when it is sent, unless a sidecar sends it */

    if (e != KVR_DISAGGREGATE_YES
        || legs->connector->plan[0] != KVR_LEG_DECODE)
    {
        ngx_http_kvroute_reserve_release(&legs->reserved);
    }

    return e;
}


/*
 * Chooses a prefill server, then a decode server for the client's own
 * request.  So the reservation and the variables are those of that request,
 * unless it gets two legs.
 */
static kvr_disaggregate_e
ngx_http_kvroute_legs_decide_cost(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx, kvr_disaggregate_t *d)
{
    ngx_int_t        rc;
    kvr_demand_t     none;
    kvr_upstream_t  *upstream;

    rc = ngx_http_kvroute_early(ctx, legs->prefill, &legs->reserved);

    if (rc == NGX_OK) {
        legs->peer = ctx->peer;
        d->prefills = ngx_http_kvroute_legs_decide_at(&legs->reserved, d,
                                                      &d->prefill);
    }

    if (rc != NGX_OK || !d->always) {

        /* without a decode server nginx decides */

        if (ngx_http_kvroute_early(ctx, legs->decode, &ctx->reserved) != NGX_OK
            || rc != NGX_OK)
        {
            return KVR_DISAGGREGATE_NOBODY;
        }

        d->streams = ctx->streams;
        d->decodes = ngx_http_kvroute_legs_decide_at(&ctx->reserved, d,
                                                     &d->plain);
    }

    d->transfer = kvr_disaggregate_transfer(d->transfer, legs->conf->link,
                                            d->rate);

    /* an upstream without a slot in the zone has no history */

    none = 0;
    upstream = ngx_http_kvroute_zone_upstream(legs->prefill);

    return kvr_disaggregate(d, upstream ? &upstream->demand : &none,
                            (uint64_t) ngx_current_msec);
}


/* sets the work of a reserved server; returns the number of servers */
static uint32_t
ngx_http_kvroute_legs_decide_at(ngx_http_kvroute_reserve_t *reserved,
    kvr_disaggregate_t *d, kvr_disaggregate_at_t *at)
{
    kvr_begin_t  *begin;

    begin = &reserved->attempt->early->begin;

    at->lacks = begin->pending;
    at->ahead = begin->pending;

    /* the reservation is included */

    if (begin->peer != KVR_REGISTRY_NONE) {
        at->ahead = kvr_load_get(reserved->conf->zone->core.load, begin->peer)
                    .pending;
    }

    d->rate = ngx_max(d->rate, begin->rate);

    return (uint32_t) reserved->attempt->rrp.peers->number;
}


kvr_disaggregate_e
ngx_http_kvroute_legs_decide_must(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (ctx->extra || ctx->sampled
        || !kvr_connector_serves(legs->connector, ctx->uri.data, ctx->uri.len))
    {
        return KVR_DISAGGREGATE_KIND;
    }

    ctx->leg = &legs->leg[KVR_LEG_PREFILL];

    rc = ngx_http_kvroute_early(ctx, legs->prefill, &legs->reserved);

    ctx->leg = NULL;

    ngx_http_kvroute_reserve_release(&legs->reserved);

    if (rc != NGX_OK) {
        return KVR_DISAGGREGATE_NOBODY;
    }

    legs->leg[KVR_LEG_DECODE].transfer = legs->conf->transfer;
    ctx->leg = &legs->leg[KVR_LEG_DECODE];

    (void) ngx_http_kvroute_early(ctx, legs->decode, &ctx->reserved);

    return KVR_DISAGGREGATE_YES;
}
