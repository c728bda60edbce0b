
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_stats.h"


typedef struct {
    uint64_t   bound[KVR_STATS_BUCKETS];
    uint32_t   n;
    double     scale;
} kvr_stats_kind_t;


/* from a short prompt on a fast engine to a queue of long ones */
#define KVR_STATS_ANSWER                                                      \
    { { 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000,        \
        5000000, 10000000, 30000000, 60000000, 300000000 },                   \
      13, 1e6 }


static const kvr_stats_kind_t  kvr_stats_kind[] = {

    KVR_STATS_ANSWER,
    KVR_STATS_ANSWER,

    { { 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000,
        1000000, 2500000, 10000000, 100000000 },
      13, 1e9 },

    /* the last block of a prompt is seldom full, so 0.99 is nearly all */

    { { 0, 100000, 250000, 500000, 750000, 900000, 950000, 990000, 1000000 },
      9, 1e6 },

    /* from the gap between two requests to a client's patience */

    { { 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000,
        300000 },
      14, 1e3 },

    KVR_STATS_ANSWER
};

_Static_assert(kvr_nelts(kvr_stats_kind) == KVR_STATS_HISTOGRAMS,
               "kvr_stats_kind");


const uint64_t *
kvr_stats_bounds(kvr_stats_e kind, uint32_t *n)
{
    *n = kvr_stats_kind[kind].n;

    return kvr_stats_kind[kind].bound;
}


double
kvr_stats_scale(kvr_stats_e kind)
{
    return kvr_stats_kind[kind].scale;
}


void
kvr_stats_observe(kvr_stats_t *stats, kvr_stats_e kind, uint64_t value)
{
    uint32_t                 i;
    kvr_histogram_t         *h;
    const kvr_stats_kind_t  *k;

    h = &stats->histogram[kind];
    k = &kvr_stats_kind[kind];

    for (i = 0; i < k->n; i++) {
        if (value <= k->bound[i]) {
            break;
        }
    }

    kvr_add(&h->bucket[i], 1);
    kvr_add(&h->sum, value);
}


void
kvr_stats_sum(const kvr_stats_t *stats, kvr_stats_e first, kvr_stats_e last,
    kvr_histogram_t *sum)
{
    uint32_t                i, kind;
    const kvr_histogram_t  *h;

    memset((void *) sum, 0, sizeof(kvr_histogram_t));

    for (kind = first; kind <= (uint32_t) last; kind++) {
        h = &stats->histogram[kind];

        for (i = 0; i <= KVR_STATS_BUCKETS; i++) {
            kvr_add(&sum->bucket[i], kvr_get(&h->bucket[i]));
        }

        kvr_add(&sum->sum, kvr_get(&h->sum));
    }
}
