
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_receipt.h"


uint64_t
kvr_receipt_put(kvr_receipts_t *ring, const kvr_receipt_t *receipt)
{
    uint64_t              number;
    kvr_receipt_entry_t  *e;

    number = atomic_fetch_add_explicit(&ring->last, 1, memory_order_relaxed)
             + 1;

    e = &ring->entry[number % KVR_RECEIPTS];

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
kvr_receipt_ttft(kvr_receipts_t *ring, uint64_t number, uint32_t ms,
    int stream)
{
    kvr_receipt_entry_t  *e;

    e = &ring->entry[number % KVR_RECEIPTS];

    /* one written over just now gets a time that is not its own: so be it */

    if (number && kvr_get(&e->number) == number) {
        kvr_set(&e->stream, stream != 0);
        kvr_set(&e->ttft, ms + 1);
    }
}


int
kvr_receipt_get(kvr_receipts_t *ring, uint64_t number, kvr_receipt_t *receipt)
{
    kvr_receipt_entry_t  *e;

    e = &ring->entry[number % KVR_RECEIPTS];

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
