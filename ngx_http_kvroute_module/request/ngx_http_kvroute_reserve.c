
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A reservation: a place at a peer before the request is sent there.
 *
 * It counts in this process's row like a request in flight, in a column of its
 * own.  A request has one, in its context: the queue makes it on admission,
 * the balancer for an early decision.  get() of that upstream takes it over,
 * or releases it once the request counts at another peer.  Without get(), the
 * first of these events releases it:
 *
 *     the request enters a location that passes to another upstream
 *     a response begins that is not the upstream's
 *     the request ends
 */


#include "request/ngx_http_kvroute_request.h"
#include "core/route/kvr_route.h"


kvr_reservation_t *
ngx_http_kvroute_reserve_held(ngx_http_kvroute_reserve_t *reserved,
    ngx_http_kvroute_srv_conf_t *conf)
{
    return reserved->core.held && reserved->conf == conf ? &reserved->core
                                                         : NULL;
}


void
ngx_http_kvroute_reserve_release(ngx_http_kvroute_reserve_t *reserved)
{
    reserved->attempt = NULL;

    if (reserved->core.held) {
        kvr_reservation_release(&reserved->conf->zone->core, &reserved->core);
        ngx_http_kvroute_reserve_freed(reserved->conf);
    }
}


void
ngx_http_kvroute_reserve_consume(ngx_http_kvroute_reserve_t *reserved,
    ngx_http_kvroute_srv_conf_t *conf, uint32_t peer)
{
    if (reserved->conf != conf) {
        ngx_http_kvroute_reserve_release(reserved);

    } else if (reserved->core.peer != peer) {
        ngx_http_kvroute_reserve_freed(conf);
    }
}


void
ngx_http_kvroute_reserve_freed(ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_event_t  *ev;

    if (conf->queue == NULL || !ngx_http_kvroute_queue_any(conf)) {
        return;
    }

    ev = conf->queue->freed;

    if (!ev->posted) {
        ngx_post_event(ev, &ngx_posted_events);
    }
}
