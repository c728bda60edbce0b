
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Makes candidates of the usable peers, and asks the policy.
 *
 * What depends on the request was looked up before, without a lock.  The state
 * of the peers is read under their lock, at the moment of the decision.
 */


#include "balance/ngx_http_kvroute_balance_int.h"
#include "core/route/kvr_route.h"


static ngx_inline ngx_uint_t ngx_http_kvroute_choose_eligible(
    ngx_http_kvroute_attempt_t *at, ngx_http_upstream_rr_peer_t *peer,
    ngx_uint_t i, ngx_uint_t hinted, kvr_member_t *member, time_t now);
static void ngx_http_kvroute_choose_reserve(ngx_http_kvroute_attempt_t *at,
    kvr_begin_t *begin);
static ngx_uint_t ngx_http_kvroute_choose_offer(
    ngx_http_kvroute_attempt_t *at, kvr_view_t *v, ngx_uint_t another_rank,
    ngx_uint_t *named, ngx_uint_t *offered);
static void ngx_http_kvroute_choose_ask(ngx_http_kvroute_attempt_t *at,
    kvr_view_t *v, ngx_uint_t count, ngx_uint_t named, kvr_decision_t *d);
static void ngx_http_kvroute_choose_view(ngx_http_kvroute_attempt_t *at,
    kvr_view_t *v);


/* scratch memory of this worker, for the longest list */

static kvr_candidate_t           *ngx_http_kvroute_candidate;
static ngx_http_kvroute_offer_t  *ngx_http_kvroute_offer;
static ngx_uint_t                 ngx_http_kvroute_max_candidates;


ngx_int_t
ngx_http_kvroute_choose_init(ngx_http_kvroute_srv_conf_t *conf, ngx_log_t *log)
{
    ngx_uint_t  n;

    n = ngx_max(conf->list[0].targets, conf->list[1].targets);

    if (n <= ngx_http_kvroute_max_candidates) {
        return NGX_OK;
    }

    ngx_http_kvroute_choose_exit();

    ngx_http_kvroute_candidate = ngx_alloc(n * sizeof(kvr_candidate_t), log);
    ngx_http_kvroute_offer = ngx_alloc(n * sizeof(ngx_http_kvroute_offer_t),
                                       log);

    if (ngx_http_kvroute_candidate == NULL || ngx_http_kvroute_offer == NULL) {
        ngx_http_kvroute_choose_exit();
        return NGX_ERROR;
    }

    ngx_http_kvroute_max_candidates = n;

    return NGX_OK;
}


void
ngx_http_kvroute_choose_exit(void)
{
    free(ngx_http_kvroute_candidate);
    free(ngx_http_kvroute_offer);

    ngx_http_kvroute_candidate = NULL;
    ngx_http_kvroute_offer = NULL;

    ngx_http_kvroute_max_candidates = 0;
}


ngx_int_t
ngx_http_kvroute_choose_peers(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    ngx_uint_t                    n;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = at->conf;

    if (ngx_http_kvroute_peers_current(conf, 1, r->connection->log) != NGX_OK
        || ngx_http_kvroute_choose_init(conf, r->connection->log) != NGX_OK)
    {
        return NGX_ERROR;
    }

    n = ngx_max(conf->list[0].number, conf->list[1].number);
    n = ngx_http_kvroute_tried_words(n);

    at->rrp.tried = ngx_pcalloc(r->pool, n * sizeof(uintptr_t));
    if (at->rrp.tried == NULL) {
        return NGX_ERROR;
    }

    at->rrp.peers = conf->upstream->peer.data;
    at->rrp.config = conf->config;

    return NGX_OK;
}


/*
 * nginx's own balancers fail a request if servers were added or removed since
 * init().  This one matches the request again.
 */
ngx_http_upstream_rr_peers_t *
ngx_http_kvroute_choose_lock(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at)
{
    ngx_uint_t                     i, config;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = at->conf;

    for (i = 0; i < 3; i++) {

        peers = at->rrp.peers;

        ngx_http_kvroute_lock_write(conf->zone, peers);

        config = ngx_http_kvroute_peers_config(peers);

        if (config == at->rrp.config && config == conf->config) {
            return peers;
        }

        ngx_http_kvroute_lock_release(conf->zone, peers);

        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                       "kvroute peers changed: %ui %ui", config,
                       at->rrp.config);

        if (ngx_http_kvroute_choose_peers(at->ctx->request, at) != NGX_OK) {
            break;
        }

        pc->tries = ngx_max(pc->tries, 1);

        /* matched[] is by slot, and slots may have changed */

        ngx_http_kvroute_match_init(at);
        ngx_http_kvroute_match(at->ctx->request, at);
    }

    peers = at->rrp.peers;
    pc->name = peers->name;

    return NULL;
}


ngx_http_upstream_rr_peer_t *
ngx_http_kvroute_choose(ngx_http_kvroute_attempt_t *at, ngx_uint_t *index,
    ngx_uint_t *offered, kvr_decision_t *d)
{
    uint32_t                     id;
    kvr_view_t                   view;
    ngx_uint_t                   i, t, count, named;
    kvr_begin_t                  begin;
    ngx_http_kvroute_list_t     *list;
    ngx_http_kvroute_offer_t    *offer;

    ngx_http_kvroute_choose_view(at, &view);

    count = ngx_http_kvroute_choose_offer(at, &view, 0, &named, offered);

    /* no peer has the rank in the header: use any rank */

    if (kvr_unlikely(count == 0 && at->conf->ranks
                     && at->mode == NGX_HTTP_KVROUTE_DECIDED))
    {
        count = ngx_http_kvroute_choose_offer(at, &view, 1, &named, offered);
    }

    if (view.outliers
        && kvr_eject_looked(view.zone, view.pool, view.silent, view.now))
    {
        at->silent = view.silent + 1;
    }

    if (kvr_unlikely(at->ctx->leg && at->ctx->leg->price)) {
        ngx_http_kvroute_match_price(at, ngx_http_kvroute_candidate,
                                     ngx_http_kvroute_offer, count, view.rate);
    }

    if (count == 0) {
        return NULL;
    }

    ngx_http_kvroute_choose_ask(at, &view, count, named, d);

    list = ngx_http_kvroute_balance_list(at);
    offer = &ngx_http_kvroute_offer[d->pick];

    begin.doubted = list->member[list->first[offer->index]];
    begin.arm = KVR_TRIAL_NONE;

    if (kvr_unlikely(ngx_http_kvroute_candidate[d->pick].flags
                     || at->rank.wanted
                     || ngx_http_kvroute_balance_fallback(at)))
    {
        begin.arm = ngx_http_kvroute_eject_trial(at, ngx_http_kvroute_candidate,
                                                 count, d->pick, view.random);
    }

    if (kvr_unlikely(begin.arm == KVR_TRIAL_ELSEWHERE)) {
        ngx_http_kvroute_choose_ask(at, &view, count, named, d);
    }

    offer = &ngx_http_kvroute_offer[d->pick];
    i = offer->index;
    t = ngx_http_kvroute_candidate[d->pick].place;

    if (kvr_unlikely(at->conf->ranks)) {
        t = ngx_http_kvroute_rank_take(at, list, i, t);

        if (at->rank.unknown) {
            d->matched = 0;
        }

        if (at->rank.wanted && at->tries == 0) {
            d->reason = KVR_REASON_PINNED;
        }
    }

    id = list->id[t];
    at->member = list->member[t];

    begin.peer = id;
    begin.member = list->member[list->first[i]];
    begin.pending = at->ctx->bytes + at->ctx->extra;
    begin.pending -= ngx_min(d->matched, begin.pending);
    begin.pending += ngx_http_kvroute_candidate[d->pick].fetch;

    /* transferred blocks were not cached there */

    if (kvr_unlikely(at->ctx->leg && at->ctx->leg->decode)) {
        d->matched = (at->matched == NULL || id == KVR_REGISTRY_NONE) ? 0
                     : ngx_min((uint64_t) at->matched[id] * KVR_BLOCK,
                               at->ctx->bytes);
    }

    begin.matched = d->matched;
    begin.best = d->best;
    begin.rate = view.rate;

    if (at->mode == NGX_HTTP_KVROUTE_AHEAD) {
        ngx_http_kvroute_choose_reserve(at, &begin);

    } else {

        /*
         * Keep these two adjacent.  If the worker dies between them peer->conns
         * stays one too high; after both, healing undoes it.
         */

        offer->peer->conns++;
        ngx_http_kvroute_attempt_begin(at, &begin);
    }

    if (id != KVR_REGISTRY_NONE) {
        kvr_registry_given(view.zone->registry, id);
    }

    *index = i;

    return offer->peer;
}


/* Reserves a place, and then releases the older reservation. */
static void
ngx_http_kvroute_choose_reserve(ngx_http_kvroute_attempt_t *at,
    kvr_begin_t *begin)
{
    kvr_reservation_t            new;
    ngx_http_kvroute_reserve_t  *reserved;

    reserved = at->early->reserved;

    ngx_memzero(&new, sizeof(kvr_reservation_t));

    new.peer = begin->peer;
    new.member = begin->member;
    new.pending = begin->pending;
    new.resident = ngx_http_kvroute_request_resident(at->ctx);
    new.unanswered = !at->ctx->no_prefill;
    new.queued = 1;

    kvr_reservation_take(&at->conf->zone->core, &new);

    ngx_http_kvroute_reserve_release(reserved);

    reserved->core = new;
    reserved->conf = at->conf;

    at->early->begin = *begin;
}


ngx_http_upstream_rr_peer_t *
ngx_http_kvroute_choose_decided(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t *index)
{
    time_t                        now;
    ngx_uint_t                    i, t;
    kvr_begin_t                   begin;
    kvr_reservation_t            *own;
    ngx_peer_connection_t        *pc;
    ngx_http_kvroute_list_t      *list;
    ngx_http_kvroute_early_t     *early;
    ngx_http_upstream_rr_peer_t  *peer;

    now = ngx_time();
    early = at->early;
    begin = early->begin;
    own = ngx_http_kvroute_reserve_held(&at->ctx->reserved, at->conf);
    pc = &at->ctx->request->upstream->peer;
    list = ngx_http_kvroute_balance_list(at);

    ngx_http_kvroute_peers_each(peer, i, at->rrp.peers, list) {
        if (list->member[list->first[i]] != begin.member) {
            continue;
        }

        /* a peer without a slot is identified by its index in this list */

        if (begin.member == KVR_REGISTRY_NONE
            && (list != early->list || i != early->index
                || at->rrp.config != early->config))
        {
            continue;
        }

        /* a server that is listed several times: any entry will do */

        if (!ngx_http_kvroute_hinted_away(pc, peer)
            && ngx_http_kvroute_choose_eligible(at, peer, i, 0, NULL, now)
            && (at->over
                || !ngx_http_kvroute_peers_full(at->conf, list, i, peer, own)))
        {
            break;
        }
    }

    if (peer == NULL || i == list->number) {
        return NULL;
    }

    /* the server may have fewer ranks now */

    t = list->first[i];

    while (t < list->first[i + 1] && list->id[t] != begin.peer) {
        t++;
    }

    if (t == list->first[i + 1]) {
        return NULL;
    }

    if (at->conf->ranks) {
        t = ngx_http_kvroute_rank_take(at, list, i, t);
    }

    at->member = list->member[t];

    /* adjacent, as in choose() */

    peer->conns++;
    ngx_http_kvroute_attempt_begin(at, &begin);

    *index = i;

    return peer;
}


uint32_t
ngx_http_kvroute_choose_shadow(ngx_http_kvroute_attempt_t *at,
    kvr_decision_t *d, uint32_t *rate)
{
    uint32_t                       id;
    kvr_view_t                     view;
    ngx_uint_t                     count, named, offered;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = at->conf;
    peers = conf->upstream->peer.data;
    at->rrp.peers = peers;

    id = NGX_HTTP_KVROUTE_UNSET_PEER;

    ngx_http_kvroute_lock_read(conf->zone, peers);

    if (ngx_http_kvroute_peers_config(peers) == conf->config
        && at->rrp.config == conf->config)
    {
        ngx_http_kvroute_choose_view(at, &view);

        count = ngx_http_kvroute_choose_offer(at, &view, 0, &named, &offered);

        if (count) {
            ngx_http_kvroute_choose_ask(at, &view, count, named, d);
            id = conf->list[0].id[ngx_http_kvroute_candidate[d->pick].place];
        }

        *rate = view.rate;
    }

    ngx_http_kvroute_lock_release(conf->zone, peers);

    return id;
}


/*
 * Makes candidates of all usable peers.  Sets named if one of them is the peer
 * that the request names, and offered if one is the peer of its session.
 */
static ngx_uint_t
ngx_http_kvroute_choose_offer(ngx_http_kvroute_attempt_t *at, kvr_view_t *v,
    ngx_uint_t another_rank, ngx_uint_t *named, ngx_uint_t *offered)
{
    time_t                         now;
    uint32_t                       head, conns;
    ngx_uint_t                     i, t, last, count, hinted, ranks;
    kvr_member_t                  *member;
    kvr_registry_t                *registry;
    kvr_candidate_t               *c;
    ngx_peer_connection_t         *pc;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_offer_t      *offer;
    ngx_http_upstream_rr_peer_t   *peer;

    registry = v->zone->registry;
    list = ngx_http_kvroute_balance_list(at);
    pc = at->mode == NGX_HTTP_KVROUTE_AHEAD ? NULL
                                            : &at->ctx->request->upstream->peer;

    now = ngx_time();
    count = 0;
    ranks = at->conf->ranks;
    at->rank.wanted = 0;
    *named = 0;
    *offered = 0;

    ngx_http_kvroute_peers_each(peer, i, at->rrp.peers, list) {
        hinted = ngx_http_kvroute_hinted(pc, peer);

        t = i;
        last = i + 1;
        conns = (uint32_t) peer->conns;

        if (kvr_unlikely(ranks)) {
            t = list->first[i];
            last = list->first[i + 1];
            conns /= (uint32_t) (last - t);
        }

        head = list->member[t];

        member = (head != KVR_REGISTRY_NONE) ? &registry->member[head] : NULL;

        if (!ngx_http_kvroute_choose_eligible(at, peer, i, hinted, member, now))
        {
            continue;
        }

        if (peer->max_conns && !at->over
            && ngx_http_kvroute_peers_full(at->conf, list, i, peer, v->own))
        {
            /* this request goes elsewhere, the session stays bound */

            for ( /* void */ ; t < last; t++) {
                at->busy |= (list->id[t] == at->session.bound
                             && list->id[t] != KVR_REGISTRY_NONE);
            }

            continue;
        }

        /* recovered, or added again: warm it up */

        if (member && kvr_get(&member->lost)) {
            kvr_set(&member->lost, 0);
            kvr_set(&member->since, v->seconds);
        }

        if (kvr_unlikely(ranks)) {

            /* pinned to a server with ranks: offer its ranks only */

            if (ngx_http_kvroute_rank_wanted(at, list, i)) {
                count = 0;
                at->rank.wanted = 1;
            }

            ngx_http_kvroute_rank_offer(at, list, i, another_rank, &t, &last);
        }

        for ( /* void */ ; t < last; t++) {

            c = &ngx_http_kvroute_candidate[count];

            kvr_candidate_init(v, c, list->id[t], head, conns);

            c->weight = (uint32_t) peer->weight;
            c->current_weight = peer->current_weight;
            c->effective_weight = peer->effective_weight;
            c->place = (uint32_t) t;

            if (hinted) {
                c->pinned = 1;
            }

            offer = &ngx_http_kvroute_offer[count++];

            offer->peer = peer;
            offer->index = i;

            if (kvr_unlikely(ranks)) {
                ngx_http_kvroute_rank_candidate(at, list, offer, c);
            }

            if (kvr_unlikely(c->flags)) {
                *offered |= c->bound;
                *named |= c->pinned;
            }
        }

        if (kvr_unlikely(ranks && at->rank.wanted)) {
            *named = 1;
            break;
        }
    }

    return count;
}


/* Tells whether nginx would try a peer, apart from its max_conns. */
static ngx_inline ngx_uint_t
ngx_http_kvroute_choose_eligible(ngx_http_kvroute_attempt_t *at,
    ngx_http_upstream_rr_peer_t *peer, ngx_uint_t i, ngx_uint_t hinted,
    kvr_member_t *member, time_t now)
{
    ngx_http_upstream_rr_peers_t  *peers;

    peers = at->rrp.peers;

    if (peer->down && !(hinted && ngx_http_kvroute_draining_only(peer))) {

        if (member && !kvr_get(&member->lost)) {
            kvr_set(&member->lost, 1);
        }

        return 0;
    }

    if (!peers->single
        && at->rrp.tried[ngx_http_kvroute_tried_word(i)]
           & ngx_http_kvroute_tried_bit(i))
    {
        return 0;
    }

    return !ngx_http_kvroute_peers_failed(peers, peer, now);
}


/* Asks the policy. */
static void
ngx_http_kvroute_choose_ask(ngx_http_kvroute_attempt_t *at, kvr_view_t *v,
    ngx_uint_t count, ngx_uint_t named, kvr_decision_t *d)
{
    ngx_uint_t                    n;
    kvr_candidate_t              *c;
    kvr_policy_request_t          req;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_list_t      *list;
    ngx_http_kvroute_offer_t     *offer;

    ctx = at->ctx;
    list = ngx_http_kvroute_balance_list(at);

    ngx_memzero(&req, sizeof(kvr_policy_request_t));

    req.policy = at->policy->kind;
    req.bytes = ctx->bytes + ctx->extra;
    req.random = v->random;
    req.rate = v->rate;
    req.parsed = ctx->parsed;
    req.no_prefill = ctx->no_prefill;
    req.retry = (at->tries != 0);
    req.keyed = at->session.keyed;
    req.unpinned = at->pinned && !named;

    if (at->home.credit > 0) {
        at->home.peer = list->peer;
        req.home = &at->home;
    }

    req.busy = at->busy;

    kvr_policy_pick(&req, ngx_http_kvroute_candidate, (uint32_t) count, d);

    if (kvr_unlikely(ngx_http_kvroute_balance_fallback(at)) && !req.retry) {
        d->reason = at->mode == NGX_HTTP_KVROUTE_BYPASS ? KVR_REASON_BYPASS
                                                        : KVR_REASON_BODYLESS;
    }

    /* with a shadow, the other balancer keeps the weights */

    if (kvr_policy_needs(req.policy) & KVR_NEEDS_TURNS && !at->conf->shadow) {
        for (n = 0; n < count; n++) {
            c = &ngx_http_kvroute_candidate[n];
            offer = &ngx_http_kvroute_offer[n];

            offer->peer->effective_weight = c->effective_weight;

            if (at->conf->ranks) {
                ngx_http_kvroute_rank_turn(at, list, offer, c);

            } else {
                offer->peer->current_weight = c->current_weight;
            }
        }
    }
}


/* Sets what the candidates depend on, apart from the peers. */
static void
ngx_http_kvroute_choose_view(ngx_http_kvroute_attempt_t *at, kvr_view_t *v)
{
    v->zone = &at->conf->zone->core;
    v->pool = &at->conf->pool;
    v->own = ngx_http_kvroute_reserve_held(at->mode == NGX_HTTP_KVROUTE_AHEAD
                                           ? at->early->reserved
                                           : &at->ctx->reserved, at->conf);
    v->matched = at->matched;
    v->loads = at->loads;
    v->hot = at->hot;
    v->bytes = at->ctx->bytes;
    v->fit = ngx_http_kvroute_queue_fit(at->ctx);
    v->bound = at->session.bound;
    v->pin = at->pin;
    v->owner = at->owner;
    v->models = at->models ? &at->models->loaded : NULL;
    v->evicts = at->models ? &at->models->evicts : NULL;
    v->random = kvr_mix((uint64_t) ngx_random() << 32 | (uint64_t) ngx_pid,
                        *v->zone->registry->given);
    v->now = (uint64_t) ngx_current_msec;
    v->seconds = (uint32_t) ngx_time();

    kvr_candidate_view(v);
}
