
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_demand.h"


#define KVR_DEMAND_UNITS  16     /* of a ms */


int
kvr_demand_add(kvr_demand_t *demand, double ms, uint64_t now)
{
    unsigned  over;
    uint64_t  word, until;

    word = kvr_get(demand);

    now *= KVR_DEMAND_UNITS;
    until = kvr_max(word >> 1, now);
    over = word & 1;

    if (until - now < KVR_DEMAND_REST * KVR_DEMAND_UNITS) {
        over = 0;
    }

    until += (uint64_t) (kvr_min(ms, KVR_DEMAND_KEPT) * KVR_DEMAND_UNITS);
    until = kvr_min(until, now + KVR_DEMAND_KEPT * KVR_DEMAND_UNITS);

    if (until - now >= KVR_DEMAND_MOST * KVR_DEMAND_UNITS) {
        over = 1;
    }

    kvr_set(demand, until << 1 | over);

    return (int) over;
}
