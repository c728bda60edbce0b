
/*
 * Copyright (C) kvroute contributors
 */


/* Tests kvr_response with responses of all engines, in any pieces. */


#include "util.h"
#include "core/response/kvr_response.h"


#define NONE    ((size_t) -1)

#define PING    "event: ping\ndata: {\"type\": \"ping\"}\n\n"
#define CHUNK   "data: {\"id\":\"chatcmpl-1\",\"object\":"                    \
                "\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","    \
                "\"choices\":[{\"index\":0,\"delta\":{\"content\":"


typedef struct {
    const char     *name;        /* of a file in t/fuzz/corpus/usage */
    unsigned        stream;
    size_t          first;       /* bytes that have the first event, or NONE */
    int64_t         prompt;
    int64_t         cached;
    int64_t         completion;
    const char     *id;
    const char     *reply;       /* parts, as sink() writes them */
} sample_t;


static const sample_t  samples[] = {
    /* position of the first event */

    { "nothing", 1, NONE, -1, -1, -1, "", "" },
    { "comments", 1, NONE, -1, -1, -1, "", "" },
    { "pings", 1, NONE, -1, -1, -1, "", "" },
    { "ping_CRLF", 1, 47, -1, -1, -1, "", "" },
    { "ping_of_its_data_only", 1, NONE, -1, -1, -1, "", "" },
    { "fields_of_no_data", 1, NONE, -1, -1, -1, "", "" },
    { "empty_data", 1, NONE, -1, -1, -1, "", "" },
    { "no_JSON", 1, 12, -1, -1, -1, "", "" },
    { "done_only", 1, NONE, -1, -1, -1, "", "" },
    { "error", 1, NONE, -1, -1, -1, "", "" },
    { "error_named", 1, NONE, -1, -1, -1, "", "" },
    { "error_null", 1, 34, -1, -1, -1, "", "" },
    { "not_in_text", 1, 158, -1, -1, -1, "",
      "C(\\\"error\\\":{} prompt_progress)" },
    { "after_an_error", 1, 152, -1, -1, -1, "", "C(a)" },

    /* OpenAI, as vLLM streams it */

    { "vllm_chat", 1, 186, 117, 96, 3, "", "C()C(Hel)C(lo \\u00e9 tokens)" },
    { "continuous_usage", 1, 199, 9, -1, 2, "", "C(a)C(b)" },
    { "details_null", 1, 216, 9, -1, 1, "", "C(a)" },
    { "tool_calls", 1, 137, -1, -1, -1, "", "N(ls)A()A({\\\"a\\\":)A(1})" },
    { "reasoning", 1, 67, -1, -1, -1, "", "R(hm)C(a)" },
    { "two_choices", 1, 167, -1, -1, -1, "", "C(a)O()C(b)" },
    { "completions", 1, 43, 5, -1, 1, "", "O(a)" },
    { "plain_chat", 0, 1, 12, 0, 2, "", "C(a}]{\\\\)" },
    { "plain_completions", 0, 2, 12, -1, -1, "", "O(usage\\\":{)" },
    { "embeddings", 0, 1, 8, -1, -1, "", "" },

    /* Responses */

    { "responses", 1, 357, 40, 32, 2, "resp_0af", "C(Hi)" },
    { "responses_calls", 1, 137, -1, -1, -1, "", "N(ls)A({})R(hm)" },
    { "plain_responses", 0, 1, 7, 3, 1, "resp_1", "" },
    { "id_too_long", 0, 1, -1, -1, -1, "", "" },

    /* Anthropic's messages */

    { "messages", 1, 184, 100, 84, 6, "", "C()C(Hi)N(ls)I({\\\"a\\\": 1})" },
    { "thinking", 1, 124, -1, -1, -1, "", "R(hm)" },
    { "plain_messages", 0, 1, 41, 15, 2, "", "" },

    /* llama.cpp */

    { "progress", 1, 298, 58, 57, -1, "", "C(a)" },
    { "timings", 1, 131, 144, 143, 8, "", "C(a)" },
    { "llama_cpp_native", 0, 1, 31, 20, 4, "", "O(x)" },

    /* formats of SGLang and TGI */

    { "sglang", 1, 140, 30, 16, 2, "", "" },
    { "sglang_batch", 0, 1, 3, 0, 1, "", "" },
    { "tgi", 1, 82, 17, -1, 2, "", "" },

    /* invalid values */

    { "more_cached_than_there_is", 0, 1, 3, 3, -1, "", "" },
    { "numbers_that_are_none", 0, 1, -1, -1, -1, "", "" },
    { "large_numbers", 0, 1, -1, -1, 4, "", "" },
    { "no_object", 0, 1, -1, -1, -1, "", "" },
    { "cut_short", 0, 1, -1, -1, -1, "", "" },
    { "no_line_end", 1, NONE, 3, -1, -1, "", "" },
    { "escaped_key", 0, 1, -1, -1, -1, "", "" },
    { "open_brackets", 0, 1, -1, -1, -1, "", "" }
};

#define SAMPLES  (sizeof(samples) / sizeof(samples[0]))


typedef struct {
    util_buf_t          text;
    int                 open;
} reply_t;


/* Writes parts as "C(text)", for any pieces. */
static void
sink(void *data, kvr_response_part_e part, const uint8_t *p, size_t len)
{
    reply_t *r = data;

    if (!r->open) {
        util_byte(&r->text, (unsigned) "CRNAIO"[part]);
        util_byte(&r->text, '(');
    }

    r->open = (p != NULL);

    if (p) {
        util_put(&r->text, p, len);

    } else {
        util_byte(&r->text, ')');
    }
}


/* feeds a copy of its exact size: reads beyond it are found */
static void
feed(kvr_response_t *u, const uint8_t *p, size_t len, reply_t *r)
{
    uint8_t  *copy;

    copy = malloc(len ? len : 1);

    if (len) {
        memcpy(copy, p, len);
    }

    (void) kvr_response_read(u, copy, len, r ? sink : NULL, r);
    free(copy);
}


static void
check(const sample_t *s, kvr_response_t *u, kvr_response_mode_e mode,
    reply_t *r)
{
    kvr_tokens_t  t;

    kvr_response_tokens(u, &t);

    util_check(u->first == (s->first != NONE
                            || (s->stream && strcmp(s->name, "no_line_end")
                                             == 0)),
               "%s: first", s->name);

    if (mode == KVR_RESPONSE_FIRST) {
        return;
    }

    util_check(t.prompt == s->prompt, "%s: prompt %ld", s->name,
               (long) t.prompt);
    util_check(t.cached == s->cached, "%s: cached %ld", s->name,
               (long) t.cached);
    util_check(t.completion == s->completion, "%s: completion %ld", s->name,
               (long) t.completion);
    util_check(u->id_len == strlen(s->id)
               && memcmp(u->id, s->id, u->id_len) == 0,
               "%s: id \"%.*s\"", s->name, u->id_len, u->id);

    if (mode == KVR_RESPONSE_REPLY) {
        util_byte(&r->text, 0);
        r->text.len--;

        util_check(strcmp((char *) r->text.p, s->reply) == 0,
                   "%s: reply %s", s->name, r->text.p);
    }
}


/* every sample, byte by byte, and cut in three at every position */
TEST(test_usage_split)
{
    size_t          i, a, b, at, len, step;
    reply_t         r = { 0 };
    unsigned        mode;
    util_buf_t      body = { 0 };
    kvr_response_t  u;

    for (i = 0; i < SAMPLES; i++) {

        util_sample(&body, "usage", samples[i].name);
        at = samples[i].first;
        len = body.len;

        for (mode = 0; mode <= KVR_RESPONSE_REPLY; mode++) {

            kvr_response_init(&u, mode, samples[i].stream);
            r.text.len = 0;
            r.open = 0;

            for (a = 0; a < len; a++) {
                feed(&u, body.p + a, 1, mode == KVR_RESPONSE_REPLY ? &r : NULL);

                util_check(u.first == (a + 1 >= at), "%s: first at %zu",
                           samples[i].name, a);
            }

            kvr_response_end(&u, mode == KVR_RESPONSE_REPLY ? sink : NULL, &r);
            check(&samples[i], &u, mode, &r);

            step = len > 400 ? 37 : 11;

            for (a = 0; a <= len; a++) {
                for (b = a; b <= len; b += step) {

                    kvr_response_init(&u, mode, samples[i].stream);
                    r.text.len = 0;
                    r.open = 0;

                    feed(&u, body.p, a, mode == KVR_RESPONSE_REPLY ? &r : NULL);
                    util_check(u.first == (a >= at), "%s: %zu",
                               samples[i].name, a);

                    feed(&u, body.p + a, b - a,
                         mode == KVR_RESPONSE_REPLY ? &r : NULL);
                    feed(&u, body.p + b, len - b,
                         mode == KVR_RESPONSE_REPLY ? &r : NULL);

                    kvr_response_end(&u, mode == KVR_RESPONSE_REPLY ? sink
                                     : NULL, &r);
                    check(&samples[i], &u, mode, &r);
                }
            }
        }
    }

    util_drop(&body);
    util_drop(&r.text);
}


/* several samples in one stream, in random pieces */
TEST(test_usage_random)
{
    size_t          off, n;
    unsigned        i, k;
    reply_t         whole = { 0 }, pieces = { 0 };
    util_rng_t      r;
    util_buf_t      b = { 0 }, body = { 0 };
    kvr_response_t  u, v;

    for (i = 0; i < util_cases(20000); i++) {

        util_seed(&r, "usage random", i);
        b.len = 0;

        for (k = 1 + util_below(&r, 4); k; k--) {
            n = util_below(&r, SAMPLES);

            util_sample(&body, "usage", samples[n].name);
            util_put(&b, body.p, body.len);
        }

        for (k = util_below(&r, 3); k && b.len; k--) {
            b.p[util_below(&r, (unsigned) b.len)]
                = (uint8_t) util_below(&r, 256);
        }

        whole.text.len = pieces.text.len = 0;
        whole.open = pieces.open = 0;

        kvr_response_init(&u, KVR_RESPONSE_REPLY, i & 1);
        feed(&u, b.p, b.len, &whole);
        kvr_response_end(&u, sink, &whole);

        kvr_response_init(&v, KVR_RESPONSE_REPLY, i & 1);

        for (off = 0; off < b.len; off += n) {
            n = 1 + util_below(&r, (unsigned) kvr_min(b.len - off, 90));
            feed(&v, b.p + off, n, &pieces);
        }

        kvr_response_end(&v, sink, &pieces);

        util_check(u.first == v.first && u.seen == v.seen
                   && u.prompt == v.prompt && u.cached == v.cached
                   && u.completion == v.completion && u.id_len == v.id_len,
                   "%s", util_show(b.p, b.len));

        util_check(whole.text.len == pieces.text.len
                   && (whole.text.len == 0
                       || memcmp(whole.text.p, pieces.text.p, whole.text.len)
                          == 0),
                   "%s", util_show(b.p, b.len));
    }

    util_drop(&b);
    util_drop(&body);
    util_drop(&whole.text);
    util_drop(&pieces.text);
}


/* the cause of an error, early and late */

static const struct {
    const char            *text;
    unsigned               stream;
    kvr_response_error_e   error;
} errors[] = {
    { "data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n"
      "data: [DONE]\n\n", 1, KVR_RESPONSE_SERVER },
    { "data: {\"error\": {\"message\": \"no\", \"type\": \"BadRequestError\","
      " \"param\": null, \"code\": 400}}\n\ndata: [DONE]\n\n", 1,
      KVR_RESPONSE_CLIENT },
    { "data: {\"error\":{\"message\":\"too long\"}}\n\ndata: [DONE]\n\n", 1,
      KVR_RESPONSE_UNCLEAR },

    /* errors of older llama.cpp, TGI, Anthropic and Responses */

    { "error: {\"code\":500,\"message\":\"no\",\"type\":\"server_error\"}\n\n",
      1, KVR_RESPONSE_SERVER },
    { "data:{\"error\":{\"message\":\"no\",\"http_status_code\":424}}\n\n", 1,
      KVR_RESPONSE_CLIENT },
    { "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
      "\"overloaded_error\"}}\n\n", 1, KVR_RESPONSE_UNCLEAR },
    { "event: response.failed\ndata: {\"type\":\"response.failed\","
      "\"response\":{\"id\":\"r\",\"error\":{\"code\":\"server_error\"}}}\n\n",
      1, KVR_RESPONSE_UNCLEAR },

    { "{\"error\":{\"message\":\"no\",\"code\":503}}", 0,
      KVR_RESPONSE_SERVER },
    { "{\"error\":\"no\",\"error_type\":\"generation\"}", 0,
      KVR_RESPONSE_UNCLEAR },

    /* no errors */

    { "data: {\"error\":\"\",\"code\":500}\n\n", 1, KVR_RESPONSE_NO_ERROR },
    { "data: {\"error\":null,\"code\":500}\n\n", 1, KVR_RESPONSE_NO_ERROR },
    { "{\"id\":\"resp_1\",\"error\":null,\"code\":500}", 0,
      KVR_RESPONSE_NO_ERROR },
};


TEST(test_usage_error)
{
    size_t          i, n, len, step;
    unsigned        mode, late;
    util_buf_t      b = { 0 };
    kvr_response_t  u;

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {

        for (late = 0; late <= errors[i].stream; late++) {

            b.len = 0;
            util_puts(&b, late ? CHUNK "\"a\"}}]}\n\n" : "");
            util_puts(&b, errors[i].text);
            len = b.len;

            mode = late ? KVR_RESPONSE_TOKENS : KVR_RESPONSE_FIRST;
            mode += !errors[i].stream;

            for ( /* void */ ; mode <= KVR_RESPONSE_REPLY; mode++) {
                for (step = 1; step <= len; step++) {

                    kvr_response_init(&u, mode, errors[i].stream);

                    for (n = 0; n < len; n += step) {
                        feed(&u, b.p + n, kvr_min(step, len - n), NULL);
                    }

                    kvr_response_end(&u, NULL, NULL);

                    util_check(u.error == errors[i].error,
                               "%s: mode %u, late %u, step %zu: %u",
                               errors[i].text, mode, late, step, u.error);
                    util_check(!errors[i].stream || late || !u.error
                               || !u.first, "%s: first", errors[i].text);
                }
            }
        }
    }

    util_drop(&b);
}


/* a long plain body is not read to its end */
/*
 * Lines that differ only in their text are not parsed.  The result must be the
 * same.
 */
TEST(test_usage_again)
{
    size_t          len, i;
    unsigned        n, seed, mode;
    reply_t         a, b;
    kvr_response_t  u, v;

    static char        stream[65536];
    static const char *const  bits[] = {
        CHUNK "\" w\"}}]}\n\n",
        CHUNK "\" another\"}}]}\n\n",
        CHUNK "\"\"}}]}\n\n",
        CHUNK "\"a \\\"quote\\\"\"}}]}\n\n",
        CHUNK "\"\\n\"}}]}\n\n",
        CHUNK "\"x\",\"reasoning\":\"y\"}}]}\n\n",
        CHUNK "\"x\"},\"index\":1}]}\n\n",
        CHUNK "\"x\"}}],\"usage\":{\"prompt_tokens\":7}}\n\n",
        CHUNK "\"z\"}},{\"delta\":{\"content\":\"z\"}}]}\n\n",
        CHUNK "null,\"tool_calls\":[{\"function\":{\"name\":"
            "\"f\"}}]}}]}\n\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":"
            "{\"text\":\"t\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":"
            "{\"text\":\"tt\"}}\r\n\r\n",
        PING,
        "event: error\n"
    };

#define N_BITS  (sizeof(bits) / sizeof(bits[0]))

    for (seed = 0; seed < 300; seed++) {

        srandom(seed);

        for (len = 0, n = 0; n < 60; n++) {
            i = (size_t) random() % (2 * N_BITS);
            i = i < N_BITS ? i : i & 1;
            len += (size_t) sprintf(stream + len, "%s", bits[i]);
        }

        for (mode = KVR_RESPONSE_TOKENS; mode <= KVR_RESPONSE_REPLY; mode++) {

            memset(&a, 0, sizeof(a));
            memset(&b, 0, sizeof(b));

            kvr_response_init(&u, mode, 1);
            kvr_response_init(&v, mode, 1);

            feed(&u, (uint8_t *) stream, len, &a);

            for (i = 0; i < len; i++) {
                feed(&v, (uint8_t *) stream + i, 1, &b);
            }

            util_check(a.text.len == b.text.len
                       && (a.text.len == 0
                           || memcmp(a.text.p, b.text.p, a.text.len) == 0),
                       "%u: %.*s, %.*s", seed, (int) a.text.len,
                       a.text.p,
                       (int) b.text.len, b.text.p);
            util_check(u.seen == v.seen && u.first == v.first, "%u", seed);

            util_drop(&a.text);
            util_drop(&b.text);
        }
    }
}


TEST(test_usage_long)
{
    int             rc;
    size_t          n;
    uint8_t         piece[4096];
    kvr_response_t  u;
    kvr_tokens_t    t;

    memset(piece, 'x', sizeof(piece));

    kvr_response_init(&u, KVR_RESPONSE_TOKENS, 0);
    rc = kvr_response_read(&u, (const uint8_t *) "{\"a\":\"", 6, NULL, NULL);

    for (n = 0; rc; n += sizeof(piece)) {
        rc = kvr_response_read(&u, piece, sizeof(piece), NULL, NULL);
        util_check(n <= KVR_RESPONSE_MAX, "%zu", n);
    }

    util_check(n > KVR_RESPONSE_MAX - 2 * sizeof(piece), "%zu", n);

    /* deep nesting ends it too */

    memset(piece, '[', sizeof(piece));
    kvr_response_init(&u, KVR_RESPONSE_TOKENS, 0);

    for (n = 0; kvr_response_read(&u, piece, sizeof(piece), NULL, NULL); n++) {
        util_check(n < 4, "%zu", n);
    }

    kvr_response_tokens(&u, &t);
    util_check(t.prompt == -1, "no prompt tokens");
}
