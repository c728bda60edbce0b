
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Prefill and decode by two servers, in the phase before the content's.
 *
 *     the body is read; members that no client may send are cut
 *     a place at a decode server is reserved, and the costs are compared
 *     leg 1 runs, as a subrequest; nothing else is waited for from here on
 *     leg 2 is the request itself, with what leg 1's answer has told
 *
 * A descriptor is good for one server and for seconds.  Once a decode server
 * may have seen it, or its lease is half over, it is blanked: a further try
 * sends the client's own request, which that server can serve alone.
 *
 * Nobody but the decode upstream sees the descriptor (_legs_second).
 */


#include "legs/ngx_http_kvroute_legs_int.h"
#include "conf/ngx_http_kvroute_conf.h"
#include "zone/ngx_http_kvroute_zone.h"


static ngx_int_t ngx_http_kvroute_legs_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_legs_begin(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_prefill_t *conf);
static ngx_http_kvroute_legs_t *ngx_http_kvroute_legs_create(
    ngx_http_request_t *r, ngx_http_kvroute_prefill_t *conf,
    ngx_http_kvroute_srv_conf_t *decode);
static ngx_int_t ngx_http_kvroute_legs_copies(
    ngx_http_kvroute_loc_conf_t *klcf, ngx_http_upstream_conf_t *of);
static ngx_int_t ngx_http_kvroute_legs_second(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx);
static kvr_disaggregate_e ngx_http_kvroute_legs_result(
    ngx_http_kvroute_legs_t *legs);
static ngx_int_t ngx_http_kvroute_legs_repeat(ngx_http_kvroute_legs_t *legs);
static void ngx_http_kvroute_legs_leave(ngx_http_kvroute_ctx_t *ctx);
static void ngx_http_kvroute_legs_heard(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_legs_before(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);
static void ngx_http_kvroute_legs_cleanup(void *data);
static void ngx_http_kvroute_legs_count(ngx_http_kvroute_srv_conf_t *decode,
    kvr_disaggregate_e outcome);


ngx_int_t
ngx_http_kvroute_legs_init(ngx_conf_t *cf)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    static ngx_str_t  body = ngx_string("request_body");
    static ngx_str_t  length = ngx_string("content_length");

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    if (!kmcf->prefills) {
        return NGX_OK;
    }

    kmcf->body = ngx_http_get_variable_index(cf, &body);
    kmcf->length = ngx_http_get_variable_index(cf, &length);

    if (kmcf->body == NGX_ERROR || kmcf->length == NGX_ERROR) {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_request_phase(cf, ngx_http_kvroute_legs_handler);
}


static ngx_int_t
ngx_http_kvroute_legs_handler(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_legs_t      *legs;
    ngx_http_kvroute_loc_conf_t  *klcf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);
    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx ? ctx->legs : NULL;

    if (legs && (legs->running || legs->ended)
        && legs->loc_conf == r->loc_conf && !ctx->moved)
    {
        return legs->running ? NGX_DONE
                             : ngx_http_kvroute_legs_second(legs, ctx);
    }

    /* an internal redirect has led here */

    if (legs) {
        ngx_http_kvroute_legs_leave(ctx);
    }

    if (ctx) {
        ctx->alone = KVR_DISAGGREGATE_NONE;
    }

    /* without a handler of its own a location has files, and no engine */

    if (klcf->prefill == NULL || r->content_handler == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_http_kvroute_inspect(r);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx == NULL || r->request_body == NULL
        || r->request_body->bufs == NULL)
    {
        return NGX_DECLINED;
    }

    rc = ctx->clean ? NGX_OK : ngx_http_kvroute_legs_clean(r);

    if (rc != NGX_OK) {
        return rc;
    }

    return r->method == NGX_HTTP_POST
           ? ngx_http_kvroute_legs_begin(r, ctx, klcf->prefill) : NGX_DECLINED;
}


static ngx_int_t
ngx_http_kvroute_legs_begin(ngx_http_request_t *r, ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_prefill_t *conf)
{
    ngx_int_t                     rc;
    ngx_uint_t                    bypass;
    kvr_disaggregate_t            d;
    const kvr_connector_t        *connector;
    ngx_http_kvroute_legs_t      *legs;
    ngx_http_kvroute_srv_conf_t  *decode;

    /* an upstream named by a variable is resolved too late for this */

    decode = ngx_http_kvroute_pass_expected(r);

    if (decode == NULL || decode->zone == NULL || decode->shadow
        || decode->upstream == conf->upstream
        || ngx_http_kvroute_pass_conf(r->loc_conf) == NULL)
    {
        return NGX_DECLINED;
    }

    connector = kvr_connector(conf->connector);

    ngx_memzero(&d, sizeof(kvr_disaggregate_t));

    d.bytes = ctx->bytes;
    d.min = conf->min;
    d.transfer = conf->transfer;
    d.always = conf->always;

    ctx->alone = ngx_http_kvroute_legs_decide_kind(ctx, connector, &d);

    if (ctx->alone != KVR_DISAGGREGATE_YES) {
        ngx_http_kvroute_legs_count(decode, ctx->alone);
        return NGX_DECLINED;
    }

    (void) ngx_http_kvroute_request_policy(r, decode, &bypass);

    if (bypass && connector->alone) {
        ctx->alone = KVR_DISAGGREGATE_NONE;
        return NGX_DECLINED;
    }

    legs = ngx_http_kvroute_legs_create(r, conf, decode);

    if (legs == NULL
        || ngx_http_kvroute_peers_current(decode, 1, r->connection->log)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->legs = legs;

    legs->outcome = connector->alone
                    ? ngx_http_kvroute_legs_decide(legs, ctx, &d)
                    : ngx_http_kvroute_legs_decide_must(legs, ctx);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kvroute legs: %s", kvr_reason_disaggregated(legs->outcome));

    if (legs->outcome == KVR_DISAGGREGATE_NOBODY && !connector->alone) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    if (legs->outcome != KVR_DISAGGREGATE_YES || !connector->legs) {
        return NGX_DECLINED;
    }

    rc = connector->meet ? ngx_http_kvroute_legs_both(legs)
                         : ngx_http_kvroute_legs_first(legs);

    if (rc == NGX_OK) {
        return NGX_DECLINED;
    }

    if (rc == NGX_DECLINED) {
        if (legs->outcome == KVR_DISAGGREGATE_YES) {
            legs->outcome = KVR_DISAGGREGATE_UNREAD;
        }

        ctx->leg = NULL;
    }

    return rc == NGX_ERROR ? NGX_HTTP_INTERNAL_SERVER_ERROR : rc;
}


static ngx_http_kvroute_legs_t *
ngx_http_kvroute_legs_create(ngx_http_request_t *r,
    ngx_http_kvroute_prefill_t *conf, ngx_http_kvroute_srv_conf_t *decode)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_kvroute_legs_t      *legs;
    ngx_http_upstream_conf_t     *of;
    ngx_http_kvroute_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    of = ngx_http_kvroute_pass_conf(r->loc_conf);

    if (klcf->leg_of != of
        && ngx_http_kvroute_legs_copies(klcf, of) != NGX_OK)
    {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_kvroute_legs_t));
    if (cln == NULL) {
        return NULL;
    }

    legs = cln->data;
    ngx_memzero(legs, sizeof(ngx_http_kvroute_legs_t));

    cln->handler = ngx_http_kvroute_legs_cleanup;

    legs->request = r;
    legs->conf = conf;
    legs->connector = kvr_connector(conf->connector);
    legs->prefill = ngx_http_conf_upstream_srv_conf(conf->upstream,
                                                    ngx_http_kvroute_module);
    legs->decode = decode;
    legs->loc_conf = r->loc_conf;
    legs->client = r->request_body;
    legs->length = r->headers_in.content_length_n;
    legs->header = r->headers_in.content_length;

    legs->leg[0].conf = klcf->leg[0];
    legs->leg[0].fixed = (legs->connector->meet != NULL);
    legs->leg[1].conf = klcf->leg[1];
    legs->leg[1].second = 1;
    legs->leg[1].first = ngx_http_kvroute_legs_heard;

    /* in a store it is for whoever comes; a sidecar sees to it itself */

    if (legs->connector->member) {
        legs->leg[1].before = ngx_http_kvroute_legs_before;
    }

    return legs;
}


/*
 * What nginx's configuration of a location is for a leg.  One copy serves all
 * requests: since 1.29.7 kept connections are found by its address.
 */
static ngx_int_t
ngx_http_kvroute_legs_copies(ngx_http_kvroute_loc_conf_t *klcf,
    ngx_http_upstream_conf_t *of)
{
    ngx_uint_t                   i;
    ngx_http_upstream_conf_t    *first;
    ngx_http_kvroute_prefill_t  *conf;

    for (i = 0; i < 2; i++) {
        klcf->leg[i] = ngx_palloc(ngx_cycle->pool,
                                  sizeof(ngx_http_upstream_conf_t));
        if (klcf->leg[i] == NULL) {
            return NGX_ERROR;
        }

        *klcf->leg[i] = *of;
    }

    klcf->leg_of = of;

    conf = klcf->prefill;
    first = klcf->leg[0];

    first->next_upstream = NGX_CONF_BITMASK_SET
                           |NGX_HTTP_UPSTREAM_FT_ERROR
                           |NGX_HTTP_UPSTREAM_FT_TIMEOUT
                           |NGX_HTTP_UPSTREAM_FT_INVALID_HEADER
                           |NGX_HTTP_UPSTREAM_FT_HTTP_500
                           |NGX_HTTP_UPSTREAM_FT_HTTP_502
                           |NGX_HTTP_UPSTREAM_FT_HTTP_503
                           |NGX_HTTP_UPSTREAM_FT_HTTP_504
                           |NGX_HTTP_UPSTREAM_FT_HTTP_429
                           |NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT;
    first->next_upstream_tries = conf->tries;
    first->next_upstream_timeout = conf->timeout;
    first->read_timeout = conf->timeout;
    first->intercept_errors = 0;

    /* nor does its answer lead anywhere else */

    first->ignore_headers = ~(ngx_uint_t) 0;
    first->max_temp_file_size = 0;

    if (kvr_connector(conf->connector)->meet) {

        /* the bodies name the server: another one is another pair */

        first->next_upstream = 0;
    }

    klcf->leg[1]->connect_timeout = ngx_min(of->connect_timeout,
                                            conf->lease / 2);

    return NGX_OK;
}


/* leg 1 has ended: leg 2, or the client's own request */
static ngx_int_t
ngx_http_kvroute_legs_second(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx)
{
    legs->ended = 0;

    if (ngx_http_kvroute_legs_restore(legs) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_kvroute_legs_forget(legs->request);

    legs->outcome = ngx_http_kvroute_legs_result(legs);

    if (legs->outcome == KVR_DISAGGREGATE_YES) {

        if (legs->connector->member
            && ngx_http_kvroute_legs_repeat(legs) != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return NGX_DECLINED;
    }

    /* what is wrong with the request itself the decode server says as well */

    if (legs->conf->strict
        && (legs->status == 0 || legs->status >= NGX_HTTP_INTERNAL_SERVER_ERROR
            || legs->status == NGX_HTTP_TOO_MANY_REQUESTS))
    {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    /* the decode server computes the prompt, so it is chosen for that */

    ctx->leg = NULL;

    (void) ngx_http_kvroute_early(ctx, legs->decode, &ctx->reserved);

    return NGX_DECLINED;
}


/* what has come of leg 1: YES, or why leg 2 cannot go by it */
static kvr_disaggregate_e
ngx_http_kvroute_legs_result(ngx_http_kvroute_legs_t *legs)
{
    if (legs->status != NGX_HTTP_OK || !kvr_transfer_whole(&legs->transfer)) {
        return KVR_DISAGGREGATE_FAILED;
    }

    if (legs->connector->member == NULL
        || kvr_transfer_usable(&legs->transfer))
    {
        return KVR_DISAGGREGATE_YES;
    }

    if (legs->transfer.over) {
        ngx_log_error(NGX_LOG_WARN, legs->request->connection->log, 0,
                      "kvroute_prefill: %V answered with a \"%s\" of more "
                      "than %uz bytes: \"max_params=\" is too small",
                      &legs->peer, legs->connector->member,
                      legs->conf->max_params);

    } else {
        ngx_log_error(NGX_LOG_WARN, legs->request->connection->log, 0,
                      "kvroute_prefill: %V answered without \"%s\": is the "
                      "connector configured there?", &legs->peer,
                      legs->connector->member);
    }

    return KVR_DISAGGREGATE_ANSWER;
}


/* the client's body, and what leg 1's answer has told */
static ngx_int_t
ngx_http_kvroute_legs_repeat(ngx_http_kvroute_legs_t *legs)
{
    off_t         length;
    size_t        len;
    u_char       *text, *p;
    ngx_chain_t  *bufs;
    const char   *member;

    member = legs->connector->member;

    len = sizeof(",\"\":}") - 1 + ngx_strlen(member) + legs->transfer.len;

    text = ngx_pnalloc(legs->request->pool, len);
    if (text == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(text, "%s\"%s\":", legs->members ? "," : "", member);
    p = ngx_cpymem(p, legs->memory, legs->transfer.len);

    legs->member = text;
    legs->member_len = (size_t) (p - text);

    *p++ = '}';

    ngx_pfree(legs->request->pool, legs->memory);
    legs->memory = NULL;

    bufs = ngx_http_kvroute_legs_append(legs, text, (size_t) (p - text),
                                        &length);
    if (bufs == NULL) {
        return NGX_ERROR;
    }

    ngx_http_kvroute_legs_send(legs, bufs, length);

    return NGX_OK;
}


/* the request is the client's again */
static void
ngx_http_kvroute_legs_leave(ngx_http_kvroute_ctx_t *ctx)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ctx->legs;

    if (legs->edit.n && legs->saved) {
        (void) ngx_http_kvroute_legs_restore(legs);
    }

    ngx_http_kvroute_legs_unsend(legs);

    ngx_http_kvroute_reserve_release(&legs->reserved);

    /* what the queue has reserved since is its own */

    if (ctx->reserved.attempt) {
        ngx_http_kvroute_reserve_release(&ctx->reserved);
    }

    /* leg 1, if there still is one, is closed in an event */

    legs->over = 1;

    if (legs->first) {
        ngx_post_event(&legs->event, &ngx_posted_events);
    }

    ctx->leg = NULL;
    ctx->legs = NULL;
}


/* the first token: whoever has computed the prompt has done so */
static void
ngx_http_kvroute_legs_heard(ngx_http_kvroute_leg_t *leg, ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx && ctx->legs) {
        ctx->legs->heard = 1;
        ngx_http_kvroute_reserve_release(&ctx->legs->reserved);
    }
}


/*
 * A try for leg 2, after leg 1.  If nothing was sent the descriptor is good, for
 * as long as its lease is: nginx may have waited for its cache, or for the end of
 * leg 1's answer, and connecting may take the other half of it.
 */
static ngx_int_t
ngx_http_kvroute_legs_before(ngx_http_kvroute_leg_t *leg, ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx->legs;

    if (ngx_current_msec - legs->answered >= legs->conf->lease / 2) {
        ngx_http_kvroute_legs_plain(legs, KVR_DISAGGREGATE_LATE);

    } else if (r->upstream->request_sent) {
        ngx_http_kvroute_legs_plain(legs, KVR_DISAGGREGATE_RETRIED);
    }

    return NGX_OK;
}


/* the request ends: what became of it is known */
static void
ngx_http_kvroute_legs_cleanup(void *data)
{
    ngx_http_kvroute_legs_t *legs = data;

    kvr_registry_t  *registry;

    ngx_http_kvroute_reserve_release(&legs->reserved);

    if (legs->event.posted) {
        ngx_delete_posted_event(&legs->event);
    }

    if (legs->event.timer_set) {
        ngx_del_timer(&legs->event);
    }

    ngx_http_kvroute_legs_count(legs->decode, legs->outcome);

    if (legs->start && !legs->running && legs->decode->numbered) {
        registry = legs->decode->zone->core.registry;

        kvr_stats_observe(&registry->upstream[legs->decode->number].stats,
                          KVR_STATS_LEG1, (uint64_t) legs->time * 1000);
    }
}


static void
ngx_http_kvroute_legs_count(ngx_http_kvroute_srv_conf_t *decode,
    kvr_disaggregate_e outcome)
{
    kvr_registry_t  *registry;

    registry = decode->zone->core.registry;

    /* else it has no place in the zone */

    if (decode->numbered) {
        kvr_add(&registry->upstream[decode->number].legs[outcome], 1);
    }
}
