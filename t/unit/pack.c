
/*
 * Copyright (C) kvroute contributors
 */


#include "pack.h"


void
pack_any(util_buf_t *b, util_rng_t *r, unsigned depth)
{
    char      text[600];
    unsigned  n;

    switch (util_below(r, depth ? 10 : 8)) {

    case 0:
        pack_nil(b);
        break;

    case 1:
        util_byte(b, 0xc2 + util_below(r, 2));
        break;

    case 2:
    case 3:
        pack_uint(b, util_next(r) >> util_below(r, 64));
        break;

    case 4:
        pack_int(b, (int64_t) util_next(r) >> util_below(r, 64));
        break;

    case 5:
        pack_float(b, (double) util_next(r));
        break;

    case 6:
        n = util_below(r, util_below(r, 4) ? 40 : sizeof(text));
        memset(text, 'a' + (int) util_below(r, 26), n);
        text[n] = '\0';
        pack_str(b, text);
        break;

    case 7:
        n = util_below(r, 40);
        memset(text, (int) util_below(r, 256), sizeof(text));

        if (util_below(r, 2)) {
            pack_bin(b, text, n);

        } else if (util_below(r, 2)) {
            util_byte(b, 0xd4 + n % 5);
            util_put(b, text, 1 + (1U << n % 5));

        } else {
            pack_head(b, 0xc7, n, 0);
            util_put(b, text, n + 1);
        }

        break;

    case 8:
        n = util_below(r, 20);
        pack_array(b, n);

        while (n--) {
            pack_any(b, r, depth - 1);
        }

        break;

    default:
        n = util_below(r, 18);
        pack_map(b, n);

        for (n *= 2; n; n--) {
            pack_any(b, r, depth - 1);
        }

        break;
    }
}


void
pack_frame(util_buf_t *b, unsigned flags, const void *data, size_t len)
{
    if (len < 256) {
        util_byte(b, flags);
        util_byte(b, (unsigned) len);

    } else {
        util_byte(b, flags | 2);
        pack_number(b, len, 8);
    }

    if (len) {
        util_put(b, data, len);
    }
}


void
pack_handshake(util_buf_t *b, const char *type)
{
    size_t   len;
    uint8_t  greeting[64] = { 0 };

    util_buf_t  ready;

    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[11] = 1;
    memcpy(&greeting[12], "NULL", 4);

    util_put(b, greeting, sizeof(greeting));

    memset(&ready, 0, sizeof(ready));

    len = strlen(type);

    util_put(&ready, "\5READY\13Socket-Type", 18);
    pack_number(&ready, len, 4);
    util_put(&ready, type, len);
    util_put(&ready, "\10Identity\0\0\0\0", 13);

    pack_frame(b, 4, ready.p, ready.len);
    util_drop(&ready);
}


void
pack_message(util_buf_t *b, const char *topic, uint64_t seq,
    const util_buf_t *payload)
{
    util_buf_t  number = { 0 };

    pack_number(&number, seq, 8);

    pack_frame(b, 1, topic, strlen(topic));
    pack_frame(b, 1, number.p, number.len);
    pack_frame(b, 0, payload->p, payload->len);

    util_drop(&number);
}
