
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_json.h"
#include "core/text/kvr_json_scan.h"
#include "core/text/kvr_text.h"


static int kvr_json_go(kvr_json_t *j, uint64_t offset);
static int kvr_json_byte(kvr_json_t *j);
static int kvr_json_hex4(kvr_json_t *j, unsigned *value);
static size_t kvr_json_utf8(uint8_t *dst, unsigned c);


void
kvr_json_init(kvr_json_t *j, kvr_json_fetch_pt fetch, void *data)
{
    j->p = NULL;
    j->e = NULL;
    j->start = NULL;
    j->base = 0;
    j->fetch = fetch;
    j->data = data;
    j->ops = kvr_text_ops();
    j->steps = KVR_JSON_STEPS;
    j->left = KVR_JSON_STEPS;
    j->most = 0;
    j->back = 0;
    j->key = NULL;
    j->key_len = 0;
}


const uint8_t *
kvr_json_fetch_text(void *data, uint64_t offset, size_t *len)
{
    kvr_json_text_t  *text = data;

    if (offset >= text->len) {
        *len = 0;
        return NULL;
    }

    *len = text->len - offset;

    return text->data + offset;
}


int
kvr_json_refill(kvr_json_t *j)
{
    return kvr_json_go(j, kvr_json_offset(j));
}


int
kvr_json_seek(kvr_json_t *j, uint64_t offset)
{
    uint64_t  now;

    now = kvr_json_offset(j);

    if (offset < now) {
        j->most = kvr_max(j->most, now);
        j->back += now - offset;

        if (j->back > KVR_JSON_BACK + KVR_JSON_AGAIN * j->most
            || kvr_json_spend(j, 1) != KVR_OK)
        {
            return KVR_JSON_COSTLY;
        }
    }

    return kvr_json_go(j, offset);
}


int
kvr_json_cut(kvr_json_t *j, uint64_t offset)
{
    int  rc;

    rc = kvr_json_go(j, offset);

    if (rc == KVR_OK) {
        rc = j->ops->skip_rest(j);
    }

    /* for what follows; nobody cuts twice */

    j->left = kvr_max(j->left, KVR_JSON_STEPS / 16);
    j->back -= kvr_min(j->back, KVR_JSON_BACK / 4);

    return rc;
}


static int
kvr_json_go(kvr_json_t *j, uint64_t offset)
{
    size_t          len;
    const uint8_t  *p;

    if (offset >= j->base && offset - j->base < (uint64_t) (j->e - j->start)) {
        j->p = j->start + (offset - j->base);
        return KVR_OK;
    }

    len = 0;
    p = j->fetch(j->data, offset, &len);

    if (p == NULL || len == 0) {

        /* the last window is not ours any more */

        j->p = j->e;
        j->start = j->e;
        j->base = offset;

        return KVR_AGAIN;
    }

    j->start = p;
    j->p = p;
    j->e = p + len;
    j->base = offset;

    return KVR_OK;
}


/* more steps, for the bytes that were read meanwhile */
int
kvr_json_grant(kvr_json_t *j)
{
    uint64_t  steps;

    steps = KVR_JSON_STEPS
            + kvr_max(j->most, kvr_json_offset(j)) / KVR_JSON_STEP;

    j->left += (int64_t) (steps - j->steps);
    j->steps = steps;

    return j->left >= 0 ? KVR_OK : KVR_JSON_COSTLY;
}


/* consumes one byte */
static int
kvr_json_byte(kvr_json_t *j)
{
    if (j->p == j->e && kvr_json_refill(j) != KVR_OK) {
        return KVR_AGAIN;
    }

    return *j->p++;
}


int
kvr_json_peek_far(kvr_json_t *j)
{
    for ( ;; ) {

        while (j->p < j->e) {

            if (kvr_likely(*j->p > ' ')) {
                return *j->p;
            }

            switch (*j->p) {

            case ' ':
            case '\t':
            case '\n':
            case '\r':
                j->p++;
                break;

            default:
                return *j->p ? *j->p : KVR_ERROR;
            }
        }

        if (kvr_json_refill(j) != KVR_OK) {
            return KVR_AGAIN;
        }
    }
}


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
