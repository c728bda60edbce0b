
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_VEC_BLOCK_H_INCLUDED_
#define _KVR_VEC_BLOCK_H_INCLUDED_


/*
 * Whole blocks: whether the text of a block can be hashed in place, and its
 * digest, in the instruction set that the including file is compiled for.
 */


#include "core/hash/kvr_block.h"
#include "core/hash/kvr_vec.h"

#define XXH_INLINE_ALL
#include <xxhash.h>


/* Selects the bytes of a where m is set, else those of b. */
#if (KVR_VEC_WIDTH == 32)
#define kvr_vec_select(m, a, b)                                               \
    ((kvr_vec_bytes_t) _mm256_blendv_epi8((__m256i) (b), (__m256i) (a),       \
                                          (__m256i) (m)))
#else
#define kvr_vec_select(m, a, b)  (((m) & (a)) | (~(m) & (b)))
#endif


/* Returns whether no byte of v is odd. */
static inline int
kvr_vec_even(kvr_vec_bytes_t v)
{
#if (KVR_VEC_WIDTH == 32)
    return _mm256_testz_si256((__m256i) v, _mm256_set1_epi8(1));
#else
    kvr_vec_words_t  words;

    words = (kvr_vec_words_t) (v & 1);

    return (words[0] | words[1]) == 0;
#endif
}


/* the characters that bytes are compared with */
typedef struct {
    kvr_vec_bytes_t  quote;
    kvr_vec_bytes_t  backslash;
} kvr_vec_chars_t;


static inline __attribute__ ((always_inline)) kvr_vec_chars_t
kvr_vec_chars(void)
{
    kvr_vec_chars_t  c;
    const char      *s;

    s = "\"\\";

    /* keeps the compiler from making them of immediate values, step by step */

    __asm__ ("" : "+r" (s));

    c.quote = kvr_vec_fill((uint8_t) s[0]);
    c.backslash = kvr_vec_fill((uint8_t) s[1]);

    return c;
}


/*
 * Marks by odd bytes the bytes at p that need a closer look: a quote, unless a
 * single backslash precedes it, and an odd byte after a backslash.  Of the
 * characters that JSON allows there only "u" and "/" are odd.  Two bytes of the
 * same text precede p.
 */
static inline __attribute__ ((always_inline)) kvr_vec_bytes_t
kvr_vec_look(const uint8_t *p, const kvr_vec_chars_t *c)
{
    kvr_vec_bytes_t  t, b1, b2, quotes;

    t = kvr_vec_bytes(p);
    b1 = (kvr_vec_bytes_t) (kvr_vec_bytes(p - 1) == c->backslash);
    b2 = (kvr_vec_bytes_t) (kvr_vec_bytes(p - 2) == c->backslash);
    quotes = (kvr_vec_bytes_t) (t == c->quote);

    return kvr_vec_select(b1, t, quotes) | (quotes & b2);
}


/*
 * Returns whether none of 64 bytes needs a closer look.  A run of backslashes
 * can make it return 0 for plain text; it never returns 1 for other text.
 */
static inline __attribute__ ((always_inline)) int
kvr_vec_plain(const uint8_t *p, const kvr_vec_chars_t *c)
{
    int              i;
    kvr_vec_bytes_t  look;

    look = kvr_vec_look(p, c);

#pragma GCC unroll 4
    for (i = KVR_VEC_WIDTH; i < 64; i += KVR_VEC_WIDTH) {
        look |= kvr_vec_look(p + i, c);
    }

    return kvr_vec_even(look);
}


/* Returns the bytes that need a closer look, as bits. */
static inline __attribute__ ((always_inline)) uint64_t
kvr_vec_looks(const uint8_t *p, const kvr_vec_chars_t *c)
{
    int        i;
    kvr_vec_t  t;

#pragma GCC unroll 4
    for (i = 0; i < KVR_VEC_PARTS; i++) {
        t.v[i] = kvr_vec_look(p + i * KVR_VEC_WIDTH, c);
    }

    return kvr_vec_odd(t);
}


#if (__x86_64__ && KVR_TEXT_AVX2)

/*
 * XXH3_64bits_withSecret() of a block.  The length is constant and the sums
 * stay in registers, so it takes half of the library's instructions.
 */

typedef struct {
    __m256i  mul[2];
    __m256i  add[2];
} kvr_vec_sums_t;


static inline void
kvr_vec_sums_init(kvr_vec_sums_t *s)
{
    s->mul[0] = _mm256_set_epi64x((int64_t) XXH_PRIME64_3,
                                  (int64_t) XXH_PRIME64_2,
                                  (int64_t) XXH_PRIME64_1,
                                  (int64_t) XXH_PRIME32_3);
    s->mul[1] = _mm256_set_epi64x((int64_t) XXH_PRIME32_1,
                                  (int64_t) XXH_PRIME64_5,
                                  (int64_t) XXH_PRIME32_2,
                                  (int64_t) XXH_PRIME64_4);

    s->add[0] = _mm256_setzero_si256();
    s->add[1] = _mm256_setzero_si256();
}


/* Adds the stripe at an offset of the block. */
static inline __attribute__ ((always_inline)) void
kvr_vec_sums_add(kvr_vec_sums_t *s, const uint8_t *secret, const uint8_t *block,
    unsigned offset)
{
    int        i;
    __m256i    k;
    kvr_vec_t  t, key;

    t = kvr_vec_load(block + offset);

    /* the key of the last stripe is not aligned */

    key = kvr_vec_load(offset == KVR_BLOCK - 64
                       ? secret + KVR_SECRET_LEN - 64 - 7
                       : secret + offset / 8);

    for (i = 0; i < 2; i++) {
        k = (__m256i) (t.v[i] ^ key.v[i]);
        k = _mm256_mul_epu32(k, _mm256_srli_epi64(k, 32));

        s->mul[i] = _mm256_add_epi64(s->mul[i], k);
        s->add[i] = _mm256_add_epi64(s->add[i], (__m256i) t.v[i]);
    }
}


static inline __attribute__ ((always_inline)) uint64_t
kvr_vec_sums_merge(kvr_vec_sums_t *s, const uint8_t *secret,
    const uint8_t *block)
{
    int                i;
    __m256i            sum;
    uint64_t           h;
    kvr_vec_t          t, key;
    unsigned __int128  m;

    /* memory is cheaper than extracting words from vectors */

    union {
        uint8_t        bytes[64];
        uint64_t       words[8];
    } u;

    (void) block;

    key = kvr_vec_load(secret + 11);

    for (i = 0; i < 2; i++) {

        /* each word is added to its neighbour: one swap serves all stripes */

        sum = _mm256_shuffle_epi32(s->add[i], 0x4e);
        sum = _mm256_add_epi64(sum, s->mul[i]);
        t.v[i] = (kvr_vec_bytes_t) sum ^ key.v[i];
    }

    kvr_vec_store(u.bytes, t);

    h = KVR_BLOCK * XXH_PRIME64_1;

#pragma GCC unroll 4
    for (i = 0; i < 8; i += 2) {
        m = (unsigned __int128) u.words[i] * u.words[i + 1];
        h += (uint64_t) m ^ (uint64_t) (m >> 64);
    }

    h ^= h >> 37;
    h *= 0x165667919e3779f9ULL;

    return h ^ h >> 32;
}

_Static_assert(KVR_BLOCK == 256 && KVR_SECRET_LEN == 192, "block of XXH3");

#else

/* The library digests the whole block at once. */

typedef struct {
    uint8_t  none;
} kvr_vec_sums_t;


static inline void
kvr_vec_sums_init(kvr_vec_sums_t *s)
{
    s->none = 0;
}


static inline void
kvr_vec_sums_add(kvr_vec_sums_t *s, const uint8_t *secret, const uint8_t *block,
    unsigned offset)
{
    (void) s;
    (void) secret;
    (void) block;
    (void) offset;
}


static inline uint64_t
kvr_vec_sums_merge(kvr_vec_sums_t *s, const uint8_t *secret,
    const uint8_t *block)
{
    (void) s;

    return XXH3_64bits_withSecret(block, KVR_BLOCK, secret, KVR_SECRET_LEN);
}

#endif


static inline __attribute__ ((always_inline)) uint64_t
kvr_vec_digest(const uint8_t *secret, const uint8_t *block)
{
    unsigned        i;
    kvr_vec_sums_t  s;

    kvr_vec_sums_init(&s);

#pragma GCC unroll 4
    for (i = 0; i < KVR_BLOCK; i += 64) {
        kvr_vec_sums_add(&s, secret, block, i);
    }

    return kvr_vec_sums_merge(&s, secret, block);
}


#endif /* _KVR_VEC_BLOCK_H_INCLUDED_ */
