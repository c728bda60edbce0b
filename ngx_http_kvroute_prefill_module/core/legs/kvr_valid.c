
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_valid.h"


#define KVR_VALID_LEVELS  64           /* a bit each */


/* these return what is behind the thing, or NULL if it is not there */

static const uint8_t *kvr_valid_space(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_valid_name(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_valid_scalar(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_valid_number(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_valid_digits(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_valid_text(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_valid_escape(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_valid_utf8(const uint8_t *p, const uint8_t *e);


int
kvr_valid(const uint8_t *p, size_t n)
{
    uint64_t        objects;
    uint32_t        depth;
    const uint8_t  *e;

    e = p + n;
    objects = 0;
    depth = 0;

    for ( ;; ) {

        /* before a value */

        p = kvr_valid_space(p, e);

        if (p == e) {
            return 0;
        }

        if (*p == '{' || *p == '[') {

            if (depth == KVR_VALID_LEVELS) {
                return 0;
            }

            objects = objects << 1 | (*p == '{');
            depth++;

            p = kvr_valid_space(p + 1, e);

            if (p == e) {
                return 0;
            }

            if (*p != (objects & 1 ? '}' : ']')) {

                if (objects & 1) {
                    p = kvr_valid_name(p, e);
                }

                if (p == NULL) {
                    return 0;
                }

                continue;
            }

        } else {
            p = kvr_valid_scalar(p, e);

            if (p == NULL) {
                return 0;
            }
        }

        /* behind a value, or before the end of what is empty */

        for ( ;; ) {
            p = kvr_valid_space(p, e);

            if (depth == 0 || p == e) {
                return depth == 0 && p == e;
            }

            if (*p == ',') {
                p = objects & 1 ? kvr_valid_name(p + 1, e) : p + 1;

                if (p == NULL) {
                    return 0;
                }

                break;
            }

            if (*p != (objects & 1 ? '}' : ']')) {
                return 0;
            }

            p++;
            objects >>= 1;
            depth--;
        }
    }
}


/* of a member, and its colon */
static const uint8_t *
kvr_valid_space(const uint8_t *p, const uint8_t *e)
{
    while (p < e && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) {
        p++;
    }

    return p;
}


static const uint8_t *
kvr_valid_name(const uint8_t *p, const uint8_t *e)
{
    p = kvr_valid_text(kvr_valid_space(p, e), e);

    if (p == NULL) {
        return NULL;
    }

    p = kvr_valid_space(p, e);

    return p < e && *p == ':' ? p + 1 : NULL;
}


static const uint8_t *
kvr_valid_scalar(const uint8_t *p, const uint8_t *e)
{
    size_t    n;
    unsigned  i;

    static const char *const  literal[] = { "true", "false", "null" };

    if (*p == '"') {
        return kvr_valid_text(p, e);
    }

    for (i = 0; i < kvr_nelts(literal); i++) {
        n = strlen(literal[i]);

        if ((size_t) (e - p) >= n && memcmp(p, literal[i], n) == 0) {
            return p + n;
        }
    }

    return kvr_valid_number(p, e);
}


static const uint8_t *
kvr_valid_number(const uint8_t *p, const uint8_t *e)
{
    if (*p == '-') {
        p++;
    }

    p = p < e && *p == '0' ? p + 1 : kvr_valid_digits(p, e);

    if (p && p < e && *p == '.') {
        p = kvr_valid_digits(p + 1, e);
    }

    if (p && p < e && (*p | 0x20) == 'e') {
        p++;

        if (p < e && (*p == '+' || *p == '-')) {
            p++;
        }

        p = kvr_valid_digits(p, e);
    }

    return p;
}


/* one or more */
static const uint8_t *
kvr_valid_digits(const uint8_t *p, const uint8_t *e)
{
    const uint8_t  *start;

    for (start = p; p < e && *p >= '0' && *p <= '9'; p++) { /* void */ }

    return p > start ? p : NULL;
}


static const uint8_t *
kvr_valid_text(const uint8_t *p, const uint8_t *e)
{
    if (p == e || *p != '"') {
        return NULL;
    }

    p++;

    while (p && p < e) {

        if (*p == '"') {
            return p + 1;
        }

        if (*p < ' ') {
            return NULL;
        }

        if (*p == '\\') {
            p = kvr_valid_escape(p + 1, e);

        } else {
            p = *p < 0x80 ? p + 1 : kvr_valid_utf8(p, e);
        }
    }

    return NULL;
}


/* behind the backslash */
static const uint8_t *
kvr_valid_escape(const uint8_t *p, const uint8_t *e)
{
    unsigned  i;

    if (p == e || *p == '\0') {
        return NULL;
    }

    if (*p != 'u') {
        return strchr("\"\\/bfnrt", *p) ? p + 1 : NULL;
    }

    for (i = 0, p++; i < 4; i++, p++) {

        if (p == e || !((*p >= '0' && *p <= '9')
                        || ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'f')))
        {
            return NULL;
        }
    }

    return p;
}


/* one character of several bytes, in its shortest form, and no surrogate */
static const uint8_t *
kvr_valid_utf8(const uint8_t *p, const uint8_t *e)
{
    uint8_t  c, low, high;
    size_t   n;

    c = *p++;

    if (c < 0xc2 || c > 0xf4) {
        return NULL;
    }

    n = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;

    for ( /* void */ ; n; n--, p++) {

        if (p == e || *p < low || *p > high) {
            return NULL;
        }

        low = 0x80;
        high = 0xbf;
    }

    return p;
}
