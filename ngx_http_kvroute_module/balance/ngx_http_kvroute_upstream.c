
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The balancer: what nginx calls for an upstream and for each request on it.
 *
 * The body is read and looked up in init(), without a lock.  get() holds the
 * lock of the peers (_lock) while it looks at each of them, asks the policy and
 * takes the one picked: nothing but arithmetic is done there.
 */


#include "zone/ngx_http_kvroute_lock.h"


static ngx_int_t ngx_http_kvroute_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_uint_t ngx_http_kvroute_wants_body(ngx_http_kvroute_attempt_t *at);
static ngx_int_t ngx_http_kvroute_get_peer(ngx_peer_connection_t *pc,
    void *data);
static ngx_int_t ngx_http_kvroute_get_native(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_receipt(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_decision_t *d);
static uint64_t ngx_http_kvroute_clock(void);
static void ngx_http_kvroute_free_peer(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static ngx_uint_t ngx_http_kvroute_stale(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, ngx_uint_t state);


ngx_int_t
ngx_http_kvroute_upstream_init(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us)
{
    ngx_http_kvroute_srv_conf_t  *kscf;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, cf->log, 0, "init kvroute");

    if (ngx_http_upstream_init_round_robin(cf, us) != NGX_OK) {
        return NGX_ERROR;
    }

    us->peer.init = ngx_http_kvroute_init_peer;

    kscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_kvroute_module);
    kscf->in_use = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_uint_t                     body;
    unsigned                       needs;
    ngx_http_kvroute_ctx_t        *ctx;
    ngx_http_kvroute_attempt_t    *at;
    ngx_http_kvroute_srv_conf_t   *kscf;
    ngx_http_kvroute_loc_conf_t   *klcf;
    ngx_http_upstream_rr_peers_t  *peers;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "init kvroute peer");

    kscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_kvroute_module);

    ctx = ngx_http_kvroute_create_ctx(r);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    at = ngx_pcalloc(r->pool, sizeof(ngx_http_kvroute_attempt_t));
    if (at == NULL) {
        return NGX_ERROR;
    }

    at->ctx = ctx;
    at->conf = kscf;
    at->began = ngx_http_kvroute_clock();

    r->upstream->peer.data = &at->rrp;

    if (ngx_http_upstream_init_round_robin_peer(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    r->upstream->peer.get = ngx_http_kvroute_get_peer;
    r->upstream->peer.free = ngx_http_kvroute_free_peer;

    /* an attempt on another upstream before an internal redirect is over */

    if (ctx->attempt) {
        ngx_http_kvroute_attempt_end(ctx->attempt, NULL, 0);
    }

    ngx_http_kvroute_request_enter(ctx);

    ctx->attempt = at;
    ctx->decided = 0;

    peers = at->rrp.peers;

    if (ngx_http_kvroute_peers_current(kscf, 1, r->connection->log) != NGX_OK
        || ngx_http_kvroute_choose_init(kscf, r->connection->log) != NGX_OK)
    {
        return NGX_ERROR;
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    at->policy = klcf->policy ? klcf->policy : &kscf->policy;
    at->bound = NGX_HTTP_KVROUTE_UNSET_PEER;
    at->pin = NGX_HTTP_KVROUTE_UNSET_PEER;
    at->owner = NGX_HTTP_KVROUTE_UNSET_PEER;

    body = ngx_http_kvroute_weigh(r, ctx);

    needs = kvr_policy_needs(at->policy->conf.policy);

    if (at->policy->conf.policy == KVR_POLICY_OFF
        || ngx_http_test_predicates(r, klcf->bypass) != NGX_OK)
    {
        at->native = NGX_HTTP_KVROUTE_BYPASS;
        return NGX_OK;
    }

    /* a session may be asked for by its header alone, a response by its id */

    if (!body && !(needs & KVR_NEEDS_SESSION)
        && klcf->pin == NULL && ctx->endpoint != KVR_ENDPOINT_RESPONSE)
    {
        at->native = NGX_HTTP_KVROUTE_BODYLESS;
        return NGX_OK;
    }

    /*
     * with a single server there is nothing to choose; but sessions are bound,
     * for the day when there are more
     */

    if (peers->single && !(needs & KVR_NEEDS_SESSION)) {
        return NGX_OK;
    }

    if (ngx_http_kvroute_request_salt(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (body && ngx_http_kvroute_wants_body(at)) {
        ngx_http_kvroute_request_read(r, ctx, kscf->zone);
    }

    ngx_http_kvroute_match(r, at);
    ngx_http_kvroute_choose_prepare(at, r->connection->log);

    if (!body && !at->keyed && !at->pinned
        && ctx->endpoint != KVR_ENDPOINT_RESPONSE)
    {
        at->native = NGX_HTTP_KVROUTE_BODYLESS;
    }

    return NGX_OK;
}


/* whether the policy needs to know what is in the body */
static ngx_uint_t
ngx_http_kvroute_wants_body(ngx_http_kvroute_attempt_t *at)
{
    unsigned  needs;

    needs = kvr_policy_needs(at->policy->conf.policy);

    return needs & KVR_NEEDS_BODY
           || (needs & KVR_NEEDS_SESSION && at->policy->key->value.len == 0);
}


static ngx_int_t
ngx_http_kvroute_get_peer(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kvroute_attempt_t  *at = data;

    time_t                         now;
    uintptr_t                      m;
    ngx_int_t                      rc;
    ngx_uint_t                     i, n, offered;
    kvr_decision_t                 d;
    ngx_http_kvroute_zone_t       *zone;
    ngx_http_upstream_rr_peer_t   *best;
    ngx_http_upstream_rr_peers_t  *peers;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "get kvroute peer, try: %ui", pc->tries);

    if (at->tries) {
        at->began = ngx_http_kvroute_clock();
    }

    if (at->native) {
        return ngx_http_kvroute_get_native(pc, at);
    }

    pc->cached = 0;
    pc->connection = NULL;

    now = ngx_time();
    zone = at->conf->zone;

    peers = ngx_http_kvroute_peers_lock(pc, at);

    if (peers == NULL) {
        return NGX_BUSY;
    }

    best = ngx_http_kvroute_choose(at, &i, &offered, &d);

    if (best == NULL && peers->next == NULL
        && ngx_http_kvroute_queue_again(at))
    {
        at->over = 1;
        best = ngx_http_kvroute_choose(at, &i, &offered, &d);
    }

    if (best == NULL) {
        goto failed;
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

    n = i / (8 * sizeof(uintptr_t));
    m = (uintptr_t) 1 << i % (8 * sizeof(uintptr_t));

    at->rrp.tried[n] |= m;

    ngx_http_kvroute_unlock(zone, peers);

    ngx_http_kvroute_attempt_insert(at);
    ngx_http_kvroute_receipt(pc, at, &d);

    if (at->keyed && kvr_policy_needs(at->policy->conf.policy)
                     & KVR_NEEDS_SESSION)
    {
        ngx_http_kvroute_session_keep(at, offered);
    }

    return NGX_OK;

failed:

    if (peers->next) {

        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                       "get kvroute peer, backup servers");

        at->rrp.peers = peers->next;

        n = (at->rrp.peers->number + (8 * sizeof(uintptr_t) - 1))
                / (8 * sizeof(uintptr_t));

        for (i = 0; i < n; i++) {
            at->rrp.tried[i] = 0;
        }

        ngx_http_kvroute_unlock(zone, peers);

        rc = ngx_http_kvroute_get_peer(pc, at);

        if (rc != NGX_BUSY) {
            return rc;
        }

    } else {
        ngx_http_kvroute_unlock(zone, peers);
    }

    pc->name = peers->name;

    return NGX_BUSY;
}


/*
 * Requests without a body, and those that are to bypass us, are nginx's own
 * round robin's, whose distribution users know.  It is told of servers that are
 * full or being drained by marking them as tried, these as long as there are
 * others.  The marks are taken off again: should this try fail, one of those
 * may be all that is left.
 */
static ngx_int_t
ngx_http_kvroute_get_native(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at)
{
    time_t                         now;
    uintptr_t                      m, *tried;
    ngx_int_t                      rc;
    ngx_uint_t                     i, n, max, left, again;
    kvr_begin_t                    begin;
    kvr_decision_t                 d;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = at->conf;
    again = 0;

retry:

    max = ngx_max(conf->list[0].number, conf->list[1].number);

    tried = ngx_pcalloc(at->ctx->request->pool,
                        (max / (8 * sizeof(uintptr_t)) + 1)
                        * sizeof(uintptr_t));
    if (tried == NULL) {
        return NGX_ERROR;
    }

    peers = ngx_http_kvroute_peers_lock(pc, at);

    if (peers == NULL) {
        return NGX_BUSY;
    }

    list = &conf->list[peers != conf->upstream->peer.data];
    now = ngx_time();
    left = 0;

    /* there was no room made for what has come meanwhile */

    if (list->number > max) {
        ngx_http_kvroute_unlock(conf->zone, peers);
        goto retry;
    }

    for (peer = peers->peer, i = 0;
         peer && i < list->number;
         peer = peer->next, i++)
    {
        n = i / (8 * sizeof(uintptr_t));
        m = (uintptr_t) 1 << i % (8 * sizeof(uintptr_t));

        if (ngx_http_kvroute_full(conf, peer, list->member[i], at->ctx->wait)) {
            tried[n] |= m & ~at->rrp.tried[n];

        } else if (!(at->rrp.tried[n] & m)
                   && !peer->down
                   && (peer->max_fails == 0
                       || peer->fails < peer->max_fails
                       || now - peer->checked > peer->fail_timeout))
        {
            left += !kvr_candidate_draining(&conf->zone->core, list->id[i]);
        }
    }

    for (i = 0; i < list->number; i++) {
        n = i / (8 * sizeof(uintptr_t));
        m = (uintptr_t) 1 << i % (8 * sizeof(uintptr_t));

        if (left && kvr_candidate_draining(&conf->zone->core, list->id[i])) {
            tried[n] |= m & ~at->rrp.tried[n];
        }

        at->rrp.tried[n] |= tried[n];
    }

    ngx_http_kvroute_unlock(conf->zone, peers);

    rc = ngx_http_upstream_get_round_robin_peer(pc, &at->rrp);

    for (n = 0; at->rrp.peers == peers && n * 8 * sizeof(uintptr_t) < i; n++) {
        at->rrp.tried[n] &= ~tried[n];
    }

    /* servers may have changed since the lock was let go */

    if (rc == NGX_BUSY
        && at->rrp.config != ngx_http_kvroute_peers_config(peers)
        && again++ < 3)
    {
        goto retry;
    }

    /* nginx's own knows no place that was given: see get_peer() */

    if (rc == NGX_BUSY && at->rrp.peers->next == NULL
        && ngx_http_kvroute_queue_again(at))
    {
        at->native = 0;
        at->over = 1;

        ngx_http_kvroute_choose_prepare(at, pc->log);

        return ngx_http_kvroute_get_peer(pc, at);
    }

    if (rc != NGX_OK && rc != NGX_DONE) {
        return rc;
    }

    ngx_memzero(&d, sizeof(kvr_decision_t));

    d.reason = (at->native == NGX_HTTP_KVROUTE_BYPASS) ? KVR_REASON_BYPASS
                                                       : KVR_REASON_BODYLESS;

    if (at->tries) {
        d.reason = KVR_REASON_RETRY;
    }

    peers = at->rrp.peers;
    list = &conf->list[peers != conf->upstream->peer.data];

    ngx_http_kvroute_rlock(conf->zone, peers);

    for (peer = peers->peer, i = 0;
         peer && i < list->number;
         peer = peer->next, i++)
    {
        if (peer == at->rrp.current) {
            ngx_memzero(&begin, sizeof(kvr_begin_t));

            begin.peer = list->id[i];
            begin.member = list->member[i];
            begin.pending = at->ctx->bytes;

            ngx_http_kvroute_attempt_begin(at, &begin);
            break;
        }
    }

    ngx_http_kvroute_unlock(conf->zone, peers);

    ngx_http_kvroute_receipt(pc, at, &d);

    return rc;
}


/* what was decided and why: for variables, status and log */
static void
ngx_http_kvroute_receipt(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_decision_t *d)
{
    ngx_time_t                *tp;
    kvr_member_t              *member;
    kvr_receipt_t              receipt;
    kvr_upstream_t            *upstream;
    ngx_http_kvroute_ctx_t    *ctx;
    ngx_http_kvroute_shctx_t  *sh;

    ctx = at->ctx;

    ctx->decided = 1;
    ctx->policy = at->native ? KVR_POLICY_OFF : at->policy->conf.policy;
    ctx->reason = d->reason;
    ctx->matched = d->matched;
    ctx->best = d->best;
    ctx->cost = d->cost;
    ctx->ttft_set = 0;

    kvr_response_init(&ctx->usage, KVR_RESPONSE_FIRST, 0);

    at->tries++;

    /* the peer may be gone when the request is logged */

    ctx->peer.data = ngx_pnalloc(ctx->request->pool, pc->name->len);

    if (ctx->peer.data) {
        ctx->peer.len = pc->name->len;
        ngx_memcpy(ctx->peer.data, pc->name->data, pc->name->len);

    } else {
        ctx->peer.len = 0;
    }

    ngx_log_debug7(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "kvroute decision: %V %s, prompt %uL matched %uL best %uL "
                   "cost %.0f pending %uL",
                   &ctx->peer, kvr_reason_name(d->reason), ctx->bytes,
                   d->matched, d->best, d->cost, at->core.reservation.pending);

    if (!at->core.reservation.held
        || at->core.reservation.peer == KVR_REGISTRY_NONE) {
        return;
    }

    sh = at->conf->zone->sh;
    member = &sh->registry->member[at->core.reservation.member];
    upstream = &sh->registry->upstream[member->upstream];

    kvr_add(&member->requests, 1);
    kvr_add(&member->reason[d->reason], 1);
    kvr_set(&member->selected, (uint64_t) ngx_time());

    if (ctx->parsed) {
        kvr_add(&member->prompt, ctx->bytes);
        kvr_add(&member->matched, d->matched);
        kvr_add(&member->best, d->best);

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
    receipt.peer = (uint8_t) at->core.reservation.peer;
    receipt.policy = (uint8_t) ctx->policy;
    receipt.reason = (uint8_t) d->reason;

    at->receipt = kvr_receipt_put(sh->receipts, &receipt);

    kvr_stats_observe(&upstream->stats, KVR_STATS_DECISION,
                      ngx_http_kvroute_clock() - at->began);
}


/* ns; nginx's own clock stands still within an event */
static uint64_t
ngx_http_kvroute_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


static void
ngx_http_kvroute_free_peer(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_http_kvroute_attempt_t  *at = data;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "free kvroute peer %ui %ui", pc->tries, state);

    if (ngx_http_kvroute_stale(pc, at, state)) {
        state = 0;
    }

    /* who asks to be left alone for a while is no worse for it */

    if (at->core.reservation.held && ngx_http_kvroute_busy(at)) {
        state &= ~NGX_PEER_FAILED;
    }

    /* nor for what is the client's fault, though it may be tried elsewhere */

    if (at->core.reservation.held && ngx_http_kvroute_attempt_status(at) / 100
        == 4) {
        state &= ~NGX_PEER_FAILED;
    }

    ngx_http_kvroute_attempt_result(at, state);

    /* the peer may be gone after this */

    ngx_http_kvroute_attempt_end(at, pc, state);
}


/*
 * A kept connection that the peer has closed meanwhile says nothing about the
 * peer: once in a request it is forgiven, so that the next try may go to the
 * same, warm one.  nginx does not take the try from the request either.
 */
static ngx_uint_t
ngx_http_kvroute_stale(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, ngx_uint_t state)
{
    ngx_uint_t                     i, n;
    ngx_http_upstream_t           *u;
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

    peers = at->rrp.peers;

    ngx_http_kvroute_wlock(at->conf->zone, peers);

    for (peer = peers->peer, i = 0; peer; peer = peer->next, i++) {

        if (peer == at->rrp.current) {
            n = i / (8 * sizeof(uintptr_t));
            at->rrp.tried[n] &= ~((uintptr_t) 1
                                  << i % (8 * sizeof(uintptr_t)));

            /* nor does it say that the peer is well: its fails stand */

            peer->accessed = ngx_max(peer->accessed, peer->checked);

            break;
        }
    }

    ngx_http_kvroute_unlock(at->conf->zone, peers);

    return 1;
}
