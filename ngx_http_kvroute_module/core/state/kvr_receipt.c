
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_receipt.h"


#define KVR_RECEIPT_TRACEPARENT  55      /* 00-..32..-..16..-01 */


uint64_t
kvr_receipt_put(kvr_receipts_t *ring, const kvr_receipt_t *receipt)
{
    size_t             i;
    uint64_t           number, word[KVR_RECEIPT_WORDS];
    kvr_receipt_t      first;
    _Atomic uint64_t  *e;

    number = atomic_fetch_add_explicit(&ring->last, 1, memory_order_relaxed)
             + 1;

    e = ring->entry[number % KVR_RECEIPTS].word;

    kvr_set(&e[0], 0);

    atomic_thread_fence(memory_order_release);

    first = *receipt;
    first.ttft = 0;
    first.stream = 0;
    memset(first.tokens, 0, sizeof(first.tokens));

    memcpy(word, &first, sizeof(word));

    for (i = 1; i < KVR_RECEIPT_WORDS; i++) {
        kvr_set(&e[i], word[i]);
    }

    atomic_store_explicit(&e[0], number, memory_order_release);

    return number;
}


void
kvr_receipt_ttft(kvr_receipts_t *ring, uint64_t number, uint32_t ms,
    int stream)
{
    uint32_t           first[2];
    uint64_t           word;
    _Atomic uint64_t  *e;

    e = ring->entry[number % KVR_RECEIPTS].word;

    first[0] = ms + 1;
    first[1] = stream != 0;
    memcpy(&word, first, sizeof(word));

    /* an entry that is overwritten just now gets a wrong time: accepted */

    if (number && kvr_get(&e[0]) == number) {
        kvr_set(&e[KVR_RECEIPT_TTFT], word);
    }
}


void
kvr_receipt_usage(kvr_receipts_t *ring, uint64_t number, int64_t prompt,
    int64_t cached, int64_t output)
{
    uint32_t           usage[4];
    uint64_t           word[2];
    _Atomic uint64_t  *e;

    e = ring->entry[number % KVR_RECEIPTS].word;

    word[0] = kvr_get(&e[KVR_RECEIPT_USAGE]);
    memcpy(usage, word, sizeof(uint64_t));

    usage[1] = (uint32_t) (prompt + 1);
    usage[2] = (uint32_t) (cached + 1);
    usage[3] = (uint32_t) (output + 1);
    memcpy(word, usage, sizeof(word));

    if (number && kvr_get(&e[0]) == number) {
        kvr_set(&e[KVR_RECEIPT_USAGE], word[0]);
        kvr_set(&e[KVR_RECEIPT_USAGE + 1], word[1]);
    }
}


int
kvr_receipt_get(kvr_receipts_t *ring, uint64_t number, kvr_receipt_t *receipt)
{
    size_t             i;
    uint64_t           word[KVR_RECEIPT_WORDS];
    _Atomic uint64_t  *e;

    e = ring->entry[number % KVR_RECEIPTS].word;

    word[0] = atomic_load_explicit(&e[0], memory_order_acquire);

    if (number == 0 || word[0] != number) {
        return KVR_DECLINED;
    }

    for (i = 1; i < KVR_RECEIPT_WORDS; i++) {
        word[i] = kvr_get(&e[i]);
    }

    atomic_thread_fence(memory_order_acquire);

    memcpy(receipt, word, sizeof(word));

    return kvr_get(&e[0]) == number ? KVR_OK : KVR_DECLINED;
}


int
kvr_receipt_trace(const uint8_t *value, size_t len, uint64_t trace[2])
{
    size_t    i;
    uint8_t   c, digit;
    uint64_t  part[3];      /* the span id is checked and dropped */

    trace[0] = 0;
    trace[1] = 0;

    /* a later version may add fields behind another dash */

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

        /* lower case only, as in the specification */

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
