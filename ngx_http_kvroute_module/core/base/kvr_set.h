
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SET_H_INCLUDED_
#define _KVR_SET_H_INCLUDED_


/*
 * A set of peers, by their slots from 0 to KVR_PEERS - 1.  It is not for memory
 * that other processes write to.
 *
 * Most zones have few peers.  Code that runs for each request passes the number
 * of words to read, kvr_set_words() of the maximum of the zone.  Words after
 * these are 0 or not initialized.
 */


#include "core/base/kvr_core.h"


/* maximum peers of a zone, and the default */
#define KVR_PEERS      512
#define KVR_PEERS_FEW  64

#define KVR_SET_WORDS  ((KVR_PEERS + 63) / 64)


typedef struct {
    uint64_t  word[KVR_SET_WORDS];
} kvr_set_t;


#define kvr_set_words(peers)  (((peers) + 63) / 64)

#define kvr_set_at(peer)   ((peer) / 64)
#define kvr_set_bit(peer)  ((uint64_t) 1 << (peer) % 64)


static inline kvr_set_t
kvr_set_none(void)
{
    return (kvr_set_t) { { 0 } };
}


/* Returns the peers from 0 to n - 1. */
static inline kvr_set_t
kvr_set_below(uint32_t n)
{
    uint32_t   i;
    kvr_set_t  s;

    for (i = 0; i < KVR_SET_WORDS; i++) {
        s.word[i] = n >= (i + 1) * 64 ? UINT64_MAX
                    : n > i * 64 ? kvr_set_bit(n) - 1 : 0;
    }

    return s;
}


static inline void
kvr_set_add(kvr_set_t *s, uint32_t peer)
{
    s->word[kvr_set_at(peer)] |= kvr_set_bit(peer);
}


static inline void
kvr_set_del(kvr_set_t *s, uint32_t peer)
{
    s->word[kvr_set_at(peer)] &= ~kvr_set_bit(peer);
}


static inline int
kvr_set_test(const kvr_set_t *s, uint32_t peer)
{
    return s->word[kvr_set_at(peer)] >> peer % 64 & 1;
}


static inline kvr_set_t
kvr_set_of(uint32_t peer)
{
    kvr_set_t  s;

    s = kvr_set_none();
    kvr_set_add(&s, peer);

    return s;
}


static inline kvr_set_t
kvr_set_or(kvr_set_t a, kvr_set_t b)
{
    uint32_t  i;

    for (i = 0; i < KVR_SET_WORDS; i++) {
        a.word[i] |= b.word[i];
    }

    return a;
}


static inline kvr_set_t
kvr_set_andnot(kvr_set_t a, kvr_set_t b)
{
    uint32_t  i;

    for (i = 0; i < KVR_SET_WORDS; i++) {
        a.word[i] &= ~b.word[i];
    }

    return a;
}


static inline kvr_set_t
kvr_set_not(kvr_set_t a)
{
    return kvr_set_andnot(kvr_set_below(KVR_PEERS), a);
}


static inline int
kvr_set_empty(const kvr_set_t *s, uint32_t words)
{
    uint32_t  i;
    uint64_t  any;

    for (i = 0, any = 0; i < words; i++) {
        any |= s->word[i];
    }

    return any == 0;
}


/*
 * Removes the lowest peer; returns 0 if the set is empty.  Loop over a set:
 *
 *     for (left = set; kvr_set_next(&left, &peer); ) {
 */
static inline int
kvr_set_next(kvr_set_t *s, uint32_t *peer)
{
    uint32_t  i;

    for (i = 0; i < KVR_SET_WORDS; i++) {

        if (s->word[i]) {
            *peer = i * 64 + (uint32_t) __builtin_ctzll(s->word[i]);
            s->word[i] &= s->word[i] - 1;
            return 1;
        }
    }

    return 0;
}


/* Returns n if the set has exactly the peers from 0 to n - 1, else 0. */
static inline uint32_t
kvr_set_run(const kvr_set_t *s, uint32_t words)
{
    uint32_t  i, n;
    uint64_t  word;

    for (i = 0; i + 1 < words && s->word[i] == UINT64_MAX; i++) {
        /* void */
    }

    word = s->word[i];

    if (word & (word + 1)) {
        return 0;
    }

    n = i * 64 + (word ? 64 - (uint32_t) __builtin_clzll(word) : 0);

    for (i++; i < words; i++) {
        if (s->word[i]) {
            return 0;
        }
    }

    return n;
}


#endif /* _KVR_SET_H_INCLUDED_ */
