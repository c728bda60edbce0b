
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Prefill and decode by two servers, in the phase before the content phase.
 *
 *  1. Read the body; cut members that no client may send.
 *  2. Reserve a place at a decode server, and compare the costs.
 *  3. Run the prefill leg as a subrequest.
 *  4. Pass the request on as the decode leg, with the descriptor from the
 *     prefill server's answer.
 *
 * States of the prefill leg, and their changes.  SENT, ENTERED and WHOLE are
 * "running".
 *
 *     IDLE     the subrequest gets its body           SENT      _give()
 *     SENT     it is at the prefill upstream          ENTERED   _entered()
 *     ENTERED  the last byte of the answer came       WHOLE     _answer()
 *     running  it has ended                           ENDED     _ended()
 *     running  it has failed while the decode leg
 *              waits for it (both at once)            FAILED    _ended()
 *     running  the decode leg has ended               CLOSED    _both_cancel()
 *     FAILED   another pair is tried                  IDLE      _both_start()
 *     FAILED   no pair is left to try                 CLOSED    _both_failed()
 *     ENDED    the decode leg follows                 CLOSED    _resume()
 *
 * States of the decode leg:
 *
 *     IDLE     the location's handler has the request SENT      _content()
 *     SENT     the first token came                   BEGUN     _begun()
 *     any      it has ended, answers with an error, or
 *              goes on without the prefill leg        OVER      _both_event()
 *                                                               and others
 *
 * A descriptor is valid for one server and for seconds.  Once a decode server
 * may have seen it, or half its lease has passed, it is blanked: a further try
 * sends the client's own request, which that server can serve alone.
 *
 * Only the decode upstream gets the descriptor (_legs_decode).
 */


#include "legs/ngx_http_kvroute_legs_int.h"
#include "zone/ngx_http_kvroute_zone.h"

#include <cjson/cJSON.h>


static ngx_int_t ngx_http_kvroute_legs_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_legs_subordinate(ngx_http_request_t *r,
    ngx_http_kvroute_legs_loc_conf_t *llcf);
static ngx_int_t ngx_http_kvroute_legs_begin(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_prefill_t *conf);
static ngx_http_kvroute_legs_t *ngx_http_kvroute_legs_create(
    ngx_http_request_t *r, ngx_http_kvroute_prefill_t *conf,
    ngx_http_kvroute_srv_conf_t *decode);
static ngx_int_t ngx_http_kvroute_legs_resume(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx);
static kvr_disaggregate_e ngx_http_kvroute_legs_result(
    ngx_http_kvroute_legs_t *legs);
static ngx_int_t ngx_http_kvroute_legs_repeat(ngx_http_kvroute_legs_t *legs);
static uint32_t ngx_http_kvroute_legs_price(ngx_http_kvroute_leg_t *leg,
    kvr_candidate_t *cand, uint32_t n, uint64_t bytes, uint32_t rate);
static void ngx_http_kvroute_legs_leave(ngx_http_kvroute_ctx_t *ctx);
static void ngx_http_kvroute_legs_begun(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_legs_before(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);
static void ngx_http_kvroute_legs_cleanup(void *data);
static void ngx_http_kvroute_legs_count(ngx_http_kvroute_srv_conf_t *decode,
    kvr_disaggregate_e outcome);


ngx_int_t
ngx_http_kvroute_legs_init(ngx_conf_t *cf)
{
    ngx_http_kvroute_legs_main_conf_t  *lmcf;

    lmcf = ngx_http_conf_get_module_main_conf(cf,
                                              ngx_http_kvroute_prefill_module);

    if (!lmcf->used) {
        return NGX_OK;
    }

    if (ngx_http_kvroute_request_body_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_request_phase(cf, ngx_http_kvroute_legs_handler);
}


static ngx_int_t
ngx_http_kvroute_legs_handler(ngx_http_request_t *r)
{
    ngx_int_t                          rc;
    ngx_http_kvroute_ctx_t            *ctx;
    ngx_http_kvroute_legs_t           *legs;
    ngx_http_kvroute_legs_loc_conf_t  *llcf;

    llcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_prefill_module);

    if (r != r->main) {
        return ngx_http_kvroute_legs_subordinate(r, llcf);
    }

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx ? ctx->legs : NULL;

    if (legs && legs->loc_conf == r->loc_conf && !ctx->moved) {

        if (ngx_http_kvroute_legs_running(legs)) {
            return NGX_DONE;
        }

        if (legs->prefill_state == NGX_HTTP_KVROUTE_PREFILL_ENDED) {
            return ngx_http_kvroute_legs_resume(legs, ctx);
        }
    }

    /* an internal redirect has led here */

    if (legs) {
        ngx_http_kvroute_legs_leave(ctx);
    }

    if (ctx) {
        ctx->alone = KVR_DISAGGREGATE_NONE;
    }

    /* a location without a content handler serves files */

    if (llcf->prefill == NULL || r->content_handler == NULL) {
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
           ? ngx_http_kvroute_legs_begin(r, ctx, llcf->prefill) : NGX_DECLINED;
}


/*
 * A mirror's copy also has the client's body, even if the client's request is
 * refused.
 */
static ngx_int_t
ngx_http_kvroute_legs_subordinate(ngx_http_request_t *r,
    ngx_http_kvroute_legs_loc_conf_t *llcf)
{
    ngx_int_t                rc;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);

    if (llcf->prefill == NULL || r->content_handler == NULL
        || (ctx && ctx->legs))
    {
        return NGX_DECLINED;
    }

    rc = ngx_http_kvroute_legs_clean(r);

    return rc == NGX_OK ? NGX_DECLINED : rc;
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
    ngx_http_kvroute_legs_loc_conf_t  *llcf;
    ngx_http_kvroute_srv_conf_t  *decode;

    llcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_prefill_module);

    /* an upstream named by a variable is resolved too late for this */

    decode = ngx_http_kvroute_pass_expected(r);

    connector = kvr_connector(conf->connector);

    if (decode == NULL || decode->zone == NULL || decode->shadow
        || (decode->upstream == conf->upstream) != (connector->pull != NULL)
        || llcf->leg == NULL)
    {
        return NGX_DECLINED;
    }

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

    legs->outcome = connector->pull
                    ? ngx_http_kvroute_legs_pull(legs, ctx)
                    : connector->alone
                    ? ngx_http_kvroute_legs_decide(legs, ctx, &d)
                    : ngx_http_kvroute_legs_decide_must(legs, ctx);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kvroute legs: %s",
                   kvr_reason_disaggregated(legs->outcome));

    if (legs->outcome == KVR_DISAGGREGATE_NOBODY && !connector->alone) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    if (legs->outcome != KVR_DISAGGREGATE_YES
        || connector->plan[0] == KVR_LEG_DECODE)
    {
        return NGX_DECLINED;
    }

    rc = connector->meet ? ngx_http_kvroute_legs_both(legs)
                         : ngx_http_kvroute_legs_prefill(legs);

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
    ngx_uint_t                    i;
    ngx_pool_cleanup_t           *cln;
    ngx_http_kvroute_legs_t      *legs;
    ngx_http_kvroute_legs_loc_conf_t  *llcf;

    llcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_prefill_module);

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

    for (i = 0; i < KVR_LEGS; i++) {
        legs->leg[i].legs = legs;
        legs->leg[i].conf = legs->connector->pull ? NULL : &llcf->leg[i];
    }

    legs->role = legs->connector->plan[0];

    legs->leg[KVR_LEG_PREFILL].upstream = conf->upstream;
    legs->leg[KVR_LEG_PREFILL].fixed = (legs->connector->meet != NULL);
    legs->leg[KVR_LEG_DECODE].decode = 1;
    legs->leg[KVR_LEG_DECODE].price = ngx_http_kvroute_legs_price;
    legs->leg[KVR_LEG_DECODE].begun = ngx_http_kvroute_legs_begun;

    /* only a descriptor expires */

    if (legs->connector->member) {
        legs->leg[KVR_LEG_DECODE].before = ngx_http_kvroute_legs_before;
    }

    return legs;
}


/* the decode leg's candidates */
static uint32_t
ngx_http_kvroute_legs_price(ngx_http_kvroute_leg_t *leg, kvr_candidate_t *cand,
    uint32_t n, uint64_t bytes, uint32_t rate)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        kvr_disaggregate_candidate(&cand[i], bytes, leg->transfer);
    }

    return n;
}


ngx_int_t
ngx_http_kvroute_legs_merge(ngx_conf_t *cf,
    ngx_http_kvroute_legs_loc_conf_t *llcf)
{
    ngx_uint_t                   i;
    ngx_http_conf_ctx_t         *ctx;
    ngx_http_upstream_conf_t    *of, *prefill;
    ngx_http_kvroute_prefill_t  *conf;

    ctx = cf->ctx;
    of = ngx_http_kvroute_pass_conf(ctx->loc_conf);

    if (of == NULL) {
        return NGX_OK;
    }

    llcf->leg = ngx_palloc(cf->pool,
                           KVR_LEGS * sizeof(ngx_http_upstream_conf_t));
    if (llcf->leg == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < KVR_LEGS; i++) {
        llcf->leg[i] = *of;
    }

    conf = llcf->prefill;
    prefill = &llcf->leg[KVR_LEG_PREFILL];

    prefill->next_upstream = NGX_CONF_BITMASK_SET
                           |NGX_HTTP_UPSTREAM_FT_ERROR
                           |NGX_HTTP_UPSTREAM_FT_TIMEOUT
                           |NGX_HTTP_UPSTREAM_FT_INVALID_HEADER
                           |NGX_HTTP_UPSTREAM_FT_HTTP_500
                           |NGX_HTTP_UPSTREAM_FT_HTTP_502
                           |NGX_HTTP_UPSTREAM_FT_HTTP_503
                           |NGX_HTTP_UPSTREAM_FT_HTTP_504
                           |NGX_HTTP_UPSTREAM_FT_HTTP_429
                           |NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT;
    prefill->next_upstream_tries = NGX_HTTP_KVROUTE_LEGS_TRIES;
    prefill->next_upstream_timeout = conf->timeout;
    prefill->read_timeout = conf->timeout;
    prefill->intercept_errors = 0;

    /* ignore X-Accel-Redirect and the like */

    prefill->ignore_headers = ~(ngx_uint_t) 0;
    prefill->max_temp_file_size = 0;

    if (kvr_connector(conf->connector)->meet) {

        /* both bodies name the server, so another server needs another pair */

        prefill->next_upstream = 0;
    }

    llcf->leg[KVR_LEG_DECODE].connect_timeout = ngx_min(of->connect_timeout,
                                                        NGX_HTTP_KVROUTE_LEGS_LEASE / 2);

    return NGX_OK;
}


/* continues with the decode leg, or with the client's own request */
static ngx_int_t
ngx_http_kvroute_legs_resume(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx)
{
    legs->prefill_state = NGX_HTTP_KVROUTE_PREFILL_CLOSED;

    if (ngx_http_kvroute_legs_restore(legs) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_kvroute_request_body_forget(legs->request);

    legs->outcome = ngx_http_kvroute_legs_result(legs);

    if (legs->outcome == KVR_DISAGGREGATE_YES) {

        if (legs->connector->member
            && ngx_http_kvroute_legs_repeat(legs) != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return NGX_DECLINED;
    }

    /* the decode server reports errors in the request itself */

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


/* returns YES, or why the decode leg cannot use the prefill leg's answer */
static kvr_disaggregate_e
ngx_http_kvroute_legs_result(ngx_http_kvroute_legs_t *legs)
{
    cJSON       *json;
    const char  *member;

    member = legs->connector->member;

    if (legs->status != NGX_HTTP_OK || legs->unread) {
        return KVR_DISAGGREGATE_FAILED;
    }

    if (legs->len > legs->size) {

        if (member == NULL) {
            return KVR_DISAGGREGATE_YES;
        }

        ngx_log_error(NGX_LOG_WARN, legs->request->connection->log, 0,
                      "kvroute_prefill: %V answered with more than %uz bytes, "
                      "and is not used", &legs->peer, legs->size);

        return KVR_DISAGGREGATE_ANSWER;
    }

    if (kvr_transfer_find(&legs->transfer, member, legs->text, legs->len)
        != KVR_OK)
    {
        return KVR_DISAGGREGATE_FAILED;
    }

    if (member == NULL) {
        return KVR_DISAGGREGATE_YES;
    }

    /* servers refuse a request with invalid JSON */

    json = cJSON_ParseWithLength((char *) legs->text + legs->transfer.at,
                                 legs->transfer.len);
    cJSON_Delete(json);

    if (json) {
        return KVR_DISAGGREGATE_YES;
    }

    ngx_log_error(NGX_LOG_WARN, legs->request->connection->log, 0,
                  "kvroute_prefill: %V answered without \"%s\": is the "
                  "connector configured there?", &legs->peer, member);

    return KVR_DISAGGREGATE_ANSWER;
}


/* gives the decode leg the client's body and the descriptor */
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
    p = ngx_cpymem(p, legs->text + legs->transfer.at, legs->transfer.len);

    legs->member = text;
    legs->member_len = (size_t) (p - text);

    *p++ = '}';

    ngx_pfree(legs->request->pool, legs->text);
    legs->text = NULL;

    bufs = ngx_http_kvroute_legs_append(legs, text, (size_t) (p - text),
                                        &length);
    if (bufs == NULL) {
        return NGX_ERROR;
    }

    ngx_http_kvroute_legs_send(legs, bufs, length);

    return NGX_OK;
}


/* an internal redirect: the request is the client's own again */
static void
ngx_http_kvroute_legs_leave(ngx_http_kvroute_ctx_t *ctx)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ctx->legs;

    (void) ngx_http_kvroute_legs_restore(legs);

    ngx_http_kvroute_legs_unsend(legs);

    ngx_http_kvroute_reserve_release(&legs->reserved);

    /* a reservation of the queue stays */

    if (ctx->reserved.attempt) {
        ngx_http_kvroute_reserve_release(&ctx->reserved);
    }

    /* an event closes the prefill leg, if there still is one */

    legs->decode_state = NGX_HTTP_KVROUTE_DECODE_OVER;

    if (legs->subrequest) {
        ngx_post_event(&legs->event, &ngx_posted_events);
    }

    ctx->leg = NULL;
    ctx->legs = NULL;
}


/* the first token has come, so the prompt is computed */
static void
ngx_http_kvroute_legs_begun(ngx_http_kvroute_leg_t *leg, ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx && ctx->legs) {
        ctx->legs->decode_state = ngx_max(ctx->legs->decode_state,
                                          NGX_HTTP_KVROUTE_DECODE_BEGUN);
        ngx_http_kvroute_reserve_release(&ctx->legs->reserved);
    }
}


/*
 * Before an attempt of the decode leg.  The descriptor may be used until half
 * of its lease has passed, since connecting may take the other half, and only
 * if nothing was sent yet.
 */
static ngx_int_t
ngx_http_kvroute_legs_before(ngx_http_kvroute_leg_t *leg, ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    ctx = ngx_http_kvroute_request_get_ctx(r);
    legs = ctx->legs;

    if (ngx_current_msec - legs->answered >= NGX_HTTP_KVROUTE_LEGS_LEASE / 2) {
        ngx_http_kvroute_legs_plain(legs, KVR_DISAGGREGATE_EXPIRED);

    } else if (r->upstream->request_sent) {
        ngx_http_kvroute_legs_plain(legs, KVR_DISAGGREGATE_RETRIED);
    }

    return NGX_OK;
}


/* counts the outcome when the request ends */
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

    if (legs->start && !ngx_http_kvroute_legs_running(legs)
        && legs->decode->numbered) {
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

    /* an upstream without a slot in the zone has no counters */

    if (decode->numbered) {
        kvr_add(&registry->upstream[decode->number].legs[outcome], 1);
    }
}
