
/*
 * Copyright (C) kvroute contributors
 */


/* Reads the keys and values of JSON text. */


#include "core/text/kvr_json.h"
#include "core/text/kvr_json_scan.h"
#include "core/text/kvr_text.h"


/* characters that can follow a backslash, and the characters they stand for */

static const char  kvr_json_escapes[8] = "\"\\/bfnrt";
static const char  kvr_json_meanings[8] = "\"\\/\b\f\n\r\t";


static inline int kvr_json_next(kvr_json_t *j, int *first, int close);
static inline int kvr_json_in_number(int c);
static int kvr_json_unicode(kvr_json_t *j, unsigned *value);
static int kvr_json_hex4(kvr_json_t *j, unsigned *value);


const uint8_t  kvr_json_hex[256] = {
    ['0'] = 0x10, ['1'] = 0x11, ['2'] = 0x12, ['3'] = 0x13, ['4'] = 0x14,
    ['5'] = 0x15, ['6'] = 0x16, ['7'] = 0x17, ['8'] = 0x18, ['9'] = 0x19,
    ['a'] = 0x1a, ['b'] = 0x1b, ['c'] = 0x1c, ['d'] = 0x1d, ['e'] = 0x1e,
    ['f'] = 0x1f,
    ['A'] = 0x1a, ['B'] = 0x1b, ['C'] = 0x1c, ['D'] = 0x1d, ['E'] = 0x1e,
    ['F'] = 0x1f
};


/*
 * Moves to the next member or item.  Returns its first byte, KVR_DECLINED after
 * the closing bracket, or an error.
 */
static inline int
kvr_json_next(kvr_json_t *j, int *first, int close)
{
    int  c;

    c = kvr_json_peek(j);

    if (c == close) {
        j->p++;
        return KVR_DECLINED;
    }

    if (*first) {
        *first = 0;
        return c;
    }

    if (c != ',') {
        return c < 0 ? c : KVR_ERROR;
    }

    j->p++;
    c = kvr_json_peek(j);

    return c == close ? KVR_ERROR : c;
}


int
kvr_json_key(kvr_json_t *j, int *first)
{
    int             c;
    const uint8_t  *p, *e;

    c = kvr_json_next(j, first, '}');

    if (c != '"') {
        return c < 0 ? c : KVR_ERROR;
    }

    /* the common key lies in the window and has no escapes */

    p = j->p + 1;
    e = kvr_scan_text(p, kvr_min(j->e, p + KVR_JSON_KEY_LEN));

    if (kvr_likely(e < j->e && *e == '"')) {
        j->key = p;
        j->key_len = (size_t) (e - p);
        j->p = e + 1;
        goto colon;
    }

    c = kvr_json_string(j, j->key_buf, KVR_JSON_KEY_LEN, &j->key_len);

    if (c != KVR_OK) {
        return c;
    }

    j->key = j->key_buf;

colon:

    if (kvr_likely(j->p < j->e && *j->p == ':')) {
        j->p++;
        return KVR_OK;
    }

    /* the window can move: save the key first */

    if (j->key != j->key_buf) {
        memcpy(j->key_buf, j->key, j->key_len);
        j->key = j->key_buf;
    }

    c = kvr_json_peek(j);

    if (c != ':') {
        return c < 0 ? c : KVR_ERROR;
    }

    j->p++;

    return KVR_OK;
}


int
kvr_json_item(kvr_json_t *j, int *first)
{
    int  c;

    c = kvr_json_next(j, first, ']');

    return c < 0 ? c : KVR_OK;
}


int
kvr_json_string(kvr_json_t *j, uint8_t *dst, size_t size, size_t *len)
{
    int             c;
    size_t          i, n;
    uint8_t         buf[8];
    const uint8_t  *p;

    *len = 0;

    c = kvr_json_peek(j);

    if (c != '"') {
        return c < 0 ? c : KVR_ERROR;
    }

    j->p++;

    /* the common string lies in the window and has no escapes */

    p = kvr_scan_text(j->p, j->e);

    if (kvr_likely(p < j->e && *p == '"')) {
        *len = kvr_min((size_t) (p - j->p), size + 1);
        memcpy(dst, j->p, kvr_min(*len, size));
        j->p = p + 1;
        return KVR_OK;
    }

    for ( ;; ) {
        c = kvr_json_byte(j);

        if (c < 0 || c == '"') {
            return c < 0 ? c : KVR_OK;
        }

        n = 0;

        if (c != '\\') {
            buf[n++] = (uint8_t) c;

        } else {
            c = kvr_json_escape(j, buf, &n, 0);

            if (c != KVR_OK) {
                return c;
            }
        }

        for (i = 0; i < n; i++) {

            if (*len == size) {
                (*len)++;
                return j->ops->skip_string(j);
            }

            dst[(*len)++] = buf[i];
        }
    }
}


int
kvr_json_integer(kvr_json_t *j, int64_t *value)
{
    int      c, d, neg, dot, exp, rc;
    size_t   bytes;
    int64_t  v;

    c = kvr_json_peek(j);

    if (c != '-' && (c < '0' || c > '9')) {
        rc = kvr_json_skip(j);
        return rc == KVR_OK ? KVR_DECLINED : rc;
    }

    neg = (c == '-');
    dot = 0;
    exp = 0;
    v = 0;

    if (neg) {
        j->p++;
    }

    for (bytes = 1; /* void */ ; bytes++) {

        if (bytes % 64 == 0 && kvr_json_spend(j, 8) != KVR_OK) {
            return KVR_JSON_COSTLY;
        }

        if (j->p == j->e && kvr_json_refill(j) != KVR_OK) {
            return KVR_AGAIN;
        }

        c = *j->p;

        if (c >= '0' && c <= '9') {
            if (!dot) {
                d = c - '0';
                v = v <= (INT64_MAX - d) / 10 ? v * 10 + d : INT64_MAX;
            }

        } else if (c == '.') {
            dot = 1;

        } else if (c == 'e' || c == 'E') {
            exp = 1;

        } else if (c != '+' && c != '-') {
            break;
        }

        j->p++;
    }

    /* no client writes a count as 1e3 */

    if (exp) {
        return KVR_DECLINED;
    }

    *value = neg ? -v : v;

    return KVR_OK;
}


int
kvr_json_skip(kvr_json_t *j)
{
    int  c;

    c = kvr_json_peek(j);

    switch (c) {

    case '"':
        j->p++;
        return j->ops->skip_string(j);

    case '{':
    case '[':
        return j->ops->skip_container(j);

    default:
        return c < 0 ? c : kvr_json_skip_scalar(j);
    }
}


int
kvr_json_skip_scalar(kvr_json_t *j)
{
    int          c, len;
    unsigned     n;
    const char  *word;

    c = *j->p;
    word = c == 't' ? "true" : c == 'f' ? "false" : c == 'n' ? "null" : NULL;

    if (word == NULL && c != '-' && (c < '0' || c > '9')) {
        return KVR_ERROR;
    }

    /* usually the word is in this window */

    len = 4 + (c == 'f');

    if (word && j->e - j->p > len && memcmp(j->p, word, (size_t) len) == 0) {
        word += len;
        j->p += len;
        c = *j->p;
    }

    for (n = 1; word ? *word && c == *word : kvr_json_in_number(c); n++) {

        if (word) {
            word++;
        }

        if (n % 64 == 0 && kvr_json_spend(j, 16) != KVR_OK) {
            return KVR_JSON_COSTLY;
        }

        if (++j->p == j->e && kvr_json_refill(j) != KVR_OK) {
            return KVR_AGAIN;
        }

        c = *j->p;
    }

    if (word && *word) {
        return KVR_ERROR;
    }

    return c == ',' || c == '}' || c == ']' || c <= ' ' ? KVR_OK : KVR_ERROR;
}


static inline int
kvr_json_in_number(int c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+'
           || c == 'e' || c == 'E';
}


int
kvr_json_escape(kvr_json_t *j, uint8_t *dst, size_t *len, int canonical)
{
    int          c, rc;
    unsigned     u;
    const char  *p;

    static const char  hex[] = "0123456789abcdef";

    if (kvr_json_spend(j, 2) != KVR_OK) {
        return KVR_JSON_COSTLY;
    }

    c = kvr_json_byte(j);

    if (c < 0) {
        return c;
    }

    if (c == 'u') {
        rc = kvr_json_unicode(j, &u);

        if (rc != KVR_OK) {
            return rc;
        }

    } else {
        p = memchr(kvr_json_escapes, c, 8);

        if (p == NULL) {
            return KVR_ERROR;
        }

        u = (unsigned) kvr_json_meanings[p - kvr_json_escapes];
    }

    dst += *len;

    if (!canonical
        || (u >= ' ' && u != '"' && u != '\\' && (u < 0xd800 || u > 0xdfff)))
    {
        *len += kvr_json_utf8(dst, u);
        return KVR_OK;
    }

    *dst++ = '\\';

    p = u < 128 ? memchr(kvr_json_meanings, (int) u, 8) : NULL;

    if (p) {
        *dst = (uint8_t) kvr_json_escapes[p - kvr_json_meanings];
        *len += 2;
        return KVR_OK;
    }

    *dst++ = 'u';
    *dst++ = hex[u >> 12];
    *dst++ = hex[u >> 8 & 15];
    *dst++ = hex[u >> 4 & 15];
    *dst = hex[u & 15];
    *len += 6;

    return KVR_OK;
}


/* Reads what follows "\u": a code point, or both halves of a surrogate pair. */
static int
kvr_json_unicode(kvr_json_t *j, unsigned *value)
{
    int       rc;
    unsigned  low;
    uint64_t  offset;

    rc = kvr_json_hex4(j, value);

    if (rc != KVR_OK || *value < 0xd800 || *value > 0xdbff) {
        return rc;
    }

    offset = kvr_json_offset(j);
    rc = kvr_json_byte(j);

    if (rc == '\\') {
        rc = kvr_json_byte(j);

        if (rc == 'u') {
            rc = kvr_json_hex4(j, &low);

            if (rc == KVR_OK && low >= 0xdc00 && low <= 0xdfff) {
                *value = kvr_json_pair(*value, low);
                return KVR_OK;
            }
        }
    }

    return rc == KVR_AGAIN ? rc : kvr_json_seek(j, offset);
}


static int
kvr_json_hex4(kvr_json_t *j, unsigned *value)
{
    int  c, i;

    *value = 0;

    for (i = 0; i < 4; i++) {
        c = kvr_json_byte(j);

        if (c < 0) {
            return c;
        }

        if (kvr_json_hex[c] == 0) {
            return KVR_ERROR;
        }

        *value = *value << 4 | (kvr_json_hex[c] & 15);
    }

    return KVR_OK;
}


int
kvr_json_names_has(const char *const *list, const uint8_t *key, size_t len)
{
    for ( /* void */ ; *list; list++) {

        if ((*list)[0] == (char) key[0]
            && strlen(*list) == len && memcmp(*list, key, len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


int
kvr_json_names_next(const kvr_json_names_t *names, kvr_json_t *j,
    size_t *depth, uint64_t *key)
{
    int      c, rc;
    size_t   len;
    uint8_t  name[KVR_JSON_NAME_LEN];

    for ( ;; ) {
        rc = j->ops->find_string(j, depth, names->first);

        if (rc != KVR_OK) {
            return rc;
        }

        *key = kvr_json_offset(j);

        rc = kvr_json_string(j, name, KVR_JSON_NAME_LEN, &len);

        if (rc == KVR_OK) {
            rc = kvr_json_spend(j, 1 + (int) (len / 8));
        }

        if (rc != KVR_OK) {
            return rc;
        }

        if (!kvr_json_names_has(names->name, name, len)) {
            continue;
        }

        c = kvr_json_peek(j);

        if (c < 0) {
            return c;
        }

        /* a string before a colon is a key */

        if (c == ':') {
            j->p++;
            return KVR_OK;
        }
    }
}
