
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The shadow: another balancer routes, this module decides and counts.
 *
 * The other balancer's functions are called with its own data, and their
 * results are returned.  No request is changed, and no error here fails
 * one.  Before get() the policy is asked what it would pick.  After get()
 * the request is counted at the peer that was taken, and the prompt is
 * inserted for this peer.
 *
 * So both picks are compared with the caches that the other balancer has
 * filled.  With the policy's picks the caches would differ.
 *
 * nginx's connection counts are not corrected after a worker was killed.
 */


#include "balance/ngx_http_kvroute_balance_int.h"
#include "engine/ngx_http_kvroute_engine.h"


typedef struct {
    /* must be first: ctx->attempt */
    ngx_http_kvroute_attempt_t     at;

    uint32_t                       peer;   /* the policy's pick, or UNSET */
    uint32_t                       rate;
    kvr_decision_t                 decision;

    /* of the other balancer */

    void                          *data;
    ngx_event_get_peer_pt          get;
    ngx_event_free_peer_pt         free;
#if (NGX_SSL || NGX_COMPAT)
    ngx_event_set_peer_session_pt  set_session;
    ngx_event_save_peer_session_pt save_session;
#endif
} ngx_http_kvroute_shadow_t;


static ngx_int_t ngx_http_kvroute_shadow_init(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_kvroute_shadow_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_kvroute_shadow_get(ngx_peer_connection_t *pc,
    void *data);
static ngx_uint_t ngx_http_kvroute_shadow_find(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_begin_t *begin);
static void ngx_http_kvroute_shadow_begin(ngx_peer_connection_t *pc,
    ngx_http_kvroute_shadow_t *s);
static void ngx_http_kvroute_shadow_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
#if (NGX_SSL || NGX_COMPAT)
static ngx_int_t ngx_http_kvroute_shadow_set_session(ngx_peer_connection_t *pc,
    void *data);
static void ngx_http_kvroute_shadow_save_session(ngx_peer_connection_t *pc,
    void *data);
#endif


void
ngx_http_kvroute_shadow_add(ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_http_upstream_srv_conf_t  *us;

    us = kscf->upstream;

    kscf->real_upstream = us->peer.init_upstream
                          ? us->peer.init_upstream
                          : ngx_http_upstream_init_round_robin;

    us->peer.init_upstream = ngx_http_kvroute_shadow_init;

    /* ejection and the retry budget would change routing */

    kscf->eject.on = 0;
    kscf->eject.budget = 0;
}


static ngx_int_t
ngx_http_kvroute_shadow_init(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us)
{
    ngx_int_t                     rc;
    ngx_http_kvroute_srv_conf_t  *kscf;

    kscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_kvroute_module);

    rc = kscf->real_upstream(cf, us);

    if (rc != NGX_OK) {
        return rc;
    }

    kscf->real_peer = us->peer.init;
    kscf->in_use = 1;

    us->peer.init = ngx_http_kvroute_shadow_init_peer;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_shadow_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_int_t                     rc;
    ngx_peer_connection_t        *pc;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_shadow_t    *s;
    ngx_http_kvroute_srv_conf_t  *kscf;

    kscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_kvroute_module);

    rc = kscf->real_peer(r, us);

    if (rc != NGX_OK) {
        return rc;
    }

    ctx = ngx_http_kvroute_request_create_ctx(r);
    if (ctx == NULL) {
        return NGX_OK;
    }

    s = (ngx_http_kvroute_shadow_t *)
            ngx_http_kvroute_prepare(ctx, kscf,
                                     sizeof(ngx_http_kvroute_shadow_t));

    if (s == NULL || ngx_http_kvroute_choose_peers(r, &s->at) != NGX_OK) {
        return NGX_OK;
    }

    /* an internal redirect ends the attempt on another upstream */

    if (ctx->attempt) {
        ngx_http_kvroute_attempt_end(ctx->attempt, NULL, 0);
    }

    ngx_http_kvroute_request_enter(ctx);

    ctx->attempt = &s->at;
    ctx->end = ngx_http_kvroute_attempt_cleanup;
    ctx->decided = 0;
    ngx_str_null(&ctx->peer);

    pc = &r->upstream->peer;

    s->data = pc->data;
    s->get = pc->get;
    s->free = pc->free;

    pc->data = s;
    pc->get = ngx_http_kvroute_shadow_get;
    pc->free = ngx_http_kvroute_shadow_free;

#if (NGX_SSL || NGX_COMPAT)

    s->set_session = pc->set_session;
    s->save_session = pc->save_session;

    if (pc->set_session) {
        pc->set_session = ngx_http_kvroute_shadow_set_session;
    }

    if (pc->save_session) {
        pc->save_session = ngx_http_kvroute_shadow_save_session;
    }

#endif

    /* on an error the request is not compared */

    if (ngx_http_kvroute_prepare_match(r, &s->at) != NGX_OK) {
        s->at.mode = NGX_HTTP_KVROUTE_BODYLESS;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_shadow_get(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kvroute_shadow_t  *s = data;

    ngx_int_t  rc;

    if (s->at.tries) {
        s->at.began = ngx_http_kvroute_receipt_clock();
    }

    s->peer = NGX_HTTP_KVROUTE_UNSET_PEER;
    s->rate = 0;

    /* before the other balancer changes the peers */

    if (!ngx_http_kvroute_balance_fallback(&s->at)) {
        s->peer = ngx_http_kvroute_choose_shadow(&s->at, &s->decision,
                                                 &s->rate);
    }

    rc = s->get(pc, s->data);

    if (rc == NGX_OK || rc == NGX_DONE) {
        ngx_http_kvroute_shadow_begin(pc, s);
    }

    return rc;
}


/* Finds the peer that the other balancer has taken. */
static ngx_uint_t
ngx_http_kvroute_shadow_find(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_begin_t *begin)
{
    ngx_uint_t                     i, k, found;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = at->conf;
    peers = conf->upstream->peer.data;

    for (k = 0, found = 0; peers && k < 2 && !found; peers = peers->next, k++) {

        list = &conf->list[k];

        ngx_http_kvroute_lock_read(conf->zone, peers);

        i = ngx_http_kvroute_peers_place(peers, list, pc->name);

        /* another list has other slots than the one that was matched */

        found = i < list->number
                && ngx_http_kvroute_peers_config(peers) == at->rrp.config
                && at->rrp.config == conf->config;

        if (found) {
            begin->peer = list->id[list->first[i]];
            begin->member = list->member[list->first[i]];
            at->member = begin->member;

            at->rrp.peers = peers;
            at->rrp.current = (ngx_http_upstream_rr_peer_t *)
                              ((u_char *) pc->name
                               - offsetof(ngx_http_upstream_rr_peer_t, name));

            if (k == 0) {
                at->rrp.tried[ngx_http_kvroute_tried_word(i)]
                    |= ngx_http_kvroute_tried_bit(i);
            }
        }

        ngx_http_kvroute_lock_release(conf->zone, peers);
    }

    return found;
}


/* Counts the request at the peer that was taken. */
static void
ngx_http_kvroute_shadow_begin(ngx_peer_connection_t *pc,
    ngx_http_kvroute_shadow_t *s)
{
    kvr_begin_t                  begin;
    kvr_registry_t              *registry;
    kvr_upstream_t              *upstream;
    kvr_decision_t               d;
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_attempt_t  *at;

    at = &s->at;
    ctx = at->ctx;
    registry = at->conf->zone->core.registry;

    ngx_memzero(&begin, sizeof(kvr_begin_t));

    if (!ngx_http_kvroute_shadow_find(pc, at, &begin)) {
        return;
    }

    if (at->matched && begin.peer != KVR_REGISTRY_NONE) {
        begin.matched = ngx_min((uint64_t) at->matched[begin.peer]
                                * KVR_BLOCK, ctx->bytes);
    }

    begin.pending = ctx->bytes + ctx->extra;
    begin.pending -= ngx_min(begin.matched, begin.pending);
    begin.rate = s->rate;

    ngx_http_kvroute_attempt_begin(at, &begin);

    if (begin.peer != KVR_REGISTRY_NONE) {
        kvr_registry_given(registry, begin.peer);
    }

    ngx_http_kvroute_attempt_insert(at);

    ngx_memzero(&d, sizeof(kvr_decision_t));

    d.reason = KVR_REASON_SHADOW;
    d.matched = begin.matched;
    d.best = begin.matched;

    if (s->peer != NGX_HTTP_KVROUTE_UNSET_PEER) {
        d.best = ngx_max(d.best, s->decision.best);
    }

    ngx_http_kvroute_receipt(pc, at, &d);

    if (s->peer == NGX_HTTP_KVROUTE_UNSET_PEER || !ctx->parsed
        || begin.member == KVR_REGISTRY_NONE)
    {
        return;
    }

    upstream = &registry->upstream[registry->member[begin.member].upstream];

    kvr_add(&upstream->shadow, 1);
    kvr_add(&upstream->same, s->peer == begin.peer);
    kvr_add(&upstream->asked, ctx->bytes);
    kvr_add(&upstream->found, begin.matched);
    kvr_add(&upstream->would, s->decision.matched);
}


static void
ngx_http_kvroute_shadow_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_http_kvroute_shadow_t  *s = data;

    ngx_uint_t                   status, result;
    ngx_http_kvroute_attempt_t  *at;

    at = &s->at;
    result = state;

    if (at->core.reservation.held) {
        status = ngx_http_kvroute_attempt_status(at);

        if (ngx_http_kvroute_engine_busy(at->conf, at->core.reservation.peer,
                                         at->ctx->request->upstream, status)
            || status / 100 == 4)
        {
            result &= ~NGX_PEER_FAILED;
        }
    }

    ngx_http_kvroute_attempt_result(at, result);
    ngx_http_kvroute_attempt_end(at, NULL, 0);

    /* may free the peer */

    s->free(pc, s->data, state);
}


#if (NGX_SSL || NGX_COMPAT)

static ngx_int_t
ngx_http_kvroute_shadow_set_session(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kvroute_shadow_t  *s = data;

    return s->set_session(pc, s->data);
}


static void
ngx_http_kvroute_shadow_save_session(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kvroute_shadow_t  *s = data;

    s->save_session(pc, s->data);
}

#endif
