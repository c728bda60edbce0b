
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_transfer.h"


static void kvr_transfer_string(kvr_transfer_t *t, uint8_t c);
static void kvr_transfer_open(kvr_transfer_t *t, uint8_t c);
static void kvr_transfer_close(kvr_transfer_t *t);
static int kvr_transfer_sound(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_space(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_name(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_scalar(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_number(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_digits(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_text(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_escape(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_transfer_utf8(const uint8_t *p, const uint8_t *e);


/* levels of brackets in a descriptor, a bit each */
#define KVR_TRANSFER_DEPTH  64


void
kvr_transfer_init(kvr_transfer_t *t, const char *name, uint8_t *data,
    size_t size)
{
    memset(t, 0, sizeof(kvr_transfer_t));

    t->name = name;
    t->data = data;
    t->size = size;
}


void
kvr_transfer_read(kvr_transfer_t *t, const uint8_t *p, size_t n)
{
    uint8_t         c;
    const uint8_t  *last;

    for (last = p + n; p < last && !t->bad; p++) {
        c = *p;

        if (t->inside) {

            if (t->len < t->size) {
                t->data[t->len] = c;
            }

            t->len++;
        }

        if (t->string) {
            kvr_transfer_string(t, c);
            continue;
        }

        switch (c) {

        case ' ':
        case '\t':
        case '\n':
        case '\r':
            break;

        case '"':
            t->string = 1;
            t->key = t->expect;
            t->expect = 0;
            t->match = 0;

            t->bad = (t->depth == 0);
            break;

        case '{':
        case '[':
            kvr_transfer_open(t, c);
            break;

        case '}':
        case ']':
            kvr_transfer_close(t);
            break;

        case ',':
            if (t->depth == 1) {
                t->expect = 1;
                t->named = 0;
            }

            break;

        default:
            t->bad = (t->depth == 0);
        }
    }
}


static void
kvr_transfer_string(kvr_transfer_t *t, uint8_t c)
{
    if (t->escape) {
        t->escape = 0;
        return;
    }

    if (c == '\\') {
        t->escape = 1;
        t->match = -1;
        return;
    }

    if (c == '"') {
        t->string = 0;

        if (t->key) {
            t->named = (t->name && t->match >= 0 && t->name[t->match] == '\0');
        }

        if (t->key && t->named) {

            /* of two the last one wins, as with the readers of engines */

            t->found = 0;
            t->over = 0;
        }

        return;
    }

    if (t->key && t->name && t->match >= 0) {
        t->match = (t->name[t->match] == (char) c) ? t->match + 1 : -1;
    }
}


static void
kvr_transfer_open(kvr_transfer_t *t, uint8_t c)
{
    if (t->depth == 0) {
        t->bad = (c != '{' || t->whole);
        t->expect = 1;

    } else if (t->depth == 1 && t->named && c == '{') {
        t->inside = 1;
        t->len = 1;

        if (t->size) {
            t->data[0] = c;
        }
    }

    t->depth++;
}


static void
kvr_transfer_close(kvr_transfer_t *t)
{
    if (t->depth == 0) {
        t->bad = 1;
        return;
    }

    t->depth--;

    if (t->inside && t->depth == 1) {
        t->inside = 0;
        t->named = 0;
        t->found = 1;
        t->over = (t->len > t->size);
    }

    if (t->depth == 0) {
        t->whole = 1;
    }
}


int
kvr_transfer_usable(const kvr_transfer_t *t)
{
    return kvr_transfer_whole(t) && t->found && !t->over
           && kvr_transfer_sound(t->data, t->data + t->len);
}


/* the functions below return what is behind a thing, or NULL: it is not there */
static int
kvr_transfer_sound(const uint8_t *p, const uint8_t *e)
{
    uint64_t  objects;
    uint32_t  depth;

    objects = 0;
    depth = 0;

    for ( ;; ) {

        /* before a value */

        p = kvr_transfer_space(p, e);

        if (p == e) {
            return 0;
        }

        if (*p == '{' || *p == '[') {

            if (depth == KVR_TRANSFER_DEPTH) {
                return 0;
            }

            objects = objects << 1 | (*p == '{');
            depth++;

            p = kvr_transfer_space(p + 1, e);

            if (p == e) {
                return 0;
            }

            if (*p != (objects & 1 ? '}' : ']')) {

                if (objects & 1) {
                    p = kvr_transfer_name(p, e);
                }

                if (p == NULL) {
                    return 0;
                }

                continue;
            }

        } else {
            p = kvr_transfer_scalar(p, e);

            if (p == NULL) {
                return 0;
            }
        }

        /* behind a value, or before the end of what is empty */

        for ( ;; ) {
            p = kvr_transfer_space(p, e);

            if (depth == 0 || p == e) {
                return depth == 0 && p == e;
            }

            if (*p == ',') {
                p = objects & 1 ? kvr_transfer_name(p + 1, e) : p + 1;

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


static const uint8_t *
kvr_transfer_space(const uint8_t *p, const uint8_t *e)
{
    while (p < e && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) {
        p++;
    }

    return p;
}


/* of a member, and its colon */
static const uint8_t *
kvr_transfer_name(const uint8_t *p, const uint8_t *e)
{
    p = kvr_transfer_text(kvr_transfer_space(p, e), e);

    if (p == NULL) {
        return NULL;
    }

    p = kvr_transfer_space(p, e);

    return p < e && *p == ':' ? p + 1 : NULL;
}


static const uint8_t *
kvr_transfer_scalar(const uint8_t *p, const uint8_t *e)
{
    size_t    n;
    unsigned  i;

    static const char *const  literal[] = { "true", "false", "null" };

    if (*p == '"') {
        return kvr_transfer_text(p, e);
    }

    for (i = 0; i < kvr_nelts(literal); i++) {
        n = strlen(literal[i]);

        if ((size_t) (e - p) >= n && memcmp(p, literal[i], n) == 0) {
            return p + n;
        }
    }

    return kvr_transfer_number(p, e);
}


static const uint8_t *
kvr_transfer_number(const uint8_t *p, const uint8_t *e)
{
    if (*p == '-') {
        p++;
    }

    p = p < e && *p == '0' ? p + 1 : kvr_transfer_digits(p, e);

    if (p && p < e && *p == '.') {
        p = kvr_transfer_digits(p + 1, e);
    }

    if (p && p < e && (*p | 0x20) == 'e') {
        p++;

        if (p < e && (*p == '+' || *p == '-')) {
            p++;
        }

        p = kvr_transfer_digits(p, e);
    }

    return p;
}


/* one or more */
static const uint8_t *
kvr_transfer_digits(const uint8_t *p, const uint8_t *e)
{
    const uint8_t  *start;

    for (start = p; p < e && *p >= '0' && *p <= '9'; p++) { /* void */ }

    return p > start ? p : NULL;
}


static const uint8_t *
kvr_transfer_text(const uint8_t *p, const uint8_t *e)
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
            p = kvr_transfer_escape(p + 1, e);

        } else {
            p = *p < 0x80 ? p + 1 : kvr_transfer_utf8(p, e);
        }
    }

    return NULL;
}


/* behind the backslash */
static const uint8_t *
kvr_transfer_escape(const uint8_t *p, const uint8_t *e)
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
kvr_transfer_utf8(const uint8_t *p, const uint8_t *e)
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
