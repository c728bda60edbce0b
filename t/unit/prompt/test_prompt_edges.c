
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests truncated bodies, too little memory, and hostile bodies.
 *
 * The chain of a truncated body is a prefix of the whole body's.  Exceptions:
 * a model, a root value, system text or tools at or after the cut; and a last
 * message with keys out of order, because its first keys were hashed as if no
 * others followed.
 */


#include "bodies.h"
#include "oracle.h"


typedef struct {
    uint64_t      served;
    unsigned      calls;
    int           rc;
    kvr_prompt_t  pr;
} cost_t;


static const char *const  apis[] = {
    "{\"model\":\"m\",\"cache_salt\":\"x\",\"tools\":[{\"a\":1}],\"system\":"
    "[{\"type\":\"text\",\"text\":\"@@@\"}],\"messages\":[",

    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"@@\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\","
    "\"function\":{\"name\":\"f\",\"arguments\":\"@@\\n\\u00e9@\"}}]},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"@\"},"
    "{\"type\":\"image_url\",\"image_url\":{\"url\":\"@\"}},\"@\"]},"
    "{\"type\":\"reasoning\",\"content\":\"@@\"},{\"role\":\"user\","
    "\"content\":\"@\\ud83d\\ude00@\"}],\"stream\":true}",

    "{\"model\":\"m\",\"instructions\":\"@@\",\"input\":[{\"type\":"
    "\"function_call\",\"name\":\"f\",\"arguments\":\"@\"},{\"role\":\"user\","
    "\"content\":\"@@\"}]}",

    "{\"model\":\"m\",\"prompt\":\"@@@@\\n\\\"@\\/@\\u0041@\"}",
    "{\"model\":\"m\",\"prompt\":[\"@@@@\",\"@@\"],\"max_tokens\":5}",
    "{\"model\":\"m\",\"prompt\":[1, 22,333,[4,@@@@],5]}",
    "{\"model\":\"m\",\"prompt\":[[1, 22,333,@@@@],[4]]}",
    "{\"text_input\":\"@@@@\",\"parameters\":{\"max_new_tokens\":5}}"
};


/* "@" is 90 bytes of text */
static void
expand(util_buf_t *b, const char *s)
{
    unsigned    i;
    util_rng_t  r;

    b->len = 0;
    r.state = 1;

    for ( /* void */ ; *s; s++) {

        if (*s != '@') {
            util_byte(b, (uint8_t) *s);
            continue;
        }

        for (i = 0; i < 90; i++) {
            util_byte(b, '1' + util_below(&r, 9));
        }
    }
}


static void
conf_init(kvr_prompt_conf_t *conf)
{
    memset(conf, 0, sizeof(*conf));

    conf->path = (const uint8_t *) "/v1/chat/completions";
    conf->path_len = 20;
}


TEST(test_edges_cut)
{
    size_t                  i, k, from;
    uint32_t                n;
    util_buf_t              body = { 0 };
    kvr_prompt_conf_t       conf;

    static oracle_result_t  whole, cut;

    conf_init(&conf);

    for (i = 0; i < sizeof(apis) / sizeof(apis[0]); i++) {

        expand(&body, apis[i]);

        if (i == 0) {
            util_puts(&body, "{\"role\":\"user\",\"content\":\"");

            for (k = 0; k < 2000; k++) {
                util_byte(&body, 'a' + k % 17);
            }

            util_puts(&body, "\"}]}");
        }

        util_about(body.p, body.len);

        oracle_read(&whole, &conf, body.p, body.len, UTIL_WHOLE, 0);
        util_check(whole.rc == KVR_OK && whole.pr.n, "%d", whole.rc);

        /* model and root are complete from here on */

        from = i == 0 ? 68 : 12;
        n = 0;

        for (k = 0; k < body.len; k++) {

            util_note("api %zu cut at %zu", i, k);

            oracle_read(&cut, &conf, body.p, k, UTIL_STEP, 100);

            util_check(cut.rc == KVR_AGAIN, "%d", cut.rc);
            util_check(cut.pr.n <= whole.pr.n, "longer than all of it");
            util_check(cut.pr.extra <= whole.pr.extra, "extra %llu",
                       (unsigned long long) cut.pr.extra);
            util_check(cut.pr.bytes <= whole.pr.bytes, "bytes %llu",
                       (unsigned long long) cut.pr.bytes);

            if (k < from) {
                continue;
            }

            util_check(cut.pr.root == whole.pr.root, "root");
            util_check(cut.pr.n >= n, "less than before");

            n = cut.pr.n;

            util_check(memcmp(cut.chain, whole.chain, n * sizeof(uint64_t))
                       == 0, "no prefix");
        }

        util_check(n == whole.pr.n, "%u of %u", n, whole.pr.n);
    }

    util_drop(&body);
}


/* a part of any body is not an error */
TEST(test_edges_cut_random)
{
    size_t                  end, k;
    unsigned                i, c, tried;
    const char             *path;
    util_rng_t              r;
    util_buf_t              body = { 0 };
    kvr_prompt_conf_t       conf;

    static oracle_result_t  res;

    conf_init(&conf);
    tried = 0;

    for (i = 0; i < util_cases(1500); i++) {

        util_seed(&r, "edges cut", i);
        bodies_make(&r, &body, &path);
        util_about(body.p, body.len);

        oracle_read(&res, &conf, body.p, body.len, UTIL_WHOLE, 0);

        if (res.rc != KVR_OK) {
            continue;
        }

        end = body.len;

        while (body.p[end - 1] != '}') {
            end--;
        }

        for (c = 0; c < 4; c++) {
            k = util_below(&r, (unsigned) end);

            oracle_read(&res, &conf, body.p, k, UTIL_RANDOM, 500);
            util_check(res.rc == KVR_AGAIN, "%d, cut at %zu", res.rc, k);
            tried++;
        }
    }

    util_check(tried > util_cases(1500) * 2, "%u tried", tried);
    util_drop(&body);
}


/* a file that cannot be read ends the body */
static const uint8_t *
fetch_failing(void *data, uint64_t offset, size_t *len)
{
    util_feed_t    *f = data;
    const uint8_t  *p;

    p = util_fetch(data, offset, len);

    if (p && offset + *len > f->len / 2) {
        util_unfeed(f);
        *len = 0;
        return NULL;
    }

    return p;
}


static unsigned  fail_at;


static const uint8_t *
fetch_failing_at(void *data, uint64_t offset, size_t *len)
{
    util_feed_t    *f = data;
    const uint8_t  *p;

    p = util_fetch(data, offset, len);

    if (f->calls == fail_at) {
        util_unfeed(f);
        *len = 0;
        return NULL;
    }

    return p;
}


TEST(test_edges_fail)
{
    int                rc;
    size_t             i;
    unsigned           calls;
    uint64_t           digests[64], chain[64];
    util_buf_t         body = { 0 };
    util_feed_t        f;
    kvr_prompt_t       pr;
    kvr_prompt_conf_t  conf;

    conf_init(&conf);

    conf.secret = util_secret;
    conf.digests = digests;
    conf.max_digests = 64;
    conf.chain = chain;
    conf.max_chain = 64;

    for (i = 1; i < sizeof(apis) / sizeof(apis[0]); i++) {
        expand(&body, apis[i]);
        util_feed(&f, body.p, body.len, UTIL_STEP, 10);
        rc = kvr_prompt_read(&pr, &conf, fetch_failing, &f);
        util_check(rc == KVR_AGAIN, "%d", rc);
        util_unfeed(&f);

        util_feed(&f, body.p, body.len, UTIL_WHOLE, 0);
        rc = kvr_prompt_read(&pr, &conf, fetch_failing, &f);
        util_check(rc == KVR_AGAIN && pr.n == 0, "%d", rc);
        util_unfeed(&f);
    }

    /* at any call, also at a seek back; the last call asks for the end */

    for (i = 0; i < 2; i++) {

        body.len = 0;
        util_puts(&body, i == 0
                  ? "{\"messages\":[{\"content\":[{\"text\":\"abcdefghijkl\","
                    "\"type\":\"text\"}],\"role\":\"user\"}],\"x\":1}"
                  : "{\"system\":[{\"text\":\"x-anthropic-billing-head\","
                    "\"type\":\"text\"}],\"prompt\":[1,2],\"cache_salt\":12}");

        calls = 0;

        do {
            util_feed(&f, body.p, body.len, UTIL_STEP, 5);

            fail_at = ++calls;
            rc = kvr_prompt_read(&pr, &conf, fetch_failing_at, &f);

            util_check(rc == KVR_AGAIN || (rc == KVR_OK && f.calls <= calls),
                       "%d, call %u fails", rc, calls);
            util_unfeed(&f);

        } while (rc == KVR_AGAIN);

        util_check(calls > body.len / 5 * 2, "%u calls", calls);
    }

    util_drop(&body);
}


/* less memory gives a shorter chain, and nothing is written beyond it */
TEST(test_edges_memory)
{
    int                     rc;
    size_t                  i, n;
    util_buf_t              body = { 0 };
    util_feed_t             f;
    kvr_prompt_t            pr;
    kvr_prompt_conf_t       conf, cf;

    static oracle_result_t  whole;

    conf_init(&conf);

    for (i = 1; i < sizeof(apis) / sizeof(apis[0]); i++) {

        expand(&body, apis[i]);
        oracle_read(&whole, &conf, body.p, body.len, UTIL_WHOLE, 0);

        for (n = 0; n < 2 * whole.pr.blocks; n++) {

            util_note("api %zu, %zu digests", i, n);

            cf = conf;
            cf.secret = util_secret;
            cf.max_digests = n / 2 * 2 == n ? 1000 : n / 2;
            cf.max_chain = n / 2 * 2 == n ? n / 2 : 1000;
            cf.digests = malloc(cf.max_digests * sizeof(uint64_t));
            cf.chain = malloc(cf.max_chain * sizeof(uint64_t));

            util_feed(&f, body.p, body.len, UTIL_WHOLE, 0);
            rc = kvr_prompt_read(&pr, &cf, util_fetch, &f);
            util_unfeed(&f);

            util_check(rc == KVR_OK, "%d", rc);
            util_check(pr.n == kvr_min(n / 2, whole.pr.n), "%u entries", pr.n);
            util_check(pr.bytes == whole.pr.bytes, "bytes");
            util_check(pr.n == 0
                       || memcmp(cf.chain, whole.chain,
                                 pr.n * sizeof(uint64_t)) == 0,
                       "no prefix");

            free(cf.digests);
            free(cf.chain);
        }
    }

    util_drop(&body);
}


/* a prompt of some megabytes: sparse entries of the chain */
TEST(test_edges_long)
{
    size_t                  i;
    util_rng_t              r;
    util_buf_t              body = { 0 };
    oracle_stats_t          stats = { 0 };
    kvr_prompt_conf_t       conf;

    static oracle_result_t  res, other;

    conf_init(&conf);
    util_seed(&r, "edges long", 0);

    util_puts(&body, "{\"prompt\":\"");

    for (i = 0; i < 2097152; i++) {
        util_byte(&body, 'a' + util_below(&r, 26));
    }

    util_puts(&body, "\"}");

    oracle_read(&res, &conf, body.p, body.len, UTIL_WHOLE, 0);
    oracle_verify(&res, &conf, body.p, body.len, &stats);

    util_check(res.pr.blocks == 8192, "%u blocks", res.pr.blocks);
    util_check(res.pr.n == 1160, "%u entries", res.pr.n);

    oracle_read(&other, &conf, body.p, body.len, UTIL_STEP, 65536);
    oracle_same(&res, &other, "in windows");

    util_drop(&body);
}


static void
cost(const util_buf_t *body, util_cut_e cut, size_t n, cost_t *c)
{
    util_feed_t        f;
    kvr_prompt_conf_t  conf;

    static uint64_t    digests[20000], chain[4000];

    conf_init(&conf);

    conf.secret = util_secret;
    conf.digests = digests;
    conf.max_digests = 20000;
    conf.chain = chain;
    conf.max_chain = 4000;

    util_feed(&f, body->p, body->len, cut, n);

    c->rc = kvr_prompt_read(&c->pr, &conf, util_fetch, &f);
    c->served = f.served;
    c->calls = f.calls;

    util_unfeed(&f);
}


static void
repeat(util_buf_t *b, const char *head, const char *body, const char *tail,
    size_t len)
{
    b->len = 0;
    util_puts(b, head);

    while (b->len < len) {
        util_puts(b, body);
    }

    util_puts(b, tail);
}


static void
nest(util_buf_t *b, const char *head, const char *open, const char *close,
    const char *tail, size_t depth)
{
    size_t  i;

    b->len = 0;
    util_puts(b, head);

    for (i = 0; i < depth; i++) {
        util_puts(b, open);
    }

    for (i = 0; i < depth; i++) {
        util_puts(b, close);
    }

    util_puts(b, tail);
}


/*
 * The reader reads no body more often than its objects are deep, and no long
 * body more than four times.  A megabyte in quadratic time would not end.
 * Small windows are for shorter bodies.
 */
static void
hostile(const util_buf_t *body, const char *what, int rc, unsigned passes)
{
    size_t         i;
    cost_t         whole, c;
    uint64_t       most;
    const size_t  *sizes;

    static const size_t  small[] = { 64, 1 };
    static const size_t  large[] = { 65536, 4096 };

    sizes = body->len > 300000 ? large : small;

    util_note("%s", what);
    util_about(body->p, body->len);

    cost(body, UTIL_WHOLE, 0, &whole);

    /* costly bodies are rejected, unless they are short */

    if (whole.rc == KVR_ERROR && body->len > KVR_JSON_STEPS / 2) {
        rc = KVR_ERROR;
    }

    util_check(whole.rc == rc, "%s: %d", what, whole.rc);
    util_check(whole.calls <= 2, "%s: %u fetches of one piece", what,
               whole.calls);

    for (i = 0; i < 2; i++) {

        cost(body, UTIL_GRID, sizes[i], &c);

        /* a cut escape takes the slower code */

        if (sizes[i] == 1 && body->len > KVR_JSON_STEPS / 2
            && c.rc == KVR_ERROR)
        {
            continue;
        }

        util_check(c.rc == rc, "%s: %d in windows of %zu", what, c.rc,
                   sizes[i]);
        util_check(c.pr.root == whole.pr.root && c.pr.n == whole.pr.n
                   && c.pr.bytes == whole.pr.bytes,
                   "%s: another result in windows of %zu", what, sizes[i]);

        /* an object across two windows needs both */

        most = (uint64_t) (passes + 4) * (body->len / sizes[i] + 4) + 16;

        if (getenv("KVR_TEST_STATS")) {
            printf("%-40s windows of %5zu: %.2f passes\n", what, sizes[i],
                   (double) c.calls / ((double) body->len / sizes[i] + 2));
        }

        util_check(c.calls <= most, "%s: %u fetches of %zu bytes for %zu", what,
                   c.calls, sizes[i], body->len);
    }
}


static void
hostile_bodies(size_t len)
{
    size_t      i;
    util_buf_t  b;

    static const char *const  deep[][2] = {
        { "{\"x\":", "}" },
        { "{\"messages\":[", "]}" },
        { "{\"tools\":[", "]}" },
        { "{\"prompt\":[", "]}" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":", "}]}" },
        { "{\"messages\":[{\"role\":\"user\",\"images\":", "}]}" },
        { "{\"messages\":[{\"role\":\"user\",\"tool_calls\":", "}]}" },
        { "{\"messages\":[{\"arguments\":", ",\"role\":\"user\"}]}" },
        { "{\"system\":", "}" },
        { "{\"cache_salt\":", "}" },
        { "{\"options\":", "}" },
        { "{\"model\":", "}" }
    };

    static const struct {
        const char  *head;
        const char  *body;
        const char  *tail;
        unsigned     passes;
    } long_ones[] = {

        /* repeated keys, at each level */

        { "{", "\"model\":\"a\",", "\"x\":1}", 1 },
        { "{", "\"messages\":[],", "\"x\":1}", 1 },
        { "{", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],",
          "\"x\":1}", 1 },
        { "{", "\"system\":[{\"text\":\"x\",\"type\":\"text\"}],",
          "\"x\":1}", 2 },
        { "{", "\"tools\":[1,2],", "\"x\":1}", 1 },
        { "{", "\"cache_salt\":\"a\",", "\"x\":1}", 1 },
        { "{", "\"prompt\":[\"a\",\"b\"],", "\"x\":1}", 1 },
        { "{", "\"max_tokens\":1,", "\"x\":1}", 1 },
        { "{", "\"options\":{\"num_predict\":1},", "\"x\":1}", 1 },
        { "{\"options\":{", "\"num_predict\":1,", "\"x\":1}}", 1 },
        { "{\"messages\":[{", "\"role\":\"a\",", "\"x\":1}]}", 3 },
        { "{\"messages\":[{", "\"content\":\"a\",", "\"x\":1}]}", 3 },
        { "{\"messages\":[{\"content\":[{", "\"text\":\"a\",",
          "\"x\":1}]}]}", 4 },
        { "{\"messages\":[{\"content\":[{\"content\":[{\"content\":[{",
          "\"text\":\"a\",", "\"x\":1}]}]}]}]}", 6 },

        /* small values out of order */

        { "{\"messages\":[", "{\"content\":\"\",\"role\":\"\"},", "{}]}", 3 },
        { "{\"messages\":[", "{\"content\":[{\"text\":\"\",\"type\":\"\"}],"
          "\"role\":\"\"},", "{}]}", 4 },
        { "{\"messages\":[{\"content\":[", "{\"text\":\"\",\"type\":\"\"},",
          "{}]}]}", 4 },
        { "{\"messages\":[{\"content\":[", "{\"text\":\"\"},", "{}],"
          "\"role\":\"user\"}]}", 5 },
        { "{\"messages\":[{\"tool_calls\":[", "{\"function\":{\"arguments\":"
          "\"\",\"name\":\"\"}},", "{}]}]}", 5 },
        { "{\"system\":[", "{\"text\":\"\",\"type\":\"\"},", "{}]}", 3 },
        { "{\"messages\":[", "{},", "{}]}", 1 },
        { "{\"messages\":[", "1,", "1]}", 1 },
        { "{\"input\":[", "{\"content\":\"\",\"type\":\"reasoning\"},",
          "{}]}", 3 },

        /* strings that are partly read twice */

        { "{\"prompt\":\"", "\\ud800", "\"}", 3 },
        { "{\"prompt\":\"", "\\\\", "\"}", 1 },
        { "{\"prompt\":\"", "\\\"", "\"}", 1 },
        { "{\"prompt\":\"", "\\u0041", "\"}", 1 },
        { "{\"prompt\":\"", "\\/", "\"}", 1 },
        { "{\"model\":\"", "\\ud800", "\"}", 3 },
        { "{\"", "\\ud800", "\":1}", 3 },
        { "{\"system\":[", "{\"type\":\"text\",\"text\":"
          "\"x-anthropic-billing-heade\"},", "1]}", 3 },

        /* members that cost more than their length */

        { "{\"messages\":[{\"images\":[", "\"\",", "\"\"]}]}", 1 },
        { "{\"messages\":[{\"content\":[", "{\"file_id\":\"\"},", "1]}]}", 1 },

        /* empty values */

        { "{", " ", "}", 1 },
        { "{\"prompt\":[", " ", "]}", 2 },
        { "{\"tools\":[", "\n", "]}", 1 },
        { "{\"prompt\":[", "0,", "0]}", 2 },
        { "{\"prompt\":", "1", "}", 1 },
        { "{\"cache_salt\":", "1", "}", 3 },
        { "{\"priority\":", "9", "}", 1 }
    };

    memset(&b, 0, sizeof(b));

    for (i = 0; i < sizeof(deep) / sizeof(deep[0]); i++) {

        nest(&b, deep[i][0], "[", "]", deep[i][1], len / 2);
        hostile(&b, deep[i][0], KVR_OK, 3);

        nest(&b, deep[i][0], "{\"content\":[", "]}", deep[i][1], len / 10);
        hostile(&b, deep[i][0], KVR_OK, 3);

        nest(&b, deep[i][0], "{\"content\":[", "],\"type\":1}", deep[i][1],
             len / 20);
        hostile(&b, deep[i][0], KVR_OK, 12);

        nest(&b, deep[i][0], "[", "", "", len);
        hostile(&b, deep[i][0], KVR_AGAIN, 3);
    }

    for (i = 0; i < sizeof(long_ones) / sizeof(long_ones[0]); i++) {
        repeat(&b, long_ones[i].head, long_ones[i].body, long_ones[i].tail,
               len);
        hostile(&b, long_ones[i].body, KVR_OK, long_ones[i].passes);
    }

    util_drop(&b);
}


TEST(test_edges_hostile)
{
    /* under valgrind only short ones */

    if (util_cases(100) < 100) {
        hostile_bodies(3000);
        return;
    }

    hostile_bodies(60000);
    hostile_bodies(1000000);
}


/* A list of messages that is too costly has no chain. */
TEST(test_edges_costly)
{
    unsigned    i;
    cost_t      c;
    util_buf_t  b;

    static const char *const  messages[] = {
        ",{}",
        ",1",
        ",{\"content\":\"\",\"role\":\"user\"}",
        ",{\"content\":[{\"text\":\"a\",\"type\":\"text\"}]}",
        ",{\"images\":[\"a\",\"b\",\"c\",\"d\"]}"
    };

    static const char  head[] = "{\"model\":\"m\",\"messages\":["
                                "{\"role\":\"user\",\"content\":\"hello\"}";

    memset(&b, 0, sizeof(b));

    for (i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {

        util_note("%s", messages[i]);

        repeat(&b, head, messages[i], "]}", 1000);
        cost(&b, UTIL_WHOLE, 0, &c);
        util_check(c.rc == KVR_OK && c.pr.tailed, "few: %d", c.rc);

        repeat(&b, head, messages[i], "]}", 300000);
        cost(&b, UTIL_WHOLE, 0, &c);
        util_check(c.rc == KVR_ERROR && c.pr.n == 0, "many: %d", c.rc);
    }

    util_drop(&b);
}


/* Bodies are read to their end, however long they are. */
TEST(test_edges_clients)
{
    size_t      n;
    unsigned    i, k;
    cost_t      c;
    util_buf_t  b = { 0 };

    /* "~" is a text of this length */

    static const struct {
        const char  *message;
        size_t       text;
    } clients[] = {
        { ",{\"role\":\"user\",\"content\":\"~\"}", 20 },
        { ",{\"content\":\"~\",\"role\":\"user\"}", 600 },
        { ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
          "\"call_1\",\"type\":\"function\",\"function\":{\"name\":"
          "\"read\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\","
          "\"tool_call_id\":\"call_1\",\"content\":\"~\"}", 1000 },
        { ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\","
          "\"text\":\"I look.\"},{\"type\":\"tool_use\",\"id\":\"t1\","
          "\"name\":\"Read\",\"input\":{\"path\":\"a.c\"}}]},{\"role\":"
          "\"user\",\"content\":[{\"tool_use_id\":\"t1\",\"type\":"
          "\"tool_result\",\"content\":[{\"type\":\"text\",\"text\":\"~\"}"
          "]}]}", 1000 },
        { ",{\"content\":[{\"id\":\"t1\",\"input\":{\"path\":\"a.c\"},\"name\":"
          "\"Read\",\"type\":\"tool_use\"}],\"role\":\"assistant\"},"
          "{\"content\":[{\"content\":[{\"text\":\"~\",\"type\":\"text\"}],"
          "\"tool_use_id\":\"t1\",\"type\":\"tool_result\"}],\"role\":"
          "\"user\"}", 2000 }
    };

    for (i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {

        b.len = 0;
        util_puts(&b, "{\"model\":\"m\",\"messages\":[{}");

        while (b.len < 4000000) {
            for (k = 0; clients[i].message[k]; k++) {

                if (clients[i].message[k] != '~') {
                    util_byte(&b, (unsigned char) clients[i].message[k]);
                    continue;
                }

                for (n = 0; n < clients[i].text; n++) {
                    util_byte(&b, 'x');
                }
            }
        }

        util_puts(&b, "]}");

        cost(&b, UTIL_GRID, 65536, &c);

        util_note("%.60s", clients[i].message);
        util_check(c.rc == KVR_OK && c.pr.extra == 0 && c.pr.tailed,
                   "%d, %lu bytes left out", c.rc,
                   (unsigned long) c.pr.extra);
    }

    util_drop(&b);
}
