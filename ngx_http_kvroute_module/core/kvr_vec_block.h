
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
#include "kvr_vec.h"

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


/*
 * Bytes at p that may need a look: a quote but right behind a lone backslash,
 * and behind any backslash an odd byte; of what JSON has there only "u" and "/"
 * are odd.  They have bit 0 set in *odd, all bits in *quotes.
 */
static inline __attribute__ ((always_inline)) void
kvr_vec_look(const uint8_t *p, kvr_vec_bytes_t *quotes, kvr_vec_bytes_t *odd)
{
    kvr_vec_bytes_t  t, b1, b2;

    t = kvr_vec_bytes(p);
    b1 = (kvr_vec_bytes_t) (kvr_vec_bytes(p - 1) == '\\');
    b2 = (kvr_vec_bytes_t) (kvr_vec_bytes(p - 2) == '\\');

    *quotes |= kvr_vec_not_and(kvr_vec_not_and(b2, b1),
                               (kvr_vec_bytes_t) (t == '"'));
    *odd |= t & b1;
}


/*
 * Whether the block at p, with two bytes of the same text before it, holds
 * nothing that needs a look.  It may say no where there is nothing, where
 * backslashes come in a row, but never yes where there is something.
 */
static inline int
kvr_vec_plain(const uint8_t *p)
{
    int              i;
    kvr_vec_bytes_t  quotes, odd;

    quotes = (kvr_vec_bytes_t) { 0 };
    odd = (kvr_vec_bytes_t) { 0 };

    /* further unrolled it would run out of registers */

#pragma GCC unroll 2
    for (i = 0; i < KVR_BLOCK; i += KVR_VEC_WIDTH) {
        kvr_vec_look(p + i, &quotes, &odd);
    }

    return kvr_vec_zero(quotes | (odd & 1));
}


#if (__x86_64__ && KVR_TEXT_AVX2)

/* the sums of a block, not merged yet */
typedef struct {
    __m256i  v[2];
} kvr_vec_sums_t;


static inline kvr_vec_sums_t
kvr_vec_sums_init(void)
{
    kvr_vec_sums_t  s;

    s.v[0] = _mm256_set_epi64x((int64_t) XXH_PRIME64_3,
                               (int64_t) XXH_PRIME64_2,
                               (int64_t) XXH_PRIME64_1,
                               (int64_t) XXH_PRIME32_3);
    s.v[1] = _mm256_set_epi64x((int64_t) XXH_PRIME32_1,
                               (int64_t) XXH_PRIME64_5,
                               (int64_t) XXH_PRIME32_2,
                               (int64_t) XXH_PRIME64_4);

    return s;
}


/* the part of the secret for the stripe at an offset in the block */
static inline const uint8_t *
kvr_vec_secret(const uint8_t *secret, unsigned offset)
{
    /* that of the last one is not aligned */

    return offset == KVR_BLOCK - 64 ? secret + KVR_SECRET_LEN - 64 - 7
                                    : secret + offset / 8;
}


/* a step of XXH3: a stripe */
static inline __attribute__ ((always_inline)) void
kvr_vec_sums_add(kvr_vec_sums_t *s, kvr_vec_t t, const uint8_t *secret)
{
    int        i;
    __m256i    k;
    kvr_vec_t  key;

    key = kvr_vec_load(secret);

    for (i = 0; i < 2; i++) {
        k = _mm256_xor_si256(t.v[i], key.v[i]);
        k = _mm256_mul_epu32(k, _mm256_srli_epi64(k, 32));

        s->v[i] = _mm256_add_epi64(s->v[i], _mm256_shuffle_epi32(t.v[i], 0x4e));
        s->v[i] = _mm256_add_epi64(s->v[i], k);
    }
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
kvr_vec_merged(const uint8_t *secret, kvr_vec_sums_t s)
{
    uint64_t  h;

    h = KVR_BLOCK * XXH_PRIME64_1;

    h += kvr_vec_merge(_mm256_castsi256_si128(s.v[0]), secret + 11);
    h += kvr_vec_merge(_mm256_extracti128_si256(s.v[0], 1), secret + 27);
    h += kvr_vec_merge(_mm256_castsi256_si128(s.v[1]), secret + 43);
    h += kvr_vec_merge(_mm256_extracti128_si256(s.v[1], 1), secret + 59);

    h ^= h >> 37;
    h *= 0x165667919e3779f9ULL;

    return h ^ h >> 32;
}


static inline __attribute__ ((always_inline)) kvr_vec_sums_t
kvr_vec_sums(const uint8_t *secret, const uint8_t *p)
{
    unsigned        i;
    kvr_vec_sums_t  s;

    s = kvr_vec_sums_init();

#pragma GCC unroll 4
    for (i = 0; i < KVR_BLOCK; i += 64) {
        kvr_vec_sums_add(&s, kvr_vec_load(p + i), kvr_vec_secret(secret, i));
    }

    return s;
}

_Static_assert(KVR_BLOCK == 256 && KVR_SECRET_LEN == 192, "block of XXH3");

#else

typedef uint64_t  kvr_vec_sums_t;


static inline kvr_vec_sums_t
kvr_vec_sums(const uint8_t *secret, const uint8_t *p)
{
    return XXH3_64bits_withSecret(p, KVR_BLOCK, secret, KVR_SECRET_LEN);
}


static inline uint64_t
kvr_vec_merged(const uint8_t *secret, kvr_vec_sums_t s)
{
    (void) secret;

    return s;
}

#endif


static inline __attribute__ ((always_inline)) uint64_t
kvr_vec_digest(const uint8_t *secret, const uint8_t *p)
{
    return kvr_vec_merged(secret, kvr_vec_sums(secret, p));
}


#endif /* _KVR_VEC_BLOCK_H_INCLUDED_ */
