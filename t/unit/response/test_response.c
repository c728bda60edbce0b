
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_usage: what it finds in responses of all engines, in whatever pieces
 * they come.
 */


#include "util.h"
#include "core/response/kvr_response.h"


#define NONE    ((size_t) -1)

#define PING    "event: ping\ndata: {\"type\": \"ping\"}\n\n"
#define CHUNK   "data: {\"id\":\"chatcmpl-1\",\"object\":"                    \
                "\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","    \
                "\"choices\":[{\"index\":0,\"delta\":{\"content\":"


typedef struct {
    const char     *name;
    unsigned        stream;
    const char     *text;        /* "|" after the byte of the first event */
    int64_t         prompt;
    int64_t         cached;
    int64_t         completion;
    const char     *id;
    const char     *reply;       /* parts, as sink() writes them */
} sample_t;


static const sample_t  samples[] = {

    /* where the first event is */

    { "nothing", 1, "", -1, -1, -1, "", "" },
    { "comments", 1, ": ping\n\n:\n\n: keep-alive\r\n\r\n", -1, -1, -1, "",
      "" },
    { "pings", 1, PING ": x\n\n" PING, -1, -1, -1, "", "" },
    { "ping, CRLF", 1, "event: ping\r\ndata: {\"type\":\"ping\"}\r\n\r\n"
      "data:{}\r\n|\r\n", -1, -1, -1, "", "" },
    { "ping of its data only", 1, "data: {\"type\":\"ping\"}\n\n", -1, -1, -1,
      "", "" },
    { "fields of no data", 1, "id: 7\nretry: 100\nevent: x\n\nfoo\n\n",
      -1, -1, -1, "", "" },
    { "empty data", 1, "data:\n\ndata: \n\ndata\n\n", -1, -1, -1, "", "" },
    { "no JSON", 1, "data: hello\n|\n", -1, -1, -1, "", "" },
    { "done only", 1, "data: [DONE]\n\n", -1, -1, -1, "", "" },
    { "error", 1, "data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n"
      "data: [DONE]\n\n", -1, -1, -1, "", "" },
    { "error, named", 1, "event: error\ndata: {\"type\":\"error\",\"error\":"
      "{\"type\":\"overloaded_error\"}}\n\n", -1, -1, -1, "", "" },
    { "error: null", 1, "data: {\"error\":null,\"choices\":[]}\n|\n",
      -1, -1, -1, "", "" },
    { "not in text", 1, CHUNK "\"\\\"error\\\":{} prompt_progress\"}}]}\n|\n",
      -1, -1, -1, "", "C(\\\"error\\\":{} prompt_progress)" },
    { "after an error", 1, "data: {\"error\":\"x\"}\n\n" CHUNK "\"a\"}}]}\n|\n",
      -1, -1, -1, "", "C(a)" },

    /* OpenAI, as vLLM streams it */

    { "vllm chat", 1,
      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","
      "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
      "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],"
      "\"prompt_token_ids\":null}\n|\n"
      CHUNK "\"Hel\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
      CHUNK "\"lo \\u00e9 tokens\"},\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":"
      "{\"prompt_tokens\":117,\"total_tokens\":120,\"completion_tokens\":3,"
      "\"prompt_tokens_details\":{\"cached_tokens\":96}}}\n\n"
      "data: [DONE]\n\n",
      117, 96, 3, "", "C()C(Hel)C(lo \\u00e9 tokens)" },

    { "continuous usage", 1,
      CHUNK "\"a\"}}],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":10,"
      "\"completion_tokens\":1}}\n|\n"
      CHUNK "\"b\"}}],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":11,"
      "\"completion_tokens\":2}}\n\n",
      9, -1, 2, "", "C(a)C(b)" },

    { "details: null", 1,
      CHUNK "\"a\"}}],\"usage\": {\"prompt_tokens\": 9, "
      "\"prompt_tokens_details\": null, \"completion_tokens\": 1}}\n|\n",
      9, -1, 1, "", "C(a)" },

    { "tool calls", 1,
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":"
      "0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"ls\","
      "\"arguments\":\"\"}}]}}]}\n|\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":"
      "0,\"function\":{\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":"
      "0,\"function\":{\"arguments\":\"1}\"}}]}}]}\n\n",
      -1, -1, -1, "", "N(ls)A()A({\\\"a\\\":)A(1})" },

    { "reasoning", 1,
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":"
      "\"hm\"}}]}\n|\n" CHUNK "\"a\"}}]}\n\n",
      -1, -1, -1, "", "R(hm)C(a)" },

    { "two choices", 1,
      CHUNK "\"a\"}},{\"index\":1,\"delta\":{\"content\":\"b\"}}]}\n|\n",
      -1, -1, -1, "", "C(a)O()C(b)" },

    { "completions", 1,
      "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n|\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,"
      "\"completion_tokens\":1}}\n\n", 5, -1, 1, "", "O(a)" },

    { "plain chat", 0,
      "{|\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
      "\"assistant\",\"reasoning_content\":null,\"content\":\"a}]{\\\\\","
      "\"tool_calls\":[]},\"finish_reason\":\"stop\"}],\"usage\":"
      "{\"prompt_tokens\":12,\"total_tokens\":14,\"completion_tokens\":2,"
      "\"prompt_tokens_details\":{\"cached_tokens\":0}},\"x\":[[[1,{}]]]}",
      12, 0, 2, "", "C(a}]{\\\\)" },

    { "plain completions", 0,
      "\n{|\"choices\":[{\"text\":\"usage\\\":{\"}],\"usage\":"
      "{\"prompt_tokens\":12}}", 12, -1, -1, "", "O(usage\\\":{)" },

    { "embeddings", 0,
      "{|\"object\":\"list\",\"data\":[{\"embedding\":[0.1,-2e5,3]}],"
      "\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}", 8, -1, -1, "",
      "" },

    /* Responses */

    { "responses", 1,
      "event: response.created\ndata: {\"response\":{\"id\":\"resp_0af\","
      "\"status\":\"in_progress\",\"usage\":null},\"sequence_number\":0,"
      "\"type\":\"response.created\"}\n\n"
      "event: response.in_progress\ndata: {\"response\":{\"id\":"
      "\"resp_0af\"},\"type\":\"response.in_progress\"}\n\n"
      "event: response.output_item.added\ndata: {\"item\":{\"id\":\"msg_1\","
      "\"type\":\"message\"},\"type\":\"response.output_item.added\"}\n|\n"
      "event: response.output_text.delta\ndata: {\"content_index\":0,"
      "\"delta\":\"Hi\",\"type\":\"response.output_text.delta\"}\n\n"
      "event: response.completed\ndata: {\"response\":{\"id\":\"resp_0af\","
      "\"output\":[{\"id\":\"msg_1\"}],\"usage\":{\"input_tokens\":40,"
      "\"input_tokens_details\":{\"cached_tokens\":32},\"output_tokens\":2,"
      "\"total_tokens\":42},\"user\":null},\"type\":\"response.completed\"}"
      "\n\n", 40, 32, 2, "resp_0af", "C(Hi)" },

    { "responses, calls", 1,
      "event: response.output_item.added\ndata: {\"type\":"
      "\"response.output_item.added\",\"item\":{\"type\":\"function_call\","
      "\"name\":\"ls\",\"arguments\":\"\"}}\n|\n"
      "event: response.function_call_arguments.delta\ndata: {\"type\":"
      "\"response.function_call_arguments.delta\",\"delta\":\"{}\"}\n\n"
      "event: response.reasoning_text.delta\ndata: {\"type\":"
      "\"response.reasoning_text.delta\",\"delta\":\"hm\"}\n\n",
      -1, -1, -1, "", "N(ls)A({})R(hm)" },

    { "plain responses", 0,
      "{|\"id\":\"resp_1\",\"error\":null,\"object\":\"response\",\"output\":"
      "[{\"id\":\"msg_2\",\"content\":[{\"text\":\"x\"}]}],\"usage\":"
      "{\"input_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":3},"
      "\"output_tokens\":1}}", 7, 3, 1, "resp_1", "" },

    { "id too long", 0,
      "{|\"id\":\"resp_0123456789012345678901234567890123456789012345678901"
      "234567890123456789\"}", -1, -1, -1, "", "" },

    /* Anthropic's messages */

    { "messages", 1,
      "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"
      "{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":11,"
      "\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":84,"
      "\"output_tokens\":0}}}\n|\n" PING
      "event: content_block_start\ndata: {\"type\":\"content_block_start\","
      "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
      "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
      "\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n"
      "event: content_block_start\ndata: {\"type\":\"content_block_start\","
      "\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\","
      "\"name\":\"ls\",\"input\":{}}}\n\n"
      "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
      "\"index\":1,\"delta\":{\"type\":\"input_json_delta\","
      "\"partial_json\":\"{\\\"a\\\": 1}\"}}\n\n"
      "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":"
      "{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":6}}\n\n"
      "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
      100, 84, 6, "", "C()C(Hi)N(ls)I({\\\"a\\\": 1})" },

    { "thinking", 1,
      "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
      "\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":"
      "\"hm\"}}\n|\n", -1, -1, -1, "", "R(hm)" },

    { "plain messages", 0,
      "{|\"id\":\"msg_1\",\"type\":\"message\",\"content\":[{\"type\":\"text\","
      "\"text\":\"x\"}],\"usage\":{\"cache_read_input_tokens\":15,"
      "\"input_tokens\":26,\"output_tokens\":2}}", 41, 15, 2, "", "" },

    /* llama.cpp */

    { "progress", 1,
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
      "\"content\":null},\"finish_reason\":null}],\"prompt_progress\":"
      "{\"total\":58,\"cache\":57,\"processed\":57,\"time_ms\":0}}\n\n"
      CHUNK "\"a\"}}]}\n|\n", 58, 57, -1, "", "C(a)" },

    { "timings", 1,
      CHUNK "\"a\"}}]}\n|\n"
      "data: {\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"delta\":"
      "{}}],\"timings\":{\"cache_n\":143,\"prompt_n\":1,\"prompt_ms\":0.166,"
      "\"predicted_n\":8,\"predicted_ms\":1.5}}\n\n", 144, 143, 8, "",
      "C(a)" },

    { "llama.cpp native", 0,
      "{|\"index\":0,\"content\":\"x\",\"tokens\":[1],\"tokens_predicted\":4,"
      "\"tokens_evaluated\":31,\"tokens_cached\":34,\"timings\":{\"cache_n\":"
      "20,\"prompt_n\":11,\"predicted_n\":4}}", 31, 20, 4, "", "O(x)" },

    /* SGLang's and TGI's own */

    { "sglang", 1,
      "data: {\"text\":\"a\",\"output_ids\":[1],\"meta_info\":{\"id\":\"x\","
      "\"finish_reason\":null,\"prompt_tokens\":30,\"completion_tokens\":1,"
      "\"cached_tokens\":16}}\n|\n"
      "data: {\"text\":\"ab\",\"output_ids\":[2],\"meta_info\":{\"id\":\"x\","
      "\"finish_reason\":{\"type\":\"stop\"},\"prompt_tokens\":30,"
      "\"completion_tokens\":2,\"cached_tokens\":16}}\n\n", 30, 16, 2, "",
      "" },

    { "sglang batch", 0,
      "[|{\"text\":\"a\",\"meta_info\":{\"prompt_tokens\":3,"
      "\"cached_tokens\":0,\"completion_tokens\":1}}]", 3, 0, 1, "", "" },

    { "tgi", 1,
      "data:{\"index\":1,\"token\":{\"id\":1,\"text\":\"a\"},"
      "\"generated_text\":null,\"details\":null}\n|\n"
      "data:{\"index\":2,\"token\":{\"id\":1,\"text\":\"a\"},"
      "\"generated_text\":\"aa\",\"details\":{\"finish_reason\":\"length\","
      "\"generated_tokens\":2,\"input_length\":17}}\n\n", 17, -1, 2, "", "" },

    /* nonsense */

    { "more cached than there is", 0,
      "{|\"usage\":{\"prompt_tokens\":3,\"prompt_tokens_details\":"
      "{\"cached_tokens\":9}}}", 3, 3, -1, "", "" },
    { "numbers that are none", 0,
      "{|\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":\"4\","
      "\"prompt_tokens_details\":[{\"cached_tokens\":9}]}}", -1, -1, -1, "",
      "" },
    { "large numbers", 0,
      "{|\"usage\":{\"prompt_tokens\":99999999999999999999,"
      "\"completion_tokens\":4.7}}", -1, -1, 4, "", "" },
    { "no object", 0, "<|html><body>{}</body></html>", -1, -1, -1, "", "" },
    { "cut short", 0, "{|\"usage\":{\"prompt_tokens\":3", -1, -1, -1, "", "" },
    { "no line end", 1, "data: {\"usage\":{\"prompt_tokens\":3}}", 3, -1, -1,
      "", "" },
    { "escaped key", 0, "{|\"us\\u0061ge\":{\"prompt_tokens\":3},"
      "\"a key that is much too long to be looked for\":1}", -1, -1, -1, "",
      "" },
    { "open brackets", 0, "{|\"a\":{\"usage\":{\"prompt_tokens\":1}},"
      "\"b\":[{\"usage\":{\"prompt_tokens\":2}}]}", -1, -1, -1, "", "" },
};

#define SAMPLES  (sizeof(samples) / sizeof(samples[0]))


typedef struct {
    util_buf_t          text;
    int                 open;
} reply_t;


/* writes parts as "C(text)", whatever the pieces */
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


/* the marker comes out; returns where it was */
static size_t
text(const char *s, uint8_t *out, size_t *len)
{
    size_t       n;
    const char  *bar;

    n = strlen(s);
    bar = strchr(s, '|');
    *len = n;

    if (bar == NULL) {
        memcpy(out, s, n);
        return NONE;
    }

    memcpy(out, s, (size_t) (bar - s));
    memcpy(out + (bar - s), bar + 1, n - (size_t) (bar - s) - 1);
    *len = n - 1;

    return (size_t) (bar - s);
}


/* feeds a copy of the exact size, to see what is read beyond it */
static void
feed(kvr_response_t *u, const uint8_t *p, size_t len, reply_t *r)
{
    uint8_t  *copy;

    copy = malloc(len ? len : 1);
    memcpy(copy, p, len);

    (void) kvr_response_read(u, copy, len, r ? sink : NULL, r);
    free(copy);
}


static void
check(const sample_t *s, kvr_response_t *u, kvr_response_mode_e mode,
    reply_t *r)
{
    kvr_tokens_t  t;

    kvr_response_tokens(u, &t);

    util_check(u->first == (strchr(s->text, '|') != NULL
                            || (s->stream && strcmp(s->name, "no line end")
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


/* every sample, byte by byte, and cut in three at every place */
TEST(test_usage_split)
{
    size_t          i, a, b, at, len, step;
    reply_t         r;
    uint8_t         data[4096];
    unsigned        mode;
    kvr_response_t  u;

    memset(&r, 0, sizeof(r));

    for (i = 0; i < SAMPLES; i++) {

        at = text(samples[i].text, data, &len);

        for (mode = 0; mode <= KVR_RESPONSE_REPLY; mode++) {

            kvr_response_init(&u, mode, samples[i].stream);
            r.text.len = 0;
            r.open = 0;

            for (a = 0; a < len; a++) {
                feed(&u, data + a, 1, mode == KVR_RESPONSE_REPLY ? &r : NULL);

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

                    feed(&u, data, a, mode == KVR_RESPONSE_REPLY ? &r : NULL);
                    util_check(u.first == (a >= at), "%s: %zu",
                               samples[i].name, a);

                    feed(&u, data + a, b - a,
                         mode == KVR_RESPONSE_REPLY ? &r : NULL);
                    feed(&u, data + b, len - b,
                         mode == KVR_RESPONSE_REPLY ? &r : NULL);

                    kvr_response_end(&u, mode == KVR_RESPONSE_REPLY ? sink
                                     : NULL, &r);
                    check(&samples[i], &u, mode, &r);
                }
            }
        }
    }

    util_drop(&r.text);
}


/* several samples one after another in one stream, in random pieces */
TEST(test_usage_random)
{
    size_t          off, n, len;
    uint8_t         data[4096];
    unsigned        i, k;
    reply_t         whole, pieces;
    util_rng_t      r;
    util_buf_t      b;
    kvr_response_t  u, v;

    memset(&b, 0, sizeof(b));
    memset(&whole, 0, sizeof(whole));
    memset(&pieces, 0, sizeof(pieces));

    for (i = 0; i < util_cases(20000); i++) {

        util_seed(&r, "usage random", i);
        b.len = 0;

        for (k = 1 + util_below(&r, 4); k; k--) {
            n = util_below(&r, SAMPLES);

            (void) text(samples[n].text, data, &len);
            util_put(&b, data, len);
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
    util_drop(&whole.text);
    util_drop(&pieces.text);
}


/* whose error it is, early and late */

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

    /* older llama.cpp's, TGI's, Anthropic's, of Responses */

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

    /* none */

    { "data: {\"error\":\"\",\"code\":500}\n\n", 1, KVR_RESPONSE_NO_ERROR },
    { "data: {\"error\":null,\"code\":500}\n\n", 1, KVR_RESPONSE_NO_ERROR },
    { "{\"id\":\"resp_1\",\"error\":null,\"code\":500}", 0,
      KVR_RESPONSE_NO_ERROR },
};


TEST(test_usage_error)
{
    size_t          i, n, len, step;
    unsigned        mode, late;
    util_buf_t      b;
    kvr_response_t  u;

    memset(&b, 0, sizeof(b));

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


/* what is long is not read to its end */
/* lines that differ in their text only are not parsed again: nor otherwise */
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
    util_check(t.prompt == -1, "nothing");
}


TEST(test_usage_header)
{
    kvr_response_t  u;
    kvr_tokens_t    t;

#define header(n, v)                                                          \
    kvr_response_header(&u, (const uint8_t *) n, sizeof(n) - 1,               \
                        (const uint8_t *) v, sizeof(v) - 1)

    kvr_response_init(&u, KVR_RESPONSE_TOKENS, 0);

    header("x-prompt-tokens", "12x");
    header("x-prompt-tokens", "");
    header("x-prompt-tokens", "99999999999");
    header("x-prompt-token", "5");
    kvr_response_tokens(&u, &t);
    util_check(t.prompt == -1, "%ld", (long) t.prompt);

    header("x-prompt-tokens", "12");
    header("x-generated-tokens", "3");
    kvr_response_tokens(&u, &t);
    util_check(t.prompt == 12 && t.completion == 3 && t.cached == -1, "TGI");
}
