
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The peers of this configuration's upstreams: their numbers and members in the
 * zone, found once per worker and again when nginx has changed the list, also
 * in the middle of a request.
 */


#include "zone/ngx_http_kvroute_zone.h"


/* ms; after that those without a number are looked up again */
#define NGX_HTTP_KVROUTE_PEERS_AGAIN  1000


/* a list as it was read: for each of n its weight, its name and a '\0' */
typedef struct {
    u_char                      *data;
    size_t                       size;
    ngx_uint_t                   n;
} ngx_http_kvroute_names_t;


static ngx_int_t ngx_http_kvroute_peers_read(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_names_t *names,
    ngx_uint_t wait, ngx_log_t *log);
static ngx_int_t ngx_http_kvroute_peers_list(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_log_t *log);
static uint32_t ngx_http_kvroute_peers_ranks(
    ngx_http_kvroute_srv_conf_t *conf, u_char *name, size_t len);
static void ngx_http_kvroute_peers_target(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_uint_t t, uint32_t rank, u_char *name,
    size_t len, ngx_uint_t again);
static void ngx_http_kvroute_peers_number(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_uint_t again);
static void ngx_http_kvroute_peers_again(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
static void ngx_http_kvroute_peers_numbered(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
static uint64_t ngx_http_kvroute_peers_hash(u_char *name, size_t len);
static void ngx_http_kvroute_peers_missing(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_peers_rename(ngx_http_kvroute_zone_t *zone);


/*
 * What a zone has too few of, and what helps.  What only older workers use is
 * free when those have ended.
 */
static const char  *ngx_http_kvroute_limits[] = {
    "all numbers are in use (max_peers of kvroute_zone), some perhaps by "
    "workers from before a reload, which keep them until they exit; if this "
    "stays, raise max_peers (to 512 at most) or give upstreams a kvroute_zone "
    "of their own",

    "all places of servers in upstreams are in use (64 more than max_peers of "
    "kvroute_zone, 128 at least), some perhaps by workers from before a reload, "
    "which keep them until they exit; if this stays, raise max_peers or give "
    "upstreams a kvroute_zone of their own",

    "it has 64 upstreams already, some perhaps of workers from before a "
    "reload, which keep them until they exit; if this stays, give upstreams a "
    "kvroute_zone of their own",

    "their addresses are longer than 112 bytes, use shorter ones",

    "its name is longer than 252 bytes, use a shorter one"
};

_Static_assert(kvr_nelts(ngx_http_kvroute_limits) == KVR_REGISTRY_LIMITS,
               "limits of a zone");
_Static_assert(KVR_PEERS == 512 && KVR_REGISTRY_MEMBERS == 128
               && KVR_REGISTRY_SHARED == 64 && KVR_REGISTRY_UPSTREAMS == 64
               && KVR_REGISTRY_NAME_LEN == 112 && KVR_REGISTRY_TITLE_LEN == 252,
               "what is said of them");


ngx_int_t
ngx_http_kvroute_peers_find(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t wait, ngx_log_t *log)
{
    ngx_int_t                      rc;
    ngx_uint_t                     i, config;
    ngx_http_kvroute_names_t       names[2];
    ngx_http_upstream_rr_peers_t  *peers;

    ngx_memzero(names, sizeof(names));

    peers = conf->upstream->peer.data;

    /* read first: a change in between makes us come again */

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
    conf->ranked = kvr_get(conf->zone->sh->registry->ranked);
    conf->doubled = 0;
    conf->set = kvr_set_none();
    conf->numbered = 0;
    conf->edition++;

    for (i = 0; i < 2; i++) {
        rc = ngx_http_kvroute_peers_list(conf, &conf->list[i], &names[i], log);

        if (rc != NGX_OK) {
            ngx_http_kvroute_peers_free(&conf->list[0]);
            ngx_http_kvroute_peers_free(&conf->list[1]);
            goto done;
        }
    }

    conf->ready = 1;

    ngx_http_kvroute_peers_numbered(conf, log);

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
            && conf->ranked != kvr_get(conf->zone->sh->registry->ranked)))
    {
        return ngx_http_kvroute_peers_find(conf, wait, log);
    }

    if (conf->crowded) {
        ngx_http_kvroute_peers_again(conf, log);
    }

    return NGX_OK;
}


/* copies the names, since two locks at a time are one too many */
static ngx_int_t
ngx_http_kvroute_peers_read(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peers_t *peers, ngx_http_kvroute_names_t *names,
    ngx_uint_t wait, ngx_log_t *log)
{
    size_t                        size;
    u_char                       *p;
    uint32_t                      weight;
    ngx_http_upstream_rr_peer_t  *peer;

    if (peers == NULL) {
        return NGX_OK;
    }

    for ( ;; ) {

        if (wait) {
            ngx_http_kvroute_lock_read(conf->zone, peers);

        } else if (ngx_http_kvroute_lock_try_read(conf->zone, peers)
                   != NGX_OK) {
            return NGX_BUSY;
        }

        size = 1;

        for (peer = peers->peer; peer; peer = peer->next) {
            size += sizeof(uint32_t) + peer->name.len + 1;
        }

        if (size <= names->size) {
            break;
        }

        /* memory is got without the lock, and may be too little by then */

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
        weight = (uint32_t) peer->weight;

        p = ngx_cpymem(p, &weight, sizeof(uint32_t));
        p = ngx_cpymem(p, peer->name.data, peer->name.len);
        *p++ = '\0';

        names->n++;
    }

    ngx_http_kvroute_lock_release(conf->zone, peers);

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_peers_list(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_log_t *log)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i, n;

    ngx_http_kvroute_peers_free(list);

    n = names->n;

    if (n == 0) {
        return NGX_OK;
    }

    list->first = ngx_alloc((n + 1) * sizeof(uint32_t), log);
    if (list->first == NULL) {
        return NGX_ERROR;
    }

    list->first[0] = 0;

    for (i = 0, p = names->data; i < n; i++, p += len + 1) {
        p += sizeof(uint32_t);
        len = ngx_strlen(p);

        list->first[i + 1] = list->first[i]
                             + ngx_http_kvroute_peers_ranks(conf, p, len);
    }

    list->number = n;
    list->targets = list->first[n];

    n = list->targets;

    list->id = ngx_alloc(2 * n * sizeof(uint32_t), log);
    list->peer = ngx_alloc(n * sizeof(kvr_ring_peer_t), log);

    if (list->id == NULL || list->peer == NULL) {
        return NGX_ERROR;
    }

    list->member = list->id + n;

    ngx_http_kvroute_peers_number(conf, list, names, 0);

    return NGX_OK;
}


/* how many targets a server is: one, as long as nobody knows better */
static uint32_t
ngx_http_kvroute_peers_ranks(ngx_http_kvroute_srv_conf_t *conf, u_char *name,
    size_t len)
{
    uint32_t         id;
    kvr_registry_t  *registry;

    if (conf->ranks == 0) {
        return 1;
    }

    if (conf->ranks != NGX_HTTP_KVROUTE_RANKS_AUTO) {
        return (uint32_t) conf->ranks;
    }

    registry = conf->zone->sh->registry;
    id = kvr_registry_find_peer(registry, name, len);

    return id == KVR_REGISTRY_NONE
           ? 1 : ngx_max(kvr_get(&registry->peer[id].ranks), 1);
}


/* gives numbers and members to a whole list, or again to those without */
static void
ngx_http_kvroute_peers_number(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_uint_t again)
{
    u_char                    *p;
    size_t                     len;
    uint32_t                   weight, head, last, t, ranks;
    uint64_t                   hash;
    ngx_uint_t                 i;
    ngx_http_kvroute_zone_t   *zone;
    ngx_http_kvroute_shctx_t  *sh;

    zone = conf->zone;
    sh = zone->sh;

    ngx_shmtx_lock(&zone->shpool->mutex);

    /* servers before ranks: one that tells of many leaves numbers to the others */

    for (ranks = 0; ranks <= (conf->ranks != 0); ranks++) {
        p = names->data;

        for (i = 0; i < list->number; i++, p += len + 1) {

            ngx_memcpy(&weight, p, sizeof(uint32_t));

            p += sizeof(uint32_t);
            len = ngx_strlen(p);
            hash = ngx_http_kvroute_peers_hash(p, len);

            head = list->first[i];
            last = ranks ? list->first[i + 1] : head + 1;

            for (t = head + ranks; t < last; t++) {

                if (!again) {

                    /* the same on all hosts, so that their rings agree */

                    list->peer[t].weight = weight;
                    list->peer[t].hash = ranks ? kvr_mix(hash, t - head)
                                               : hash;
                }

                if (!again || list->id[t] == KVR_REGISTRY_NONE) {
                    ngx_http_kvroute_peers_target(conf, list, t, t - head, p,
                                                  len, again);
                }
            }

            if (ranks && list->id[head] != KVR_REGISTRY_NONE) {
                kvr_registry_share(sh->registry, list->id[head]);
            }
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    conf->pool.set = conf->set;
    conf->pool.capacity = conf->capacity;
    conf->pool.max_pending = conf->max_pending;
    conf->pool.target_ttft = conf->target_ttft;
    conf->pool.max_waiting = conf->max_waiting == NGX_CONF_UNSET ? -1
                             : conf->max_waiting;
    conf->pool.upstream = conf->number;
    conf->pool.eject = conf->eject;
    conf->pool.probe = conf->probe ? conf->probe->interval : 0;
    conf->pool.slow_start = (uint32_t) conf->slow_start;
    conf->pool.mandatory = conf->probe && conf->probe->mandatory;
    conf->pool.health = (conf->health != NULL);
}


/* one target, by the name of its server; called under the zone's mutex */
static void
ngx_http_kvroute_peers_target(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_uint_t t, uint32_t rank, u_char *name,
    size_t len, ngx_uint_t again)
{
    uint32_t                   id, head, member;
    uint64_t                   units;
    ngx_str_t                 *host;
    ngx_uint_t                 new;
    kvr_registry_t            *registry;
    ngx_http_kvroute_zone_t   *zone;
    ngx_http_kvroute_shctx_t  *sh;

    zone = conf->zone;
    sh = zone->sh;
    registry = sh->registry;
    host = &conf->upstream->host;

    units = conf->capacity / (zone->unit * KVR_BLOCK);
    head = list->id[t - rank];

    if (rank == 0) {
        new = kvr_registry_find_peer(registry, name, len) == KVR_REGISTRY_NONE;
        id = kvr_registry_peer(registry, sh->load, zone->core.row, sh->index,
                               name, len, units);

    } else if (head != KVR_REGISTRY_NONE) {
        new = kvr_registry_find_rank(registry, head, rank)
              == KVR_REGISTRY_NONE;
        id = kvr_registry_rank(registry, sh->load, zone->core.row, sh->index,
                               head, rank, units);

    } else {
        new = 0;
        id = KVR_REGISTRY_NONE;
    }

    member = KVR_REGISTRY_NONE;

    if (id != KVR_REGISTRY_NONE) {
        member = kvr_registry_member(registry, sh->load, zone->core.row, id,
                                     host->data, host->len);
    }

    if (member == KVR_REGISTRY_NONE) {
        id = KVR_REGISTRY_NONE;
        conf->limit = kvr_registry_limit(registry, name, len, host->data,
                                         host->len);
    }

    list->id[t] = id;
    list->member[t] = member;

    if (id == KVR_REGISTRY_NONE) {
        return;
    }

    /* who is there from the beginning, or in use, is not warmed up */

    if (new && !again && ngx_time() > (time_t) sh->created + 5) {
        kvr_set(&registry->peer[id].since, (uint32_t) ngx_time());
    }

    conf->number = registry->member[member].upstream;

    if (kvr_set_test(&conf->set, id)) {
        conf->doubled = 1;
        return;
    }

    kvr_set_add(&conf->set, id);
    conf->numbered++;
    conf->edition++;
}


/*
 * Numbers may have come free: those that were used by the configuration of
 * workers that have ended since.
 */
static __attribute__ ((noinline)) void
ngx_http_kvroute_peers_again(ngx_http_kvroute_srv_conf_t *conf, ngx_log_t *log)
{
    ngx_uint_t                     i;
    ngx_http_kvroute_names_t       names;
    ngx_http_upstream_rr_peers_t  *peers;

    if ((ngx_msec_int_t) (ngx_current_msec - conf->again) < 0) {
        return;
    }

    conf->again = ngx_current_msec + NGX_HTTP_KVROUTE_PEERS_AGAIN;

    peers = conf->upstream->peer.data;

    for (i = 0; peers && i < 2; i++, peers = peers->next) {

        ngx_memzero(&names, sizeof(names));

        if (ngx_http_kvroute_peers_read(conf, peers, &names, 0, log) == NGX_OK
            && names.n == conf->list[i].number
            && conf->config == ngx_http_kvroute_peers_config(peers))
        {
            ngx_http_kvroute_peers_number(conf, &conf->list[i], &names, 1);
        }

        free(names.data);
    }

    ngx_http_kvroute_peers_numbered(conf, log);
}


/* says who has no number, and why */
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
                      "kvroute_zone \"%V\" has no number for %ui servers of "
                      "upstream \"%V\", which are chosen by load only: %s",
                      &zone->name, n, &conf->upstream->host,
                      ngx_http_kvroute_limits[conf->limit]);

    } else if (n == 0 && conf->crowded) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "kvroute_zone \"%V\" has a number for each server of "
                      "upstream \"%V\" now",
                      &zone->name, &conf->upstream->host);
    }

    conf->crowded = (n != 0);

    ngx_http_kvroute_peers_missing(conf);
    ngx_http_kvroute_peers_rename(zone);
}


void
ngx_http_kvroute_peers_free(ngx_http_kvroute_list_t *list)
{
    free(list->first);
    free(list->id);
    free(list->peer);
    free(list->ring.point);

    ngx_memzero(list, sizeof(ngx_http_kvroute_list_t));
}


/*
 * nginx never returns the connections of a killed worker, so that max_conns is
 * held against counts of our own, which heal.
 */
ngx_uint_t
ngx_http_kvroute_peers_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t member,
    const kvr_reservation_t *own)
{
    kvr_load_t      *load;
    ngx_uint_t       conns, active;
    kvr_registry_t  *registry;

    if (peer->max_conns == 0) {
        return 0;
    }

    conns = peer->conns;

    if (member != KVR_REGISTRY_NONE) {

        /* a place that it has is its own: another worker may have found it at
           the same time, or one with another limit, since a reload */

        if (own && own->held && own->member == member) {
            return 0;
        }

        load = conf->zone->sh->load;
        registry = conf->zone->sh->registry;
        active = kvr_load_get(load, kvr_registry_column(registry, member))
                 .active;
        active += kvr_load_get(load, kvr_registry_reserved(registry, member))
                  .active;

        /* a server that is listed twice has a limit in each place */

        conns = conf->doubled ? ngx_min(conns, active) : active;

        /* what is told of a server is of all upstreams that it is in */

        if (conf->zone->share && conf->zone->share->fleet) {
            conns += kvr_load_elsewhere(load, conf->zone->sh->registry
                                                  ->member[member].peer)
                     .active;
        }
    }

    return conns >= peer->max_conns;
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
    kvr_member_t             *member;
    ngx_http_kvroute_zone_t  *zone;

    zone = conf->zone;

    if (conf->numbered == 0) {
        return;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0; i < zone->sh->registry->max_members; i++) {
        member = &zone->sh->registry->member[i];

        if (kvr_get(&member->used) && member->upstream == conf->number
            && !kvr_set_test(&conf->set, member->peer))
        {
            kvr_set(&member->lost, 1);
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


/* says which peers and members this process's configuration has by now */
static void
ngx_http_kvroute_peers_rename(ngx_http_kvroute_zone_t *zone)
{
    uint32_t                       column;
    uint64_t                       names[KVR_REGISTRY_NAMES];
    ngx_uint_t                     i, k, n;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_srv_conf_t   *kscf, **kscfp;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    ngx_memzero(names, sizeof(names));

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        kscf = kscfp[i];
        if (kscf->zone != zone) {
            continue;
        }

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

                column = kvr_registry_column(zone->sh->registry,
                                             list->member[n]);
                names[column / 64] |= (uint64_t) 1 << column % 64;
            }
        }
    }

    kvr_load_rename(zone->sh->load, zone->core.row, names);
}
