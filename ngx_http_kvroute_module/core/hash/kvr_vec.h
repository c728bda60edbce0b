
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_VEC_H_INCLUDED_
#define _KVR_VEC_H_INCLUDED_


/*
 * 64 bytes as a vector of the instruction set that the file is compiled for:
 * AVX2 if KVR_TEXT_AVX2 says so, SSE2, or plain C.  Comparisons give a mask of
 * 64 bits, the first byte's in bit 0.
 */


#include "core/base/kvr_core.h"

#if (__x86_64__)
#include <immintrin.h>
#endif


#if (__x86_64__ && KVR_TEXT_AVX2)

typedef struct {
    __m256i   v[2];
} kvr_vec_t;


static inline kvr_vec_t
kvr_vec_load(const uint8_t *p)
{
    kvr_vec_t  r;

    r.v[0] = _mm256_loadu_si256((const __m256i *) (const void *) p);
    r.v[1] = _mm256_loadu_si256((const __m256i *) (const void *) (p + 32));

    return r;
}


static inline void
kvr_vec_store(uint8_t *p, kvr_vec_t t)
{
    _mm256_storeu_si256((__m256i *) (void *) p, t.v[0]);
    _mm256_storeu_si256((__m256i *) (void *) (p + 32), t.v[1]);
}


static inline uint64_t
kvr_vec_eq(kvr_vec_t t, char c)
{
    uint32_t  lo, hi;
    __m256i   k;

    k = _mm256_set1_epi8(c);

    lo = (uint32_t) _mm256_movemask_epi8(_mm256_cmpeq_epi8(t.v[0], k));
    hi = (uint32_t) _mm256_movemask_epi8(_mm256_cmpeq_epi8(t.v[1], k));

    return (uint64_t) hi << 32 | lo;
}


/* bytes whose lowest bit is set */
static inline uint64_t
kvr_vec_odd(kvr_vec_t t)
{
    uint32_t  lo, hi;

    lo = (uint32_t) _mm256_movemask_epi8(_mm256_slli_epi16(t.v[0], 7));
    hi = (uint32_t) _mm256_movemask_epi8(_mm256_slli_epi16(t.v[1], 7));

    return (uint64_t) hi << 32 | lo;
}


/* sets bit 5, so that "[" and "{", and "]" and "}", are the same */
static inline kvr_vec_t
kvr_vec_fold(kvr_vec_t t)
{
    __m256i  k;

    k = _mm256_set1_epi8(0x20);

    t.v[0] = _mm256_or_si256(t.v[0], k);
    t.v[1] = _mm256_or_si256(t.v[1], k);

    return t;
}

#elif (__x86_64__)

typedef struct {
    __m128i   v[4];
} kvr_vec_t;


static inline kvr_vec_t
kvr_vec_load(const uint8_t *p)
{
    int        i;
    kvr_vec_t  r;

    for (i = 0; i < 4; i++) {
        r.v[i] = _mm_loadu_si128((const __m128i *) (const void *)
                                 (p + 16 * i));
    }

    return r;
}


static inline void
kvr_vec_store(uint8_t *p, kvr_vec_t t)
{
    int  i;

    for (i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *) (void *) (p + 16 * i), t.v[i]);
    }
}


static inline uint64_t
kvr_vec_eq(kvr_vec_t t, char c)
{
    int       i;
    __m128i   k;
    uint64_t  m;

    k = _mm_set1_epi8(c);
    m = 0;

    for (i = 0; i < 4; i++) {
        m |= (uint64_t) (uint32_t)
             _mm_movemask_epi8(_mm_cmpeq_epi8(t.v[i], k)) << 16 * i;
    }

    return m;
}


static inline uint64_t
kvr_vec_odd(kvr_vec_t t)
{
    int       i;
    uint64_t  m;

    m = 0;

    for (i = 0; i < 4; i++) {
        m |= (uint64_t) (uint32_t)
             _mm_movemask_epi8(_mm_slli_epi16(t.v[i], 7)) << 16 * i;
    }

    return m;
}


static inline kvr_vec_t
kvr_vec_fold(kvr_vec_t t)
{
    int      i;
    __m128i  k;

    k = _mm_set1_epi8(0x20);

    for (i = 0; i < 4; i++) {
        t.v[i] = _mm_or_si128(t.v[i], k);
    }

    return t;
}

#else

typedef struct {
    uint8_t   v[64];
} kvr_vec_t;


static inline kvr_vec_t
kvr_vec_load(const uint8_t *p)
{
    kvr_vec_t  r;

    memcpy(r.v, p, 64);

    return r;
}


static inline void
kvr_vec_store(uint8_t *p, kvr_vec_t t)
{
    memcpy(p, t.v, 64);
}


static inline uint64_t
kvr_vec_eq(kvr_vec_t t, char c)
{
    int       i;
    uint64_t  m;

    m = 0;

    for (i = 0; i < 64; i++) {
        m |= (uint64_t) (t.v[i] == (uint8_t) c) << i;
    }

    return m;
}


static inline uint64_t
kvr_vec_odd(kvr_vec_t t)
{
    int       i;
    uint64_t  m;

    m = 0;

    for (i = 0; i < 64; i++) {
        m |= (uint64_t) (t.v[i] & 1) << i;
    }

    return m;
}


static inline kvr_vec_t
kvr_vec_fold(kvr_vec_t t)
{
    int  i;

    for (i = 0; i < 64; i++) {
        t.v[i] |= 0x20;
    }

    return t;
}

#endif


#endif /* _KVR_VEC_H_INCLUDED_ */
