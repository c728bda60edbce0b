/*
 * Many streams at once: how many tokens a second come through, how even they
 * come, and what CPU time the server takes for it.
 *
 *     streams PORT STREAMS TOKENS [PROMPT_BYTES [PID]]
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


typedef struct {
    int        fd;
    char       tail[8];         /* of what was read before */
    double     sent;
    double     first;
    double     last;
    double     gap_max;
    uint64_t   events;
    int        done;
} kve_stream_t;


static double
kve_clock(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec + ts.tv_nsec * 1e-9;
}


static double
kve_cpu(const char *pid)
{
    FILE    *f;
    char     path[64], line[1024], *p;
    double   user, sys;

    if (pid == NULL) {
        return 0;
    }

    snprintf(path, sizeof(path), "/proc/%s/stat", pid);

    f = fopen(path, "r");
    if (f == NULL) {
        return 0;
    }

    user = 0;
    sys = 0;
    p = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;

    if (p) {
        (void) sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u "
                      "%lf %lf", &user, &sys);
    }

    fclose(f);

    return (user + sys) / sysconf(_SC_CLK_TCK);
}


static int
kve_stream_open(kve_stream_t *s, int port, int tokens, int bytes, int n)
{
    int                  i, len, head;
    char                *body, line[512];
    struct sockaddr_in   sin;

    memset(s, 0, sizeof(kve_stream_t));
    memset(&sin, 0, sizeof(sin));

    sin.sin_family = AF_INET;
    sin.sin_port = htons(port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    s->fd = socket(AF_INET, SOCK_STREAM, 0);

    if (s->fd < 0
        || connect(s->fd, (struct sockaddr *) &sin, sizeof(sin)) != 0)
    {
        return -1;
    }

    body = malloc(bytes + 512);
    if (body == NULL) {
        return -1;
    }

    len = sprintf(body, "{\"stream\":true,\"ignore_eos\":true,"
                  "\"max_tokens\":%d,\"messages\":[{\"role\":\"user\","
                  "\"content\":\"stream %d ", tokens, n);

    for (i = 0; i < bytes; i++) {
        body[len++] = 'a' + (i * 7 + n) % 26;
    }

    len += sprintf(body + len, "\"}]}");

    head = snprintf(line, sizeof(line), "POST /v1/chat/completions HTTP/1.1"
                    "\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", len);

    s->sent = kve_clock();

    i = write(s->fd, line, head) == head && write(s->fd, body, len) == len;
    free(body);

    return i ? 0 : -1;
}


/* counts events with a token, which begin with "data: {" */

static void
kve_stream_read(kve_stream_t *s, double now)
{
    char       buf[65536 + 8], *p, *end;
    ssize_t    n;
    uint64_t   before;

    for ( ;; ) {
        memcpy(buf, s->tail, 7);

        n = recv(s->fd, buf + 7, sizeof(buf) - 8, MSG_DONTWAIT);

        if (n < 0) {
            return;
        }

        end = buf + 7 + n;
        *end = '\0';
        before = s->events;

        for (p = buf; p + 7 <= end; p++) {
            p = memchr(p, 'd', end - p);

            if (p == NULL || p + 7 > end) {
                break;
            }

            s->events += memcmp(p, "data: {", 7) == 0;
            s->done |= memcmp(p, "data: [", 7) == 0;
        }

        memcpy(s->tail, end - 7, 7);
        s->tail[0] = s->tail[0] == 'd' ? ' ' : s->tail[0];

        if (s->events > before) {

            if (s->first == 0) {
                s->first = now;

            } else if (now - s->last > s->gap_max) {
                s->gap_max = now - s->last;
            }

            s->last = now;
        }

        if (n == 0 || s->done) {
            s->done = 1;
            close(s->fd);
            return;
        }
    }
}


int
main(int argc, char **argv)
{
    int                  i, n, ep, left, streams, tokens, bytes;
    double               start, now, cpu, ttft, gap;
    uint64_t             events;
    const char          *pid;
    kve_stream_t        *s;
    struct epoll_event   ev, evs[256];

    if (argc < 4) {
        fprintf(stderr, "usage: streams PORT STREAMS TOKENS "
                        "[PROMPT_BYTES [PID]]\n");
        return EXIT_FAILURE;
    }

    streams = atoi(argv[2]);
    tokens = atoi(argv[3]);
    bytes = argc > 4 ? atoi(argv[4]) : 200;
    pid = argc > 5 ? argv[5] : NULL;

    s = calloc(streams, sizeof(kve_stream_t));
    ep = epoll_create1(0);

    cpu = kve_cpu(pid);
    start = kve_clock();

    for (i = 0; i < streams; i++) {
        if (kve_stream_open(&s[i], atoi(argv[1]), tokens, bytes, i) != 0) {
            fprintf(stderr, "cannot connect: %s\n", strerror(errno));
            return EXIT_FAILURE;
        }

        ev.events = EPOLLIN;
        ev.data.ptr = &s[i];
        epoll_ctl(ep, EPOLL_CTL_ADD, s[i].fd, &ev);
    }

    for (left = streams; left; /* void */ ) {
        n = epoll_wait(ep, evs, 256, -1);
        now = kve_clock();

        for (i = 0; i < n; i++) {
            kve_stream_read(evs[i].data.ptr, now);
            left -= ((kve_stream_t *) evs[i].data.ptr)->done;
        }
    }

    now = kve_clock() - start;
    cpu = kve_cpu(pid) - cpu;
    events = 0;
    ttft = 0;
    gap = 0;

    for (i = 0; i < streams; i++) {
        events += s[i].events;
        ttft += s[i].first - s[i].sent;
        gap = s[i].gap_max > gap ? s[i].gap_max : gap;
    }

    printf("%d streams, %llu events in %.2f s: %.0f/s, mean TTFT %.3f s, "
           "longest gap %.1f ms, CPU of the server %.1f%%\n", streams,
           (unsigned long long) events, now, events / now, ttft / streams,
           gap * 1000, cpu / now * 100);

    free(s);
    close(ep);

    return EXIT_SUCCESS;
}
