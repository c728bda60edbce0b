
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Compares the kernels with byte-wise references: on random text with many
 * special bytes, in windows, with streams that are partly full and partly
 * marked.
 */


#include "util.h"


/* the kernel of other CPUs, built here with scalar XXH3 */

#undef __x86_64__

#define XXH_VECTOR     0
#define KVR_TEXT_OPS   kvr_text_ops_plain
#define KVR_TEXT_NAME  "plain"

extern const kvr_text_ops_t  kvr_text_ops_plain;

#include "core/text/kvr_text_kernel.inc"


#define MAX_DIGESTS  64


typedef enum {
    OP_STRING = 0,
    OP_SKIP_STRING,
    OP_SKIP_CONTAINER,
    OP_RAW_CONTAINER,
    OPS
} op_e;


typedef struct {
    op_e          op;
    const uint8_t *text;
    size_t        len;
    size_t        start;          /* offset in the text */
    size_t        fill;           /* bytes in the stream before it */
    int           mark;           /* marks it there, rewinds it later */
} job_t;


static const kvr_text_ops_t *
kernel(unsigned n)
{
    const kvr_text_ops_t  *ops;

    ops = kvr_text_ops_nth(n);

    if (ops == NULL && kvr_text_ops_nth(n - 1)) {
        ops = &kvr_text_ops_plain;
    }

    return ops;
}


static void
before(util_buf_t *b, size_t fill)
{
    size_t  i;

    b->len = 0;

    for (i = 0; i < fill; i++) {
        util_byte(b, (unsigned) (i * 7 + 3));
    }
}


static void
stream_check(kvr_block_t *b, const util_buf_t *want, const char *what)
{
    size_t    n, rest;
    uint64_t  digest[MAX_DIGESTS];

    n = util_blocks(want, digest, MAX_DIGESTS, 0);
    rest = want->len % KVR_BLOCK;

    util_check(b->n == n, "%s: %zu blocks, not %zu", what, b->n, n);
    util_check(b->bytes == n * KVR_BLOCK, "%s: bytes", what);
    util_check(b->fill == rest, "%s: %u staged, not %zu", what, b->fill, rest);
    util_check(rest == 0 || memcmp(b->stage[b->cur],
                                   want->p + n * KVR_BLOCK, rest) == 0,
               "%s: \"%s\", not \"%s\"", what,
               util_show(b->stage[b->cur], rest),
               util_show(want->p + n * KVR_BLOCK, rest));
    util_check(memcmp(b->out, digest, n * sizeof(uint64_t)) == 0,
               "%s: digests", what);
}


static void
run(const kvr_text_ops_t *ops, const job_t *job, util_cut_e cut, size_t n)
{
    int               rc, want_rc;
    size_t            used;
    uint64_t          out[MAX_DIGESTS];
    util_buf_t        want = { 0 }, was = { 0 };
    kvr_json_t        j;
    kvr_block_t       b;
    util_feed_t       f;
    kvr_block_mark_t  mark;

    used = 0;

    before(&was, job->fill);
    before(&want, job->fill);

    util_note("%s op %d at %zu of \"%s\", stream %zu, mark %d, cut %d %zu",
              ops->name, job->op, job->start,
              util_show(job->text, kvr_min(job->len, 150)), job->fill,
              job->mark, cut, n);

    switch (job->op) {

    case OP_STRING:
        want_rc = util_string(job->text + job->start, job->len - job->start,
                              &want, &used, 1);
        break;

    case OP_SKIP_STRING:

        /* reads escapes as plain text */

        want_rc = KVR_AGAIN;

        for (used = job->start; used < job->len; used++) {

            if (job->text[used] == '"') {
                want_rc = KVR_OK;
                used = used - job->start + 1;
                break;
            }

            if (job->text[used] == '\\') {
                used++;
            }
        }

        break;

    default:
        want_rc = util_raw(job->text + job->start, job->len - job->start,
                           &want, &used);
    }

    if (job->op == OP_SKIP_STRING || job->op == OP_SKIP_CONTAINER) {
        before(&want, job->fill);
    }

    util_feed(&f, job->text, job->len, cut, n);
    kvr_json_init(&j, kvr_text_ops(), util_fetch, &f);
    j.ops = ops;

    kvr_block_init(&b, util_secret, ops->digest, out, MAX_DIGESTS);
    kvr_block_put(&b, was.p, was.len);

    if (job->mark) {
        kvr_block_mark(&b, &mark);
    }

    rc = kvr_json_seek(&j, job->start);

    if (rc == KVR_OK) {

        switch (job->op) {

        case OP_STRING:
            rc = ops->string(&j, &b);
            break;

        case OP_SKIP_STRING:
            rc = ops->skip_string(&j);
            break;

        case OP_SKIP_CONTAINER:
            rc = ops->skip_container(&j);
            break;

        default:
            rc = ops->raw_container(&j, &b);
        }
    }

    util_check(rc == want_rc, "%d, not %d", rc, want_rc);

    if (rc == KVR_OK) {
        util_check(kvr_json_offset(&j) == job->start + used, "at %llu, not %zu",
                   (unsigned long long) kvr_json_offset(&j),
                   job->start + used);
    }

    /* a text that ends too early was read to its end */

    if (rc != KVR_ERROR) {
        stream_check(&b, &want, "stream");
    }

    if (job->mark) {
        kvr_block_rewind(&b, &mark);
        stream_check(&b, &was, "rewound");
    }

    util_unfeed(&f);
    util_drop(&want);
    util_drop(&was);
}


/* Puts an escape, sometimes a broken one. */
static void
put_escape(util_buf_t *b, util_rng_t *r)
{
    unsigned  n;

    switch (util_below(r, 10)) {

    case 0:
    case 1:
        for (n = util_below(r, 9); n; n--) {
            util_puts(b, "\\\\");
        }

        break;

    case 2:
        util_puts(b, "\\\"");
        break;

    case 3:
        util_puts(b, "\\/");
        break;

    case 4:
        util_printf(b, util_below(r, 2) ? "\\u%04x" : "\\u%04X",
                    util_below(r, util_below(r, 2) ? 0x10000 : 0x80));
        break;

    case 5:
        util_printf(b, "\\u%04x", 0xd800 + util_below(r, 0x800));
        break;

    case 6:
        util_printf(b, "\\u%04X\\u%04x", 0xd800 + util_below(r, 0x400),
                    0xdc00 + util_below(r, 0x400));
        break;

    default:
        util_byte(b, '\\');
        util_byte(b, (uint8_t) "bfnrt\"\\/nt"[util_below(r, 10)]);
    }
}


/* Puts the inside of a string. */
static void
put_inside(util_buf_t *b, util_rng_t *r, size_t len, unsigned dense)
{
    size_t    end;
    unsigned  n;

    end = b->len + len;

    while (b->len < end) {

        if (util_below(r, 100) < dense) {
            put_escape(b, r);
            continue;
        }

        switch (util_below(r, 8)) {

        case 0:
            util_byte(b, (uint8_t) "{}[]:, /u\n"[util_below(r, 10)]);
            break;

        case 1:
            util_byte(b, 1 + util_below(r, 255));

            if (b->p[b->len - 1] == '"' || b->p[b->len - 1] == '\\') {
                b->len--;
            }

            break;

        default:
            for (n = util_below(r, dense ? 12 : 120); n; n--) {
                util_byte(b, 'a' + util_below(r, 26));
            }
        }
    }
}


/* Puts a container, or text that a reader of brackets takes for one. */
static void
put_container(util_buf_t *b, util_rng_t *r, size_t len, unsigned dense)
{
    size_t    end;
    unsigned  depth;

    end = b->len + len;

    util_byte(b, util_below(r, 2) ? '{' : '[');
    depth = 1;

    while (b->len < end && depth) {

        switch (util_below(r, 12)) {

        case 0:
        case 1:
            util_byte(b, util_below(r, 2) ? '{' : '[');
            depth++;
            break;

        case 2:
            if (depth > 1 || util_below(r, 20) == 0) {
                util_byte(b, util_below(r, 2) ? '}' : ']');
                depth--;
            }

            break;

        case 3:
        case 4:
        case 5:
            util_byte(b, '"');
            put_inside(b, r, util_below(r, 40) * util_below(r, 3), dense);
            util_byte(b, '"');
            break;

        case 6:
        case 7:
            util_byte(b, (uint8_t) " \n\t\r"[util_below(r, 4)]);
            break;

        case 8:
            util_puts(b, "                                "
                         "                                \n\n\n"
                         + util_below(r, 67));
            break;

        default:
            util_byte(b, (uint8_t) ",:0123456789.etruflasn\\\v\f"
                                   [util_below(r, 25)]);

            if (b->p[b->len - 1] == '\\' && util_below(r, 2)) {
                b->len--;
            }
        }
    }

    while (depth) {
        util_byte(b, util_below(r, 2) ? '}' : ']');
        depth--;
    }
}


TEST(test_text_random)
{
    size_t       n;
    unsigned     i, k, m;
    job_t        job;
    util_rng_t   r;
    util_buf_t   text = { 0 };
    util_cut_e   cut;

    for (i = 0; i < util_cases(6000); i++) {

        util_seed(&r, "text random", i);

        text.len = 0;
        put_inside(&text, &r, util_below(&r, 100), 0);

        job.op = (op_e) util_below(&r, OPS);
        job.start = text.len;
        job.fill = util_below(&r, 3) ? util_below(&r, KVR_BLOCK)
                                     : KVR_BLOCK * util_below(&r, 3);
        job.mark = (int) util_below(&r, 2);

        n = util_below(&r, util_below(&r, 2) ? 2000 : 150);
        m = util_below(&r, 3) ? util_below(&r, 100) : 0;

        if (job.op == OP_STRING || job.op == OP_SKIP_STRING) {
            put_inside(&text, &r, n, m);

            if (util_below(&r, 30) == 0) {
                util_puts(&text, util_below(&r, 2) ? "\\q" : "\\u12g4");
                put_inside(&text, &r, n, m);
            }

            util_byte(&text, '"');

        } else {
            put_container(&text, &r, n, m);
        }

        put_inside(&text, &r, util_below(&r, 80), m);

        job.text = text.p;
        job.len = text.len;

        if (util_below(&r, 4) == 0) {
            job.len = job.start
                      + util_below(&r, (unsigned) (job.len - job.start) + 1);
        }

        for (k = 0; kernel(k); k++) {

            run(kernel(k), &job, UTIL_WHOLE, 0);

            for (m = 0; m < 2; m++) {
                cut = (util_cut_e) (UTIL_CUT + util_below(&r, 4));
                n = 1 + util_below(&r, util_below(&r, 2) ? 8 : 200);

                if (cut == UTIL_CUT) {
                    n = 1 + util_below(&r, (unsigned) job.len);
                }

                run(kernel(k), &job, cut, n);
            }
        }
    }

    util_drop(&text);
}


/* every cut of some texts, with every fill of the stream */
TEST(test_text_cuts)
{
    size_t       n;
    unsigned     i, k, c;
    job_t        job;
    util_rng_t   r;
    util_buf_t   text = { 0 };
    util_cut_e   cut;

    for (i = 0; i < util_cases(60); i++) {

        util_seed(&r, "text cuts", i);

        text.len = 0;
        put_inside(&text, &r, util_below(&r, 3), 0);

        job.op = (op_e) (i % OPS);
        job.start = text.len;
        job.fill = util_below(&r, 4) ? util_below(&r, KVR_BLOCK) : 0;
        job.mark = i / OPS % 2;

        if (job.op == OP_STRING || job.op == OP_SKIP_STRING) {
            put_inside(&text, &r, 100 + util_below(&r, 500), 60);
            util_byte(&text, '"');

        } else {
            put_container(&text, &r, 100 + util_below(&r, 500), 60);
        }

        job.text = text.p;
        job.len = text.len;

        for (k = 0; kernel(k); k++) {
            for (c = 0; util_cut(job.len, c, &cut, &n); c++) {
                run(kernel(k), &job, cut, n);
            }
        }
    }

    util_drop(&text);
}


/* escapes at each position of steps and blocks */
TEST(test_text_edges)
{
    size_t       at, i, f, c;
    unsigned     k;
    job_t        job;
    util_buf_t   text = { 0 };

    static const char *const  escapes[] = {
        "\\n", "\\\"", "\\\\", "\\\\\\\"", "\\\\\\\\\\n", "\\/", "\\u0041",
        "\\u00e9", "\\u000a", "\\u0001", "\\u005C", "\\u0022",
        "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\ud83d\\n", "\\\\u0041",
        "\\\\\\u0041", "\\\\/", "\\\\\\/", "\\q", "\\\n", "\\x41",
        "\\\\\\\\\\\"", "\\\\\\\\\\u0041", "\\\\\\\\u0041"
    };

    static const size_t  fills[] = { 0, 1, 63, 64, 191, 192, 255 };

    job.op = OP_STRING;
    job.mark = 0;

    for (at = 0; at < 330; at++) {

        for (i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {

            /* with bytes before it, as in a body, and at the start */

            text.len = 0;
            util_puts(&text, at / 2 % 3 ? "\\:\"" : "");
            job.start = text.len;

            while (text.len < job.start + at) {
                util_byte(&text, 'a' + text.len % 26);
            }

            util_puts(&text, escapes[i]);
            util_puts(&text, "0123456789abcdefghijklmnopqrstuvwxyz0123456789abc"
                             "defghijklmnopqrstuvwxyz");

            if (at % 2) {
                util_puts(&text, escapes[i]);
            }

            util_byte(&text, '"');

            /* bytes after the string do not matter */

            util_puts(&text, at % 3 ? "u\\\"" : "");

            job.text = text.p;
            job.len = text.len;

            for (f = at % 2; f < sizeof(fills) / sizeof(fills[0]); f += 2) {

                job.fill = fills[f];

                for (k = 0; kernel(k); k++) {

                    run(kernel(k), &job, UTIL_WHOLE, 0);

                    c = job.start + at + 1 + (at + f) % strlen(escapes[i]);
                    run(kernel(k), &job, UTIL_CUT, c);
                    run(kernel(k), &job, UTIL_GRID, 64);
                }
            }
        }
    }

    util_drop(&text);
}


/* every byte in every position of four digits */
TEST(test_text_hex)
{
    unsigned     c, i, k;
    job_t        job = { 0 };
    util_buf_t   text = { 0 };

    job.op = OP_STRING;

    for (c = 0; c < 256; c++) {
        for (i = 0; i < 4; i++) {

            text.len = 0;
            util_puts(&text, "\\u4e00\\u20aF and more of it, as it must not be "
                             "at the end\"");
            text.p[2 + i] = (uint8_t) c;

            job.text = text.p;
            job.len = text.len;

            for (k = 0; kernel(k); k++) {
                run(kernel(k), &job, UTIL_WHOLE, 0);
                run(kernel(k), &job, UTIL_STEP, 3);
            }
        }
    }

    util_drop(&text);
}


/* all kernels compute the same digest, at each length and alignment */
TEST(test_text_digest)
{
    size_t       len, off;
    unsigned     k;
    uint8_t      data[700];
    util_rng_t   r;

    util_seed(&r, "text digest", 0);

    for (len = 0; len < sizeof(data); len++) {
        data[len] = (uint8_t) util_next(&r);
    }

    for (k = 0; kernel(k); k++) {
        for (len = 0; len <= 600; len += len < 300 ? 1 : 50) {
            for (off = 0; off < 66; off += 13) {
                util_check(kernel(k)->digest(util_secret, data + off, len)
                           == util_digest(data + off, len),
                           "%s: %zu bytes at %zu", kernel(k)->name, len, off);
            }
        }
    }
}


static void
raw_is(const char *text, int rc, const char *want)
{
    int          got;
    size_t       n;
    unsigned     k, c;
    uint64_t     out[4];
    util_buf_t   buf = { 0 };
    kvr_json_t   j;
    kvr_block_t  b;
    util_cut_e   cut;
    util_feed_t  f;

    util_puts(&buf, want);

    for (k = 0; kernel(k); k++) {

        for (c = 0; util_cut(strlen(text), c, &cut, &n); c++) {

            util_note("%s %s, cut %d %zu", kernel(k)->name, text, cut, n);

            util_feed(&f, text, strlen(text), cut, n);
            kvr_json_init(&j, kvr_text_ops(), util_fetch, &f);
            j.ops = kernel(k);

            kvr_block_init(&b, util_secret, j.ops->digest, out, 4);

            got = kvr_text_raw(&j, &b);

            util_check(got == rc, "%d, not %d", got, rc);

            if (rc == KVR_OK) {
                stream_check(&b, &buf, "raw");
                util_check(kvr_json_peek(&j) == ',', "wrong offset");
            }

            util_unfeed(&f);
        }
    }

    util_drop(&buf);
}


/* any value */
TEST(test_text_raw)
{
    util_buf_t  text = { 0 }, want = { 0 };

    raw_is(" null ,", KVR_OK, "null");
    raw_is("true,", KVR_OK, "true");
    raw_is("\n-12.50e+3,", KVR_OK, "-12.50e+3");
    raw_is("\"\",", KVR_OK, "\"\"");
    raw_is(" \"a \\u0041\\/\\n\",", KVR_OK, "\"a A/\\n\"");
    raw_is("[ 1 , \"a \\u0041\" ] ,", KVR_OK, "[1,\"a \\u0041\"]");
    raw_is("{ \"a\" : { } },", KVR_OK, "{\"a\":{}}");

    raw_is("nil,", KVR_ERROR, "");
    raw_is(",", KVR_ERROR, "");
    raw_is("\"\\u00g0\",", KVR_ERROR, "");

    raw_is("", KVR_AGAIN, "");
    raw_is("12", KVR_AGAIN, "");
    raw_is("\"a", KVR_AGAIN, "");
    raw_is("[\"]\"", KVR_AGAIN, "");

    /* numbers of any length */

    while (want.len < 700) {
        util_byte(&want, '0' + want.len % 10);
    }

    util_puts(&text, "  ");
    util_put(&text, want.p, want.len);
    util_put(&text, ",", 2);
    util_put(&want, "", 1);

    raw_is((char *) text.p, KVR_OK, (char *) want.p);

    util_drop(&text);
    util_drop(&want);
}


/* the linker's name of the function that util.c wraps */
const kvr_text_ops_t *__real_kvr_text_ops(void);


/* the choice of kernels */
TEST(test_text_ops)
{
    unsigned  n;

    util_check(kvr_text_ops_nth(0) != NULL, "no kernel");

    for (n = 0; kvr_text_ops_nth(n); n++) {
        util_check(n < 8, "no end of kernels");
        util_check(n == 0 || kvr_text_ops_nth(n) != kvr_text_ops_nth(n - 1),
                   "a kernel twice");
    }

    util_check(strcmp(kvr_text_ops_nth(n - 1)->name, "base") == 0, "no base");

    util_check(__real_kvr_text_ops() == kvr_text_ops_nth(0), "not the best");
    util_check(__real_kvr_text_ops() == kvr_text_ops_nth(0), "not the best");
}
