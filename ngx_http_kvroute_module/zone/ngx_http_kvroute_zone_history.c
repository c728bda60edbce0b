
/*
 * Copyright (C) kvroute contributors
 */


/* The upstreams of a zone, and their history. */


#include "zone/ngx_http_kvroute_zone.h"


ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_zone_next(ngx_http_kvroute_zone_t *zone, ngx_uint_t *i)
{
    ngx_http_kvroute_srv_conf_t   *kscf, **kscfp;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    kscfp = kmcf->upstreams.elts;

    while (*i < kmcf->upstreams.nelts) {
        kscf = kscfp[(*i)++];

        if (zone == NULL || kscf->zone == zone) {
            return kscf;
        }
    }

    return NULL;
}


/* Called once a second; only the latest configuration has all upstreams. */
void
ngx_http_kvroute_zone_look(ngx_http_kvroute_zone_t *zone)
{
    ngx_uint_t                    i;
    ngx_http_kvroute_srv_conf_t  *kscf;

    if (!ngx_http_kvroute_zone_latest(zone)
        || !kvr_history_step(zone->history, (uint64_t) ngx_current_msec))
    {
        return;
    }

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(zone, &i)) != NULL) {

        if (ngx_http_kvroute_zone_upstream(kscf)) {
            kvr_history_look(zone->history, &zone->core, kscf->number,
                             ngx_http_kvroute_zone_rejects(kscf),
                             (uint32_t) ngx_time());
        }
    }
}


kvr_upstream_t *
ngx_http_kvroute_zone_upstream(ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_str_t       *host;
    kvr_upstream_t  *upstream;

    host = &kscf->upstream->host;
    upstream = &kscf->zone->core.registry->upstream[kscf->number];

    if (upstream->len == host->len
        && ngx_memcmp(upstream->name, host->data, host->len) == 0)
    {
        return upstream;
    }

    return NULL;
}


uint64_t
ngx_http_kvroute_zone_rejects(ngx_http_kvroute_srv_conf_t *kscf)
{
    uint64_t             n;
    ngx_uint_t           i;
    kvr_queue_stats_t   *s;
    kvr_queue_shared_t  *shared;

    if (kscf->queue == NULL) {
        return 0;
    }

    shared = kscf->queue->shm_zone->data;

    for (i = 0, n = 0; i < KVR_QUEUE_CLASSES; i++) {
        s = &shared->stats[i];

        n += kvr_get(&s->full) + kvr_get(&s->timeouts) + kvr_get(&s->deadline)
             + kvr_get(&s->shed);
    }

    return n;
}
