
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Pins the chains.  Workers of different builds share them while a module is
 * replaced, and so do routers with the same secret.  So an optimization must
 * not change them.  The values are those of the first build.
 */


#include "util.h"


#define PINNED_MAX  8192


typedef struct {
    const char  *name;
    const char  *piece[4];
    unsigned     messages;
    unsigned     pieces;         /* bytes of text in a message */
    uint64_t     value;
} pinned_t;


static const pinned_t  pinned[] = {
    { "prose", { "the router ", "keeps prompts. ", "Then\\n", "it waits " },
      9, 300, 0x0b4a39256c5db458ULL },
    { "code", { "if (a == \\\"b\\\") {\\n", "\\t\\treturn 1;\\n",
                "path = \\\"C:\\\\\\\\x\\\";", "\\/\\u003c\\\\u" },
      7, 200, 0x5b099eb01b458eceULL },
    { "escaped", { "\\u043f\\u0440", "\\ud83d\\ude42", "a\\u00e9 ", "\\ud800" },
      5, 100, 0xe576ce110a05bfcdULL },
    { "multibyte", { "\xd0\xbf\xd1\x80", "\xe6\xa8\xa1", " ", "\xc3\xa9" },
      5, 400, 0x1a590db21e5a90f1ULL },
    { "backslashes", { "\\\\", "\\\\\\\\", "\\\\\\\"", "\\\\x" },
      5, 150, 0x43aac64a95d03e69ULL },
    { "small", { "yes ", "no ", "why? ", "ok" },
      300, 3, 0x954d22c8489944cdULL },
};


/* messages in all forms that clients use */
static void
pinned_message(util_buf_t *b, unsigned i)
{
    static const char  *const  form[] = {
        "{\"role\":\"user\",\"content\":\"",
        "{\"role\": \"assistant\", \"content\": \"",
        "{ \"content\":\"",
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"",
        "{\"role\":\"tool\",\"content\":\""
    };

    util_puts(b, i ? "," : "");
    util_puts(b, form[i % 5]);
}


static void
pinned_message_end(util_buf_t *b, unsigned i)
{
    static const char  *const  form[] = {
        "\"}", "\", \"tool_calls\": [{\"function\":{\"name\":\"f\","
               "\"arguments\":\"{\\\"a\\\": 1}\"}}]}",
        "\",\"role\":\"user\"}", "\"}]}", "\" , \"name\":\"g\"}"
    };

    util_puts(b, form[i % 5]);
}


static void
pinned_chain(unsigned _i)
{
    unsigned           i, k, n;
    uint64_t           sum, *digests, *chain;
    util_buf_t         b = { 0 };
    util_rng_t         r = { 0 };
    util_feed_t        f;
    kvr_prompt_t       pr;
    const pinned_t    *p;
    kvr_prompt_conf_t  conf = { 0 };

    p = &pinned[_i / 2];

    if (!util_kernel((unsigned) _i % 2)) {
        return;
    }

    r.state = 42;

    util_puts(&b, "{\"model\":\"m\",\"messages\":[");

    for (i = 0; i < p->messages; i++) {

        pinned_message(&b, i);

        n = p->pieces + i % 7;

        for (k = 0; k < n; k++) {
            r.state = r.state * 6364136223846793005ULL + 1;
            util_puts(&b, p->piece[r.state >> 62]);
        }

        pinned_message_end(&b, i);
    }

    util_puts(&b, "]}");

    digests = malloc(PINNED_MAX * sizeof(uint64_t));
    chain = malloc(PINNED_MAX * sizeof(uint64_t));

    conf.secret = util_secret;
    conf.path = (const uint8_t *) "/v1/chat/completions";
    conf.path_len = 20;
    conf.digests = digests;
    conf.max_digests = PINNED_MAX;
    conf.chain = chain;
    conf.max_chain = PINNED_MAX;

    util_feed(&f, b.p, b.len, UTIL_WHOLE, 0);

    util_check(kvr_prompt_read(&pr, &conf, util_fetch, &f) == KVR_OK, "read");

    sum = util_mix(pr.root, pr.bytes);

    for (i = 0; i < pr.n; i++) {
        sum = util_mix(sum, chain[i]);
    }

    util_check(sum == p->value, "%s, %s: 0x%016lx", p->name,
               util_kernel_name(), (unsigned long) sum);

    util_unfeed(&f);
    util_drop(&b);
    free(digests);
    free(chain);
}


TEST(test_pinned_chain)
{
    unsigned  i;

    for (i = 0; i < 2 * kvr_nelts(pinned); i++) {
        pinned_chain(i);
    }
}
