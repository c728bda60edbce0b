
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


/* bits from an opening quote (included) to its closing one (excluded) */
static inline uint64_t
kvr_text_in_string(uint64_t quotes)
{
    quotes ^= quotes << 1;
    quotes ^= quotes << 2;
    quotes ^= quotes << 4;
    quotes ^= quotes << 8;
    quotes ^= quotes << 16;
    quotes ^= quotes << 32;

    return quotes;
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


/*
 * Puts the first n bytes of t, of which 64 may be stored; what is beyond a
 * full block moves to the start of the next.
 */
static inline void
kvr_text_emit(kvr_block_t *b, kvr_vec_t t, unsigned n)
{
    uint32_t        rest;
    const uint8_t  *stage;

    stage = b->stage[b->cur];

    kvr_vec_store(b->stage[b->cur] + b->fill, t);
    b->fill += n;

    if (b->fill >= KVR_BLOCK) {
        rest = b->fill - KVR_BLOCK;
        kvr_text_staged(b);
        memcpy(b->stage[b->cur], stage + KVR_BLOCK, 64);
        b->fill = rest;
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


#if (KVR_TEXT_AVX2)

/*
 * The first of these in the block at p, or KVR_BLOCK, and the block's sums if
 * there is none.  Text begins at from, of which *carry is; it is kept up to
 * date.
 */
static inline __attribute__ ((always_inline)) unsigned
kvr_text_take(const uint8_t *p, const uint8_t *from, const uint8_t *secret,
    uint64_t *carry, kvr_vec_sums_t *sums)
{
    unsigned        i;
    uint64_t        stop, es;
    kvr_vec_t       t;
    kvr_vec_sums_t  s;

    (void) from;

    s = kvr_vec_sums_init();

#pragma GCC unroll 4
    for (i = 0; i < KVR_BLOCK; i += 64) {

        t = kvr_vec_load(p + i);
        stop = kvr_text_stops(t, carry, &es);

        if (kvr_unlikely(stop)) {
            return i + (unsigned) __builtin_ctzll(stop);
        }

        kvr_vec_sums_add(&s, t, kvr_vec_secret(secret, i));
    }

    *sums = s;

    return KVR_BLOCK;
}

#else

/* a mask is dear here: whether any byte needs a look is asked for first */
static inline unsigned
kvr_text_take(const uint8_t *p, const uint8_t *from, const uint8_t *secret,
    uint64_t *carry, kvr_vec_sums_t *sums)
{
    unsigned  i;
    uint64_t  stop, es;

    if (p - from < 2 || !kvr_vec_plain(p)) {

        for (i = 0; i < KVR_BLOCK; i += 64) {
            stop = kvr_text_stops(kvr_vec_load(p + i), carry, &es);

            if (stop) {
                return i + (unsigned) __builtin_ctzll(stop);
            }
        }

    } else {
        *carry = kvr_text_carry(p + KVR_BLOCK, from, *carry);
    }

    *sums = kvr_vec_sums(secret, p);

    return KVR_BLOCK;
}

#endif


/*
 * Digests whole blocks where they lie, up to one that ends the text or has to
 * be rewritten: *stop is where in that one.  Returns 0 if it is not known.
 */
static inline int
kvr_text_blocks(kvr_json_t *j, kvr_block_t *b, uint64_t *carry, unsigned *stop)
{
    size_t          i, n;
    unsigned        k;
    uint64_t        cy, *out;
    const uint8_t  *p;
    kvr_vec_sums_t  sums;

    /* one byte behind is looked at */

    if (j->e - j->p <= KVR_BLOCK) {
        return 0;
    }

    n = (size_t) (j->e - j->p - 1) / KVR_BLOCK;
    out = b->out ? b->out + b->n : NULL;

    if (out) {
        n = kvr_min(n, b->max - b->n);
    }

    k = KVR_BLOCK;
    cy = *carry;

    for (i = 0, p = j->p; i < n; i++, p += KVR_BLOCK) {

        k = kvr_text_take(p, j->p, b->secret, &cy, &sums);

        if (k < KVR_BLOCK) {
            break;
        }

        /* it ends in the backslash of what the next one must rewrite */

        if (kvr_unlikely(cy) && kvr_text_rewritten(p[KVR_BLOCK])) {
            cy = kvr_text_carry(p, j->p, *carry);
            break;
        }

        if (kvr_unlikely(b->tap != NULL)) {
            b->tap(b->tap_data, p, KVR_BLOCK);
        }

        if (out) {
            out[i] = kvr_vec_merged(b->secret, sums);

        } else {
            b->fold = kvr_mix(b->fold, kvr_vec_merged(b->secret, sums));
        }
    }

    *carry = cy;
    *stop = k;

    b->n += i;
    b->bytes += i * KVR_BLOCK;
    j->p = p;

    return k < KVR_BLOCK;
}


static int
kvr_text_string(kvr_json_t *j, kvr_block_t *b)
{
    int             rc;
    unsigned        i, k, n, room, escape;
    uint64_t        carry, cy, es, stop;
    kvr_vec_t       t;
    uint8_t        *dst;
    const uint8_t  *p;

    carry = 0;

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

        j->p += n;
    }
}


/*
 * One step over a container's text: masks of what stands outside strings.
 * *in is all ones while inside a string.
 */
static inline uint64_t
kvr_text_outside(kvr_vec_t t, unsigned n, uint64_t *carry, uint64_t *in)
{
    uint64_t  es, inside, valid;

    valid = kvr_text_below(n);

    es = kvr_text_escaped(kvr_vec_eq(t, '\\'), carry);

    if (n < 64) {
        *carry = es >> n & 1;
    }

    inside = kvr_text_in_string(kvr_vec_eq(t, '"') & ~es & valid) ^ *in;

    *in = (uint64_t) ((int64_t) inside >> 63);

    return ~inside & valid;
}


/*
 * Follows the depth through a step; returns where the container ends: the
 * index after its last bracket, or 0 if it goes on.
 */
static inline unsigned
kvr_text_depth(kvr_vec_t t, uint64_t outside, size_t *depth)
{
    size_t     d;
    unsigned   k;
    uint64_t   open, close, c;
    kvr_vec_t  f;

    f = kvr_vec_fold(t);

    open = kvr_vec_eq(f, '{') & outside;
    close = kvr_vec_eq(f, '}') & outside;

    if (kvr_likely((size_t) __builtin_popcountll(close) < *depth)) {
        *depth += (size_t) __builtin_popcountll(open);
        *depth -= (size_t) __builtin_popcountll(close);
        return 0;
    }

    for (c = close, d = 0; c; c &= c - 1) {
        k = (unsigned) __builtin_ctzll(c);
        d++;

        if (*depth + (size_t) __builtin_popcountll(open & kvr_text_below(k))
            == d)
        {
            return k + 1;
        }
    }

    *depth += (size_t) __builtin_popcountll(open);
    *depth -= d;

    return 0;
}


static int
kvr_text_skip_container(kvr_json_t *j)
{
    size_t     depth;
    unsigned   k, n;
    uint64_t   carry, in, outside;
    kvr_vec_t  t;

    carry = 0;
    in = 0;
    depth = 0;

    for ( ;; ) {
        n = kvr_text_step(j, &t);

        if (n == 0) {
            return KVR_AGAIN;
        }

        outside = kvr_text_outside(t, n, &carry, &in);

        k = kvr_text_depth(t, outside, &depth);

        if (k) {
            j->p += k;
            return KVR_OK;
        }

        j->p += n;
    }
}


static int
kvr_text_raw_container(kvr_json_t *j, kvr_block_t *b)
{
    size_t     depth;
    unsigned   n, end, last, from, k;
    uint64_t   carry, in, outside, ws;
    kvr_vec_t  t;
    uint8_t    buf[128];

    carry = 0;
    in = 0;
    depth = 0;

    for ( ;; ) {
        n = kvr_text_step(j, &t);

        if (n == 0) {
            return KVR_AGAIN;
        }

        outside = kvr_text_outside(t, n, &carry, &in);

        last = kvr_text_depth(t, outside, &depth);
        end = last ? last : n;

        ws = kvr_vec_eq(t, ' ') | kvr_vec_eq(t, '\n') | kvr_vec_eq(t, '\t')
             | kvr_vec_eq(t, '\r');

        ws &= outside & kvr_text_below(end);

        j->p += end;

        if (kvr_likely(ws == 0)) {
            kvr_text_emit(b, t, end);

        } else {

            /* the runs between white space; what is beyond the end is one */

            ws |= ~kvr_text_below(end);

            kvr_vec_store(buf, t);
            memset(buf + 64, 0, 64);

            for (from = 0; ~(ws >> from) & kvr_text_below(64 - from); from += k)
            {
                from += (unsigned) __builtin_ctzll(~(ws >> from));

                k = ws >> from ? (unsigned) __builtin_ctzll(ws >> from)
                    : 64 - from;

                kvr_text_emit(b, kvr_vec_load(buf + from), k);

                if (from + k >= 64) {
                    break;
                }
            }
        }

        if (last) {
            return KVR_OK;
        }
    }
}


const kvr_text_ops_t  KVR_TEXT_OPS = {
    KVR_TEXT_NAME,
    kvr_text_digest,
    kvr_text_string,
    kvr_text_skip_string,
    kvr_text_skip_container,
    kvr_text_raw_container
};
