
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Judges all upstreams every few seconds, so that the status knows since when
 * a server has its state and a cause holds, also if no client has asked for
 * it.
 */


#include "status/ngx_http_kvroute_status.h"


#define NGX_HTTP_KVROUTE_WATCH_TIME  5000    /* ms */


static void ngx_http_kvroute_watch_timer(ngx_event_t *ev);


static ngx_event_t  ngx_http_kvroute_watch_event;


void
ngx_http_kvroute_status_watch(ngx_cycle_t *cycle)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    if (ngx_worker || kmcf->upstreams.nelts == 0) {
        return;
    }

    ngx_http_kvroute_timer_init(&ngx_http_kvroute_watch_event, NULL,
                                ngx_http_kvroute_watch_timer, NULL,
                                cycle->log);

    ngx_add_timer(&ngx_http_kvroute_watch_event, NGX_HTTP_KVROUTE_WATCH_TIME);
}


static void
ngx_http_kvroute_watch_timer(ngx_event_t *ev)
{
    ngx_pool_t  *pool;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ev->log);

    if (pool) {
        (void) ngx_http_kvroute_status_snapshot(pool, ev->log);
        ngx_destroy_pool(pool);
    }

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_WATCH_TIME);
}
