
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
#include <stdint.h>


/* a listening socket; exits if there is none to be had */
int bench_listen(int port);

/* connects, without waiting; -1 on failure */
int bench_connect(int port);

void bench_nodelay(int fd);

/* as many descriptors as are allowed */
void bench_limit(void);

/* monotonic time in nanoseconds */
uint64_t bench_time(void);


#endif /* _BENCH_NET_H_INCLUDED_ */
