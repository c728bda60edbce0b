
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The body of one text kernel, compiled once for each instruction set by the
 * file that includes this one and names the result in KVR_TEXT_OPS.  Text is
 * looked at in steps of 64 bytes, each giving bit masks of the bytes that
 * matter; blocks that hold nothing special are digested where they lie.
 */


#include "kvr_text.h"
#include "kvr_vec.h"
#include "kvr_vec_block.h"
#include "kvr_text_escape.h"


#define KVR_EVEN  0x5555555555555555ULL


/*
 * Bytes that a backslash escapes: in each run of backslashes every second
 * byte, and the one behind a run of odd length.  *carry says on entry that
 * byte 0 is escaped, on return that the byte after the last is.
 */
static inline uint64_t
kvr_text_escaped(uint64_t bs, uint64_t *carry)
{
    uint64_t  follows, odd, seq;

    /* without a question: nobody can guess the answers that text gives */

    bs &= ~*carry;
    follows = bs << 1 | *carry;

    /* runs that start at an odd place; adding them carries to their end */

    odd = bs & ~KVR_EVEN & ~follows;
    *carry = __builtin_add_overflow(odd, bs, &seq);

    return (KVR_EVEN ^ seq << 1) & follows;
}


/*
 * The next bytes as a vector, and how many of them are text: 64 unless the
 * window ends before, 0 if the text does.
 */
static inline unsigned
kvr_text_step(kvr_json_t *j, kvr_vec_t *t)
{
    size_t   n;
    uint8_t  tail[64];

    n = (size_t) (j->e - j->p);

    if (kvr_likely(n >= 64)) {
        *t = kvr_vec_load(j->p);
        return 64;
    }

    if (n == 0) {
        if (kvr_json_refill(j) != KVR_OK) {
            return 0;
        }

        n = (size_t) (j->e - j->p);

        if (n >= 64) {
            *t = kvr_vec_load(j->p);
            return 64;
        }
    }

    memset(tail, 0, 64);
    memcpy(tail, j->p, n);
    *t = kvr_vec_load(tail);

    return (unsigned) n;
}


static inline uint64_t
kvr_text_below(unsigned n)
{
    return n >= 64 ? ~0ULL : (1ULL << n) - 1;
}


static uint64_t
kvr_text_digest(const uint8_t *secret, const uint8_t *p, size_t len)
{
    return XXH3_64bits_withSecret(p, len, secret, KVR_SECRET_LEN);
}


static inline __attribute__ ((always_inline)) void
kvr_text_block(kvr_block_t *b, const uint8_t *p)
{
    kvr_block_add(b, kvr_vec_digest(b->secret, p), p, KVR_BLOCK);
}


static void
kvr_text_staged(kvr_block_t *b)
{
    kvr_text_block(b, b->stage[b->cur]);
    kvr_block_restage(b);
    b->fill = 0;
}


/* more is staged than a block: the rest moves to the start of the next */
static __attribute__ ((noinline)) void
kvr_text_over(kvr_block_t *b)
{
    uint32_t        rest;
    const uint8_t  *stage;

    stage = b->stage[b->cur];
    rest = b->fill - KVR_BLOCK;

    kvr_text_staged(b);

    memcpy(b->stage[b->cur], stage + KVR_BLOCK, 64);
    b->fill = rest;
}


/* puts the first n bytes of t, of which 64 may be stored */
static inline void
kvr_text_emit(kvr_block_t *b, kvr_vec_t t, unsigned n)
{
    kvr_vec_store(b->stage[b->cur] + b->fill, t);
    b->fill += n;

    if (b->fill >= KVR_BLOCK) {
        kvr_text_over(b);
    }
}


/* what an escape that has to be rewritten has behind its backslash */
static inline int
kvr_text_rewritten(uint8_t c)
{
    return c == 'u' || c == '/';
}


/* whether p is escaped, by the backslashes before it back to from */
static uint64_t
kvr_text_carry(const uint8_t *p, const uint8_t *from, uint64_t carry)
{
    uint64_t  odd;

    for (odd = 0; p > from && p[-1] == '\\'; p--) {
        odd ^= 1;
    }

    return p == from ? odd ^ carry : odd;
}


/*
 * Bytes at which text cannot be taken as it is: the quote that ends it, and a
 * "u" or "/" that is escaped.  *es gets all that is escaped, *carry is that of
 * kvr_text_escaped().
 */
static inline uint64_t
kvr_text_stops(kvr_vec_t t, uint64_t *carry, uint64_t *es)
{
    uint64_t  stop, odd;

    *es = kvr_text_escaped(kvr_vec_eq(t, '\\'), carry);

    stop = kvr_vec_eq(t, '"') & ~*es;
    odd = kvr_vec_odd(t) & *es;

    /* of what JSON has behind a backslash only these two are odd */

    if (kvr_unlikely(odd)) {
        stop |= odd & (kvr_vec_eq(t, 'u') | kvr_vec_eq(t, '/'));
    }

    return stop;
}


/*
 * The first of these in the block at p, or KVR_BLOCK, and the block's sums if
 * there is none.  Text begins at from, of which carry is.
 */
static inline __attribute__ ((always_inline)) unsigned
kvr_text_take(const uint8_t *p, const uint8_t *from, uint64_t carry,
    const uint8_t *secret, const kvr_vec_chars_t *chars, kvr_vec_sums_t *sums)
{
    unsigned        i;
    uint64_t        cy, es, stop;
    kvr_vec_sums_t  s;

    kvr_vec_sums_init(&s);

#pragma GCC unroll 4
    for (i = 0; i < KVR_BLOCK; i += 64) {

        if (kvr_unlikely(!kvr_vec_plain(p + i, chars))) {

            cy = kvr_text_carry(p + i, from, carry);
            stop = kvr_text_stops(kvr_vec_load(p + i), &cy, &es);

            if (stop) {
                return i + (unsigned) __builtin_ctzll(stop);
            }
        }

        kvr_vec_sums_add(&s, secret, p, i);
    }

    *sums = s;

    return KVR_BLOCK;
}


/*
 * Digests whole blocks where they lie, up to one that ends the text or has to
 * be rewritten: *stop is where in that one.  Returns 0 if it is not known.
 */
static inline int
kvr_text_blocks(kvr_json_t *j, kvr_block_t *b, uint64_t *carry, unsigned *stop)
{
    size_t            i, n;
    unsigned          k;
    uint64_t          digest, *out;
    const uint8_t    *p;
    kvr_vec_sums_t    sums;
    kvr_vec_chars_t   chars;

    /* two bytes before and one behind are looked at */

    if (j->e - j->p <= KVR_BLOCK || j->p - j->start < 2) {
        return 0;
    }

    n = (size_t) (j->e - j->p - 1) / KVR_BLOCK;
    out = b->out ? b->out + b->n : NULL;

    if (out) {
        n = kvr_min(n, b->max - b->n);
    }

    chars = kvr_vec_chars();
    k = KVR_BLOCK;

    for (i = 0, p = j->p; i < n; i++, p += KVR_BLOCK) {

        k = kvr_text_take(p, j->p, *carry, b->secret, &chars, &sums);

        if (k < KVR_BLOCK) {
            break;
        }

        /* it may end in the backslash of what the next one must rewrite */

        if (kvr_unlikely(p[KVR_BLOCK - 1] == '\\')
            && kvr_text_rewritten(p[KVR_BLOCK])
            && kvr_text_carry(p + KVR_BLOCK, j->p, *carry))
        {
            break;
        }

        if (kvr_unlikely(b->tap != NULL)) {
            b->tap(b->tap_data, p, KVR_BLOCK);
        }

        digest = kvr_vec_sums_merge(&sums, b->secret, p);

        if (out) {
            out[i] = digest;

        } else {
            b->fold = kvr_mix(b->fold, digest);
        }
    }

    *carry = kvr_text_carry(p, j->p, *carry);
    *stop = k;

    b->n += i;
    b->bytes += i * KVR_BLOCK;
    j->p = p;

    return k < KVR_BLOCK;
}


/*
 * Fills the block that is begun with what needs no look: up to the end of the
 * text, which it consumes (KVR_OK), up to a full block, which is left to the
 * caller (KVR_AGAIN), or as far as that goes (KVR_DECLINED).  The first byte is
 * not escaped.
 */
static inline __attribute__ ((always_inline)) int
kvr_text_fill(kvr_json_t *j, kvr_block_t *b)
{
    unsigned          k, n;
    uint32_t          fill;
    uint64_t          looks;
    kvr_vec_t         t;
    const uint8_t    *p;
    kvr_vec_chars_t   chars;

    chars = kvr_vec_chars();
    fill = b->fill;

    for (p = j->p; j->e - p >= 64 && p - j->start >= 2; p += n) {

        t = kvr_vec_load(p);
        looks = kvr_vec_looks(p, &chars);

        if (looks) {
            k = (unsigned) __builtin_ctzll(looks);

            if (kvr_unlikely(p[k] != '"' || p[(int) k - 1] == '\\')) {
                break;
            }

            b->fill = fill;
            j->p = p + k + 1;

            kvr_text_emit(b, t, k);

            return KVR_OK;
        }

        n = kvr_min(KVR_BLOCK - fill, 64);

        /* a backslash waits for what it escapes */

        if (kvr_unlikely(p[n - 1] == '\\')) {
            break;
        }

        kvr_vec_store(b->stage[b->cur] + fill, t);

        fill += n;

        if (fill == KVR_BLOCK) {
            b->fill = fill;
            j->p = p + n;

            return KVR_AGAIN;
        }
    }

    b->fill = fill;
    j->p = p;

    return KVR_DECLINED;
}


/* any text; a block may be full already */
static __attribute__ ((noinline)) int
kvr_text_long(kvr_json_t *j, kvr_block_t *b)
{
    int             rc;
    unsigned        i, k, n, room, escape;
    uint64_t        carry, cy, es, stop;
    kvr_vec_t       t;
    uint8_t        *dst;
    const uint8_t  *p;

    carry = 0;

    if (b->fill == KVR_BLOCK) {
        kvr_text_staged(b);
    }

    for ( ;; ) {

        if (b->fill == 0 && kvr_text_blocks(j, b, &carry, &k)) {

            p = j->p;
            dst = b->stage[b->cur];
            escape = (p[k] != '"');

            for (i = 0; i < k; i += 64) {
                kvr_vec_store(dst + i, kvr_vec_load(p + i));
            }

            k -= escape;
            b->fill = k;
            j->p = p + k;

            goto stopped;
        }

        if (b->fill) {
            rc = kvr_text_fill(j, b);

            if (rc == KVR_OK) {
                return KVR_OK;
            }

            if (rc == KVR_AGAIN) {
                kvr_text_staged(b);
                continue;
            }
        }

        /* bytes to fill up a block, or up to the end of the string */

        for ( ;; ) {

            n = kvr_text_step(j, &t);

            if (n == 0) {
                return KVR_AGAIN;
            }

            cy = carry;
            stop = kvr_text_stops(t, &cy, &es);

            kvr_vec_store(b->stage[b->cur] + b->fill, t);

            k = n;

            if (kvr_unlikely(n < 64)) {
                cy = es >> n & 1;
                stop &= kvr_text_below(n);
            }

            if (stop) {
                k = (unsigned) __builtin_ctzll(stop);
                cy = es >> k & 1;
            }

            /* up to the backslash; the last one waits for what it escapes */

            k -= (unsigned) cy;
            room = KVR_BLOCK - b->fill;

            if (k >= room) {
                kvr_text_staged(b);

                j->p += room;
                carry = room < 64 ? es >> room & 1 : 0;

                break;
            }

            b->fill += k;
            j->p += k;
            carry = 0;

            if (stop || (cy && k == 0)) {
                escape = (unsigned) cy;
                goto stopped;
            }
        }

        continue;

stopped:

        if (!escape) {
            j->p++;
            return KVR_OK;
        }

        carry = 0;
        p = j->p;

        kvr_text_escapes(j, b);

        if (j->p == p) {
            rc = kvr_text_escape(j, b);

            if (rc != KVR_OK) {
                return rc;
            }
        }
    }
}


static int
kvr_text_string(kvr_json_t *j, kvr_block_t *b)
{
    /* most strings are short */

    if (b->fill && kvr_text_fill(j, b) == KVR_OK) {
        return KVR_OK;
    }

    return kvr_text_long(j, b);
}


/* passes over the text of a string, as far as it is plain; *carry goes along */
static inline __attribute__ ((always_inline)) void
kvr_text_pass(kvr_json_t *j, uint64_t *carry)
{
    const uint8_t    *p;
    kvr_vec_chars_t   chars;

    if (j->p - j->start < 2) {
        return;
    }

    chars = kvr_vec_chars();

    for (p = j->p; j->e - p >= 64 && kvr_vec_plain(p, &chars); p += 64);

    *carry = kvr_text_carry(p, j->p, *carry);
    j->p = p;
}


static int
kvr_text_skip_string(kvr_json_t *j)
{
    unsigned   n;
    uint64_t   carry, es, quotes;
    kvr_vec_t  t;

    carry = 0;

    for ( ;; ) {
        n = kvr_text_step(j, &t);

        if (n == 0) {
            return KVR_AGAIN;
        }

        es = kvr_text_escaped(kvr_vec_eq(t, '\\'), &carry);

        if (n < 64) {
            carry = es >> n & 1;
        }

        quotes = kvr_vec_eq(t, '"') & ~es & kvr_text_below(n);

        if (quotes) {
            j->p += __builtin_ctzll(quotes) + 1;
            return KVR_OK;
        }

        /* it is no short one */

        j->p += n;
        kvr_text_pass(j, &carry);
    }
}


#include "kvr_text_nest.h"


const kvr_text_ops_t  KVR_TEXT_OPS = {
    KVR_TEXT_NAME,
    kvr_text_digest,
    kvr_text_string,
    kvr_text_skip_string,
    kvr_text_skip_container,
    kvr_text_skip_rest,
    kvr_text_raw_container
};
