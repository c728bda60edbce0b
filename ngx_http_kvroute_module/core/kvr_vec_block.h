
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_VEC_BLOCK_H_INCLUDED_
#define _KVR_VEC_BLOCK_H_INCLUDED_


/*
 * A whole block at a time: whether its text may be hashed as it lies, and its
 * digest, in the instruction set that the including file is compiled for.
 */


#include "kvr_block.h"

#if (__x86_64__)
#include <immintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>


#if (__x86_64__ && KVR_TEXT_AVX2)
#define KVR_VEC_WIDTH  32
#else
#define KVR_VEC_WIDTH  16
#endif


/* GCC's and clang's own vectors: SSE2, AVX2, NEON or plain C, as there is */

typedef uint8_t   kvr_vec_bytes_t __attribute__ ((vector_size(KVR_VEC_WIDTH)));
typedef uint64_t  kvr_vec_words_t __attribute__ ((vector_size(KVR_VEC_WIDTH)));


static inline kvr_vec_bytes_t
kvr_vec_bytes(const uint8_t *p)
{
    kvr_vec_bytes_t  v;

    memcpy(&v, p, KVR_VEC_WIDTH);

    return v;
}


#if (KVR_VEC_WIDTH == 32)
#define kvr_vec_not_and(a, b)                                                 \
    ((kvr_vec_bytes_t) _mm256_andnot_si256((__m256i) (a), (__m256i) (b)))
#else
#define kvr_vec_not_and(a, b)  (~(a) & (b))
#endif


static inline int
kvr_vec_zero(kvr_vec_bytes_t v)
{
#if (KVR_VEC_WIDTH == 32)
    return _mm256_testz_si256((__m256i) v, (__m256i) v);
#else
    kvr_vec_words_t  words;

    words = (kvr_vec_words_t) v;

    return (words[0] | words[1]) == 0;
#endif
}


/* whether a block has a "u" or a "/" right behind a backslash */
static __attribute__ ((noinline)) int
kvr_vec_escapes(const uint8_t *p)
{
    int              i;
    kvr_vec_bytes_t  t, b1, found;

    found = (kvr_vec_bytes_t) { 0 };

    for (i = 0; i < KVR_BLOCK; i += KVR_VEC_WIDTH) {
        t = kvr_vec_bytes(p + i);
        b1 = (kvr_vec_bytes_t) (kvr_vec_bytes(p + i - 1) == '\\');

        found |= ((kvr_vec_bytes_t) (t == 'u') | (kvr_vec_bytes_t) (t == '/'))
                 & b1;
    }

    return !kvr_vec_zero(found);
}


/*
 * Whether the block at p, with two bytes of the same text before it, holds
 * nothing that needs a look: no quote but right behind a lone backslash, and
 * behind no backslash a "u" or a "/".  Of what JSON has behind a backslash only
 * these two are odd.  It may say no where there is nothing, where backslashes
 * come in a row, but never yes where there is something.
 */
static inline int
kvr_vec_plain(const uint8_t *p)
{
    int              i;
    kvr_vec_bytes_t  t, b1, b2, quotes, odd;

    quotes = (kvr_vec_bytes_t) { 0 };
    odd = (kvr_vec_bytes_t) { 0 };

    /* further unrolled it would run out of registers */

#pragma GCC unroll 2
    for (i = 0; i < KVR_BLOCK; i += KVR_VEC_WIDTH) {
        t = kvr_vec_bytes(p + i);
        b1 = (kvr_vec_bytes_t) (kvr_vec_bytes(p + i - 1) == '\\');
        b2 = (kvr_vec_bytes_t) (kvr_vec_bytes(p + i - 2) == '\\');

        quotes |= kvr_vec_not_and(kvr_vec_not_and(b2, b1),
                                  (kvr_vec_bytes_t) (t == '"'));
        odd |= t & b1;
    }

    if (!kvr_vec_zero(quotes)) {
        return 0;
    }

    /* letters behind two backslashes are odd as well */

    return kvr_likely(kvr_vec_zero(odd & 1)) || !kvr_vec_escapes(p);
}


#if (__x86_64__ && KVR_TEXT_AVX2)

/* a step of XXH3 on half a stripe */
static inline __m256i
kvr_vec_step(__m256i acc, const uint8_t *p, const uint8_t *secret)
{
    __m256i  t, k;

    t = _mm256_loadu_si256((const __m256i *) (const void *) p);
    k = _mm256_loadu_si256((const __m256i *) (const void *) secret);
    k = _mm256_xor_si256(t, k);

    acc = _mm256_add_epi64(acc, _mm256_shuffle_epi32(t, 0x4e));
    k = _mm256_mul_epu32(k, _mm256_srli_epi64(k, 32));

    return _mm256_add_epi64(acc, k);
}


/* a pair of sums with their part of the secret, to one */
static inline uint64_t
kvr_vec_merge(__m128i sums, const uint8_t *secret)
{
    unsigned __int128  m;

    sums = _mm_xor_si128(sums, _mm_loadu_si128((const __m128i *)
                                               (const void *) secret));

    m = (unsigned __int128) (uint64_t) _mm_cvtsi128_si64(sums)
        * (uint64_t) _mm_extract_epi64(sums, 1);

    return (uint64_t) m ^ (uint64_t) (m >> 64);
}


/*
 * XXH3_64bits_withSecret() of a block, written out: with the length known and
 * the sums in registers it takes half of the library's instructions.
 */
static inline __attribute__ ((always_inline)) uint64_t
kvr_vec_digest(const uint8_t *secret, const uint8_t *p)
{
    int       i;
    __m256i   a, b;
    uint64_t  h;

    a = _mm256_set_epi64x((int64_t) XXH_PRIME64_3, (int64_t) XXH_PRIME64_2,
                          (int64_t) XXH_PRIME64_1, (int64_t) XXH_PRIME32_3);
    b = _mm256_set_epi64x((int64_t) XXH_PRIME32_1, (int64_t) XXH_PRIME64_5,
                          (int64_t) XXH_PRIME32_2, (int64_t) XXH_PRIME64_4);

#pragma GCC unroll 3
    for (i = 0; i < 3; i++) {
        a = kvr_vec_step(a, p + i * 64, secret + i * 8);
        b = kvr_vec_step(b, p + i * 64 + 32, secret + i * 8 + 32);
    }

    /* the last stripe has a part of the secret that is not aligned */

    a = kvr_vec_step(a, p + 192, secret + KVR_SECRET_LEN - 64 - 7);
    b = kvr_vec_step(b, p + 224, secret + KVR_SECRET_LEN - 32 - 7);

    h = KVR_BLOCK * XXH_PRIME64_1;

    h += kvr_vec_merge(_mm256_castsi256_si128(a), secret + 11);
    h += kvr_vec_merge(_mm256_extracti128_si256(a, 1), secret + 27);
    h += kvr_vec_merge(_mm256_castsi256_si128(b), secret + 43);
    h += kvr_vec_merge(_mm256_extracti128_si256(b, 1), secret + 59);

    h ^= h >> 37;
    h *= 0x165667919e3779f9ULL;

    return h ^ h >> 32;
}

_Static_assert(KVR_BLOCK == 256 && KVR_SECRET_LEN == 192, "block of XXH3");

#else

static inline uint64_t
kvr_vec_digest(const uint8_t *secret, const uint8_t *p)
{
    return XXH3_64bits_withSecret(p, KVR_BLOCK, secret, KVR_SECRET_LEN);
}

#endif


#endif /* _KVR_VEC_BLOCK_H_INCLUDED_ */
