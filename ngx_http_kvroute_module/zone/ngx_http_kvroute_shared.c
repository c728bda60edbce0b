
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Shared memory for one structure, besides the zones.  So a reload can turn
 * on a feature that needs memory, and the zone is kept.
 */


#include "zone/ngx_http_kvroute_zone.h"


ngx_shm_zone_t *
ngx_http_kvroute_shared_add(ngx_conf_t *cf, const char *prefix,
    uint64_t layout, ngx_str_t *name, size_t size)
{
    ngx_str_t        s;
    ngx_shm_zone_t  *shm_zone;

    s.len = ngx_strlen(prefix) + 2 * sizeof(uint64_t) + 1 + name->len;
    s.data = ngx_pnalloc(cf->pool, s.len);
    if (s.data == NULL) {
        return NULL;
    }

    ngx_sprintf(s.data, "%s%016xL.%V", prefix, layout, name);

    /* generous room for the slab allocator: its head, and a part per page */

    size = ngx_align(size + KVR_CACHE_LINE, ngx_pagesize) + 8 * ngx_pagesize;
    size += size / ngx_pagesize * sizeof(ngx_slab_page_t);
    size = ngx_align(size, ngx_pagesize);

    shm_zone = ngx_shared_memory_add(cf, &s, size, &ngx_http_kvroute_module);
    if (shm_zone == NULL) {
        return NULL;
    }

    shm_zone->init = ngx_http_kvroute_shared_init;

    return shm_zone;
}


ngx_int_t
ngx_http_kvroute_shared_init(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t            size;
    u_char           *p;
    ngx_slab_pool_t  *shpool;

    if (data) {
        shm_zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (shm_zone->shm.exists) {
        shm_zone->data = shpool->data;
        return NGX_OK;
    }

    /* all whole pages */

    size = shpool->pfree * ngx_pagesize;

    p = ngx_slab_alloc(shpool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    /* new memory is zero, and the system provides pages on first use */

#if (NGX_DEBUG_MALLOC || NGX_HAVE_DEBUG_MALLOC)
    ngx_memzero(p, size);
#endif

    shm_zone->data = ngx_align_ptr(p, KVR_CACHE_LINE);
    shpool->data = shm_zone->data;

    return NGX_OK;
}
