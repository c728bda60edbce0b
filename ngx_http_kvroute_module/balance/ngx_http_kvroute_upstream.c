
/*
 * Copyright (C) kvroute contributors
 */


/*
 * init(), get() and free() of an upstream.
 *
 * init() reads the body and looks up its prompt, without a lock.  get() holds
 * the peers' lock while it asks the policy and takes a peer.  Under this lock
 * nothing is allocated, logged or compared as a string.
 */


#include "balance/ngx_http_kvroute_balance_int.h"
#include "engine/ngx_http_kvroute_engine.h"


static ngx_int_t ngx_http_kvroute_upstream_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_kvroute_upstream_leg(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us, ngx_http_kvroute_leg_t *leg);
static ngx_int_t ngx_http_kvroute_upstream_get(ngx_peer_connection_t *pc,
    void *data);
static ngx_int_t ngx_http_kvroute_upstream_backup(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, ngx_http_upstream_rr_peers_t *peers);
static void ngx_http_kvroute_upstream_free(ngx_peer_connection_t *pc,
    void *data, ngx_uint_t state);
static ngx_uint_t ngx_http_kvroute_upstream_stale(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, ngx_uint_t state);


ngx_int_t
ngx_http_kvroute_upstream_init(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us)
{
    ngx_http_kvroute_srv_conf_t  *kscf;

    if (ngx_http_upstream_init_round_robin(cf, us) != NGX_OK) {
        return NGX_ERROR;
    }

    us->peer.init = ngx_http_kvroute_upstream_init_peer;

    kscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_kvroute_module);
    kscf->in_use = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_upstream_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_int_t                     rc;
    ngx_uint_t                    early;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_attempt_t   *at;
    ngx_http_kvroute_srv_conf_t  *kscf;

    kscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_kvroute_module);

    ctx = ngx_http_kvroute_request_create_ctx(r);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    if (ctx->leg) {
        rc = ngx_http_kvroute_upstream_leg(r, us, ctx->leg);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    at = ctx->reserved.attempt ? ngx_http_kvroute_early_take(ctx, kscf) : NULL;
    early = (at != NULL);

    if (!early) {
        at = ngx_http_kvroute_prepare(ctx, kscf,
                                      sizeof(ngx_http_kvroute_attempt_t));
        if (at == NULL) {
            return NGX_ERROR;
        }
    }

    r->upstream->peer.data = &at->rrp;

    if (ngx_http_upstream_init_round_robin_peer(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    r->upstream->peer.get = ngx_http_kvroute_upstream_get;
    r->upstream->peer.free = ngx_http_kvroute_upstream_free;

    /* an internal redirect ends the attempt on another upstream */

    if (ctx->attempt) {
        ngx_http_kvroute_attempt_end(ctx->attempt, NULL, 0);
    }

    ngx_http_kvroute_request_enter(ctx);

    ctx->attempt = at;
    ctx->end = ngx_http_kvroute_attempt_cleanup;

    /* the list is still the one matched; choose_lock() checks that again */

    if (early && at->rrp.config == at->early->config) {
        return NGX_OK;
    }

    ctx->decided = 0;
    ngx_str_null(&ctx->peer);

    if (ngx_http_kvroute_peers_current(kscf, 1, r->connection->log) != NGX_OK
        || ngx_http_kvroute_choose_init(kscf, r->connection->log) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_kvroute_prepare_match(r, at) != NGX_OK) {
        return NGX_ERROR;
    }

    if (kscf->list[0].targets > kscf->list[0].number
        && at->mode == NGX_HTTP_KVROUTE_DECIDE && r == r->main)
    {
        (void) ngx_http_kvroute_early_unranked(ctx, kscf);
    }

    return NGX_OK;
}


/*
 * Applies a leg's own upstream configuration.  The prefill leg switches to
 * another upstream and runs that upstream's init(), with its wrappers.
 * NGX_DECLINED: the upstream is already the right one.
 */
static ngx_int_t
ngx_http_kvroute_upstream_leg(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us, ngx_http_kvroute_leg_t *leg)
{
    if (leg->conf) {

        /* HTTP/2 sets this per request, later than the copy was made */

        leg->conf->preserve_output = r->upstream->conf->preserve_output;

        r->upstream->conf = leg->conf;
    }

    if (leg->upstream && leg->upstream != us) {
        r->upstream->upstream = leg->upstream;

        return leg->upstream->peer.init(r, leg->upstream);
    }

    if (leg->enter) {
        leg->enter(leg, r);
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_kvroute_upstream_get(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kvroute_attempt_t  *at = data;

    time_t                         now;
    uint32_t                       peer;
    ngx_uint_t                     i, offered;
    kvr_decision_t                 d;
    ngx_http_upstream_rr_peer_t   *best;
    ngx_http_upstream_rr_peers_t  *peers;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "get kvroute peer, try: %ui", pc->tries);

    if (at->tries) {
        at->began = ngx_http_kvroute_receipt_clock();
    }

    if (at->ctx->leg && at->ctx->leg->before
        && at->ctx->leg->before(at->ctx->leg, at->ctx->request) != NGX_OK)
    {
        return NGX_BUSY;
    }

    pc->cached = 0;
    pc->connection = NULL;

    now = ngx_time();

    peers = ngx_http_kvroute_choose_lock(pc, at);

    if (peers == NULL) {
        return NGX_BUSY;
    }

    best = at->mode == NGX_HTTP_KVROUTE_DECIDED
           ? ngx_http_kvroute_early_get(at, &i, &offered, &d)
           : ngx_http_kvroute_choose(at, &i, &offered, &d);

    if (best == NULL && peers->next == NULL
        && at->ctx->leg && at->ctx->leg->fixed)
    {
        ngx_http_kvroute_lock_release(at->conf->zone, peers);
        pc->name = peers->name;

        return NGX_BUSY;
    }

    if (best == NULL && peers->next == NULL && !at->over
        && ngx_http_kvroute_queue_again(at->ctx, at->conf))
    {
        at->over = 1;
        best = ngx_http_kvroute_choose(at, &i, &offered, &d);
    }

    if (best == NULL) {
        return ngx_http_kvroute_upstream_backup(pc, at, peers);
    }

    if (now - best->checked > best->fail_timeout) {
        best->checked = now;
    }

    pc->sockaddr = best->sockaddr;
    pc->socklen = best->socklen;
    pc->name = &best->name;

    ngx_http_kvroute_set_sid(pc, best);

    at->rrp.current = best;
    ngx_http_upstream_rr_peer_ref(peers, best);

    at->rrp.tried[ngx_http_kvroute_tried_word(i)]
        |= ngx_http_kvroute_tried_bit(i);

    ngx_http_kvroute_lock_release(at->conf->zone, peers);

    ngx_http_kvroute_eject_log_silent(at);

    ngx_http_kvroute_attempt_drain(at);
    ngx_http_kvroute_attempt_insert(at);
    ngx_http_kvroute_receipt(pc, at, &d);

    /* bind the session; it stays bound to a peer that is only full */

    peer = at->core.reservation.peer;

    if (at->session.keyed
        && kvr_policy_needs(at->policy->kind) & KVR_NEEDS_SESSION
        && peer != KVR_REGISTRY_NONE
        && (peer == at->session.bound || !(offered || at->busy)))
    {
        ngx_http_kvroute_session_bind(at->conf, at->session.key, peer,
                                      at->policy->timeout);
    }

    return NGX_OK;
}


/* Tries the backup servers, if any, because this list has no usable peer. */
static ngx_int_t
ngx_http_kvroute_upstream_backup(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, ngx_http_upstream_rr_peers_t *peers)
{
    ngx_int_t                 rc;
    ngx_http_kvroute_zone_t  *zone;

    zone = at->conf->zone;

    if (peers->next) {
        at->rrp.peers = peers->next;

        ngx_memzero(at->rrp.tried,
                    ngx_http_kvroute_tried_words(at->rrp.peers->number)
                    * sizeof(uintptr_t));

        ngx_http_kvroute_lock_release(zone, peers);

        rc = ngx_http_kvroute_upstream_get(pc, at);

        if (rc != NGX_BUSY) {
            return rc;
        }

    } else {
        ngx_http_kvroute_lock_release(zone, peers);
    }

    pc->name = peers->name;

    return NGX_BUSY;
}


static void
ngx_http_kvroute_upstream_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_http_kvroute_attempt_t  *at = data;

    ngx_uint_t     status, busy;
    kvr_outlier_e  reason;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "free kvroute peer %ui %ui", pc->tries, state);

    if (ngx_http_kvroute_upstream_stale(pc, at, state)) {
        state = 0;
    }

    /*
     * A peer that replied Retry-After has not failed.  Without this header its
     * overload can be permanent, so it counts for the trial.  A 4xx does not
     * count as failed.
     */

    if (at->core.reservation.held) {
        status = ngx_http_kvroute_attempt_status(at);
        reason = ngx_http_kvroute_eject_reason(at, pc, state, status);

        busy = ngx_http_kvroute_engine_busy(at->conf,
                                            at->core.reservation.peer,
                                            at->ctx->request->upstream, status);

        if (busy) {
            reason = (busy == NGX_HTTP_KVROUTE_BUSY_UNTIMED)
                     ? kvr_outlier_client((uint32_t) status)
                     : KVR_OUTLIER_NONE;
        }

        /* an error is an answer as well */

        if (status / 100 > 2) {
            kvr_attempt_heard(&at->core, &at->conf->zone->core);
        }

        if (at->conf->eject.budget) {
            ngx_http_kvroute_eject_final(at, pc, reason, state);
        }

        /* the next engine at this address can have other ranks */

        if (at->conf->ranks == NGX_HTTP_KVROUTE_RANKS_AUTO
            && state & NGX_PEER_FAILED)
        {
            ngx_http_kvroute_engine_lost(at->conf->zone,
                                         at->core.reservation.peer,
                                         at->ctx->request->upstream);
        }

        if (busy || status / 100 == 4) {
            state &= ~NGX_PEER_FAILED;
        }

        ngx_http_kvroute_eject_log(at,
                               kvr_attempt_judge(&at->core,
                                                 &at->conf->zone->core,
                                                 &at->conf->pool, reason,
                                                 (uint64_t) ngx_current_msec));
    }

    ngx_http_kvroute_attempt_result(at, state);

    /* frees the peer */

    ngx_http_kvroute_attempt_end(at, pc, state);

    if (at->ctx->leg && at->ctx->leg->end) {
        at->ctx->leg->end(at->ctx->leg, at->ctx->request);
    }
}


/*
 * Tells whether an attempt failed only because the peer had closed a keepalive
 * connection.  That says nothing about the peer, so once per request it is
 * forgiven, and the next try can use the same peer.  nginx does not count that
 * try either.
 */
static ngx_uint_t
ngx_http_kvroute_upstream_stale(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, ngx_uint_t state)
{
    ngx_uint_t                     i;
    ngx_http_upstream_t           *u;
    ngx_http_kvroute_list_t       *list;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    if (!pc->cached || !(state & NGX_PEER_FAILED) || at->stale) {
        return 0;
    }

    u = at->ctx->request->upstream;

    if (pc->connection == NULL
        || pc->connection->read->timedout
        || pc->connection->write->timedout
        || u->buffer.pos != u->buffer.last
        || (u->state && u->state->bytes_received))
    {
        return 0;
    }

    at->stale = 1;

    peer = at->rrp.current;
    peers = at->rrp.peers;
    list = ngx_http_kvroute_balance_list(at);

    ngx_http_kvroute_lock_write(at->conf->zone, peers);

    i = ngx_http_kvroute_peers_place(peers, list, &peer->name);

    if (i < list->number) {
        at->rrp.tried[ngx_http_kvroute_tried_word(i)]
            &= ~ngx_http_kvroute_tried_bit(i);

        /* keep peer->fails: this is no evidence that the peer has recovered */

        peer->accessed = ngx_max(peer->accessed, peer->checked);
    }

    ngx_http_kvroute_lock_release(at->conf->zone, peers);

    return 1;
}
