
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _UTIL_REGISTRY_H_INCLUDED_
#define _UTIL_REGISTRY_H_INCLUDED_


/* Memory like a zone's: a registry followed by its shared part. */


#include <stdlib.h>
#include <string.h>

#include "core/state/kvr_registry.h"


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    kvr_registry_t  view;

    _Alignas(KVR_CACHE_LINE)
    uint8_t         shared[];
} util_registry_t;


/* Returns zeros, aligned to a cache line; free() frees them. */
static inline void *
util_zeroed(size_t size)
{
    void  *p;

    size = (size + KVR_CACHE_LINE - 1) & ~(KVR_CACHE_LINE - 1UL);
    p = aligned_alloc(KVR_CACHE_LINE, size);

    if (p == NULL) {
        abort();
    }

    memset(p, 0, size);

    return p;
}


static inline void
util_registry_clear(kvr_registry_t *reg, uint32_t max_peers)
{
    util_registry_t  *all;

    all = (util_registry_t *) (void *) reg;

    memset(all->shared, 0, kvr_registry_size(max_peers));
    kvr_registry_view(reg, (kvr_registry_shared_t *) (void *) all->shared,
                      max_peers);
}


/* Returns an empty registry; free() frees it. */
static inline kvr_registry_t *
util_registry(uint32_t max_peers)
{
    kvr_registry_t  *reg;

    reg = util_zeroed(sizeof(util_registry_t) + kvr_registry_size(max_peers));

    util_registry_clear(reg, max_peers);

    return reg;
}


#endif /* _UTIL_REGISTRY_H_INCLUDED_ */
