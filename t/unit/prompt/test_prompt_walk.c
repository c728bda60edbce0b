
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests the reader of objects by a table of keys: the order of handlers, equal
 * keys (the last one counts), and the limits.  Each text is also read in pieces,
 * cut at each byte.
 */


#include "util.h"
#include "core/prompt/kvr_prompt_walk.h"


typedef struct {
    util_buf_t      log;         /* log of the handlers */
} seen_t;


static int see_a(kvr_walk_t *w);
static int see_b(kvr_walk_t *w);
static int see_inner(kvr_walk_t *w);
static int see_list(kvr_walk_t *w);
static int see_item(kvr_walk_t *w);


static const kvr_walk_key_t  inner[] = {
    kvr_walk_key("a", see_a),
    kvr_walk_key("b", see_b),
    kvr_walk_null
};

static const kvr_walk_key_t  outer[] = {
    kvr_walk_key("a", see_a),
    kvr_walk_key("inner", see_inner),
    kvr_walk_key("list", see_list),
    kvr_walk_key("b", see_b),
    kvr_walk_null
};


static int
see(kvr_walk_t *w, char name)
{
    int      rc;
    size_t   len;
    seen_t  *seen = w->data;
    uint8_t  buf[16];

    rc = kvr_walk_word(w, buf, sizeof(buf), &len);

    if (rc == KVR_OK) {
        util_byte(&seen->log, (uint8_t) name);
        util_byte(&seen->log, '=');
        util_put(&seen->log, buf, len);
        util_byte(&seen->log, ' ');
    }

    return rc;
}


static int
see_a(kvr_walk_t *w)
{
    return see(w, 'a');
}


static int
see_b(kvr_walk_t *w)
{
    return see(w, 'b');
}


static int
see_inner(kvr_walk_t *w)
{
    int      rc;
    seen_t  *seen = w->data;

    util_byte(&seen->log, '{');

    rc = kvr_walk_object(w, inner);

    util_byte(&seen->log, '}');

    return rc;
}


static int
see_item(kvr_walk_t *w)
{
    return kvr_json_peek(&w->json) == '"' ? see(w, '.') : see_inner(w);
}


static int
see_list(kvr_walk_t *w)
{
    int      rc;
    seen_t  *seen = w->data;

    util_byte(&seen->log, '[');

    rc = kvr_walk_array(w, see_item);

    util_byte(&seen->log, ']');

    return rc;
}


static void
walk_init(kvr_walk_t *w, util_feed_t *f, seen_t *seen, int careful)
{
    memset(w, 0, sizeof(*w));

    kvr_json_init(&w->json, kvr_text_ops(), util_fetch, f);
    kvr_block_init(&w->block, util_secret, w->json.ops->digest, NULL, 0);

    w->careful = (careful != 0);
    w->data = seen;

    seen->log.len = 0;
}


static void
object_is(const char *text, int careful, int rc, const char *log, int rest)
{
    int          got, c;
    size_t       n;
    unsigned     k, kernel;
    seen_t       seen = { 0 };
    kvr_walk_t   w;
    util_cut_e   cut;
    util_feed_t  f;

    for (kernel = 0; util_kernel(kernel); kernel++) {

        for (k = 0; util_cut(strlen(text), k, &cut, &n); k++) {

            util_note("%s, careful %d, cut %d %zu", text, careful, cut, n);

            util_feed(&f, text, strlen(text), cut, n);
            walk_init(&w, &f, &seen, careful);

            got = kvr_walk_object(&w, outer);

            util_check(got == rc, "%d, not %d", got, rc);
            util_check(w.depth == 0, "depth %u left", w.depth);

            if (log) {
                util_check(seen.log.len == strlen(log)
                           && (seen.log.len == 0
                               || memcmp(seen.log.p, log, seen.log.len) == 0),
                           "\"%s\", not \"%s\"",
                           util_show(seen.log.p, seen.log.len), log);
            }

            if (rest) {
                c = kvr_json_peek(&w.json);
                util_check(c == rest, "next byte %d, not %d", c, rest);
            }

            util_unfeed(&f);
        }
    }

    util_drop(&seen.log);
}


TEST(test_walk_order)
{
    int  careful;

    for (careful = 0; careful < 2; careful++) {

        object_is("{}.", careful, KVR_OK, "", '.');
        object_is(" { } .", careful, KVR_OK, "", '.');
        object_is("{\"a\":\"1\",\"b\":\"2\"}.", careful, KVR_OK, "a=1 b=2 ",
                  '.');
        object_is("{\"x\":\"1\",\"b\":\"2\",\"aa\":{\"a\":\"3\"}} ,", careful,
                  KVR_OK, "b=2 ", ',');
        object_is("{\"\\u0061\":\"1\",\"b\" : \"2\"}.", careful, KVR_OK,
                  "a=1 b=2 ", '.');
        object_is("{\"a\":7,\"b\":[\"}\"]}.", careful, KVR_OK, "a= b= ", '.');
        object_is("{\"a\":\"1\",\"inner\":{\"a\":\"2\",\"b\":\"3\"},"
                  "\"list\":[\"4\",{\"b\":\"5\"},\"6\"],\"b\":\"7\"}.",
                  careful, KVR_OK,
                  "a=1 {a=2 b=3 }[.=4 {b=5 }.=6 ]b=7 ", '.');

        /* other values are skipped */

        object_is("[{\"a\":\"1\"}].", careful, KVR_OK, "", '.');
        object_is("\"a\",", careful, KVR_OK, "", ',');
        object_is("null,", careful, KVR_OK, "", ',');
        object_is("{\"inner\":\"x\",\"list\":{\"a\":\"1\"}}.", careful, KVR_OK,
                  "{}[]", '.');

        object_is("{\"a\":\"1\" \"b\":\"2\"}", careful, KVR_ERROR, NULL, 0);
        object_is("{\"a\":\"1\",}", careful, KVR_ERROR, NULL, 0);
        object_is("{\"list\":[\"1\",]}", careful, KVR_ERROR, NULL, 0);
        object_is("{\"a\":\"\\x\"}", careful, KVR_ERROR, NULL, 0);
        object_is("nul,", careful, KVR_ERROR, NULL, 0);

        object_is("{\"a\":\"1\",\"b\":\"2\"", careful, KVR_AGAIN, NULL, 0);
        object_is("{\"a\":\"1", careful, KVR_AGAIN, NULL, 0);
        object_is("{\"a", careful, KVR_AGAIN, NULL, 0);
        object_is("{", careful, KVR_AGAIN, NULL, 0);
        object_is("", careful, KVR_AGAIN, NULL, 0);
    }

    /* keys out of order, or twice */

    object_is("{\"b\":\"2\",\"a\":\"1\"}.", 0, KVR_WALK_ORDER, "b=2 ", 0);
    object_is("{\"a\":\"1\",\"a\":\"2\"}.", 0, KVR_WALK_ORDER, "a=1 ", 0);
    object_is("{\"inner\":{\"b\":\"1\",\"a\":\"2\"}}.", 0, KVR_WALK_ORDER,
              NULL, 0);
    object_is("{\"list\":[{\"b\":\"1\",\"b\":\"2\"}]}.", 0, KVR_WALK_ORDER,
              NULL, 0);

    object_is("{\"b\":\"2\",\"a\":\"1\"}.", 1, KVR_OK, "a=1 b=2 ", '.');
    object_is("{\"a\":\"1\",\"a\":\"2\"}.", 1, KVR_OK, "a=2 ", '.');
    object_is("{\"a\":\"1\",\"b\":\"3\",\"a\":null,\"b\":\"4\"} .", 1, KVR_OK,
              "a= b=4 ", '.');
    object_is("{\"b\":\"9\",\"inner\":{\"b\":\"1\",\"a\":\"2\",\"b\":\"3\"},"
              "\"list\":[{\"b\":\"1\",\"a\":\"2\"}],\"a\":\"8\"}.", 1, KVR_OK,
              "a=8 {a=2 b=3 }[{a=2 b=1 }]b=9 ", '.');

    /* a value that a later key replaces is not read */

    object_is("{\"a\":\"\\x\",\"a\":\"2\"}.", 1, KVR_OK, "a=2 ", '.');
}


static int
see_deep(kvr_walk_t *w)
{
    unsigned  *n = w->data;

    (*n)++;

    return kvr_walk_array(w, see_deep);
}


static const kvr_walk_key_t  deep[];

static int
see_deep_object(kvr_walk_t *w)
{
    unsigned  *n = w->data;

    (*n)++;

    return kvr_walk_object(w, deep);
}


static const kvr_walk_key_t  deep[] = {
    kvr_walk_key("a", see_deep_object),
    kvr_walk_null
};


/* objects beyond the maximum depth are skipped */
TEST(test_walk_depth)
{
    int          rc, objects, careful;
    unsigned     i, k, n;
    util_buf_t   text = { 0 };
    kvr_walk_t   w;
    util_feed_t  f;
    seen_t       none = { 0 };

    for (k = 1; k < 40; k++) {

        for (i = 0; i < 4; i++) {

            objects = i & 1;
            careful = i >> 1;

            util_note("%u deep, objects %d, careful %d", k, objects, careful);

            text.len = 0;

            for (n = 0; n < k; n++) {
                util_puts(&text, objects ? "{\"a\":" : "[");
            }

            util_puts(&text, objects ? "1" : "");

            for (n = 0; n < k; n++) {
                util_puts(&text, objects ? "}" : "]");
            }

            util_byte(&text, '.');

            util_feed(&f, text.p, text.len, UTIL_STEP, 3);
            walk_init(&w, &f, &none, careful);

            n = 0;
            w.data = &n;

            rc = objects ? kvr_walk_object(&w, deep)
                         : kvr_walk_array(&w, see_deep);

            util_check(rc == KVR_OK && w.depth == 0, "%d", rc);
            util_check(n == kvr_min(k - !objects, KVR_WALK_DEPTH),
                       "%u levels", n);
            util_check(kvr_json_peek(&w.json) == '.', "wrong offset");

            util_unfeed(&f);
        }
    }

    util_drop(&text);
}


static void
word_is(const char *text, size_t size, int rc, const char *word)
{
    int          got;
    size_t       n, len;
    unsigned     k;
    seen_t       none = { 0 };
    uint8_t     *buf;
    kvr_walk_t   w;
    util_cut_e   cut;
    util_feed_t  f;

    for (k = 0; util_cut(strlen(text), k, &cut, &n); k++) {

        util_note("%s, %zu bytes, cut %d %zu", text, size, cut, n);

        util_feed(&f, text, strlen(text), cut, n);
        walk_init(&w, &f, &none, 0);

        buf = malloc(size);
        got = kvr_walk_word(&w, buf, size, &len);

        util_check(got == rc, "%d, not %d", got, rc);
        util_check(len <= size, "too long: %zu", len);

        if (rc == KVR_OK) {
            util_check(len == strlen(word) && memcmp(buf, word, len) == 0,
                       "\"%s\"", util_show(buf, len));
            util_check(kvr_json_peek(&w.json) == ',', "wrong offset");
        }

        free(buf);
        util_unfeed(&f);
    }
}


TEST(test_walk_word)
{
    word_is("\"\",", 8, KVR_OK, "");
    word_is(" \"user\",", 8, KVR_OK, "user");
    word_is("\"us\\u0065r\" ,", 8, KVR_OK, "user");
    word_is("\"exactly8\",", 8, KVR_OK, "exactly8");
    word_is("\"more than 8\",", 8, KVR_OK, "more tha");
    word_is("\"more tha\\u00e9\",", 9, KVR_OK, "more tha\xc3");
    word_is("null,", 8, KVR_OK, "");
    word_is("12,", 8, KVR_OK, "");
    word_is("[\"user\"],", 8, KVR_OK, "");
    word_is("{\"user\":\"user\"},", 8, KVR_OK, "");
    word_is("\"us\\xr\",", 8, KVR_ERROR, "");
    word_is("nul,", 8, KVR_ERROR, "");
    word_is("\"use", 8, KVR_AGAIN, "");
    word_is("\"more than 8 and ", 8, KVR_AGAIN, "");
    word_is("[\"user\"", 8, KVR_AGAIN, "");
}


static uint64_t
digest_of(const char *text, int rc)
{
    int          got;
    size_t       n;
    seen_t       none = { 0 };
    unsigned     k, kernel;
    uint64_t     digest, first;
    kvr_walk_t   w;
    util_cut_e   cut;
    util_feed_t  f;

    first = 0;

    for (kernel = 0; util_kernel(kernel); kernel++) {

        for (k = 0; util_cut(strlen(text), k, &cut, &n); k++) {

            util_note("%s, cut %d %zu", text, cut, n);

            util_feed(&f, text, strlen(text), cut, n);
            walk_init(&w, &f, &none, 0);

            got = kvr_walk_digest(&w, &digest);

            util_check(got == rc, "%d, not %d", got, rc);

            if (rc == KVR_OK) {
                util_check(kvr_json_peek(&w.json) == ',', "wrong offset");

                if (k == 0 && kernel == 0) {
                    first = digest;
                }

                util_check(digest == first, "another digest");
            }

            util_unfeed(&f);
        }
    }

    return first;
}


TEST(test_walk_digest)
{
    size_t       i, k, n;
    uint64_t     d[32], fold, block[8];
    util_buf_t   text, body = { 0 };

    static const char *const  values[] = {
        "1,", "\"1\",", "[1],", "[\"1\"],", "{\"1\":1},", "true,", "false,",
        "\"true\",", "\"\",", "[],", "{},", "\"null\",", "1.0,", "[null],",
        "\"[1]\",", "-1,", "\"a b\",", "[1,2],", "[2,1],", "[\"1 2\"],",
        "[12],"
    };

    n = sizeof(values) / sizeof(values[0]);

    for (i = 0; i < n; i++) {
        d[i] = digest_of(values[i], KVR_OK);

        util_check(d[i] != 0, "zero");

        for (k = 0; k < i; k++) {
            util_check(d[i] != d[k], "%s and %s are equal", values[i],
                       values[k]);
        }
    }

    util_check(digest_of("null,", KVR_OK) == 0, "null");
    util_check(digest_of(" null ,", KVR_OK) == 0, "null");

    /* white space and spelling do not count */

    util_check(digest_of(" [ 1 ,\n2 ] ,", KVR_OK) == d[17], "spaces");
    util_check(digest_of("\"\\u0061\\u0020b\",", KVR_OK) == d[16],
               "spelling");

    (void) digest_of("nul,", KVR_ERROR);
    (void) digest_of("\"\\ux\",", KVR_ERROR);
    (void) digest_of("[1", KVR_AGAIN);
    (void) digest_of("\"a", KVR_AGAIN);
    (void) digest_of("", KVR_AGAIN);

    /* the digest of long text, computed in another way */

    memset(&text, 0, sizeof(text));

    util_byte(&body, '"');

    for (i = 0; i < 700; i++) {
        util_byte(&text, 'a' + i % 25);
        util_byte(&body, 'a' + i % 25);
    }

    util_put(&body, "\",", 3);

    n = util_blocks(&text, block, 8, 1);
    fold = 0;

    for (i = 0; i < n; i++) {
        fold = util_mix(fold, block[i]);
    }

    util_check(digest_of((char *) body.p, KVR_OK)
               == (util_mix(fold, '"') | 1), "long text");

    util_drop(&text);
    util_drop(&body);
}
