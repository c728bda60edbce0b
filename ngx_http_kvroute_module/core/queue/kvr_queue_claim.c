
/*
 * Copyright (C) kvroute contributors
 */


/* Claims of those that can only be let in at one peer. */


#include "core/queue/kvr_queue.h"


/* a word: class, due, and when it was made, as far as it fits */
#define KVR_QUEUE_SEEN_BITS 24
#define KVR_QUEUE_SEEN_MASK ((1ULL << KVR_QUEUE_SEEN_BITS) - 1)


static uint64_t kvr_queue_claim_word(kvr_queue_item_t *item);
static int kvr_queue_claim_before(uint64_t claim, uint64_t word,
    uint64_t now);


void
kvr_queue_claim(kvr_queue_shared_t *shared, uint32_t peer,
    kvr_queue_item_t *item, uint64_t now)
{
    uint64_t           word, claim;
    _Atomic uint64_t  *c;

    if (peer >= KVR_QUEUE_PEERS) {
        return;
    }

    c = &shared->claim[peer];
    word = kvr_queue_claim_word(item);
    claim = kvr_get(c);

    if (!kvr_queue_claim_before(claim, word, now)) {
        (void) atomic_compare_exchange_strong(c, &claim, word
                                              | (now & KVR_QUEUE_SEEN_MASK));
    }
}


void
kvr_queue_unclaim(kvr_queue_shared_t *shared, uint32_t peer,
    kvr_queue_item_t *item)
{
    uint64_t           claim;
    _Atomic uint64_t  *c;

    if (peer >= KVR_QUEUE_PEERS) {
        return;
    }

    c = &shared->claim[peer];
    claim = kvr_get(c);

    if ((claim & ~KVR_QUEUE_SEEN_MASK) == kvr_queue_claim_word(item)) {
        (void) atomic_compare_exchange_strong(c, &claim, 0);
    }
}


int
kvr_queue_claimed(kvr_queue_shared_t *shared, uint32_t peer,
    kvr_queue_item_t *item, uint64_t now)
{
    return peer < KVR_QUEUE_PEERS
           && kvr_queue_claim_before(kvr_get(&shared->claim[peer]),
                                     kvr_queue_claim_word(item), now);
}


static uint64_t
kvr_queue_claim_word(kvr_queue_item_t *item)
{
    return (uint64_t) (item->class + 1) << 56
           | (uint64_t) item->due << KVR_QUEUE_SEEN_BITS;
}


/* whether a claim that is not too old comes before an item */
static int
kvr_queue_claim_before(uint64_t claim, uint64_t word, uint64_t now)
{
    uint32_t  age;

    age = (uint32_t) ((now - claim) & KVR_QUEUE_SEEN_MASK);

    /* clocks of processes differ a little: it may be from the future */

    if (claim == 0
        || (age > KVR_QUEUE_STALE
            && age < KVR_QUEUE_SEEN_MASK - KVR_QUEUE_STALE))
    {
        return 0;
    }

    if (claim >> 56 != word >> 56) {
        return claim >> 56 < word >> 56;
    }

    return (int32_t) ((uint32_t) (claim >> KVR_QUEUE_SEEN_BITS)
                      - (uint32_t) (word >> KVR_QUEUE_SEEN_BITS))
           < 0;
}
