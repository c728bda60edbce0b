
/*
 * Copyright (C) kvroute contributors
 */


/* The values of JSON text: what kvr_json.c moves through, read. */


#include "core/text/kvr_json.h"
#include "core/text/kvr_json_scan.h"
#include "core/text/kvr_text.h"


static const uint8_t *kvr_json_scalar(const uint8_t *p, const uint8_t *e);
static int kvr_json_hex4(kvr_json_t *j, unsigned *value);
static size_t kvr_json_utf8(uint8_t *dst, unsigned c);
static int kvr_json_name(kvr_json_t *j, uint8_t *name, size_t *len);


int
kvr_json_key(kvr_json_t *j, int *first)
{
    int             c;
    const uint8_t  *p, *e;

    c = kvr_json_peek(j);

    if (c == '}') {
        j->p++;
        return KVR_DECLINED;
    }

    if (!*first) {

        if (c != ',') {
            return c < 0 ? c : KVR_ERROR;
        }

        j->p++;
        c = kvr_json_peek(j);
    }

    *first = 0;

    if (c != '"') {
        return c < 0 ? c : KVR_ERROR;
    }

    /* nearly always the key lies in the window and has no escapes */

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

    /* the window may move: save the key first */

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

    c = kvr_json_peek(j);

    if (c == ']') {
        j->p++;
        return KVR_DECLINED;
    }

    if (!*first) {

        if (c != ',') {
            return c < 0 ? c : KVR_ERROR;
        }

        j->p++;
        c = kvr_json_peek(j);

        if (c == ']') {
            return KVR_ERROR;
        }
    }

    *first = 0;

    return c < 0 ? c : KVR_OK;
}


int
kvr_json_string(kvr_json_t *j, uint8_t *dst, size_t size, size_t *len)
{
    int             c;
    size_t          i, n, bytes;
    uint8_t         buf[8];
    const uint8_t  *p;

    *len = 0;

    c = kvr_json_peek(j);

    if (c != '"') {
        return c < 0 ? c : KVR_ERROR;
    }

    j->p++;

    /* nearly always it lies in the window and has no escapes */

    p = kvr_scan_text(j->p, j->e);

    if (kvr_likely(p < j->e && *p == '"')) {
        *len = (size_t) (p - j->p);
        memcpy(dst, j->p, kvr_min(*len, size));
        j->p = p + 1;
        return KVR_OK;
    }

    for (bytes = 1; /* void */ ; bytes++) {

        if (bytes % 64 == 0 && kvr_json_spend(j, 8) != KVR_OK) {
            return KVR_JSON_COSTLY;
        }

        c = kvr_json_byte(j);

        if (c < 0) {
            return c;
        }

        if (c == '"') {
            return KVR_OK;
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

            if (*len < size) {
                dst[*len] = buf[i];
            }

            (*len)++;
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

                if (kvr_likely(v < INT64_MAX / 10)) {
                    v = v * 10 + d;

                } else {
                    v = v <= (INT64_MAX - d) / 10 ? v * 10 + d : INT64_MAX;
                }
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

    /* 1e3 is rare enough in counts to be left unread */

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


/* the end of a number or literal that lies in the window with what ends it */
static const uint8_t *
kvr_json_scalar(const uint8_t *p, const uint8_t *e)
{
    if (e - p < 6 && (p == e || *p > '9')) {
        return NULL;
    }

    switch (*p) {
    case 't':
    case 'n':
        p = memcmp(p, *p == 't' ? "true" : "null", 4) ? NULL : p + 4;
        break;
    case 'f':
        p = memcmp(p, "false", 5) ? NULL : p + 5;
        break;
    default:
        if (*p != '-' && (*p < '0' || *p > '9')) {
            return NULL;
        }

        while (p < e
               && ((*p >= '0' && *p <= '9') || *p == '.' || *p == '-'
                   || *p == '+' || *p == 'e' || *p == 'E'))
        {
            p++;
        }
    }

    return (p && p < e
            && (*p == ',' || *p == '}' || *p == ']' || *p <= ' ')) ? p : NULL;
}


int
kvr_json_skip_scalar(kvr_json_t *j)
{
    int             c, number;
    size_t          n;
    uint8_t         word[6];
    const uint8_t  *p;

    p = kvr_json_scalar(j->p, j->e);

    if (kvr_likely(p != NULL)) {
        n = (size_t) (p - j->p);

        if (kvr_unlikely(n >= 64)
            && kvr_json_spend(j, (int) (n / 4)) != KVR_OK)
        {
            return KVR_JSON_COSTLY;
        }

        j->p = p;

        return KVR_OK;
    }

    n = 0;
    number = 1;

    for ( ;; ) {

        if (j->p == j->e && kvr_json_refill(j) != KVR_OK) {
            return KVR_AGAIN;
        }

        c = *j->p;

        if (c == ',' || c == '}' || c == ']' || c <= ' ') {
            break;
        }

        if (n % 64 == 63 && kvr_json_spend(j, 16) != KVR_OK) {
            return KVR_JSON_COSTLY;
        }

        if (n < sizeof(word)) {
            word[n] = (uint8_t) c;
        }

        if ((c < '0' || c > '9')
            && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E')
        {
            number = 0;
        }

        n++;
        j->p++;
    }

    if (n == 0) {
        return KVR_ERROR;
    }

    if (number && (word[0] == '-' || (word[0] >= '0' && word[0] <= '9'))) {
        return KVR_OK;
    }

    if ((n == 4 && (memcmp(word, "true", 4) == 0
                    || memcmp(word, "null", 4) == 0))
        || (n == 5 && memcmp(word, "false", 5) == 0))
    {
        return KVR_OK;
    }

    return KVR_ERROR;
}


int
kvr_json_escape(kvr_json_t *j, uint8_t *dst, size_t *len, int canonical)
{
    int       c, rc;
    unsigned  u, low;
    uint64_t  offset;

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


/* a string before a colon is a key */
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

        rc = kvr_json_name(j, name, &len);

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

        if (c == ':') {
            j->p++;
            return KVR_OK;
        }
    }
}


/* reads a string, of which only the beginning is kept if it is too long */
static int
kvr_json_name(kvr_json_t *j, uint8_t *name, size_t *len)
{
    int      c;
    size_t   n;
    uint8_t  character[8];

    *len = 0;
    name[0] = '\0';
    j->p++;

    for ( ;; ) {
        c = kvr_json_byte(j);

        if (c < 0 || c == '"') {
            return c < 0 ? c : KVR_OK;
        }

        n = 1;
        character[0] = (uint8_t) c;

        if (c == '\\') {
            n = 0;
            c = kvr_json_escape(j, character, &n, 0);

            if (c != KVR_OK) {
                return c;
            }
        }

        if (*len + n > KVR_JSON_NAME_LEN) {
            *len = KVR_JSON_NAME_LEN;
            return j->ops->skip_string(j);
        }

        memcpy(name + *len, character, n);
        *len += n;
    }
}
