
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The clients: kept connections, each with one request at a time.
 *
 *     load port=P [conns=4] [requests=1000] [kind=code] [size=2048]
 *          [unique=0] [first=1] [rate=0] [stamps=0] [hold=0]
 *          [target=/v1/...]
 *
 * rate=R starts R requests a second, whether or not answers arrive (open
 * loop); latency then counts from the time when a request was due.  stamps=1
 * also reports the part of it between client and upstream: from sending a
 * request until the kernel has its response, less the upstream's time.  hold=1
 * waits with all connections open, once each has the first bytes of its
 * answer, until standard input is closed.  unique=1 makes each request a new
 * prompt, numbered from "first".  Requests have a head of exactly LOAD_HEAD
 * bytes.
 */


#include "bench_net.h"
#include "bench_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>


#define LOAD_HEAD  512


typedef struct {
    int            fd;
    unsigned       busy:1;
    unsigned       head_done:1;  /* of the response */
    unsigned       chunked:1;
    unsigned       writing:1;    /* waits for room in the socket */
    size_t         sent;
    uint64_t       left;
    uint64_t       due;
    uint64_t       began;        /* with stamps: when it was sent */
    uint64_t       came;         /* arrival of the last byte */
    uint64_t       took;         /* time in the upstream */
    size_t         got;
    char           tail[5];
    bench_body_t   body;
    char           buf[65536];
} load_conn_t;


static struct {
    int            port;
    unsigned       conns;
    unsigned       requests;
    bench_kind_e   kind;
    size_t         size;
    unsigned       unique;
    uint64_t       first;
    double         rate;
    unsigned       stamps;
    unsigned       hold;
    const char    *target;
} load = {
    0, 4, 1000, BENCH_CODE, 2048, 0, 1, 0, 0, 0, "/v1/chat/completions"
};


static int           load_epoll;
static load_conn_t  *load_conns;
static unsigned      load_started;
static unsigned      load_done;
static unsigned      load_errors;
static unsigned      load_stamped;
static double       *load_latency;
static double       *load_between;
static char          load_head[LOAD_HEAD + 1];


static void
load_arguments(int argc, char **argv)
{
    int    i;
    char  *v;

    for (i = 1; i < argc; i++) {
        v = strchr(argv[i], '=');

        if (v == NULL) {
            goto bad;
        }

        *v++ = '\0';

        if (strcmp(argv[i], "port") == 0) {
            load.port = atoi(v);
        } else if (strcmp(argv[i], "conns") == 0) {
            load.conns = (unsigned) atoi(v);
        } else if (strcmp(argv[i], "requests") == 0) {
            load.requests = (unsigned) atoi(v);
        } else if (strcmp(argv[i], "kind") == 0) {
            load.kind = bench_kind(v);
        } else if (strcmp(argv[i], "size") == 0) {
            load.size = strtoul(v, NULL, 10);
        } else if (strcmp(argv[i], "unique") == 0) {
            load.unique = (unsigned) atoi(v);
        } else if (strcmp(argv[i], "first") == 0) {
            load.first = strtoull(v, NULL, 10);
        } else if (strcmp(argv[i], "rate") == 0) {
            load.rate = atof(v);
        } else if (strcmp(argv[i], "stamps") == 0) {
            load.stamps = (unsigned) atoi(v);
        } else if (strcmp(argv[i], "hold") == 0) {
            load.hold = (unsigned) atoi(v);
        } else if (strcmp(argv[i], "target") == 0) {
            load.target = v;
        } else {
            goto bad;
        }
    }

    if (load.port == 0 || load.kind == BENCH_KINDS || load.size < 400) {
        goto bad;
    }

    return;

bad:

    fprintf(stderr, "load: bad arguments\n");
    exit(1);
}


/* padded, so that a server's buffer can fit it exactly */
static void
load_make_head(size_t len)
{
    int  n;

    n = snprintf(load_head, LOAD_HEAD, "POST %s HTTP/1.1\r\nHost: bench\r\n"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                 "Authorization: Bearer sk-none\r\nX-Pad: ",
                 load.target, len);

    if (n > LOAD_HEAD - 4) {
        fprintf(stderr, "load: target too long\n");
        exit(1);
    }

    memset(load_head + n, 'x', (size_t) (LOAD_HEAD - 4 - n));
    memcpy(load_head + LOAD_HEAD - 4, "\r\n\r\n", 4);
}


static void
load_open(load_conn_t *c)
{
    struct epoll_event  ev;

    c->fd = bench_connect(load.port);

    if (c->fd == -1) {
        perror("connect");
        exit(1);
    }

    c->writing = 1;

    if (load.stamps) {
        bench_stamps(c->fd);
    }

    ev.events = EPOLLIN|EPOLLOUT;
    ev.data.ptr = c;

    epoll_ctl(load_epoll, EPOLL_CTL_ADD, c->fd, &ev);
}


static void
load_send(load_conn_t *c)
{
    size_t              total, at;
    ssize_t             n;
    struct iovec        iov[2];
    struct epoll_event  ev;

    total = c->busy ? LOAD_HEAD + c->body.len : c->sent;

    while (c->sent < total) {

        at = c->sent < LOAD_HEAD ? c->sent : LOAD_HEAD;

        iov[0].iov_base = load_head + at;
        iov[0].iov_len = LOAD_HEAD - at;

        at = c->sent - at;

        iov[1].iov_base = c->body.data + at;
        iov[1].iov_len = c->body.len - at;

        n = writev(c->fd, iov, 2);

        if (n == -1) {
            break;
        }

        c->sent += (size_t) n;
    }

    if (c->writing != (c->sent < total)) {
        c->writing = !c->writing;

        ev.events = c->writing ? EPOLLIN|EPOLLOUT : EPOLLIN;
        ev.data.ptr = c;

        epoll_ctl(load_epoll, EPOLL_CTL_MOD, c->fd, &ev);
    }
}


static void
load_start(load_conn_t *c, uint64_t due)
{
    if (load.unique) {
        bench_body_nonce(&c->body, (load.first + load_started)
                                   * 0x9e3779b97f4a7c15ULL);
    }

    load_started++;

    c->busy = 1;
    c->head_done = 0;
    c->got = 0;
    c->sent = 0;
    c->due = due;
    c->took = 0;
    c->began = load.stamps ? bench_clock() : 0;

    load_send(c);
}


static void
load_finish(load_conn_t *c, int ok)
{
    c->busy = 0;

    if (ok && c->took) {
        load_between[load_stamped++] = (double) (int64_t)
                                  (c->came - c->began - c->took) / 1e6;
    }

    load_errors += !ok;
    load_latency[load_done++] = (double) (bench_time() - c->due) / 1e6;
}


/* returns 1 when the response is complete, -1 if it is invalid */
static int
load_response(load_conn_t *c, char *data, size_t n)
{
    char    *end, *p;
    size_t   k;

    data[n] = '\0';

    if (!c->head_done) {

        end = strstr(data, "\r\n\r\n");

        if (end == NULL) {
            return -1;
        }

        if (strncmp(data, "HTTP/1.1 200", 12) != 0) {
            return -1;
        }

        end[2] = '\0';

        p = strcasestr(data, "\r\ncontent-length:");
        c->chunked = (p == NULL);
        c->left = p ? strtoull(p + 17, NULL, 10) : 0;
        c->head_done = 1;

        memset(c->tail, 0, 5);

        end += 4;
        n -= (size_t) (end - data);
        data = end;
    }

    p = (load.stamps && !c->took) ? strstr(data, "\"created\":") : NULL;

    if (p) {
        c->took = strtoull(p + 10, NULL, 10);
    }

    if (!c->chunked) {
        c->left -= n < c->left ? n : c->left;
        return c->left == 0;
    }

    for (k = n > 5 ? n - 5 : 0; k < n; k++) {
        memmove(c->tail, c->tail + 1, 4);
        c->tail[4] = data[k];
    }

    return memcmp(c->tail, "0\r\n\r\n", 5) == 0;
}


static void
load_read(load_conn_t *c)
{
    int      rc;
    ssize_t  n;

    n = bench_recv(c->fd, c->buf, sizeof(c->buf) - 1, &c->came);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }

    rc = (n > 0 && c->busy) ? load_response(c, c->buf, (size_t) n) : -1;
    c->got += n > 0 ? (size_t) n : 0;

    if (rc == 0) {
        return;
    }

    if (rc == 1 && c->sent == LOAD_HEAD + c->body.len) {
        load_finish(c, 1);
        return;
    }

    if (c->busy) {
        if (n > 0 && load_errors == 0) {
            fprintf(stderr, "load: %.200s\n", c->buf);
        }

        load_finish(c, 0);
    }

    close(c->fd);
    load_open(c);
}


static int
load_compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return x < y ? -1 : x > y;
}


/* returns a quantile of sorted values; 0 if there are none */
static double
load_percentile(const double *value, unsigned n, double part)
{
    return value[(unsigned) ((double) n * part)];
}


/* starts the requests that are due; returns ns until the next one, or 0 */
static uint64_t
load_schedule(uint64_t begin)
{
    unsigned      i;
    uint64_t      now, due;

    now = bench_time();
    due = now;

    for (i = 0; i < load.conns && load_started < load.requests; i++) {

        if (load_conns[i].busy) {
            continue;
        }

        if (load.rate > 0) {
            due = begin + (uint64_t) ((double) load_started * 1e9 / load.rate);

            if (due > now) {
                return due;
            }
        }

        load_start(&load_conns[i], due);
    }

    return 0;
}


int
main(int argc, char **argv)
{
    int                  i, n, timer;
    double               sum;
    unsigned             k, held;
    uint64_t             begin, next, ticks;
    load_conn_t         *c;
    struct itimerspec    its;
    struct epoll_event   ev, events[256];

    load_arguments(argc, argv);
    bench_limit();

    load_epoll = epoll_create1(0);
    load_conns = calloc(load.conns, sizeof(load_conn_t));
    load_latency = calloc(load.requests + 1, sizeof(double));
    load_between = calloc(load.requests + 1, sizeof(double));

    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    ev.events = EPOLLIN;
    ev.data.ptr = NULL;
    epoll_ctl(load_epoll, EPOLL_CTL_ADD, timer, &ev);

    for (k = 0; k < load.conns; k++) {
        c = &load_conns[k];

        if (k == 0 || load.unique) {
            bench_body_make(&c->body, load.kind, load.size, 5);

        } else {
            c->body = load_conns[0].body;
        }
    }

    load_make_head(load_conns[0].body.len);

    for (k = 0; k < load.conns; k++) {
        load_open(&load_conns[k]);
    }

    begin = bench_time();

    while (load_done < load.requests) {

        next = load_schedule(begin);

        if (next) {
            memset(&its, 0, sizeof(its));
            its.it_value.tv_sec = (time_t) (next / 1000000000);
            its.it_value.tv_nsec = (long) (next % 1000000000);
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &its, NULL);
        }

        n = epoll_wait(load_epoll, events, 256, 10000);

        if (n == 0) {
            fprintf(stderr, "load: no answer for 10 s\n");
            return 1;
        }

        for (i = 0; i < n; i++) {
            c = events[i].data.ptr;

            if (c == NULL) {
                (void) !read(timer, &ticks, sizeof(ticks));
                continue;
            }

            if ((events[i].events & EPOLLOUT)) {
                load_send(c);
            }

            if (events[i].events & ~(unsigned) EPOLLOUT) {
                load_read(c);
            }
        }

        if (load.hold) {

            for (held = 0, k = 0; k < load.conns; k++) {
                held += load_conns[k].got > 0;
            }

            if (held == load.conns) {
                printf("held\n");
                fflush(stdout);
                (void) !read(0, &ticks, 1);
                return 0;
            }
        }
    }

    sum = (double) (bench_time() - begin) / 1e9;

    qsort(load_latency, load_done, sizeof(double), load_compare);
    qsort(load_between, load_stamped, sizeof(double), load_compare);

    printf("{\"requests\":%u,\"errors\":%u,\"seconds\":%.6f,\"p50_ms\":%.4f,"
           "\"p99_ms\":%.4f,", load_done, load_errors, sum,
           load_percentile(load_latency, load_done, 0.5),
           load_percentile(load_latency, load_done, 0.99));

    if (load.stamps) {
        printf("\"stamped\":%u,\"between_p50_ms\":%.4f,"
               "\"between_p99_ms\":%.4f,", load_stamped,
               load_percentile(load_between, load_stamped, 0.5),
               load_percentile(load_between, load_stamped, 0.99));
    }

    printf("\"body\":%zu}\n", load_conns[0].body.len);

    return 0;
}
