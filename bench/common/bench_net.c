
/*
 * Copyright (C) kvroute contributors
 */


#include "bench_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>


static struct sockaddr_in
bench_address(int port)
{
    struct sockaddr_in  sin;

    memset(&sin, 0, sizeof(sin));

    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    return sin;
}


int
bench_listen(int port)
{
    int                 fd, one;
    struct sockaddr_in  sin;

    one = 1;
    sin = bench_address(port);

    fd = socket(AF_INET, SOCK_STREAM|SOCK_NONBLOCK, 0);

    if (fd == -1
        || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == -1
        || bind(fd, (struct sockaddr *) &sin, sizeof(sin)) == -1
        || listen(fd, 4096) == -1)
    {
        perror("listen");
        exit(1);
    }

    return fd;
}


int
bench_connect(int port)
{
    int                 fd;
    struct sockaddr_in  sin;

    sin = bench_address(port);

    fd = socket(AF_INET, SOCK_STREAM|SOCK_NONBLOCK, 0);

    if (fd != -1
        && connect(fd, (struct sockaddr *) &sin, sizeof(sin)) == -1
        && errno != EINPROGRESS)
    {
        close(fd);
        return -1;
    }

    if (fd != -1) {
        bench_nodelay(fd);
    }

    return fd;
}


void
bench_nodelay(int fd)
{
    int  one;

    one = 1;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}


void
bench_limit(void)
{
    struct rlimit  rl;

    if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
        rl.rlim_cur = rl.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &rl);
    }
}


static uint64_t
bench_ns(const struct timespec *ts)
{
    return (uint64_t) ts->tv_sec * 1000000000 + (uint64_t) ts->tv_nsec;
}


uint64_t
bench_time(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return bench_ns(&ts);
}


uint64_t
bench_clock(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_REALTIME, &ts);

    return bench_ns(&ts);
}


void
bench_stamps(int fd)
{
    int  what;

    what = SOF_TIMESTAMPING_RX_SOFTWARE|SOF_TIMESTAMPING_SOFTWARE;
    (void) setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &what, sizeof(what));
}


ssize_t
bench_recv(int fd, void *buf, size_t len, uint64_t *when)
{
    ssize_t                    n;
    struct iovec               iov;
    struct msghdr              msg;
    struct cmsghdr            *cm;
    struct scm_timestamping    ts;
    union {
        struct cmsghdr         align;
        char                   data[256];
    } control;

    iov.iov_base = buf;
    iov.iov_len = len;

    memset(&msg, 0, sizeof(msg));

    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = &control;
    msg.msg_controllen = sizeof(control);

    *when = 0;

    n = recvmsg(fd, &msg, MSG_DONTWAIT);
    if (n == -1) {
        return n;
    }

    for (cm = CMSG_FIRSTHDR(&msg); cm; cm = CMSG_NXTHDR(&msg, cm)) {

        if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SO_TIMESTAMPING) {
            memcpy(&ts, CMSG_DATA(cm), sizeof(ts));
            *when = bench_ns(&ts.ts[0]);
        }
    }

    return n;
}
