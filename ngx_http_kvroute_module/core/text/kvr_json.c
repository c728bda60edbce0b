
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_json.h"
#include "core/text/kvr_json_scan.h"
#include "core/text/kvr_text.h"


static int kvr_json_go(kvr_json_t *j, uint64_t offset);
static const uint8_t *kvr_json_valid_name(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_json_valid_scalar(const uint8_t *p,
    const uint8_t *e);
static const uint8_t *kvr_json_valid_number(const uint8_t *p,
    const uint8_t *e);
static const uint8_t *kvr_json_valid_digits(const uint8_t *p,
    const uint8_t *e);
static const uint8_t *kvr_json_valid_text(const uint8_t *p, const uint8_t *e);
static const uint8_t *kvr_json_valid_escape(const uint8_t *p,
    const uint8_t *e);
static const uint8_t *kvr_json_valid_utf8(const uint8_t *p, const uint8_t *e);


void
kvr_json_init(kvr_json_t *j, const kvr_text_ops_t *ops, kvr_json_fetch_pt fetch,
    void *data)
{
    j->p = NULL;
    j->e = NULL;
    j->start = NULL;
    j->base = 0;
    j->ops = ops;
    j->fetch = fetch;
    j->data = data;
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

        j->p = kvr_scan_space(j->p, j->e);

        if (j->p < j->e) {
            return *j->p ? *j->p : KVR_ERROR;
        }

        if (kvr_json_refill(j) != KVR_OK) {
            return KVR_AGAIN;
        }
    }
}


/* kvr_json_valid_...() return what is behind a thing, or NULL: it is not there */
int
kvr_json_valid(const uint8_t *p, size_t n)
{
    uint64_t        objects;
    uint32_t        depth;
    const uint8_t  *e;

    e = p + n;
    objects = 0;
    depth = 0;

    for ( ;; ) {

        /* before a value */

        p = kvr_scan_space(p, e);

        if (p == e) {
            return 0;
        }

        if (*p == '{' || *p == '[') {

            if (depth == KVR_JSON_LEVELS) {
                return 0;
            }

            objects = objects << 1 | (*p == '{');
            depth++;

            p = kvr_scan_space(p + 1, e);

            if (p == e) {
                return 0;
            }

            if (*p != (objects & 1 ? '}' : ']')) {

                if (objects & 1) {
                    p = kvr_json_valid_name(p, e);
                }

                if (p == NULL) {
                    return 0;
                }

                continue;
            }

        } else {
            p = kvr_json_valid_scalar(p, e);

            if (p == NULL) {
                return 0;
            }
        }

        /* behind a value, or before the end of what is empty */

        for ( ;; ) {
            p = kvr_scan_space(p, e);

            if (depth == 0 || p == e) {
                return depth == 0 && p == e;
            }

            if (*p == ',') {
                p = objects & 1 ? kvr_json_valid_name(p + 1, e) : p + 1;

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
kvr_json_valid_name(const uint8_t *p, const uint8_t *e)
{
    p = kvr_json_valid_text(kvr_scan_space(p, e), e);

    if (p == NULL) {
        return NULL;
    }

    p = kvr_scan_space(p, e);

    return p < e && *p == ':' ? p + 1 : NULL;
}


static const uint8_t *
kvr_json_valid_scalar(const uint8_t *p, const uint8_t *e)
{
    size_t    n;
    unsigned  i;

    static const char *const  literal[] = { "true", "false", "null" };

    if (*p == '"') {
        return kvr_json_valid_text(p, e);
    }

    for (i = 0; i < kvr_nelts(literal); i++) {
        n = strlen(literal[i]);

        if ((size_t) (e - p) >= n && memcmp(p, literal[i], n) == 0) {
            return p + n;
        }
    }

    return kvr_json_valid_number(p, e);
}


static const uint8_t *
kvr_json_valid_number(const uint8_t *p, const uint8_t *e)
{
    if (*p == '-') {
        p++;
    }

    p = p < e && *p == '0' ? p + 1 : kvr_json_valid_digits(p, e);

    if (p && p < e && *p == '.') {
        p = kvr_json_valid_digits(p + 1, e);
    }

    if (p && p < e && (*p | 0x20) == 'e') {
        p++;

        if (p < e && (*p == '+' || *p == '-')) {
            p++;
        }

        p = kvr_json_valid_digits(p, e);
    }

    return p;
}


/* one or more */
static const uint8_t *
kvr_json_valid_digits(const uint8_t *p, const uint8_t *e)
{
    const uint8_t  *start;

    for (start = p; p < e && *p >= '0' && *p <= '9'; p++) { /* void */ }

    return p > start ? p : NULL;
}


static const uint8_t *
kvr_json_valid_text(const uint8_t *p, const uint8_t *e)
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
            p = kvr_json_valid_escape(p + 1, e);

        } else {
            p = *p < 0x80 ? p + 1 : kvr_json_valid_utf8(p, e);
        }
    }

    return NULL;
}


/* behind the backslash */
static const uint8_t *
kvr_json_valid_escape(const uint8_t *p, const uint8_t *e)
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
kvr_json_valid_utf8(const uint8_t *p, const uint8_t *e)
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
