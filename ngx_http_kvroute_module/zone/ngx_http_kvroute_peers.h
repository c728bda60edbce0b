
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_


#include "ngx_http_kvroute.h"
#include "core/route/kvr_route.h"


/* as a process begins: finds them for all upstreams, servers before ranks */
ngx_int_t ngx_http_kvroute_peers_begin(ngx_array_t *upstreams, ngx_log_t *log);

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
 * Whether the i-th peer of a list has all the connections of its max_conns.
 * own: what the request that asks has reserved and does not count, or NULL.
 */
ngx_uint_t ngx_http_kvroute_peers_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer, const kvr_reservation_t *own);


/* goes through the peers of a list and their places, under nginx's lock */
#define ngx_http_kvroute_peers_each(peer, i, peers, list)                     \
    for (peer = (peers)->peer, i = 0;                                         \
         peer && i < (list)->number;                                          \
         peer = peer->next, i++)


/* the place of the peer with this name; the list's number if it is not there */
static ngx_inline ngx_uint_t
ngx_http_kvroute_peers_place(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_kvroute_list_t *list, ngx_str_t *name)
{
    ngx_uint_t                    i;
    ngx_http_upstream_rr_peer_t  *peer;

    ngx_http_kvroute_peers_each(peer, i, peers, list) {
        if (&peer->name == name) {
            return i;
        }
    }

    return list->number;
}


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


/* between _peers and _peers_number */

/* a list as it was read: for each of n what is below, its name and a '\0' */
typedef struct {
    u_char                      *data;
    size_t                       size;
    ngx_uint_t                   n;
} ngx_http_kvroute_names_t;


typedef struct {
    uint32_t                     weight;
    uint32_t                     max_conns; /* 0: no limit */
} ngx_http_kvroute_name_t;


/*
 * A zone may have too few numbers.  Who has one keeps it, with what is known of
 * him, so he is first: numbers of those that nobody names are given to others.
 * Then come servers, and ranks last, so that a server that tells of many leaves
 * numbers to the others.
 */
typedef enum {
    NGX_HTTP_KVROUTE_TURN_KNOWN = 0,
    NGX_HTTP_KVROUTE_TURN_SERVERS,
    NGX_HTTP_KVROUTE_TURN_RANKS
} ngx_http_kvroute_turn_e;


/* makes a list, which is empty, of what was read; without numbers */
ngx_int_t ngx_http_kvroute_peers_number_init(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_log_t *log);

/*
 * Gives numbers and members to those of both lists that have none, whose turn it
 * is by now.  again: they have waited for one.
 */
void ngx_http_kvroute_peers_number(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_names_t *names, ngx_http_kvroute_turn_e last,
    ngx_uint_t again);


#endif /* _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_ */
