
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_usage: where in a response its first event begins, whatever the pieces
 * that it comes in.
 */


#include "util.h"
#include "kvr_usage.h"


#define NONE    ((size_t) -1)

#define PING    "event: ping\ndata: {\"type\": \"ping\"}\n\n"
#define CRLF    "event: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n"


/* the text, with a "|" after the byte that tells that there is an event */
static const char  *streams[] = {

    /* nothing yet */

    "",
    "\n",
    "\r\n\r\n",
    ":",
    ": \n",
    ":\n\n:\n\n",
    ": keep-alive\n\n: keep-alive\r\n\r\n",
    ":data: x\n",
    ": event: message_start\n\n",
    "e",
    "event: ping",
    "event: ping\n",
    PING,
    CRLF,
    PING ": x\n\n" CRLF PING "event: pi",
    "event: ping\ndata: a\ndata: b\nid: 1\n: c\n\n",
    "event:ping\ndata: {}\n\n",

    /* the first byte that can be of nothing else */

    "d|ata: {\"choices\":[]}\n\n",
    "{|\"error\":1}",
    " |data: x\n\n",
    "i|d: 1\ndata: x\n\n",
    "r|etry: 10\n\n",
    "\n\nd|ata: x\n\n",
    "\r\n\r\nd|ata: x\r\n\r\n",
    ": a\nd|ata: x\n\n",
    ":\n\nd|ata: x\n\n",
    ": a\r\n\r\nd|ata: x\n\n",
    ":::\n:\nd|ata: x\n\n",
    PING "d|ata: x\n\n",
    CRLF "d|ata: x\r\n\r\n",
    PING PING ": c\n\n" PING "d|ata: x\n\n",
    "event:ping\ndata: {}\n\nd|ata: x\n\n",
    "event: m|essage_start\ndata: {}\n\n",
    "event:m|essage_start\ndata: {}\n\n",
    PING "event: c|ontent_block_delta\n",
    CRLF PING "event: e|rror\r\n",
    "evi|lent",
    "event: ping |\ndata: {}\n\n",
    "event: pingp|ong\ndata: {}\n\n",
    "event: pin\n|data: {}\n\n",
    "event\n|data: {}\n\n",
    "event:  |ping\n\n",
    "ea|st",
    "event:pp|ing",
    "event: ping\n\nd|ata: x",
    "event: ping\n\nevent: ping\n\nex|it"
};


/* the marker comes out; returns where it was */
static size_t
text(const char *s, uint8_t *out, size_t *len)
{
    size_t       n;
    const char  *bar;

    bar = strchr(s, '|');
    n = strlen(s);

    if (bar == NULL) {
        memcpy(out, s, n);
        *len = n;
        return NONE;
    }

    memcpy(out, s, (size_t) (bar - s));
    memcpy(out + (bar - s), bar + 1, n - (size_t) (bar - s) - 1);

    *len = n - 1;

    return (size_t) (bar - s);
}


/* feeds a copy of the exact size, to see what is read beyond it */
static int
feed(kvr_usage_t *u, const uint8_t *p, size_t len)
{
    int       rc;
    uint8_t  *copy;

    copy = malloc(len ? len : 1);
    memcpy(copy, p, len);

    rc = kvr_usage_event(u, copy, len);
    free(copy);

    return rc;
}


START_TEST(test_usage_bytes)
{
    int          rc;
    size_t       i, k, at, len;
    uint8_t      data[512];
    kvr_usage_t  u;

    for (i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {

        at = text(streams[i], data, &len);

        kvr_usage_init(&u, 1);

        for (k = 0; k < len; k++) {
            rc = feed(&u, data + k, 1);

            util_check(rc == (at != NONE && k + 1 >= at),
                       "stream %zu: %d after \"%s\"", i, rc,
                       util_show(data, k + 1));

            util_check(feed(&u, data + k, 0) == 0 || rc, "nothing fed");
        }
    }
}
END_TEST


START_TEST(test_usage_split)
{
    int          rc;
    size_t       i, a, b, at, len;
    uint8_t      data[512];
    kvr_usage_t  u;

    for (i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {

        at = text(streams[i], data, &len);

        for (a = 0; a <= len; a++) {
            for (b = a; b <= len; b++) {

                kvr_usage_init(&u, 1);

                rc = feed(&u, data, a);
                util_check(rc == (at != NONE && a >= at), "%zu: %zu", i, a);

                if (b > a) {
                    rc = feed(&u, data + a, b - a);
                    util_check(rc == (at != NONE && b >= at), "%zu: %zu %zu",
                               i, a, b);
                }

                if (len > b) {
                    rc = feed(&u, data + b, len - b);
                    util_check(rc == (at != NONE), "%zu: %zu %zu", i, a, b);
                }
            }
        }
    }
}
END_TEST


/* any mixture of comments and pings, cut anywhere, then an event */
START_TEST(test_usage_random)
{
    int          rc;
    size_t       at, off, n;
    unsigned     i, k;
    util_rng_t   r;
    util_buf_t   b;
    kvr_usage_t  u;

    static const char  *quiet[] = {
        ":\n\n", ": ping - 2025-01-01 00:00:00\r\n\r\n", "\n", "\r\n", PING,
        CRLF, ":\n", "event:ping\r\ndata:{}\r\n\r\n"
    };

    static const char  *events[] = {
        "data: {\"choices\":[]}\n\n", "event: message_start\r\n\r\n", "{}",
        "id: 7\ndata: x\n\n", "event: pings\n\n"
    };

    memset(&b, 0, sizeof(b));

    for (i = 0; i < util_cases(20000); i++) {

        util_seed(&r, "usage random", i);
        b.len = 0;

        for (k = util_below(&r, 12); k; k--) {
            util_puts(&b, quiet[util_below(&r, 8)]);
        }

        at = b.len;
        util_puts(&b, events[util_below(&r, 5)]);

        kvr_usage_init(&u, 1);
        rc = 0;

        for (off = 0; off < b.len; off += n) {
            n = 1 + util_below(&r, (unsigned) (b.len - off));

            rc = feed(&u, b.p + off, n);

            util_check(!rc || off + n > at, "too early: %s",
                       util_show(b.p, b.len));
        }

        util_check(rc, "not seen: %s", util_show(b.p, b.len));
    }

    util_drop(&b);
}
END_TEST


/* any other body begins with its first byte */
START_TEST(test_usage_json)
{
    kvr_usage_t  u;

    kvr_usage_init(&u, 0);
    util_check(feed(&u, (const uint8_t *) "", 0) == 0, "nothing");
    util_check(feed(&u, (const uint8_t *) "{", 1) == 1, "{");
    util_check(feed(&u, (const uint8_t *) "}", 1) == 1, "}");

    kvr_usage_init(&u, 0);
    util_check(feed(&u, (const uint8_t *) ": x\n", 4) == 1, "a colon");

    kvr_usage_init(&u, 0);
    util_check(feed(&u, (const uint8_t *) "\n", 1) == 1, "a line feed");

    /* used again */

    kvr_usage_init(&u, 1);
    util_check(feed(&u, (const uint8_t *) ": x\n", 4) == 0, "a comment");
}
END_TEST


int
main(void)
{
    Suite  *s;

    s = suite_create("usage");

    util_add(s, "bytes", test_usage_bytes);
    util_add(s, "split", test_usage_split);
    util_add(s, "random", test_usage_random);
    util_add(s, "json", test_usage_json);

    return util_run(s);
}
