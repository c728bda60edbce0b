
/*
 * Copyright (C) kvroute contributors
 */


#include "core/response/kvr_reply.h"


static void kvr_reply_begin(kvr_reply_t *r, kvr_response_part_e part);
static void kvr_reply_text(kvr_reply_t *r, const uint8_t *p, size_t len);
static size_t kvr_reply_plain(const uint8_t *p, size_t len);
static void kvr_reply_escape(kvr_reply_t *r, uint8_t c, int last);
static void kvr_reply_input(kvr_reply_t *r, const uint8_t *p, size_t len);
static void kvr_reply_byte(kvr_reply_t *r, uint8_t c);
static void kvr_reply_put(kvr_reply_t *r, const uint8_t *p, size_t len);


int
kvr_reply_init(kvr_reply_t *r, const kvr_prompt_t *pr, const uint8_t *secret,
    unsigned parts)
{
    memset(r, 0, offsetof(kvr_reply_t, value));

    if (pr->shape != KVR_PROMPT_CHAT || !pr->tailed) {
        r->bad = 1;
        return KVR_DECLINED;
    }

    r->h = pr->last;
    r->blocks = pr->blocks;
    r->start = pr->blocks;
    r->first = kvr_chain_entries(pr->blocks);
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

        if (r->escape_len) {
            kvr_reply_escape(r, '"', 1);
            r->bad |= (r->escape_len != 0);
        }

        r->open = 0;

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


/* Begins a run of pieces: puts what separates it from the previous run. */
static void
kvr_reply_begin(kvr_reply_t *r, kvr_response_part_e part)
{
    unsigned  again;

    static const uint8_t  head[] = kvr_canon_head("assistant");

    again = (r->begun && r->part == part);

    if (!r->begun) {
        r->begun = 1;
        kvr_reply_put(r, head, sizeof(head) - 1);

    } else if (r->parts
               && (part == KVR_RESPONSE_CALL
                   || (part == KVR_RESPONSE_CONTENT && !again)))
    {
        kvr_reply_byte(r, KVR_CANON_PART);

    } else if (!r->parts && part == KVR_RESPONSE_CONTENT && r->called) {

        /* the next request will have this text before the call */

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


/* Puts text of a JSON string and rewrites some of its escapes. */
static void
kvr_reply_text(kvr_reply_t *r, const uint8_t *p, size_t len)
{
    size_t          n;
    const uint8_t  *q;

    while (len && !r->bad) {

        if (r->escape_len) {
            kvr_reply_escape(r, *p, 0);
            n = 1;

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


/* Returns the length up to an escape that is rewritten or incomplete. */
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


/*
 * Takes the next byte of an escape and puts the escape if it is complete.  The
 * first half of a surrogate pair waits for the second, up to the end of the
 * string: then last is set and c is the quote.
 */
static void
kvr_reply_escape(kvr_reply_t *r, uint8_t c, int last)
{
    int              rc;
    size_t           n, left;
    uint8_t          dst[8], rest[12];
    kvr_json_t       j;
    kvr_json_text_t  text;

    r->escape[r->escape_len++] = c;

    if (r->escape[1] == 'u' && r->escape_len < 6) {
        return;
    }

    text.data = r->escape + 1;
    text.len = r->escape_len - 1U;
    n = 0;

    kvr_json_init(&j, kvr_text_ops(), kvr_json_fetch_text, &text);

    rc = kvr_json_escape(&j, dst, &n, r->part != KVR_RESPONSE_INPUT);

    if (rc == KVR_AGAIN) {
        return;
    }

    if (rc != KVR_OK) {
        r->bad = 1;
        return;
    }

    r->escape_len = 0;

    if (r->part == KVR_RESPONSE_INPUT) {
        kvr_reply_input(r, dst, n);

    } else {
        kvr_reply_put(r, dst, n);
    }

    /* bytes after a first half without a second */

    left = text.len - (size_t) kvr_json_offset(&j);
    memcpy(rest, text.data + kvr_json_offset(&j), left);

    if (!last) {
        kvr_reply_text(r, rest, left);
    }
}


/* Puts JSON without white space outside strings. */
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
            && r->blocks == kvr_chain_depth(r->first + r->n))
        {
            r->value[r->n++] = r->h;
        }
    }
}
