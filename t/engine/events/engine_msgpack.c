#include <string.h>

#include "events/engine_msgpack.h"


/* a byte that says what it is, and a number, big-endian */

static void
kve_pack_head(kve_buf_t *b, int type, uint64_t n, int size)
{
    int            i;
    unsigned char  buf[9];

    buf[0] = type;

    for (i = 0; i < size; i++) {
        buf[1 + i] = n >> (8 * (size - 1 - i));
    }

    kve_buf_add(b, buf, 1 + size);
}


void
kve_pack_nil(kve_buf_t *b)
{
    kve_pack_head(b, 0xc0, 0, 0);
}


void
kve_pack_uint(kve_buf_t *b, uint64_t n)
{
    if (n < 0x80) {
        kve_pack_head(b, n, 0, 0);

    } else if (n <= UINT8_MAX) {
        kve_pack_head(b, 0xcc, n, 1);

    } else if (n <= UINT16_MAX) {
        kve_pack_head(b, 0xcd, n, 2);

    } else if (n <= UINT32_MAX) {
        kve_pack_head(b, 0xce, n, 4);

    } else {
        kve_pack_head(b, 0xcf, n, 8);
    }
}


void
kve_pack_int(kve_buf_t *b, int64_t n)
{
    if (n >= 0) {
        kve_pack_uint(b, n);

    } else if (n >= -32) {
        kve_pack_head(b, (int) (n & 0xff), 0, 0);

    } else {
        kve_pack_head(b, 0xd3, (uint64_t) n, 8);
    }
}


void
kve_pack_double(kve_buf_t *b, double x)
{
    uint64_t  n;

    memcpy(&n, &x, sizeof(n));
    kve_pack_head(b, 0xcb, n, 8);
}


void
kve_pack_str(kve_buf_t *b, const char *s)
{
    size_t  len;

    if (s == NULL) {
        kve_pack_nil(b);
        return;
    }

    len = strlen(s);

    if (len < 32) {
        kve_pack_head(b, 0xa0 | len, 0, 0);

    } else if (len <= UINT8_MAX) {
        kve_pack_head(b, 0xd9, len, 1);

    } else {
        kve_pack_head(b, 0xdb, len, 4);
    }

    kve_buf_add(b, s, len);
}


void
kve_pack_bin(kve_buf_t *b, const void *data, size_t len)
{
    kve_pack_head(b, 0xc6, len, 4);
    kve_buf_add(b, data, len);
}


void
kve_pack_array(kve_buf_t *b, uint32_t n)
{
    if (n < 16) {
        kve_pack_head(b, 0x90 | n, 0, 0);

    } else {
        kve_pack_head(b, 0xdd, n, 4);
    }
}


void
kve_pack_map(kve_buf_t *b, uint32_t n)
{
    if (n < 16) {
        kve_pack_head(b, 0x80 | n, 0, 0);

    } else {
        kve_pack_head(b, 0xdf, n, 4);
    }
}
