
/*
 * Copyright (C) kvroute contributors
 */


#include "core/continue/kvr_again.h"


enum {
    KVR_IN_ROOT = 0,
    KVR_IN_MESSAGE,
    KVR_IN_FORMAT
};


enum {
    KVR_OF_MESSAGES = 0,
    KVR_OF_ROLE,
    KVR_OF_PROMPT,
    KVR_OF_FORMAT,
    KVR_OF_TYPE,

    /* more than one answer */
    KVR_OF_N,
    KVR_OF_BEST,

    KVR_OF_BEAM,
    KVR_OF_LOGPROBS,
    KVR_OF_PROMPT_LOGPROBS,

    KVR_OF_ECHO,
    KVR_OF_SUFFIX,
    KVR_OF_CONTINUE,
    KVR_OF_GENERATION,

    /* grammars */
    KVR_OF_GRAMMAR,
    KVR_OF_JSON,
    KVR_OF_REGEX,
    KVR_OF_CHOICE,
    KVR_OF_STRUCTURED,
    KVR_OF_SCHEMA,
    KVR_OF_EBNF,
    KVR_OF_PATTERN,
    KVR_OF_BNF,
    KVR_OF_TAG,

    /* numbers of tokens */
    KVR_OF_MAX,
    KVR_OF_MAX_COMPLETION,
    KVR_OF_PREDICT,
    KVR_OF_MIN,
    KVR_OF_FIELDS
};


static const kvr_splice_row_t  kvr_again_rows[] = {
    { "messages", KVR_IN_ROOT, KVR_IN_MESSAGE, KVR_OF_MESSAGES },
    { "prompt", KVR_IN_ROOT, 0, KVR_OF_PROMPT },
    { "response_format", KVR_IN_ROOT, KVR_IN_FORMAT, KVR_OF_FORMAT },
    { "n", KVR_IN_ROOT, 0, KVR_OF_N },
    { "best_of", KVR_IN_ROOT, 0, KVR_OF_BEST },
    { "use_beam_search", KVR_IN_ROOT, 0, KVR_OF_BEAM },
    { "logprobs", KVR_IN_ROOT, 0, KVR_OF_LOGPROBS },
    { "prompt_logprobs", KVR_IN_ROOT, 0, KVR_OF_PROMPT_LOGPROBS },
    { "echo", KVR_IN_ROOT, 0, KVR_OF_ECHO },
    { "suffix", KVR_IN_ROOT, 0, KVR_OF_SUFFIX },
    { "continue_final_message", KVR_IN_ROOT, 0, KVR_OF_CONTINUE },
    { "add_generation_prompt", KVR_IN_ROOT, 0, KVR_OF_GENERATION },
    { "guided_grammar", KVR_IN_ROOT, 0, KVR_OF_GRAMMAR },
    { "guided_json", KVR_IN_ROOT, 0, KVR_OF_JSON },
    { "guided_regex", KVR_IN_ROOT, 0, KVR_OF_REGEX },
    { "guided_choice", KVR_IN_ROOT, 0, KVR_OF_CHOICE },
    { "structured_outputs", KVR_IN_ROOT, 0, KVR_OF_STRUCTURED },
    { "json_schema", KVR_IN_ROOT, 0, KVR_OF_SCHEMA },
    { "ebnf", KVR_IN_ROOT, 0, KVR_OF_EBNF },
    { "regex", KVR_IN_ROOT, 0, KVR_OF_PATTERN },
    { "grammar", KVR_IN_ROOT, 0, KVR_OF_BNF },
    { "structural_tag", KVR_IN_ROOT, 0, KVR_OF_TAG },
    { "max_tokens", KVR_IN_ROOT, 0, KVR_OF_MAX },
    { "max_completion_tokens", KVR_IN_ROOT, 0, KVR_OF_MAX_COMPLETION },
    { "n_predict", KVR_IN_ROOT, 0, KVR_OF_PREDICT },
    { "min_tokens", KVR_IN_ROOT, 0, KVR_OF_MIN },
    { "role", KVR_IN_MESSAGE, 0, KVR_OF_ROLE },
    { "type", KVR_IN_FORMAT, 0, KVR_OF_TYPE },
    { NULL, 0, 0, 0 }
};


#define KVR_AGAIN_MESSAGE  "{\"role\":\"assistant\",\"content\":\""
#define KVR_AGAIN_FLAGS                                                       \
    ",\"continue_final_message\":true,\"add_generation_prompt\":false"
#define KVR_AGAIN_MAX  ",\"max_tokens\":"


static kvr_answer_cut_e kvr_again_refuse(const kvr_splice_span_t *s,
    const uint8_t *p);
static kvr_answer_cut_e kvr_again_text(kvr_again_t *b, const kvr_answer_t *a,
    const kvr_splice_span_t *s, const uint8_t *p);
static int kvr_again_tokens(kvr_again_t *b, const kvr_answer_t *a,
    const kvr_splice_span_t *s);
static void kvr_again_number(kvr_again_t *b, size_t at, size_t len,
    uint64_t n);


kvr_answer_cut_e
kvr_again_read(kvr_again_t *b, const kvr_answer_t *a, const uint8_t *p,
    size_t len)
{
    kvr_answer_cut_e   cut;
    kvr_splice_span_t  s[KVR_OF_FIELDS];

    b->edits.n = 0;
    b->numbers = 0;
    b->limit = 0;

    /* nothing was sent yet: repeat the request unchanged */

    if (a->cut || !a->begun) {
        return a->cut;
    }

    if (kvr_splice_find(kvr_again_rows, p, len, s, KVR_OF_FIELDS, &b->end)
        != KVR_OK)
    {
        return KVR_ANSWER_REQUEST;
    }

    cut = kvr_again_refuse(s, p);

    if (cut != KVR_ANSWER_WHOLE || a->given == 0) {
        return cut;
    }

    if (kvr_again_tokens(b, a, s) != KVR_OK) {
        return KVR_ANSWER_REQUEST;
    }

    return kvr_again_text(b, a, s, p);
}


static kvr_answer_cut_e
kvr_again_refuse(const kvr_splice_span_t *s, const uint8_t *p)
{
    size_t          i, len;
    const uint8_t  *type;

    if (s[KVR_OF_N].number > 1 || s[KVR_OF_BEST].number > 1
        || s[KVR_OF_BEAM].set)
    {
        return KVR_ANSWER_CHOICES;
    }

    if (s[KVR_OF_LOGPROBS].set || s[KVR_OF_PROMPT_LOGPROBS].set) {
        return KVR_ANSWER_LOGPROBS;
    }

    if (s[KVR_OF_FORMAT].set) {
        type = kvr_splice_string(&s[KVR_OF_TYPE], p, &len);

        if (len != 4 || memcmp(type, "text", 4) != 0) {
            return KVR_ANSWER_STRUCTURED;
        }
    }

    for (i = KVR_OF_GRAMMAR; i <= KVR_OF_TAG; i++) {
        if (s[i].set) {
            return KVR_ANSWER_STRUCTURED;
        }
    }

    /* the client's own prompt already ends with a partial answer */

    return s[KVR_OF_ECHO].set || s[KVR_OF_SUFFIX].set
           || s[KVR_OF_CONTINUE].set || s[KVR_OF_GENERATION].c == 'f'
           ? KVR_ANSWER_REQUEST : KVR_ANSWER_WHOLE;
}


static kvr_answer_cut_e
kvr_again_text(kvr_again_t *b, const kvr_answer_t *a,
    const kvr_splice_span_t *s, const uint8_t *p)
{
    size_t          at, len;
    const uint8_t  *role;

    if (a->api == KVR_ANSWER_COMPLETION) {

        if (s[KVR_OF_PROMPT].c != '"') {
            return KVR_ANSWER_REQUEST;
        }

        kvr_splice_add(&b->edits, s[KVR_OF_PROMPT].end - 1, 0, a->text,
                       a->given);

        return KVR_ANSWER_WHOLE;
    }

    role = kvr_splice_string(&s[KVR_OF_ROLE], p, &len);

    /* the last message is the assistant's: the engine may have continued it */

    if (s[KVR_OF_MESSAGES].c != '[' || len == 0
        || (len == 9 && memcmp(role, "assistant", 9) == 0))
    {
        return KVR_ANSWER_REQUEST;
    }

    at = s[KVR_OF_MESSAGES].end - 1;

    kvr_splice_add(&b->edits, at, 0, ",", 1);
    kvr_splice_add(&b->edits, at, 0, KVR_AGAIN_MESSAGE,
                   sizeof(KVR_AGAIN_MESSAGE) - 1);
    kvr_splice_add(&b->edits, at, 0, a->text, a->given);
    kvr_splice_add(&b->edits, at, 0, "\"}", 2);
    kvr_splice_add(&b->edits, b->end, 0, KVR_AGAIN_FLAGS,
                   sizeof(KVR_AGAIN_FLAGS) - 1);

    return KVR_ANSWER_WHOLE;
}


/* Lowers the limits; KVR_ERROR: one is not an integer. */
static int
kvr_again_tokens(kvr_again_t *b, const kvr_answer_t *a,
    const kvr_splice_span_t *s)
{
    size_t    i, given;
    uint64_t  spent, n;

    spent = a->earlier + a->tokens;
    given = 0;

    for (i = KVR_OF_MAX; i < KVR_OF_FIELDS; i++) {

        if (!s[i].set || s[i].number < 0) {
            continue;
        }

        if (s[i].number == 0 && s[i].c != '0') {
            return KVR_ERROR;
        }

        n = (uint64_t) s[i].number;

        if (i != KVR_OF_MIN) {
            b->limit |= (n <= spent);
            given++;
        }

        n -= kvr_min(n, spent);

        kvr_again_number(b, s[i].at, s[i].end - s[i].at, n);
    }

    if (given == 0 && a->api == KVR_ANSWER_COMPLETION && spent <= b->most) {
        b->limit = (spent == b->most);

        kvr_splice_add(&b->edits, b->end, 0, KVR_AGAIN_MAX,
                       sizeof(KVR_AGAIN_MAX) - 1);
        kvr_again_number(b, b->end, 0, b->most - spent);
    }

    return KVR_OK;
}


static void
kvr_again_number(kvr_again_t *b, size_t at, size_t len, uint64_t n)
{
    uint8_t  *digits;

    digits = b->digits[b->numbers++];

    kvr_splice_add(&b->edits, at, len, digits, kvr_decimal(digits, n));
}


int
kvr_again_usage(kvr_splice_t *edits, const uint8_t *p, size_t len)
{
    size_t              end, n;
    kvr_splice_span_t  *options, *usage, s[3];

    static const char  text[] = ",\"stream_options\":{\"include_usage\":true},";

    static const kvr_splice_row_t  rows[] = {
        { "stream", 0, 0, 0 },
        { "stream_options", 0, 1, 1 },
        { "include_usage", 1, 0, 2 },
        { NULL, 0, 0, 0 }
    };

    if (kvr_splice_find(rows, p, len, s, 3, &end) != KVR_OK || s[0].c != 't') {
        return KVR_DECLINED;
    }

    edits->n = 0;
    options = &s[1];
    usage = &s[2];

    if (options->end == 0) {
        kvr_splice_add(edits, end, 0, text, sizeof(text) - 2);
        return KVR_OK;
    }

    if (options->c != '{') {
        kvr_splice_add(edits, options->at, options->end - options->at,
                       text + 18, sizeof(text) - 2 - 18);
        return KVR_OK;
    }

    /* it can be of an earlier member of the same name */

    if (usage->end && usage->at > options->at) {

        if (usage->c == 't') {
            return KVR_DECLINED;
        }

        kvr_splice_add(edits, usage->at, usage->end - usage->at, "true", 4);
        return KVR_OK;
    }

    for (n = options->at + 1; p[n] <= ' '; n++) { /* void */ }

    kvr_splice_add(edits, options->at + 1, 0, text + 19,
                   sizeof("\"include_usage\":true") - 1);

    if (p[n] != '}') {
        kvr_splice_add(edits, options->at + 1, 0, ",", 1);
    }

    return KVR_OK;
}


int
kvr_again_streams(const uint8_t *p, size_t len)
{
    size_t             end;
    kvr_splice_span_t  s;

    static const kvr_splice_row_t  rows[] = {
        { "stream", 0, 0, 0 },
        { NULL, 0, 0, 0 }
    };

    return kvr_splice_find(rows, p, len, &s, 1, &end) == KVR_OK && s.set;
}
