
/*
 * Copyright (C) kvroute contributors
 */


#include "core/hot/kvr_hot.h"


/* a word: 20 bits of the key, 20 of time, 24 of count with 8 of fraction */
#define KVR_HOT_TAG_BITS    20
#define KVR_HOT_TIME_BITS   20
#define KVR_HOT_COUNT_BITS  24
#define KVR_HOT_ONE         256

#define KVR_HOT_TAG_MASK    (KVR_HOT_TAGS - 1)
#define KVR_HOT_TIME_MASK   ((1U << KVR_HOT_TIME_BITS) - 1)
#define KVR_HOT_COUNT_MASK  ((1U << KVR_HOT_COUNT_BITS) - 1)

/* a count's time is in units of 1024 ms; this many halve it */
#define KVR_HOT_TIME_SHIFT  10
#define KVR_HOT_HALF        41

/* a lower count does not change any decision */
#define KVR_HOT_LEAST       (KVR_HOT_ONE / 4)

/* attempts to change a word */
#define KVR_HOT_TRIES       4


_Static_assert(KVR_HOT_TAGS == 1U << KVR_HOT_TAG_BITS, "tags");


static void kvr_hot_add_one(kvr_hot_t *p, uint32_t key, uint32_t now);
static _Atomic uint64_t *kvr_hot_find(_Atomic uint64_t *bucket,
    uint32_t key, uint64_t *value);
static _Atomic uint64_t *kvr_hot_least(_Atomic uint64_t *bucket,
    uint32_t now, uint64_t *value, uint32_t *count);
static uint32_t kvr_hot_decayed(uint64_t word, uint32_t now);


static inline uint32_t
kvr_hot_key(uint64_t value)
{
    return (uint32_t) kvr_reduce(value, KVR_HOT_BUCKETS)
           << KVR_HOT_TAG_BITS
           | ((uint32_t) value & KVR_HOT_TAG_MASK);
}


static inline _Atomic uint64_t *
kvr_hot_bucket(kvr_hot_t *p, uint32_t key)
{
    return p->word[key >> KVR_HOT_TAG_BITS];
}


static inline uint32_t
kvr_hot_tag(uint64_t word)
{
    return (uint32_t) (word >> (64 - KVR_HOT_TAG_BITS));
}


static inline uint64_t
kvr_hot_word(uint32_t key, uint32_t now, uint32_t count)
{
    return (uint64_t) (key & KVR_HOT_TAG_MASK)
           << (64 - KVR_HOT_TAG_BITS)
           | (uint64_t) now << KVR_HOT_COUNT_BITS
           | kvr_min(count, KVR_HOT_COUNT_MASK);
}


static inline uint32_t
kvr_hot_time(uint64_t now)
{
    return (uint32_t) (now >> KVR_HOT_TIME_SHIFT) & KVR_HOT_TIME_MASK;
}


void
kvr_hot_keys(const uint64_t *chain, uint32_t entries,
    kvr_hot_keys_t *keys)
{
    uint32_t  i, n;

    n = 0;

    for (i = 1; i < entries && n < KVR_HOT_POINTS - 1; i *= 4) {
        keys->key[n++] = kvr_hot_key(chain[i - 1]);
    }

    if (entries) {
        keys->key[n++] = kvr_hot_key(chain[entries - 1]);
    }

    keys->n = n;
    keys->entries = entries;
}


void
kvr_hot_add(kvr_hot_t *p, const kvr_hot_keys_t *keys, uint64_t now)
{
    uint32_t  i, time;

    time = kvr_hot_time(now);

    for (i = 0; i < keys->n; i++) {
        kvr_hot_add_one(p, keys->key[i], time);
    }
}


static void
kvr_hot_add_one(kvr_hot_t *p, uint32_t key, uint32_t now)
{
    uint32_t           try, count;
    uint64_t           old, new;
    _Atomic uint64_t  *bucket, *word;

    bucket = kvr_hot_bucket(p, key);

    for (try = 0; try < KVR_HOT_TRIES; try++) {

        word = kvr_hot_find(bucket, key, &old);

        if (word) {
            count = kvr_hot_decayed(old, now);
            new = kvr_hot_word(key, now, count + KVR_HOT_ONE);

        } else {
            word = kvr_hot_least(bucket, now, &old, &count);

            new = count < KVR_HOT_ONE
                  ? kvr_hot_word(key, now, KVR_HOT_ONE)
                  : kvr_hot_word(kvr_hot_tag(old), now,
                                 count - KVR_HOT_ONE);
        }

        if (atomic_compare_exchange_strong(word, &old, new)) {
            return;
        }
    }
}


/* Returns the word of a key, and its value; NULL if there is none. */
static _Atomic uint64_t *
kvr_hot_find(_Atomic uint64_t *bucket, uint32_t key, uint64_t *value)
{
    uint32_t  i;

    for (i = 0; i < KVR_HOT_WAYS; i++) {
        *value = kvr_get(&bucket[i]);

        if (kvr_hot_tag(*value) == (key & KVR_HOT_TAG_MASK)) {
            return &bucket[i];
        }
    }

    return NULL;
}


static _Atomic uint64_t *
kvr_hot_least(_Atomic uint64_t *bucket, uint32_t now, uint64_t *value,
    uint32_t *count)
{
    uint32_t           i, n;
    uint64_t           word;
    _Atomic uint64_t  *least;

    least = NULL;
    *count = UINT32_MAX;

    for (i = 0; i < KVR_HOT_WAYS; i++) {

        word = kvr_get(&bucket[i]);
        n = kvr_hot_decayed(word, now);

        if (n < *count) {
            least = &bucket[i];
            *value = word;
            *count = n;
        }
    }

    return least;
}


/* Returns a word's count by now: 2^(-time / half), to 1 in 1000. */
static uint32_t
kvr_hot_decayed(uint64_t word, uint32_t now)
{
    double    f;
    uint32_t  count, time;

    count = (uint32_t) word & KVR_HOT_COUNT_MASK;
    time = (now - (uint32_t) (word >> KVR_HOT_COUNT_BITS))
           & KVR_HOT_TIME_MASK;

    /* another process's clock can be a little ahead */

    if (count == 0 || time == 0 || time > KVR_HOT_TIME_MASK / 2) {
        return count;
    }

    if (time >= KVR_HOT_HALF * KVR_HOT_COUNT_BITS) {
        return 0;
    }

    count >>= time / KVR_HOT_HALF;
    f = (double) (int32_t) (time % KVR_HOT_HALF) / KVR_HOT_HALF;

    f = 1 - f * (0.693 - f * (0.237 - f * 0.044));

    return (uint32_t) (int32_t) (f * (int32_t) count + 0.5);
}


void
kvr_hot_view(kvr_hot_t *p, const kvr_hot_keys_t *keys, uint64_t now,
    kvr_hot_view_t *view)
{
    uint32_t  i, n, count, part;
    uint64_t  word;

    n = 0;
    part = 0;

    for (i = keys->n; i-- > 0; /* void */) {

        if (!kvr_hot_find(kvr_hot_bucket(p, keys->key[i]),
                          keys->key[i], &word))
        {
            continue;
        }

        count = kvr_hot_decayed(word, kvr_hot_time(now));

        /*
         * A request that had a block had those before it: a deeper place with
         * at least about as many requests counts for this one too.
         */

        if (count < KVR_HOT_LEAST || count - count / 8 <= part) {
            continue;
        }

        part = count;

        view->count[n] = (double) (int32_t) count / KVR_HOT_ONE;
        view->depth[n++] = kvr_chain_depth(i == keys->n - 1
                                           ? keys->entries - 1
                                           : (1U << 2 * i) - 1);
    }

    view->n = n;
}
