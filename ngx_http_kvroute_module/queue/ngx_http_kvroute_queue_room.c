
/*
 * Copyright (C) kvroute contributors
 */


/* Looks for room for a request, and reserves it. */


#include "queue/ngx_http_kvroute_queue_int.h"


/* the list of peers has changed */
#define NGX_HTTP_KVROUTE_QUEUE_CHANGED  (KVR_ADMISSION_ROOM + 1)


static void ngx_http_kvroute_queue_ask(ngx_http_kvroute_wait_t *w,
    kvr_admission_t *a, kvr_view_t *view);
static void ngx_http_kvroute_queue_matched(kvr_view_t *view,
    ngx_http_kvroute_lookup_t *l);
static ngx_uint_t ngx_http_kvroute_queue_look(ngx_http_kvroute_wait_t *w,
    kvr_admission_t *a, ngx_http_upstream_rr_peers_t *peers,
    ngx_uint_t backup, ngx_uint_t known);
static ngx_int_t ngx_http_kvroute_queue_offers_init(
    ngx_http_kvroute_srv_conf_t *conf);
static uint32_t ngx_http_kvroute_queue_offers(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_list_t *list);


/* scratch memory of this worker, for the longest list */

static kvr_offer_t  *ngx_http_kvroute_queue_offer;
static ngx_uint_t    ngx_http_kvroute_queue_offer_max;


/*
 * Makes a reservation at the cheapest peer below its caps; at a backup server
 * only if no primary server is usable, as in get().  If peers are unusable for
 * other reasons than a cap, the request is admitted, because waiting does not
 * help.
 */
int
ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item)
{
    kvr_view_t                     view;
    ngx_uint_t                     i, rc, full, known;
    kvr_admission_t                a;
    kvr_reservation_t             *reserved;
    ngx_http_kvroute_wait_t       *w;
    ngx_http_kvroute_lookup_t     *l;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    w = data;
    conf = w->conf;

    if (item == NULL) {
        kvr_reservation_release(&conf->zone->core, &w->ctx->reserved.core);
        return 1;
    }

    w->ctx->reserved.conf = conf;

    peers = conf->upstream->peer.data;
    full = 0;

    /* with a long queue the engines' caches are full: the prompt must fit */

    w->bytes = 0;
    w->later = 0;

    if (kvr_queue_long(conf->queue->shm_zone->data,
                       (uint32_t) conf->list[0].targets, ngx_current_msec))
    {
        w->bytes = w->ctx->bytes + w->ctx->extra;
    }

    /* without memory, admit the request: get() decides */

    if (ngx_http_kvroute_queue_offers_init(conf) != NGX_OK) {
        peers = NULL;
    }

    l = ngx_http_kvroute_queue_kept(w);
    known = (l != NULL);

    ngx_http_kvroute_queue_ask(w, &a, &view);
    ngx_http_kvroute_queue_matched(&view, l);

    for (i = 0; peers && i < 2; i++, peers = peers->next) {

        rc = ngx_http_kvroute_queue_look(w, &a, peers, i, known);

        if (rc == KVR_ADMISSION_ROOM && !known) {

            /* there is room: look up the prompt, and check the peers again */

            l = ngx_http_kvroute_queue_lookup(w);
            ngx_http_kvroute_queue_matched(&view, l);
            known = 1;

            rc = ngx_http_kvroute_queue_look(w, &a, peers, i, known);
        }

        switch (rc) {

        case KVR_ADMISSION_ROOM:
            return 1;

        case KVR_ADMISSION_LATER:
            w->later = 1;
            return 0;

        case KVR_ADMISSION_CAPPED:
            return 0;

        case KVR_ADMISSION_TAKEN:
            full = 1;
            /* fall through */

        case KVR_ADMISSION_NOBODY:
            continue;
        }

        /* NGX_HTTP_KVROUTE_QUEUE_CHANGED */

        full = 0;
        break;
    }

    if (full) {
        return 0;
    }

    /* get() decides */

    reserved = &w->ctx->reserved.core;

    reserved->peer = KVR_REGISTRY_NONE;
    reserved->member = KVR_REGISTRY_NONE;
    reserved->queued = 1;
    reserved->held = 1;

    return 1;
}


/* Sets what candidates depend on, apart from the peers. */
static void
ngx_http_kvroute_queue_ask(ngx_http_kvroute_wait_t *w, kvr_admission_t *a,
    kvr_view_t *view)
{
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = w->conf;

    ngx_memzero(view, sizeof(kvr_view_t));

    view->zone = &conf->zone->core;
    view->pool = &conf->pool;
    view->fit = w->bytes;
    view->bound = KVR_PEERS;
    view->pin = KVR_PEERS;
    view->owner = KVR_PEERS;
    view->now = (uint64_t) ngx_current_msec;

    kvr_candidate_view(view);

    a->view = view;
    a->item = &w->item;
    a->bytes = w->ctx->bytes + w->ctx->extra;
    a->resident = ngx_http_kvroute_request_resident(w->ctx);
    a->prefer = w->prefer;
    a->no_prefill = w->ctx->no_prefill;
}


/* Sets what peers have cached; l: NULL if unknown. */
static void
ngx_http_kvroute_queue_matched(kvr_view_t *view, ngx_http_kvroute_lookup_t *l)
{
    view->matched = l ? l->matched : NULL;
    view->loads = l ? l->loads : NULL;
    view->hot = l && l->best && l->counted ? &l->hot : NULL;
}


/*
 * Looks for room in a list of peers. known: the prompt was looked up, or
 * cannot be.  Only then is the reservation made, under the lock.
 */
static ngx_uint_t
ngx_http_kvroute_queue_look(ngx_http_kvroute_wait_t *w, kvr_admission_t *a,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t backup, ngx_uint_t known)
{
    uint32_t                      n;
    ngx_uint_t                    rc;
    kvr_reservation_t            *reserved;
    kvr_queue_shared_t           *shared;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = w->conf;

    /* a timer must not wait for the lock: try again soon */

    if (ngx_http_kvroute_lock_try(conf->zone, peers, 0) != NGX_OK) {
        return KVR_ADMISSION_CAPPED;
    }

    if (ngx_http_kvroute_peers_config(peers) != conf->config) {
        ngx_http_kvroute_lock_release(conf->zone, peers);
        return NGX_HTTP_KVROUTE_QUEUE_CHANGED;
    }

    n = ngx_http_kvroute_queue_offers(w, peers, &conf->list[backup]);

    if (!known) {
        rc = kvr_admission_choose(a, ngx_http_kvroute_queue_offer, n, NULL);

    } else {
        reserved = &w->ctx->reserved.core;

        rc = kvr_admission_choose(a, ngx_http_kvroute_queue_offer, n, reserved);

        if (rc == KVR_ADMISSION_ROOM) {
            reserved->queued = 1;
            kvr_reservation_take(&conf->zone->core, reserved);
        }
    }

    shared = conf->queue->shm_zone->data;

    if ((rc == KVR_ADMISSION_TAKEN || rc == KVR_ADMISSION_CAPPED)
        && kvr_get(&shared->cap) != rc)
    {
        kvr_set(&shared->cap, rc);
    }

    ngx_http_kvroute_lock_release(conf->zone, peers);

    return rc;
}


static ngx_int_t
ngx_http_kvroute_queue_offers_init(ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_uint_t  n;

    n = ngx_max(conf->list[0].targets, conf->list[1].targets);

    if (n <= ngx_http_kvroute_queue_offer_max) {
        return NGX_OK;
    }

    ngx_http_kvroute_queue_exit();

    ngx_http_kvroute_queue_offer = ngx_alloc(n * sizeof(kvr_offer_t),
                                             ngx_cycle->log);

    if (ngx_http_kvroute_queue_offer == NULL) {
        return NGX_ERROR;
    }

    ngx_http_kvroute_queue_offer_max = n;

    return NGX_OK;
}


void
ngx_http_kvroute_queue_exit(void)
{
    free(ngx_http_kvroute_queue_offer);

    ngx_http_kvroute_queue_offer = NULL;
    ngx_http_kvroute_queue_offer_max = 0;
}


/* Collects the peers that get() would offer. */
static uint32_t
ngx_http_kvroute_queue_offers(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_list_t *list)
{
    time_t                        now;
    uint32_t                      n, head;
    ngx_uint_t                    i, t, taken;
    kvr_offer_t                  *offer;
    ngx_http_upstream_rr_peer_t  *peer;

    now = ngx_time();
    n = 0;

    ngx_http_kvroute_peers_each(peer, i, peers, list) {
        if (peer->down || ngx_http_kvroute_peers_failed(peers, peer, now)) {
            continue;
        }

        head = list->member[list->first[i]];
        taken = ngx_http_kvroute_peers_full(w->conf, list, i, peer, NULL);

        for (t = list->first[i];
             t < list->first[i + 1] && n < ngx_http_kvroute_queue_offer_max;
             t++)
        {
            offer = &ngx_http_kvroute_queue_offer[n++];

            offer->peer = list->id[t];
            offer->member = head;
            offer->weight = (uint32_t) peer->weight;
            offer->conns = (uint32_t) peer->conns;
            offer->taken = taken;
        }
    }

    return n;
}


uint64_t
ngx_http_kvroute_queue_fit(ngx_http_kvroute_ctx_t *ctx)
{
    return ctx->wait ? ctx->wait->bytes : 0;
}


ngx_uint_t
ngx_http_kvroute_queue_again(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_http_kvroute_wait_t  *w;

    w = ctx->wait;

    return w && w->conf == conf
           && (w->state == NGX_HTTP_KVROUTE_QUEUE_PASSED
               || w->state == NGX_HTTP_KVROUTE_QUEUE_WAITED);
}
