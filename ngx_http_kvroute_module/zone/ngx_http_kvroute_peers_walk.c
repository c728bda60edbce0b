
/*
 * Copyright (C) kvroute contributors
 */


#include "zone/ngx_http_kvroute_zone.h"


ngx_int_t
ngx_http_kvroute_peers_walk(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_peers_visit_pt visit, void *data)
{
    ngx_uint_t                     i, k;
    ngx_http_kvroute_list_t       *list;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    peers = conf->upstream->peer.data;

    for (k = 0; k < 2 && peers; k++, peers = peers->next) {

        list = &conf->list[k];

        if (ngx_http_kvroute_lock_try_read(conf->zone, peers) != NGX_OK) {
            return NGX_BUSY;
        }

        if (ngx_http_kvroute_peers_config(peers) != conf->config) {
            ngx_http_kvroute_lock_release(conf->zone, peers);
            return NGX_BUSY;
        }

        for (peer = peers->peer, i = 0;
             peer && i < list->number;
             peer = peer->next, i++)
        {
            visit(data, conf, k, i, peer);
        }

        ngx_http_kvroute_lock_release(conf->zone, peers);
    }

    return NGX_OK;
}
