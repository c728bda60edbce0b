
/*
 * Copyright (C) kvroute contributors
 */


/* What a zone has room for, and what it needs. */


#include "zone/ngx_http_kvroute_zone.h"


/* rows by default: for a few configurations alive at a time, and some more */
#define NGX_HTTP_KVROUTE_PROCESSES     128
#define NGX_HTTP_KVROUTE_LIVES         4
#define NGX_HTTP_KVROUTE_SPARE         16

/* with what the slab allocator has for itself: a head, and for each page */
size_t
ngx_http_kvroute_zone_size_min(ngx_http_kvroute_zone_t *zone)
{
    size_t      size, pages, own;
    ngx_uint_t  processes;

    for (pages = 16; /* void */ ; pages++) {

        size = pages * ngx_pagesize;
        own = 2 * ngx_pagesize + pages * sizeof(ngx_slab_page_t);

        processes = zone->processes
                    ? zone->processes
                    : ngx_http_kvroute_zone_size_processes(zone, size - own);

        if (ngx_http_kvroute_zone_size_index(processes)
            + kvr_index_size(NGX_HTTP_KVROUTE_LINES)
            <= size - own)
        {
            return size;
        }
    }
}


size_t
ngx_http_kvroute_zone_size_index(ngx_uint_t processes)
{
    return ngx_align(sizeof(ngx_http_kvroute_shm_t), KVR_CACHE_LINE)
           + ngx_align(sizeof(kvr_registry_t), KVR_CACHE_LINE)
           + ngx_align(sizeof(kvr_sketch_t), KVR_CACHE_LINE)
           + ngx_align(sizeof(kvr_popular_t), KVR_CACHE_LINE)
           + ngx_align(kvr_load_size(processes, KVR_REGISTRY_COLUMNS),
                       KVR_CACHE_LINE);
}


ngx_uint_t
ngx_http_kvroute_zone_size_processes(ngx_http_kvroute_zone_t *zone, size_t size)
{
    size_t            fit;
    ngx_uint_t        n;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(zone->cycle->conf_ctx,
                                           ngx_core_module);

    n = NGX_HTTP_KVROUTE_LIVES * ccf->worker_processes
        + NGX_HTTP_KVROUTE_SPARE;

    fit = size / 4 / (kvr_load_size(1, KVR_REGISTRY_COLUMNS)
                      - kvr_load_size(0, KVR_REGISTRY_COLUMNS));

    n = ngx_min(n, fit);
    n = ngx_min(n, KVR_ROWS);

    return ngx_max(n, NGX_HTTP_KVROUTE_PROCESSES);
}
