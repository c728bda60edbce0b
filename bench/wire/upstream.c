
/*
 * Copyright (C) kvroute contributors
 */


/*
 * An engine without work: reads each request to its last byte, then answers.
 *
 *     upstream [stamps] PORT...
 *
 * A target with "chunks=N" gets N events, one every "us=U" microseconds; with
 * "hold" one event, and then nothing until the client leaves.  With stamps,
 * the field "created" is the time of the answer in nanoseconds, from the
 * arrival of the whole request in the kernel.
 */


#include "bench_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>


#define UP_HEAD  16384
#define UP_READ  262144


typedef struct up_conn_s  up_conn_t;

struct up_conn_s {
    int         fd;
    unsigned    listening:1;
    unsigned    chunked:1;       /* the request's body */
    unsigned    in_body:1;
    unsigned    hold:1;
    size_t      head_len;
    uint64_t    left;            /* bytes of the body to come */
    uint64_t    chunks;          /* still to be sent */
    uint64_t    came;            /* arrival of the last byte, by the kernel */
    char        tail[5];
    up_conn_t  *next;            /* streaming */
    up_conn_t **prev;
    char        head[UP_HEAD];
};


static int         up_epoll;
static int         up_timer;
static long        up_period;
static int         up_stamps;
static up_conn_t  *up_streams;
static char        up_buf[UP_READ];


/* one body that answers all requests of routers to their engines */

static const char  up_answer[] =
    "{\"id\":\"x\",\"object\":\"chat.completion\",\"created\":%llu,"
    "\"model\":\"llama\",\"model_path\":\"llama\",\"status\":\"ok\","
    "\"is_generation\":true,\"data\":[{\"id\":\"llama\",\"object\":\"model\","
    "\"created\":1,\"owned_by\":\"x\"}],"
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
    "\"content\":\"yes\"},\"finish_reason\":\"stop\"}],"
    "\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":1,"
    "\"total_tokens\":101}}";

static const char  up_event[] =
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","
    "\"created\":1700000000,\"model\":\"llama\",\"choices\":[{\"index\":0,"
    "\"delta\":{\"content\":\" word\"},\"logprobs\":null,"
    "\"finish_reason\":null}]}";

static const char  up_usage[] =
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","
    "\"created\":1700000000,\"model\":\"llama\",\"choices\":[],"
    "\"usage\":{\"prompt_tokens\":500,\"completion_tokens\":2000,"
    "\"total_tokens\":2500,\"prompt_tokens_details\":{\"cached_tokens\":400}}}";


static void
up_tick(long us)
{
    struct itimerspec  its;

    if (us == up_period) {
        return;
    }

    up_period = us;

    memset(&its, 0, sizeof(its));

    its.it_value.tv_nsec = its.it_interval.tv_nsec = us * 1000;

    timerfd_settime(up_timer, 0, &its, NULL);
}


static void
up_unlink(up_conn_t *c)
{
    if (c->prev) {
        *c->prev = c->next;

        if (c->next) {
            c->next->prev = c->prev;
        }

        c->prev = NULL;
    }

    if (up_streams == NULL) {
        up_tick(0);
    }
}


static void
up_close(up_conn_t *c)
{
    up_unlink(c);
    close(c->fd);
    free(c);
}


static int
up_send(up_conn_t *c, const char *data, size_t len)
{
    return send(c->fd, data, len, MSG_NOSIGNAL) == (ssize_t) len;
}


/* sends an event in its own chunk; the last one ends the response */
static int
up_send_event(up_conn_t *c)
{
    int          n;
    char         buf[1024];
    const char  *data;

    c->chunks--;

    data = c->chunks == 1 ? up_usage : c->chunks == 0 ? "[DONE]" : up_event;

    n = snprintf(buf, sizeof(buf), "%zx\r\ndata: %s\n\n\r\n%s",
                 strlen(data) + 8, data, c->chunks ? "" : "0\r\n\r\n");

    return up_send(c, buf, (size_t) n);
}


static int
up_respond(up_conn_t *c)
{
    int          n, len;
    char         buf[2048], answer[1024], *p;
    const char  *end;

    end = strstr(c->head, "\r\n");

    p = strstr(c->head, "chunks=");
    c->chunks = (p && p < end) ? strtoull(p + 7, NULL, 10) : 0;

    p = strstr(c->head, "hold");
    c->hold = (p && p < end);

    c->head_len = 0;
    c->in_body = 0;

    if (c->chunks == 0 && !c->hold) {
        len = snprintf(answer, sizeof(answer), up_answer,
                       (unsigned long long)
                       (c->came ? bench_clock() - c->came : 1));

        n = snprintf(buf, sizeof(buf), "HTTP/1.1 200 OK\r\n"
                     "Content-Type: application/json\r\n"
                     "Content-Length: %d\r\n\r\n%s", len, answer);

        return up_send(c, buf, (size_t) n);
    }

    n = snprintf(buf, sizeof(buf), "HTTP/1.1 200 OK\r\n"
                 "Content-Type: text/event-stream\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n");

    if (!up_send(c, buf, (size_t) n)) {
        return 0;
    }

    if (c->hold) {
        c->chunks = UINT64_MAX;
        return up_send_event(c);
    }

    c->next = up_streams;
    c->prev = &up_streams;

    if (c->next) {
        c->next->prev = &c->next;
    }

    up_streams = c;

    p = strstr(c->head, "us=");
    up_tick(p && p < end ? strtol(p + 3, NULL, 10) : 1000);

    return 1;
}


/* reads body bytes; returns their number, or -1 at the end of a connection */
static int
up_body(up_conn_t *c, const char *data, size_t len)
{
    size_t  n;

    if (!c->chunked) {
        n = len < c->left ? len : c->left;
        c->left -= n;

        return c->left ? 1 : up_respond(c);
    }

    /* no chunk of JSON ends like this, so this is the end */

    for (n = 0; n < len; n++) {
        memmove(c->tail, c->tail + 1, 4);
        c->tail[4] = data[n];
    }

    return memcmp(c->tail, "0\r\n\r\n", 5) ? 1 : up_respond(c);
}


static int
up_head(up_conn_t *c, const char *data, size_t len)
{
    char    *end, *p;
    size_t   n, had, used;

    n = UP_HEAD - 1 - c->head_len;
    n = len < n ? len : n;
    had = c->head_len;

    memcpy(c->head + c->head_len, data, n);
    c->head_len += n;
    c->head[c->head_len] = '\0';

    end = strstr(c->head, "\r\n\r\n");

    if (end == NULL) {
        return c->head_len < UP_HEAD - 1;
    }

    end[2] = '\0';
    used = (size_t) (end - c->head) + 4 - had;

    p = strcasestr(c->head, "\r\ncontent-length:");
    c->left = p ? strtoull(p + 17, NULL, 10) : 0;
    c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->in_body = 1;

    memset(c->tail, 0, 5);

    if (c->left == 0 && !c->chunked) {
        return up_respond(c);
    }

    if (strcasestr(c->head, "\r\nexpect: 100-continue")
        && !up_send(c, "HTTP/1.1 100 Continue\r\n\r\n", 25))
    {
        return 0;
    }

    return used < len ? up_body(c, data + used, len - used) : 1;
}


static void
up_read(up_conn_t *c)
{
    int      ok;
    ssize_t  n;

    for ( ;; ) {
        n = bench_recv(c->fd, up_buf, UP_READ, &c->came);

        if (n <= 0) {
            if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                up_close(c);
            }

            return;
        }

        ok = c->in_body ? up_body(c, up_buf, (size_t) n)
                        : up_head(c, up_buf, (size_t) n);

        if (!ok) {
            up_close(c);
            return;
        }

        if (n < UP_READ) {
            return;
        }
    }
}


static up_conn_t *
up_add(int fd, unsigned listening)
{
    up_conn_t           *c;
    struct epoll_event   ev;

    c = calloc(1, sizeof(up_conn_t));
    if (c == NULL) {
        exit(1);
    }

    c->fd = fd;
    c->listening = listening;

    ev.events = EPOLLIN;
    ev.data.ptr = c;

    epoll_ctl(up_epoll, EPOLL_CTL_ADD, fd, &ev);

    return c;
}


static void
up_stream_all(void)
{
    uint64_t    ticks;
    up_conn_t  *c, *next;

    if (read(up_timer, &ticks, sizeof(ticks)) != sizeof(ticks)) {
        return;
    }

    for (c = up_streams; c; c = next) {
        next = c->next;

        if (!up_send_event(c)) {
            up_close(c);

        } else if (c->chunks == 0) {
            up_unlink(c);
        }
    }
}


int
main(int argc, char **argv)
{
    int                  i, n, fd;
    up_conn_t           *c;
    struct epoll_event   ev, events[256];

    bench_limit();

    up_epoll = epoll_create1(0);
    up_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);

    ev.events = EPOLLIN;
    ev.data.ptr = NULL;

    epoll_ctl(up_epoll, EPOLL_CTL_ADD, up_timer, &ev);

    up_stamps = (argc > 1 && strcmp(argv[1], "stamps") == 0);

    for (i = 1 + up_stamps; i < argc; i++) {
        up_add(bench_listen(atoi(argv[i])), 1);
    }

    for ( ;; ) {
        n = epoll_wait(up_epoll, events, 256, -1);

        for (i = 0; i < n; i++) {
            c = events[i].data.ptr;

            if (c == NULL) {
                up_stream_all();

            } else if (c->listening) {

                fd = accept4(c->fd, NULL, NULL, SOCK_NONBLOCK);

                if (fd != -1) {
                    bench_nodelay(fd);

                    if (up_stamps) {
                        bench_stamps(fd);
                    }

                    up_add(fd, 0);
                }

            } else {
                up_read(c);
            }

            /*
             * epoll must not return events of a connection that was just
             * closed
             */

            if (c == NULL && n > 1) {
                break;
            }
        }
    }
}
