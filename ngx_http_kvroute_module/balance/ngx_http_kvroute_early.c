
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Decides before nginx asks the balancer.  nginx creates the upstream request
 * first, and its headers can have the decision: the first variable of
 * "proxy_set_header" that is read makes it.  Legs are decided earlier.
 *
 * The decision is made as in get(), with the same lists and lock.  Instead of
 * taking the peer, it makes a reservation there
 * (request/ngx_http_kvroute_reserve.c), together with the attempt.  init()
 * takes the attempt over, and get() takes the peer if it is still usable, so a
 * request is matched and decided once.  If the peer is unusable, or a try has
 * failed, get() decides again.  The headers are then out of date, and the
 * reason and $kvroute_early say so.
 *
 * A fallback to round robin is not decided early.
 */


#include "balance/ngx_http_kvroute_balance_int.h"
#include "conf/ngx_http_kvroute_conf.h"


static void ngx_http_kvroute_early_forget(ngx_http_kvroute_ctx_t *ctx);
static ngx_int_t ngx_http_kvroute_early_choose(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);


void
ngx_http_kvroute_early_decide(ngx_http_request_t *r)
{
    ngx_uint_t                    off;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = ngx_http_kvroute_pass_created(r);

    ctx = conf ? ngx_http_kvroute_request_create_ctx(r)
               : ngx_http_kvroute_request_get_ctx(r);

    if (ctx == NULL || ctx->created == r->upstream || ctx->leg
        || ctx->reserved.attempt)
    {
        return;
    }

    /* the decision may read variables itself */

    ctx->created = r->upstream;

    ngx_http_kvroute_early_forget(ctx);

    if (conf == NULL || conf->zone == NULL || conf->shadow) {
        return;
    }

    ngx_http_kvroute_request_enter(ctx);

    (void) ngx_http_kvroute_request_policy(r, conf, &off);

    if (!off) {
        (void) ngx_http_kvroute_early(ctx, conf, &ctx->reserved);
        ngx_http_kvroute_request_read(r, ctx, conf->zone);
    }
}


ngx_int_t
ngx_http_kvroute_early(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_reserve_t *reserved)
{
    ngx_int_t                    rc;
    ngx_http_request_t          *r;
    ngx_http_kvroute_attempt_t  *at;

    r = ctx->request;

    reserved->attempt = NULL;

    ngx_http_kvroute_early_forget(ctx);

    at = ngx_http_kvroute_prepare(ctx, conf,
                                  sizeof(ngx_http_kvroute_attempt_t));
    if (at == NULL) {
        return NGX_ERROR;
    }

    at->early = ngx_pcalloc(r->pool, sizeof(ngx_http_kvroute_early_t));
    if (at->early == NULL) {
        return NGX_ERROR;
    }

    at->early->reserved = reserved;
    at->mode = NGX_HTTP_KVROUTE_AHEAD;

    if (ngx_http_kvroute_choose_peers(r, at) != NGX_OK
        || ngx_http_kvroute_prepare_match(r, at) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_kvroute_balance_fallback(at)) {
        return NGX_DECLINED;
    }

    rc = ngx_http_kvroute_early_choose(r, at);

    at->mode = NGX_HTTP_KVROUTE_DECIDED;
    at->early->took = ngx_http_kvroute_receipt_clock() - at->began;

    if (rc == NGX_OK) {
        ctx->early = NGX_HTTP_KVROUTE_KEPT;
        reserved->attempt = at;
    }

    return rc;
}


static void
ngx_http_kvroute_early_forget(ngx_http_kvroute_ctx_t *ctx)
{
    ctx->early = 0;
    ctx->decided = 0;
    ctx->ranked = 0;
    ngx_str_null(&ctx->peer);
}


/*
 * Chooses a backup server only if no primary server is usable, as get() does.
 */
static ngx_int_t
ngx_http_kvroute_early_choose(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    u_char                         name[NGX_SOCKADDR_STRLEN];
    ngx_str_t                      s;
    ngx_uint_t                     i, offered;
    kvr_decision_t                 d;
    ngx_peer_connection_t          pc;
    ngx_http_upstream_rr_peer_t   *best;
    ngx_http_upstream_rr_peers_t  *peers, *next;

    ngx_memzero(&pc, sizeof(ngx_peer_connection_t));
    pc.log = r->connection->log;

    do {
        peers = ngx_http_kvroute_choose_lock(&pc, at);

        if (peers == NULL) {
            return NGX_DECLINED;
        }

        best = ngx_http_kvroute_choose(at, &i, &offered, &d);
        next = peers->next;

        /* without the lock nginx can free the peer */

        if (best) {
            s.data = name;
            s.len = ngx_min(best->name.len, sizeof(name));
            ngx_memcpy(name, best->name.data, s.len);

            at->early->d = d;
            at->early->list = ngx_http_kvroute_balance_list(at);
            at->early->index = i;
            at->early->offered = offered;
            at->early->config = at->rrp.config;

        } else if (next) {
            at->rrp.peers = next;
        }

        ngx_http_kvroute_lock_release(at->conf->zone, peers);

    } while (best == NULL && next);

    ngx_http_kvroute_eject_log_silent(at);

    if (best == NULL) {
        return NGX_DECLINED;
    }

    ngx_http_kvroute_receipt_keep(at, &d, &s);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kvroute early: %V %s", &s, kvr_reason_name(d.reason));

    return NGX_OK;
}


ngx_http_kvroute_attempt_t *
ngx_http_kvroute_early_take(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_http_kvroute_attempt_t  *at;

    at = ctx->reserved.attempt;
    ctx->reserved.attempt = NULL;

    /*
     * A "proxy_pass" with a variable led to another upstream, or no header has
     * the rank, so the engine chooses one.
     */

    if (at->conf != conf || ctx->moved
        || (conf->ranks && at->early->rank != NGX_HTTP_KVROUTE_UNSET_RANK
            && ngx_http_kvroute_early_unranked(ctx, conf)))
    {
        ngx_http_kvroute_reserve_release(&ctx->reserved);
        ctx->early = NGX_HTTP_KVROUTE_MOVED;

        return NULL;
    }

    at->began = ngx_http_kvroute_receipt_clock() - at->early->took;

    return at;
}


ngx_uint_t
ngx_http_kvroute_early_unranked(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf)
{
    if (ctx->ranked || ctx->leg) {
        return 0;
    }

    if (!conf->unranked) {
        conf->unranked = 1;

        ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                      "engines of upstream \"%V\" do not receive the rank and "
                      "choose one themselves: write \"proxy_set_header "
                      "X-Data-Parallel-Rank $kvroute_rank;\" in this location "
                      "too, because its own \"proxy_set_header\" replaces "
                      "inherited ones",
                      &conf->upstream->host);
    }

    return 1;
}


ngx_http_upstream_rr_peer_t *
ngx_http_kvroute_early_get(ngx_http_kvroute_attempt_t *at, ngx_uint_t *index,
    ngx_uint_t *offered, kvr_decision_t *d)
{
    ngx_http_upstream_rr_peer_t  *best;

    best = ngx_http_kvroute_choose_decided(at, index);

    if (best) {
        *d = at->early->d;
        *offered = at->early->offered;

        if (at->tries) {
            d->reason = KVR_REASON_RETRY;
        }

        at->ctx->early = NGX_HTTP_KVROUTE_KEPT;

        return best;
    }

    if (at->ctx->leg && at->ctx->leg->fixed) {
        return NULL;
    }

    best = ngx_http_kvroute_choose(at, index, offered, d);

    if (best) {
        at->ctx->early = NGX_HTTP_KVROUTE_MOVED;

        if (at->tries == 0) {
            d->reason = KVR_REASON_MOVED;
        }
    }

    return best;
}
