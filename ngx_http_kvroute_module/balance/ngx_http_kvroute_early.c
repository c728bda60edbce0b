
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Decides before the upstream request is made, so that its headers can say
 * what was decided.  nginx makes the request first and asks the balancer then.
 *
 * The decision is that of get(), by the same lists and under the same lock, but
 * the peer is not taken: a place is reserved there, which the request holds
 * (request/ngx_http_kvroute_reserve.c).  The attempt that was decided for goes
 * with it.  init() takes the attempt over, and get() takes that peer, if it can
 * still be had; so a request is matched and decided once.  Else, and when a try
 * has failed, it is decided anew: headers are made already, and what no longer
 * fits is told by the reason and by $kvroute_early.
 *
 * What nginx's own round robin gives a peer is not decided early, nor are
 * subrequests: headers of those say nothing.
 */


#include "balance/ngx_http_kvroute_balance_int.h"
#include "conf/ngx_http_kvroute_conf.h"


static ngx_int_t ngx_http_kvroute_early_handler(ngx_http_request_t *r);
static ngx_uint_t ngx_http_kvroute_early_unranked(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_early_forget(ngx_http_kvroute_ctx_t *ctx);
static ngx_int_t ngx_http_kvroute_early_choose(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);


ngx_int_t
ngx_http_kvroute_early_init(ngx_conf_t *cf)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    if (!kmcf->decided) {
        return NGX_OK;
    }

    return ngx_http_kvroute_request_phase(cf, ngx_http_kvroute_early_handler);
}


static ngx_int_t
ngx_http_kvroute_early_handler(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_uint_t                    wanted;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_srv_conf_t  *conf;
    ngx_http_kvroute_loc_conf_t  *klcf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);
    conf = ngx_http_kvroute_pass_expected(r);

    wanted = conf && conf->zone && !conf->shadow
             && (klcf->early || conf->ranks);

    ctx = ngx_http_kvroute_request_get_ctx(r);

    /* decided in another location, or reserved by its queue */

    if (ctx && ctx->reserved.core.held
        && (ctx->reserved.conf != conf
            || (ctx->reserved.attempt && !wanted)))
    {
        ngx_http_kvroute_reserve_release(&ctx->reserved);
    }

    if (!wanted) {

        /* nor do headers here tell what was decided there */

        if (ctx && r->content_handler) {
            ngx_http_kvroute_early_forget(ctx);
        }

        return NGX_DECLINED;
    }

    rc = ngx_http_kvroute_inspect(r);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ctx = ngx_http_kvroute_request_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_kvroute_early(ctx, conf, &ctx->reserved);

    /* get() will see what there is to be had */

    return rc == NGX_ERROR ? NGX_HTTP_INTERNAL_SERVER_ERROR : NGX_DECLINED;
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

    at = ngx_http_kvroute_prepare(ctx, conf);
    if (at == NULL) {
        return NGX_ERROR;
    }

    at->early = ngx_pcalloc(r->pool, sizeof(ngx_http_kvroute_early_t));
    if (at->early == NULL) {
        return NGX_ERROR;
    }

    at->early->reserved = reserved;
    at->mode = NGX_HTTP_KVROUTE_AHEAD;

    if (ngx_http_kvroute_prepare_peers(r, at) != NGX_OK
        || ngx_http_kvroute_prepare_match(r, at) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_kvroute_balance_native(at)) {
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


/* of the backup servers only if none of the others can be had, as in get() */
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

        /* the peer may be gone after the lock is */

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

    if (at->silent) {
        at->core.eject.ejected = at->silent - 1;
        ngx_http_kvroute_eject_log(at, KVR_EJECT_EJECTED);
        at->silent = 0;
    }

    if (best == NULL) {
        return NGX_DECLINED;
    }

    ngx_http_kvroute_receipt_tell(at, &d, &s);

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
     * "proxy_pass" by a variable has led to another upstream; or headers are
     * made, and the rank is in none of them: the engine will choose
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


/* legs tell in other ways than by headers who they have decided on */
static ngx_uint_t
ngx_http_kvroute_early_unranked(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf)
{
    if (ctx->ranked || ctx->leg || ctx->legs) {
        return 0;
    }

    if (!conf->unranked) {
        conf->unranked = 1;

        ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                      "engines of upstream \"%V\" are not told the rank, and "
                      "choose by themselves: write \"proxy_set_header "
                      "X-Data-Parallel-Rank $kvroute_rank;\" in this location "
                      "as well, if it has a \"proxy_set_header\" of its own",
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
