
/*
 * Copyright (C) kvroute contributors
 */


#include "core/response/kvr_reply.h"


static void kvr_reply_begin(kvr_reply_t *r, kvr_response_part_e part);
static void kvr_reply_text(kvr_reply_t *r, const uint8_t *p, size_t len);
static size_t kvr_reply_plain(const uint8_t *p, size_t len);
static size_t kvr_reply_escape(kvr_reply_t *r, const uint8_t *p, size_t len);
static void kvr_reply_decode(kvr_reply_t *r, size_t len);
static void kvr_reply_input(kvr_reply_t *r, const uint8_t *p, size_t len);
static void kvr_reply_byte(kvr_reply_t *r, uint8_t c);
static void kvr_reply_put(kvr_reply_t *r, const uint8_t *p, size_t len);


int
kvr_reply_init(kvr_reply_t *r, const kvr_prompt_t *pr, const uint8_t *secret,
    unsigned unit, unsigned parts)
{
    memset(r, 0, offsetof(kvr_reply_t, value));

    if (pr->shape != KVR_PROMPT_CHAT || !pr->tailed) {
        r->bad = 1;
        return KVR_DECLINED;
    }

    r->h = pr->last;
    r->blocks = pr->blocks;
    r->start = pr->blocks;
    r->unit = unit;
    r->first = kvr_chain_entries(pr->blocks / unit);
    r->parts = parts;
    r->secret = secret;
    r->digest = kvr_text_ops()->digest;

    kvr_reply_put(r, pr->tail, pr->tail_len);

    return KVR_OK;
}


void
kvr_reply_part(void *data, kvr_response_part_e part, const uint8_t *p,
    size_t len)
{
    kvr_reply_t *r = data;

    if (r->bad) {
        return;
    }

    if (part == KVR_RESPONSE_REASONING && len == 0) {
        return;
    }

    if (part == KVR_RESPONSE_REASONING || part == KVR_RESPONSE_OTHER) {
        r->bad = 1;
        return;
    }

    if (p == NULL) {

        /* a string that ends in half an escape is none */

        r->bad |= (r->escape_len && r->escape_len != 6);

        if (r->escape_len == 6) {
            kvr_reply_decode(r, 6);
        }

        r->open = 0;

        /* "content":"" says nothing, the name of a call is complete */

        if (part == KVR_RESPONSE_CALL) {
            r->called = 1;
            r->argued = 0;
        }

        return;
    }

    if (!r->open || r->part != part) {
        kvr_reply_begin(r, part);
    }

    kvr_reply_text(r, p, len);
}


/* a run of pieces of a string begins: what separates it from those before */
static void
kvr_reply_begin(kvr_reply_t *r, kvr_response_part_e part)
{
    unsigned  again;

    static const uint8_t  head[] = kvr_canon_head("assistant");

    again = (r->begun && r->part == part);

    if (!r->begun) {
        r->begun = 1;
        kvr_reply_put(r, head, sizeof(head) - 1);

    } else if (r->parts && !again
               && (part == KVR_RESPONSE_CALL || part == KVR_RESPONSE_CONTENT))
    {
        kvr_reply_byte(r, KVR_CANON_PART);

    } else if (r->parts && part == KVR_RESPONSE_CALL) {
        kvr_reply_byte(r, KVR_CANON_PART);

    } else if (!r->parts && part == KVR_RESPONSE_CONTENT && r->called) {

        /* text after a call will stand before it */

        r->bad = 1;
    }

    r->open = 1;
    r->part = (uint8_t) part;

    if (part == KVR_RESPONSE_CALL) {
        kvr_reply_byte(r, KVR_CANON_CALL);
        r->called = 0;
        r->argued = 0;

    } else if (part != KVR_RESPONSE_CONTENT && !r->argued) {
        kvr_reply_byte(r, KVR_CANON_ARGUMENTS);
        r->argued = 1;
        r->quoted = 0;
        r->slash = 0;
    }
}


/* text in the spelling of JSON: only some escapes are written anew */
static void
kvr_reply_text(kvr_reply_t *r, const uint8_t *p, size_t len)
{
    size_t          n;
    const uint8_t  *q;

    while (len && !r->bad) {

        if (r->escape_len) {
            n = kvr_reply_escape(r, p, len);

        } else {

            if (r->part == KVR_RESPONSE_INPUT) {
                q = memchr(p, '\\', len);
                n = q ? (size_t) (q - p) : len;
                kvr_reply_input(r, p, n);

            } else {
                n = kvr_reply_plain(p, len);
                kvr_reply_put(r, p, n);
            }

            if (n < len) {
                r->escape[0] = '\\';
                r->escape_len = 1;
                n++;
            }
        }

        p += n;
        len -= n;
    }
}


/* bytes up to an escape that does not stay as it is, or that is cut */
static size_t
kvr_reply_plain(const uint8_t *p, size_t len)
{
    const uint8_t  *q, *end;

    end = p + len;

    for (q = p; (q = memchr(q, '\\', (size_t) (end - q))) != NULL; q += 2) {

        if (end - q < 2 || q[1] == '\0' || strchr("\"\\bfnrt", q[1]) == NULL) {
            return (size_t) (q - p);
        }
    }

    return len;
}


/* takes a byte of an escape, or none if it was over; returns how many */
static size_t
kvr_reply_escape(kvr_reply_t *r, const uint8_t *p, size_t len)
{
    uint8_t  c;

    (void) len;

    c = *p;

    /* the first half of a pair waits for the second */

    if (r->escape_len == 6 && c != '\\') {
        kvr_reply_decode(r, 6);
        return 0;
    }

    r->escape[r->escape_len++] = c;

    if (r->escape_len == 8 && c != 'u') {
        kvr_reply_decode(r, 6);
        r->escape[0] = '\\';
        r->escape[1] = c;
        r->escape_len = 2;
    }

    switch (r->escape_len) {

    case 2:
        if (c != 'u') {
            kvr_reply_decode(r, 2);
        }

        break;

    case 6:
        if ((r->escape[2] != 'd' && r->escape[2] != 'D')
            || (r->escape[3] != '8' && r->escape[3] != '9'
                && r->escape[3] != 'a' && r->escape[3] != 'A'
                && r->escape[3] != 'b' && r->escape[3] != 'B'))
        {
            kvr_reply_decode(r, 6);
        }

        break;

    case 12:
        kvr_reply_decode(r, 12);
        break;
    }

    return 1;
}


static void
kvr_reply_decode(kvr_reply_t *r, size_t len)
{
    int              rc;
    size_t           n;
    uint8_t          dst[16], src[12];
    kvr_json_t       j;
    kvr_json_text_t  text;

    /* whether the first half of a pair stands alone is seen by what follows */

    memcpy(src, r->escape + 1, len - 1);
    src[len - 1] = '"';

    text.data = src;
    text.len = len;
    r->escape_len = 0;

    kvr_json_init(&j, kvr_text_ops(), kvr_json_fetch_text, &text);

    do {
        n = 0;
        rc = kvr_json_escape(&j, dst, &n, r->part != KVR_RESPONSE_INPUT);

        if (rc != KVR_OK) {
            r->bad = 1;
            return;
        }

        if (r->part == KVR_RESPONSE_INPUT) {
            kvr_reply_input(r, dst, n);

        } else {
            kvr_reply_put(r, dst, n);
        }

        /* two that were no pair */

    } while (j.p < j.e && *j.p == '\\' && j.p++);
}


/* JSON, of which insignificant white space is left out */
static void
kvr_reply_input(kvr_reply_t *r, const uint8_t *p, size_t len)
{
    for ( /* void */ ; len; len--, p++) {

        if (r->quoted) {

            if (r->slash) {
                r->slash = 0;

            } else if (*p == '\\') {
                r->slash = 1;

            } else if (*p == '"') {
                r->quoted = 0;
            }

        } else if (*p == '"') {
            r->quoted = 1;

        } else if (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n') {
            continue;
        }

        kvr_reply_byte(r, *p);
    }
}


static void
kvr_reply_byte(kvr_reply_t *r, uint8_t c)
{
    kvr_reply_put(r, &c, 1);
}


static void
kvr_reply_put(kvr_reply_t *r, const uint8_t *p, size_t len)
{
    size_t  n;

    while (len) {
        n = kvr_min(len, (size_t) (KVR_BLOCK - r->fill));

        memcpy(r->stage + r->fill, p, n);

        r->fill = (uint16_t) (r->fill + n);
        p += n;
        len -= n;

        if (r->fill < KVR_BLOCK) {
            return;
        }

        r->fill = 0;
        r->h = kvr_mix(r->h, r->digest(r->secret, r->stage, KVR_BLOCK));
        r->blocks++;

        if (r->n < KVR_REPLY_VALUES
            && r->blocks == (uint64_t) kvr_chain_depth(r->first + r->n)
                            * r->unit)
        {
            r->value[r->n++] = r->h;
        }
    }
}
