
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Matches ended requests with the blocks that engines have stored: a few at a
 * time, in worker 0, which reads the events.
 */


#include "events/ngx_http_kvroute_events_int.h"


#define NGX_HTTP_KVROUTE_EVENTS_ATTRIBUTE  50    /* ms */

/* requests at a time, and ms until the next ones if there are more */
#define NGX_HTTP_KVROUTE_EVENTS_REQUESTS   4
#define NGX_HTTP_KVROUTE_EVENTS_MORE       1


static void ngx_http_kvroute_events_attribute(ngx_event_t *ev);


static ngx_event_t  ngx_http_kvroute_events_attribute_event;


void
ngx_http_kvroute_events_attribute_init(ngx_cycle_t *cycle)
{
    ngx_uint_t                       i, n;
    ngx_event_t                     *ev;
    ngx_http_kvroute_srv_conf_t     *kscf;
    ngx_http_kvroute_events_conf_t  *events;

    i = 0;
    n = 0;

    while ((kscf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {
        events = ngx_http_kvroute_events_get(kscf);

        n += events && events->feeds && events->feeds->aliases;
    }

    if (n == 0) {
        return;
    }

    ev = &ngx_http_kvroute_events_attribute_event;

    ngx_http_kvroute_timer_init(ev, NULL, ngx_http_kvroute_events_attribute,
                                NULL, cycle->log);

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_EVENTS_ATTRIBUTE);
}


static void
ngx_http_kvroute_events_attribute(ngx_event_t *ev)
{
    uint32_t                         n;
    ngx_uint_t                       i, more;
    ngx_http_kvroute_srv_conf_t     *kscf;
    ngx_http_kvroute_events_conf_t  *events;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    i = 0;
    more = 0;

    while ((kscf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {
        events = ngx_http_kvroute_events_get(kscf);

        if (events == NULL || events->feeds == NULL
            || events->feeds->aliases == NULL
            || !ngx_http_kvroute_zone_latest(kscf->zone))
        {
            continue;
        }

        n = kvr_attribute_look(events->feeds,
                               NGX_HTTP_KVROUTE_EVENTS_REQUESTS,
                               (uint64_t) ngx_current_msec);

        more |= n == NGX_HTTP_KVROUTE_EVENTS_REQUESTS;
    }

    ngx_add_timer(ev, more ? NGX_HTTP_KVROUTE_EVENTS_MORE
                           : NGX_HTTP_KVROUTE_EVENTS_ATTRIBUTE);
}
