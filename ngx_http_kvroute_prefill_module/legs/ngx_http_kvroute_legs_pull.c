
/*
 * Copyright (C) kvroute contributors
 */


/*
 * connector=pull: the client's request goes to one server, which fetches the
 * part of the prompt that it lacks from another one.
 *
 * The request is decided early, with candidates that can fetch.  Then the body
 * gets a member that names the source.  If nginx asks for another server
 * later, the member is blanked: that server could be the source itself, or the
 * source could have exited, and an engine waits for a source that does not
 * answer.
 */


#include "legs/ngx_http_kvroute_legs_int.h"
#include "zone/ngx_http_kvroute_zone.h"


static uint32_t ngx_http_kvroute_legs_pull_price(ngx_http_kvroute_leg_t *leg,
    kvr_candidate_t *cand, uint32_t n, uint64_t bytes, uint32_t rate);
static ngx_int_t ngx_http_kvroute_legs_pull_body(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx);
static void ngx_http_kvroute_legs_pull_end(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);


kvr_disaggregate_e
ngx_http_kvroute_legs_pull(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx)
{
    kvr_disaggregate_e          e;
    ngx_http_kvroute_leg_t     *leg;
    ngx_http_kvroute_lookup_t  *l;

    l = ngx_http_kvroute_lookup(ctx, legs->decode, 1);

    /* usually no server has that much cached */

    if (l == NULL || (uint64_t) l->best * KVR_BLOCK < legs->conf->min)
    {
        return KVR_DISAGGREGATE_SHORT;
    }

    leg = &legs->leg[KVR_LEG_DECODE];

    leg->wanted.data = ngx_pnalloc(legs->request->pool, NGX_SOCKADDR_STRLEN);
    if (leg->wanted.data == NULL) {
        return KVR_DISAGGREGATE_FAILED;
    }

    leg->price = ngx_http_kvroute_legs_pull_price;
    leg->end = ngx_http_kvroute_legs_pull_end;

    legs->pull.min = kvr_max(legs->conf->min, 1);

    ctx->leg = leg;

    e = ngx_http_kvroute_early(ctx, legs->decode, &ctx->reserved) != NGX_OK
        ? KVR_DISAGGREGATE_NOBODY
        : legs->pull.source == KVR_PULL_NONE
        ? KVR_DISAGGREGATE_SHORT
        : ctx->reserved.attempt->early->begin.matched + legs->pull.min
          > legs->pull.held
        ? KVR_DISAGGREGATE_CACHED
        : KVR_DISAGGREGATE_YES;

    /* its siblings make a copy worth its place before the first token */

    if (e == KVR_DISAGGREGATE_YES || e == KVR_DISAGGREGATE_CACHED) {
        kvr_candidate_count(&legs->decode->zone->core, &l->keys,
                          ctx->reserved.attempt->early->begin.peer,
                          (uint64_t) ngx_current_msec);
    }

    if (e == KVR_DISAGGREGATE_YES
        && ngx_http_kvroute_legs_pull_body(legs, ctx) != NGX_OK)
    {
        /* the prompt must be computed, so the server is chosen for that */

        e = KVR_DISAGGREGATE_UNREAD;
        ctx->leg = NULL;

        (void) ngx_http_kvroute_early(ctx, legs->decode, &ctx->reserved);
    }

    if (e != KVR_DISAGGREGATE_YES) {
        ctx->leg = NULL;
    }

    return e;
}


static uint32_t
ngx_http_kvroute_legs_pull_price(ngx_http_kvroute_leg_t *leg,
    kvr_candidate_t *cand, uint32_t n, uint64_t bytes, uint32_t rate)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = leg->legs;

    if (legs->member) {
        ngx_http_kvroute_legs_plain(legs, KVR_DISAGGREGATE_RETRIED);
        return n;
    }

    legs->pull.transfer = kvr_disaggregate_transfer(legs->conf->transfer,
                                                    legs->conf->link, rate);
    kvr_pull(&legs->pull, cand, n);

    return legs->pull.source;
}


static ngx_int_t
ngx_http_kvroute_legs_pull_body(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx)
{
    off_t                    length;
    size_t                   len;
    u_char                  *text;
    ngx_chain_t             *bufs;
    kvr_meeting_t            meeting;
    ngx_http_kvroute_leg_t  *leg;

    leg = &legs->leg[KVR_LEG_DECODE];

    if (ngx_http_kvroute_legs_find(legs) != NGX_OK
        || ngx_http_kvroute_legs_meeting(legs, &leg->wanted, &meeting)
           != NGX_OK)
    {
        return NGX_DECLINED;
    }

    meeting.port += leg->rank;

    text = ngx_pnalloc(legs->request->pool,
                       KVR_CONNECTOR_LEN + 2 * leg->wanted.len);
    if (text == NULL) {
        return NGX_ERROR;
    }

    len = legs->connector->pull(ctx->endpoint, &meeting, KVR_LEG_DECODE,
                                legs->members != 0, (char *) text);

    bufs = ngx_http_kvroute_legs_append(legs, text, len, &length);
    if (bufs == NULL) {
        return NGX_ERROR;
    }

    legs->member = text;
    legs->member_len = len - 1;
    legs->peer = leg->wanted;

    ngx_http_kvroute_legs_send(legs, bufs, length);

    return NGX_OK;
}


/* an engine that waits for a wrong address sends nothing */
static void
ngx_http_kvroute_legs_pull_end(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r)
{
    ngx_http_kvroute_legs_t  *legs;

    static time_t  warned;

    legs = leg->legs;

    if (legs->decode_state != NGX_HTTP_KVROUTE_DECODE_SENT
        || r->upstream->headers_in.status_n >= NGX_HTTP_SPECIAL_RESPONSE
        || !ngx_http_kvroute_timer_minute(&warned))
    {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "kvroute_prefill: no token came from a server that was to "
                  "fetch its cache from %V, port %ui: is this the port of its "
                  "P2P tier?", &leg->wanted,
                  (ngx_uint_t) legs->conf->bootstrap_port + leg->rank);
}
