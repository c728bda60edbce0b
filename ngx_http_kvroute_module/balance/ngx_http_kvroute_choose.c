
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


static void ngx_http_kvroute_choose_view(ngx_http_kvroute_attempt_t *at,
    kvr_view_t *v);


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

    if (kvr_policy_needs(at->policy->conf.policy) & KVR_NEEDS_RING) {
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
    uintptr_t                      m;
    ngx_uint_t                     i, n, count, hinted, named;
    kvr_member_t                  *member;
    kvr_begin_t                    begin;
    kvr_candidate_t               *c;
    kvr_policy_request_t           req;
    ngx_peer_connection_t         *pc;
    kvr_view_t                     view;
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

    ngx_http_kvroute_choose_view(at, &view);

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

        member = (list->member[i] != KVR_REGISTRY_NONE)
               ? &sh->registry->member[list->member[i]] : NULL;

        if (peer->down && !(hinted && ngx_http_kvroute_draining_only(peer))) {

            if (member && !kvr_get(&member->lost)) {
                kvr_set(&member->lost, 1);
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
            && ngx_http_kvroute_full(conf, peer, list->member[i], ctx->wait))
        {
            /* this request goes elsewhere, the session does not */

            at->busy |= (id == at->bound && id != KVR_REGISTRY_NONE);
            continue;
        }

        /* back from failures, or put back */

        if (member && kvr_get(&member->lost)) {
            kvr_set(&member->lost, 0);
            kvr_set(&member->since, (uint32_t) now);
        }

        c = &ngx_http_kvroute_candidate[count];

        kvr_candidate_init(&view, c, id, list->member[i],
                           (uint32_t) peer->conns);

        c->weight = (uint32_t) peer->weight;
        c->current_weight = peer->current_weight;
        c->effective_weight = peer->effective_weight;
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
    req.random = view.random;
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

    if (kvr_policy_needs(req.policy) & KVR_NEEDS_TURNS) {
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

    begin.peer = id;
    begin.member = list->member[i];
    begin.matched = d->matched;
    begin.pending = req.bytes - ngx_min(d->matched, req.bytes);
    begin.rate = view.rate;

    /*
     * one right after the other: of a worker killed in between nginx has a
     * connection too many, of one killed after both it is taken back
     */

    offer->peer->conns++;

    ngx_http_kvroute_attempt_begin(at, &begin);

    if (id != KVR_REGISTRY_NONE) {
        sh->registry->peer[id].given = ++sh->registry->given;
    }

    *index = i;

    return offer->peer;
}


/* what belongs to the request */
static void
ngx_http_kvroute_choose_view(ngx_http_kvroute_attempt_t *at, kvr_view_t *v)
{
    ngx_http_kvroute_wait_t  *w;

    w = at->ctx->wait;

    v->zone = &at->conf->zone->core;
    v->pool = &at->conf->pool;
    v->own = w && w->reserved.held ? &w->reserved : NULL;
    v->matched = at->matched;
    v->chunks = at->chunks;
    v->popular = at->popular;
    v->bytes = at->ctx->bytes;
    v->fit = w ? w->bytes : 0;
    v->bound = at->bound;
    v->pin = at->pin;
    v->owner = at->owner;
    v->models = at->models;
    v->evicts = at->evicts;
    v->by = at->policy->conf.by;
    v->random = kvr_mix((uint64_t) ngx_random() << 32 | (uint64_t) ngx_pid,
                        v->zone->registry->given);
    v->now = (uint64_t) ngx_current_msec;
    v->seconds = (uint32_t) ngx_time();

    kvr_candidate_view(v);
}


/*
 * nginx never returns the connections of a killed worker, so that max_conns is
 * held against counts of our own, which heal.
 */
ngx_uint_t
ngx_http_kvroute_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t member,
    ngx_http_kvroute_wait_t *own)
{
    kvr_load_t  *load;
    ngx_uint_t   conns, active;

    if (peer->max_conns == 0) {
        return 0;
    }

    conns = peer->conns;

    if (member != KVR_REGISTRY_NONE) {
        load = conf->zone->sh->load;
        active = kvr_load_get(load, kvr_registry_column(member)).active;

        if (conf->queue) {
            active += kvr_load_get(load, kvr_registry_reserved(member)).active;
        }

        if (own && own->reserved.held && own->conf == conf
            && own->reserved.member == member)
        {
            active -= ngx_min(1, active);
        }

        /* a server that is listed twice has a limit in each place */

        conns = conf->doubled ? ngx_min(conns, active) : active;
    }

    return conns >= peer->max_conns;
}
