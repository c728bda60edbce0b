
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_transfer: the descriptor is found byte for byte, however the answer is
 * cut, and only in an answer that came whole.
 */


#include "util.h"
#include "core/legs/kvr_transfer.h"


static uint8_t  memory[64], deep[256], deep_memory[256];


/* reads a text in runs of at most n bytes */
static void
feed(kvr_transfer_t *t, const char *text, size_t len, size_t n)
{
    size_t  k;

    kvr_transfer_init(t, "kv", memory, sizeof(memory));

    for ( /* void */ ; len; text += k, len -= k) {
        k = kvr_min(n, len);
        kvr_transfer_read(t, (const uint8_t *) text, k);
    }
}


TEST(test_transfer_answers)
{
    size_t          n, len, cut;
    unsigned        i;
    kvr_transfer_t  t;

    /* NULL: whole, but there is nothing to be used; "": it is not whole */

    static const struct {
        const char  *text;
        const char  *value;
    } answer[] = {
        { "{\"kv\":{\"a\":1}}", "{\"a\":1}" },
        { " { \"id\" : \"x\\\"}\" , \"kv\" :\n{ \"a\" : [ {} , \"}\" ] } ,"
          " \"z\" : [ { \"kv\" : { } } ] } \n",
          "{ \"a\" : [ {} , \"}\" ] }" },
        { "{\"kv\":{}}", "{}" },
        { "{\"kv\":{\"a\":1},\"kv\":{\"b\":2}}", "{\"b\":2}" },
        { "{\"kv\":{\"a\":1},\"kv\":null}", NULL },
        { "{\"kv\":null}", NULL },
        { "{\"kv\":[{}]}", NULL },
        { "{\"kv\":\"{}\"}", NULL },
        { "{}", NULL },
        { "{\"k\":{},\"kvx\":{},\"\":{},\"\\u006bv\":{},\"x\":\"kv\"}", NULL },
        { "{\"x\":{\"kv\":{}}}", NULL },
        { "{\"kv\":{\"0123456789012345678901234567890123456789\":"
          "\"01234567890123456789012345\"}}", NULL },
        { "{\"kv\":{\"a\":[}}}", NULL },
        { "{\"kv\":\"x\"{\"a\":1}}", "{\"a\":1}" },
        { "{\"kv\":{\"a\":1}", "" },
        { "", "" },
        { "[{\"kv\":{}}]", "" },
        { "{\"kv\":{}}{", "" },
        { "{\"kv\":{}}}", "" },
        { "Bad Gateway", "" },
        { "{\"kv\":{}} x", "" }
    };

    for (i = 0; i < kvr_nelts(answer); i++) {
        len = strlen(answer[i].text);

        for (n = 1; n <= len + 1; n++) {
            feed(&t, answer[i].text, len, n);

            util_check(kvr_transfer_whole(&t)
                       == !(answer[i].value && *answer[i].value == '\0'),
                       "%s by %zu", answer[i].text, n);

            util_check(kvr_transfer_usable(&t)
                       == (answer[i].value && *answer[i].value),
                       "%s by %zu", answer[i].text, n);

            if (kvr_transfer_usable(&t)) {
                util_check(t.len == strlen(answer[i].value)
                           && memcmp(memory, answer[i].value, t.len) == 0,
                           "%s: %.*s", answer[i].text, (int) t.len, memory);
            }
        }

        /* broken off anywhere */

        if (answer[i].value == NULL || *answer[i].value) {

            for (cut = 0; cut < strlen(answer[i].text) - 2; cut++) {
                feed(&t, answer[i].text, cut, 5);
                util_check(!kvr_transfer_whole(&t), "%s at %zu",
                           answer[i].text, cut);
            }
        }
    }
}


/* what servers would not read as JSON is not put into a request */
TEST(test_transfer_sound)
{
    size_t          i;
    unsigned        n, sound;
    char            text[256];
    kvr_transfer_t  t;

    static const struct {
        unsigned     sound;
        const char  *member;
    } object[] = {
        { 1, "" }, { 1, " " }, { 0, "," }, { 0, "1" }, { 0, "\"a\"" },
        { 0, "\"a\":" }, { 0, "\"a\"::1" }, { 0, "\"a\"=1" }, { 0, "\"a\":1," },
        { 0, "a:1" },
        { 1, "\"a\" : 1 , \"b\" : [ ] , \"c\" : { }" },
        { 1, "\"a\":[[],{},[1,{\"\":[null,true,false,\"\"]}]]" },
        { 0, "\"a\":[,1]" }, { 0, "\"a\":[1,]" }, { 0, "\"a\":[1 2]" },
        { 0, "\"a\":[1:2]" }, { 0, "\"a\":{1}" }, { 0, "\"a\":[}" },
        { 0, "\"a\":[1}]" }, { 0, "\"a\":nul" }, { 0, "\"a\":nulll" },
        { 0, "\"a\":NaN" }, { 0, "\"a\":'x'" }, { 0, "\"a\":\001" },
        { 1, "\"a\":[0,-0,1.5,-10e+05,1E-2,0.0e0]" }, { 0, "\"a\":01" },
        { 0, "\"a\":-" }, { 0, "\"a\":1." }, { 0, "\"a\":.5" }, { 0, "\"a\":1e" },
        { 0, "\"a\":+1" }, { 0, "\"a\":0x1" },
        { 1, "\"a\":\"\\\" \\\\ \\/ \\b\\f\\n\\r\\t \\u00aF\"" },
        { 0, "\"a\":\"\\x\"" }, { 0, "\"a\":\"\\u00g0\"" },
        { 0, "\"a\":\"\n\"" }, { 0, "\"a\":\"\037\"" }, { 1, "\"a\":\"\177\"" },
        { 1, "\"\303\244\":\"\342\202\254 \360\237\230\200 \355\237\277\"" },
        { 0, "\"a\":\"\200\"" }, { 0, "\"a\":\"\301\201\"" },
        { 0, "\"a\":\"\340\200\200\"" }, { 0, "\"a\":\"\355\240\200\"" },
        { 0, "\"a\":\"\364\220\200\200\"" }, { 0, "\"a\":\"\303\"" },
        { 0, "\"a\":\"\377\"" }
    };

    for (i = 0; i < kvr_nelts(object); i++) {
        n = (unsigned) snprintf(text, sizeof(text), "{\"kv\":{%s}}",
                                object[i].member);
        feed(&t, text, n, n);
        util_check(kvr_transfer_usable(&t) == (int) object[i].sound, "%s", text);
    }

    feed(&t, "{\"kv\":{\"a\":\"\0\"}}", 16, 16);
    util_check(!kvr_transfer_usable(&t), "a byte of 0");

    feed(&t, "{\"kv\":{\"a\":\"\\\0\"}}", 17, 17);
    util_check(!kvr_transfer_usable(&t), "an escape of it");

    /* as deep as may be, and deeper */

    for (n = 62; n < 66; n++) {
        i = (size_t) snprintf((char *) deep, sizeof(deep), "{\"kv\":{\"a\":");
        memset(deep + i, '[', n);
        memset(deep + i + n, ']', n);
        memcpy(deep + i + 2 * n, "}}", 2);

        kvr_transfer_init(&t, "kv", deep_memory, sizeof(deep_memory));
        kvr_transfer_read(&t, deep, i + 2 * n + 2);

        sound = n < 64;
        util_check(kvr_transfer_usable(&t) == (int) sound, "%u levels", n + 1);
    }
}
