
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_json.h"


static int kvr_json_hex4(kvr_json_t *j, unsigned *value);
static size_t kvr_json_utf8(uint8_t *dst, unsigned c);


int
kvr_json_escape(kvr_json_t *j, uint8_t *dst, size_t *len, int canonical)
{
    int         c, rc;
    unsigned    u, low;
    uint64_t    offset;

    static const char  hex[] = "0123456789abcdef";

    if (kvr_json_spend(j, 2) != KVR_OK) {
        return KVR_JSON_COSTLY;
    }

    c = kvr_json_byte(j);

    if (c < 0) {
        return c;
    }

    switch (c) {
    case '"':
    case '\\':
    case '/':
        u = (unsigned) c;
        break;
    case 'b':
        u = '\b';
        break;
    case 'f':
        u = '\f';
        break;
    case 'n':
        u = '\n';
        break;
    case 'r':
        u = '\r';
        break;
    case 't':
        u = '\t';
        break;

    case 'u':
        rc = kvr_json_hex4(j, &u);
        if (rc != KVR_OK) {
            return rc;
        }

        if (u < 0xd800 || u > 0xdbff) {
            break;
        }

        /* the first half of a pair, if "\uDC00" to "\uDFFF" follows */

        offset = kvr_json_offset(j);

        rc = kvr_json_byte(j);

        if (rc == '\\') {
            rc = kvr_json_byte(j);

            if (rc == 'u') {
                rc = kvr_json_hex4(j, &low);

                if (rc == KVR_OK && low >= 0xdc00 && low <= 0xdfff) {
                    u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
                    break;
                }
            }
        }

        if (rc == KVR_AGAIN) {
            return rc;
        }

        rc = kvr_json_seek(j, offset);

        if (rc != KVR_OK) {
            return rc;
        }

        break;

    default:
        return KVR_ERROR;
    }

    dst += *len;

    if (!canonical
        || (u >= ' ' && u != '"' && u != '\\' && (u < 0xd800 || u > 0xdfff)))
    {
        *len += kvr_json_utf8(dst, u);
        return KVR_OK;
    }

    *dst++ = '\\';
    *len += 2;

    switch (u) {
    case '"':
    case '\\':
        *dst = (uint8_t) u;
        return KVR_OK;
    case '\b':
        *dst = 'b';
        return KVR_OK;
    case '\f':
        *dst = 'f';
        return KVR_OK;
    case '\n':
        *dst = 'n';
        return KVR_OK;
    case '\r':
        *dst = 'r';
        return KVR_OK;
    case '\t':
        *dst = 't';
        return KVR_OK;
    }

    *dst++ = 'u';
    *dst++ = hex[u >> 12];
    *dst++ = hex[u >> 8 & 15];
    *dst++ = hex[u >> 4 & 15];
    *dst = hex[u & 15];
    *len += 4;

    return KVR_OK;
}


static int
kvr_json_hex4(kvr_json_t *j, unsigned *value)
{
    int       c, i;
    unsigned  u;

    u = 0;

    for (i = 0; i < 4; i++) {
        c = kvr_json_byte(j);

        if (c < 0) {
            return c;
        }

        if (c >= '0' && c <= '9') {
            u = u << 4 | (unsigned) (c - '0');
            continue;
        }

        c |= 0x20;

        if (c < 'a' || c > 'f') {
            return KVR_ERROR;
        }

        u = u << 4 | (unsigned) (c - 'a' + 10);
    }

    *value = u;

    return KVR_OK;
}


static size_t
kvr_json_utf8(uint8_t *dst, unsigned c)
{
    if (c < 0x80) {
        dst[0] = (uint8_t) c;
        return 1;
    }

    if (c < 0x800) {
        dst[0] = (uint8_t) (0xc0 | c >> 6);
        dst[1] = (uint8_t) (0x80 | (c & 63));
        return 2;
    }

    if (c < 0x10000) {
        dst[0] = (uint8_t) (0xe0 | c >> 12);
        dst[1] = (uint8_t) (0x80 | (c >> 6 & 63));
        dst[2] = (uint8_t) (0x80 | (c & 63));
        return 3;
    }

    dst[0] = (uint8_t) (0xf0 | c >> 18);
    dst[1] = (uint8_t) (0x80 | (c >> 12 & 63));
    dst[2] = (uint8_t) (0x80 | (c >> 6 & 63));
    dst[3] = (uint8_t) (0x80 | (c & 63));

    return 4;
}
