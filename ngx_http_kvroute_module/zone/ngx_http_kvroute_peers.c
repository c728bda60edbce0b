
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The peers of this configuration's upstreams: their slots and members in the
 * zone.  Each worker finds them once, and again when nginx has changed the
 * list, even during a request.
 */


#include "zone/ngx_http_kvroute_zone.h"


/* ms, between searches for free slots */
#define NGX_HTTP_KVROUTE_PEERS_AGAIN  1000


static ngx_int_t ngx_http_kvroute_peers_read(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_names_t *names,
    ngx_uint_t wait, ngx_log_t *log);
static void ngx_http_kvroute_peers_again(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
static void ngx_http_kvroute_peers_numbered(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
static void ngx_http_kvroute_peers_missing(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_peers_rename(ngx_http_kvroute_zone_t *zone);


/* the limit of a zone that was reached, and the remedy */
static const char  *ngx_http_kvroute_limits[] = {
    "all slots are in use (max_peers of kvroute_zone), some perhaps by "
    "workers from before a reload, which keep them until they exit; if this "
    "stays, raise max_peers (to 512 at most) or give upstreams their own "
    "kvroute_zone",

    "all entries for servers in upstreams are in use (64 more than max_peers "
    "of kvroute_zone, at least 128), some perhaps by workers from before a "
    "reload, which keep them until they exit; if this stays, raise max_peers "
    "or give upstreams their own kvroute_zone",

    "it has 64 upstreams already, some perhaps of workers from before a "
    "reload, which keep them until they exit; if this stays, give upstreams "
    "their own kvroute_zone",

    "their addresses are longer than 112 bytes, use shorter ones",

    "its name is longer than 252 bytes, use a shorter one"
};

_Static_assert(kvr_nelts(ngx_http_kvroute_limits) == KVR_REGISTRY_LIMITS,
               "limits of a zone");
_Static_assert(KVR_PEERS == 512 && KVR_REGISTRY_MEMBERS == 128
               && KVR_REGISTRY_SHARED == 64 && KVR_REGISTRY_UPSTREAMS == 64
               && KVR_REGISTRY_NAME_LEN == 112 && KVR_REGISTRY_TITLE_LEN == 252,
               "numbers in these texts");


ngx_int_t
ngx_http_kvroute_peers_begin(ngx_array_t *upstreams, ngx_log_t *log)
{
    ngx_uint_t                     i, turn;
    ngx_http_kvroute_srv_conf_t  **kscfp;

    kscfp = upstreams->elts;

    for (turn = NGX_HTTP_KVROUTE_TURN_KNOWN;
         turn <= NGX_HTTP_KVROUTE_TURN_RANKS;
         turn++)
    {
        for (i = 0; i < upstreams->nelts; i++) {

            /* NGX_BUSY: the first request finds the slots */

            if (ngx_http_kvroute_peers_find(kscfp[i], turn, 0, log)
                == NGX_ERROR)
            {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


/* Only the last turn makes conf->ready. */
ngx_int_t
ngx_http_kvroute_peers_find(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_turn_e last, ngx_uint_t wait, ngx_log_t *log)
{
    ngx_int_t                      rc;
    ngx_uint_t                     i, config;
    ngx_http_kvroute_names_t       names[2];
    ngx_http_upstream_rr_peers_t  *peers;

    ngx_memzero(names, sizeof(names));

    peers = conf->upstream->peer.data;

    /* read first, so that a change in between is noticed later */

    config = ngx_http_kvroute_peers_config(peers);

    for (i = 0; i < 2; i++) {
        rc = ngx_http_kvroute_peers_read(conf, peers, &names[i], wait, log);

        if (rc != NGX_OK) {
            goto done;
        }

        peers = peers ? peers->next : NULL;
    }

    conf->ready = 0;
    conf->config = config;
    conf->ranked = kvr_get(conf->zone->core.registry->ranked);
    conf->set = kvr_set_none();
    conf->numbered = 0;
    conf->edition++;

    for (i = 0; i < 2; i++) {
        ngx_http_kvroute_peers_free(&conf->list[i]);
        rc = ngx_http_kvroute_peers_number_init(conf, &conf->list[i], &names[i],
                                                log);

        if (rc != NGX_OK) {
            ngx_http_kvroute_peers_free(&conf->list[0]);
            ngx_http_kvroute_peers_free(&conf->list[1]);
            goto done;
        }
    }

    ngx_http_kvroute_peers_number(conf, names, last, 0);

    if (last == NGX_HTTP_KVROUTE_TURN_RANKS) {
        conf->ready = 1;
        ngx_http_kvroute_peers_numbered(conf, log);
    }

done:

    for (i = 0; i < 2; i++) {
        free(names[i].data);
    }

    return rc;
}


ngx_int_t
ngx_http_kvroute_peers_current(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t wait, ngx_log_t *log)
{
    if (!conf->ready
        || conf->config
           != ngx_http_kvroute_peers_config(conf->upstream->peer.data)
        || (conf->ranks == NGX_HTTP_KVROUTE_RANKS_AUTO
            && conf->ranked != kvr_get(conf->zone->core.registry->ranked)))
    {
        return ngx_http_kvroute_peers_find(conf, NGX_HTTP_KVROUTE_TURN_RANKS,
                                           wait, log);
    }

    if (conf->crowded) {
        ngx_http_kvroute_peers_again(conf, log);
    }

    return NGX_OK;
}


/* Copies the names, so that this lock and the zone's are not held together. */
static ngx_int_t
ngx_http_kvroute_peers_read(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_names_t *names,
    ngx_uint_t wait, ngx_log_t *log)
{
    size_t                        size;
    u_char                       *p;
    ngx_http_kvroute_name_t       name;
    ngx_http_upstream_rr_peer_t  *peer;

    if (peers == NULL) {
        return NGX_OK;
    }

    for ( ;; ) {

        if (wait) {
            ngx_http_kvroute_lock_read(conf->zone, peers);

        } else if (ngx_http_kvroute_lock_try(conf->zone, peers, 0) != NGX_OK) {
            return NGX_BUSY;
        }

        size = 1;

        for (peer = peers->peer; peer; peer = peer->next) {
            size += sizeof(ngx_http_kvroute_name_t) + peer->name.len + 1;
        }

        if (size <= names->size) {
            break;
        }

        /* allocate without the lock; the list may have grown by then */

        ngx_http_kvroute_lock_release(conf->zone, peers);

        free(names->data);

        names->data = ngx_alloc(size, log);
        if (names->data == NULL) {
            return NGX_ERROR;
        }

        names->size = size;
    }

    names->n = 0;
    p = names->data;

    for (peer = peers->peer; peer; peer = peer->next) {
        name.weight = (uint32_t) peer->weight;
        name.max_conns = (uint32_t) ngx_min(peer->max_conns, UINT32_MAX);

        p = ngx_cpymem(p, &name, sizeof(ngx_http_kvroute_name_t));
        p = ngx_cpymem(p, peer->name.data, peer->name.len);
        *p++ = '\0';

        names->n++;
    }

    ngx_http_kvroute_lock_release(conf->zone, peers);

    return NGX_OK;
}


/* Tries to get slots that workers of an older configuration have freed. */
static __attribute__ ((noinline)) void
ngx_http_kvroute_peers_again(ngx_http_kvroute_srv_conf_t *conf, ngx_log_t *log)
{
    ngx_uint_t                     i, same;
    ngx_http_kvroute_names_t       names[2];
    ngx_http_upstream_rr_peers_t  *peers;

    if ((ngx_msec_int_t) (ngx_current_msec - conf->again) < 0) {
        return;
    }

    conf->again = ngx_current_msec + NGX_HTTP_KVROUTE_PEERS_AGAIN;

    ngx_memzero(names, sizeof(names));

    same = 1;

    for (i = 0, peers = conf->upstream->peer.data; i < 2; i++) {

        same = same
               && ngx_http_kvroute_peers_read(conf, peers, &names[i], 0, log)
                  == NGX_OK
               && names[i].n == conf->list[i].number;

        peers = peers ? peers->next : NULL;
    }

    if (same && conf->config
                == ngx_http_kvroute_peers_config(conf->upstream->peer.data))
    {
        ngx_http_kvroute_peers_number(conf, names, NGX_HTTP_KVROUTE_TURN_RANKS,
                                      1);
        ngx_http_kvroute_peers_numbered(conf, log);
    }

    free(names[0].data);
    free(names[1].data);
}


/* Logs peers without a slot, and the reason. */
static void
ngx_http_kvroute_peers_numbered(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log)
{
    ngx_uint_t                i, k, n;
    ngx_http_kvroute_zone_t  *zone;

    zone = conf->zone;
    n = 0;

    for (k = 0; k < 2; k++) {
        for (i = 0; i < conf->list[k].targets; i++) {
            n += (conf->list[k].id[i] == KVR_REGISTRY_NONE);
        }
    }

    if (n && !conf->crowded) {
        conf->again = ngx_current_msec + NGX_HTTP_KVROUTE_PEERS_AGAIN;

        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "kvroute_zone \"%V\" has no slot for %ui %s of "
                      "upstream \"%V\", which are chosen by load only: %s",
                      &zone->name, n,
                      conf->ranks ? "servers or ranks" : "servers",
                      &conf->upstream->host,
                      ngx_http_kvroute_limits[conf->limit]);

    } else if (n == 0 && conf->crowded) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "kvroute_zone \"%V\" has a slot for each server of "
                      "upstream \"%V\" now",
                      &zone->name, &conf->upstream->host);
    }

    conf->crowded = (n != 0);

    ngx_http_kvroute_peers_missing(conf);
    ngx_http_kvroute_peers_rename(zone);
}


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

        if (ngx_http_kvroute_lock_try(conf->zone, peers, 0) != NGX_OK) {
            return NGX_BUSY;
        }

        if (ngx_http_kvroute_peers_config(peers) != conf->config) {
            ngx_http_kvroute_lock_release(conf->zone, peers);
            return NGX_BUSY;
        }

        ngx_http_kvroute_peers_each(peer, i, peers, list) {
            visit(data, conf, k, i, peer);
        }

        ngx_http_kvroute_lock_release(conf->zone, peers);
    }

    return NGX_OK;
}


void
ngx_http_kvroute_peers_free(ngx_http_kvroute_list_t *list)
{
    free(list->first);
    free(list->id);
    free(list->peer);

    ngx_memzero(list, sizeof(ngx_http_kvroute_list_t));
}


/*
 * nginx never removes the connections of a killed worker, so max_conns is
 * compared with counts of this module, which heal.
 *
 * A server that is listed several times has a limit per entry.  nginx counts
 * connections by entry.  Reservations and other workers' counts can use any
 * entry, so they are compared with the sum of the limits.
 */
ngx_uint_t
ngx_http_kvroute_peers_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer, const kvr_reservation_t *own)
{
    uint32_t         member;
    kvr_load_t      *load;
    ngx_uint_t       active, taken, held, shared;
    kvr_registry_t  *registry;

    if (peer->max_conns == 0) {
        return 0;
    }

    member = list->member[list->first[i]];

    if (member == KVR_REGISTRY_NONE) {
        return peer->conns >= peer->max_conns;
    }

    /* a reservation is valid even if others have filled the peer meanwhile */

    held = (own && own->held && own->member == member);
    shared = list->shared_conns[i];

    if (held && !shared) {
        return 0;
    }

    load = conf->zone->core.load;
    registry = conf->zone->core.registry;

    active = kvr_load_get(load, kvr_registry_column(registry, member)).active;

    if (shared && ngx_min(peer->conns, active) >= peer->max_conns) {
        return 1;
    }

    if (held) {
        return 0;
    }

    taken = active + kvr_load_get(load, kvr_registry_reserved(registry, member))
                     .active;

    /* other hosts report a server's requests of all its upstreams */

    if (conf->zone->all_hosts) {
        taken += kvr_load_elsewhere(load, registry->member[member].peer).active;
    }

    return taken >= (shared ? shared : peer->max_conns);
}


/* Marks removed servers, so that they are warmed up if they return. */
static void
ngx_http_kvroute_peers_missing(ngx_http_kvroute_srv_conf_t *conf)
{
    uint32_t                  i;
    kvr_member_t             *member;
    ngx_http_kvroute_zone_t  *zone;

    zone = conf->zone;

    if (conf->numbered == 0) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0; i < zone->core.registry->max_members; i++) {
        member = &zone->core.registry->member[i];

        if (kvr_get(&member->used) && member->upstream == conf->number
            && !kvr_set_test(&conf->set, member->peer))
        {
            kvr_set(&member->lost, 1);
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


/* Publishes which peers and members this process's configuration uses. */
static void
ngx_http_kvroute_peers_rename(ngx_http_kvroute_zone_t *zone)
{
    uint32_t                      column;
    uint64_t                      names[KVR_REGISTRY_NAMES];
    ngx_uint_t                    i, k, n;
    ngx_http_kvroute_list_t      *list;
    ngx_http_kvroute_srv_conf_t  *kscf;

    ngx_memzero(names, sizeof(names));

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(zone, &i)) != NULL) {

        if (!kscf->ready) {
            return;
        }

        for (k = 0; k < 2; k++) {
            list = &kscf->list[k];

            for (n = 0; n < list->targets; n++) {

                if (list->id[n] == KVR_REGISTRY_NONE) {
                    continue;
                }

                column = list->id[n];
                names[column / 64] |= (uint64_t) 1 << column % 64;

                column = kvr_registry_column(zone->core.registry,
                                             list->member[n]);
                names[column / 64] |= (uint64_t) 1 << column % 64;
            }
        }
    }

    kvr_load_rename(zone->core.load, zone->core.row, names);
}
