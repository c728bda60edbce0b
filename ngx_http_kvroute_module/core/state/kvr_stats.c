
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

    /* the last block of a prompt is seldom full: all but that is a lot */

    { { 0, 100000, 250000, 500000, 750000, 900000, 950000, 990000, 1000000 },
      9, 1e6 },

    /* from a gap between two requests to the patience of a client */

    { { 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000,
        300000 },
      14, 1e3 }
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


void
kvr_stats_reset(kvr_stats_t *stats)
{
    uint32_t  i, n;

    for (n = 0; n < KVR_STATS_HISTOGRAMS; n++) {

        for (i = 0; i <= KVR_STATS_BUCKETS; i++) {
            kvr_set(&stats->histogram[n].bucket[i], 0);
        }

        kvr_set(&stats->histogram[n].sum, 0);
    }

    for (i = 0; i < KVR_POLICIES; i++) {
        kvr_set(&stats->policy[i], 0);
    }
}


uint64_t
kvr_receipts_put(kvr_receipts_t *ring, const kvr_receipt_t *receipt)
{
    uint64_t              number;
    kvr_receipt_entry_t  *e;

    number = atomic_fetch_add_explicit(&ring->last, 1, memory_order_relaxed)
             + 1;

    e = &ring->entry[number % KVR_STATS_RECEIPTS];

    kvr_set(&e->number, 0);

    atomic_thread_fence(memory_order_release);

    kvr_set(&e->time, receipt->time);
    kvr_set(&e->hash, receipt->hash);
    kvr_set(&e->prompt, receipt->prompt);
    kvr_set(&e->matched, receipt->matched);
    kvr_set(&e->best, receipt->best);
    kvr_set(&e->ttft, 0);
    kvr_set(&e->stream, 0);
    kvr_set(&e->upstream, receipt->upstream);
    kvr_set(&e->peer, receipt->peer);
    kvr_set(&e->policy, receipt->policy);
    kvr_set(&e->reason, receipt->reason);

    atomic_store_explicit(&e->number, number, memory_order_release);

    return number;
}


void
kvr_receipts_ttft(kvr_receipts_t *ring, uint64_t number, uint32_t ms,
    int stream)
{
    kvr_receipt_entry_t  *e;

    e = &ring->entry[number % KVR_STATS_RECEIPTS];

    /* one written over just now gets a time that is not its own: so be it */

    if (number && kvr_get(&e->number) == number) {
        kvr_set(&e->stream, stream != 0);
        kvr_set(&e->ttft, ms + 1);
    }
}


int
kvr_receipts_get(kvr_receipts_t *ring, uint64_t number, kvr_receipt_t *receipt)
{
    kvr_receipt_entry_t  *e;

    e = &ring->entry[number % KVR_STATS_RECEIPTS];

    if (number == 0
        || atomic_load_explicit(&e->number, memory_order_acquire) != number)
    {
        return KVR_DECLINED;
    }

    receipt->number = number;
    receipt->time = kvr_get(&e->time);
    receipt->hash = kvr_get(&e->hash);
    receipt->prompt = kvr_get(&e->prompt);
    receipt->matched = kvr_get(&e->matched);
    receipt->best = kvr_get(&e->best);
    receipt->ttft = kvr_get(&e->ttft);
    receipt->upstream = kvr_get(&e->upstream);
    receipt->peer = kvr_get(&e->peer);
    receipt->policy = kvr_get(&e->policy);
    receipt->reason = kvr_get(&e->reason);
    receipt->stream = kvr_get(&e->stream);

    atomic_thread_fence(memory_order_acquire);

    return kvr_get(&e->number) == number ? KVR_OK : KVR_DECLINED;
}
