
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_zmtp, and the events of its messages: a publisher's bytes, cut anywhere,
 * and peers that are not publishers.
 */


#include "pack.h"
#include "core/events/kvr_kvevent.h"
#include "core/events/kvr_zmtp.h"


/* log of a conversation: a letter for each result */
typedef struct {
    char                 found[256];
    size_t               n;
    util_buf_t           out;
    uint8_t              memory[4096];
    kvr_zmtp_t           z;
} talk_t;


static void
note(talk_t *t, const char *what)
{
    t->n += (size_t) snprintf(t->found + t->n, sizeof(t->found) - t->n, "%s ",
                              what);
    t->n = kvr_min(t->n, sizeof(t->found) - 1);
}


static void
begin(talk_t *t, kvr_zmtp_role_e role)
{
    memset(t, 0, sizeof(talk_t));

    /* the previous connection broke between a number and its payload */

    t->z.number = 5;
    t->z.numbered = 1;

    kvr_zmtp_init(&t->z, role);
}


/* a message has ended */
static void
ended(talk_t *t)
{
    char                         text[64];
    kvr_kvevent_e                rc;

    static kvr_kvevent_reader_t  reader;

    if (!t->z.numbered) {
        note(t, "bad");
        return;
    }

    if (t->z.number == KVR_ZMTP_REPLAYED) {
        note(t, "done");
        return;
    }

    kvr_kvevent_begin(&reader, t->memory, t->z.len);

    while ((rc = kvr_kvevent_read(&reader)) == KVR_KVEVENT_FOUND) {
        snprintf(text, sizeof(text), "e%u/%lu", reader.event.type,
                 (unsigned long) reader.event.blocks);
        note(t, text);
    }

    note(t, rc == KVR_KVEVENT_DONE ? "done" : "bad");
}


static void
hear(talk_t *t, const util_buf_t *b, util_cut_e cut, size_t n)
{
    char            text[64];
    size_t          len, off;
    util_feed_t     f;
    const uint8_t  *p, *start;

    util_feed(&f, b->p, b->len, cut, n);

    for (off = 0; (start = util_fetch(&f, off, &len)) != NULL;
         off += (size_t) (p - start))
    {
        p = start;

        for ( ;; ) {

            switch (kvr_zmtp_read(&t->z, &p, start + len)) {

            case KVR_ZMTP_AGAIN:
                util_check(p == start + len, "bytes left over");
                break;

            case KVR_ZMTP_OPEN:
                note(t, "open");
                continue;

            case KVR_ZMTP_ALIVE:
                note(t, "alive");
                continue;

            case KVR_ZMTP_LAST:
                util_check(t->z.size <= sizeof(t->memory), "memory");
                t->z.memory = t->memory;

                if (t->z.number == KVR_ZMTP_REPLAYED) {
                    note(t, "end");
                    continue;
                }

                snprintf(text, sizeof(text), "%lu",
                         (unsigned long) t->z.number);
                note(t, text);
                continue;

            case KVR_ZMTP_END:
                ended(t);
                continue;

            default:
                note(t, t->z.error);
                goto done;
            }

            break;
        }

        /* output is sent byte by byte, as to full sockets */

        while (t->z.out_len) {
            util_put(&t->out, t->z.out, 1);
            kvr_zmtp_sent(&t->z, 1);
        }
    }

done:

    util_unfeed(&f);
}


/* cut in all ways, the results are the same */
static void
expect(const util_buf_t *b, kvr_zmtp_role_e role, const char *found)
{
    size_t      n;
    talk_t      t;
    unsigned    k;
    util_cut_e  cut;

    for (k = 0; util_cut(b->len, k, &cut, &n); k++) {
        util_note("cut %u", k);
        begin(&t, role);
        hear(&t, b, cut, n);
        util_check(strcmp(t.found, found) == 0, "found \"%s\"", t.found);
        util_drop(&t.out);
    }
}


static void
stored(util_buf_t *b, unsigned blocks)
{
    unsigned  i;

    memset(b, 0, sizeof(util_buf_t));

    pack_array(b, 3);
    pack_float(b, 1);
    pack_array(b, 2);
    pack_array(b, 6);
    pack_str(b, "BlockStored");
    pack_array(b, blocks);

    for (i = 0; i < blocks; i++) {
        pack_uint(b, 1000000 + i);
    }

    pack_nil(b);
    pack_array(b, 0);
    pack_uint(b, 16);
    pack_nil(b);

    pack_array(b, 2);
    pack_str(b, "BlockRemoved");
    pack_array(b, 1);
    pack_uint(b, 7);

    pack_uint(b, 0);
}


TEST(test_zmtp_messages)
{
    util_buf_t  b = { 0 }, small, large;

    stored(&small, 3);
    stored(&large, 100);                 /* its frame has a long length */

    pack_handshake(&b, "PUB");
    pack_message(&b, "kv", 0, &small);
    pack_message(&b, "", 1, &large);
    pack_frame(&b, 4, "\4PONG", 5);
    pack_message(&b, "12345678", 258, &small);

    expect(&b, KVR_ZMTP_SUB,
           "open 0 e1/3 e2/1 done 1 e1/100 e2/1 done alive "
           "258 e1/3 e2/1 done ");

    util_drop(&small);
    util_drop(&large);
    util_drop(&b);
}


/* a replay in vLLM's format, with and without a topic, and its end */
TEST(test_zmtp_replay)
{
    unsigned    i;
    util_buf_t  b = { 0 }, payload, seq = { 0 }, none = { 0 };

    stored(&payload, 3);

    pack_handshake(&b, "ROUTER");

    pack_message(&b, "", 5, &payload);
    pack_frame(&b, 1, "", 0);
    pack_message(&b, "kv", 6, &payload);

    for (i = 0; i < 8; i++) {
        util_byte(&seq, 0xff);
    }

    pack_frame(&b, 1, "", 0);
    pack_frame(&b, 1, seq.p, 8);
    pack_frame(&b, 0, none.p, 0);

    expect(&b, KVR_ZMTP_DEALER,
           "open 5 e1/3 e2/1 done 6 e1/3 e2/1 done end done ");

    util_drop(&payload);
    util_drop(&seq);
    util_drop(&b);
}


/* messages that are not events are skipped */
TEST(test_zmtp_bad)
{
    util_buf_t  b = { 0 }, good, bad = { 0 }, half, more;

    stored(&good, 2);
    stored(&more, 2);
    util_byte(&more, 0);
    stored(&half, 2);
    half.len -= 3;
    util_puts(&bad, "{\"events\": []}");

    pack_handshake(&b, "XPUB");
    pack_frame(&b, 0, "one", 3);                   /* no number */
    pack_frame(&b, 1, "kv", 2);
    pack_frame(&b, 1, "123456789", 9);
    pack_frame(&b, 0, good.p, good.len);
    pack_message(&b, "kv", 1, &bad);
    pack_message(&b, "kv", 2, &half);
    pack_frame(&b, 1, "12345678", 8);              /* followed by another */
    pack_frame(&b, 1, "", 0);
    pack_frame(&b, 0, good.p, good.len);
    pack_message(&b, "kv", 3, &more);
    pack_message(&b, "kv", 4, &good);

    expect(&b, KVR_ZMTP_SUB,
           "open bad bad 1 bad 2 e1/2 bad bad 3 e1/2 e2/1 bad "
           "4 e1/2 e2/1 done ");

    util_drop(&more);

    util_drop(&good);
    util_drop(&half);
    util_drop(&bad);
    util_drop(&b);
}


/* the caller stops before a payload, and continues with other memory */
TEST(test_zmtp_pause)
{
    size_t          rest;
    talk_t          t;
    uint8_t        *moved;
    util_buf_t      b = { 0 }, payload;
    const uint8_t  *p;

    stored(&payload, 3);
    pack_handshake(&b, "PUB");
    pack_message(&b, "kv", 4, &payload);
    pack_message(&b, "kv", 5, &payload);

    begin(&t, KVR_ZMTP_SUB);
    p = b.p;

    ck_assert(kvr_zmtp_read(&t.z, &p, b.p + b.len) == KVR_ZMTP_OPEN);
    ck_assert(kvr_zmtp_read(&t.z, &p, b.p + b.len) == KVR_ZMTP_LAST);
    ck_assert_uint_eq(t.z.number, 4);

    rest = (size_t) (b.p + b.len - p);
    moved = malloc(rest);
    memcpy(moved, p, rest);
    util_drop(&b);

    /* the first is skipped */

    p = moved;

    ck_assert(kvr_zmtp_read(&t.z, &p, moved + rest) == KVR_ZMTP_END);
    ck_assert(t.z.numbered && t.z.len == 0);
    ck_assert(kvr_zmtp_read(&t.z, &p, moved + rest) == KVR_ZMTP_LAST);
    t.z.memory = t.memory;
    ck_assert(kvr_zmtp_read(&t.z, &p, moved + rest) == KVR_ZMTP_END);

    ended(&t);
    util_check(strcmp(t.found, "e1/3 e2/1 done ") == 0, "%s", t.found);

    free(moved);
    util_drop(&payload);
}


/* bytes that a subscriber sends, and one that requests a replay */
TEST(test_zmtp_says)
{
    int         i;
    talk_t      t;
    util_buf_t  b = { 0 }, more = { 0 };

    begin(&t, KVR_ZMTP_SUB);
    pack_handshake(&b, "PUB");
    hear(&t, &b, UTIL_WHOLE, 0);

    ck_assert_uint_eq(t.out.len, 64 + 27 + 3);
    ck_assert(memcmp(t.out.p, b.p, 64) == 0);
    ck_assert(memcmp(t.out.p + 64, "\4\x19\5READY\13Socket-Type\0\0\0\3SUB",
                     27) == 0);
    ck_assert(memcmp(t.out.p + 91, "\0\1\1", 3) == 0);

    util_drop(&t.out);
    memset(&t.out, 0, sizeof(t.out));

    /* PING: a time, and data to return, at most 16 bytes */

    pack_frame(&more, 4, "\4PING\0\12hello", 12);
    hear(&t, &more, UTIL_STEP, 1);
    ck_assert_uint_eq(t.out.len, 2 + 5 + 5);
    ck_assert(memcmp(t.out.p, "\4\12\4PONGhello", 12) == 0);

    kvr_zmtp_ping(&t.z);
    ck_assert(memcmp(t.z.out, "\4\7\4PING\0\0", 9) == 0);

    /* the answers to a flood of pings are bounded */

    util_drop(&more);
    memset(&more, 0, sizeof(more));

    for (i = 0; i < 1000; i++) {
        pack_frame(&more, 4, "\4PING\0\0", 7);
    }

    hear(&t, &more, UTIL_WHOLE, 0);
    ck_assert(t.z.out_len <= KVR_ZMTP_OUT);

    util_drop(&t.out);
    util_drop(&more);
    util_drop(&b);

    memset(&b, 0, sizeof(b));
    begin(&t, KVR_ZMTP_DEALER);
    pack_handshake(&b, "ROUTER");
    hear(&t, &b, UTIL_WHOLE, 0);
    ck_assert(memcmp(t.out.p + 64, "\4\x1c\5READY\13Socket-Type\0\0\0\6DEALER",
                     30) == 0);

    kvr_zmtp_request(&t.z, 0x0102030405060708);
    ck_assert_uint_eq(t.z.out_len, 12);
    ck_assert(memcmp(t.z.out, "\1\0\0\10\1\2\3\4\5\6\7\10", 12) == 0);

    util_drop(&t.out);
    util_drop(&b);
}


TEST(test_zmtp_strangers)
{
    int         i;
    util_buf_t  b = { 0 };

    static const struct {
        size_t       at;
        uint8_t      byte;
        const char  *error;
    } greetings[] = {
        { 0, 'H', "not a ZeroMQ socket " },
        { 9, 'x', "not a ZeroMQ socket " },
        { 10, 1, "ZMTP before 3.0 is not supported " },
        { 12, 'C', "the socket requires authentication " },
        { 16, 'X', "the socket requires authentication " },
        { 64, 8, "invalid frame " },
        { 64, 0, "message before the handshake " },
        { 64, 5, "invalid command " },
        { 65, 0, "invalid command " }
    };

    for (i = 0; i < (int) kvr_nelts(greetings); i++) {
        pack_handshake(&b, "PUB");
        b.p[greetings[i].at] = greetings[i].byte;
        expect(&b, KVR_ZMTP_SUB, greetings[i].error);
        util_drop(&b);
        memset(&b, 0, sizeof(b));
    }

    pack_handshake(&b, "ROUTER");
    expect(&b, KVR_ZMTP_SUB,
           "not a publisher (PUB) ");
    util_drop(&b);

    memset(&b, 0, sizeof(b));
    pack_handshake(&b, "PUB");
    expect(&b, KVR_ZMTP_DEALER,
           "not a replay socket (ROUTER) ");

    /* a newer version of ZMTP 3 */

    b.p[10] = 4;
    expect(&b, KVR_ZMTP_SUB, "open ");

    /* lengths above all limits */

    util_put(&b, "\2\xff\xff\xff\xff\xff\xff\xff\xff", 9);
    expect(&b, KVR_ZMTP_SUB, "open frame of more than 64 MB ");

    util_drop(&b);
    memset(&b, 0, sizeof(b));
    pack_handshake(&b, "PUB");
    b.len = 64;

    pack_frame(&b, 4, "\5ERROR\3why", 10);
    expect(&b, KVR_ZMTP_SUB, "the handshake was refused ");

    util_drop(&b);
}
