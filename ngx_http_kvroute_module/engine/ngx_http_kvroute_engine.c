
/*
 * Copyright (C) kvroute contributors
 */


/* Applies what engines report: restarts, overload, load in headers. */


#include "engine/ngx_http_kvroute_engine.h"
#include "request/ngx_http_kvroute_request.h"


#define NGX_HTTP_KVROUTE_MAX_PRESSURE     60    /* s */


static ngx_str_t  ngx_http_kvroute_engine_retry =
    ngx_string("retry-after");


void
ngx_http_kvroute_engine_flush(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_log_t *log)
{
    kvr_peer_t  *peer;

    peer = &zone->core.registry->peer[id];

    kvr_index_flush(zone->core.index, id);

    kvr_hooks(&zone->core, flushed, id, UINT64_MAX);

    kvr_feedback_restart(&peer->feedback);
    kvr_add(&peer->feedback.by_probe, 1);

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "kvroute peer %*s was restarted: its cache is empty",
                  (size_t) peer->len, peer->name);
}


void
ngx_http_kvroute_engine_lost(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_http_upstream_t *u)
{
    kvr_registry_t  *registry;

    registry = zone->core.registry;

    if (id != KVR_REGISTRY_NONE
        && u->state && u->state->connect_time == (ngx_msec_t) -1)
    {
        (void) kvr_registry_ranks(registry, registry->peer[id].address, 0);
    }
}


/* Applies to all ranks of an address. */
void
ngx_http_kvroute_engine_throttle(kvr_registry_t *registry, uint32_t id,
    time_t seconds)
{
    uint32_t     address;
    kvr_peer_t  *peer;

    address = registry->peer[id].address;
    peer = &registry->peer[address];

    seconds = ngx_max(seconds, 1);
    seconds = ngx_min(seconds, NGX_HTTP_KVROUTE_MAX_PRESSURE);

    kvr_set(&peer->engine.pressure,
            (uint64_t) ngx_current_msec + 1000 * (uint64_t) seconds);

    kvr_registry_share(registry, address);
}


/*
 * A 429 or 503 with Retry-After reports overload.  Without this header it does
 * if its body is JSON, because errors of a proxy in front of a dead engine are
 * not JSON, and if no health check has found the peer down.
 */
ngx_uint_t
ngx_http_kvroute_engine_busy(ngx_http_kvroute_srv_conf_t *conf, uint32_t id,
    ngx_http_upstream_t *u, ngx_uint_t status)
{
    ngx_int_t         n;
    kvr_peer_t       *peer;
    kvr_registry_t   *registry;
    ngx_table_elt_t  *h;

    if (id == KVR_REGISTRY_NONE || (status != 429 && status != 503)) {
        return 0;
    }

    registry = conf->zone->core.registry;
    peer = &registry->peer[id];

    h = ngx_http_kvroute_headers_next(&u->headers_in.headers,
                                      &ngx_http_kvroute_engine_retry, NULL);

    if (h) {
        n = ngx_atoi(h->value.data, h->value.len);
        ngx_http_kvroute_engine_throttle(registry, id, n == NGX_ERROR ? 1 : n);

        return NGX_HTTP_KVROUTE_BUSY_TIMED;
    }

    h = u->headers_in.content_type;

    if (h == NULL || h->value.len < 16
        || ngx_strncasecmp(h->value.data, (u_char *) "application/json", 16)
           != 0
        || (conf->health && kvr_get(&peer->engine.health) != KVR_HEALTH_UP))
    {
        return 0;
    }

    ngx_http_kvroute_engine_throttle(registry, id, 1);

    return NGX_HTTP_KVROUTE_BUSY_UNTIMED;
}
