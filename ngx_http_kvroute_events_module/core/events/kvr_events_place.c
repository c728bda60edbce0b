
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_events_place.h"


/* a word: 32 bits of the key, 2 of use, 30 of depth; 0 is free */
#define KVR_EVENTS_DEPTH_MAX  ((1U << 30) - 1)
#define KVR_EVENTS_USE_AT     30

#define KVR_EVENTS_TIPS       2      /* of a bucket at most */
#define KVR_EVENTS_RARE       15     /* one in 16 */


typedef enum {
    KVR_EVENTS_LEFT = 0,         /* continued once, or not a tip */
    KVR_EVENTS_TIP = 1,
    KVR_EVENTS_FORK = 2          /* continued several times */
} kvr_events_use_e;


static inline unsigned
kvr_events_use(uint64_t word)
{
    return (uint32_t) word >> KVR_EVENTS_USE_AT;
}


static inline uint64_t
kvr_events_word(uint64_t key, unsigned use, uint32_t depth)
{
    /* never 0: no block ends at depth 0 */

    return (key >> 32) << 32 | (uint64_t) use << KVR_EVENTS_USE_AT | depth;
}


uint32_t
kvr_events_place_find(kvr_events_places_t *p, uint64_t key)
{
    unsigned           i;
    uint32_t           depth;
    uint64_t           word;
    _Atomic uint64_t  *bucket;

    bucket = p->bucket[key % KVR_EVENTS_PLACES];

    for (i = 0; i < KVR_EVENTS_WAYS; i++) {

        word = kvr_get(&bucket[i]);

        if (word == 0 || word >> 32 != key >> 32) {
            continue;
        }

        depth = (uint32_t) word & KVR_EVENTS_DEPTH_MAX;

        kvr_set(&bucket[i],
                kvr_events_word(key,
                                kvr_events_use(word) == KVR_EVENTS_TIP
                                ? KVR_EVENTS_LEFT : KVR_EVENTS_FORK,
                                depth));

        return depth;
    }

    return KVR_EVENTS_NOWHERE;
}


void
kvr_events_place_keep(kvr_events_places_t *p, uint64_t key, uint64_t depth,
    int tip)
{
    unsigned           i, victim, oldest[3], number[3];
    uint64_t           word;
    _Atomic uint64_t  *bucket;

    if (depth == 0 || depth > KVR_EVENTS_DEPTH_MAX) {
        return;
    }

    bucket = p->bucket[key % KVR_EVENTS_PLACES];

    memset(number, 0, sizeof(number));
    memset(oldest, 0, sizeof(oldest));

    for (i = 0; i < KVR_EVENTS_WAYS; i++) {

        word = kvr_get(&bucket[i]);

        if (word && word >> 32 == key >> 32) {
            return;
        }

        /* a free word counts as one that is no longer needed */

        number[kvr_events_use(word)]++;
        oldest[kvr_events_use(word)] = i;
    }

    if (tip && number[KVR_EVENTS_TIP] == KVR_EVENTS_TIPS) {
        victim = oldest[KVR_EVENTS_TIP];

    } else if (number[KVR_EVENTS_LEFT]) {
        victim = oldest[KVR_EVENTS_LEFT];

    } else {
        victim = oldest[KVR_EVENTS_FORK];

        /* only one in 16 replaces a fork, so forks do not change often */

        if (!tip && key >> 32 & KVR_EVENTS_RARE) {
            return;
        }
    }

    for (i = victim; i > 0; i--) {
        kvr_set(&bucket[i], kvr_get(&bucket[i - 1]));
    }

    kvr_set(&bucket[0],
            kvr_events_word(key, tip ? KVR_EVENTS_TIP : KVR_EVENTS_LEFT,
                            (uint32_t) depth));
}
