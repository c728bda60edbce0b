
/*
 * Copyright (C) kvroute contributors
 */


/* Gives the servers of an upstream slots and members in the zone. */


#include "zone/ngx_http_kvroute_zone.h"


static uint32_t ngx_http_kvroute_number_ranks(
    ngx_http_kvroute_srv_conf_t *conf, u_char *name, size_t len);
static uint64_t ngx_http_kvroute_number_hash(u_char *name, size_t len);
static void ngx_http_kvroute_number_turn(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_http_kvroute_turn_e turn, ngx_uint_t again);
static void ngx_http_kvroute_number_target(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_uint_t t, uint32_t rank, u_char *name,
    size_t len, ngx_http_kvroute_turn_e turn, ngx_uint_t again);
static void ngx_http_kvroute_number_places(ngx_http_kvroute_srv_conf_t *conf);


/* Returns the name behind p in a copy, or the first one if p is NULL. */
static u_char *
ngx_http_kvroute_number_next(ngx_http_kvroute_names_t *names, u_char *p,
    ngx_http_kvroute_name_t *name, size_t *len)
{
    p = p ? p + ngx_strlen(p) + 1 : names->data;

    ngx_memcpy(name, p, sizeof(ngx_http_kvroute_name_t));

    p += sizeof(ngx_http_kvroute_name_t);
    *len = ngx_strlen(p);

    return p;
}


ngx_int_t
ngx_http_kvroute_peers_number_init(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_log_t *log)
{
    u_char                   *p;
    size_t                    len;
    uint32_t                  t;
    uint64_t                  hash;
    ngx_uint_t                i, n;
    ngx_http_kvroute_name_t   name;

    n = names->n;

    if (n == 0) {
        return NGX_OK;
    }

    list->first = ngx_alloc((3 * n + 1) * sizeof(uint32_t), log);
    if (list->first == NULL) {
        return NGX_ERROR;
    }

    list->max_conns = list->first + n + 1;
    list->shared_conns = list->max_conns + n;

    list->first[0] = 0;

    for (i = 0, p = NULL; i < n; i++) {
        p = ngx_http_kvroute_number_next(names, p, &name, &len);

        list->first[i + 1] = list->first[i]
                             + ngx_http_kvroute_number_ranks(conf, p, len);
        list->max_conns[i] = name.max_conns;
        list->shared_conns[i] = 0;
    }

    list->number = n;
    list->targets = list->first[n];

    n = list->targets;

    list->id = ngx_alloc(2 * n * sizeof(uint32_t), log);
    list->peer = ngx_alloc(n * sizeof(kvr_home_peer_t), log);

    if (list->id == NULL || list->peer == NULL) {
        return NGX_ERROR;
    }

    list->member = list->id + n;

    for (i = 0, p = NULL; i < list->number; i++) {
        p = ngx_http_kvroute_number_next(names, p, &name, &len);
        hash = ngx_http_kvroute_number_hash(p, len);

        for (t = list->first[i]; t < list->first[i + 1]; t++) {

            list->id[t] = KVR_REGISTRY_NONE;
            list->member[t] = KVR_REGISTRY_NONE;

            /* equal on all hosts, so that their homes agree */

            list->peer[t].weight = name.weight;
            list->peer[t].hash = (t == list->first[i])
                                 ? hash : kvr_mix(hash, t - list->first[i]);
        }
    }

    return NGX_OK;
}


/* Returns the number of a server's targets: 1 unless it has ranks. */
static uint32_t
ngx_http_kvroute_number_ranks(ngx_http_kvroute_srv_conf_t *conf, u_char *name,
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

    registry = conf->zone->core.registry;
    id = kvr_registry_find_peer(registry, name, len);

    return id == KVR_REGISTRY_NONE
           ? 1 : ngx_max(kvr_get(&registry->peer[id].ranks), 1);
}


static uint64_t
ngx_http_kvroute_number_hash(u_char *name, size_t len)
{
    uint64_t  h;

    for (h = len; len; len--) {
        h = kvr_mix(h, *name++);
    }

    return h;
}


void
ngx_http_kvroute_peers_number(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_names_t *names, ngx_http_kvroute_turn_e last,
    ngx_uint_t again)
{
    uint32_t                  head, id;
    kvr_set_t                 set;
    ngx_uint_t                i, k, turn;
    ngx_http_kvroute_list_t  *list;
    ngx_http_kvroute_zone_t  *zone;

    zone = conf->zone;

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (turn = NGX_HTTP_KVROUTE_TURN_KNOWN; turn <= last; turn++) {
        for (k = 0; k < 2; k++) {
            ngx_http_kvroute_number_turn(conf, &conf->list[k], &names[k], turn,
                                         again);
        }
    }

    for (k = 0; conf->ranks && k < 2; k++) {
        list = &conf->list[k];

        for (i = 0; i < list->number; i++) {
            head = list->id[list->first[i]];

            if (head != KVR_REGISTRY_NONE) {
                kvr_registry_share(zone->core.registry, head);
            }
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    ngx_http_kvroute_number_places(conf);

    conf->pool.set = conf->set;
    conf->pool.max_pending = conf->max_pending;
    conf->pool.target_ttft = conf->target_ttft;
    conf->pool.max_waiting = conf->max_waiting == NGX_CONF_UNSET ? -1
                             : conf->max_waiting;
    conf->pool.upstream = conf->number;
    conf->pool.eject = conf->eject;
    conf->pool.probe = conf->probe ? conf->probe->interval : 0;
    conf->pool.slow_start = (uint32_t) conf->slow_start;
    conf->pool.health = (conf->health != NULL);

    set = conf->set;

    while (kvr_set_next(&set, &id)) {
        kvr_capacity_told(&zone->core, &conf->pool, id,
                          conf->host / KVR_BLOCK,
                          conf->disk / KVR_BLOCK,
                          (uint64_t) ngx_current_msec);

        kvr_capacity_configured(&zone->core, &conf->pool, id, conf->fixed,
                                (uint64_t) ngx_current_msec);
    }
}


/* Gives slots to a list; called under the zone's mutex. */
static void
ngx_http_kvroute_number_turn(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_names_t *names,
    ngx_http_kvroute_turn_e turn, ngx_uint_t again)
{
    u_char                   *p;
    size_t                    len;
    uint32_t                  t, head;
    ngx_uint_t                i;
    ngx_http_kvroute_name_t   name;

    for (i = 0, p = NULL; i < list->number; i++) {
        p = ngx_http_kvroute_number_next(names, p, &name, &len);
        head = list->first[i];

        for (t = head; t < list->first[i + 1]; t++) {

            if (list->id[t] == KVR_REGISTRY_NONE) {
                ngx_http_kvroute_number_target(conf, list, t, t - head, p, len,
                                               turn, again);
            }

            if (turn == NGX_HTTP_KVROUTE_TURN_SERVERS) {
                break;
            }
        }
    }
}


/* Gives a target a slot, by the name of its server. */
static void
ngx_http_kvroute_number_target(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_list_t *list, ngx_uint_t t, uint32_t rank, u_char *name,
    size_t len, ngx_http_kvroute_turn_e turn, ngx_uint_t again)
{
    uint32_t         id, head, known, member;
    uint64_t         units;
    ngx_str_t       *host;
    kvr_zone_t      *zone;
    kvr_registry_t  *registry;

    zone = &conf->zone->core;
    registry = zone->registry;
    host = &conf->upstream->host;

    units = conf->capacity / KVR_BLOCK;
    head = list->id[t - rank];

    known = KVR_REGISTRY_NONE;

    if (rank == 0) {
        known = kvr_registry_find_peer(registry, name, len);

    } else if (head != KVR_REGISTRY_NONE) {
        known = kvr_registry_find_rank(registry, head, rank);
    }

    if (known == KVR_REGISTRY_NONE && turn == NGX_HTTP_KVROUTE_TURN_KNOWN) {
        return;
    }

    id = KVR_REGISTRY_NONE;
    member = KVR_REGISTRY_NONE;

    if (rank == 0) {
        id = kvr_registry_peer(registry, zone->load, zone->row, zone->index,
                               name, len, units);

    } else if (head != KVR_REGISTRY_NONE) {
        id = kvr_registry_rank(registry, zone->load, zone->row, zone->index,
                               head, rank, units);
    }

    if (id != KVR_REGISTRY_NONE) {
        member = kvr_registry_member(registry, zone->load, zone->row, id,
                                     host->data, host->len);
    }

    if (member == KVR_REGISTRY_NONE) {
        conf->limit = kvr_registry_limit(registry, name, len, rank,
                                         host->data, host->len);
        return;
    }

    list->id[t] = id;
    list->member[t] = member;

    /* warm up only peers that were added later */

    if (known == KVR_REGISTRY_NONE && !again
        && ngx_time() > (time_t) conf->zone->shm->created + 5)
    {
        kvr_set(&registry->peer[id].since, (uint32_t) ngx_time());
    }

    conf->number = registry->member[member].upstream;

    if (!kvr_set_test(&conf->set, id)) {
        kvr_set_add(&conf->set, id);
        conf->numbered++;
        conf->edition++;
    }
}


/* Sums the limits of servers that are listed several times. */
static void
ngx_http_kvroute_number_places(ngx_http_kvroute_srv_conf_t *conf)
{
    uint32_t                  m, conns;
    ngx_uint_t                i, k;
    ngx_http_kvroute_list_t  *list;

    uint32_t                  sum[KVR_PEERS + KVR_REGISTRY_SHARED];
    uint16_t                  places[KVR_PEERS + KVR_REGISTRY_SHARED];

    ngx_memzero(sum, sizeof(sum));
    ngx_memzero(places, sizeof(places));

    for (k = 0; k < 2; k++) {
        list = &conf->list[k];

        for (i = 0; i < list->number; i++) {
            m = list->member[list->first[i]];

            if (m == KVR_REGISTRY_NONE) {
                continue;
            }

            conns = list->max_conns[i] ? list->max_conns[i] : UINT32_MAX;

            places[m]++;
            sum[m] += ngx_min(conns, UINT32_MAX - sum[m]);
        }
    }

    for (k = 0; k < 2; k++) {
        list = &conf->list[k];

        for (i = 0; i < list->number; i++) {
            m = list->member[list->first[i]];

            if (m != KVR_REGISTRY_NONE) {
                list->shared_conns[i] = places[m] > 1 ? sum[m] : 0;
            }
        }
    }
}
