
/*
 * Copyright (C) kvroute contributors
 */


#include "core/response/kvr_response_json.h"


typedef enum {
    KVR_RESPONSE_LINE = 0,       /* at the start of a line */
    KVR_RESPONSE_NAME,           /* of a field */
    KVR_RESPONSE_SPACE,          /* after its colon */
    KVR_RESPONSE_EVENT,          /* the value of an event field */
    KVR_RESPONSE_DATA,
    KVR_RESPONSE_SKIP,           /* to the end of the line */
    KVR_RESPONSE_JSON,           /* the body of a plain response */
    KVR_RESPONSE_DONE
} kvr_response_state_e;


static const uint8_t *kvr_response_line(kvr_response_t *u, const uint8_t *data,
    const uint8_t *end, kvr_response_sink_t *sink);
static int kvr_response_matters(const uint8_t *data, size_t len);
static int kvr_response_suspect(const uint8_t *data, size_t len);
static const uint8_t *kvr_response_skip(const uint8_t *p, const uint8_t *end);
static int kvr_response_repeats(kvr_response_t *u, const uint8_t *data,
    size_t len, kvr_response_sink_t *sink);
static void kvr_response_remember(kvr_response_t *u, const uint8_t *data,
    size_t len, kvr_response_sink_t *sink);
static uint64_t kvr_response_around(const uint8_t *a, size_t alen,
    const uint8_t *b, size_t blen);
static uint64_t kvr_response_sum(uint64_t h, const uint8_t *p, size_t len);
static void kvr_response_name(kvr_response_t *u);
static void kvr_response_line_start(kvr_response_t *u);
static void kvr_response_line_end(kvr_response_t *u);
static void kvr_response_event_end(kvr_response_t *u);
static void kvr_response_data(kvr_response_t *u, const uint8_t *data,
    size_t len, kvr_response_sink_t *sink);


void
kvr_response_init(kvr_response_t *u, kvr_response_mode_e mode, unsigned stream)
{
    memset(u, 0, offsetof(kvr_response_t, word));

    u->mode = (uint8_t) mode;
    u->stream = stream;
    u->state = stream ? KVR_RESPONSE_LINE : KVR_RESPONSE_JSON;
    u->left = stream ? UINT64_MAX : KVR_RESPONSE_MAX;

    kvr_push_init(&u->json, mode);
}


int
kvr_response_read(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_part_pt part, void *ctx)
{
    uint8_t              c;
    const uint8_t       *end, *p;
    kvr_response_sink_t  sink;

    sink.u = u;
    sink.part = part;
    sink.ctx = ctx;
    sink.from = NULL;
    sink.to = NULL;
    sink.texts = 0;
    sink.other = 0;

    end = data + len;

    if (u->state == KVR_RESPONSE_JSON) {

        while (!u->first && data < end) {
            u->first = (*data > ' ');
            data += !u->first;
        }

        if (u->mode == KVR_RESPONSE_FIRST) {
            return !u->first;
        }

        len = (size_t) (end - data);

        if (len > u->left
            || kvr_response_feed(u, data, len, &sink) != KVR_AGAIN)
        {
            u->state = KVR_RESPONSE_DONE;
            return 0;
        }

        u->left -= len;
        return 1;
    }

    while (data < end) {

        switch (u->state) {

        case KVR_RESPONSE_LINE:

            if (u->mode == KVR_RESPONSE_FIRST && u->first) {
                u->state = KVR_RESPONSE_DONE;
                return 0;
            }

            /* most lines are data and arrive in one piece */

            p = kvr_response_line(u, data, end, &sink);

            if (p) {
                data = p;
                break;
            }

            u->word_len = 0;
            u->state = KVR_RESPONSE_NAME;

            /* fall through */

        case KVR_RESPONSE_NAME:

            c = *data++;

            if (c == '\n') {

                if (u->word_len == 0
                    || (u->word_len == 1 && u->word[0] == '\r'))
                {
                    kvr_response_event_end(u);
                }

                u->state = KVR_RESPONSE_LINE;

            } else if (c == ':') {
                kvr_response_name(u);

            } else {
                kvr_response_word(u, &c, 1);
            }

            break;

        case KVR_RESPONSE_SPACE:

            data += (*data == ' ');
            u->state = KVR_RESPONSE_EVENT;
            break;

        default:

            p = memchr(data, '\n', (size_t) (end - data));
            len = (size_t) ((p ? p : end) - data);

            if (u->state == KVR_RESPONSE_DATA) {
                kvr_response_data(u, data, len, &sink);

            } else if (u->state == KVR_RESPONSE_EVENT) {
                kvr_response_word(u, data, len);

            } else if (u->state == KVR_RESPONSE_DONE) {
                return 0;
            }

            if (p == NULL) {
                return 1;
            }

            kvr_response_line_end(u);
            data += len + 1;
            break;
        }
    }

    if (u->mode == KVR_RESPONSE_FIRST && u->first) {
        u->state = KVR_RESPONSE_DONE;
    }

    return u->state != KVR_RESPONSE_DONE;
}


/*
 * Reads a complete line that is empty or has data.  Returns the byte after it;
 * NULL: the line is incomplete, or another one.
 */
static const uint8_t *
kvr_response_line(kvr_response_t *u, const uint8_t *data, const uint8_t *end,
    kvr_response_sink_t *sink)
{
    size_t          len;
    const uint8_t  *p, *value;

    p = memchr(data, '\n', (size_t) (end - data));

    if (p == NULL) {
        return NULL;
    }

    len = (size_t) (p - data);

    if (len == 0 || (len == 1 && data[0] == '\r')) {
        kvr_response_event_end(u);
        return p + 1;
    }

    if (len < 5 || memcmp(data, "data:", 5) != 0) {
        return NULL;
    }

    value = data + 5;
    len -= 5;

    if (u->first && u->mode != KVR_RESPONSE_REPLY
        && !kvr_response_suspect(value, len)
        && !kvr_response_matters(value, len))
    {
        return p + 1;
    }

    if (kvr_response_repeats(u, value, len, sink)) {
        return p + 1;
    }

    sink->from = NULL;
    sink->texts = 0;
    sink->other = 0;

    kvr_response_line_start(u);
    kvr_response_data(u, value, len, sink);

    if (u->mode == KVR_RESPONSE_REPLY) {
        kvr_response_remember(u, value, len, sink);
    }

    kvr_response_line_end(u);

    return p + 1;
}


/*
 * Returns whether a line after the first event can have numbers of tokens.
 * Their names contain "tokens" before or after a "_", except those of
 * llama.cpp's timings, which end in "_n".
 */
static int
kvr_response_matters(const uint8_t *data, size_t len)
{
    const uint8_t  *p, *end;

    end = data + len;

    for (p = data; (p = memchr(p, '_', (size_t) (end - p))) != NULL; p++) {

        if ((end - p > 6 && memcmp(p + 1, "tokens", 6) == 0)
            || (p - data > 5 && memcmp(p - 6, "tokens", 6) == 0)
            || (end - p > 2 && p[1] == 'n' && p[2] == '"'))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * Returns whether a line can be an error.  Engines write the mark first:
 * "error", or a "type" of "error" or "response.failed".
 */
static int
kvr_response_suspect(const uint8_t *data, size_t len)
{
    const uint8_t  *p, *end;

    end = data + len;

    p = kvr_response_skip(data, end);

    if (end - p < 8 || memcmp(p, "\"type\"", 6) != 0) {
        return end - p >= 8 && memcmp(p, "\"error\"", 7) == 0;
    }

    p = kvr_response_skip(p + 6, end);

    return (end - p > 7 && memcmp(p, "\"error\"", 7) == 0)
           || (end - p > 17 && memcmp(p, "\"response.failed\"", 17) == 0);
}


/* Skips the bytes before the quote of a key or of its value. */
static const uint8_t *
kvr_response_skip(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (*p == ' ' || *p == '{' || *p == ':')) {
        p++;
    }

    return p;
}


/*
 * Takes a line without parsing it if it differs from the last one only in its
 * piece of text, as most lines of a reply do.  Returns 0 for any other line.
 */
static int
kvr_response_repeats(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_sink_t *sink)
{
    size_t          n;
    const uint8_t  *p;

    if (u->around == 0 || len < (size_t) u->before + u->after
        || !u->first || u->early)
    {
        return 0;
    }

    p = data + u->before;
    n = len - u->before - u->after;

    if (memchr(p, '"', n) || memchr(p, '\\', n)
        || kvr_response_around(data, u->before, p + n, u->after) != u->around)
    {
        return 0;
    }

    if (sink->part) {
        if (n) {
            sink->part(sink->ctx, KVR_RESPONSE_CONTENT, p, n);
        }

        sink->part(sink->ctx, KVR_RESPONSE_CONTENT, NULL, 0);
    }

    return 1;
}


/* Remembers the line around its text, if it has nothing but text. */
static void
kvr_response_remember(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_sink_t *sink)
{
    size_t  before, after;

    u->around = 0;

    if (sink->from == NULL || sink->texts != 1 || sink->other || u->early) {
        return;
    }

    before = (size_t) (sink->from - data);
    after = (size_t) (data + len - sink->to);

    if (before <= UINT16_MAX && after <= UINT16_MAX) {
        u->before = (uint16_t) before;
        u->after = (uint16_t) after;
        u->around = kvr_response_around(data, before, sink->to, after);
    }
}


static uint64_t
kvr_response_around(const uint8_t *a, size_t alen, const uint8_t *b,
    size_t blen)
{
    uint64_t  h;

    h = kvr_response_sum(alen, a, alen);
    h = kvr_response_sum(h, b, blen);

    return h ? h : 1;
}


/* no keyed hash is needed: a collision only hashes a reply wrongly */
static uint64_t
kvr_response_sum(uint64_t h, const uint8_t *p, size_t len)
{
    size_t    left;
    uint64_t  a, b;

    for (left = len; left > 16; left -= 16, p += 16) {
        memcpy(&a, p, 8);
        memcpy(&b, p + 8, 8);
        h = kvr_mix(h ^ a, b);
    }

    /* the rest, in two words that can overlap */

    a = 0;
    b = 0;

    if (left >= 8) {
        memcpy(&a, p, 8);
        memcpy(&b, p + left - 8, 8);

    } else if (left >= 4) {
        memcpy(&a, p, 4);
        memcpy(&b, p + left - 4, 4);

    } else {
        memcpy(&a, p, left);
    }

    return kvr_mix(h ^ a, b ^ len << 56);
}


/* Takes the field name of a line. */
static void
kvr_response_name(kvr_response_t *u)
{
    u->state = KVR_RESPONSE_SKIP;

    if (u->word_len == 4 && memcmp(u->word, "data", 4) == 0) {
        kvr_response_line_start(u);

    } else if (u->word_len == 5 && memcmp(u->word, "error", 5) == 0) {
        kvr_response_line_start(u);
        kvr_response_failed(u);

    } else if (u->word_len == 5 && memcmp(u->word, "event", 5) == 0
               && (!u->first || u->mode == KVR_RESPONSE_REPLY))
    {
        u->state = KVR_RESPONSE_SPACE;
    }

    u->word_len = 0;
}


/* Starts a line of data; an incomplete value does not continue in it. */
static void
kvr_response_line_start(kvr_response_t *u)
{
    kvr_push_init(&u->json, u->mode);

    u->state = KVR_RESPONSE_DATA;
    u->word_len = 0;
    u->counted = 0;

    if (!u->id_done) {
        u->id_len = 0;
    }
}


static void
kvr_response_line_end(kvr_response_t *u)
{
    if (u->state == KVR_RESPONSE_EVENT) {

        if (u->word_len && u->word_len <= KVR_RESPONSE_WORD_LEN
            && u->word[u->word_len - 1] == '\r')
        {
            u->word_len--;
        }

        kvr_response_kind(u);

    } else if (u->state == KVR_RESPONSE_DATA) {

        /* an event has one line of data and counts from its end */

        if (!u->early && !kvr_push_blank(&u->json)) {
            u->first = 1;
        }
    }

    u->state = KVR_RESPONSE_LINE;
}


static void
kvr_response_event_end(kvr_response_t *u)
{
    u->kind = 0;
    u->early = 0;
}


static void
kvr_response_data(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_sink_t *sink)
{
    size_t  n;

    /* "[DONE]" ends the stream */

    if (!u->early && kvr_push_blank(&u->json)) {

        for (n = 0; n < len && data[n] <= ' '; n++) { /* void */ }

        u->early = (n < len && data[n] == '[');
    }

    (void) kvr_response_feed(u, data, len, sink);
}


void
kvr_response_end(kvr_response_t *u, kvr_response_part_pt part, void *ctx)
{
    static const uint8_t  lf = '\n';

    if (u->stream && u->state != KVR_RESPONSE_DONE) {
        (void) kvr_response_read(u, &lf, 1, part, ctx);
    }

    u->state = KVR_RESPONSE_DONE;

    if (!u->id_done) {
        u->id_len = 0;
    }
}
