
/*
 * Copyright (C) kvroute contributors
 */


/* The memory that a zone needs, and its default number of rows. */


#include "zone/ngx_http_kvroute_zone.h"


/* default rows: for a few configurations alive at a time, and spare ones */
#define NGX_HTTP_KVROUTE_PROCESSES     128
#define NGX_HTTP_KVROUTE_LIVES         4
#define NGX_HTTP_KVROUTE_SPARE         16


static size_t ngx_http_kvroute_zone_size_row(uint32_t max_peers);


/* Includes what the slab allocator needs: a head, and a part per page. */
size_t
ngx_http_kvroute_zone_size_min(ngx_http_kvroute_zone_t *zone)
{
    size_t                    size, pages, own;
    ngx_uint_t                processes;
    ngx_http_kvroute_parts_t  parts;

    for (pages = 16; /* void */ ; pages++) {

        size = pages * ngx_pagesize;
        own = 2 * ngx_pagesize + pages * sizeof(ngx_slab_page_t);

        processes = ngx_http_kvroute_zone_size_processes(zone, size - own);

        if (ngx_http_kvroute_zone_size_parts(zone, processes, &parts)
            + kvr_index_size(NGX_HTTP_KVROUTE_LINES,
                             (uint32_t) zone->max_peers)
            <= size - own)
        {
            return size;
        }
    }
}


size_t
ngx_http_kvroute_zone_size_parts(ngx_http_kvroute_zone_t *zone,
    ngx_uint_t processes, ngx_http_kvroute_parts_t *parts)
{
    size_t    history, load;
    uint32_t  peers;

    peers = (uint32_t) zone->max_peers;
    history = kvr_history_size(kvr_registry_max_members(peers));
    load = kvr_load_size((uint32_t) processes, kvr_registry_columns(peers));

    parts->registry = ngx_align(sizeof(ngx_http_kvroute_shm_t), KVR_CACHE_LINE);
    parts->sketch = parts->registry
                    + ngx_align(kvr_registry_size(peers), KVR_CACHE_LINE);
    parts->hot = parts->sketch
                 + ngx_align(sizeof(kvr_sketch_t), KVR_CACHE_LINE);
    parts->history = parts->hot
                     + ngx_align(sizeof(kvr_hot_t), KVR_CACHE_LINE);
    parts->load = parts->history + ngx_align(history, KVR_CACHE_LINE);
    parts->index = parts->load + ngx_align(load, KVR_CACHE_LINE);

    return parts->index;
}


ngx_uint_t
ngx_http_kvroute_zone_size_processes(ngx_http_kvroute_zone_t *zone, size_t size)
{
    size_t            row;
    ngx_uint_t        n, least;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(zone->cycle->conf_ctx,
                                           ngx_core_module);

    n = NGX_HTTP_KVROUTE_LIVES * ccf->worker_processes
        + NGX_HTTP_KVROUTE_SPARE;

    row = ngx_http_kvroute_zone_size_row((uint32_t) zone->max_peers);

    /* these need few bytes in any zone */

    least = NGX_HTTP_KVROUTE_PROCESSES
            * ngx_http_kvroute_zone_size_row(KVR_PEERS_FEW) / row;
    least = ngx_min(least, NGX_HTTP_KVROUTE_PROCESSES);

    n = ngx_min(n, size / 4 / row);
    n = ngx_min(n, KVR_ROWS);

    return ngx_max(n, least);
}


/* Returns the bytes of a process's row. */
static size_t
ngx_http_kvroute_zone_size_row(uint32_t max_peers)
{
    uint32_t  columns;

    columns = kvr_registry_columns(max_peers);

    return kvr_load_size(1, columns) - kvr_load_size(0, columns);
}
