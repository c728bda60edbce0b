
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Preloaded into nginx while its instructions are counted: random numbers, the
 * process id and the time are the same in each run.  So two builds hash alike
 * and break ties alike, and the work of each second is done for the same
 * number of requests.  Only the code differs.
 */


#include <stdint.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>


#define ALIKE_SEED   88172645463325252ULL
#define ALIKE_PID    4242
#define ALIKE_BEGIN  1700000000   /* s */
#define ALIKE_STEP   100000       /* ns between the times of two calls */

/* replaces the function of libc */
#define alike(name)                                                           \
    extern __typeof__(alike_##name) name                                      \
        __attribute__ ((alias("alike_" #name)))


static uint64_t  alike_state = ALIKE_SEED;
static uint64_t  alike_ns;


static void
alike_srandom(unsigned seed)
{
    (void) seed;

    alike_state = ALIKE_SEED;
}


/* xorshift64 */
static long
alike_random(void)
{
    alike_state ^= alike_state << 13;
    alike_state ^= alike_state >> 7;
    alike_state ^= alike_state << 17;

    return (long) (alike_state >> 33);
}


static ssize_t
alike_getrandom(void *buf, size_t len, unsigned flags)
{
    size_t    i;
    uint8_t  *p = buf;

    (void) flags;

    for (i = 0; i < len; i++) {
        p[i] = (uint8_t) (i * 37 + 11);
    }

    return (ssize_t) len;
}


static pid_t
alike_getpid(void)
{
    return ALIKE_PID;
}


static int
alike_clock_gettime(clockid_t clock, struct timespec *ts)
{
    (void) clock;

    alike_ns += ALIKE_STEP;

    ts->tv_sec = (time_t) (ALIKE_BEGIN + alike_ns / 1000000000);
    ts->tv_nsec = (long) (alike_ns % 1000000000);

    return 0;
}


static int
alike_gettimeofday(struct timeval *tv, void *tz)
{
    struct timespec  ts;

    (void) tz;
    (void) alike_clock_gettime(CLOCK_REALTIME, &ts);

    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}


alike(srandom);
alike(random);
alike(getrandom);
alike(getpid);
alike(clock_gettime);
alike(gettimeofday);
