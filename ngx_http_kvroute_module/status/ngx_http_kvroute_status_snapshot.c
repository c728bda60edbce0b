
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What there is to say of upstreams and their peers, read in one place, so
 * that the formats of the status cannot disagree.  Nothing is allocated while
 * the peers are locked.
 */


#include "status/ngx_http_kvroute_status.h"
#include "zone/ngx_http_kvroute_lock.h"


/* longer names of servers are cut */
#define NGX_HTTP_KVROUTE_SERVER_LEN  255


static ngx_int_t ngx_http_kvroute_fleet_upstream(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_fleet_t *fleet);
static void ngx_http_kvroute_fleet_peer(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, ngx_http_kvroute_fleet_peer_t *p);
static void ngx_http_kvroute_fleet_counters(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_fleet_peer_t *p);
static void ngx_http_kvroute_fleet_copy(ngx_str_t *dst, ngx_str_t *src,
    size_t max);
static const char *ngx_http_kvroute_fleet_state(
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_upstream_rr_peer_t *peer,
    uint32_t id);


const char  *ngx_http_kvroute_states[] = {
    "up", "unavail", "draining", "down", "unhealthy", "checking", NULL
};


ngx_http_kvroute_fleet_t *
ngx_http_kvroute_fleet_read(ngx_http_request_t *r)
{
    ngx_uint_t                      i;
    ngx_http_kvroute_fleet_t       *fleet;
    ngx_http_upstream_srv_conf_t  **uscf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    fleet = ngx_pcalloc(r->pool, (kmcf->upstreams.nelts + 1)
                                 * sizeof(ngx_http_kvroute_fleet_t));
    if (fleet == NULL) {
        return NULL;
    }

    uscf = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        if (ngx_http_kvroute_fleet_upstream(r, uscf[i], &fleet[i]) != NGX_OK) {
            return NULL;
        }
    }

    return fleet;
}


static ngx_int_t
ngx_http_kvroute_fleet_upstream(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_fleet_t *fleet)
{
    u_char                         *names;
    size_t                          len;
    ngx_int_t                       rc;
    ngx_uint_t                      i, k, n;
    kvr_upstream_t                 *upstream;
    ngx_http_kvroute_list_t        *list;
    ngx_http_kvroute_srv_conf_t    *conf;
    ngx_http_upstream_rr_peer_t    *peer;
    ngx_http_upstream_rr_peers_t   *peers;
    ngx_http_kvroute_fleet_peer_t  *p;

    conf = ngx_http_conf_upstream_srv_conf(uscf, ngx_http_kvroute_module);
    peers = uscf->peer.data;

    /* not to wait for one that is locked: it is said instead */

    rc = ngx_http_kvroute_peers_current(conf, 0, r->connection->log);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    fleet->locked = (rc != NGX_OK);

    fleet->name = uscf->host;
    fleet->conf = conf;

    n = conf->list[0].number + conf->list[1].number;
    len = KVR_REGISTRY_NAME_LEN + NGX_HTTP_KVROUTE_SERVER_LEN;

    fleet->peer = ngx_pcalloc(r->pool,
                              (n + 1) * sizeof(ngx_http_kvroute_fleet_peer_t));
    names = ngx_pnalloc(r->pool, (n + 1) * len);

    if (fleet->peer == NULL || names == NULL) {
        return NGX_ERROR;
    }

    for (k = 0; k < 2 && peers && !fleet->locked; k++, peers = peers->next) {

        list = &conf->list[k];

        if (ngx_http_kvroute_try_rlock(conf->zone, peers) != NGX_OK) {
            fleet->locked = 1;
            break;
        }

        for (peer = peers->peer, i = 0;
             peer && i < list->number;
             peer = peer->next, i++)
        {
            p = &fleet->peer[fleet->number++];

            p->name.data = names;
            p->server.data = names + KVR_REGISTRY_NAME_LEN;
            names += len;

            p->id = list->id[i];
            p->member = list->member[i];
            p->backup = k;

            ngx_http_kvroute_fleet_peer(conf, peer, p);
        }

        ngx_http_kvroute_unlock(conf->zone, peers);
    }

    for (i = 0; i < fleet->number; i++) {
        p = &fleet->peer[i];

        if (p->id == KVR_REGISTRY_NONE) {
            continue;
        }

        ngx_http_kvroute_fleet_counters(conf, p);

        for (k = 0; k < KVR_REASON_MAX; k++) {
            fleet->reason[k] += p->reason[k];
        }
    }

    upstream = &conf->zone->sh->registry->upstream[conf->number];

    if (upstream->len == uscf->host.len
        && ngx_memcmp(upstream->name, uscf->host.data, uscf->host.len) == 0)
    {
        fleet->shared = upstream;
    }

    return NGX_OK;
}


/* called under the peers' lock */
static void
ngx_http_kvroute_fleet_peer(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, ngx_http_kvroute_fleet_peer_t *p)
{
    ngx_http_kvroute_fleet_copy(&p->name, &peer->name, KVR_REGISTRY_NAME_LEN);
    ngx_http_kvroute_fleet_copy(&p->server, &peer->server,
                                NGX_HTTP_KVROUTE_SERVER_LEN);

    p->state = ngx_http_kvroute_fleet_state(conf, peer, p->id);
    p->weight = (ngx_uint_t) peer->weight;
    p->max_conns = peer->max_conns;
    p->conns = peer->conns;
    p->active = peer->conns;
}


static void
ngx_http_kvroute_fleet_counters(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_fleet_peer_t *p)
{
    ngx_uint_t                 i;
    kvr_member_t              *s;
    kvr_load_sum_t             own, reserved;
    kvr_index_peer_t          *ip;
    ngx_http_kvroute_shctx_t  *sh;

    sh = conf->zone->sh;
    s = &sh->registry->member[p->member];
    ip = &sh->index->peer[p->id];

    own = kvr_load_get(sh->load, kvr_registry_column(p->member));
    reserved = kvr_load_get(sh->load, kvr_registry_reserved(p->member));
    p->active = own.active + reserved.active;
    p->pending = own.pending + reserved.pending;
    p->all = kvr_load_get(sh->load, p->id);
    p->unanswered = kvr_load_get(sh->load, kvr_registry_resident(p->id)).active;

    p->requests = kvr_get(&s->requests);
    p->fails = kvr_get(&s->fails);
    p->unavail = kvr_get(&s->unavail);
    p->prompt = kvr_get(&s->prompt);
    p->matched = kvr_get(&s->matched);
    p->best = kvr_get(&s->best);
    p->selected = kvr_get(&s->selected);
    p->headers = kvr_get(&s->headers);
    p->header_ms = kvr_get(&s->header_ms);
    p->ends = kvr_get(&s->ends);
    p->end_ms = kvr_get(&s->end_ms);
    p->sent = kvr_get(&s->sent);
    p->received = kvr_get(&s->received);

    for (i = 0; i < 2; i++) {
        p->firsts[i] = kvr_get(&s->firsts[i]);
        p->ttft[i] = kvr_get(&s->ttft[i]);
    }

    for (i = 0; i < KVR_STATUS_CLASSES; i++) {
        p->responses[i] = kvr_get(&s->responses[i]);
    }

    for (i = 0; i < KVR_REASON_MAX; i++) {
        p->reason[i] = kvr_get(&s->reason[i]);
    }

    p->capacity = (uint64_t) kvr_get(&ip->capacity) * sh->unit * KVR_BLOCK;
    p->reported = kvr_get(&ip->reported);

    kvr_prefill_load(&sh->registry->peer[p->id].prefill,
                     (uint64_t) ngx_current_msec, &p->prefill);

    p->conf = conf;
    p->signal = &sh->registry->peer[p->id].signal;
    p->feedback = &sh->registry->peer[p->id].feedback;
}


static void
ngx_http_kvroute_fleet_copy(ngx_str_t *dst, ngx_str_t *src, size_t max)
{
    dst->len = ngx_min(src->len, max);
    ngx_memcpy(dst->data, src->data, dst->len);
}


static const char *
ngx_http_kvroute_fleet_state(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id)
{
    if (ngx_http_kvroute_draining_only(peer)) {
        return "draining";
    }

    if (peer->down) {
        return "down";
    }

    if (peer->max_fails
        && peer->fails >= peer->max_fails
        && ngx_time() - peer->checked <= peer->fail_timeout)
    {
        return "unavail";
    }

    if (id != KVR_REGISTRY_NONE
        && kvr_get(&conf->zone->sh->registry->peer[id].draining))
    {
        return "draining";
    }

    if (conf->health && id != KVR_REGISTRY_NONE) {

        switch (kvr_get(&conf->zone->sh->registry->peer[id].signal.health)) {

        case KVR_HEALTH_DOWN:
            return "unhealthy";

        case KVR_HEALTH_STARTING:
            return "checking";

        default:
            break;
        }
    }

    return "up";
}
