
/*
 * Copyright (C) kvroute contributors
 */


/* Tests kvr_framing: bodies in chunks, cut anywhere. */


#include "util.h"
#include "core/engine/kvr_framing.h"


/* Reads text in windows of n bytes and stores the data in out. */
static int
take(const char *text, size_t len, size_t n, char *out)
{
    int             rc;
    char           *buf;
    size_t          i, m, size;
    const uint8_t  *p, *end, *data;
    kvr_framing_t   c = { 0 };

    rc = KVR_AGAIN;

    for (i = 0; i < len && rc == KVR_AGAIN; i += m) {

        /* on the heap, where a sanitizer detects reads beyond the end */

        m = kvr_min(n, len - i);
        buf = malloc(m);
        memcpy(buf, text + i, m);

        p = (uint8_t *) buf;
        end = p + m;

        while ((rc = kvr_framing_read(&c, &p, end, &data, &size)) == KVR_OK) {
            memcpy(out, data, size);
            out += size;
        }

        free(buf);
    }

    *out = '\0';

    return rc;
}


TEST(test_framing_read)
{
    char      out[128];
    size_t    n;
    unsigned  i;

    static const struct {
        const char  *text;
        const char  *data;
        int          rc;
    } cases[] = {
        { "5\r\nhello\r\n0\r\n\r\n", "hello", KVR_DECLINED },
        { "5\r\nhello\r\n1\r\n!\r\n00\r\n\r\n", "hello!", KVR_DECLINED },
        { "0A;a=\"b\"\r\n0123\r\n6789\r\n0\r\nX: y\r\n\r\nmore",
          "0123\r\n6789", KVR_DECLINED },
        { "a\n0123456789\n0\n\n", "0123456789", KVR_DECLINED },
        { "3 \r\nabc\r\n", "abc", KVR_AGAIN },
        { "7\r\nabc", "abc", KVR_AGAIN },
        { "0\r\nX: y\r\n", "", KVR_DECLINED },
        { "0\r", "", KVR_AGAIN },
        { "3\r\nabcd\r\n", "abc", KVR_ERROR },
        { "\r\n", "", KVR_ERROR },
        { "g\r\n", "", KVR_ERROR },
        { "-1\r\n", "", KVR_ERROR },
        { "1z\r\n", "", KVR_ERROR },
        { "# HELP\n", "", KVR_ERROR },
        { "1000000000000000\r\n", "", KVR_ERROR },
        { "0000000000000003\r\nabc", "abc", KVR_AGAIN },
        { "00000000000000003\r\nabc", "", KVR_ERROR },
        { "3\r\nabc\r\n0000000000000000\r\n\r\n", "abc", KVR_DECLINED },
        { "3\r\nabc\r\n00000000000000000\r\n\r\n", "abc", KVR_ERROR },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (n = 1; n <= strlen(cases[i].text); n++) {
            util_check(take(cases[i].text, strlen(cases[i].text), n, out)
                       == cases[i].rc, "case %u, window %zu", i, n);
            util_check(strcmp(out, cases[i].data) == 0,
                       "case %u, window %zu: %s", i, n, out);
        }
    }
}


TEST(test_framing_long)
{
    char  text[2 * KVR_FRAMING_LINE], out[8];

    /* a line that does not end */

    memset(text, 'x', sizeof(text));

    memcpy(text, "1;", 2);
    util_check(take(text, sizeof(text), 100, out) == KVR_ERROR, "size");
}
