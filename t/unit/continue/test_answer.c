
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_answer, kvr_again: an answer in several parts, cut anywhere, becomes one
 * answer; the body for a further part is the client's, with the text so far
 * after its prompt.
 */


#include "util.h"
#include "core/continue/kvr_again.h"



static uint8_t  text[4096];


static void
put(void *data, const uint8_t *p, size_t len)
{
    util_put(data, p, len);
}


static void
init(kvr_answer_t *a, kvr_answer_api_e api)
{
    memset(a, 0, sizeof(kvr_answer_t));

    a->api = (uint8_t) api;
    a->text = text;
    a->size = sizeof(text);
}


static void
event(kvr_answer_t *a, util_buf_t *out, const char *data)
{
    util_buf_t  b = { 0 };

    util_printf(&b, "data: %s\n\n", data);
    kvr_answer_event(a, b.p, b.len, put, out);
    util_drop(&b);
}


static void
content(kvr_answer_t *a, util_buf_t *out, const char *id, const char *s)
{
    util_buf_t  b = { 0 };

    util_printf(&b, "{\"id\":\"%s\",\"created\":%d,\"model\":\"%s\",\"choices\":"
                "[{\"index\":0,\"delta\":{\"content\":\"%s\"},"
                "\"finish_reason\":null}]}", id, id[0], id, s);
    util_byte(&b, 0);
    event(a, out, (const char *) b.p);
    util_drop(&b);
}


static void
is(util_buf_t *out, const char *want)
{
    util_byte(out, 0);
    util_check(strcmp((const char *) out->p, want) == 0, "%s", out->p);
    out->len = 0;
}


#define EVENT(id, created, content)                                           \
    "data: {\"id\":\"" id "\",\"created\":" created ",\"model\":\"" id        \
    "\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" content          \
    "\"},\"finish_reason\":null}]}\n\n"


TEST(test_answer_scan)
{
    size_t       from;
    const char  *s = "data: a\r\n\r\nx\n\n";

    for (size_t n = 0; n <= 14; n++) {
        from = 0;
        util_check(kvr_answer_scan((const uint8_t *) s, n, &from)
                   == (n < 11 ? 0 : 11), "%zu", n);
    }

    /* byte by byte, from the old place */

    for (size_t n = 0, i = from = 0; n <= 11; n++) {
        i = kvr_answer_scan((const uint8_t *) s, n, &from);
        util_check((i != 0) == (n == 11), "%zu", n);
    }
}


TEST(test_answer_parts)
{
    util_buf_t    out = { 0 };
    kvr_answer_t  a;

    init(&a, KVR_ANSWER_CHAT);

    event(&a, &out, "{\"id\":\"A\",\"created\":65,\"model\":\"A\",\"choices\":"
          "[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
    out.len = 0;

    content(&a, &out, "A", "one");
    is(&out, EVENT("A", "65", "one"));

    kvr_answer_next(&a);

    /* the role is not sent twice, alone or with a text */

    event(&a, &out, "{\"id\":\"BB\",\"choices\":[{\"delta\":{\"role\":"
          "\"assistant\",\"content\":null}}]}");
    is(&out, "");

    event(&a, &out, "{\"choices\":[{\"delta\":{\"content\":\"x\",\"role\":"
          "\"assistant\"}}],\"id\":\"BB\"}");
    is(&out, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],"
       "\"id\":\"A\"}\n\n");

    content(&a, &out, "BB", "two");
    is(&out, EVENT("A", "65", "two"));

    event(&a, &out, "{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,"
          "\"total_tokens\":11,\"prompt_tokens_details\":{\"cached_tokens\":9}"
          "},\"choices\":[]}");
    is(&out, "data: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":3,"
       "\"total_tokens\":11,\"prompt_tokens_details\":{\"cached_tokens\":8}"
       "},\"choices\":[]}\n\n");

    event(&a, &out, "[DONE]");
    is(&out, "data: [DONE]\n\n");
    event(&a, &out, "[DONE]");
    is(&out, "");

    util_check(a.done && a.given == 7 && memcmp(text, "onextwo", 7) == 0,
               "%.*s", (int) a.given, text);
    util_drop(&out);
}


/* an incomplete character is kept back until it is complete */
TEST(test_answer_characters)
{
    util_buf_t    out = { 0 };
    kvr_answer_t  a;

    static const char *const  halves[][2] = {
        { "\xe2\x82", "\xac" },
        { "x\xf0\x9f\x98", "\x80" },
        { "\xc3", "\xa9" },
        { "\\ud83d", "\\ude00" }
    };

    for (size_t i = 0; i < kvr_nelts(halves); i++) {
        init(&a, KVR_ANSWER_CHAT);

        content(&a, &out, "A", "a");
        out.len = 0;
        content(&a, &out, "A", halves[i][0]);
        util_check(out.len == 0 && a.given == 1, "%zu", i);

        if (i % 2) {
            content(&a, &out, "A", halves[i][1]);
            util_check(a.given == 1 + strlen(halves[i][0])
                                  + strlen(halves[i][1]), "%zu", i);
            util_check(out.len > 100, "both events are put");

        } else {

            /* another engine writes the whole character */

            kvr_answer_next(&a);
            util_check(a.len == 1, "%zu", a.len);
            content(&a, &out, "B", "\xe2\x82\xac");
            is(&out, EVENT("A", "65", "\xe2\x82\xac"));
        }

        out.len = 0;
    }

    /* in more than two */

    init(&a, KVR_ANSWER_CHAT);
    content(&a, &out, "A", "\xf0\x9f");
    content(&a, &out, "A", "\x98");
    util_check(out.len == 0 && a.given == 0, "three of four bytes");

    util_drop(&out);
}


TEST(test_answer_ends)
{
    util_buf_t    out = { 0 };
    kvr_answer_t  a;

    /* only the final event is missing */

    init(&a, KVR_ANSWER_CHAT);
    event(&a, &out, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}");
    out.len = 0;
    kvr_answer_end(&a, 0, put, &out);
    is(&out, "data: [DONE]\n\n");

    /* all tokens were sent */

    init(&a, KVR_ANSWER_COMPLETION);
    event(&a, &out, "{\"id\":\"i\",\"model\":\"m\",\"created\":1,\"choices\":"
          "[{\"text\":\"x\"}]}");
    out.len = 0;
    kvr_answer_end(&a, 1, put, &out);
    is(&out, "data: {\"id\":\"i\",\"object\":\"text_completion\",\"created\":1,"
       "\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"\","
       "\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n");

    /* an error is kept back; the client gets it if no engine continues */

    for (int continued = 0; continued < 2; continued++) {
        init(&a, KVR_ANSWER_CHAT);
        event(&a, &out, "{\"error\":{\"code\":500}}");
        util_check(a.failed && out.len == 0, "held");

        if (continued) {
            kvr_answer_next(&a);
            util_check(!a.failed, "a further part");
        }

        kvr_answer_end(&a, 0, put, &out);
        util_byte(&out, 0);
        util_check((strstr((char *) out.p, "broke off") != NULL) == continued
                   && strstr((char *) out.p, "[DONE]\n\n"), "%s", out.p);
        out.len = 0;
    }

    event(&a, &out, "{\"error\":{\"code\":400}}");
    util_check(a.done && out.len, "the client's fault");

    util_drop(&out);
}


/* after events of broken engines, each event for the client is well formed */
TEST(test_answer_odd)
{
    util_buf_t    out = { 0 };
    kvr_answer_t  a;

    /* the first invalid name is not the answer's */

    init(&a, KVR_ANSWER_CHAT);
    content(&a, &out, "", "x");
    content(&a, &out, "A", "x");

    /* more tokens than possible do not count */

    event(&a, &out, "{\"usage\":{\"completion_tokens\":1000000000000000000}}");
    util_check(a.tokens == 2, "%d", (int) a.tokens);
    kvr_answer_next(&a);
    out.len = 0;

    /* a name of another type is unchanged */

    event(&a, &out, "{\"id\":7,\"model\":{},\"created\":true}");
    is(&out, "data: {\"id\":7,\"model\":{},\"created\":true}\n\n");
    event(&a, &out, "{\"id\":\"\",\"model\":\"B\"}");
    is(&out, "data: {\"id\":\"A\",\"model\":\"A\"}\n\n");

    /* errors of the engine: overload, or without a message */

    for (int i = 0; i < 2; i++) {
        init(&a, KVR_ANSWER_CHAT);

        if (i) {
            kvr_answer_event(&a, (const uint8_t *) "event: error\n\n", 14, put,
                             &out);
        } else {
            event(&a, &out, "{\"error\":{\"code\":429}}");
        }

        util_check(a.failed && out.len == 0, "%d", i);
    }

    util_drop(&out);
}


/* answers and requests that cannot be continued */
TEST(test_answer_refusals)
{
    util_buf_t        out = { 0 };
    kvr_again_t       b;
    kvr_answer_t      a;
    kvr_answer_cut_e  cut;

    static const struct {
        const char        *json;
        kvr_answer_cut_e   cut;
    } events[] = {
        { "{\"choices\":[{\"index\":1,\"delta\":{}}]}", KVR_ANSWER_CHOICES },
        { "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}",
          KVR_ANSWER_TOOLS },
        { "{\"choices\":[{\"delta\":{\"reasoning\":\"r\"}}]}",
          KVR_ANSWER_REASONING },
        { "{\"choices\":[{\"delta\":{\"images\":[1]}}]}", KVR_ANSWER_MEDIA },
        { "{\"choices\":[{\"logprobs\":{\"a\":1}}]}", KVR_ANSWER_LOGPROBS },
        { "{\"choices\":[{\"logprobs\":null,\"delta\":{\"tool_calls\":[],"
          "\"reasoning\":null}}]}", KVR_ANSWER_WHOLE },
        { "{not JSON", KVR_ANSWER_EVENT }
    }, requests[] = {
        { "{\"messages\":[{\"role\":\"user\"}]}", KVR_ANSWER_WHOLE },
        { "{\"messages\":[{\"role\":\"user\"},{\"role\":\"assistant\"}]}",
          KVR_ANSWER_REQUEST },
        { "{\"messages\":[]}", KVR_ANSWER_REQUEST },
        { "{\"prompt\":\"x\"}", KVR_ANSWER_REQUEST },
        { "{\"messages\":[{\"role\":\"user\"}]", KVR_ANSWER_REQUEST },
        { "{\"n\":2,\"messages\":[{\"role\":\"user\"}]}", KVR_ANSWER_CHOICES },
        { "{\"\\u006e\":2,\"messages\":[{\"role\":\"user\"}]}",
          KVR_ANSWER_CHOICES },
        { "{\"n\":1,\"best_of\":3}", KVR_ANSWER_CHOICES },
        { "{\"logprobs\":true}", KVR_ANSWER_LOGPROBS },
        { "{\"structured_outputs\":{}}", KVR_ANSWER_STRUCTURED },
        { "{\"echo\":true}", KVR_ANSWER_REQUEST },
        { "{\"max_tokens\":\"9\"}", KVR_ANSWER_REQUEST },
        { "{\"max_tokens\":1e3}", KVR_ANSWER_REQUEST },
        { "{\"add_generation_prompt\":false}", KVR_ANSWER_REQUEST }
    };

    for (size_t i = 0; i < kvr_nelts(events); i++) {
        init(&a, KVR_ANSWER_CHAT);
        event(&a, &out, events[i].json);
        util_check(a.cut == events[i].cut, "%s", events[i].json);
    }

    for (size_t i = 0; i < kvr_nelts(requests); i++) {
        init(&a, KVR_ANSWER_CHAT);
        content(&a, &out, "A", "x");

        cut = kvr_again_read(&b, &a, (const uint8_t *) requests[i].json,
                             strlen(requests[i].json));
        util_check(cut == requests[i].cut, "%s: %d", requests[i].json, cut);
    }

    util_drop(&out);
}


TEST(test_answer_bodies)
{
    util_buf_t    out = { 0 };
    kvr_again_t   b;
    kvr_answer_t  a;

    static const struct {
        kvr_answer_api_e  api;
        uint32_t          most;
        const char       *body;
        const char       *want;      /* NULL: the limit is reached */
    } cases[] = {
        { KVR_ANSWER_CHAT, 16,
          "{\"max_tokens\":10,\"messages\":[{\"role\":\"user\"}],\"min_tokens\":1}",
          "{\"max_tokens\":8,\"messages\":[{\"role\":\"user\"},{\"role\":"
          "\"assistant\",\"content\":\"a\\\"b\"}],\"min_tokens\":0,"
          "\"continue_final_message\":true,\"add_generation_prompt\":false}" },
        { KVR_ANSWER_COMPLETION, 16, "{\"prompt\":\"p\"}",
          "{\"prompt\":\"pa\\\"b\",\"max_tokens\":14}" },
        { KVR_ANSWER_COMPLETION, 0, "{\"prompt\":\"p\",\"n_predict\":-1}",
          "{\"prompt\":\"pa\\\"b\",\"n_predict\":-1}" },
        { KVR_ANSWER_COMPLETION, 2, "{\"prompt\":\"p\"}", NULL },
        { KVR_ANSWER_CHAT, 16,
          "{\"messages\":[{\"role\":\"user\"}],\"max_completion_tokens\":2}",
          NULL }
    };

    for (size_t i = 0; i < kvr_nelts(cases); i++) {
        init(&a, cases[i].api);
        content(&a, &out, "A", "a\\\"");
        content(&a, &out, "A", "b");
        out.len = 0;

        b.most = cases[i].most;

        util_check(kvr_again_read(&b, &a, (const uint8_t *) cases[i].body,
                                  strlen(cases[i].body)) == KVR_ANSWER_WHOLE,
                   "%s", cases[i].body);
        util_check(b.limit == (cases[i].want == NULL), "%s", cases[i].body);

        if (cases[i].want) {
            kvr_splice_put(&b.edits, (const uint8_t *) cases[i].body,
                           strlen(cases[i].body), put, &out);
            util_check(out.len <= strlen(cases[i].body) + a.given
                                  + KVR_AGAIN_MORE, "%zu", out.len);
            is(&out, cases[i].want);
        }
    }

    util_drop(&out);
}


/* arbitrary bytes from an engine or a client */
TEST(test_answer_random)
{
    util_rng_t    rng;
    util_buf_t    out = { 0 }, in = { 0 };
    kvr_again_t   b;
    kvr_answer_t  a;

    static const char *const  pieces[] = {
        "{", "}", "[", "]", ":", ",", "\"", "data: ", "\n", "\n\n", "\"id\":",
        "\"choices\":[{", "\"delta\":{", "\"content\":\"", "\\ud83d", "\xe2",
        "\"role\":\"assistant\"", "null", "12", "\"usage\":{", "\"prompt\":\"",
        "\"completion_tokens\":", "\"messages\":[{", "\"error\":{", "x"
    };

    for (unsigned i = 0; i < util_cases(20000); i++) {
        util_seed(&rng, "answer", i);
        init(&a, (kvr_answer_api_e) util_below(&rng, 2));

        for (unsigned k = 0; k < 6; k++) {
            in.len = 0;
            util_puts(&in, util_below(&rng, 2) ? "data: {" : "");

            for (unsigned m = util_below(&rng, 20); m; m--) {
                util_puts(&in, pieces[util_below(&rng, kvr_nelts(pieces))]);
            }

            if (k == 3) {
                kvr_answer_next(&a);
            }

            util_puts(&in, "\n\n");
            kvr_answer_event(&a, in.p, in.len, put, &out);
            util_check(a.given <= a.len && a.len <= a.size, "%zu", a.len);

            b.most = 16;

            if (kvr_again_read(&b, &a, in.p, in.len) == KVR_ANSWER_WHOLE) {
                kvr_splice_put(&b.edits, in.p, in.len, put, &out);
            }
        }

        out.len = 0;
    }

    util_drop(&out);
    util_drop(&in);
}


/* comparing an event gives the same as parsing it */
TEST(test_answer_same)
{
    util_rng_t    rng;
    util_buf_t    out = { 0 }, want = { 0 };
    kvr_answer_t  a, b;
    static uint8_t  other[4096];

    static const char *const  texts[] = {
        "a", " word", "\\n", "\\\"", "\xe2\x82", "\xac", "\\ud83d", "\\ude00", "",
        "\xc3\xa9", "x\"},\"finish_reason\":\"stop", "\"},\"index\":1,\"delta\":{"
        "\"content\":\"y"
    };

    for (unsigned i = 0; i < util_cases(2000); i++) {
        util_seed(&rng, "same", i);
        init(&a, KVR_ANSWER_CHAT);
        init(&b, KVR_ANSWER_CHAT);
        b.text = other;

        for (unsigned k = 0; k < 12; k++) {
            unsigned  t = util_below(&rng, util_below(&rng, 2) ? 2
                                           : kvr_nelts(texts));

            content(&a, &out, "A", texts[t]);
            b.after = 0;
            content(&b, &want, "A", texts[t]);

            util_check(out.len == want.len
                       && memcmp(out.p, want.p, out.len) == 0, "%u.%u", i, k);
            util_check(a.given == b.given && a.len == b.len
                       && a.tokens == b.tokens && a.cut == b.cut
                       && a.finished == b.finished && a.held == b.held
                       && memcmp(text, other, a.len) == 0, "%u.%u", i, k);
        }

        out.len = want.len = 0;
    }

    util_drop(&out);
    util_drop(&want);
}
