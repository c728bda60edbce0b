
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_tier.h"


/* prices before the first measurement: PCIe, a local disk */
#define KVR_TIER_HOST_PRICE  (KVR_TIER_ONE / 10)
#define KVR_TIER_DISK_PRICE  (KVR_TIER_ONE * 2 / 5)

/* a tier with all but 1/8 of the loaded units learns its price */
#define KVR_TIER_MOST        8


static uint32_t
kvr_tier_price(const kvr_tier_t *tier, uint32_t price)
{
    uint32_t  known;

    known = kvr_get(&tier->price);

    return known ? known : price;
}


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
kvr_tier_split(const kvr_tier_t *tier, uint32_t units, uint32_t age)
{
    uint32_t          gpu, host;
    kvr_tier_split_t  split;

    gpu = kvr_tier_within(kvr_get(&tier[KVR_TIER_GPU].until), units, age);
    host = kvr_tier_within(kvr_get(&tier[KVR_TIER_HOST].until), units, age);

    host = kvr_max(host, gpu);

    split.host = host - gpu;
    split.disk = units - host;

    return split;
}


uint32_t
kvr_tier_cost(const kvr_tier_t *tier, const kvr_tier_split_t *split)
{
    uint64_t  cost;

    cost = (uint64_t) split->host * kvr_tier_price(&tier[KVR_TIER_HOST],
                                                   KVR_TIER_HOST_PRICE)
           + (uint64_t) split->disk * kvr_tier_price(&tier[KVR_TIER_DISK],
                                                     KVR_TIER_DISK_PRICE);

    return (uint32_t) (cost / KVR_TIER_ONE);
}


void
kvr_tier_first(kvr_tier_t *tier, const kvr_tier_split_t *split, double took,
    double whole)
{
    double       price;
    uint32_t     all, old, sample;
    kvr_tier_t  *t;

    all = split->host + split->disk;

    if (split->host >= all - all / KVR_TIER_MOST) {
        t = &tier[KVR_TIER_HOST];

    } else if (split->disk >= all - all / KVR_TIER_MOST) {
        t = &tier[KVR_TIER_DISK];

    } else {
        return;
    }

    if (all == 0 || whole <= 0) {
        return;
    }

    price = took / whole * KVR_TIER_ONE;

    sample = price > 1 ? price < KVR_TIER_ONE ? (uint32_t) price
                                              : KVR_TIER_ONE
                       : 1;
    old = kvr_get(&t->price);

    kvr_set(&t->price, old ? kvr_max(old - old / 8 + sample / 8, 1) : sample);
}
