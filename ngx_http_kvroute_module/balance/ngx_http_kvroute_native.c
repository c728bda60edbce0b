
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Requests without a body, and those that are to bypass us, are nginx's own
 * round robin's, whose distribution users know.  It is told of servers that are
 * full, being drained or ejected by marking them as tried: the latter two only
 * as long as there are others.  The marks are taken off again: should this try
 * fail, one of those may be all that is left.
 */


#include "balance/ngx_http_kvroute_balance_int.h"
#include "core/route/kvr_route.h"


static ngx_int_t ngx_http_kvroute_native_try(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_native_mark(ngx_http_kvroute_attempt_t *at,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_list_t *list,
    uintptr_t *tried);
static ngx_uint_t ngx_http_kvroute_native_spared(
    ngx_http_kvroute_attempt_t *at, ngx_http_kvroute_list_t *list,
    ngx_uint_t i);
static void ngx_http_kvroute_native_begin(ngx_http_kvroute_attempt_t *at);


ngx_int_t
ngx_http_kvroute_native_get(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at)
{
    ngx_int_t       rc;
    ngx_uint_t      n;
    kvr_decision_t  d;

    n = 0;

    /* servers may have changed since the lock was let go */

    do {
        rc = ngx_http_kvroute_native_try(pc, at);

    } while (rc == NGX_AGAIN && n++ < 3);

    if (rc == NGX_AGAIN) {
        rc = NGX_BUSY;
    }

    /* nginx's own knows no place that was given by the queue */

    if (rc == NGX_BUSY && at->rrp.peers->next == NULL && !at->over
        && ngx_http_kvroute_queue_again(at->ctx, at->conf))
    {
        at->mode = NGX_HTTP_KVROUTE_DECIDE;
        at->over = 1;

        ngx_http_kvroute_match_rings(at, pc->log);

        return NGX_DECLINED;
    }

    if (rc != NGX_OK && rc != NGX_DONE) {
        return rc;
    }

    ngx_http_kvroute_native_begin(at);

    ngx_memzero(&d, sizeof(kvr_decision_t));

    d.reason = at->tries ? KVR_REASON_RETRY
               : (at->mode == NGX_HTTP_KVROUTE_BYPASS) ? KVR_REASON_BYPASS
                                                         : KVR_REASON_BODYLESS;

    ngx_http_kvroute_receipt(pc, at, &d);

    return rc;
}


/* NGX_AGAIN: there is none in a list that is not nginx's any more */
static ngx_int_t
ngx_http_kvroute_native_try(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at)
{
    uintptr_t                     *tried;
    ngx_int_t                      rc;
    ngx_uint_t                     n, max, number;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = at->conf;

    for ( ;; ) {

        max = ngx_max(conf->list[0].number, conf->list[1].number);
        max = ngx_http_kvroute_tried_words(max);

        tried = ngx_pcalloc(at->ctx->request->pool, max * sizeof(uintptr_t));
        if (tried == NULL) {
            return NGX_ERROR;
        }

        peers = ngx_http_kvroute_choose_lock(pc, at);

        if (peers == NULL) {
            return NGX_BUSY;
        }

        list = &conf->list[peers != conf->upstream->peer.data];
        number = ngx_http_kvroute_tried_words(list->number);

        if (number <= max) {
            break;
        }

        /* there was no room made for what has come meanwhile */

        ngx_http_kvroute_lock_release(conf->zone, peers);
    }

    ngx_http_kvroute_native_mark(at, peers, list, tried);

    ngx_http_kvroute_lock_release(conf->zone, peers);

    rc = ngx_http_upstream_get_round_robin_peer(pc, &at->rrp);

    for (n = 0; at->rrp.peers == peers && n < number; n++) {
        at->rrp.tried[n] &= ~tried[n];
    }

    if (rc == NGX_BUSY
        && at->rrp.config != ngx_http_kvroute_peers_config(peers))
    {
        return NGX_AGAIN;
    }

    return rc;
}


/* marks who is not to be had, and notes it in tried */
static void
ngx_http_kvroute_native_mark(ngx_http_kvroute_attempt_t *at,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_list_t *list,
    uintptr_t *tried)
{
    time_t                         now;
    uintptr_t                      m;
    ngx_uint_t                     i, n, left;
    kvr_reservation_t             *own;
    ngx_http_upstream_rr_peer_t   *peer;

    own = ngx_http_kvroute_reserve_held(&at->ctx->reserved, at->conf);
    now = ngx_time();
    left = 0;

    ngx_http_kvroute_peers_each(peer, i, peers, list) {
        n = ngx_http_kvroute_tried_word(i);
        m = ngx_http_kvroute_tried_bit(i);

        if (ngx_http_kvroute_peers_full(at->conf, list, i, peer, own)) {
            tried[n] |= m & ~at->rrp.tried[n];

        } else if (!(at->rrp.tried[n] & m)
                   && !peer->down
                   && !ngx_http_kvroute_peers_failed(peers, peer, now))
        {
            left += !ngx_http_kvroute_native_spared(at, list, i);
        }
    }

    for (i = 0; i < list->number; i++) {
        n = ngx_http_kvroute_tried_word(i);
        m = ngx_http_kvroute_tried_bit(i);

        if (left && ngx_http_kvroute_native_spared(at, list, i)) {
            tried[n] |= m & ~at->rrp.tried[n];
        }

        at->rrp.tried[n] |= tried[n];
    }
}


/* whether a peer is for when there are no others */
static ngx_uint_t
ngx_http_kvroute_native_spared(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i)
{
    const kvr_zone_t  *zone;

    zone = &at->conf->zone->core;
    i = list->first[i];

    return kvr_candidate_draining(zone, list->id[i])
           || (at->conf->eject.on
               && kvr_eject_sick(zone, list->member[i],
                                 (uint64_t) ngx_current_msec));
}


/* counts the request at the peer that nginx has taken */
static void
ngx_http_kvroute_native_begin(ngx_http_kvroute_attempt_t *at)
{
    ngx_uint_t                     i;
    kvr_begin_t                    begin;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = at->conf;
    peers = at->rrp.peers;
    list = ngx_http_kvroute_balance_list(at);

    ngx_http_kvroute_lock_read(conf->zone, peers);

    i = ngx_http_kvroute_peers_place(peers, list, &at->rrp.current->name);

    if (i < list->number) {
        ngx_memzero(&begin, sizeof(kvr_begin_t));

        begin.peer = list->id[list->first[i]];
        begin.member = list->member[list->first[i]];
        begin.pending = at->ctx->bytes;

        at->member = begin.member;
        at->rank.number = NGX_HTTP_KVROUTE_UNSET_RANK;

        ngx_http_kvroute_attempt_begin(at, &begin);
    }

    ngx_http_kvroute_lock_release(conf->zone, peers);
}
