
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _UTIL_ZONE_H_INCLUDED_
#define _UTIL_ZONE_H_INCLUDED_


#include "util_registry.h"
#include "core/route/kvr_route.h"


/* A zone for at most this many peers, with two rows, one of this process. */
static inline void
util_zone(kvr_zone_t *z, uint32_t max_peers, uint64_t lines)
{
    uint32_t  columns;

    columns = kvr_registry_columns(max_peers);

    z->registry = util_registry(max_peers);

    z->load = util_zeroed(kvr_load_size(2, columns));
    kvr_load_init(z->load, 2, columns);
    z->row = kvr_load_claim(z->load, kvr_load_owner(1, 1), 1);

    z->index = util_zeroed(kvr_index_size(lines, KVR_PEERS_FEW));
    kvr_index_init(z->index, lines, KVR_PEERS_FEW);

    z->hot = util_zeroed(sizeof(kvr_hot_t));
}


static inline void
util_zone_free(kvr_zone_t *z)
{
    free(z->registry);
    free(z->load);
    free(z->index);
    free(z->hot);
}


#endif /* _UTIL_ZONE_H_INCLUDED_ */
