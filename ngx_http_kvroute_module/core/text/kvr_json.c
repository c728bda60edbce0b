
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_json.h"
#include "core/text/kvr_json_scan.h"
#include "core/text/kvr_text.h"


static int kvr_json_go(kvr_json_t *j, uint64_t offset);
static const uint8_t *kvr_json_scalar(const uint8_t *p, const uint8_t *e);


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
