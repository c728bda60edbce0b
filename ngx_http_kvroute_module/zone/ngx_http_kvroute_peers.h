
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_


#include "ngx_http_kvroute.h"
#include "core/route/kvr_route.h"


/*
 * Finds the numbers of an upstream's peers.  If wait is 0 nginx's lock
 * is not waited for: NGX_BUSY, and nothing is changed.
 */
ngx_int_t ngx_http_kvroute_peers_find(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t wait, ngx_log_t *log);

/* the same, unless they are known and the list is still that one */
ngx_int_t ngx_http_kvroute_peers_current(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t wait, ngx_log_t *log);


typedef void (*ngx_http_kvroute_peers_visit_pt)(void *data,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t k, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer);

/*
 * Calls visit() for server i of list k of an upstream, for each whose number
 * was found, under nginx's lock.  The lock is not waited for.  NGX_BUSY: it is
 * held, or the list is another by now, and some servers were not visited.
 */
ngx_int_t ngx_http_kvroute_peers_walk(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_peers_visit_pt visit, void *data);

void ngx_http_kvroute_peers_free(ngx_http_kvroute_list_t *list);

/*
 * Whether a peer has all the connections of its max_conns.  own: what the
 * request that asks has reserved and does not count, or NULL.
 */
ngx_uint_t ngx_http_kvroute_peers_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t member,
    const kvr_reservation_t *own);


/*
 * Whether a peer has failed too often to be had now.  As in nginx, nothing is
 * held against the only one there is.
 */
static ngx_inline ngx_uint_t
ngx_http_kvroute_peers_failed(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_t *peer, time_t now)
{
    return !peers->single
           && peer->max_fails
           && peer->fails >= peer->max_fails
           && now - peer->checked <= peer->fail_timeout;
}


#endif /* _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_ */
