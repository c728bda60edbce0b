
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TEXT_ESCAPE_H_INCLUDED_
#define _KVR_TEXT_ESCAPE_H_INCLUDED_


/*
 * Escapes that are written anew, one after the other: a part of the text
 * kernels.
 */


#include "kvr_text.h"


/* so many bytes between two escapes are not worth a step */
#define KVR_TEXT_BETWEEN  16


/* hexadecimal digits by their values, with bit 4 set */

static const uint8_t  kvr_text_hex[256] = {
    ['0'] = 0x10, ['1'] = 0x11, ['2'] = 0x12, ['3'] = 0x13, ['4'] = 0x14,
    ['5'] = 0x15, ['6'] = 0x16, ['7'] = 0x17, ['8'] = 0x18, ['9'] = 0x19,
    ['a'] = 0x1a, ['b'] = 0x1b, ['c'] = 0x1c, ['d'] = 0x1d, ['e'] = 0x1e,
    ['f'] = 0x1f,
    ['A'] = 0x1a, ['B'] = 0x1b, ['C'] = 0x1c, ['D'] = 0x1d, ['E'] = 0x1e,
    ['F'] = 0x1f
};


/* the value of four hexadecimal digits, or more than 0xffff */
static inline unsigned
kvr_text_hex4(const uint8_t *p)
{
    unsigned  a, b, c, d;

    a = kvr_text_hex[p[0]];
    b = kvr_text_hex[p[1]];
    c = kvr_text_hex[p[2]];
    d = kvr_text_hex[p[3]];

    if (kvr_unlikely((a & b & c & d & 0x10) == 0)) {
        return 0x10000;
    }

    return (a & 15) << 12 | (b & 15) << 8 | (c & 15) << 4 | (d & 15);
}


/*
 * Escapes in a row, such as whole texts of some languages are when a client
 * sends nothing but ASCII, and the few bytes between them.  What is not valid
 * is left to the slow way.
 */
static void
kvr_text_escapes(kvr_json_t *j, kvr_block_t *b)
{
    unsigned        u, low, plain;
    uint8_t        *dst, *last;
    const uint8_t  *p, *e;

    p = j->p;
    e = j->e - 12;
    dst = b->stage[b->cur] + b->fill;
    last = b->stage[b->cur] + KVR_BLOCK - 4;
    plain = 0;

    while (p < e && dst < last) {

        if (*p != '\\') {

            if (*p == '"' || ++plain > KVR_TEXT_BETWEEN) {
                break;
            }

            *dst++ = *p++;
            continue;
        }

        if (p[1] != 'u') {

            if (p[1] != '/') {
                *dst++ = '\\';
            }

            *dst++ = p[1];
            p += 2;
            continue;
        }

        plain = 0;
        u = kvr_text_hex4(p + 2);

        if (u >= 0x800) {

            if (kvr_likely(u < 0xd800 || (u > 0xdfff && u < 0x10000))) {
                dst[0] = (uint8_t) (0xe0 | u >> 12);
                dst[1] = (uint8_t) (0x80 | (u >> 6 & 63));
                dst[2] = (uint8_t) (0x80 | (u & 63));
                dst += 3;
                p += 6;
                continue;
            }

            if (u > 0xdbff || p[6] != '\\' || p[7] != 'u') {
                break;
            }

            low = kvr_text_hex4(p + 8);

            if (low < 0xdc00 || low > 0xdfff) {
                break;
            }

            u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);

            dst[0] = (uint8_t) (0xf0 | u >> 18);
            dst[1] = (uint8_t) (0x80 | (u >> 12 & 63));
            dst[2] = (uint8_t) (0x80 | (u >> 6 & 63));
            dst[3] = (uint8_t) (0x80 | (u & 63));
            dst += 4;
            p += 12;
            continue;
        }

        if (u >= 0x80) {
            dst[0] = (uint8_t) (0xc0 | u >> 6);
            dst[1] = (uint8_t) (0x80 | (u & 63));
            dst += 2;

        } else if (u >= ' ' && u != '"' && u != '\\') {
            *dst++ = (uint8_t) u;

        } else {
            break;
        }

        p += 6;
    }

    b->fill = (uint32_t) (dst - b->stage[b->cur]);
    j->p = p;
}


/* the slow way: an escape to be rewritten, or one that a window's end cuts */
static int
kvr_text_escape(kvr_json_t *j, kvr_block_t *b)
{
    int      rc;
    size_t   len;
    uint8_t  buf[8];

    j->p++;

    if (j->p == j->e && kvr_json_refill(j) != KVR_OK) {
        return KVR_AGAIN;
    }

    if (*j->p != 'u' && *j->p != '/') {

        /* as it stands, whatever it is, since nobody looks amid a window */

        kvr_block_byte(b, '\\');
        kvr_block_byte(b, *j->p++);

        return KVR_OK;
    }

    len = 0;

    rc = kvr_json_escape(j, buf, &len, 1);

    if (rc == KVR_OK) {
        kvr_block_put(b, buf, len);
    }

    return rc;
}


#endif /* _KVR_TEXT_ESCAPE_H_INCLUDED_ */
