
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_transfer: finds the descriptor byte for byte, only in complete answers.
 */


#include "util.h"
#include "core/legs/kvr_transfer.h"


/* in memory of its size */
static int
find(kvr_transfer_t *t, const char *name, const char *text, size_t len)
{
    int       rc;
    uint8_t  *p;

    p = malloc(len + 1);
    memcpy(p + 1, text, len);

    rc = kvr_transfer_find(t, name, p + 1, len);

    free(p);

    return rc;
}


TEST(test_transfer_answers)
{
    int             rc;
    size_t          len, cut;
    unsigned        i;
    const char     *text, *value;
    kvr_transfer_t  t;

    /* NULL: complete without a descriptor; "": incomplete */

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
        { "{\"k\":{},\"kvx\":{},\"\":{},\"x\":\"kv\"}", NULL },
        { "{\"\\u006bv\":{\"a\":1}}", "{\"a\":1}" },
        { "{\"x\":{\"kv\":{}}}", NULL },
        { "{\"kv\":\"x\"{\"a\":1}}", "" },
        { "{\"kv\":{\"a\":1}", "" },
        { "", "" },
        { "[{\"kv\":{}}]", "" },
        { "{\"kv\":{}}{", "" },
        { "{\"kv\":{}}}", "" },
        { "Bad Gateway", "" },
        { "{\"kv\":{}} x", "" }
    };

    for (i = 0; i < kvr_nelts(answer); i++) {
        text = answer[i].text;
        value = answer[i].value;
        len = strlen(text);

        rc = find(&t, "kv", text, len);

        if (value && *value == '\0') {
            util_check(rc == KVR_ERROR, "%s", text);
            continue;
        }

        util_check(rc == KVR_OK, "%s", text);
        util_check(t.len == (value ? strlen(value) : 0)
                   && (value == NULL || memcmp(text + t.at, value, t.len) == 0),
                   "%s: %zu bytes", text, t.len);

        util_check(find(&t, NULL, text, len) == KVR_OK && t.len == 0,
                   "%s without a name", text);

        /* broken off at any byte */

        for (cut = 0; cut < len - 2; cut++) {
            util_check(find(&t, "kv", text, cut) == KVR_ERROR, "%s at %zu",
                       text, cut);
        }
    }
}
