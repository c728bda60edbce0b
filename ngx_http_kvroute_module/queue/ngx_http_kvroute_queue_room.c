
/*
 * Copyright (C) kvroute contributors
 */


/* Whether there is room for a request, and what is reserved for it. */


#include "queue/ngx_http_kvroute_queue.h"
#include "zone/ngx_http_kvroute_lock.h"


/* what there is to be had, from the least */
#define NGX_HTTP_KVROUTE_QUEUE_NOBODY   0
#define NGX_HTTP_KVROUTE_QUEUE_TAKEN    1      /* all at max_conns */
#define NGX_HTTP_KVROUTE_QUEUE_CAPPED   2
#define NGX_HTTP_KVROUTE_QUEUE_ROOM     3
#define NGX_HTTP_KVROUTE_QUEUE_CHANGED  4      /* the list is another */


static ngx_uint_t ngx_http_kvroute_queue_look(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t backup, uint32_t *matched);
static ngx_uint_t ngx_http_kvroute_queue_spared(
    ngx_http_kvroute_srv_conf_t *conf, uint32_t id);
static double ngx_http_kvroute_queue_cost(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id, uint32_t *matched,
    uint64_t *held);
static uint64_t ngx_http_kvroute_queue_rate(ngx_http_kvroute_srv_conf_t *conf,
    uint32_t id);
static void ngx_http_kvroute_queue_count(ngx_http_kvroute_wait_t *w,
    int32_t sign);


/* of a prompt that is not known nobody holds anything */

static uint32_t  ngx_http_kvroute_queue_none[KVR_INDEX_PEERS];


/*
 * Reserves on the peer that costs least among those below their caps: of the
 * backup servers only if none of the others can be had at all, as in get().  If
 * there is none to be had for other reasons than a cap, waiting is of no use.
 */
int
ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item)
{
    uint32_t                      *matched;
    ngx_uint_t                     i, rc, full;
    ngx_http_kvroute_wait_t       *w;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    w = data;

    if (item == NULL) {
        ngx_http_kvroute_queue_count(w, -1);
        return 1;
    }

    conf = w->conf;
    peers = conf->upstream->peer.data;
    full = 0;

    /* past the knee engines' caches are full: then there is more to look at */

    w->bytes = 0;
    w->rather = 0;

    if (kvr_queue_long(conf->queue->shm_zone->data,
                       (uint32_t) conf->list[0].number, ngx_current_msec))
    {
        w->bytes = w->ctx->bytes + w->ctx->extra;
    }

    matched = ngx_http_kvroute_queue_kept(w);

    for (i = 0; peers && i < 2; i++, peers = peers->next) {

        rc = ngx_http_kvroute_queue_look(w, peers, i, matched);

        if (rc == NGX_HTTP_KVROUTE_QUEUE_ROOM && !w->held) {

            /* it is looked up if there is any room, the peers read again */

            matched = ngx_http_kvroute_queue_match(w);

            rc = ngx_http_kvroute_queue_look(w, peers, i,
                                             matched ? matched
                                             : ngx_http_kvroute_queue_none);
        }

        switch (rc) {

        case NGX_HTTP_KVROUTE_QUEUE_ROOM:
            return 1;

        case NGX_HTTP_KVROUTE_QUEUE_CAPPED:
            return 0;

        case NGX_HTTP_KVROUTE_QUEUE_TAKEN:
            full = 1;
            /* fall through */

        case NGX_HTTP_KVROUTE_QUEUE_NOBODY:
            continue;
        }

        /* the list is another */

        full = 0;
        break;
    }

    if (full) {
        return 0;
    }

    /* get() will see */

    w->id = KVR_REGISTRY_NONE;
    w->seat = KVR_REGISTRY_NONE;
    w->held = 1;

    return 1;
}


/* with matched it reserves, under the lock that get() has for writing */
static ngx_uint_t
ngx_http_kvroute_queue_look(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t backup, uint32_t *matched)
{
    time_t                        now;
    double                        cost, least, best;
    uint32_t                      id;
    uint64_t                      bytes, held, most, here, need, rate;
    ngx_uint_t                    i, rc, spared, capped;
    kvr_queue_board_t            *board;
    ngx_http_kvroute_list_t      *list;
    ngx_http_kvroute_srv_conf_t  *conf;
    ngx_http_upstream_rr_peer_t  *peer;

    conf = w->conf;
    board = conf->queue->shm_zone->data;
    list = &conf->list[backup];
    bytes = w->ctx->bytes + w->ctx->extra;
    need = ngx_http_kvroute_attempt_resident(w->ctx);

    now = ngx_time();
    rc = NGX_HTTP_KVROUTE_QUEUE_NOBODY;
    least = 0;
    best = 0;
    most = 0;
    here = 0;
    rate = 0;

    /* it is looked at again soon: its timer must not wait */

    if (ngx_http_kvroute_try_rlock(conf->zone, peers) != NGX_OK) {
        return NGX_HTTP_KVROUTE_QUEUE_CAPPED;
    }

    if (ngx_http_kvroute_peers_config(peers) != conf->config) {
        ngx_http_kvroute_unlock(conf->zone, peers);
        return NGX_HTTP_KVROUTE_QUEUE_CHANGED;
    }

    for (spared = 0; spared < 2; spared++) {

        if (rc != NGX_HTTP_KVROUTE_QUEUE_NOBODY) {
            break;
        }

        for (peer = peers->peer, i = 0;
             peer && i < list->number;
             peer = peer->next, i++)
        {
            id = list->id[i];

            if (peer->down
                || (!peers->single
                    && peer->max_fails
                    && peer->fails >= peer->max_fails
                    && now - peer->checked <= peer->fail_timeout))
            {
                continue;
            }

            if (w->strict
                ? id != w->own
                : ngx_http_kvroute_queue_spared(conf, id) != spared)
            {
                continue;
            }

            if (ngx_http_kvroute_full(conf, peer, list->seat[i], NULL)) {
                rc = ngx_max(rc, NGX_HTTP_KVROUTE_QUEUE_TAKEN);
                continue;
            }

            capped = ngx_http_kvroute_capped(conf, id, w->bytes, NULL)
                     || kvr_queue_claimed(board, id, &w->item,
                                          ngx_current_msec);

            if (matched == NULL) {

                if (!capped) {
                    rc = NGX_HTTP_KVROUTE_QUEUE_ROOM;
                    break;
                }

                rc = ngx_max(rc, NGX_HTTP_KVROUTE_QUEUE_CAPPED);
                continue;
            }

            cost = ngx_http_kvroute_queue_cost(w, peer, id, matched, &held);

            if (best == 0 || cost < best) {
                best = cost;
                rate = ngx_http_kvroute_queue_rate(conf, id);
            }

            most = ngx_max(most, held);

            if (capped) {
                rc = ngx_max(rc, NGX_HTTP_KVROUTE_QUEUE_CAPPED);
                continue;
            }

            if (rc != NGX_HTTP_KVROUTE_QUEUE_ROOM || cost < least) {
                rc = NGX_HTTP_KVROUTE_QUEUE_ROOM;
                least = cost;
                here = held;
                w->id = id;
                w->seat = list->seat[i];
                w->pending = bytes - held;
                w->resident = need;
            }
        }
    }

    /* there is room, but soon a better place for it */

    if (matched && rc == NGX_HTTP_KVROUTE_QUEUE_ROOM
        && ((w->taste == NGX_HTTP_KVROUTE_QUEUE_WARM
             && here + KVR_SCORE_FLOOR < most)
            || (w->taste == NGX_HTTP_KVROUTE_QUEUE_CHEAP && best < least
                && kvr_queue_young(&w->item, ngx_current_msec, rate))))
    {
        w->rather = 1;
        rc = NGX_HTTP_KVROUTE_QUEUE_CAPPED;
    }

    if (matched && rc == NGX_HTTP_KVROUTE_QUEUE_ROOM) {
        ngx_http_kvroute_queue_count(w, 1);
    }

    ngx_http_kvroute_unlock(conf->zone, peers);

    return rc;
}


/*
 * Those being drained, those that are ill, and those that have just asked to be
 * left alone are for when there are no others.  The last ones answer at once,
 * and so always have room: all that wait would rush through them.
 */
static ngx_uint_t
ngx_http_kvroute_queue_spared(ngx_http_kvroute_srv_conf_t *conf, uint32_t id)
{
    return ngx_http_kvroute_draining(conf, id)
           || ngx_http_kvroute_signal_sick(conf, id)
           || ngx_http_kvroute_signal_pressed(conf, id);
}


/* as it would be chosen by, but with what is left of prefills under way */
static double
ngx_http_kvroute_queue_cost(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id, uint32_t *matched,
    uint64_t *held)
{
    uint64_t                   bytes;
    kvr_score_t                s;
    kvr_load_sum_t             sum;
    ngx_http_kvroute_shctx_t  *sh;

    sh = w->conf->zone->sh;
    bytes = w->ctx->bytes + w->ctx->extra;

    *held = 0;

    ngx_memzero(&s, sizeof(kvr_score_t));

    s.active = (uint32_t) peer->conns;
    s.weight = (uint32_t) peer->weight;

    if (id != KVR_REGISTRY_NONE) {
        sum = kvr_load_get(sh->load, id);

        s.active = sum.active;
        s.pending = kvr_pace_left(&sh->registry->peer[id].pace, sum.pending,
                                  (uint64_t) ngx_current_msec);
        sum = kvr_load_get(sh->load, kvr_registry_resident(id));

        s.waiting = sum.active;
        s.resident = sum.pending;
        s.shared = kvr_popular_shared(&w->popular, matched[id], s.active);
        s.turnover = kvr_index_turnover(sh->index, id,
                                        (uint64_t) ngx_current_msec);

        *held = (uint64_t) matched[id] * sh->unit * KVR_BLOCK;
        *held = ngx_min(*held, bytes);
    }

    s.uncached = bytes - *held;

    return kvr_score_cost(&s);
}


/* bytes a ms that a peer prefills, 0: not known */
static uint64_t
ngx_http_kvroute_queue_rate(ngx_http_kvroute_srv_conf_t *conf, uint32_t id)
{
    if (id == KVR_REGISTRY_NONE) {
        return 0;
    }

    return kvr_get(&conf->zone->sh->registry->peer[id].pace.rate)
           / KVR_PACE_RATE;
}


/* reserves, sign 1, or gives back, -1 */
static void
ngx_http_kvroute_queue_count(ngx_http_kvroute_wait_t *w, int32_t sign)
{
    kvr_load_t               *load;
    ngx_http_kvroute_zone_t  *zone;

    w->held = (sign > 0);

    if (w->id == KVR_REGISTRY_NONE) {
        return;
    }

    zone = w->conf->zone;
    load = zone->sh->load;

    kvr_load_add(load, zone->row, w->id, sign, sign * (int64_t) w->pending);
    kvr_load_add(load, zone->row, kvr_registry_reserved(w->seat), sign,
                 sign * (int64_t) w->pending);
    kvr_load_add(load, zone->row, kvr_registry_resident(w->id), sign,
                 sign * (int64_t) w->resident);
}


/* whether what is reserved is just what get() would count: then it is its */
ngx_uint_t
ngx_http_kvroute_queue_take(ngx_http_kvroute_attempt_t *at)
{
    kvr_load_t               *load;
    ngx_http_kvroute_wait_t  *w;
    ngx_http_kvroute_zone_t  *zone;

    w = at->ctx->wait;

    if (w == NULL || !w->held || w->conf != at->conf || !at->unanswered
        || w->id != at->id || w->seat != at->seat
        || w->pending != at->pending || w->resident != at->resident)
    {
        return 0;
    }

    w->held = 0;

    if (w->id == KVR_REGISTRY_NONE) {
        return 1;
    }

    zone = w->conf->zone;
    load = zone->sh->load;

    kvr_load_add(load, zone->row, kvr_registry_column(w->seat), 1,
                 (int64_t) w->pending);
    kvr_load_add(load, zone->row, kvr_registry_reserved(w->seat), -1,
                 -(int64_t) w->pending);

    return 1;
}


/* get() has counted the request on the peer that it takes */
void
ngx_http_kvroute_queue_consume(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_wait_t  *w;

    w = at->ctx->wait;

    if (w && w->held) {
        ngx_http_kvroute_queue_count(w, -1);

        if (w->id != at->id) {
            ngx_http_kvroute_queue_freed(w->conf);
        }
    }
}


/*
 * Whether a request has been let in before: its first peer has failed, and the
 * others have all that they may have, as always when there is a queue.  It had
 * its place, and goes to one of them all the same.
 */
ngx_uint_t
ngx_http_kvroute_queue_again(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_wait_t  *w;

    w = at->ctx->wait;

    return w && w->conf == at->conf && !w->held && !at->over
           && (w->state == NGX_HTTP_KVROUTE_QUEUE_PASSED
               || w->state == NGX_HTTP_KVROUTE_QUEUE_WAITED);
}


/*
 * A response begins.  A request that still holds its reservation has had no
 * get(), and will have none: the response is the cache's or nginx's own.
 */
void
ngx_http_kvroute_queue_answered(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_get_ctx(r);

    if (ctx && ctx->wait) {
        ngx_http_kvroute_queue_return(ctx->wait);
    }
}


/* there will be no get() for it */
void
ngx_http_kvroute_queue_return(ngx_http_kvroute_wait_t *w)
{
    if (w->held) {
        ngx_http_kvroute_queue_count(w, -1);
        ngx_http_kvroute_queue_freed(w->conf);
    }
}
