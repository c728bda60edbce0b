
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_msgpack: each head of the format, values cut anywhere, and that what is
 * passed over ends where it ends.
 */


#include "pack.h"
#include "core/events/kvr_msgpack.h"


typedef struct {
    const char     *bytes;
    size_t          len;
    kvr_msgpack_e   kind;
    uint64_t        number;      /* or the length of a string */
    uint64_t        tail;
} sample_t;


#define B(s)  s, sizeof(s) - 1

static const sample_t  samples[] = {
    { B("\xc0"), KVR_MSGPACK_NIL, 0, 0 },
    { B("\xc2"), KVR_MSGPACK_BOOL, 0, 0 },
    { B("\xc3"), KVR_MSGPACK_BOOL, 1, 0 },
    { B("\x00"), KVR_MSGPACK_INT, 0, 0 },
    { B("\x7f"), KVR_MSGPACK_INT, 127, 0 },
    { B("\xff"), KVR_MSGPACK_INT, (uint64_t) -1, 0 },
    { B("\xe0"), KVR_MSGPACK_INT, (uint64_t) -32, 0 },
    { B("\xcc\xff"), KVR_MSGPACK_INT, 255, 0 },
    { B("\xcd\x12\x34"), KVR_MSGPACK_INT, 0x1234, 0 },
    { B("\xce\x12\x34\x56\x78"), KVR_MSGPACK_INT, 0x12345678, 0 },
    { B("\xcf\xfe\xdc\xba\x98\x76\x54\x32\x10"), KVR_MSGPACK_INT,
      0xfedcba9876543210, 0 },
    { B("\xd0\x80"), KVR_MSGPACK_INT, (uint64_t) -128, 0 },
    { B("\xd1\x80\x00"), KVR_MSGPACK_INT, (uint64_t) -32768, 0 },
    { B("\xd2\xff\xff\xff\xfe"), KVR_MSGPACK_INT, (uint64_t) -2, 0 },
    { B("\xd3\x80\x00\x00\x00\x00\x00\x00\x05"), KVR_MSGPACK_INT,
      0x8000000000000005, 0 },
    { B("\xca\x00\x00\x00\x00"), KVR_MSGPACK_FLOAT, 0, 0 },
    { B("\xcb\x00\x00\x00\x00\x00\x00\x00\x00"), KVR_MSGPACK_FLOAT, 0, 0 },
    { B("\xa0"), KVR_MSGPACK_STR, 0, 0 },
    { B("\xa3" "GPU"), KVR_MSGPACK_STR, 3, 0x475055 },
    { B("\xd9\x03" "GPU"), KVR_MSGPACK_STR, 3, 0x475055 },
    { B("\xda\x00\x03" "GPU"), KVR_MSGPACK_STR, 3, 0x475055 },
    { B("\xdb\x00\x00\x00\x03" "GPU"), KVR_MSGPACK_STR, 3, 0x475055 },
    { B("\xc4\x0a\0\1\2\3\4\5\6\7\x8\x9"), KVR_MSGPACK_BIN, 10,
      0x0203040506070809 },
    { B("\xc5\x00\x01\xfe"), KVR_MSGPACK_BIN, 1, 0xfe },
    { B("\xc6\x00\x00\x00\x01\xfe"), KVR_MSGPACK_BIN, 1, 0xfe },
    { B("\xc7\x02\x05" "ab"), KVR_MSGPACK_EXT, 2, 0x6162 },
    { B("\xc8\x00\x02\x05" "ab"), KVR_MSGPACK_EXT, 2, 0x6162 },
    { B("\xc9\x00\x00\x00\x02\x05" "ab"), KVR_MSGPACK_EXT, 2, 0x6162 },
    { B("\xd4\x05" "a"), KVR_MSGPACK_EXT, 1, 0x61 },
    { B("\xd5\x05" "ab"), KVR_MSGPACK_EXT, 2, 0x6162 },
    { B("\xd6\x05" "abcd"), KVR_MSGPACK_EXT, 4, 0x61626364 },
    { B("\xd7\x05" "abcdefgh"), KVR_MSGPACK_EXT, 8, 0x6162636465666768 },
    { B("\xd8\x05" "01234567abcdefgh"), KVR_MSGPACK_EXT, 16,
      0x6162636465666768 },
    { B("\x90"), KVR_MSGPACK_ARRAY, 0, 0 },
    { B("\x9f"), KVR_MSGPACK_ARRAY, 15, 0 },
    { B("\xdc\x01\x02"), KVR_MSGPACK_ARRAY, 0x102, 0 },
    { B("\xdd\xff\xff\xff\xff"), KVR_MSGPACK_ARRAY, UINT32_MAX, 0 },
    { B("\x80"), KVR_MSGPACK_MAP, 0, 0 },
    { B("\x8f"), KVR_MSGPACK_MAP, 15, 0 },
    { B("\xde\x01\x02"), KVR_MSGPACK_MAP, 0x102, 0 },
    { B("\xdf\xff\xff\xff\xff"), KVR_MSGPACK_MAP, UINT32_MAX, 0 },
    { B("\xc1"), KVR_MSGPACK_ERROR, 0, 0 }
};


/* the next value, of a text in pieces of n bytes, each of the exact size */
static kvr_msgpack_e
next(kvr_msgpack_t *m, util_feed_t *f, size_t *off)
{
    size_t          len;
    kvr_msgpack_e   kind;
    const uint8_t  *p, *start;

    do {
        start = util_fetch(f, *off, &len);

        if (start == NULL) {
            return KVR_MSGPACK_AGAIN;
        }

        p = start;
        kind = kvr_msgpack_next(m, &p, start + len);
        *off += (size_t) (p - start);

        util_check(kind != KVR_MSGPACK_AGAIN || p == start + len,
                   "bytes left over");

    } while (kind == KVR_MSGPACK_AGAIN);

    return kind;
}


static void
msgpack_heads(unsigned _i)
{
    size_t          off, step;
    util_feed_t     f;
    kvr_msgpack_e   kind;
    kvr_msgpack_t   m;
    const sample_t  *s;

    s = &samples[_i];

    for (step = 1; step <= s->len; step++) {

        util_note("sample %d, pieces of %zu", _i, step);
        util_feed(&f, s->bytes, s->len, UTIL_STEP, step);

        kvr_msgpack_init(&m);
        off = 0;
        kind = next(&m, &f, &off);

        util_check(kind == s->kind, "%u", kind);

        if (kind >= KVR_MSGPACK_STR && kind <= KVR_MSGPACK_EXT) {
            util_check(m.len == s->number && m.tail == s->tail,
                       "%u %lx", m.len, (unsigned long) m.tail);

        } else if (kind != KVR_MSGPACK_ERROR && kind != KVR_MSGPACK_FLOAT
                   && kind != KVR_MSGPACK_NIL)
        {
            util_check(m.number == s->number, "%lu", (unsigned long) m.number);
        }

        util_check(kind == KVR_MSGPACK_ERROR || off == s->len, "%zu", off);
        util_unfeed(&f);
    }
}


TEST(test_msgpack_heads)
{
    unsigned  i;

    for (i = 0; i < kvr_nelts(samples); i++) {
        msgpack_heads(i);
    }
}


TEST(test_msgpack_text)
{
    kvr_msgpack_t   m;
    const uint8_t  *p;

    p = (const uint8_t *) "\xab" "BlockStored" "\xd9\x28"
                          "0123456789012345678901234567890123456789";

    kvr_msgpack_init(&m);
    ck_assert(kvr_msgpack_next(&m, &p, p + 54) == KVR_MSGPACK_STR);

    ck_assert(kvr_msgpack_is(&m, "blockstored"));
    ck_assert(!kvr_msgpack_is(&m, "blockstore"));
    ck_assert(!kvr_msgpack_is(&m, "blockstored1"));
    ck_assert(kvr_msgpack_begins(&m, "block"));
    ck_assert(!kvr_msgpack_begins(&m, "stored"));

    /* more than is kept */

    ck_assert(kvr_msgpack_next(&m, &p, p + 42) == KVR_MSGPACK_STR);
    ck_assert(m.len == 40);
    ck_assert(kvr_msgpack_begins(&m, "0123456789012345678901"));
    ck_assert(!kvr_msgpack_is(&m, "01234567890123456789012345678901"));
    ck_assert(!kvr_msgpack_is(&m, "0123456789012345678901234567890123456789"));
}


/* what is passed over is what would be read, however it is cut */
TEST(test_msgpack_skip)
{
    int             rc;
    size_t          off, len, n;
    uint64_t        values;
    unsigned        i, k;
    util_buf_t      b;
    util_rng_t      r;
    util_cut_e      cut;
    util_feed_t     f;
    kvr_msgpack_e   kind;
    kvr_msgpack_t   m;
    const uint8_t  *p, *start;

    for (i = 0; i < util_cases(300); i++) {

        util_seed(&r, "msgpack", i);
        memset(&b, 0, sizeof(b));
        pack_any(&b, &r, 3);
        len = b.len;
        pack_str(&b, "behind");

        for (k = 0; util_cut(kvr_min(b.len, 60), k, &cut, &n); k++) {

            util_note("case %u, cut %u", i, k);
            util_feed(&f, b.p, b.len, cut, n);

            kvr_msgpack_init(&m);
            m.values = 1;
            off = 0;

            do {
                start = util_fetch(&f, off, &n);
                util_check(start != NULL, "it never ends");
                p = start;
                rc = kvr_msgpack_skip(&m, &p, start + n);
                off += (size_t) (p - start);
            } while (rc == KVR_AGAIN);

            util_check(rc == KVR_OK && off == len, "%d %zu of %zu", rc, off,
                       len);

            util_check(next(&m, &f, &off) == KVR_MSGPACK_STR
                       && kvr_msgpack_is(&m, "behind"), "what is behind it");

            /* value by value */

            kvr_msgpack_init(&m);
            off = 0;

            for (values = 1; values; values--) {
                kind = next(&m, &f, &off);
                util_check(kind != KVR_MSGPACK_AGAIN
                           && kind != KVR_MSGPACK_ERROR, "%u", kind);

                values += kind == KVR_MSGPACK_ARRAY ? m.number
                          : kind == KVR_MSGPACK_MAP ? 2 * m.number : 0;
            }

            util_check(off == len, "%zu of %zu", off, len);
            util_unfeed(&f);
        }

        util_drop(&b);
    }
}


TEST(test_msgpack_garbage)
{
    uint8_t         bytes[] = { 0x92, 0x01, 0xc1, 0x00 };
    kvr_msgpack_t   m;
    const uint8_t  *p;

    p = bytes;
    kvr_msgpack_init(&m);
    m.values = 1;

    ck_assert(kvr_msgpack_skip(&m, &p, bytes + sizeof(bytes)) == KVR_ERROR);
}
