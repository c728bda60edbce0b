
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _MSGPACK_H_INCLUDED_
#define _MSGPACK_H_INCLUDED_


/*
 * Writes MessagePack, each value in its shortest form, for the unit tests and
 * the emulated engine.  PACK_BUF is the type of a buffer, and
 * PACK_PUT(b, data, len) appends to it.
 */


#include <stdint.h>
#include <string.h>


static inline void
pack_byte(PACK_BUF *b, unsigned c)
{
    uint8_t  byte;

    byte = (uint8_t) c;

    PACK_PUT(b, &byte, 1);
}


static inline void
pack_number(PACK_BUF *b, uint64_t n, unsigned bytes)
{
    while (bytes--) {
        pack_byte(b, (uint8_t) (n >> 8 * bytes));
    }
}


/* heads whose number has 1, 2, 4 or 8 bytes; this is the first of them */
static inline void
pack_head(PACK_BUF *b, unsigned head, uint64_t n, unsigned from)
{
    unsigned  i;

    for (i = from; i < 3 && n >> 8 * (1U << i); i++) { /* void */ }

    pack_byte(b, head + i - from);
    pack_number(b, n, 1U << i);
}


static inline void
pack_nil(PACK_BUF *b)
{
    pack_byte(b, 0xc0);
}


static inline void
pack_uint(PACK_BUF *b, uint64_t n)
{
    if (n < 128) {
        pack_byte(b, (unsigned) n);

    } else {
        pack_head(b, 0xcc, n, 0);
    }
}


static inline void
pack_int(PACK_BUF *b, int64_t n)
{
    if (n >= 0) {
        pack_uint(b, (uint64_t) n);

    } else if (n >= -32) {
        pack_byte(b, (uint8_t) n);

    } else if (n >= INT8_MIN) {
        pack_byte(b, 0xd0);
        pack_number(b, (uint64_t) n, 1);

    } else if (n >= INT16_MIN) {
        pack_byte(b, 0xd1);
        pack_number(b, (uint64_t) n, 2);

    } else if (n >= INT32_MIN) {
        pack_byte(b, 0xd2);
        pack_number(b, (uint64_t) n, 4);

    } else {
        pack_byte(b, 0xd3);
        pack_number(b, (uint64_t) n, 8);
    }
}


static inline void
pack_float(PACK_BUF *b, double d)
{
    uint64_t  n;

    memcpy(&n, &d, sizeof(n));

    pack_byte(b, 0xcb);
    pack_number(b, n, 8);
}


static inline void
pack_str(PACK_BUF *b, const char *s)
{
    size_t  len;

    if (s == NULL) {
        pack_nil(b);
        return;
    }

    len = strlen(s);

    if (len < 32) {
        pack_byte(b, 0xa0 + (unsigned) len);

    } else {
        pack_head(b, 0xd9, len, 0);
    }

    PACK_PUT(b, s, len);
}


static inline void
pack_bin(PACK_BUF *b, const void *data, size_t len)
{
    pack_head(b, 0xc4, len, 0);
    PACK_PUT(b, data, len);
}


static inline void
pack_array(PACK_BUF *b, uint32_t n)
{
    if (n < 16) {
        pack_byte(b, 0x90 + n);

    } else {
        pack_head(b, 0xdc, n, 1);
    }
}


static inline void
pack_map(PACK_BUF *b, uint32_t n)
{
    if (n < 16) {
        pack_byte(b, 0x80 + n);

    } else {
        pack_head(b, 0xde, n, 1);
    }
}


#endif /* _MSGPACK_H_INCLUDED_ */
