
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The peers of this configuration's upstreams: their numbers and seats in the
 * zone, found once per worker and again when nginx has changed the list, also
 * in the middle of a request.
 */


#include "ngx_http_kvroute.h"


static ngx_int_t ngx_http_kvroute_peers_list(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_list_t *list,
    ngx_log_t *log);
static uint64_t ngx_http_kvroute_peers_hash(u_char *name, size_t len);
static void ngx_http_kvroute_peers_missing(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_peers_rename(ngx_http_kvroute_zone_t *zone);


/* finds the numbers of an upstream's peers, once per worker and change */
ngx_int_t
ngx_http_kvroute_peers_find(ngx_http_kvroute_srv_conf_t *conf, ngx_log_t *log)
{
    ngx_uint_t                     i;
    ngx_http_kvroute_zone_t       *zone;
    ngx_http_upstream_rr_peers_t  *peers;

    zone = conf->zone;
    peers = conf->upstream->peer.data;

    conf->ready = 0;
    conf->doubled = 0;
    conf->set = 0;

    /* read first: a change in between makes us come again */

    conf->config = ngx_http_kvroute_peers_config(peers);

    for (i = 0; i < 2; i++) {

        if (ngx_http_kvroute_peers_list(conf, peers, &conf->list[i], log)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        peers = peers ? peers->next : NULL;
    }

    conf->ready = 1;

    ngx_http_kvroute_peers_missing(conf);
    ngx_http_kvroute_peers_rename(zone);

    return NGX_OK;
}


/* the same, unless they are known and the list is still that one */
ngx_int_t
ngx_http_kvroute_peers_current(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log)
{
    if (conf->ready
        && conf->config
           == ngx_http_kvroute_peers_config(conf->upstream->peer.data))
    {
        return NGX_OK;
    }

    return ngx_http_kvroute_peers_find(conf, log);
}


static ngx_int_t
ngx_http_kvroute_peers_list(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_list_t *list,
    ngx_log_t *log)
{
    u_char                        *names, *p;
    size_t                         size;
    uint32_t                       id, seat;
    uint64_t                       units;
    ngx_str_t                     *host;
    ngx_uint_t                     i, n, new;
    ngx_http_kvroute_zone_t       *zone;
    ngx_http_kvroute_shctx_t      *sh;
    ngx_http_upstream_rr_peer_t   *peer;

    ngx_http_kvroute_peers_free(list);

    if (peers == NULL) {
        return NGX_OK;
    }

    zone = conf->zone;
    sh = zone->sh;
    host = &conf->upstream->host;

    /* copy the names, since two locks at a time are one too many */

    ngx_http_upstream_rr_peers_rlock(peers);

    n = 0;
    size = 0;

    for (peer = peers->peer; peer; peer = peer->next) {
        size += peer->name.len + 1;
        n++;
    }

    names = ngx_alloc(size + 1, log);
    list->id = ngx_alloc((2 * n + 1) * sizeof(uint32_t), log);
    list->peer = ngx_alloc((n + 1) * sizeof(kvr_ring_peer_t), log);

    if (names && list->peer) {
        p = names;

        for (peer = peers->peer, i = 0; peer; peer = peer->next, i++) {
            p = ngx_cpymem(p, peer->name.data, peer->name.len);
            *p++ = '\0';

            list->peer[i].weight = (uint32_t) peer->weight;
        }
    }

    ngx_http_upstream_rr_peers_unlock(peers);

    if (names == NULL || list->id == NULL || list->peer == NULL) {
        free(names);
        ngx_http_kvroute_peers_free(list);
        return NGX_ERROR;
    }

    list->seat = list->id + n;
    list->number = n;

    units = conf->capacity / (zone->unit * KVR_BLOCK);

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0, p = names; i < n; i++, p += size + 1) {
        size = ngx_strlen(p);

        /* the same on all hosts, so that their rings agree */

        list->peer[i].hash = ngx_http_kvroute_peers_hash(p, size);

        seat = KVR_REGISTRY_NONE;
        new = (kvr_registry_find_peer(sh->registry, p, size)
               == KVR_REGISTRY_NONE);
        id = kvr_registry_peer(sh->registry, sh->load, zone->row, sh->index,
                               p, size, units);

        if (id != KVR_REGISTRY_NONE) {
            seat = kvr_registry_seat(sh->registry, sh->load, zone->row, id,
                                     host->data, host->len);
        }

        if (seat == KVR_REGISTRY_NONE) {
            id = KVR_REGISTRY_NONE;
        }

        list->id[i] = id;
        list->seat[i] = seat;

        /* those that the zone begins with are not warmed up */

        if (id != KVR_REGISTRY_NONE && new
            && ngx_time() > (time_t) sh->created + 5)
        {
            kvr_set(&sh->registry->peer[id].since, (uint32_t) ngx_time());
        }

        if (seat != KVR_REGISTRY_NONE) {
            conf->number = sh->registry->seat[seat].upstream;
        }

        if (id != KVR_REGISTRY_NONE) {
            conf->doubled |= conf->set >> id & 1;
            conf->set |= (uint64_t) 1 << id;
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    for (i = 0; i < n && !zone->crowded; i++) {

        if (list->id[i] == KVR_REGISTRY_NONE) {
            ngx_log_error(NGX_LOG_WARN, log, 0,
                          "kvroute_zone \"%V\" has no room for all peers of "
                          "upstream \"%V\", the rest is used by load only; "
                          "it has room for max_peers=%ui addresses and %d "
                          "servers in all its upstreams",
                          &zone->name, host, zone->max_peers,
                          (int) KVR_REGISTRY_SEATS);
            zone->crowded = 1;
        }
    }

    ngx_free(names);

    return NGX_OK;
}


void
ngx_http_kvroute_peers_free(ngx_http_kvroute_list_t *list)
{
    free(list->id);
    free(list->peer);
    free(list->ring.point);

    ngx_memzero(list, sizeof(ngx_http_kvroute_list_t));
}


/*
 * Locks the peers for writing.  If servers were added or removed since init(),
 * nginx's own balancers give up; there is no need to: what was found out about
 * those that are left still holds.
 */
ngx_http_upstream_rr_peers_t *
ngx_http_kvroute_peers_lock(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at)
{
    size_t                         size;
    ngx_uint_t                     i, config;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers, *all;

    conf = at->conf;

    for (i = 0; i < 3; i++) {

        peers = at->rrp.peers;

        ngx_http_upstream_rr_peers_wlock(peers);

        config = ngx_http_kvroute_peers_config(peers);

        if (config == at->rrp.config && config == conf->config) {
            return peers;
        }

        ngx_http_upstream_rr_peers_unlock(peers);

        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                       "kvroute peers changed: %ui %ui", config,
                       at->rrp.config);

        if (config != conf->config
            && (ngx_http_kvroute_peers_find(conf, pc->log) != NGX_OK
                || ngx_http_kvroute_choose_init(conf, pc->log) != NGX_OK))
        {
            break;
        }

        all = conf->upstream->peer.data;

        size = ngx_max(conf->list[0].number, conf->list[1].number);
        size = (size + (8 * sizeof(uintptr_t) - 1)) / (8 * sizeof(uintptr_t));

        at->rrp.tried = ngx_pcalloc(at->ctx->request->pool,
                                    size * sizeof(uintptr_t));
        if (at->rrp.tried == NULL) {
            break;
        }

        at->rrp.peers = all;
        at->rrp.config = conf->config;
        pc->tries = ngx_max(pc->tries, 1);

        /* matched[] goes by number, and new ones may have been given out */

        at->matched = NULL;
        at->chunks = NULL;
        at->keyed = 0;
        at->bound = NGX_HTTP_KVROUTE_UNSET_PEER;
        at->pin = NGX_HTTP_KVROUTE_UNSET_PEER;
        at->owner = NGX_HTTP_KVROUTE_UNSET_PEER;

        ngx_http_kvroute_match(at->ctx->request, at);
        ngx_http_kvroute_choose_prepare(at, pc->log);
    }

    peers = at->rrp.peers;
    pc->name = peers->name;

    return NULL;
}


static uint64_t
ngx_http_kvroute_peers_hash(u_char *name, size_t len)
{
    uint64_t  h;

    for (h = len; len; len--) {
        h = kvr_mix(h, *name++);
    }

    return h;
}


/* those that are in the upstream no more: should they be back, warm them up */
static void
ngx_http_kvroute_peers_missing(ngx_http_kvroute_srv_conf_t *conf)
{
    uint32_t                  i;
    kvr_seat_t               *seat;
    ngx_http_kvroute_zone_t  *zone;

    zone = conf->zone;

    if (conf->set == 0) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0; i < KVR_REGISTRY_SEATS; i++) {
        seat = &zone->sh->registry->seat[i];

        if (kvr_get(&seat->used) && seat->upstream == conf->number
            && !(conf->set >> seat->peer & 1))
        {
            kvr_set(&seat->lost, 1);
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


/* says which peers and seats this process's configuration has by now */
static void
ngx_http_kvroute_peers_rename(ngx_http_kvroute_zone_t *zone)
{
    uint32_t                        column;
    uint64_t                        names[KVR_LOAD_COLUMNS / 64];
    ngx_uint_t                      i, k, n;
    ngx_http_kvroute_list_t        *list;
    ngx_http_upstream_srv_conf_t  **uscf;
    ngx_http_kvroute_srv_conf_t    *kscf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    ngx_memzero(names, sizeof(names));

    uscf = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        kscf = ngx_http_conf_upstream_srv_conf(uscf[i],
                                               ngx_http_kvroute_module);
        if (kscf->zone != zone) {
            continue;
        }

        if (!kscf->ready) {
            return;
        }

        for (k = 0; k < 2; k++) {
            list = &kscf->list[k];

            for (n = 0; n < list->number; n++) {

                if (list->id[n] == KVR_REGISTRY_NONE) {
                    continue;
                }

                column = list->id[n];
                names[column / 64] |= (uint64_t) 1 << column % 64;

                column = kvr_registry_column(list->seat[n]);
                names[column / 64] |= (uint64_t) 1 << column % 64;
            }
        }
    }

    kvr_load_rename(zone->sh->load, zone->row, names);
}
