
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


/* returns a listening socket, or exits */
int bench_listen(int port);

/* connects without waiting; returns -1 on failure */
int bench_connect(int port);

void bench_nodelay(int fd);

/* raises the limit of descriptors as far as allowed */
void bench_limit(void);

/* returns the monotonic time in nanoseconds */
uint64_t bench_time(void);

/* returns the time of the clock of bench_recv() in nanoseconds */
uint64_t bench_clock(void);

/* lets the kernel record when data arrives, even if it is read later */
void bench_stamps(int fd);

/* recv() that does not wait; *when is the arrival of the last byte, or 0 */
ssize_t bench_recv(int fd, void *buf, size_t len, uint64_t *when);


#endif /* _BENCH_NET_H_INCLUDED_ */
