
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_transfer: the descriptor is found byte for byte, however the answer is
 * cut, and only in an answer that came whole.
 */


#include "util.h"
#include "core/legs/kvr_transfer.h"


static uint8_t  memory[64];


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


static int
usable(const kvr_transfer_t *t)
{
    return kvr_transfer_whole(t) && t->found && !t->over;
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
        { "{\"kv\":{\"a\":[}}}", "{\"a\":[}}" },
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

            util_check(usable(&t)
                       == (answer[i].value && *answer[i].value),
                       "%s by %zu", answer[i].text, n);

            if (usable(&t)) {
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
