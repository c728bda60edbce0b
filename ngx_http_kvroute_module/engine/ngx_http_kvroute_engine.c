
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What follows from what engines tell, by probes or in their responses: the
 * capacity of their caches, that they have forgotten, that they have too much
 * to do.
 */


#include "ngx_http_kvroute.h"


#define NGX_HTTP_KVROUTE_MAX_PRESSURE     60    /* s */



static ngx_table_elt_t *ngx_http_kvroute_retry_after(ngx_http_upstream_t *u);


/* the peer has forgotten all */
void
ngx_http_kvroute_flush(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_uint_t why, ngx_log_t *log)
{
    kvr_peer_t  *peer;

    peer = &zone->sh->registry->peer[id];

    kvr_index_flush(zone->sh->index, id);
    kvr_feedback_restart(&peer->feedback);

    if (why == NGX_HTTP_KVROUTE_FLUSH_PROBE) {
        kvr_add(&peer->feedback.by_probe, 1);
    }

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "kvroute peer %*s was restarted: its cache is empty",
                  (size_t) peer->len, peer->name);
}


/* the peer asks to be left alone for a while: no fault of its */
void
ngx_http_kvroute_pressed(kvr_peer_t *peer, time_t seconds)
{
    seconds = ngx_max(seconds, 1);
    seconds = ngx_min(seconds, NGX_HTTP_KVROUTE_MAX_PRESSURE);

    kvr_set(&peer->signal.pressure,
            (uint64_t) ngx_current_msec + 1000 * (uint64_t) seconds);
}


/*
 * Whether a response with 429 or 503 asks to be left alone: it must then not
 * count as a failure. It says so by Retry-After. Engines that have too much to
 * do name no time, but their errors are JSON, which those of a proxy in front
 * of one that is gone are not. One that was found ill is not believed.
 */
ngx_uint_t
ngx_http_kvroute_busy(ngx_http_kvroute_attempt_t *at)
{
    ngx_int_t             n;
    ngx_uint_t            status;
    kvr_peer_t           *peer;
    ngx_table_elt_t      *h;
    ngx_http_upstream_t  *u;

    u = at->ctx->request->upstream;
    status = ngx_http_kvroute_attempt_status(at);

    if (at->core.reservation.peer == KVR_REGISTRY_NONE
        || (status != 429 && status != 503)) {
        return 0;
    }

    peer = &at->conf->zone->sh->registry->peer[at->core.reservation.peer];

    h = ngx_http_kvroute_retry_after(u);

    if (h) {
        n = ngx_atoi(h->value.data, h->value.len);
        ngx_http_kvroute_pressed(peer, n == NGX_ERROR ? 1 : n);

        return 1;
    }

    h = u->headers_in.content_type;

    if (h == NULL || h->value.len < 16
        || ngx_strncasecmp(h->value.data, (u_char *) "application/json", 16)
           != 0
        || (at->conf->health
            && kvr_get(&peer->signal.health) != KVR_HEALTH_UP))
    {
        return 0;
    }

    ngx_http_kvroute_pressed(peer, 1);

    return 1;
}


static ngx_table_elt_t *
ngx_http_kvroute_retry_after(ngx_http_upstream_t *u)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &u->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return NULL;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == 11
            && ngx_strncasecmp(h[i].key.data, (u_char *) "retry-after", 11)
               == 0)
        {
            return &h[i];
        }
    }
}


/* what an ORCA header tells: little, but by the way and fresh */
void
ngx_http_kvroute_orca(ngx_http_kvroute_attempt_t *at, ngx_str_t *value)
{
    kvr_metrics_t  m;

    ngx_memzero(&m, sizeof(kvr_metrics_t));

    if (kvr_metrics_orca(&m, value->data, value->len)) {
        kvr_engine_orca(&at->conf->zone->sh->registry->peer[at->core.reservation.peer].signal,
                        &m, (uint64_t) ngx_current_msec);
    }
}
