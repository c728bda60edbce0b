
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Reads all values of upstreams and their peers in one place, so that the
 * formats of the status cannot disagree.  Nothing is allocated while the peers
 * are locked.
 */


#include "status/ngx_http_kvroute_status.h"


/* longer names of servers are truncated */
#define NGX_HTTP_KVROUTE_SERVER_LEN  255


static ngx_int_t ngx_http_kvroute_status_upstream(ngx_pool_t *pool,
    ngx_log_t *log, ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_status_upstream_t *u);
static void ngx_http_kvroute_status_server(void *data,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t k, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer);
static void ngx_http_kvroute_status_peer(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, ngx_http_kvroute_status_peer_t *p);
static void ngx_http_kvroute_status_counted(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_status_peer_t *p);
static void ngx_http_kvroute_status_copy(ngx_str_t *dst, ngx_str_t *src,
    size_t max);
static ngx_uint_t ngx_http_kvroute_status_placeholder(ngx_str_t *name);
static ngx_http_kvroute_status_state_e ngx_http_kvroute_status_state(
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_upstream_rr_peer_t *peer,
    uint32_t id, uint32_t member);


ngx_http_kvroute_status_upstream_t *
ngx_http_kvroute_status_snapshot(ngx_pool_t *pool, ngx_log_t *log)
{
    ngx_uint_t                            i;
    ngx_http_kvroute_srv_conf_t         **kscfp;
    ngx_http_kvroute_main_conf_t         *kmcf;
    ngx_http_kvroute_status_upstream_t   *all;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    all = ngx_pcalloc(pool, (kmcf->upstreams.nelts + 1)
                            * sizeof(ngx_http_kvroute_status_upstream_t));
    if (all == NULL) {
        return NULL;
    }

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        if (ngx_http_kvroute_status_upstream(pool, log, kscfp[i], &all[i])
            != NGX_OK)
        {
            return NULL;
        }
    }

    return all;
}


static ngx_int_t
ngx_http_kvroute_status_upstream(ngx_pool_t *pool, ngx_log_t *log,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_status_upstream_t *u)
{
    u_char                          *names;
    size_t                           len;
    ngx_int_t                        rc;
    ngx_uint_t                       i, n;
    kvr_member_t                    *counted;
    ngx_http_kvroute_status_peer_t  *p;

    /* does not wait for a lock: the status says that it is held */

    rc = ngx_http_kvroute_peers_current(conf, 0, log);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    u->locked = (rc != NGX_OK);

    /* the name of an upstream of "proxy_pass" with a path is not terminated */

    u->name.len = conf->upstream->host.len;
    u->name.data = ngx_pnalloc(pool, u->name.len + 1);

    if (u->name.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(u->name.data, conf->upstream->host.data,
                       u->name.len + 1);

    u->conf = conf;
    u->set = (conf->queue ? KVR_COUNTER_QUEUED : 0)
             | (conf->shadow ? KVR_COUNTER_SHADOWED : 0)
             | (conf->prefill ? KVR_COUNTER_LEGS : 0);

    n = conf->list[0].targets + conf->list[1].targets;
    len = KVR_REGISTRY_NAME_LEN + sizeof("#99") + NGX_HTTP_KVROUTE_SERVER_LEN;

    u->peer = ngx_pcalloc(pool, (n + 1) * sizeof(ngx_http_kvroute_status_peer_t));
    names = ngx_pnalloc(pool, (n + 1) * len);
    counted = ngx_pmemalign(pool, (n + 1) * sizeof(kvr_member_t),
                            KVR_CACHE_LINE);

    if (u->peer == NULL || names == NULL || counted == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(counted, (n + 1) * sizeof(kvr_member_t));

    for (i = 0; i < n; i++) {
        u->peer[i].server.data = names + i * len;
        u->peer[i].name.data = u->peer[i].server.data
                               + NGX_HTTP_KVROUTE_SERVER_LEN;
    }

    if (!u->locked) {
        rc = ngx_http_kvroute_peers_walk(conf, ngx_http_kvroute_status_server,
                                         u);
        u->locked = (rc != NGX_OK);
    }

    for (i = 0; i < u->number; i++) {
        p = &u->peer[i];

        p->conf = conf;
        p->counted = &counted[i];

        if (p->id != KVR_REGISTRY_NONE) {
            ngx_http_kvroute_status_counted(conf, p);
        }

        p->base[KVR_COUNTER_NOW] = &p->now;
        p->base[KVR_COUNTER_DRAIN] = &p->now;
        p->base[KVR_COUNTER_MEMBER] = p->counted;
        p->base[KVR_COUNTER_LOAD] = &p->now.load;
        p->base[KVR_COUNTER_CACHE] = p->feedback;
        p->base[KVR_COUNTER_HEALTH] = p->engine;
        p->base[KVR_COUNTER_ENGINE] = p->engine;
    }

    u->shared = ngx_http_kvroute_zone_upstream(conf);

    return ngx_http_kvroute_status_health(pool, u);
}


/* Called under the peers' lock. */
static void
ngx_http_kvroute_status_server(void *data, ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t k, ngx_uint_t i, ngx_http_upstream_rr_peer_t *peer)
{
    ngx_uint_t                           t;
    ngx_http_kvroute_list_t             *list;
    ngx_http_kvroute_status_peer_t      *p;
    ngx_http_kvroute_status_upstream_t  *u = data;

    list = &conf->list[k];

    for (t = list->first[i]; t < list->first[i + 1]; t++) {

        p = &u->peer[u->number++];

        p->id = list->id[t];
        p->member = list->member[t];
        p->head = list->member[list->first[i]];
        p->rank = (uint32_t) t - list->first[i];
        p->ranks = list->first[i + 1] - list->first[i];
        p->backup = k;

        ngx_http_kvroute_status_peer(conf, peer, p);
    }
}


static void
ngx_http_kvroute_status_peer(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, ngx_http_kvroute_status_peer_t *p)
{
    ngx_http_kvroute_status_copy(&p->name, &peer->name, KVR_REGISTRY_NAME_LEN);
    ngx_http_kvroute_status_copy(&p->server, &peer->server,
                                NGX_HTTP_KVROUTE_SERVER_LEN);

    if (p->ranks > 1) {
        p->name.len = ngx_sprintf(p->name.data + p->name.len, "#%uD", p->rank)
                      - p->name.data;
    }

    p->state = ngx_http_kvroute_status_state(conf, peer, p->id, p->head);
    p->weight = (ngx_uint_t) peer->weight;
    p->max_conns = peer->max_conns;

    /* connections belong to the address and are shown once */

    if (p->rank == 0) {
        p->conns = peer->conns;
        p->now.active = peer->conns;
    }
}


static void
ngx_http_kvroute_status_counted(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_status_peer_t *p)
{
    kvr_peer_t        *peer;
    const kvr_zone_t  *zone;

    zone = &conf->zone->core;
    peer = &zone->registry->peer[p->id];

    kvr_snapshot(zone, p->id, p->head, (uint64_t) ngx_current_msec, &p->now);

    /* the upstream counts the address only, so the rank shows all upstreams */

    if (p->ranks > 1) {
        p->now.active = p->now.active_all;
        p->now.pending = p->now.pending_all;
    }

    kvr_counter_copy(p->counted, &zone->registry->member[p->member],
                     sizeof(kvr_member_t));

    p->engine = &peer->engine;
    p->feedback = &peer->feedback;
    p->set = p->now.set;

    if (conf->probe) {
        p->set |= KVR_COUNTER_PROBED;
    }

    if (conf->health) {
        p->set |= KVR_COUNTER_CHECKED;
    }
}


static void
ngx_http_kvroute_status_copy(ngx_str_t *dst, ngx_str_t *src, size_t max)
{
    dst->len = ngx_min(src->len, max);
    ngx_memcpy(dst->data, src->data, dst->len);
}


/*
 * NGINX Ingress Controller writes "server unix:/.../nginx-502-server.sock" into
 * an upstream that has no endpoints.  nginx itself listens there and answers
 * 502.
 */
static ngx_uint_t
ngx_http_kvroute_status_placeholder(ngx_str_t *name)
{
    static const ngx_str_t  end = ngx_string("/nginx-502-server.sock");

    return name->len > end.len && ngx_strncmp(name->data, "unix:", 5) == 0
           && ngx_strncmp(name->data + name->len - end.len, end.data, end.len)
              == 0;
}


static ngx_http_kvroute_status_state_e
ngx_http_kvroute_status_state(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id, uint32_t member)
{
    uint64_t     state;
    kvr_zone_t  *zone;

    if (ngx_http_kvroute_status_placeholder(&peer->name)) {
        return NGX_HTTP_KVROUTE_STATE_PLACEHOLDER;
    }

    if (ngx_http_kvroute_draining_only(peer)) {
        return NGX_HTTP_KVROUTE_STATE_DRAINING;
    }

    if (peer->down) {
        return NGX_HTTP_KVROUTE_STATE_DOWN;
    }

    if (peer->max_fails
        && peer->fails >= peer->max_fails
        && ngx_time() - peer->checked <= peer->fail_timeout)
    {
        return NGX_HTTP_KVROUTE_STATE_UNAVAIL;
    }

    if (id != KVR_REGISTRY_NONE) {
        zone = &conf->zone->core;

        switch (kvr_drain_state(&zone->registry->peer[id].drain,
                                kvr_load_get(zone->load, id).active,
                                (uint64_t) ngx_current_msec))
        {
        case KVR_DRAIN_ON:
            return NGX_HTTP_KVROUTE_STATE_DRAINING;

        case KVR_DRAIN_EMPTY:
            return NGX_HTTP_KVROUTE_STATE_DRAINED;

        default:
            break;
        }
    }

    if (conf->health && id != KVR_REGISTRY_NONE) {

        switch (kvr_get(&conf->zone->core.registry->peer[id].engine.health)) {

        case KVR_HEALTH_DOWN:
            return NGX_HTTP_KVROUTE_STATE_UNHEALTHY;

        case KVR_HEALTH_STARTING:
            return NGX_HTTP_KVROUTE_STATE_CHECKING;

        default:
            break;
        }
    }

    if (conf->eject.on && member != KVR_REGISTRY_NONE) {
        state = kvr_get(&conf->zone->core.registry->member[member]
                        .outlier.state);

        if (kvr_outlier_ejected(state)) {
            return kvr_outlier_sick(state, (uint64_t) ngx_current_msec)
                   ? NGX_HTTP_KVROUTE_STATE_EJECTED
                   : NGX_HTTP_KVROUTE_STATE_PROBED;
        }
    }

    return NGX_HTTP_KVROUTE_STATE_UP;
}


void
ngx_http_kvroute_status_snapshot_zone(ngx_http_kvroute_zone_t *zone,
    kvr_counter_zone_t *z)
{
    uint32_t  i;

    ngx_memzero(z, sizeof(kvr_counter_zone_t));

    z->size = zone->shm_zone->shm.size;
    z->block = KVR_BLOCK;
    z->lines = zone->shm->lines;
    z->fill = kvr_index_fill(zone->core.index, (uint64_t) ngx_random());
    z->max_peers = zone->max_peers;
    z->max_processes = zone->processes;
    z->generation = zone->shm->generation;

    for (i = 0; i < zone->max_peers; i++) {
        z->peers += (zone->core.registry->peer[i].len != 0);
    }

    for (i = 0; i < zone->processes; i++) {
        z->processes += (zone->core.load->row[i].owner != 0);
    }
}
