
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_inflight.h"


/* low bits of a place: the entry's number from 1, at most this */
#define KVR_INFLIGHT_ENTRY  2047


static uint32_t kvr_inflight_place(const uint64_t *chain, uint32_t entry);


uint32_t
kvr_inflight_add(kvr_inflight_t *f, const uint64_t *chain, uint32_t entry)
{
    uint32_t  place;

    place = kvr_inflight_place(chain, kvr_min(entry, KVR_INFLIGHT_ENTRY - 1));

    kvr_set(&f->place[kvr_add(&f->hand, 1) % KVR_INFLIGHT_MAX], place);

    return place;
}


/* Entries with equal words are not distinguished. */
void
kvr_inflight_answered(kvr_inflight_t *f, uint32_t place)
{
    uint32_t  i;

    for (i = 0; place && i < KVR_INFLIGHT_MAX; i++) {
        if (kvr_get(&f->place[i]) == place) {
            kvr_set(&f->place[i], 0);
            return;
        }
    }
}


int
kvr_inflight_any(const kvr_inflight_t *f, const uint64_t *chain, uint32_t n)
{
    uint32_t  i, entry, place;

    for (i = 0; i < KVR_INFLIGHT_MAX; i++) {

        /* most places are free */

        if (i % 4 == 0
            && !(kvr_get(&f->place[i]) | kvr_get(&f->place[i + 1])
                 | kvr_get(&f->place[i + 2]) | kvr_get(&f->place[i + 3])))
        {
            i += 3;
            continue;
        }

        place = kvr_get(&f->place[i]);
        entry = place & KVR_INFLIGHT_ENTRY;

        if (entry && entry <= n
            && kvr_inflight_place(chain, entry - 1) == place)
        {
            return 1;
        }
    }

    return 0;
}


/* Returns a value of the chain, with its place in the low bits; never 0. */
static uint32_t
kvr_inflight_place(const uint64_t *chain, uint32_t entry)
{
    return ((uint32_t) chain[entry] & ~(uint32_t) KVR_INFLIGHT_ENTRY)
           | ((entry + 1) & KVR_INFLIGHT_ENTRY);
}
