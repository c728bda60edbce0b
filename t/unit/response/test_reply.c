
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests kvr_reply: the values of a reply equal those in the chain of the next
 * request, which contains the reply.
 */


#include "util.h"
#include "core/response/kvr_reply.h"


static uint64_t  digests[4096], chain[4096], later[4096];


static void
prompt(kvr_prompt_t *pr, const util_buf_t *b, uint64_t *to)
{
    kvr_json_text_t    text;
    kvr_prompt_conf_t  conf = { 0 };

    conf.secret = util_secret;
    conf.path = (const uint8_t *) "/v1/chat/completions";
    conf.path_len = 20;
    conf.digests = digests;
    conf.max_digests = 4096;
    conf.chain = to;
    conf.max_chain = 4096;

    text.data = b->p;
    text.len = b->len;

    util_check(kvr_prompt_read(pr, &conf, kvr_json_fetch_text, &text)
               == KVR_OK, "%.*s", (int) b->len, b->p);
}


/* Puts text of a JSON string in one of several spellings. */
static void
words(util_buf_t *a, util_buf_t *b, util_rng_t *r, unsigned n)
{
    unsigned  k;

    static const char  *spell[][2] = {
        { "word ", "word " }, { "\\n", "\\n" }, { "\\\"q\\\"", "\\\"q\\\"" },
        { "\\\\", "\\\\" }, { "\xc3\xa9", "\\u00e9" }, { "\\u00e9",
        "\xc3\xa9" }, { "\\/", "/" }, { "\xf0\x9f\x98\x80",
        "\\ud83d\\ude00" }, { "\\uD83D\\uDE00", "\xf0\x9f\x98\x80" },
        { "\\u0009", "\\t" }, { "\\ud83dx", "\\ud83dx" },
        { "\\ud83d\\n", "\\ud83d\\n" }, { "a rather longer run of text, "
        "with nothing in it", "a rather longer run of text, with nothing in "
        "it" }
    };

    while (n--) {
        k = util_below(r, sizeof(spell) / sizeof(spell[0]));
        util_puts(a, spell[k][0]);
        util_puts(b, spell[k][1]);
    }
}


static void
feed(kvr_reply_t *rep, kvr_response_part_e part, const util_buf_t *b,
    util_rng_t *r)
{
    size_t  n, off;

    for (off = 0; off < b->len; off += n) {
        n = 1 + util_below(r, (unsigned) kvr_min(b->len - off, 30));
        kvr_reply_part(rep, part, b->p + off, n);

        /* an event ends between strings, never inside an escape */

        if (part != KVR_RESPONSE_CALL && util_below(r, 4) == 0 && off + n
            < b->len
            && rep->escape_len == 0)
        {
            kvr_reply_part(rep, part, NULL, 0);
        }
    }

    kvr_reply_part(rep, part, NULL, 0);
}


TEST(test_reply_random)
{
    unsigned      i, k, n, calls, parts, learned;
    util_buf_t    first = { 0 }, next = { 0 }, a = { 0 }, b = { 0 };
    util_rng_t    r;
    kvr_reply_t   rep;
    kvr_prompt_t  pr, qr;

    learned = 0;

    for (i = 0; i < util_cases(3000); i++) {

        util_seed(&r, "reply", i);
        parts = util_below(&r, 2);
        calls = util_below(&r, 3);
        n = util_below(&r, 60);

        first.len = 0;
        util_puts(&first, "{\"model\":\"m\",\"messages\":[{\"role\":\"system\","
                          "\"content\":\"");

        for (k = util_below(&r, 900); k; k--) {
            util_puts(&first, "sys ");
        }

        util_puts(&first, "\"},{\"role\":\"user\",\"content\":\"go\"}");
        next.len = 0;
        util_put(&next, first.p, first.len);
        util_puts(&first, "]}");

        prompt(&pr, &first, chain);
        util_check(pr.tailed, "tail");
        util_check(kvr_reply_init(&rep, &pr, util_secret, parts)
                   == KVR_OK, "init");

        util_puts(&next, ",{\"role\":\"assistant\",\"content\":");
        util_puts(&next, parts ? "[{\"type\":\"text\",\"text\":\"" : "\"");

        a.len = b.len = 0;
        util_puts(&a, "Well, ");
        util_puts(&b, "Well, ");
        words(&a, &b, &r, n);
        util_put(&next, b.p, b.len);
        feed(&rep, KVR_RESPONSE_CONTENT, &a, &r);

        util_puts(&next, parts ? "\"}" : "\"");

        if (!parts && calls) {
            util_puts(&next, ",\"tool_calls\":[");
        }

        for (k = 0; k < calls; k++) {

            a.len = b.len = 0;
            util_puts(&a, "ls");
            feed(&rep, KVR_RESPONSE_CALL, &a, &r);

            a.len = 0;

            if (parts) {
                util_puts(&a, "{\\\"x y\\\": [1 , {\\\"z\\\" : \\\"\\\\\\\"  "
                              "s\\\"}]}");
                feed(&rep, KVR_RESPONSE_INPUT, &a, &r);
                util_puts(&next, ",{\"type\":\"tool_use\",\"id\":\"t\","
                                 "\"name\":\"ls\",\"input\":{\"x y\":[1,"
                                 "{\"z\":\"\\\"  s\"}] }}");
            } else {
                util_puts(&a, "{\\\"x\\\": \\\"");
                util_put(&b, a.p, a.len);
                words(&a, &b, &r, util_below(&r, 30));
                util_puts(&a, "\\\"}");
                util_puts(&b, "\\\"}");
                feed(&rep, KVR_RESPONSE_ARGUMENTS, &a, &r);
                util_puts(&next, k ? "," : "");
                util_puts(&next, "{\"id\":\"c\",\"type\":\"function\","
                                 "\"function\":{\"name\":\"ls\","
                                 "\"arguments\":\"");
                util_put(&next, b.p, b.len);
                util_puts(&next, "\"}}");
            }
        }

        util_puts(&next, parts ? "]" : calls ? "]" : "");
        util_puts(&next, "},{\"role\":\"user\",\"content\":\"");

        for (k = 0; k < 800; k++) {
            util_puts(&next, "on ");
        }

        util_puts(&next, "\"}]}");

        prompt(&qr, &next, later);

        util_check(!rep.bad, "%.*s", (int) kvr_min(next.len - first.len, 900),
                       next.p + first.len - 2);
        util_check(rep.first == pr.n && memcmp(chain, later,
                                               pr.n * sizeof(uint64_t)) == 0,
                   "prompt");
        util_check(rep.n <= qr.n - pr.n, "%u %u", rep.n, qr.n - pr.n);

        for (k = 0; k < rep.n; k++) {
            util_check(rep.value[k] == later[pr.n + k],
                       "entry %u of %u, parts %u, calls %u: %.*s", k, rep.n,
                       parts, calls,
                       (int) kvr_min(next.len - first.len, 900),
                       next.p + first.len - 2);
        }

        learned += rep.n;
    }

    util_check(learned > i / 2, "%u entries of %u replies", learned, i);

    util_drop(&first);
    util_drop(&next);
    util_drop(&a);
    util_drop(&b);
}


TEST(test_reply_bad)
{
    util_buf_t    b = { 0 };
    kvr_reply_t   rep;
    kvr_prompt_t  pr;

    util_puts(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    prompt(&pr, &b, chain);

#define piece(part, s)                                                        \
    kvr_reply_part(&rep, part, (const uint8_t *) s, sizeof(s) - 1)

    kvr_reply_init(&rep, &pr, util_secret, 0);
    piece(KVR_RESPONSE_REASONING, "hm");
    util_check(rep.bad, "reasoning");

    kvr_reply_init(&rep, &pr, util_secret, 0);
    kvr_reply_part(&rep, KVR_RESPONSE_REASONING, NULL, 0);
    util_check(!rep.bad, "empty reasoning");

    kvr_reply_init(&rep, &pr, util_secret, 0);
    kvr_reply_part(&rep, KVR_RESPONSE_OTHER, NULL, 0);
    util_check(rep.bad, "a second choice");

    kvr_reply_init(&rep, &pr, util_secret, 0);
    piece(KVR_RESPONSE_CONTENT, "a\\x");
    util_check(rep.bad, "invalid escape");

    kvr_reply_init(&rep, &pr, util_secret, 0);
    piece(KVR_RESPONSE_CONTENT, "a\\u00");
    kvr_reply_part(&rep, KVR_RESPONSE_CONTENT, NULL, 0);
    util_check(rep.bad, "half an escape");

    b.len = 0;
    util_puts(&b, "{\"prompt\":\"x\"}");
    prompt(&pr, &b, chain);
    util_check(kvr_reply_init(&rep, &pr, util_secret, 0) == KVR_DECLINED,
               "no chat");

    util_drop(&b);
}
