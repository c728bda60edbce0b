
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_VEC_H_INCLUDED_
#define _KVR_VEC_H_INCLUDED_


/*
 * 64 bytes as a vector of the instruction set that the file is compiled for:
 * AVX2 if KVR_TEXT_AVX2 is set, else SSE2, NEON or plain C, as the compiler
 * has it.  A comparison returns a mask of 64 bits; bit 0 is the first byte.
 */


#include "core/base/kvr_core.h"

#if (__x86_64__)
#include <immintrin.h>
#endif


#if (__x86_64__ && KVR_TEXT_AVX2)
#define KVR_VEC_WIDTH  32
#else
#define KVR_VEC_WIDTH  16
#endif

#define KVR_VEC_PARTS  (64 / KVR_VEC_WIDTH)


typedef uint8_t   kvr_vec_bytes_t __attribute__ ((vector_size(KVR_VEC_WIDTH)));
typedef uint64_t  kvr_vec_words_t __attribute__ ((vector_size(KVR_VEC_WIDTH)));

typedef struct {
    kvr_vec_bytes_t  v[KVR_VEC_PARTS];
} kvr_vec_t;


static inline kvr_vec_bytes_t
kvr_vec_bytes(const uint8_t *p)
{
    kvr_vec_bytes_t  v;

    memcpy(&v, p, KVR_VEC_WIDTH);

    return v;
}


/* Sets all bytes to c. */
static inline kvr_vec_bytes_t
kvr_vec_fill(uint8_t c)
{
    return (kvr_vec_bytes_t) { 0 } + c;
}


/* Returns the top bits of the bytes. */
static inline uint32_t
kvr_vec_bits(kvr_vec_bytes_t v)
{
#if (__x86_64__ && KVR_TEXT_AVX2)

    return (uint32_t) _mm256_movemask_epi8((__m256i) v);

#elif (__x86_64__)

    return (uint32_t) _mm_movemask_epi8((__m128i) v);

#else

    int       i;
    uint32_t  bits;

    bits = 0;

    for (i = 0; i < KVR_VEC_WIDTH; i++) {
        bits |= (uint32_t) (v[i] >> 7) << i;
    }

    return bits;

#endif
}


static inline kvr_vec_t
kvr_vec_load(const uint8_t *p)
{
    int        i;
    kvr_vec_t  r;

#pragma GCC unroll 4
    for (i = 0; i < KVR_VEC_PARTS; i++) {
        r.v[i] = kvr_vec_bytes(p + i * KVR_VEC_WIDTH);
    }

    return r;
}


static inline void
kvr_vec_store(uint8_t *p, kvr_vec_t t)
{
    int  i;

#pragma GCC unroll 4
    for (i = 0; i < KVR_VEC_PARTS; i++) {
        memcpy(p + i * KVR_VEC_WIDTH, &t.v[i], KVR_VEC_WIDTH);
    }
}


/* Finds the bytes that are c. */
static inline uint64_t
kvr_vec_eq(kvr_vec_t t, char c)
{
    int       i;
    uint64_t  m;

    m = 0;

#pragma GCC unroll 4
    for (i = 0; i < KVR_VEC_PARTS; i++) {
        m |= (uint64_t) kvr_vec_bits((kvr_vec_bytes_t)
                                     (t.v[i] == kvr_vec_fill((uint8_t) c)))
             << i * KVR_VEC_WIDTH;
    }

    return m;
}


/* Finds the bytes whose lowest bit is set. */
static inline uint64_t
kvr_vec_odd(kvr_vec_t t)
{
    int       i;
    uint64_t  m;

    m = 0;

#pragma GCC unroll 4
    for (i = 0; i < KVR_VEC_PARTS; i++) {
        m |= (uint64_t) kvr_vec_bits((kvr_vec_bytes_t)
                                     ((kvr_vec_words_t) t.v[i] << 7))
             << i * KVR_VEC_WIDTH;
    }

    return m;
}


/* Sets bit 5: "[" becomes "{", and "]" becomes "}". */
static inline kvr_vec_t
kvr_vec_fold(kvr_vec_t t)
{
    int  i;

#pragma GCC unroll 4
    for (i = 0; i < KVR_VEC_PARTS; i++) {
        t.v[i] |= kvr_vec_fill(0x20);
    }

    return t;
}


#endif /* _KVR_VEC_H_INCLUDED_ */
