
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CORE_H_INCLUDED_
#define _KVR_CORE_H_INCLUDED_


/*
 * Common definitions of core/: C11 and libc, nothing of nginx.  Code in core/
 * does not allocate, log or read a clock.  The caller passes memory, time and
 * randomness, so that nginx, the unit tests, the fuzzers and the simulator run
 * the same code.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE           /* memmem() */
#endif

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>


#define KVR_OK         0
#define KVR_ERROR     -1
#define KVR_AGAIN     -2
#define KVR_DECLINED  -5

#define KVR_CACHE_LINE  64

/* maximum worker slots in shared memory; one more is shared by the rest */
#define KVR_ROWS        1024


#define kvr_min(a, b)  ((a) < (b) ? (a) : (b))
#define kvr_max(a, b)  ((a) > (b) ? (a) : (b))

/* relaxed atomics, for words that are valid on their own */
#define kvr_get(p)     atomic_load_explicit(p, memory_order_relaxed)
#define kvr_set(p, v)  atomic_store_explicit(p, v, memory_order_relaxed)
#define kvr_add(p, v)  atomic_fetch_add_explicit(p, v, memory_order_relaxed)

#define kvr_nelts(a)   (sizeof(a) / sizeof((a)[0]))

#define kvr_likely(x)    __builtin_expect(!!(x), 1)
#define kvr_unlikely(x)  __builtin_expect(!!(x), 0)


/*
 * Multiplies 64x64 bits and folds the 128 bits of the product.  It cannot be
 * inverted and depends on the order of its arguments, as a hash chain needs.
 */
static inline uint64_t
kvr_mix(uint64_t a, uint64_t b)
{
    unsigned __int128  m;

    m = (unsigned __int128) (a ^ 0x9e3779b97f4a7c15ULL)
        * (b ^ 0xe7037ed1a0b428dbULL);

    return (uint64_t) m ^ (uint64_t) (m >> 64);
}


/* Maps a uniform 64-bit hash to [0, n) without a division. */
static inline uint64_t
kvr_reduce(uint64_t h, uint64_t n)
{
    return (uint64_t) (((unsigned __int128) h * n) >> 64);
}


/*
 * Returns a number for the layout of shared memory, computed from the sizes of
 * its n parts.  Other sizes or another order give another number; swapping two
 * fields of the same size does not.
 */
static inline uint64_t
kvr_layout(const size_t *size, size_t n)
{
    size_t    i;
    uint64_t  h;

    h = n;

    for (i = 0; i < n; i++) {
        h = kvr_mix(h, size[i]);
    }

    return h;
}


/* Writes the digits of a number to dst, which has 20 bytes; returns how many. */
static inline size_t
kvr_decimal(uint8_t *dst, uint64_t n)
{
    size_t   len;
    uint8_t  digits[20];

    len = 0;

    do {
        digits[sizeof(digits) - ++len] = (uint8_t) ('0' + n % 10);
        n /= 10;
    } while (n);

    memcpy(dst, &digits[sizeof(digits) - len], len);

    return len;
}


#endif /* _KVR_CORE_H_INCLUDED_ */
