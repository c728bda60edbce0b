
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_


#include "ngx_http_kvroute.h"
#include "core/route/kvr_route.h"


/*
 * If a zone has too few slots, peers that have one keep it, with what is known
 * about them.  Slots of removed peers are then given to servers, and last to
 * ranks, so that a server with many ranks leaves slots for other servers.
 */
typedef enum {
    NGX_HTTP_KVROUTE_TURN_KNOWN = 0,
    NGX_HTTP_KVROUTE_TURN_SERVERS,
    NGX_HTTP_KVROUTE_TURN_RANKS
} ngx_http_kvroute_turn_e;


/* Finds the slots of all upstreams' peers when a process starts. */
ngx_int_t ngx_http_kvroute_peers_begin(ngx_array_t *upstreams, ngx_log_t *log);

/*
 * Finds the slots of an upstream's peers, up to a turn.  wait: wait for nginx's
 * lock; else NGX_BUSY if it is held, and nothing is changed.
 */
ngx_int_t ngx_http_kvroute_peers_find(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_turn_e last, ngx_uint_t wait, ngx_log_t *log);

/* Does the same, unless the slots of this list are known. */
ngx_int_t ngx_http_kvroute_peers_current(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t wait, ngx_log_t *log);


typedef void (*ngx_http_kvroute_peers_visit_pt)(void *data,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t k, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer);

/*
 * Calls visit() for each server i of list k of an upstream, under nginx's lock.
 * NGX_BUSY: the lock is held or the list has changed, and some servers were not
 * visited.
 */
ngx_int_t ngx_http_kvroute_peers_walk(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_peers_visit_pt visit, void *data);

void ngx_http_kvroute_peers_free(ngx_http_kvroute_list_t *list);

/*
 * Tells whether peer i of a list is at its max_conns.  own: the reservation of
 * this request, which does not count; or NULL.
 */
ngx_uint_t ngx_http_kvroute_peers_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer, const kvr_reservation_t *own);


/* goes through the peers of a list with their indexes, under nginx's lock */
#define ngx_http_kvroute_peers_each(peer, i, peers, list)                     \
    for (peer = (peers)->peer, i = 0;                                         \
         peer && i < (list)->number;                                          \
         peer = peer->next, i++)


/* Returns the index of the peer with this name, or the length of the list. */
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
 * Tells whether max_fails excludes a peer now; never a single peer, as nginx.
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

/* a copy of a list: n times the next structure, a name and '\0' */
typedef struct {
    u_char                      *data;
    size_t                       size;
    ngx_uint_t                   n;
} ngx_http_kvroute_names_t;


typedef struct {
    uint32_t                     weight;
    uint32_t                     max_conns; /* 0: no limit */
} ngx_http_kvroute_name_t;


/* Makes a list without slots from a copy. */
ngx_int_t ngx_http_kvroute_peers_number_init(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_log_t *log);

/*
 * Gives slots and members to peers of both lists without one, up to a turn.
 * again: they have waited for a slot.
 */
void ngx_http_kvroute_peers_number(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_names_t *names, ngx_http_kvroute_turn_e last,
    ngx_uint_t again);


#endif /* _NGX_HTTP_KVROUTE_PEERS_H_INCLUDED_ */
