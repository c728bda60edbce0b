
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _BENCH_NET_H_INCLUDED_
#define _BENCH_NET_H_INCLUDED_


/* Sockets on the loopback address, for the load generator and the upstream. */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>


/* a listening socket; exits if there is none to be had */
int bench_listen(int port);

/* connects, without waiting; -1 on failure */
int bench_connect(int port);

void bench_nodelay(int fd);

/* as many descriptors as are allowed */
void bench_limit(void);

/* monotonic time in nanoseconds */
uint64_t bench_time(void);

/* that of the stamps below, in nanoseconds */
uint64_t bench_clock(void);

/* from now on the kernel notes when something arrived, whoever reads it when */
void bench_stamps(int fd);

/* recv() that does not wait, and when the last of it came; else 0 */
ssize_t bench_recv(int fd, void *buf, size_t len, uint64_t *when);


#endif /* _BENCH_NET_H_INCLUDED_ */
