
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TEXT_NEST_H_INCLUDED_
#define _KVR_TEXT_NEST_H_INCLUDED_


/*
 * Arrays and objects that are passed over, or put as they stand but for white
 * space: a part of the text kernels, behind what it takes from them.
 */


/* so many runs of white space in 64 bytes are taken out byte by byte */
#define KVR_TEXT_RUNS  8


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


/* to the end of what is open, so many containers */
static int
kvr_text_skip_open(kvr_json_t *j, size_t depth)
{
    unsigned   k, n;
    uint64_t   carry, in, outside;
    kvr_vec_t  t;

    carry = 0;
    in = 0;

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

        if (in) {
            kvr_text_pass(j, &carry);
        }
    }
}


/* moves the bytes of buf[64] that are not in ws to dst[72]; returns how many */
static inline unsigned
kvr_text_pack(uint8_t *dst, const uint8_t *buf, uint64_t ws)
{
    unsigned  i, n;

    n = 0;

#if (KVR_TEXT_AVX2)

    uint64_t  keep, bytes, word;

    for (i = 0; i < 64; i += 8) {
        keep = ~ws >> i & 0xff;
        bytes = _pdep_u64(keep, 0x0101010101010101ULL) * 0xff;

        memcpy(&word, buf + i, 8);
        word = _pext_u64(word, bytes);
        memcpy(dst + n, &word, 8);

        n += (unsigned) __builtin_popcountll(keep);
    }

#else

    for (i = 0; i < 64; i++) {
        dst[n] = buf[i];
        n += ~(ws >> i) & 1;
    }

#endif

    return n;
}


/* puts a step's bytes less those of ws: the runs between them, if these are few */
static inline void
kvr_text_unspaced(kvr_block_t *b, kvr_vec_t t, uint64_t ws)
{
    unsigned  from, n;
    uint8_t   buf[128], packed[72];

    kvr_vec_store(buf, t);

    if (kvr_unlikely(__builtin_popcountll(ws & ~(ws << 1)) > KVR_TEXT_RUNS)) {

        memset(packed, 0, sizeof(packed));
        n = kvr_text_pack(packed, buf, ws);
        kvr_text_emit(b, kvr_vec_load(packed), n);

        return;
    }

    memset(buf + 64, 0, 64);

    for (from = 0; ~(ws >> from) & kvr_text_below(64 - from); from += n) {

        from += (unsigned) __builtin_ctzll(~(ws >> from));

        n = ws >> from ? (unsigned) __builtin_ctzll(ws >> from) : 64 - from;

        kvr_text_emit(b, kvr_vec_load(buf + from), n);

        if (from + n >= 64) {
            break;
        }
    }
}


static int
kvr_text_skip_container(kvr_json_t *j)
{
    return kvr_text_skip_open(j, 0);
}


static int
kvr_text_skip_rest(kvr_json_t *j)
{
    return kvr_text_skip_open(j, 1);
}


static int
kvr_text_raw_container(kvr_json_t *j, kvr_block_t *b)
{
    size_t     depth;
    unsigned   n, end, last;
    uint64_t   carry, in, outside, ws;
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

        last = kvr_text_depth(t, outside, &depth);
        end = last ? last : n;

        ws = kvr_vec_eq(t, ' ') | kvr_vec_eq(t, '\n') | kvr_vec_eq(t, '\t')
             | kvr_vec_eq(t, '\r');

        ws &= outside & kvr_text_below(end);

        j->p += end;

        /* what is beyond the end goes as white space does */

        if (kvr_likely(ws == 0)) {
            kvr_text_emit(b, t, end);

        } else {
            kvr_text_unspaced(b, t, ws | ~kvr_text_below(end));
        }

        if (last) {
            return KVR_OK;
        }
    }
}


#endif /* _KVR_TEXT_NEST_H_INCLUDED_ */
