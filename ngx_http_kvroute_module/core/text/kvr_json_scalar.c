
/*
 * Copyright (C) kvroute contributors
 */


/* Values that are no strings, and such as nobody asks for. */


#include "core/text/kvr_json.h"
#include "core/text/kvr_text.h"


static const uint8_t *kvr_json_scalar(const uint8_t *p, const uint8_t *e);


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
kvr_json_boolean(kvr_json_t *j, unsigned *value)
{
    int  c, rc;

    c = kvr_json_peek(j);
    rc = kvr_json_skip(j);

    if (rc != KVR_OK) {
        return rc;
    }

    if (c != 't' && c != 'f') {
        return KVR_DECLINED;
    }

    *value = (c == 't');

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
