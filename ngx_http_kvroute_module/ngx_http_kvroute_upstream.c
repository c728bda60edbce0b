
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The balancer: what nginx calls for an upstream and for each request on it.
 *
 * The body is read and looked up in init(), without a lock.  get() holds the
 * lock of the peers while it looks at each of them, asks the policy and takes
 * the one picked: nothing but arithmetic is done there, since a worker that is
 * killed inside would leave the lock held, as in any other balancer of nginx.
 */


#include "ngx_http_kvroute.h"


static ngx_int_t ngx_http_kvroute_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static void ngx_http_kvroute_match(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
static ngx_int_t ngx_http_kvroute_candidates(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
static ngx_int_t ngx_http_kvroute_get_peer(ngx_peer_connection_t *pc,
    void *data);
static ngx_http_upstream_rr_peers_t *ngx_http_kvroute_lock_peers(
    ngx_peer_connection_t *pc, ngx_http_kvroute_attempt_t *at);
static ngx_http_upstream_rr_peer_t *ngx_http_kvroute_pick(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index, kvr_decision_t *d);
static ngx_uint_t ngx_http_kvroute_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t seat);
static ngx_int_t ngx_http_kvroute_get_bodyless(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_receipt(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_decision_t *d);
static void ngx_http_kvroute_free_peer(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static ngx_uint_t ngx_http_kvroute_stale(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, ngx_uint_t state);
static void ngx_http_kvroute_count_response(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t state);


/* candidates of this worker's decision: room for the longest list */

typedef struct {
    ngx_http_upstream_rr_peer_t  *peer;
    uint32_t                      index;   /* in the list */
} ngx_http_kvroute_offer_t;


static kvr_candidate_t           *ngx_http_kvroute_candidate;
static ngx_http_kvroute_offer_t  *ngx_http_kvroute_offer;
static ngx_uint_t                 ngx_http_kvroute_max_candidates;


ngx_int_t
ngx_http_kvroute_upstream_init(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, cf->log, 0, "init kvroute");

    if (ngx_http_upstream_init_round_robin(cf, us) != NGX_OK) {
        return NGX_ERROR;
    }

    us->peer.init = ngx_http_kvroute_init_peer;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_http_kvroute_ctx_t        *ctx;
    ngx_http_kvroute_attempt_t    *at;
    ngx_http_kvroute_srv_conf_t   *kscf;
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

    r->upstream->peer.data = &at->rrp;

    if (ngx_http_upstream_init_round_robin_peer(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    r->upstream->peer.get = ngx_http_kvroute_get_peer;
    r->upstream->peer.free = ngx_http_kvroute_free_peer;

    /* an attempt on another upstream before an internal redirect is over */

    if (ctx->attempt) {
        ngx_http_kvroute_attempt_end(ctx->attempt);
    }

    ctx->attempt = at;
    ctx->decided = 0;

    peers = at->rrp.peers;

    if (!kscf->ready || kscf->config != ngx_http_kvroute_peers_config(peers)) {

        if (ngx_http_kvroute_zone_peers(kscf, r->connection->log) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (ngx_http_kvroute_candidates(kscf, r->connection->log) != NGX_OK) {
        return NGX_ERROR;
    }

    if (r->request_body == NULL
        || r->headers_in.content_length_n == 0
        || (r->request_body->bufs == NULL && !r->reading_body))
    {
        at->bodyless = 1;
        return NGX_OK;
    }

    /* with a single server there is nothing to choose */

    if (kscf->policy == KVR_POLICY_KV_CACHE && !peers->single) {
        ngx_http_kvroute_request_read(r, ctx, kscf->zone);
        ngx_http_kvroute_match(r, at);

    } else if (!ctx->read) {
        ctx->bytes = ngx_max(r->headers_in.content_length_n, 0);
    }

    return NGX_OK;
}


/* finds out how much of the prompt each peer holds */
static void
ngx_http_kvroute_match(ngx_http_request_t *r, ngx_http_kvroute_attempt_t *at)
{
    uint64_t                     *chain, set;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_srv_conf_t  *conf;

    ctx = at->ctx;
    conf = at->conf;

    if (!ctx->parsed || ctx->entries == 0 || conf->set == 0) {
        return;
    }

    set = conf->set;

    chain = ngx_http_kvroute_request_chain(r, ctx, conf->zone);
    if (chain == NULL) {
        return;
    }

    at->matched = ngx_pcalloc(r->pool, (64 - __builtin_clzll(set))
                                       * sizeof(uint32_t));
    if (at->matched == NULL) {
        return;
    }

    kvr_index_lookup(conf->zone->sh->index, chain, ctx->entries, set,
                     at->matched);
}


static ngx_int_t
ngx_http_kvroute_candidates(ngx_http_kvroute_srv_conf_t *conf, ngx_log_t *log)
{
    ngx_uint_t  n;

    n = ngx_max(conf->list[0].number, conf->list[1].number);

    if (n <= ngx_http_kvroute_max_candidates) {
        return NGX_OK;
    }

    ngx_http_kvroute_upstream_exit();

    ngx_http_kvroute_candidate = ngx_alloc(n * sizeof(kvr_candidate_t), log);
    ngx_http_kvroute_offer = ngx_alloc(n * sizeof(ngx_http_kvroute_offer_t),
                                       log);

    if (ngx_http_kvroute_candidate == NULL || ngx_http_kvroute_offer == NULL) {
        ngx_http_kvroute_upstream_exit();
        return NGX_ERROR;
    }

    ngx_http_kvroute_max_candidates = n;

    return NGX_OK;
}


/* gives the room for candidates back */
void
ngx_http_kvroute_upstream_exit(void)
{
    free(ngx_http_kvroute_candidate);
    free(ngx_http_kvroute_offer);

    ngx_http_kvroute_candidate = NULL;
    ngx_http_kvroute_offer = NULL;
    ngx_http_kvroute_max_candidates = 0;
}


static ngx_int_t
ngx_http_kvroute_get_peer(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kvroute_attempt_t  *at = data;

    time_t                         now;
    uintptr_t                      m;
    ngx_int_t                      rc;
    ngx_uint_t                     i, n;
    kvr_decision_t                 d;
    ngx_http_upstream_rr_peer_t   *best;
    ngx_http_upstream_rr_peers_t  *peers;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "get kvroute peer, try: %ui", pc->tries);

    if (at->bodyless) {
        return ngx_http_kvroute_get_bodyless(pc, at);
    }

    pc->cached = 0;
    pc->connection = NULL;

    now = ngx_time();

    peers = ngx_http_kvroute_lock_peers(pc, at);

    if (peers == NULL) {
        return NGX_BUSY;
    }

    best = ngx_http_kvroute_pick(at, &i, &d);

    if (best == NULL) {
        goto failed;
    }

    if (now - best->checked > best->fail_timeout) {
        best->checked = now;
    }

    pc->sockaddr = best->sockaddr;
    pc->socklen = best->socklen;
    pc->name = &best->name;

    best->conns++;

    at->rrp.current = best;
    ngx_http_upstream_rr_peer_ref(peers, best);

    n = i / (8 * sizeof(uintptr_t));
    m = (uintptr_t) 1 << i % (8 * sizeof(uintptr_t));

    at->rrp.tried[n] |= m;

    ngx_http_upstream_rr_peers_unlock(peers);

    ngx_http_kvroute_attempt_teach(at);
    ngx_http_kvroute_receipt(pc, at, &d);

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

        ngx_http_upstream_rr_peers_unlock(peers);

        rc = ngx_http_kvroute_get_peer(pc, at);

        if (rc != NGX_BUSY) {
            return rc;
        }

        ngx_http_upstream_rr_peers_wlock(peers);
    }

    ngx_http_upstream_rr_peers_unlock(peers);

    pc->name = peers->name;

    return NGX_BUSY;
}


/*
 * Locks the peers for writing.  If servers were added or removed since init(),
 * nginx's own balancers give up; there is no need to: what was found out about
 * those that are left still holds.
 */
static ngx_http_upstream_rr_peers_t *
ngx_http_kvroute_lock_peers(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at)
{
    size_t                         size;
    ngx_uint_t                     i, config;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers, *all;

    conf = at->conf;

    for (i = 0; i < 3; i++) {

        peers = at->rrp.peers;

        ngx_http_upstream_rr_peers_wlock(peers);

        config = ngx_http_kvroute_peers_config(peers);

        if (config == at->rrp.config && config == conf->config) {
            return peers;
        }

        ngx_http_upstream_rr_peers_unlock(peers);

        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                       "kvroute peers changed: %ui %ui", config,
                       at->rrp.config);

        if (config != conf->config
            && (ngx_http_kvroute_zone_peers(conf, pc->log) != NGX_OK
                || ngx_http_kvroute_candidates(conf, pc->log) != NGX_OK))
        {
            break;
        }

        all = conf->upstream->peer.data;

        size = ngx_max(conf->list[0].number, conf->list[1].number);
        size = (size + (8 * sizeof(uintptr_t) - 1)) / (8 * sizeof(uintptr_t));

        at->rrp.tried = ngx_pcalloc(at->ctx->request->pool,
                                    size * sizeof(uintptr_t));
        if (at->rrp.tried == NULL) {
            break;
        }

        at->rrp.peers = all;
        at->rrp.config = conf->config;
        pc->tries = ngx_max(pc->tries, 1);

        /* matched[] goes by number, and new ones may have been given out */

        at->matched = NULL;
        ngx_http_kvroute_match(at->ctx->request, at);
    }

    peers = at->rrp.peers;
    pc->name = peers->name;

    return NULL;
}


/* asks the policy; called under the peers' lock */
static ngx_http_upstream_rr_peer_t *
ngx_http_kvroute_pick(ngx_http_kvroute_attempt_t *at, ngx_uint_t *index,
    kvr_decision_t *d)
{
    time_t                         now;
    uint32_t                       id, seat, given;
    uint64_t                       pending, unit;
    uintptr_t                      m;
    ngx_uint_t                     i, n, count;
    kvr_load_sum_t                 sum;
    kvr_candidate_t               *c;
    kvr_policy_request_t           req;
    ngx_http_kvroute_ctx_t        *ctx;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_offer_t      *offer;
    ngx_http_kvroute_shctx_t      *sh;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    now = ngx_time();

    ctx = at->ctx;
    conf = at->conf;
    peers = at->rrp.peers;
    sh = conf->zone->sh;
    unit = sh->unit * KVR_BLOCK;

    list = &conf->list[peers != conf->upstream->peer.data];
    given = sh->registry->given;

    count = 0;

    for (peer = peers->peer, i = 0;
         peer && i < list->number;
         peer = peer->next, i++)
    {
        n = i / (8 * sizeof(uintptr_t));
        m = (uintptr_t) 1 << i % (8 * sizeof(uintptr_t));

        if (at->rrp.tried[n] & m) {
            continue;
        }

        if (peer->down) {
            continue;
        }

        if (peer->max_fails
            && peer->fails >= peer->max_fails
            && now - peer->checked <= peer->fail_timeout)
        {
            continue;
        }

        id = list->id[i];

        if (ngx_http_kvroute_full(conf, peer, list->seat[i])) {
            continue;
        }

        c = &ngx_http_kvroute_candidate[count];

        c->weight = (uint32_t) peer->weight;
        c->current_weight = peer->current_weight;
        c->effective_weight = peer->effective_weight;

        if (id != KVR_REGISTRY_NONE) {
            sum = kvr_load_get(sh->load, id);

            c->active = sum.active;
            c->pending = sum.pending;
            c->idle = given - sh->registry->peer[id].given;
            c->matched = at->matched
                         ? ngx_min(at->matched[id] * unit, ctx->bytes) : 0;

        } else {
            c->active = (uint32_t) peer->conns;
            c->pending = 0;
            c->idle = 0;
            c->matched = 0;
        }

        offer = &ngx_http_kvroute_offer[count++];

        offer->peer = peer;
        offer->index = (uint32_t) i;
    }

    if (count == 0) {
        return NULL;
    }

    req.policy = conf->policy;
    req.bytes = ctx->bytes + ctx->extra;
    req.random = (uint64_t) ngx_random() << 32 ^ given;
    req.parsed = ctx->parsed;
    req.retry = (at->tries != 0);

    kvr_policy_pick(&req, ngx_http_kvroute_candidate, (uint32_t) count, d);

    if (conf->policy == KVR_POLICY_ROUND_ROBIN) {

        for (n = 0; n < count; n++) {
            c = &ngx_http_kvroute_candidate[n];
            peer = ngx_http_kvroute_offer[n].peer;

            peer->current_weight = c->current_weight;
            peer->effective_weight = c->effective_weight;
        }
    }

    offer = &ngx_http_kvroute_offer[d->pick];

    i = offer->index;
    id = list->id[i];
    seat = list->seat[i];

    pending = req.bytes - ngx_min(d->matched, req.bytes);

    ngx_http_kvroute_attempt_begin(at, id, seat, pending);

    if (id != KVR_REGISTRY_NONE) {
        sh->registry->peer[id].given = ++sh->registry->given;
    }

    *index = i;

    return offer->peer;
}


/*
 * nginx never returns the connections of a killed worker, so that max_conns is
 * held against counts of our own, which heal.
 */
static ngx_uint_t
ngx_http_kvroute_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t seat)
{
    ngx_uint_t  conns;

    if (peer->max_conns == 0) {
        return 0;
    }

    conns = peer->conns;

    if (seat != KVR_REGISTRY_NONE) {
        conns = kvr_load_get(conf->zone->sh->load,
                             kvr_registry_column(seat)).active;
    }

    return conns >= peer->max_conns;
}


/*
 * Requests without a body are nginx's own round robin's, whose distribution
 * users know.  It is told of full servers by marking them as tried.
 */
static ngx_int_t
ngx_http_kvroute_get_bodyless(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at)
{
    ngx_int_t                      rc;
    ngx_uint_t                     i, n;
    kvr_decision_t                 d;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = at->conf;

    peers = ngx_http_kvroute_lock_peers(pc, at);

    if (peers == NULL) {
        return NGX_BUSY;
    }

    list = &conf->list[peers != conf->upstream->peer.data];

    for (peer = peers->peer, i = 0;
         peer && i < list->number;
         peer = peer->next, i++)
    {
        if (ngx_http_kvroute_full(conf, peer, list->seat[i])) {
            n = i / (8 * sizeof(uintptr_t));
            at->rrp.tried[n] |= (uintptr_t) 1 << i % (8 * sizeof(uintptr_t));
        }
    }

    ngx_http_upstream_rr_peers_unlock(peers);

    rc = ngx_http_upstream_get_round_robin_peer(pc, &at->rrp);

    if (rc != NGX_OK && rc != NGX_DONE) {
        return rc;
    }

    ngx_memzero(&d, sizeof(kvr_decision_t));

    d.reason = at->tries ? KVR_REASON_RETRY : KVR_REASON_BODYLESS;

    peers = at->rrp.peers;
    list = &conf->list[peers != conf->upstream->peer.data];

    ngx_http_upstream_rr_peers_rlock(peers);

    for (peer = peers->peer, i = 0;
         peer && i < list->number;
         peer = peer->next, i++)
    {
        if (peer == at->rrp.current) {
            ngx_http_kvroute_attempt_begin(at, list->id[i], list->seat[i], 0);
            break;
        }
    }

    ngx_http_upstream_rr_peers_unlock(peers);

    ngx_http_kvroute_receipt(pc, at, &d);

    return rc;
}


/* what was decided and why: for variables, status and log */
static void
ngx_http_kvroute_receipt(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_decision_t *d)
{
    kvr_seat_t              *seat;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;

    ctx->decided = 1;
    ctx->policy = at->bodyless ? KVR_POLICY_OFF : at->conf->policy;
    ctx->reason = d->reason;
    ctx->matched = d->matched;
    ctx->best = d->best;
    ctx->cost = d->cost;
    ctx->ttft_set = 0;

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
                   d->matched, d->best, d->cost, at->pending);

    if (!at->reserved || at->id == KVR_REGISTRY_NONE) {
        return;
    }

    seat = &at->conf->zone->sh->registry->seat[at->seat];

    kvr_add(&seat->requests, 1);
    kvr_add(&seat->reason[d->reason], 1);
    kvr_set(&seat->selected, (uint64_t) ngx_time());

    if (ctx->parsed) {
        kvr_add(&seat->prompt, ctx->bytes);
        kvr_add(&seat->matched, d->matched);
        kvr_add(&seat->best, d->best);
    }
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

    ngx_http_kvroute_count_response(at, state);
    ngx_http_kvroute_attempt_end(at);

    /* the peer may be gone after this */

    ngx_http_upstream_free_round_robin_peer(pc, &at->rrp, state);
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

    ngx_http_upstream_rr_peers_rlock(peers);

    for (peer = peers->peer, i = 0; peer; peer = peer->next, i++) {

        if (peer == at->rrp.current) {
            n = i / (8 * sizeof(uintptr_t));
            at->rrp.tried[n] &= ~((uintptr_t) 1
                                  << i % (8 * sizeof(uintptr_t)));
            break;
        }
    }

    ngx_http_upstream_rr_peers_unlock(peers);

    return 1;
}


static void
ngx_http_kvroute_count_response(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t state)
{
    ngx_uint_t            status;
    kvr_seat_t           *seat;
    ngx_http_upstream_t  *u;

    if (!at->reserved || at->id == KVR_REGISTRY_NONE) {
        return;
    }

    seat = &at->conf->zone->sh->registry->seat[at->seat];

    if (state & NGX_PEER_FAILED) {
        kvr_add(&seat->fails, 1);
    }

    u = at->ctx->request->upstream;
    status = u->headers_in.status_n;

    if (status >= 100 && status < 600) {
        kvr_add(&seat->responses[status / 100 - 1], 1);
    }
}
