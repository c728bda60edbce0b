
/*
 * Copyright (C) kvroute contributors
 */


#include "core/hot/kvr_sketch.h"


/* with fewer requests shares are unknown */
#define KVR_SKETCH_FEW  32


static void kvr_sketch_halve(kvr_sketch_t *sketch);


static inline _Atomic uint32_t *
kvr_sketch_count(kvr_sketch_t *sketch, uint64_t value)
{
    return &sketch->count[kvr_reduce(value, KVR_SKETCH_COUNTERS)];
}


/* Returns the entry of the i-th depth. */
static inline uint32_t
kvr_sketch_index(uint32_t i)
{
    return (1U << i) - 1;
}


void
kvr_sketch_add(kvr_sketch_t *sketch, const uint64_t *chain, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < KVR_SKETCH_DEPTHS && kvr_sketch_index(i) < n; i++) {
        kvr_add(kvr_sketch_count(sketch, chain[kvr_sketch_index(i)]), 1);
    }

    if ((kvr_add(&sketch->total, 1) + 1) % KVR_SKETCH_WINDOW == 0) {
        kvr_sketch_halve(sketch);
    }
}


/* Called once a window; concurrent additions can be lost. */
static void
kvr_sketch_halve(kvr_sketch_t *sketch)
{
    uint32_t  i;

    for (i = 0; i < KVR_SKETCH_COUNTERS; i++) {
        kvr_set(&sketch->count[i], kvr_get(&sketch->count[i]) / 2);
    }

    kvr_set(&sketch->total, KVR_SKETCH_WINDOW / 2);
}


double
kvr_sketch_share(kvr_sketch_t *sketch, uint64_t value)
{
    uint32_t  total;

    total = kvr_max(kvr_get(&sketch->total), KVR_SKETCH_FEW);

    return (double) kvr_get(kvr_sketch_count(sketch, value)) / total;
}


uint32_t
kvr_sketch_entry(kvr_sketch_t *sketch, const uint64_t *chain, uint32_t n,
    uint32_t peers)
{
    double    top, have, share;
    uint32_t  i, entry, branch;

    share = 0.5 / kvr_max(peers, 1);
    top = 0;
    branch = n;

    for (i = 0; i < KVR_SKETCH_DEPTHS && kvr_sketch_index(i) < n; i++) {

        entry = kvr_sketch_index(i);
        have = kvr_sketch_share(sketch, chain[entry]);

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
     * There are few conversations, each a large part of the traffic: they part
     * where the shares fall.  If these do not fall at a counted depth, the part
     * behind the last one must decide.
     */

    return branch < n ? branch : n - 1;
}
