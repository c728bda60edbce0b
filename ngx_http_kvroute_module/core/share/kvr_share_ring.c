
/*
 * Copyright (C) kvroute contributors
 */


#include "core/share/kvr_share_ring.h"


#define kvr_share_ring_slot(ring, place)                                      \
    (&(ring)->slot[(place) & (KVR_SHARE_RING_SLOTS - 1)])

/* with the word of its length and check */
#define kvr_share_ring_slots(n)                                               \
    (((n) + KVR_SHARE_RING_WORDS) / KVR_SHARE_RING_WORDS)

#define KVR_SHARE_RING_FIRST  1


static uint64_t kvr_share_ring_check(uint64_t check, const uint64_t *word,
    uint32_t n);


int
kvr_share_ring_put(kvr_share_ring_t *ring, const uint64_t *head,
    uint32_t nhead, const uint64_t *rest, uint32_t nrest)
{
    uint32_t           i, k, n, slots;
    uint64_t           place, check, word;
    kvr_share_slot_t  *slot;

    n = nhead + nrest;
    slots = kvr_share_ring_slots(n);

    check = kvr_share_ring_check(kvr_share_ring_check(n, head, nhead), rest,
                                 nrest);
    check = (check & ~(uint64_t) UINT16_MAX) | n;

    place = kvr_get(&ring->head);

    do {
        if (place + slots - kvr_get(&ring->tail) > KVR_SHARE_RING_SLOTS) {
            kvr_add(&ring->dropped, 1);
            return 0;
        }

    } while (!atomic_compare_exchange_weak_explicit(&ring->head, &place,
                                                    place + slots,
                                                    memory_order_acquire,
                                                    memory_order_relaxed));

    for (k = 0; k < slots; k++) {
        kvr_set(&kvr_share_ring_slot(ring, place + k)->number, 0);
    }

    atomic_thread_fence(memory_order_release);

    slot = kvr_share_ring_slot(ring, place);
    kvr_set(&slot->word[0], check);

    k = 0;

    for (i = 0; i < n; i++) {

        if ((i + 1) % KVR_SHARE_RING_WORDS == 0) {
            slot = kvr_share_ring_slot(ring, place + ++k);
        }

        word = i < nhead ? head[i] : rest[i - nhead];
        kvr_set(&slot->word[(i + 1) % KVR_SHARE_RING_WORDS], word);
    }

    for (k = slots; k-- > 0; /* void */ ) {
        atomic_store_explicit(&kvr_share_ring_slot(ring, place + k)->number,
                              (place + k + 1) << 1 | (k == 0),
                              memory_order_release);
    }

    return 1;
}


int
kvr_share_ring_get(kvr_share_ring_t *ring, uint64_t *place, uint64_t *words,
    int skip)
{
    uint32_t           i, k, n, slots;
    uint64_t           at, check, number, head;
    kvr_share_slot_t  *slot;

    at = *place;
    head = kvr_get(&ring->head);

    if (at >= head) {
        return KVR_DECLINED;
    }

    slot = kvr_share_ring_slot(ring, at);
    number = atomic_load_explicit(&slot->number, memory_order_acquire);

    if (number == (at + 1) << 1) {
        *place = at + 1;
        return 0;
    }

    if (number != ((at + 1) << 1 | KVR_SHARE_RING_FIRST)) {
        *place = at + (skip != 0);
        return skip ? KVR_ERROR : KVR_AGAIN;
    }

    check = kvr_get(&slot->word[0]);
    n = check & UINT16_MAX;
    slots = kvr_share_ring_slots(n);

    *place = at + 1;

    if (n == 0 || n > KVR_SHARE_RING_MAX || slots > head - at) {
        return KVR_ERROR;
    }

    k = 0;

    for (i = 0; i < n; i++) {

        if ((i + 1) % KVR_SHARE_RING_WORDS == 0) {
            k++;
            slot = kvr_share_ring_slot(ring, at + k);

            if (atomic_load_explicit(&slot->number, memory_order_acquire)
                != (at + k + 1) << 1)
            {
                return KVR_ERROR;
            }
        }

        words[i] = kvr_get(&slot->word[(i + 1) % KVR_SHARE_RING_WORDS]);
    }

    if ((kvr_share_ring_check(n, words, n) ^ check) >> 16) {
        return KVR_ERROR;
    }

    *place = at + slots;

    return (int) n;
}


/* not keyed: it finds what two writers have mixed */
static uint64_t
kvr_share_ring_check(uint64_t check, const uint64_t *word, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        check = kvr_mix(check, word[i]);
    }

    return check;
}
