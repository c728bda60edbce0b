
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_events_place.h"


uint32_t
kvr_events_place_find(kvr_events_places_t *p, uint64_t key)
{
    unsigned           i;
    uint64_t           word;
    _Atomic uint64_t  *bucket;

    bucket = p->bucket[key % KVR_EVENTS_PLACES];

    for (i = 0; i < KVR_EVENTS_WAYS; i++) {
        word = kvr_get(&bucket[i]);

        if (word && word >> 32 == key >> 32) {
            return (uint32_t) word;
        }
    }

    return KVR_EVENTS_NOWHERE;
}


void
kvr_events_place_keep(kvr_events_places_t *p, uint64_t key, uint64_t depth)
{
    unsigned           i;
    _Atomic uint64_t  *bucket;

    /* no block ends at depth 0 */

    if (depth == 0 || depth >= KVR_EVENTS_NOWHERE
        || kvr_events_place_find(p, key) != KVR_EVENTS_NOWHERE)
    {
        return;
    }

    bucket = p->bucket[key % KVR_EVENTS_PLACES];

    for (i = KVR_EVENTS_WAYS - 1; i > 0; i--) {
        kvr_set(&bucket[i], kvr_get(&bucket[i - 1]));
    }

    kvr_set(&bucket[0], key >> 32 << 32 | depth);
}
