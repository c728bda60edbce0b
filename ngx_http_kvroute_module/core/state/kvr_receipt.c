
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_receipt.h"


#define KVR_RECEIPT_TRACEPARENT  55      /* 00-..32..-..16..-01 */


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
    kvr_set(&e->trace[0], receipt->trace[0]);
    kvr_set(&e->trace[1], receipt->trace[1]);

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
    receipt->trace[0] = kvr_get(&e->trace[0]);
    receipt->trace[1] = kvr_get(&e->trace[1]);

    atomic_thread_fence(memory_order_acquire);

    return kvr_get(&e->number) == number ? KVR_OK : KVR_DECLINED;
}


int
kvr_receipt_trace(const uint8_t *value, size_t len, uint64_t trace[2])
{
    size_t    i;
    uint8_t   c, digit;
    uint64_t  part[3];      /* the span's id is looked at, and not kept */

    trace[0] = 0;
    trace[1] = 0;

    /* a later version may have more behind a further dash */

    if (len < KVR_RECEIPT_TRACEPARENT
        || (len > KVR_RECEIPT_TRACEPARENT
            && (memcmp(value, "00", 2) == 0
                || value[KVR_RECEIPT_TRACEPARENT] != '-'))
        || memcmp(value, "ff", 2) == 0)
    {
        return KVR_DECLINED;
    }

    part[0] = part[1] = part[2] = 0;

    for (i = 0; i < KVR_RECEIPT_TRACEPARENT; i++) {
        c = value[i];

        if (i == 2 || i == 35 || i == 52) {
            if (c != '-') {
                return KVR_DECLINED;
            }

            continue;
        }

        /* lower case only, as the specification has it */

        if (c >= '0' && c <= '9') {
            digit = (uint8_t) (c - '0');

        } else if (c >= 'a' && c <= 'f') {
            digit = (uint8_t) (c - 'a' + 10);

        } else {
            return KVR_DECLINED;
        }

        if (i > 2 && i < 52) {
            part[i < 19 ? 0 : i < 35 ? 1 : 2] =
                part[i < 19 ? 0 : i < 35 ? 1 : 2] << 4 | digit;
        }
    }

    if ((part[0] == 0 && part[1] == 0) || part[2] == 0) {
        return KVR_DECLINED;
    }

    trace[0] = part[0];
    trace[1] = part[1];

    return KVR_OK;
}
