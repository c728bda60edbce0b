#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "events/engine_encode.h"
#include "events/engine_msgpack.h"
#include "events/engine_publish.h"


#define KVE_END_SEQ  UINT64_MAX


typedef struct kve_message_s  kve_message_t;

struct kve_message_s {
    uint64_t            seq;
    kve_buf_t           payload;
    kve_message_t      *next;
};


struct kve_publisher_s {
    kve_server_t       *server;
    int                 number;             /* among all ranks and replicas */

    /* a context of its own: when it ends, its ports are free again */

    void               *ctx;
    void               *pub;
    void               *replay;
    struct event       *pub_readable;
    struct event       *replay_readable;

    kve_message_t     **kept;               /* a ring, by number */
    uint64_t            nkept;              /* its size */
    uint64_t            seq;                /* number of the next message */

    kve_message_t      *swapped;            /* is sent after the next one */

    kve_published_t     told;
    uint64_t            random;
};


static void
kve_message_free(kve_message_t *m)
{
    if (m) {
        kve_buf_free(&m->payload);
        free(m);
    }
}


static kve_message_t *
kve_message_copy(const kve_message_t *m)
{
    kve_message_t  *copy;

    copy = calloc(1, sizeof(kve_message_t));
    if (copy == NULL) {
        abort();
    }

    copy->seq = m->seq;
    kve_buf_add(&copy->payload, m->payload.data, m->payload.len);

    return copy;
}


kve_publisher_t *
kve_publisher_create(kve_server_t *s, int rank)
{
    kve_publisher_t  *p;

    p = calloc(1, sizeof(kve_publisher_t));
    if (p == NULL) {
        return NULL;
    }

    p->server = s;
    p->number = s->index * s->ranks + rank;
    p->nkept = KVE_PUBLISH_KEPT;
    p->kept = calloc(p->nkept, sizeof(kve_message_t *));
    p->random = kve_mix(s->port + rank);

    if (p->kept == NULL) {
        abort();
    }

    return p;
}


void
kve_publisher_free(kve_publisher_t *p)
{
    kve_publisher_close(p);
    kve_publisher_renumber(p);
    free(p->kept);
    free(p);
}


static void
kve_frame(void *socket, const void *data, size_t len, int more)
{
    (void) zmq_send(socket, data, len, ZMQ_DONTWAIT
                                       | (more ? ZMQ_SNDMORE : 0));
}


static void
kve_frame_seq(void *socket, uint64_t seq)
{
    int            i;
    unsigned char  buf[8];

    for (i = 0; i < 8; i++) {
        buf[i] = seq >> (56 - 8 * i);
    }

    kve_frame(socket, buf, sizeof(buf), 1);
}


/* subscribers come and go; tests wait for their number */

static void
kve_publisher_subscribers(evutil_socket_t fd, short what, void *data)
{
    int               n;
    unsigned char     buf[256];
    kve_publisher_t  *p;

    (void) fd;
    (void) what;

    p = data;

    while ((n = zmq_recv(p->pub, buf, sizeof(buf), ZMQ_DONTWAIT)) >= 0) {
        if (n > 0) {
            p->told.subscribers += buf[0] == 1 ? 1 : -1;
        }
    }
}


static void
kve_publisher_answer(kve_publisher_t *p, const void *id, size_t len,
    uint64_t seq, const kve_buf_t *payload)
{
    int                with_topic;
    const char        *topic;
    kve_kv_encoding_e  encoding;

    encoding = p->server->engine->opt.kv_encoding;
    with_topic = encoding == KVE_KV_VLLM_MAP || encoding == KVE_KV_TRTLLM;
    topic = payload ? "kv" : "";

    kve_frame(p->replay, id, len, 1);
    kve_frame(p->replay, "", 0, 1);

    if (with_topic) {
        kve_frame(p->replay, topic, strlen(topic), 1);
    }

    kve_frame_seq(p->replay, seq);
    kve_frame(p->replay, payload ? payload->data : "",
              payload ? payload->len : 0, 0);
}


static void
kve_publisher_replay(kve_publisher_t *p, const void *id, size_t len,
    uint64_t from)
{
    uint64_t        seq;
    kve_message_t  *m;

    p->told.replays++;

    if (p->server->settings.kv_replay_silent) {
        return;
    }

    seq = p->seq > p->nkept ? p->seq - p->nkept : 0;

    for (seq = seq < from ? from : seq; seq < p->seq; seq++) {
        m = p->kept[seq % p->nkept];
        kve_publisher_answer(p, id, len, seq, &m->payload);
        p->told.replayed++;
    }

    kve_publisher_answer(p, id, len, KVE_END_SEQ, NULL);
}


/* [identity, empty, number]; other requests get no answer */

static void
kve_publisher_asked(evutil_socket_t fd, short what, void *data)
{
    int               i, n, id_len, good, more;
    size_t            size;
    uint64_t          from;
    unsigned char     id[256], buf[256];
    kve_publisher_t  *p;

    (void) fd;
    (void) what;

    p = data;

    while ((id_len = zmq_recv(p->replay, id, sizeof(id), ZMQ_DONTWAIT)) >= 0)
    {
        from = 0;
        good = 1;

        for (i = 1; ; i++) {
            size = sizeof(more);
            zmq_getsockopt(p->replay, ZMQ_RCVMORE, &more, &size);

            if (!more) {
                break;
            }

            n = zmq_recv(p->replay, buf, sizeof(buf), 0);
            good &= i == 1 ? n == 0 : i == 2 && n == 8;

            for (n = 0; good && i == 2 && n < 8; n++) {
                from = from << 8 | buf[n];
            }
        }

        if (good && i == 3) {
            kve_publisher_replay(p, id, id_len, from);
        }
    }
}


static void *
kve_publisher_socket(kve_publisher_t *p, int type, int port,
    event_callback_fn handler, struct event **ev)
{
    int     fd, no, yes, hwm;
    char    endpoint[128];
    void   *socket;
    size_t  size;

    no = 0;
    yes = 1;
    hwm = 100000;
    size = sizeof(fd);

    socket = zmq_socket(p->ctx, type);
    if (socket == NULL) {
        abort();
    }

    zmq_setsockopt(socket, ZMQ_LINGER, &no, sizeof(no));
    zmq_setsockopt(socket, ZMQ_SNDHWM, &hwm, sizeof(hwm));

    if (type == ZMQ_XPUB) {
        zmq_setsockopt(socket, ZMQ_XPUB_VERBOSER, &yes, sizeof(yes));
    }

    snprintf(endpoint, sizeof(endpoint), "tcp://%s:%d",
             p->server->engine->opt.host, port);

    if (zmq_bind(socket, endpoint) != 0) {
        zmq_close(socket);
        return NULL;
    }

    zmq_getsockopt(socket, ZMQ_FD, &fd, &size);

    /* edge-triggered: a reader of the socket must read everything */

    *ev = event_new(p->server->engine->base, fd, EV_READ | EV_PERSIST,
                    handler, p);
    event_add(*ev, NULL);
    event_active(*ev, EV_READ, 0);

    return socket;
}


int
kve_publisher_open(kve_publisher_t *p)
{
    kve_options_t  *opt;

    opt = &p->server->engine->opt;

    if (p->ctx) {
        return 0;
    }

    p->ctx = zmq_ctx_new();
    p->pub = kve_publisher_socket(p, ZMQ_XPUB,
                                  opt->kv_events + p->number,
                                  kve_publisher_subscribers,
                                  &p->pub_readable);

    if (p->pub && opt->kv_replay) {
        p->replay = kve_publisher_socket(p, ZMQ_ROUTER,
                                         opt->kv_replay + p->number,
                                         kve_publisher_asked,
                                         &p->replay_readable);
    }

    if (p->pub == NULL || (opt->kv_replay && p->replay == NULL)) {
        kve_publisher_close(p);
        return -1;
    }

    return 0;
}


void
kve_publisher_close(kve_publisher_t *p)
{
    if (p->ctx == NULL) {
        return;
    }

    if (p->pub) {
        event_free(p->pub_readable);
        zmq_close(p->pub);
        p->pub = NULL;
    }

    if (p->replay) {
        event_free(p->replay_readable);
        zmq_close(p->replay);
        p->replay = NULL;
    }

    zmq_ctx_term(p->ctx);
    p->ctx = NULL;
    p->told.subscribers = 0;
}


int
kve_publisher_is_open(const kve_publisher_t *p)
{
    return p->ctx != NULL;
}


static void
kve_publisher_frames(kve_publisher_t *p, const kve_message_t *m)
{
    const char  *topic;

    if (p->pub == NULL) {
        return;
    }

    topic = "kv";

    kve_frame(p->pub, topic, strlen(topic), 1);
    kve_frame_seq(p->pub, m->seq);
    kve_frame(p->pub, m->payload.data, m->payload.len, 0);

    p->told.sent++;

    kve_publisher_subscribers(-1, 0, p);
}


void
kve_publisher_send(kve_publisher_t *p, kve_buf_t *payload)
{
    kve_message_t   *m;
    kve_settings_t  *set;

    set = &p->server->settings;

    m = calloc(1, sizeof(kve_message_t));
    if (m == NULL) {
        abort();
    }

    m->seq = p->seq++;
    m->payload = *payload;
    memset(payload, 0, sizeof(kve_buf_t));

    kve_message_free(p->kept[m->seq % p->nkept]);
    p->kept[m->seq % p->nkept] = m;
    p->told.messages++;

    if (set->kv_lose > 0) {
        set->kv_lose--;
        return;
    }

    if (p->swapped == NULL && set->kv_swap > 0) {
        set->kv_swap--;
        p->swapped = kve_message_copy(m);
        return;
    }

    kve_publisher_frames(p, m);

    if (set->kv_double > 0) {
        set->kv_double--;
        kve_publisher_frames(p, m);
    }

    if (p->swapped) {
        kve_publisher_frames(p, p->swapped);
        kve_message_free(p->swapped);
        p->swapped = NULL;
    }
}


void
kve_publisher_renumber(kve_publisher_t *p)
{
    uint64_t  i;

    for (i = 0; i < p->nkept; i++) {
        kve_message_free(p->kept[i]);
        p->kept[i] = NULL;
    }

    kve_message_free(p->swapped);
    p->swapped = NULL;

    p->seq = 0;
    memset(&p->told, 0, offsetof(kve_published_t, subscribers));
}


/*
 * Invalid messages: too few frames, too many, a short number.  And with the
 * right frames: noise, a payload that ends too early, one with a wrong length,
 * arrays in arrays, values of other types.  They have the number of the next
 * message and do not use it up.
 */

void
kve_publisher_garbage(kve_publisher_t *p, int n)
{
    int          i, k;
    kve_buf_t    b;
    const char  *topic;

    topic = "kv";

    for (i = 0; i < n && p->pub; i++) {
        memset(&b, 0, sizeof(kve_buf_t));
        kve_frame(p->pub, topic, strlen(topic), i % 8 != 0);
        p->told.sent++;

        switch (i % 8) {

        case 0:
            continue;

        case 1:
            kve_frame_seq(p->pub, p->seq);
            kve_frame(p->pub, "\x93\xc0\x90\x00", 4, 1);
            kve_frame(p->pub, "more", 4, 0);
            continue;

        case 2:
            kve_frame(p->pub, "\0\0\1", 3, 1);
            kve_frame(p->pub, "\x93\xc0\x90\x00", 4, 0);
            continue;

        case 3:
            for (k = 0; k < 300; k++) {
                kve_buf_add(&b, &(char) { kve_random(&p->random) }, 1);
            }

            break;

        case 4:
            pack_array(&b, 3);
            pack_float(&b, kve_wall());
            pack_array(&b, 1);
            pack_map(&b, 11);
            pack_str(&b, "block_hashes");
            break;

        case 5:
            kve_buf_add(&b, "\x92\xcb\0\0\0\0\0\0\0\0\xdd\xff\xff\xff\xff",
                        15);
            break;

        case 6:
            for (k = 0; k < 100000; k++) {
                pack_array(&b, 1);
            }

            break;

        case 7:
            pack_array(&b, 3);
            pack_str(&b, "LoadStat");
            pack_map(&b, 1);
            pack_nil(&b);
            pack_int(&b, -1);
            pack_str(&b, "rank");
            break;
        }

        kve_frame_seq(p->pub, p->seq);
        kve_frame(p->pub, b.data, b.len, 0);
        kve_buf_free(&b);
    }
}


void
kve_publisher_told(const kve_publisher_t *p, kve_published_t *told)
{
    *told = p->told;
}
