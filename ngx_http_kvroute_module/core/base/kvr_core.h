
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CORE_H_INCLUDED_
#define _KVR_CORE_H_INCLUDED_


/*
 * What every file of core/ may use: C11, libc, nothing of nginx.  Nothing in
 * here or above allocates, logs or reads a clock: the caller hands in memory,
 * time and randomness, so that nginx, the unit tests, the fuzzers and the
 * simulator all run the same code.
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

/* rows of processes that shared memory has at most; one more is shared */
#define KVR_ROWS        1024


#define kvr_min(a, b)  ((a) < (b) ? (a) : (b))
#define kvr_max(a, b)  ((a) > (b) ? (a) : (b))

/* relaxed atomics, for words that stand for themselves */
#define kvr_get(p)     atomic_load_explicit(p, memory_order_relaxed)
#define kvr_set(p, v)  atomic_store_explicit(p, v, memory_order_relaxed)
#define kvr_add(p, v)  atomic_fetch_add_explicit(p, v, memory_order_relaxed)

#define kvr_nelts(a)   (sizeof(a) / sizeof((a)[0]))

#define kvr_likely(x)    __builtin_expect(!!(x), 1)
#define kvr_unlikely(x)  __builtin_expect(!!(x), 0)


/*
 * Folded 64x64 -> 128 bit multiplication.  Not invertible and sensitive to the
 * order of its arguments, which a chain of hashes needs.
 */
static inline uint64_t
kvr_mix(uint64_t a, uint64_t b)
{
    unsigned __int128  m;

    m = (unsigned __int128) (a ^ 0x9e3779b97f4a7c15ULL)
        * (b ^ 0xe7037ed1a0b428dbULL);

    return (uint64_t) m ^ (uint64_t) (m >> 64);
}


/* maps a uniform 64-bit hash to [0, n) without a division */
static inline uint64_t
kvr_reduce(uint64_t h, uint64_t n)
{
    return (uint64_t) (((unsigned __int128) h * n) >> 64);
}


/*
 * A number for the layout of shared memory, of the sizes of its n parts: other
 * sizes, or another order, give another number.  Two fields of one size that
 * change places are not seen.
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


#endif /* _KVR_CORE_H_INCLUDED_ */
