
/*
 * Copyright (C) kvroute contributors
 */


#include "core/continue/kvr_answer.h"


/* kinds of objects */
enum {
    KVR_IN_ROOT = 0,
    KVR_IN_CHOICE,
    KVR_IN_DELTA,
    KVR_IN_USAGE,
    KVR_IN_DETAILS,
    KVR_IN_ERROR
};


/* members that matter */
enum {
    KVR_OF_ID = 0,
    KVR_OF_CREATED,
    KVR_OF_MODEL,
    KVR_OF_CHOICES,
    KVR_OF_INDEX,
    KVR_OF_DELTA,
    KVR_OF_ROLE,
    KVR_OF_TEXT,
    KVR_OF_FINISH,
    KVR_OF_LOGPROBS,
    KVR_OF_CALL,
    KVR_OF_FUNCTION,
    KVR_OF_REASONING,
    KVR_OF_THINKING,
    KVR_OF_AUDIO,
    KVR_OF_IMAGES,
    KVR_OF_REFUSAL,
    KVR_OF_USAGE,
    KVR_OF_PROMPT,
    KVR_OF_COMPLETION,
    KVR_OF_DETAILS,
    KVR_OF_CACHED,
    KVR_OF_ERROR,
    KVR_OF_CODE,
    KVR_OF_STATUS,
    KVR_OF_FIELDS
};


static const kvr_splice_row_t  kvr_answer_rows[] = {
    { "id", KVR_IN_ROOT, 0, KVR_OF_ID },
    { "created", KVR_IN_ROOT, 0, KVR_OF_CREATED },
    { "model", KVR_IN_ROOT, 0, KVR_OF_MODEL },
    { "choices", KVR_IN_ROOT, KVR_IN_CHOICE, KVR_OF_CHOICES },
    { "usage", KVR_IN_ROOT, KVR_IN_USAGE, KVR_OF_USAGE },
    { "error", KVR_IN_ROOT, KVR_IN_ERROR, KVR_OF_ERROR },
    { "code", KVR_IN_ROOT, 0, KVR_OF_STATUS },

    { "index", KVR_IN_CHOICE, 0, KVR_OF_INDEX },
    { "delta", KVR_IN_CHOICE, KVR_IN_DELTA, KVR_OF_DELTA },
    { "text", KVR_IN_CHOICE, 0, KVR_OF_TEXT },
    { "finish_reason", KVR_IN_CHOICE, 0, KVR_OF_FINISH },
    { "logprobs", KVR_IN_CHOICE, 0, KVR_OF_LOGPROBS },

    { "content", KVR_IN_DELTA, 0, KVR_OF_TEXT },
    { "role", KVR_IN_DELTA, 0, KVR_OF_ROLE },
    { "tool_calls", KVR_IN_DELTA, 0, KVR_OF_CALL },
    { "function_call", KVR_IN_DELTA, 0, KVR_OF_FUNCTION },
    { "reasoning_content", KVR_IN_DELTA, 0, KVR_OF_REASONING },
    { "reasoning", KVR_IN_DELTA, 0, KVR_OF_THINKING },
    { "audio", KVR_IN_DELTA, 0, KVR_OF_AUDIO },
    { "images", KVR_IN_DELTA, 0, KVR_OF_IMAGES },
    { "refusal", KVR_IN_DELTA, 0, KVR_OF_REFUSAL },

    { "prompt_tokens", KVR_IN_USAGE, 0, KVR_OF_PROMPT },
    { "completion_tokens", KVR_IN_USAGE, 0, KVR_OF_COMPLETION },
    { "prompt_tokens_details", KVR_IN_USAGE, KVR_IN_DETAILS, KVR_OF_DETAILS },
    { "cached_tokens", KVR_IN_DETAILS, 0, KVR_OF_CACHED },

    { "code", KVR_IN_ERROR, 0, KVR_OF_CODE },
    { "http_status_code", KVR_IN_ERROR, 0, KVR_OF_CODE },

    { NULL, 0, 0, 0 }
};


/* an answer whose event has one of these cannot be continued */
static const struct {
    uint8_t  field;
    uint8_t  cut;
} kvr_answer_refused[] = {
    { KVR_OF_LOGPROBS, KVR_ANSWER_LOGPROBS },
    { KVR_OF_CALL, KVR_ANSWER_TOOLS },
    { KVR_OF_FUNCTION, KVR_ANSWER_TOOLS },
    { KVR_OF_REASONING, KVR_ANSWER_REASONING },
    { KVR_OF_THINKING, KVR_ANSWER_REASONING },
    { KVR_OF_AUDIO, KVR_ANSWER_MEDIA },
    { KVR_OF_IMAGES, KVR_ANSWER_MEDIA },
    { KVR_OF_REFUSAL, KVR_ANSWER_MEDIA }
};


static const char *const  kvr_answer_names[] = {
    "", "choices", "logprobs", "structured", "tools", "reasoning", "media",
    "request", "event", "engine", "max", "tries", "budget", "prefill", "failed",
    "api"
};

_Static_assert(kvr_nelts(kvr_answer_names) == KVR_ANSWER_CUTS, "names");


static int kvr_answer_same(kvr_answer_t *a, const uint8_t *p, size_t len);
static void kvr_answer_frame(kvr_answer_t *a, const kvr_splice_span_t *s,
    const uint8_t *p, size_t len, size_t json);
static const uint8_t *kvr_answer_data(const uint8_t *p, size_t *len,
    int *error);
static void kvr_answer_first(kvr_answer_t *a, const kvr_splice_span_t *s,
    const uint8_t *p);
static void kvr_answer_name(kvr_answer_name_t *name,
    const kvr_splice_span_t *s, const uint8_t *p);
static int kvr_answer_keep(kvr_answer_t *a, const kvr_splice_span_t *s,
    const uint8_t *p);
static void kvr_answer_edit(kvr_answer_t *a, kvr_splice_t *e,
    const kvr_splice_span_t *s, uint8_t digits[4][20]);
static void kvr_answer_rename(kvr_splice_t *e, const kvr_splice_span_t *s,
    const kvr_answer_name_t *name);
static void kvr_answer_number(kvr_splice_t *e, const kvr_splice_span_t *s,
    uint8_t *digits, uint64_t n);
static int kvr_answer_partial(const uint8_t *p, size_t len);
static void kvr_answer_put(void *data, const uint8_t *p, size_t len);


size_t
kvr_answer_scan(const uint8_t *p, size_t len, size_t *from)
{
    size_t          n;
    const uint8_t  *line, *lf;

    for (n = *from; n < len; n = (size_t) (lf - p) + 1) {
        line = p + n;
        lf = memchr(line, '\n', len - n);

        if (lf == NULL) {
            break;
        }

        if (lf == line || (lf == line + 1 && *line == '\r')) {
            *from = 0;
            return (size_t) (lf - p) + 1;
        }
    }

    *from = n;

    return 0;
}


void
kvr_answer_event(kvr_answer_t *a, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data)
{
    int                rc, error, partial;
    size_t             n, end, i;
    uint8_t            digits[4][20];
    kvr_splice_t       e;
    const uint8_t     *json;
    kvr_splice_span_t  s[KVR_OF_FIELDS];

    if (a->api >= KVR_ANSWER_MESSAGES) {
        kvr_answer_watch(a, p, len, put, data);
        return;
    }

    if (kvr_answer_same(a, p, len)) {
        put(data, p, len);
        return;
    }

    a->after = 0;

    n = len;
    json = kvr_answer_data(p, &n, &error);

    if (a->failed || (a->done && a->part)) {
        return;
    }

    /* a comment, or an event after the final one */

    if (a->done || (json == NULL && error == 0)) {
        put(data, p, len);
        return;
    }

    if (json && n == 6 && memcmp(json, "[DONE]", 6) == 0) {

        /* without a reason to stop it may be truncated, but it is ended */

        a->done = 1;

        put(data, a->hold, a->held);
        put(data, p, len);
        a->held = 0;

        return;
    }

    rc = json ? kvr_splice_find(kvr_answer_rows, json, n, s, KVR_OF_FIELDS,
                                &end)
         : KVR_ERROR;

    /* of a continuation, an event that cannot be read is not sent */

    if (rc != KVR_OK && (a->part || error > 0)) {
        a->failed = 1;
        a->held = 0;
        return;
    }

    if (rc != KVR_OK) {
        a->cut = KVR_ANSWER_EVENT;
        put(data, a->hold, a->held);
        put(data, p, len);
        a->held = 0;
        return;
    }

    if (error || s[KVR_OF_ERROR].set) {
        i = s[KVR_OF_CODE].set ? KVR_OF_CODE : KVR_OF_STATUS;

        if (!kvr_answer_rejects(s[i].number)) {
            a->failed = 1;
            a->held = len <= KVR_ANSWER_HELD ? len : 0;
            memcpy(a->hold, p, a->held);

            return;
        }

        a->done = 1;
        put(data, p, len);

        return;
    }

    kvr_answer_first(a, s, json);

    for (i = 0; i < kvr_nelts(kvr_answer_refused); i++) {
        if (s[kvr_answer_refused[i].field].set) {
            a->cut = kvr_answer_refused[i].cut;
        }
    }

    if (s[KVR_OF_INDEX].set && s[KVR_OF_INDEX].number) {
        a->cut = KVR_ANSWER_CHOICES;
    }

    partial = kvr_answer_keep(a, s, json);

    a->finished |= s[KVR_OF_FINISH].set;

    if (a->quiet && s[KVR_OF_USAGE].set && s[KVR_OF_CHOICES].c == '['
        && !s[KVR_OF_CHOICES].set)
    {
        return;
    }

    /* an event of a continuation that only repeats the role */

    if (a->part && a->role && s[KVR_OF_ROLE].set && !s[KVR_OF_TEXT].set
        && !s[KVR_OF_FINISH].set && !s[KVR_OF_CALL].set
        && !s[KVR_OF_REASONING].set && !s[KVR_OF_THINKING].set)
    {
        return;
    }

    e.n = 0;

    if (a->part) {
        kvr_answer_edit(a, &e, s, digits);

        for (i = 0; i < e.n; i++) {
            e.edit[i].at += (size_t) (json - p);
        }
    }

    a->begun = 1;
    a->role |= s[KVR_OF_ROLE].set;

    /* most bytes that the replaced names add */

    if (partial
        && a->held + len + 2 * KVR_ANSWER_NAME + sizeof(digits)
           <= KVR_ANSWER_HELD)
    {
        kvr_splice_put(&e, p, len, kvr_answer_put, a);
        return;
    }

    if (a->held) {
        put(data, a->hold, a->held);
        a->held = 0;
    }

    kvr_splice_put(&e, p, len, put, data);
    a->given = a->len;

    kvr_answer_frame(a, s, p, len, (size_t) (json - p));
}


/* Takes an event that differs from the last one only in a plain text. */
static int
kvr_answer_same(kvr_answer_t *a, const uint8_t *p, size_t len)
{
    size_t          n;
    const uint8_t  *text;

    if (a->after == 0 || len <= a->before + a->after) {
        return 0;
    }

    n = len - a->before - a->after;
    text = p + a->before;

    if (memcmp(p, a->frame, a->before) != 0
        || memcmp(text + n, a->frame + a->before, a->after) != 0
        || memchr(text, '"', n) || memchr(text, '\\', n)
        || text[n - 1] >= 0x80 || a->len + n > a->size)
    {
        return 0;
    }

    memcpy(a->text + a->len, text, n);

    a->len += n;
    a->given = a->len;
    a->tokens++;

    return 1;
}


/* Remembers the bytes around the text, if the event has nothing else. */
static void
kvr_answer_frame(kvr_answer_t *a, const kvr_splice_span_t *s, const uint8_t *p,
    size_t len, size_t json)
{
    size_t  from, to;

    from = json + s[KVR_OF_TEXT].at + 1;
    to = json + s[KVR_OF_TEXT].end - 1;

    if (a->part || !s[KVR_OF_TEXT].set || s[KVR_OF_TEXT].c != '"' || a->cut
        || s[KVR_OF_FINISH].set || s[KVR_OF_ROLE].set
        || s[KVR_OF_COMPLETION].set || len - (to - from) > KVR_ANSWER_FRAME)
    {
        return;
    }

    a->before = from;
    a->after = len - to;

    memcpy(a->frame, p, a->before);
    memcpy(a->frame + a->before, p + to, a->after);
}


/* Returns the JSON of an event; NULL: none, or with error -1 several lines. */
static const uint8_t *
kvr_answer_data(const uint8_t *p, size_t *len, int *error)
{
    size_t          n;
    const uint8_t  *end, *lf, *found;

    found = NULL;
    *error = 0;

    for (end = p + *len; p < end; p = lf + 1) {
        lf = memchr(p, '\n', (size_t) (end - p));
        lf = lf ? lf : end - 1;

        n = (size_t) (lf - p);
        n -= (n && p[n - 1] == '\r');

        if (n > 5 && memcmp(p, "data:", 5) == 0) {

            if (found) {
                *error = -1;
                return NULL;
            }

            found = p + 5 + (p[5] == ' ');
            *len = n - (size_t) (found - p);

        } else if (n > 6 && memcmp(p, "error:", 6) == 0) {
            *error = 1;
            found = p + 6;
            *len = n - 6;

        } else if (n >= 12 && memcmp(p, "event: error", 12) == 0) {
            *error = 1;
        }
    }

    return found;
}


/* Takes the members that must be equal in all events, unless it has them. */
static void
kvr_answer_first(kvr_answer_t *a, const kvr_splice_span_t *s,
    const uint8_t *p)
{
    kvr_answer_name(&a->id, &s[KVR_OF_ID], p);
    kvr_answer_name(&a->model, &s[KVR_OF_MODEL], p);

    if (a->created == 0) {
        a->created = (uint64_t) kvr_max(s[KVR_OF_CREATED].number, 0);
    }
}


static void
kvr_answer_name(kvr_answer_name_t *name, const kvr_splice_span_t *s,
    const uint8_t *p)
{
    size_t          len;
    const uint8_t  *str;

    str = kvr_splice_string(s, p, &len);

    if (name->len == 0 && len <= KVR_ANSWER_NAME) {
        memcpy(name->data, str, len);
        name->len = (uint16_t) len;
    }
}


/* Takes the text and counts tokens; returns 1 if a character is incomplete. */
static int
kvr_answer_keep(kvr_answer_t *a, const kvr_splice_span_t *s,
    const uint8_t *p)
{
    size_t          len;
    const uint8_t  *str;

    str = kvr_splice_string(&s[KVR_OF_TEXT], p, &len);

    if (len) {
        a->tokens++;

        if (a->len + len > a->size) {
            a->cut = KVR_ANSWER_LONG;

        } else {
            memcpy(a->text + a->len, str, len);
            a->len += len;
        }
    }

    /* an event may have several */

    if (s[KVR_OF_COMPLETION].number <= INT32_MAX) {
        a->tokens = kvr_max(a->tokens,
                            (uint64_t) kvr_max(s[KVR_OF_COMPLETION].number, 0));
    }

    return len && !s[KVR_OF_FINISH].set && kvr_answer_partial(a->text, a->len);
}


/*
 * Tells whether a text ends inside a UTF-8 character, an escape, or between the
 * two escapes of a surrogate pair.
 */
static int
kvr_answer_partial(const uint8_t *p, size_t len)
{
    size_t   n;
    uint8_t  c;

    c = p[len - 1];

    if (c < 0x80) {
        return len >= 6 && memcmp(p + len - 6, "\\u", 2) == 0
               && (p[len - 4] | 0x20) == 'd'
               && strchr("89abAB", p[len - 3]) != NULL;
    }

    for (n = 1; n < 4 && n < len && (p[len - n] & 0xc0) == 0x80; n++) {
        /* void */
    }

    c = p[len - n];

    return n < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : c >= 0xc0 ? 2u : 1u);
}


static void
kvr_answer_edit(kvr_answer_t *a, kvr_splice_t *e, const kvr_splice_span_t *s,
    uint8_t digits[4][20])
{
    uint64_t  prompt, cached;

    kvr_answer_rename(e, &s[KVR_OF_ID], &a->id);
    kvr_answer_rename(e, &s[KVR_OF_MODEL], &a->model);

    if (a->created) {
        kvr_answer_number(e, &s[KVR_OF_CREATED], digits[0], a->created);
    }

    if (a->role && s[KVR_OF_ROLE].set) {
        kvr_splice_cut(e, &s[KVR_OF_ROLE]);
    }

    /* the text so far was sent as prompt, but counts as completion */

    prompt = (uint64_t) kvr_max(s[KVR_OF_PROMPT].number, 0);
    prompt -= kvr_min(prompt, a->earlier);
    cached = kvr_min((uint64_t) kvr_max(s[KVR_OF_CACHED].number, 0), prompt);

    kvr_answer_number(e, &s[KVR_OF_PROMPT], digits[1], prompt);
    kvr_answer_number(e, &s[KVR_OF_CACHED], digits[2], cached);
    kvr_answer_number(e, &s[KVR_OF_COMPLETION], digits[3],
                      a->earlier
                      + (uint64_t) kvr_max(s[KVR_OF_COMPLETION].number, 0));
}


static void
kvr_answer_rename(kvr_splice_t *e, const kvr_splice_span_t *s,
    const kvr_answer_name_t *name)
{
    if (s->c == '"' && name->len) {
        kvr_splice_add(e, s->at + 1, s->end - s->at - 2, name->data, name->len);
    }
}


static void
kvr_answer_number(kvr_splice_t *e, const kvr_splice_span_t *s, uint8_t *digits,
    uint64_t n)
{
    if (s->set && s->c >= '0' && s->c <= '9') {
        kvr_splice_add(e, s->at, s->end - s->at, digits,
                       kvr_decimal(digits, n));
    }
}


/* a kvr_splice_put_pt: keeps the bytes for later */
static void
kvr_answer_put(void *data, const uint8_t *p, size_t len)
{
    kvr_answer_t *a = data;

    memcpy(a->hold + a->held, p, len);
    a->held += len;
}


void
kvr_answer_next(kvr_answer_t *a)
{
    a->part++;
    a->len = a->given;
    a->earlier += a->tokens;
    a->tokens = 0;
    a->held = 0;
    a->failed = 0;
    a->after = 0;
}


const char *
kvr_answer_cut_name(uint32_t cut)
{
    return cut < KVR_ANSWER_CUTS ? kvr_answer_names[cut] : NULL;
}
