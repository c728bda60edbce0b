
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_msgpack: each kind of value, complete and cut off; skipped values. */


#include "pack.h"
#include "core/events/kvr_msgpack.h"


typedef struct {
    const char     *bytes;
    size_t          len;
    kvr_msgpack_e   kind;
    uint64_t        number;      /* or the length of a string */
} sample_t;


#define B(s)  s, sizeof(s) - 1

static const sample_t  samples[] = {
    { B("\xc0"), KVR_MSGPACK_OTHER, 0 },
    { B("\xc2"), KVR_MSGPACK_OTHER, 0 },
    { B("\xc3"), KVR_MSGPACK_OTHER, 0 },
    { B("\x00"), KVR_MSGPACK_INT, 0 },
    { B("\x7f"), KVR_MSGPACK_INT, 127 },
    { B("\xff"), KVR_MSGPACK_INT, (uint64_t) -1 },
    { B("\xe0"), KVR_MSGPACK_INT, (uint64_t) -32 },
    { B("\xcc\xff"), KVR_MSGPACK_INT, 255 },
    { B("\xcd\x12\x34"), KVR_MSGPACK_INT, 0x1234 },
    { B("\xce\x12\x34\x56\x78"), KVR_MSGPACK_INT, 0x12345678 },
    { B("\xcf\xfe\xdc\xba\x98\x76\x54\x32\x10"), KVR_MSGPACK_INT,
      0xfedcba9876543210 },
    { B("\xd0\x80"), KVR_MSGPACK_INT, (uint64_t) -128 },
    { B("\xd1\x80\x00"), KVR_MSGPACK_INT, (uint64_t) -32768 },
    { B("\xd2\xff\xff\xff\xfe"), KVR_MSGPACK_INT, (uint64_t) -2 },
    { B("\xd3\x80\x00\x00\x00\x00\x00\x00\x05"), KVR_MSGPACK_INT,
      0x8000000000000005 },
    { B("\xca\x00\x00\x00\x00"), KVR_MSGPACK_OTHER, 0 },
    { B("\xcb\x00\x00\x00\x00\x00\x00\x00\x00"), KVR_MSGPACK_OTHER, 0 },
    { B("\xa0"), KVR_MSGPACK_STR, 0 },
    { B("\xa3" "GPU"), KVR_MSGPACK_STR, 3 },
    { B("\xd9\x03" "GPU"), KVR_MSGPACK_STR, 3 },
    { B("\xda\x00\x03" "GPU"), KVR_MSGPACK_STR, 3 },
    { B("\xdb\x00\x00\x00\x03" "GPU"), KVR_MSGPACK_STR, 3 },
    { B("\xc4\x0a\0\1\2\3\4\5\6\7\x8\x9"), KVR_MSGPACK_STR, 10 },
    { B("\xc5\x00\x01\xfe"), KVR_MSGPACK_STR, 1 },
    { B("\xc6\x00\x00\x00\x01\xfe"), KVR_MSGPACK_STR, 1 },
    { B("\xc7\x02\x05" "ab"), KVR_MSGPACK_OTHER, 0 },
    { B("\xc8\x00\x02\x05" "ab"), KVR_MSGPACK_OTHER, 0 },
    { B("\xc9\x00\x00\x00\x02\x05" "ab"), KVR_MSGPACK_OTHER, 0 },
    { B("\xd4\x05" "a"), KVR_MSGPACK_OTHER, 0 },
    { B("\xd5\x05" "ab"), KVR_MSGPACK_OTHER, 0 },
    { B("\xd6\x05" "abcd"), KVR_MSGPACK_OTHER, 0 },
    { B("\xd7\x05" "abcdefgh"), KVR_MSGPACK_OTHER, 0 },
    { B("\xd8\x05" "01234567abcdefgh"), KVR_MSGPACK_OTHER, 0 },
    { B("\x90"), KVR_MSGPACK_ARRAY, 0 },
    { B("\x9f"), KVR_MSGPACK_ARRAY, 15 },
    { B("\xdc\x01\x02"), KVR_MSGPACK_ARRAY, 0x102 },
    { B("\xdd\xff\xff\xff\xff"), KVR_MSGPACK_ARRAY, UINT32_MAX },
    { B("\x80"), KVR_MSGPACK_MAP, 0 },
    { B("\x8f"), KVR_MSGPACK_MAP, 15 },
    { B("\xde\x01\x02"), KVR_MSGPACK_MAP, 0x102 },
    { B("\xdf\xff\xff\xff\xff"), KVR_MSGPACK_MAP, UINT32_MAX },
    { B("\xc1"), KVR_MSGPACK_ERROR, 0 }
};


/* each sample in memory of its size, also cut to each shorter size */
TEST(test_msgpack_heads)
{
    size_t          n;
    uint8_t        *p;
    unsigned        i;
    kvr_msgpack_e   kind;
    kvr_msgpack_t   m;
    const sample_t  *s;

    for (i = 0; i < kvr_nelts(samples); i++) {

        s = &samples[i];

        for (n = 0; n <= s->len; n++) {

            util_note("sample %u, %zu bytes", i, n);

            p = malloc(n + 1);
            memcpy(p + 1, s->bytes, n);
            kvr_msgpack_init(&m, p + 1, n);

            kind = kvr_msgpack_next(&m);

            util_check(kind == (n == s->len ? s->kind : KVR_MSGPACK_ERROR),
                       "%u", kind);
            util_check(m.p == m.end, "bytes left over");
            util_check(kvr_msgpack_next(&m) == KVR_MSGPACK_ERROR, "no end");

            if (kind == KVR_MSGPACK_STR) {
                util_check(m.len == s->number
                           && m.text == p + 1 + n - m.len, "%u", m.len);

            } else if (kind != KVR_MSGPACK_ERROR && kind != KVR_MSGPACK_OTHER) {
                util_check(m.number == s->number, "%lu",
                           (unsigned long) m.number);
            }

            free(p);
        }
    }
}


/* skipping a value ends where reading it ends; cut off it is an error */
TEST(test_msgpack_skip)
{
    size_t          len;
    uint64_t        values;
    unsigned        i;
    util_buf_t      b;
    util_rng_t      r;
    kvr_msgpack_e   kind;
    kvr_msgpack_t   m;

    for (i = 0; i < util_cases(300); i++) {

        util_seed(&r, "msgpack", i);
        util_note("case %u", i);

        memset(&b, 0, sizeof(b));
        pack_any(&b, &r, 3);
        len = b.len;
        pack_str(&b, "behind");

        kvr_msgpack_init(&m, b.p, b.len);

        util_check(kvr_msgpack_skip(&m, 1) == KVR_OK && m.p == b.p + len,
                   "skipped");
        util_check(kvr_msgpack_skip(&m, 2) == KVR_ERROR, "one value is left");

        kvr_msgpack_init(&m, b.p, len - 1);
        util_check(kvr_msgpack_skip(&m, 1) == KVR_ERROR, "cut off");

        kvr_msgpack_init(&m, b.p, b.len);

        for (values = 1; values; values--) {
            kind = kvr_msgpack_next(&m);
            util_check(kind != KVR_MSGPACK_ERROR, "an error");

            values += kind == KVR_MSGPACK_ARRAY ? m.number
                      : kind == KVR_MSGPACK_MAP ? 2 * m.number : 0;
        }

        util_check(m.p == b.p + len, "read");
        util_drop(&b);
    }
}
