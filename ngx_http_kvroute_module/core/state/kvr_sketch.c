
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_sketch.h"


/* so few requests tell nothing */
#define KVR_HOT_FEW  32


static void kvr_hot_halve(kvr_hot_t *hot);


static inline _Atomic uint32_t *
kvr_hot_count(kvr_hot_t *hot, uint64_t value)
{
    return &hot->count[kvr_reduce(value, KVR_HOT_COUNTERS)];
}


/* the entry at the i-th depth */
static inline uint32_t
kvr_hot_index(uint32_t i)
{
    return (1U << i) - 1;
}


void
kvr_hot_add(kvr_hot_t *hot, const uint64_t *chain, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < KVR_HOT_DEPTHS && kvr_hot_index(i) < n; i++) {
        kvr_add(kvr_hot_count(hot, chain[kvr_hot_index(i)]), 1);
    }

    if ((kvr_add(&hot->total, 1) + 1) % KVR_HOT_WINDOW == 0) {
        kvr_hot_halve(hot);
    }
}


/* who crosses the window does it; what others add meanwhile may be lost */
static void
kvr_hot_halve(kvr_hot_t *hot)
{
    uint32_t  i;

    for (i = 0; i < KVR_HOT_COUNTERS; i++) {
        kvr_set(&hot->count[i], kvr_get(&hot->count[i]) / 2);
    }

    kvr_set(&hot->total, KVR_HOT_WINDOW / 2);
}


double
kvr_hot_share(kvr_hot_t *hot, uint64_t value)
{
    uint32_t  total;

    total = kvr_max(kvr_get(&hot->total), KVR_HOT_FEW);

    return (double) kvr_get(kvr_hot_count(hot, value)) / total;
}


uint32_t
kvr_hot_entry(kvr_hot_t *hot, const uint64_t *chain, uint32_t n, double share)
{
    double    top, have;
    uint32_t  i, entry, branch;

    top = 0;
    branch = n;

    for (i = 0; i < KVR_HOT_DEPTHS && kvr_hot_index(i) < n; i++) {

        entry = kvr_hot_index(i);
        have = kvr_hot_share(hot, chain[entry]);

        if (have <= share) {
            return entry;
        }

        if (i == 0) {
            top = have;

        } else if (branch == n && have <= top / 2) {
            branch = entry;
        }
    }

    /*
     * Few conversations, each of them a large part of the traffic: they part
     * where the shares fall.  If they do not fall where it was counted, what
     * is behind must tell.
     */

    return branch < n ? branch : n - 1;
}


uint32_t
kvr_hot_key(kvr_hot_t *hot, const uint64_t *chain, uint32_t n, uint32_t length,
    uint64_t unit, uint32_t peers)
{
    uint32_t  entries;

    if (length == 0) {
        return kvr_hot_entry(hot, chain, n, 0.5 / kvr_max(peers, 1));
    }

    entries = kvr_chain_entries((uint32_t) kvr_max(length / unit, 1));

    return kvr_min(entries, n) - 1;
}
