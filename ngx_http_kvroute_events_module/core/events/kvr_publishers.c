
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_publishers.h"


#define KVR_PUBLISHERS_SCHEME  "tcp://"
#define KVR_PUBLISHERS_LOWEST  1024      /* port */


/* members of a publisher, which are bits too; and what else is followed */
typedef enum {
    KVR_PUBLISHERS_RANK = 0,
    KVR_PUBLISHERS_LIVE,
    KVR_PUBLISHERS_REPLAY,
    KVR_PUBLISHERS_LIST,
    KVR_PUBLISHERS_KEY                   /* a rank; the next ones follow */
} kvr_publishers_leaf_e;


#define kvr_publishers_members(_)                                             \
    _("data_parallel_rank", KVR_PUSH_NUMBER, 0, KVR_PUBLISHERS_RANK, 0)       \
    _("endpoint", KVR_PUSH_STRING, 0, KVR_PUBLISHERS_LIVE, 0)                 \
    _("replay_endpoint", KVR_PUSH_STRING, 0, KVR_PUBLISHERS_REPLAY, 0)

#define kvr_publishers_key(_, text, n)                                        \
    _(text, KVR_PUSH_OBJECT, 1, KVR_PUBLISHERS_KEY + (n), 0)

#define kvr_publishers_keys(_, ten, n)                                        \
    kvr_publishers_key(_, ten "0", n)                                         \
    kvr_publishers_key(_, ten "1", (n) + 1)                                   \
    kvr_publishers_key(_, ten "2", (n) + 2)                                   \
    kvr_publishers_key(_, ten "3", (n) + 3)                                   \
    kvr_publishers_key(_, ten "4", (n) + 4)                                   \
    kvr_publishers_key(_, ten "5", (n) + 5)                                   \
    kvr_publishers_key(_, ten "6", (n) + 6)                                   \
    kvr_publishers_key(_, ten "7", (n) + 7)                                   \
    kvr_publishers_key(_, ten "8", (n) + 8)                                   \
    kvr_publishers_key(_, ten "9", (n) + 9)

#define kvr_publishers_root(_)                                                \
    kvr_publishers_members(_)                                                 \
    _("sources", KVR_PUSH_ARRAY, 1, KVR_PUBLISHERS_LIST, 0)                   \
    kvr_publishers_keys(_, "", 0)                                             \
    kvr_publishers_keys(_, "1", 10)                                           \
    kvr_publishers_keys(_, "2", 20)                                           \
    kvr_publishers_keys(_, "3", 30)                                           \
    kvr_publishers_keys(_, "4", 40)                                           \
    kvr_publishers_keys(_, "5", 50)                                           \
    kvr_publishers_keys(_, "6", 60)


static void kvr_publishers_found(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number);
static void kvr_publishers_member(kvr_publishers_t *r, unsigned leaf);
static void kvr_publishers_next(kvr_publishers_t *r);
static uint16_t kvr_publishers_port(kvr_publishers_t *r);
static void kvr_publishers_host(kvr_publishers_t *r, const char *host,
    size_t len);


static const kvr_push_node_t  kvr_publishers_table[] = {
    kvr_push_node(kvr_publishers_root),
    kvr_push_node(kvr_publishers_members)
};


void
kvr_publishers_init(kvr_publishers_t *r)
{
    memset(r, 0, sizeof(kvr_publishers_t));

    kvr_push_init(&r->json, 0);
}


void
kvr_publishers_read(kvr_publishers_t *r, const uint8_t *data, size_t len)
{
    switch (kvr_push_feed(&r->json, kvr_publishers_table, data, len,
                          kvr_publishers_found, r))
    {

    case KVR_OK:
        r->over = 1;
        break;

    case KVR_ERROR:
        r->bad = 1;
        break;

    default:
        break;
    }
}


int
kvr_publishers_end(kvr_publishers_t *r)
{
    uint32_t  i;

    kvr_publishers_next(r);

    if (r->bad || !r->over) {
        return KVR_ERROR;
    }

    for (i = 0; i < KVR_PUBLISHERS; i++) {
        if (r->publisher[i].live) {
            r->publisher[r->number++] = r->publisher[i];
        }
    }

    return r->number ? KVR_OK : KVR_DECLINED;
}


static void
kvr_publishers_found(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number)
{
    kvr_publishers_t *r = data;

    size_t    i;
    uint16_t  port;

    switch (what) {

    case KVR_PUSH_OPEN:
        kvr_publishers_next(r);

        if (leaf >= KVR_PUBLISHERS_KEY) {
            r->rank = leaf - KVR_PUBLISHERS_KEY;
            r->had = 1 << KVR_PUBLISHERS_RANK;
        }

        break;

    case KVR_PUSH_VALUE:
        kvr_publishers_member(r, leaf);
        r->rank = (uint32_t) kvr_min(number, KVR_PUBLISHERS);
        break;

    case KVR_PUSH_TEXT:

        /* what is too long is cut to a text that is no endpoint */

        for (i = 0; i < len && r->len < KVR_PUBLISHERS_TEXT; i++) {

            /* no character of an endpoint needs an escape, but "/" may have
               one */

            if (p[i] != '\\') {
                r->text[r->len++] = (char) p[i];
            }
        }

        break;

    default: /* KVR_PUSH_TEXT_END */
        kvr_publishers_member(r, leaf);
        port = kvr_publishers_port(r);

        if (leaf == KVR_PUBLISHERS_LIVE) {
            r->now.live = port;

        } else {
            r->now.replay = port;
        }

        r->len = 0;
        break;
    }
}


static void
kvr_publishers_member(kvr_publishers_t *r, unsigned leaf)
{
    if (r->had & 1 << leaf) {
        kvr_publishers_next(r);
    }

    r->had |= (uint8_t) (1 << leaf);
}


/* all of the one being read is there: in a list without ranks they count up */
static void
kvr_publishers_next(kvr_publishers_t *r)
{
    uint32_t  rank;

    if (r->had & 1 << KVR_PUBLISHERS_LIVE) {

        rank = r->had & 1 << KVR_PUBLISHERS_RANK ? r->rank : r->listed;
        r->listed++;

        if (rank >= KVR_PUBLISHERS || r->publisher[rank].live
            || r->now.live == r->now.replay)
        {
            r->bad = 1;

        } else {
            r->publisher[rank] = r->now;
        }
    }

    r->had = 0;
    memset(&r->now, 0, sizeof(kvr_publisher_t));
}


/* of the endpoint in text; its host is noted */
static uint16_t
kvr_publishers_port(kvr_publishers_t *r)
{
    uint32_t     port;
    const char  *p, *end, *colon;

    p = r->text;
    end = p + r->len;

    if (r->len == KVR_PUBLISHERS_TEXT
        || r->len < sizeof(KVR_PUBLISHERS_SCHEME) - 1
        || memcmp(p, KVR_PUBLISHERS_SCHEME, sizeof(KVR_PUBLISHERS_SCHEME) - 1)
           != 0)
    {
        r->bad = 1;
        return 0;
    }

    p += sizeof(KVR_PUBLISHERS_SCHEME) - 1;
    colon = memrchr(p, ':', (size_t) (end - p));

    if (colon == NULL || end - colon > 6) {
        r->bad = 1;
        return 0;
    }

    kvr_publishers_host(r, p, (size_t) (colon - p));

    for (port = 0, p = colon + 1; p < end && *p >= '0' && *p <= '9'; p++) {
        port = port * 10 + (uint32_t) (*p - '0');
    }

    if (p < end || port < KVR_PUBLISHERS_LOWEST || port > UINT16_MAX) {
        r->bad = 1;
        return 0;
    }

    return (uint16_t) port;
}


/* all that is named is the same, but for "any" */
static void
kvr_publishers_host(kvr_publishers_t *r, const char *host, size_t len)
{
    size_t  i;

    static const char *const  any[] = { "*", "0.0.0.0", "::", "" };

    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }

    for (i = 0; *any[i]; i++) {
        if (len == strlen(any[i]) && memcmp(host, any[i], len) == 0) {
            return;
        }
    }

    if (len == 0 || memchr(host, '\0', len)
        || (r->host[0] && (strlen(r->host) != len
                           || memcmp(r->host, host, len) != 0)))
    {
        r->bad = 1;
        return;
    }

    memcpy(r->host, host, len);
}
