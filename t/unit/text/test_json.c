
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests the reader of JSON text.  Each case is a function that reads a text
 * from its start.  It runs with the text in one piece, cut in two at every
 * byte, and in windows of several sizes, each in its own block of memory.
 */


#include "util.h"
#include "core/text/kvr_text.h"


typedef void (*case_pt)(kvr_json_t *j, const void *arg);


static void
each_window(const char *text, size_t len, case_pt fn, const void *arg)
{
    size_t        n;
    unsigned      k, kernel;
    kvr_json_t    j;
    util_cut_e    cut;
    util_feed_t   f;

    for (kernel = 0; util_kernel(kernel); kernel++) {

        for (k = 0; util_cut(len, k, &cut, &n); k++) {

            util_note("\"%s\", cut %d %zu", util_show(text, len), cut, n);

            util_feed(&f, text, len, cut, n);
            kvr_json_init(&j, kvr_text_ops(), util_fetch, &f);

            fn(&j, arg);

            util_unfeed(&f);
        }
    }
}


static void
each_window_of(const char *text, case_pt fn, const void *arg)
{
    each_window(text, strlen(text), fn, arg);
}


/* Checks that the rest of the text is this. */
static void
rest(kvr_json_t *j, const char *text)
{
    size_t  i;

    for (i = 0; text[i]; i++) {

        if (j->p == j->e) {
            util_check(kvr_json_refill(j) == KVR_OK, "end before \"%s\"",
                       text + i);
        }

        util_check(*j->p == (uint8_t) text[i], "at %zu of \"%s\": %c", i, text,
                   *j->p);
        j->p++;
    }

    util_check(j->p == j->e, "more than \"%s\"", text);
    util_check(kvr_json_refill(j) == KVR_AGAIN, "more than \"%s\"", text);
}


static void
seek_case(kvr_json_t *j, const void *arg)
{
    size_t       i, len;
    uint64_t     at;
    util_rng_t   r;
    const char  *text = arg;

    len = strlen(text);
    r.state = 7;

    for (i = 0; i < 100; i++) {

        at = util_below(&r, (unsigned) len + 2);

        if (at >= len) {
            util_check(kvr_json_seek(j, at) == KVR_AGAIN, "after the end");
            util_check(kvr_json_seek(j, 0) == KVR_OK, "back");
            continue;
        }

        util_check(kvr_json_seek(j, at) == KVR_OK, "to %llu",
                   (unsigned long long) at);
        util_check(kvr_json_offset(j) == at, "wrong offset");
        util_check(j->p < j->e && *j->p == (uint8_t) text[at],
                   "another byte");

        j->p++;
        util_check(kvr_json_offset(j) == at + 1, "offset");

        if (at + 1 < len && j->p == j->e) {
            util_check(kvr_json_refill(j) == KVR_OK, "refill");
            util_check(*j->p == (uint8_t) text[at + 1], "next byte");
            util_check(kvr_json_offset(j) == at + 1, "offset");
        }
    }
}


TEST(test_json_seek)
{
    size_t           len;
    kvr_json_t       j;
    util_feed_t      f;
    kvr_json_text_t  text;

    each_window_of("0123456789abcdefghijklmnopqrstuvwxyz", seek_case,
                   "0123456789abcdefghijklmnopqrstuvwxyz");

    /* the reader's fetch function for a text in one piece */

    text.data = (const uint8_t *) "hello";
    text.len = 5;

    util_check(kvr_json_fetch_text(&text, 3, &len) == text.data + 3
               && len == 2, "fetch");
    util_check(kvr_json_fetch_text(&text, 5, &len) == NULL && len == 0,
               "fetch at the end");
    util_check(kvr_json_fetch_text(&text, UINT64_MAX, &len) == NULL
               && len == 0, "fetch beyond the end");

    /* an offset inside the window needs no fetch */

    util_feed(&f, "0123456789", 10, UTIL_GRID, 5);
    kvr_json_init(&j, kvr_text_ops(), util_fetch, &f);

    util_check(kvr_json_seek(&j, 7) == KVR_OK && *j.p == '7', "seek");
    util_check(kvr_json_seek(&j, 9) == KVR_OK && *j.p == '9', "seek");
    util_check(kvr_json_seek(&j, 7) == KVR_OK && *j.p == '7', "seek");
    util_check(f.calls == 1, "%u fetches", f.calls);

    util_check(kvr_json_seek(&j, 6) == KVR_OK && *j.p == '6', "seek");
    util_check(f.calls == 2, "%u fetches", f.calls);

    util_unfeed(&f);
}


typedef struct {
    int            rc;
    const char    *value;
    size_t         len;
    const char    *rest;
} string_t;


static void
string_case(kvr_json_t *j, const void *arg)
{
    int              rc;
    size_t           len, size;
    uint64_t         start;
    uint8_t         *buf;
    const string_t  *want = arg;

    start = kvr_json_offset(j);

    for (size = 0; size <= want->len + 2; size++) {

        if (kvr_json_seek(j, start) != KVR_OK) {
            util_check(want->rc == KVR_AGAIN, "no text");
        }

        buf = malloc(size + 1);
        buf[size] = 0xee;

        rc = kvr_json_string(j, buf, size, &len);

        util_check(buf[size] == 0xee, "beyond the buffer");

        /* escapes after the part that is stored are not checked */

        if (rc == KVR_OK && want->rc == KVR_ERROR && len > size) {
            free(buf);
            continue;
        }

        util_check(rc == want->rc, "%d, not %d", rc, want->rc);

        if (rc == KVR_OK) {
            util_check(len == kvr_min(want->len, size + 1), "%zu, not %zu", len,
                       want->len);
            util_check(memcmp(buf, want->value, kvr_min(len, size)) == 0,
                       "\"%s\", not \"%s\"",
                       util_show(buf, kvr_min(len, size)),
                       util_show(want->value, want->len));
        }

        free(buf);
    }

    if (want->rest) {
        rest(j, want->rest);
    }
}


static void
string_is(const char *text, int rc, const char *value, size_t len,
    const char *rest)
{
    string_t  want = { rc, value, len, rest };

    each_window_of(text, string_case, &want);
}


TEST(test_json_string)
{
    size_t  i;
    char    text[100];

    string_is("\"\"", KVR_OK, "", 0, "");
    string_is(" \n\"abc\"x", KVR_OK, "abc", 3, "x");
    string_is("\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\te\"", KVR_OK,
              "a\"b\\c/d\b\f\n\r\te", 13, "");
    string_is("\"\\\\\\\\\" ", KVR_OK, "\\\\", 2, " ");
    string_is("\"\\u0041\\u00e9\\u20AC\\uffff\\u0000\\u007f\"", KVR_OK,
              "A\xc3\xa9\xe2\x82\xac\xef\xbf\xbf\0\x7f", 11, "");
    string_is("\"h\xc3\xa9\xf0\x9f\x98\x80\xff\"", KVR_OK,
              "h\xc3\xa9\xf0\x9f\x98\x80\xff", 8, "");

    /* surrogates: pairs, and halves of pairs */

    string_is("\"\\ud83d\\ude00\"", KVR_OK, "\xf0\x9f\x98\x80", 4, "");
    string_is("\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", KVR_OK,
              "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8, "");
    string_is("\"\\ud83d\"", KVR_OK, "\xed\xa0\xbd", 3, "");
    string_is("\"\\ude00\"", KVR_OK, "\xed\xb8\x80", 3, "");
    string_is("\"\\ude00\\ud83d\"", KVR_OK, "\xed\xb8\x80\xed\xa0\xbd", 6, "");
    string_is("\"\\ud83dx\"", KVR_OK, "\xed\xa0\xbdx", 4, "");
    string_is("\"\\ud83d\\n\"", KVR_OK, "\xed\xa0\xbd\n", 4, "");
    string_is("\"\\ud83d\\u0041\"", KVR_OK, "\xed\xa0\xbd" "A", 4, "");
    string_is("\"\\ud83d\\ud83d\\ude00\"", KVR_OK,
              "\xed\xa0\xbd\xf0\x9f\x98\x80", 7, "");
    string_is("\"\\ud83d\\uffff\"", KVR_OK, "\xed\xa0\xbd\xef\xbf\xbf", 6, "");
    string_is("\"\\ud83d\\\"\"", KVR_OK, "\xed\xa0\xbd\"", 4, "");
    string_is("\"\\ud83d\\\\u\"", KVR_OK, "\xed\xa0\xbd\\u", 5, "");

    /* broken escapes, and values that are no strings */

    string_is("\"\\x\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\'\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\U0041\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\N\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u004\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u00g1\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u004:\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u/041\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u@041\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u`041\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u+041\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u 041\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\u\x10\x31\x31\x31\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\ud83d\\u12g4\"", KVR_ERROR, NULL, 0, NULL);
    string_is("\"\\ud83d\\x\"", KVR_ERROR, NULL, 0, NULL);
    string_is("x", KVR_ERROR, NULL, 0, NULL);
    string_is("'x'", KVR_ERROR, NULL, 0, NULL);

    /* cut anywhere */

    strcpy(text, "\"a\\n\\u00e9\\ud83d\\ude00\\ud83d\\n\\\\\\\"b");

    for (i = strlen(text) + 1; i > 0; i--) {
        text[i - 1] = '\0';
        string_is(text, KVR_AGAIN, NULL, 0, NULL);
    }

    string_is("  ", KVR_AGAIN, NULL, 0, NULL);
}


/* compares all escapes, in both forms, with the slow reference */

typedef struct {
    unsigned      from;
    unsigned      to;
    unsigned      low;
} range_t;


static void
escape_range(kvr_json_t *j, const char *text, size_t len)
{
    int          rc, canonical;
    size_t       n, used;
    uint8_t      dst[9];
    util_buf_t   out = { 0 };
    uint64_t     start;

    for (canonical = 0; canonical < 2; canonical++) {

        for (start = 0; start < len; start += used) {

            /* the reference reads the whole string: one escape each */

            used = text[start + 1] == 'u' ? 6 : 2;

            if (used == 6 && start + 12 <= len
                && memcmp(text + start + 2, "d8", 2) >= 0
                && memcmp(text + start + 2, "dc", 2) < 0
                && text[start + 7] == 'u'
                && memcmp(text + start + 8, "dc", 2) >= 0
                && memcmp(text + start + 8, "e", 1) < 0)
            {
                used = 12;
            }

            out.len = 0;

            {
                size_t   got;
                uint8_t  copy[16];

                memcpy(copy, text + start, used);
                copy[used] = '"';

                rc = util_string(copy, used + 1, &out, &got, canonical);
                util_check(rc == KVR_OK && got == used + 1, "reference");
            }

            /* no limit of steps */

            j->left = KVR_JSON_STEPS;
            j->back = 0;

            util_check(kvr_json_seek(j, start + 1) == KVR_OK, "seek");

            n = 1;
            memset(dst, 0xee, sizeof(dst));

            rc = kvr_json_escape(j, dst, &n, canonical);

            util_check(rc == KVR_OK, "%d at %.12s", rc, text + start);
            util_check(n == out.len + 1
                       && memcmp(dst + 1, out.p, out.len) == 0
                       && dst[0] == 0xee,
                       "%.12s: \"%s\", not \"%s\"", text + start,
                       util_show(dst + 1, n - 1), util_show(out.p, out.len));
            util_check(kvr_json_offset(j) == start + used, "wrong offset");
        }
    }

    util_drop(&out);
}


TEST(test_json_escape)
{
    unsigned      u, k;
    kvr_json_t    j;
    util_buf_t    text = { 0 };
    util_rng_t    r;
    util_feed_t   f;

    static const size_t  sizes[] = { 1000000, 1, 5, 64 };

    util_seed(&r, "json escape", 0);

    util_puts(&text, "\\\"\\\\\\/\\b\\f\\n\\r\\t");

    for (u = 0; u < 0x10000; u++) {

        if (u >= 0xd7f0 || u < 0x300 || util_below(&r, 8) == 0) {
            util_printf(&text, "\\u%04x", u);

            if (util_below(&r, 3) == 0) {
                util_puts(&text, "\\n");
            }
        }
    }

    for (u = 0; u < 3000; u++) {
        util_printf(&text, "\\u%04x\\u%04x", 0xd7f0 + util_below(&r, 0x420),
                    0xdbf0 + util_below(&r, 0x420));
    }

    /* the byte after the last one must exist, as in any string */

    util_puts(&text, "\\n");

    for (k = 0; k < 4; k++) {
        util_note("steps of %zu", sizes[k]);
        util_feed(&f, text.p, text.len, UTIL_STEP, sizes[k]);
        kvr_json_init(&j, kvr_text_ops(), util_fetch, &f);

        escape_range(&j, (char *) text.p, text.len);

        util_unfeed(&f);
    }

    util_drop(&text);
}


typedef struct {
    int           rc;
    int64_t       value;
    const char   *rest;
} integer_t;


static void
integer_case(kvr_json_t *j, const void *arg)
{
    int               rc;
    int64_t           value;
    const integer_t  *want = arg;

    value = 4711;
    rc = kvr_json_integer(j, &value);

    util_check(rc == want->rc, "%d, not %d", rc, want->rc);
    util_check(value == (rc == KVR_OK ? want->value : 4711), "%lld",
               (long long) value);

    if (want->rest) {
        rest(j, want->rest);
    }
}


static void
integer_is(const char *text, int rc, int64_t value, const char *rest)
{
    integer_t  want = { rc, value, rest };

    each_window_of(text, integer_case, &want);
}


TEST(test_json_integer)
{
    integer_is("0,", KVR_OK, 0, ",");
    integer_is(" 7 ", KVR_OK, 7, " ");
    integer_is("-1}", KVR_OK, -1, "}");
    integer_is("1234567890]", KVR_OK, 1234567890, "]");
    integer_is("-0,", KVR_OK, 0, ",");

    /* rounded towards zero, and clamped */

    integer_is("1.9,", KVR_OK, 1, ",");
    integer_is("-1.9,", KVR_OK, -1, ",");
    integer_is("0.0000001,", KVR_OK, 0, ",");
    integer_is("2.99999999999999999999999,", KVR_OK, 2, ",");
    integer_is("9223372036854775806,", KVR_OK, INT64_MAX - 1, ",");
    integer_is("9223372036854775807,", KVR_OK, INT64_MAX, ",");
    integer_is("9223372036854775808,", KVR_OK, INT64_MAX, ",");
    integer_is("922337203685477580700,", KVR_OK, INT64_MAX, ",");
    integer_is("1000000000000000000,", KVR_OK, 1000000000000000000, ",");
    integer_is("-9223372036854775808,", KVR_OK, -INT64_MAX, ",");
    integer_is("99999999999999999999999999999999999.5,", KVR_OK, INT64_MAX,
               ",");

    /* skipped */

    integer_is("1e3,", KVR_DECLINED, 0, ",");
    integer_is("1E+3}", KVR_DECLINED, 0, "}");
    integer_is("2.5e-3 ]", KVR_DECLINED, 0, " ]");
    integer_is("null,", KVR_DECLINED, 0, ",");
    integer_is("true,", KVR_DECLINED, 0, ",");
    integer_is("\"12\",", KVR_DECLINED, 0, ",");
    integer_is("[1,{\"a\":2}],", KVR_DECLINED, 0, ",");
    integer_is("{\"a\":2},", KVR_DECLINED, 0, ",");

    integer_is("nul,", KVR_ERROR, 0, NULL);
    integer_is("+1,", KVR_ERROR, 0, NULL);
    integer_is(".5,", KVR_ERROR, 0, NULL);
    integer_is(",", KVR_ERROR, 0, NULL);

    /* the number can continue */

    integer_is("12", KVR_AGAIN, 0, NULL);
    integer_is("-", KVR_AGAIN, 0, NULL);
    integer_is("1e", KVR_AGAIN, 0, NULL);
    integer_is("1.", KVR_AGAIN, 0, NULL);
    integer_is("", KVR_AGAIN, 0, NULL);
    integer_is("[1", KVR_AGAIN, 0, NULL);
}


typedef struct {
    int           rc;
    const char   *rest;
} skip_t;


static void
skip_case(kvr_json_t *j, const void *arg)
{
    int            rc;
    const skip_t  *want = arg;

    rc = kvr_json_skip(j);

    util_check(rc == want->rc, "%d, not %d", rc, want->rc);

    if (want->rest) {
        rest(j, want->rest);
    }
}


static void
skip_is(const char *text, int rc, const char *rest)
{
    skip_t  want = { rc, rest };

    each_window_of(text, skip_case, &want);
}


TEST(test_json_skip)
{
    size_t  i;
    char    text[200], deep[600];

    skip_is(" null,x", KVR_OK, ",x");
    skip_is("true}", KVR_OK, "}");
    skip_is("false]", KVR_OK, "]");
    skip_is("-12.5e+3 ,", KVR_OK, " ,");
    skip_is("0\t", KVR_OK, "\t");
    skip_is("\"\"x", KVR_OK, "x");
    skip_is("\"a\\\"b\"x", KVR_OK, "x");
    skip_is("\"a\\\\\"x", KVR_OK, "x");
    skip_is("\"a\\\\\\\"\"x", KVR_OK, "x");
    skip_is("\"\\u12\"x", KVR_OK, "x");
    skip_is("[]x", KVR_OK, "x");
    skip_is("{}x", KVR_OK, "x");
    skip_is("[1,[2,\"]\\\"]\",{\"a\":[]}],3]]", KVR_OK, "]");
    skip_is("{\"a\":{\"}\":\"\\\\\"},\"b\":[{}]}}", KVR_OK, "}");

    /* a number is any sequence of the characters of numbers */

    skip_is("-,", KVR_OK, ",");
    skip_is("01.e-.+E9,", KVR_OK, ",");
    skip_is("1:2,", KVR_ERROR, NULL);
    skip_is("0x1,", KVR_ERROR, NULL);
    skip_is("1\"x\",", KVR_ERROR, NULL);
    skip_is("+1,", KVR_ERROR, NULL);
    skip_is("e1,", KVR_ERROR, NULL);

    /* the grammar inside is not checked */

    skip_is("[}x", KVR_OK, "x");
    skip_is("[1 2,,{3:nil},\"\\x\"]x", KVR_OK, "x");
    skip_is("\"\\u12\\x\n\"x", KVR_OK, "x");

    skip_is("tru,", KVR_ERROR, NULL);
    skip_is("truex,", KVR_ERROR, NULL);
    skip_is("falsy,", KVR_ERROR, NULL);
    skip_is("True,", KVR_ERROR, NULL);
    skip_is("nil,", KVR_ERROR, NULL);
    skip_is("none,", KVR_ERROR, NULL);
    skip_is("nullx,", KVR_ERROR, NULL);
    skip_is("x,", KVR_ERROR, NULL);
    skip_is(",", KVR_ERROR, NULL);
    skip_is("}", KVR_ERROR, NULL);
    skip_is("]", KVR_ERROR, NULL);
    skip_is(":", KVR_ERROR, NULL);
    skip_is(":,", KVR_ERROR, NULL);

    /* NUL bytes end nothing */

    {
        skip_t  want = { KVR_ERROR, NULL };

        each_window("\0null,", 6, skip_case, &want);
        each_window(" \0", 2, skip_case, &want);
    }

    /* cut anywhere */

    strcpy(text, "{\"a\":[1,2.5,\"x\\\"}\",{\"b\":null}],"
                 "\"\\\\\":\"\\u00e9\"}");

    for (i = strlen(text); i > 0; i--) {
        text[i - 1] = '\0';
        skip_is(text, KVR_AGAIN, NULL);
    }

    /* depth */

    memset(deep, '[', 299);
    memset(deep + 299, ']', 299);
    strcpy(deep + 598, "x");
    skip_is(deep, KVR_OK, "x");

    for (i = 0; i < 299; i++) {
        memcpy(deep + 2 * i, i % 3 ? "]," : "{}", 2);
    }

    deep[0] = '[';
    skip_is(deep, KVR_OK, NULL);
}
