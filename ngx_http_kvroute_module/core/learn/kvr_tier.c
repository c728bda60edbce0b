
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_tier.h"


/* before the first measurement: a local disk */
#define KVR_TIER_DISK_PRICE  (KVR_TIER_ONE * 2 / 5)

/* a tier with all but 1/8 of the loaded units learns its price */
#define KVR_TIER_MOST        8

/* weight of a measurement: 1/32 */
#define KVR_TIER_SAMPLE      32


/* Returns how many of the units are younger than an age; 0: no limit. */
static uint32_t
kvr_tier_within(uint32_t until, uint32_t units, uint32_t age)
{
    int64_t  n;

    n = (int64_t) until - ((int64_t) age - units);

    return until == 0 ? units : (uint32_t) kvr_min(kvr_max(n, 0),
                                                   (int64_t) units);
}


kvr_tier_split_t
kvr_tier_split(const kvr_tier_t *tier, uint32_t units, uint32_t age,
    uint32_t stored)
{
    uint32_t          gpu, host;
    kvr_tier_split_t  split;

    gpu = kvr_tier_within(kvr_get(&tier[KVR_TIER_GPU].until), units, age);
    host = kvr_tier_within(kvr_get(&tier[KVR_TIER_HOST].until), units, age);

    host = kvr_max(host, gpu);

    split.host = host - gpu;
    split.disk = units - host;

    if (stored) {
        split.host = 0;
        split.disk = stored - kvr_min(gpu, stored);
    }

    return split;
}


uint32_t
kvr_tier_cost(const kvr_tier_prices_t *p, const kvr_tier_split_t *split)
{
    uint64_t  host, disk;

    host = kvr_get(&p->host);
    disk = kvr_get(&p->disk);

    return (uint32_t) ((split->host * (host ? host : KVR_TIER_HOST_PRICE)
                        + split->disk * (disk ? disk : KVR_TIER_DISK_PRICE))
                       / KVR_TIER_ONE);
}


void
kvr_tier_first(kvr_tier_prices_t *p, const kvr_tier_split_t *split,
    double took, double whole)
{
    double             price, old;
    uint32_t           all, start;
    _Atomic uint32_t  *known;

    all = split->host + split->disk;

    if (split->host >= all - all / KVR_TIER_MOST) {
        known = &p->host;
        start = KVR_TIER_HOST_PRICE;

    } else if (split->disk >= all - all / KVR_TIER_MOST) {
        known = &p->disk;
        start = KVR_TIER_DISK_PRICE;

    } else {
        return;
    }

    if (all == 0 || !(whole > 0)) {
        return;
    }

    price = kvr_min(kvr_max(took / whole, 0), 1) * KVR_TIER_ONE;

    old = kvr_get(known);
    old = old > 0 ? old : start;

    kvr_set(known, (uint32_t) kvr_max(old + (price - old) / KVR_TIER_SAMPLE,
                                      1));
}
