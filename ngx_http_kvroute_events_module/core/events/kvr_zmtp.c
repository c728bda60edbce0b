
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_zmtp.h"

#include <strings.h>


#define KVR_ZMTP_GREETING   64
#define KVR_ZMTP_VERSION    10        /* offsets in a greeting */
#define KVR_ZMTP_MINOR      11
#define KVR_ZMTP_MECHANISM  12
#define KVR_ZMTP_SERVER     32

#define KVR_ZMTP_MORE       0x01
#define KVR_ZMTP_LONG       0x02
#define KVR_ZMTP_COMMAND    0x04

#define KVR_ZMTP_CONTEXT    16        /* bytes of a PING that PONG returns */


typedef enum {
    KVR_ZMTP_IN_GREETING = 0,
    KVR_ZMTP_IN_HEAD,                 /* of a frame: flags, size */
    KVR_ZMTP_IN_FRAME,
    KVR_ZMTP_IN_COMMAND
} kvr_zmtp_state_e;


static kvr_zmtp_e kvr_zmtp_greeting(kvr_zmtp_t *z);
static kvr_zmtp_e kvr_zmtp_head(kvr_zmtp_t *z);
static kvr_zmtp_e kvr_zmtp_end(kvr_zmtp_t *z);
static void kvr_zmtp_next(kvr_zmtp_t *z);
static kvr_zmtp_e kvr_zmtp_command(kvr_zmtp_t *z);
static kvr_zmtp_e kvr_zmtp_ready(kvr_zmtp_t *z, const uint8_t *p,
    const uint8_t *last);
static int kvr_zmtp_named(const kvr_zmtp_t *z, const char *name);
static void kvr_zmtp_put(kvr_zmtp_t *z, const void *data, size_t len);


static kvr_zmtp_e
kvr_zmtp_fail(kvr_zmtp_t *z, const char *error)
{
    z->error = error;

    return KVR_ZMTP_FAILED;
}


void
kvr_zmtp_init(kvr_zmtp_t *z, kvr_zmtp_role_e role)
{
    uint8_t  greeting[KVR_ZMTP_GREETING];

    memset(z, 0, offsetof(kvr_zmtp_t, command));

    z->role = role;
    z->left = KVR_ZMTP_GREETING;

    memset(greeting, 0, KVR_ZMTP_GREETING);

    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[KVR_ZMTP_VERSION] = 3;
    greeting[KVR_ZMTP_MINOR] = 1;
    memcpy(&greeting[KVR_ZMTP_MECHANISM], "NULL", 4);

    kvr_zmtp_put(z, greeting, KVR_ZMTP_GREETING);
}


kvr_zmtp_e
kvr_zmtp_read(kvr_zmtp_t *z, const uint8_t **p, const uint8_t *end)
{
    size_t      n;
    kvr_zmtp_e  rc;

    do {
        if (z->state == KVR_ZMTP_IN_FRAME && z->left == 0) {
            rc = kvr_zmtp_end(z);
            continue;
        }

        if (*p == end) {
            return KVR_ZMTP_AGAIN;
        }

        n = kvr_min((size_t) (end - *p), z->left);

        if (z->state == KVR_ZMTP_IN_FRAME && z->memory) {
            memcpy(z->memory + z->len, *p, n);
            z->len += n;

        } else if (z->have < sizeof(z->command)) {
            memcpy(z->command + z->have, *p,
                   kvr_min(n, sizeof(z->command) - z->have));
        }

        z->have += (uint32_t) n;
        z->left -= n;
        *p += n;

        rc = KVR_ZMTP_AGAIN;

        if (z->state == KVR_ZMTP_IN_GREETING) {
            rc = kvr_zmtp_greeting(z);

        } else if (z->left == 0 && z->state == KVR_ZMTP_IN_HEAD) {
            rc = kvr_zmtp_head(z);

        } else if (z->left == 0 && z->state == KVR_ZMTP_IN_COMMAND) {
            rc = kvr_zmtp_command(z);
            kvr_zmtp_next(z);
        }

    } while (rc == KVR_ZMTP_AGAIN);

    return rc;
}


/* checks what has come of the greeting, so another protocol fails at once */
static kvr_zmtp_e
kvr_zmtp_greeting(kvr_zmtp_t *z)
{
    uint32_t  n;

    static const uint8_t  null[KVR_ZMTP_SERVER - KVR_ZMTP_MECHANISM] = "NULL";

    n = z->have;

    if (z->command[0] != 0xff || (n > 9 && z->command[9] != 0x7f)) {
        return kvr_zmtp_fail(z, "not a ZeroMQ socket");
    }

    if (n > KVR_ZMTP_VERSION && z->command[KVR_ZMTP_VERSION] < 3) {
        return kvr_zmtp_fail(z, "ZMTP before 3.0 is not supported");
    }

    if (n > KVR_ZMTP_MECHANISM
        && memcmp(z->command + KVR_ZMTP_MECHANISM, null,
                  kvr_min(n, KVR_ZMTP_SERVER) - KVR_ZMTP_MECHANISM)
           != 0)
    {
        return kvr_zmtp_fail(z, "the socket requires authentication");
    }

    if (z->left) {
        return KVR_ZMTP_AGAIN;
    }

    kvr_zmtp_next(z);

    if (z->role == KVR_ZMTP_SUB) {
        kvr_zmtp_put(z, "\4\x19\5READY\13Socket-Type\0\0\0\3SUB", 27);

    } else {
        kvr_zmtp_put(z, "\4\x1c\5READY\13Socket-Type\0\0\0\6DEALER", 30);
    }

    return KVR_ZMTP_AGAIN;
}


/* the head of a frame: flags, and its size in one byte or in eight */
static kvr_zmtp_e
kvr_zmtp_head(kvr_zmtp_t *z)
{
    uint8_t   flags;
    uint32_t  i;

    flags = z->command[0];

    if (flags & ~(KVR_ZMTP_MORE|KVR_ZMTP_LONG|KVR_ZMTP_COMMAND)) {
        return kvr_zmtp_fail(z, "invalid frame");
    }

    if (flags & KVR_ZMTP_LONG && z->have == 2) {
        z->left = 7;
        return KVR_ZMTP_AGAIN;
    }

    for (i = 1, z->size = 0; i < z->have; i++) {
        z->size = z->size << 8 | z->command[i];
    }

    z->have = 0;
    z->left = z->size;

    if (flags & KVR_ZMTP_COMMAND) {

        if (z->size > KVR_ZMTP_COMMAND_MAX || z->size == 0
            || flags & KVR_ZMTP_MORE)
        {
            return kvr_zmtp_fail(z, "invalid command");
        }

        z->state = KVR_ZMTP_IN_COMMAND;
        return KVR_ZMTP_AGAIN;
    }

    if (!z->open) {
        return kvr_zmtp_fail(z, "message before the handshake");
    }

    if (z->size > KVR_ZMTP_FRAME_MAX) {
        return kvr_zmtp_fail(z, "frame of more than 64 MB");
    }

    /* the frame before was the last one of another message */

    z->numbered &= z->more;

    z->more = flags & KVR_ZMTP_MORE;
    z->state = KVR_ZMTP_IN_FRAME;
    z->memory = NULL;
    z->len = 0;

    return z->more || !z->numbered ? KVR_ZMTP_AGAIN : KVR_ZMTP_LAST;
}


static kvr_zmtp_e
kvr_zmtp_end(kvr_zmtp_t *z)
{
    uint32_t  i;

    if (z->more) {
        z->numbered = (z->have == sizeof(uint64_t));

        for (i = 0; z->numbered && i < sizeof(uint64_t); i++) {
            z->number = z->number << 8 | z->command[i];
        }
    }

    kvr_zmtp_next(z);

    return z->more ? KVR_ZMTP_AGAIN : KVR_ZMTP_END;
}


/* the head of another frame is next */
static void
kvr_zmtp_next(kvr_zmtp_t *z)
{
    z->state = KVR_ZMTP_IN_HEAD;
    z->have = 0;
    z->left = 2;
}


/* handles a command; unknown ones are ignored */
static kvr_zmtp_e
kvr_zmtp_command(kvr_zmtp_t *z)
{
    size_t          n;
    uint8_t         pong[7 + KVR_ZMTP_CONTEXT];
    const uint8_t  *last;

    n = kvr_min(z->have, sizeof(z->command));
    last = z->command + n;

    if (z->open) {

        if (kvr_zmtp_named(z, "\4PONG")) {
            return KVR_ZMTP_ALIVE;
        }

        /* PING: a time of two bytes, then the context that PONG returns */

        if (kvr_zmtp_named(z, "\4PING") && n >= 7) {
            n = kvr_min(n - 7, KVR_ZMTP_CONTEXT);

            memcpy(pong, "\4\0\4PONG", 7);
            pong[1] = (uint8_t) (5 + n);
            memcpy(pong + 7, z->command + 7, n);

            kvr_zmtp_put(z, pong, 7 + n);
        }

        return KVR_ZMTP_AGAIN;
    }

    if (kvr_zmtp_named(z, "\5READY")) {
        return kvr_zmtp_ready(z, z->command + 6, last);
    }

    if (kvr_zmtp_named(z, "\5ERROR")) {
        return kvr_zmtp_fail(z, "the handshake was refused");
    }

    return KVR_ZMTP_AGAIN;
}


/* reads properties: length (1 byte), name, length (4 bytes), value */
static kvr_zmtp_e
kvr_zmtp_ready(kvr_zmtp_t *z, const uint8_t *p, const uint8_t *last)
{
    size_t          n, len;
    const uint8_t  *name, *value;

    for ( /* void */ ; last - p > 1; p = value + len) {

        n = *p++;
        name = p;

        if ((size_t) (last - p) < n + 4) {
            break;
        }

        p += n;
        len = (size_t) p[0] << 24 | (size_t) p[1] << 16
              | (size_t) p[2] << 8 | p[3];
        value = p + 4;

        if ((size_t) (last - value) < len) {
            break;
        }

        if (n != 11 || strncasecmp((const char *) name, "Socket-Type", 11)) {
            continue;
        }

        if (z->role == KVR_ZMTP_DEALER
            && !(len == 6 && memcmp(value, "ROUTER", 6) == 0))
        {
            return kvr_zmtp_fail(z, "not a replay socket (ROUTER)");
        }

        if (z->role == KVR_ZMTP_SUB
            && !(len == 3 && memcmp(value, "PUB", 3) == 0)
            && !(len == 4 && memcmp(value, "XPUB", 4) == 0))
        {
            return kvr_zmtp_fail(z, "not a publisher (PUB)");
        }
    }

    /*
     * Subscribes to all topics, by a message, which all versions of ZeroMQ
     * accept.
     */

    if (z->role == KVR_ZMTP_SUB) {
        kvr_zmtp_put(z, "\0\1\1", 3);
    }

    z->open = 1;

    return KVR_ZMTP_OPEN;
}


/* name begins with its length */
static int
kvr_zmtp_named(const kvr_zmtp_t *z, const char *name)
{
    size_t  n;

    n = 1 + (size_t) name[0];

    return z->have >= n && memcmp(z->command, name, n) == 0;
}


static void
kvr_zmtp_put(kvr_zmtp_t *z, const void *data, size_t len)
{
    if (len <= KVR_ZMTP_OUT - z->out_len) {
        memcpy(z->out + z->out_len, data, len);
        z->out_len += (uint32_t) len;
    }
}


void
kvr_zmtp_sent(kvr_zmtp_t *z, size_t n)
{
    n = kvr_min(n, z->out_len);

    memmove(z->out, z->out + n, z->out_len - n);
    z->out_len -= (uint32_t) n;
}


void
kvr_zmtp_ping(kvr_zmtp_t *z)
{
    /* no time, no context */

    kvr_zmtp_put(z, "\4\7\4PING\0\0", 9);
}


void
kvr_zmtp_request(kvr_zmtp_t *z, uint64_t number)
{
    unsigned  i;
    uint8_t   frames[12];

    frames[0] = KVR_ZMTP_MORE;
    frames[1] = 0;
    frames[2] = 0;
    frames[3] = 8;

    for (i = 0; i < 8; i++) {
        frames[4 + i] = (uint8_t) (number >> 8 * (7 - i));
    }

    kvr_zmtp_put(z, frames, sizeof(frames));
}
