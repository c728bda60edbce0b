
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Records a decision and its reason: in the request's context for variables, in
 * counters, and in the zone's ring of receipts.
 */


#include "balance/ngx_http_kvroute_balance_int.h"


static ngx_str_t  ngx_http_kvroute_receipt_trace =
    ngx_string("traceparent");


void
ngx_http_kvroute_receipt_keep(ngx_http_kvroute_attempt_t *at,
    kvr_decision_t *d, ngx_str_t *name)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;

    ctx->decided = 1;
    ctx->policy = ngx_http_kvroute_balance_fallback(at)
                  ? KVR_POLICY_OFF : at->policy->kind;
    ctx->reason = d->reason;
    ctx->matched = d->matched;
    ctx->best = d->best;
    ctx->cost = d->cost;
    ctx->streams = d->active;
    ctx->rank = at->conf->ranks ? at->rank.number : NGX_HTTP_KVROUTE_UNSET_RANK;

    /* nginx can free the peer before the request is logged */

    ctx->peer.data = ngx_pnalloc(ctx->request->pool, name->len);

    if (ctx->peer.data) {
        ctx->peer.len = name->len;
        ngx_memcpy(ctx->peer.data, name->data, name->len);

    } else {
        ctx->peer.len = 0;
    }
}


void
ngx_http_kvroute_receipt(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_decision_t *d)
{
    ngx_time_t               *tp;
    kvr_member_t             *member;
    kvr_receipt_t             receipt;
    kvr_upstream_t           *upstream;
    ngx_table_elt_t          *h;
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_zone_t  *zone;

    ctx = at->ctx;

    ngx_http_kvroute_receipt_keep(at, d, pc->name);

    ctx->ttft_set = 0;

    kvr_response_init(&ctx->usage, KVR_RESPONSE_FIRST, 0);

    at->tries++;

    ngx_log_debug7(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "kvroute decision: %V %s, prompt %uL matched %uL best %uL "
                   "cost %.0f pending %uL",
                   &ctx->peer, kvr_reason_name(d->reason), ctx->bytes,
                   d->matched, d->best, d->cost, at->core.reservation.pending);

    if (!at->core.reservation.held
        || at->core.reservation.peer == KVR_REGISTRY_NONE) {
        return;
    }

    zone = at->conf->zone;
    member = &zone->core.registry->member[at->member];
    upstream = &zone->core.registry->upstream[member->upstream];

    kvr_add(&member->requests, 1);
    kvr_add(&member->reason[d->reason], 1);
    kvr_set(&member->selected, (uint64_t) ngx_time());

    if (ctx->parsed) {
        kvr_add(&member->prompt, ctx->bytes);
        kvr_add(&member->matched, d->matched);
        kvr_add(&member->best, d->best);
        kvr_add(&member->mean, d->mean);

        kvr_stats_observe(&upstream->stats, KVR_STATS_MATCHED,
                          ctx->bytes ? ngx_min(d->matched, ctx->bytes)
                                       * 1000000 / ctx->bytes : 0);
    }

    kvr_add(&upstream->stats.policy[ctx->policy], 1);

    tp = ngx_timeofday();

    receipt.time = (uint64_t) tp->sec * 1000 + tp->msec;
    receipt.hash = ctx->parsed ? ctx->hash : 0;
    receipt.prompt = ctx->bytes;
    receipt.matched = d->matched;
    receipt.best = d->best;
    receipt.upstream = (uint8_t) member->upstream;
    receipt.peer = (uint16_t) at->core.reservation.peer;
    receipt.policy = (uint8_t) ctx->policy;
    receipt.reason = (uint8_t) d->reason;
    receipt.waited = (uint32_t) ngx_http_kvroute_queue_time(ctx);

    receipt.trace[0] = 0;
    receipt.trace[1] = 0;

    h = ngx_http_kvroute_headers_next(&ctx->request->headers_in.headers,
                                      &ngx_http_kvroute_receipt_trace, NULL);
    if (h) {
        (void) kvr_receipt_trace(h->value.data, h->value.len, receipt.trace);
    }

    at->receipt = kvr_receipt_put(&zone->shm->receipts, &receipt);

    kvr_stats_observe(&upstream->stats, KVR_STATS_DECISION,
                      ngx_http_kvroute_receipt_clock() - at->began);
}


uint64_t
ngx_http_kvroute_receipt_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}
