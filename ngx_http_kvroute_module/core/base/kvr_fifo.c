
/*
 * Copyright (C) kvroute contributors
 */


#include "core/base/kvr_fifo.h"


#define kvr_fifo_slot(ring, place)                                            \
    (&(ring)->slot[(place) & (KVR_FIFO_SLOTS - 1)])

/* slots of a record; its first word is the length and the checksum */
#define kvr_fifo_slots(n)                                                     \
    (((n) + KVR_FIFO_WORDS) / KVR_FIFO_WORDS)

#define KVR_FIFO_FIRST  1


static inline uint64_t kvr_fifo_check(uint64_t check,
    const uint64_t *word);


int
kvr_fifo_put(kvr_fifo_t *ring, const kvr_fifo_part_t *part,
    uint32_t parts)
{
    uint32_t           i, k, n, slots;
    uint64_t           place, check, *p;
    uint64_t           word[KVR_FIFO_MAX + KVR_FIFO_WORDS + 1];
    kvr_fifo_slot_t   *slot;

    n = 0;

    for (i = 0; i < parts; i++) {
        if (part[i].n) {
            memcpy(&word[1 + n], part[i].word, part[i].n * sizeof(uint64_t));
            n += part[i].n;
        }
    }

    slots = kvr_fifo_slots(n);
    place = kvr_get(&ring->head);

    do {
        if (place + slots - kvr_get(&ring->tail) > KVR_FIFO_SLOTS) {
            kvr_add(&ring->dropped, 1);
            return 0;
        }

    } while (!atomic_compare_exchange_weak_explicit(&ring->head, &place,
                                                    place + slots,
                                                    memory_order_acquire,
                                                    memory_order_relaxed));

    /* clear the rest of the last slot */

    for (i = 1 + n; i < slots * KVR_FIFO_WORDS; i++) {
        word[i] = 0;
    }

    word[0] = n;
    check = 0;
    p = word;

    for (k = 0; k < slots; k++, p += KVR_FIFO_WORDS) {
        check = kvr_fifo_check(check, p);
    }

    word[0] = (check & ~(uint64_t) UINT16_MAX) | n;
    p = word;

    /* until then the slots have numbers of earlier places */

    for (k = 0; k < slots; k++, p += KVR_FIFO_WORDS) {
        slot = kvr_fifo_slot(ring, place + k);

        for (i = 0; i < KVR_FIFO_WORDS; i++) {
            kvr_set(&slot->word[i], p[i]);
        }
    }

    for (k = slots; k-- > 0; /* void */ ) {
        atomic_store_explicit(&kvr_fifo_slot(ring, place + k)->number,
                              (place + k + 1) << 1 | (k == 0),
                              memory_order_release);
    }

    return 1;
}


/* Adds a slot to the checksum, which detects a mixture of two writers. */
static inline uint64_t
kvr_fifo_check(uint64_t check, const uint64_t *word)
{
    _Static_assert(KVR_FIFO_WORDS == 7, "words of a slot");

    check ^= word[0] + 3 * word[1] + 5 * word[2] + 9 * word[3]
             - word[4] - 3 * word[5] - 5 * word[6];

    check *= 0x9e3779b97f4a7c15ULL;

    return check ^ check >> 32;
}


/* Waits for the writer of a place, or moves on. */
static int
kvr_fifo_skip(kvr_fifo_t *ring, uint64_t *place, uint64_t now)
{
    if (now != KVR_FIFO_SKIP) {

        if (kvr_get(&ring->stuck) != *place + 1) {
            kvr_set(&ring->stuck, *place + 1);
            kvr_set(&ring->since, now);
        }

        if (now - kvr_get(&ring->since) < KVR_FIFO_STUCK) {
            return KVR_AGAIN;
        }

        /* the next one is lost, too, if it is not written either */

        kvr_set(&ring->stuck, *place + 2);
    }

    (*place)++;

    return KVR_ERROR;
}


int
kvr_fifo_get(kvr_fifo_t *ring, uint64_t *place, uint64_t *words,
    uint64_t now)
{
    uint32_t           i, k, n, slots;
    uint64_t           at, check, sum, number, head, *p;
    uint64_t           word[KVR_FIFO_MAX + KVR_FIFO_WORDS + 1];
    kvr_fifo_slot_t   *slot;

    at = *place;
    head = kvr_get(&ring->head);

    if (at >= head) {
        return KVR_DECLINED;
    }

    slot = kvr_fifo_slot(ring, at);
    number = atomic_load_explicit(&slot->number, memory_order_acquire);

    if (number == (at + 1) << 1) {
        *place = at + 1;
        return 0;
    }

    if (number != ((at + 1) << 1 | KVR_FIFO_FIRST)) {
        return kvr_fifo_skip(ring, place, now);
    }

    check = kvr_get(&slot->word[0]);
    n = check & UINT16_MAX;
    slots = kvr_fifo_slots(n);

    *place = at + 1;

    if (n == 0 || n > KVR_FIFO_MAX || slots > head - at) {
        return KVR_ERROR;
    }

    sum = 0;
    p = word;

    for (k = 0; k < slots; k++, p += KVR_FIFO_WORDS) {

        slot = kvr_fifo_slot(ring, at + k);

        if (k && atomic_load_explicit(&slot->number, memory_order_acquire)
                 != (at + k + 1) << 1)
        {
            return KVR_ERROR;
        }

        for (i = 0; i < KVR_FIFO_WORDS; i++) {
            p[i] = kvr_get(&slot->word[i]);
        }

        word[0] = n;
        sum = kvr_fifo_check(sum, p);
    }

    if ((sum ^ check) >> 16) {
        return KVR_ERROR;
    }

    memcpy(words, &word[1], n * sizeof(uint64_t));

    *place = at + slots;

    return (int) n;
}
