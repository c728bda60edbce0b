
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What is known of the peers, put before the policy.
 *
 * What belongs to the request is looked up beforehand, without a lock: how much
 * of its prompt each peer holds, where its session is bound.  What belongs to
 * the peers is read under their lock, at the moment of the decision.
 */


#include "queue/ngx_http_kvroute_queue.h"


static kvr_ring_t *ngx_http_kvroute_ring(ngx_http_kvroute_list_t *list,
    ngx_log_t *log);


/* what one decision wants to know of each peer */

typedef struct {
    ngx_http_kvroute_attempt_t   *at;
    ngx_http_kvroute_srv_conf_t  *conf;
    ngx_http_kvroute_shctx_t     *sh;
    ngx_http_kvroute_wait_t      *wait;
    kvr_load_view_t               load;
    uint32_t                     *matched;
    kvr_popular_view_t           *popular;
    uint64_t                      special;  /* peers that are looked at */
    uint64_t                      rnd;
    uint64_t                      unit;     /* bytes of an entry */
    uint64_t                      bytes;    /* of the prompt */
    uint64_t                      msec;
    uint64_t                      shared;   /* by who is like these two */
    uint32_t                      units;
    uint32_t                      active;
    uint32_t                      rate;     /* of the fastest */
    uint32_t                      given;
    ngx_uint_t                    capped;
    ngx_uint_t                    signals;
} ngx_http_kvroute_view_t;


static void ngx_http_kvroute_view_init(ngx_http_kvroute_view_t *v,
    ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_candidate_init(ngx_http_kvroute_view_t *v,
    kvr_candidate_t *c, ngx_http_upstream_rr_peer_t *peer, uint32_t id,
    uint32_t seat);
static void ngx_http_kvroute_candidate_special(ngx_http_kvroute_view_t *v,
    kvr_candidate_t *c, uint32_t id);
static unsigned ngx_http_kvroute_candidate_cold(ngx_http_kvroute_view_t *v,
    uint32_t id, uint32_t seat);


/* a candidate's peer, and where it stands in the list */

typedef struct {
    ngx_http_upstream_rr_peer_t  *peer;
    uint32_t                      index;
} ngx_http_kvroute_offer_t;


/* room of this worker for one decision, over the longest list */

static kvr_candidate_t           *ngx_http_kvroute_candidate;
static ngx_http_kvroute_offer_t  *ngx_http_kvroute_offer;
static uint32_t                  *ngx_http_kvroute_by_place;
static uint64_t                  *ngx_http_kvroute_seen;
static ngx_uint_t                 ngx_http_kvroute_max_candidates;


/* makes room for all candidates that an upstream can have */
ngx_int_t
ngx_http_kvroute_choose_init(ngx_http_kvroute_srv_conf_t *conf, ngx_log_t *log)
{
    ngx_uint_t  n;

    n = ngx_max(conf->list[0].number, conf->list[1].number);

    if (n <= ngx_http_kvroute_max_candidates) {
        return NGX_OK;
    }

    ngx_http_kvroute_choose_exit();

    ngx_http_kvroute_candidate = ngx_alloc(n * sizeof(kvr_candidate_t), log);
    ngx_http_kvroute_offer = ngx_alloc(n * sizeof(ngx_http_kvroute_offer_t),
                                       log);
    ngx_http_kvroute_by_place = ngx_alloc(n * sizeof(uint32_t), log);
    ngx_http_kvroute_seen = ngx_alloc((n + 63) / 64 * sizeof(uint64_t), log);

    if (ngx_http_kvroute_candidate == NULL
        || ngx_http_kvroute_offer == NULL
        || ngx_http_kvroute_by_place == NULL
        || ngx_http_kvroute_seen == NULL)
    {
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
    free(ngx_http_kvroute_by_place);
    free(ngx_http_kvroute_seen);

    ngx_http_kvroute_candidate = NULL;
    ngx_http_kvroute_offer = NULL;
    ngx_http_kvroute_by_place = NULL;
    ngx_http_kvroute_seen = NULL;

    ngx_http_kvroute_max_candidates = 0;
}


static kvr_ring_t *
ngx_http_kvroute_ring(ngx_http_kvroute_list_t *list, ngx_log_t *log)
{
    uint32_t  n;

    if (list->ring.point || list->number == 0) {
        return &list->ring;
    }

    n = kvr_ring_size(list->peer, (uint32_t) list->number);

    list->ring.point = ngx_alloc(n * sizeof(kvr_ring_point_t), log);

    if (list->ring.point) {
        kvr_ring_build(&list->ring, list->peer, (uint32_t) list->number);
    }

    return &list->ring;
}


/* what can be made before the lock is taken */
void
ngx_http_kvroute_choose_prepare(ngx_http_kvroute_attempt_t *at, ngx_log_t *log)
{
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = at->conf;

    if (at->policy->conf.policy == KVR_POLICY_PREFIX) {
        (void) ngx_http_kvroute_ring(&conf->list[0], log);
        (void) ngx_http_kvroute_ring(&conf->list[1], log);
    }
}


/*
 * Asks the policy; called under the peers' lock.  NULL: there is no peer to be
 * had, or the policy would rather have none of them.
 */
ngx_http_upstream_rr_peer_t *
ngx_http_kvroute_choose(ngx_http_kvroute_attempt_t *at, ngx_uint_t *index,
    ngx_uint_t *offered, kvr_decision_t *d)
{
    time_t                         now;
    uint32_t                       id;
    uint64_t                       pending;
    uintptr_t                      m;
    ngx_uint_t                     i, n, count, hinted, named;
    kvr_seat_t                    *seat;
    kvr_candidate_t               *c;
    kvr_policy_request_t           req;
    ngx_peer_connection_t         *pc;
    ngx_http_kvroute_view_t        view;
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
    pc = &ctx->request->upstream->peer;

    list = &conf->list[peers != conf->upstream->peer.data];

    ngx_http_kvroute_view_init(&view, at);

    count = 0;
    named = 0;
    *offered = 0;

    for (peer = peers->peer, i = 0;
         peer && i < list->number;
         peer = peer->next, i++)
    {
        n = i / (8 * sizeof(uintptr_t));
        m = (uintptr_t) 1 << i % (8 * sizeof(uintptr_t));

        hinted = ngx_http_kvroute_hinted(pc, peer);

        seat = (list->seat[i] != KVR_REGISTRY_NONE)
               ? &sh->registry->seat[list->seat[i]] : NULL;

        if (peer->down && !(hinted && ngx_http_kvroute_draining_only(peer))) {

            if (seat && !kvr_get(&seat->lost)) {
                kvr_set(&seat->lost, 1);
            }

            continue;
        }

        /* as in nginx, nothing is held against the only one there is */

        if (!peers->single) {

            if (at->rrp.tried[n] & m) {
                continue;
            }

            if (peer->max_fails
                && peer->fails >= peer->max_fails
                && now - peer->checked <= peer->fail_timeout)
            {
                continue;
            }
        }

        id = list->id[i];

        if (peer->max_conns && !at->over
            && ngx_http_kvroute_full(conf, peer, list->seat[i], ctx->wait))
        {
            /* this request goes elsewhere, the session does not */

            at->busy |= (id == at->bound && id != KVR_REGISTRY_NONE);
            continue;
        }

        /* back from failures, or put back */

        if (seat && kvr_get(&seat->lost)) {
            kvr_set(&seat->lost, 0);
            kvr_set(&seat->since, (uint32_t) now);
        }

        c = &ngx_http_kvroute_candidate[count];

        ngx_http_kvroute_candidate_init(&view, c, peer, id, list->seat[i]);

        c->place = (uint32_t) i;

        if (hinted) {
            c->pinned = 1;
        }

        if (kvr_unlikely(c->flags)) {
            *offered |= c->bound;
            named |= c->pinned;
        }

        offer = &ngx_http_kvroute_offer[count++];

        offer->peer = peer;
        offer->index = (uint32_t) i;
    }

    if (count == 0) {
        return NULL;
    }

    ngx_memzero(&req, sizeof(kvr_policy_request_t));

    req.conf = &at->policy->conf;
    req.policy = req.conf->policy;
    req.bytes = ctx->bytes + ctx->extra;
    req.random = view.rnd;
    req.rate = view.rate;
    req.parsed = ctx->parsed;
    req.light = ctx->light;
    req.retry = (at->tries != 0);
    req.keyed = at->keyed;
    req.unpinned = at->pinned && !named;
    req.key = at->key;
    req.ring = &list->ring;
    req.places = (uint32_t) list->number;
    req.by_place = ngx_http_kvroute_by_place;
    req.seen = ngx_http_kvroute_seen;
    req.was_bound = (at->bound != NGX_HTTP_KVROUTE_UNSET_PEER && !*offered);
    req.busy = at->busy;

    kvr_policy_pick(&req, ngx_http_kvroute_candidate, (uint32_t) count, d);

    if (d->pick == KVR_POLICY_NONE) {
        return NULL;
    }

    if (req.policy == KVR_POLICY_ROUND_ROBIN
        || req.policy == KVR_POLICY_STICKY)
    {
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

    pending = req.bytes - ngx_min(d->matched, req.bytes);

    at->rate = view.rate;

    /*
     * one right after the other: of a worker killed in between nginx has a
     * connection too many, of one killed after both it is taken back
     */

    offer->peer->conns++;

    ngx_http_kvroute_attempt_begin(at, id, list->seat[i], pending);

    if (id != KVR_REGISTRY_NONE) {
        sh->registry->peer[id].given = ++sh->registry->given;
    }

    *index = i;

    return offer->peer;
}


/* what is the same for all peers is found out once */
static void
ngx_http_kvroute_view_init(ngx_http_kvroute_view_t *v,
    ngx_http_kvroute_attempt_t *at)
{
    kvr_by_e                      by;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = at->conf;
    by = at->policy->conf.by;

    v->at = at;
    v->conf = conf;
    v->sh = conf->zone->sh;
    v->wait = at->ctx->wait && at->ctx->wait->held ? at->ctx->wait : NULL;
    v->load = kvr_load_view(v->sh->load);
    v->matched = at->matched;
    v->popular = at->popular;
    v->unit = v->sh->unit * KVR_BLOCK;
    v->bytes = at->ctx->bytes;
    v->msec = (uint64_t) ngx_current_msec;
    v->shared = 0;
    v->units = UINT32_MAX;
    v->active = 0;
    v->rate = 0;
    v->given = v->sh->registry->given;
    v->rnd = kvr_mix((uint64_t) ngx_random() << 32 | (uint64_t) ngx_pid,
                     v->given);

    v->capped = conf->max_pending || conf->target_ttft
                || conf->max_waiting != NGX_CONF_UNSET;

    v->signals = conf->health || conf->probe
                 || by == KVR_BY_KV || by == KVR_BY_WAITING;

    v->special = 0;

    if (at->bound < KVR_INDEX_PEERS) {
        v->special |= (uint64_t) 1 << at->bound;
    }

    if (at->pin < KVR_INDEX_PEERS) {
        v->special |= (uint64_t) 1 << at->pin;
    }

    if (at->owner < KVR_INDEX_PEERS) {
        v->special |= (uint64_t) 1 << at->owner;
    }

    if (at->models) {
        v->special |= ~at->models | at->evicts;
    }
}


static inline void
ngx_http_kvroute_candidate_init(ngx_http_kvroute_view_t *v,
    kvr_candidate_t *c, ngx_http_upstream_rr_peer_t *peer, uint32_t id,
    uint32_t seat)
{
    uint32_t         units, rate;
    kvr_peer_t      *known;
    kvr_load_sum_t   sum, resident;

    /* one by one: gcc would clear so many by an instruction that is slow */

    c->weight = (uint32_t) peer->weight;
    c->flags = 0;
    c->matched = 0;
    c->shared = 0;
    c->cost = 0;
    c->delay = 0;
    c->turnover = 0;
    c->chunks = 0;
    c->kv = 0;
    c->waiting = 0;
    c->current_weight = peer->current_weight;
    c->effective_weight = peer->effective_weight;

    if (kvr_unlikely(id == KVR_REGISTRY_NONE)) {
        c->active = (uint32_t) peer->conns;
        c->unanswered = 0;
        c->pending = 0;
        c->idle = 0;
        c->resident = 0;
        return;
    }

    known = &v->sh->registry->peer[id];

    sum = kvr_load_seen(&v->load, id);
    resident = kvr_load_seen(&v->load, kvr_registry_resident(id));

    /* its own reservation is not in its way */

    if (kvr_unlikely(v->wait != NULL) && v->wait->id == id) {
        sum.active -= ngx_min(1, sum.active);
        sum.pending -= ngx_min(v->wait->pending, sum.pending);
        resident.active -= ngx_min(1, resident.active);
        resident.pending -= ngx_min(v->wait->resident, resident.pending);
    }

    c->active = sum.active;
    c->pending = sum.pending;
    c->unanswered = resident.active;
    c->resident = resident.pending;
    c->idle = v->given - kvr_get(&known->given);
    c->delay = kvr_pace_delay(&known->pace, v->msec);

    rate = kvr_get(&known->pace.rate);
    v->rate = ngx_max(v->rate, rate);

    if (v->matched) {
        units = v->matched[id];

        c->matched = ngx_min(units * v->unit, v->bytes);
        c->turnover = kvr_index_turnover(v->sh->index, id, v->msec);

        if (v->popular) {

            /* many peers are like the one before */

            if (units != v->units || c->active != v->active) {
                v->units = units;
                v->active = c->active;
                v->shared = kvr_popular_shared(v->popular, units, c->active);
            }

            c->shared = v->shared;
        }
    }

    if (v->at->chunks) {
        c->chunks = v->at->chunks[id];
    }

    if (kvr_unlikely(v->special >> id & 1)) {
        ngx_http_kvroute_candidate_special(v, c, id);
    }

    if (kvr_unlikely(kvr_get(&known->draining))) {
        c->draining = 1;
    }

    if (kvr_unlikely(kvr_get(&known->signal.pressure) > v->msec)) {
        c->pressed = 1;
    }

    if (v->capped
        && ngx_http_kvroute_capped(v->conf, id, v->at->ctx->wait
                                                ? v->at->ctx->wait->bytes : 0,
                                   v->at->ctx->wait))
    {
        c->full = 1;
    }

    if (v->signals) {
        ngx_http_kvroute_signal_candidate(v->at, c, id);
    }

    if (v->conf->slow_start && ngx_http_kvroute_candidate_cold(v, id, seat)) {
        c->cold = 1;
    }
}


/* one of the peers that are not like the others to this request */
static void
ngx_http_kvroute_candidate_special(ngx_http_kvroute_view_t *v,
    kvr_candidate_t *c, uint32_t id)
{
    ngx_http_kvroute_attempt_t  *at;

    at = v->at;

    c->bound = (id == at->bound);
    c->pinned = (id == at->pin);
    c->owner = (id == at->owner);

    if (at->models) {
        c->other = !(at->models >> id & 1);
        c->evicts = (at->evicts >> id & 1);
    }
}


/* it takes part in a growing share of the decisions */
static unsigned
ngx_http_kvroute_candidate_cold(ngx_http_kvroute_view_t *v, uint32_t id,
    uint32_t seat)
{
    uint32_t         since, age, slow;
    kvr_registry_t  *registry;

    registry = v->sh->registry;
    slow = (uint32_t) v->conf->slow_start;

    since = ngx_max(kvr_get(&registry->peer[id].since),
                    kvr_get(&registry->seat[seat].since));

    if (since == 0) {
        return 0;
    }

    age = (uint32_t) ngx_time() - since;

    return age < slow
           && kvr_reduce(kvr_mix(v->rnd, id + 1), slow)
              >= ngx_max(age, slow / 16);
}


/*
 * Whether a peer has all the work that it may have.  bytes: of the request that
 * must find room in the engine's cache, or 0.  own: a reservation that does not
 * count.
 */
ngx_uint_t
ngx_http_kvroute_capped(ngx_http_kvroute_srv_conf_t *conf, uint32_t id,
    uint64_t bytes, ngx_http_kvroute_wait_t *own)
{
    uint64_t                   pending;
    kvr_peer_t                *peer;
    ngx_http_kvroute_shctx_t  *sh;

    if (id == KVR_REGISTRY_NONE) {
        return 0;
    }

    sh = conf->zone->sh;
    peer = &sh->registry->peer[id];

    if (ngx_http_kvroute_signal_waiting(conf, id)) {
        return 1;
    }

    if (conf->max_pending == 0 && conf->target_ttft == 0) {
        return 0;
    }

    pending = kvr_load_get(sh->load, id).pending;

    if (own && own->held && own->id == id) {
        pending -= ngx_min(own->pending, pending);
    }

    if (conf->target_ttft) {

        /* idle, as far as is known: the rule below the knee */

        if (pending == 0 && bytes == 0) {
            return 0;
        }

        return kvr_registry_capped(peer, conf->target_ttft, pending, bytes,
                                   ngx_http_kvroute_signal_fresh(conf, id),
                                   (uint64_t) ngx_current_msec);
    }

    return pending >= conf->max_pending;
}


/* told by the API */
ngx_uint_t
ngx_http_kvroute_draining(ngx_http_kvroute_srv_conf_t *conf, uint32_t id)
{
    return id != KVR_REGISTRY_NONE
           && kvr_get(&conf->zone->sh->registry->peer[id].draining);
}


/*
 * nginx never returns the connections of a killed worker, so that max_conns is
 * held against counts of our own, which heal.
 */
ngx_uint_t
ngx_http_kvroute_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t seat,
    ngx_http_kvroute_wait_t *own)
{
    kvr_load_t  *load;
    ngx_uint_t   conns, active;

    if (peer->max_conns == 0) {
        return 0;
    }

    conns = peer->conns;

    if (seat != KVR_REGISTRY_NONE) {
        load = conf->zone->sh->load;
        active = kvr_load_get(load, kvr_registry_column(seat)).active;

        if (conf->queue) {
            active += kvr_load_get(load, kvr_registry_reserved(seat)).active;
        }

        if (own && own->held && own->conf == conf && own->seat == seat) {
            active -= ngx_min(1, active);
        }

        /* a server that is listed twice has a limit in each place */

        conns = conf->doubled ? ngx_min(conns, active) : active;
    }

    return conns >= peer->max_conns;
}
