
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The runner.  Cases take turns for several rounds, and the median turn of
 * each counts.  Times are CPU time of this process, because wall time is
 * useless on a shared machine.  The CPU counts instructions if the kernel
 * allows it; otherwise callgrind does: "micro count" under callgrind makes a
 * few calls of each case between client requests (bench/micro/run.py), and
 * "micro count CASE" of one case, for callgrind's --toggle-collect.
 */


#include "micro_run.h"
#include "core/base/kvr_pages.h"

#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/perf_event.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name)  (void) name
#endif


#define MICRO_CASES   128
#define MICRO_ROUNDS  9
#define MICRO_TURN    2e6        /* ns */


uint8_t  micro_secret[KVR_SECRET_LEN];
int      micro_full;

static micro_case_t       micro_cases[MICRO_CASES];
static unsigned           micro_n;
static volatile uint64_t  micro_sink;


double
micro_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);

    return (double) ts.tv_sec * 1e9 + (double) ts.tv_nsec;
}


static int
micro_compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return x < y ? -1 : x > y;
}


double
micro_median(double *v, unsigned n)
{
    qsort(v, n, sizeof(double), micro_compare);

    return v[n / 2];
}


static void *
micro_map(size_t size, int flags)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, flags|MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }

    /* as for the zones of the module */

    if (flags & MAP_SHARED) {
        kvr_pages_advise(p, size);
    }

    /* otherwise the first writer pays for each page */

    memset(p, 1, size);
    memset(p, 0, size);

    return p;
}


void *
micro_alloc(size_t size)
{
    return micro_map(size, MAP_PRIVATE);
}


void *
micro_alloc_shared(size_t size)
{
    return micro_map(size, MAP_SHARED);
}


/*
 * The setting for large pages in shared memory, and how much of this process's
 * memory has them.
 */
static void
micro_pages(cJSON *results)
{
    char           line[256], *word;
    FILE          *f;
    unsigned long  kb, sum;

    word = NULL;

    f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "r");

    if (f) {
        if (fgets(line, sizeof(line), f) && strtok(line, "[")) {
            word = strtok(NULL, "]");
        }

        fclose(f);
    }

    cJSON_AddStringToObject(results, "shmem_enabled", word ? word : "none");

    sum = 0;

    f = fopen("/proc/self/smaps_rollup", "r");

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "ShmemPmdMapped: %lu kB", &kb) == 1) {
            sum = kb;
        }
    }

    if (f) {
        fclose(f);
    }

    cJSON_AddNumberToObject(results, "large_pages_mb", (double) (sum / 1024));
}


micro_case_t *
micro_add(micro_run_pt run, void *data, const char *per, double units,
    const char *fmt, ...)
{
    va_list        args;
    micro_case_t  *c;

    if (micro_n == MICRO_CASES) {
        fprintf(stderr, "too many cases\n");
        exit(1);
    }

    c = &micro_cases[micro_n++];

    va_start(args, fmt);
    vsnprintf(c->name, sizeof(c->name), fmt, args);
    va_end(args);

    c->run = run;
    c->data = data;
    c->per = per;
    c->units = units;
    c->calls = 1;

    return c;
}


/* returns the number of calls in a turn */
static void
micro_calibrate(micro_case_t *c)
{
    double  t;

    for ( ;; ) {
        t = micro_now();
        micro_sink += c->run(c, c->calls);
        t = micro_now() - t;

        if (t > MICRO_TURN / 4) {
            break;
        }

        c->calls *= 2;
    }

    c->calls = (unsigned) (c->calls * MICRO_TURN / t) + 1;
}


static void
micro_perf(void)
{
    int                     fd;
    unsigned                i;
    uint64_t                count;
    micro_case_t           *c;
    struct perf_event_attr  attr;

    memset(&attr, 0, sizeof(attr));

    attr.type = PERF_TYPE_HARDWARE;
    attr.size = sizeof(attr);
    attr.config = PERF_COUNT_HW_INSTRUCTIONS;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;

    fd = (int) syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    if (fd == -1) {
        return;
    }

    for (i = 0; i < micro_n; i++) {
        c = &micro_cases[i];

        ioctl(fd, PERF_EVENT_IOC_RESET, 0);
        micro_sink += c->run(c, c->calls);

        if (read(fd, &count, sizeof(count)) == sizeof(count)) {
            c->instructions = (double) count / c->calls;
        }
    }

    close(fd);
}


void
micro_run_count(const char *only)
{
    char           name[64];
    unsigned       i, calls;
    micro_case_t  *c;

    for (i = 0; i < micro_n; i++) {
        c = &micro_cases[i];

        if (only && strcmp(only, c->name) != 0) {
            continue;
        }

        /* for megabytes one call is enough */

        calls = c->usual ? 1 : 8;

        micro_sink += c->run(c, kvr_min(calls, 2));

        if (only) {
            continue;
        }

        snprintf(name, sizeof(name), "%u %s", calls, c->name);

        CALLGRIND_ZERO_STATS;
        micro_sink += c->run(c, calls);
        CALLGRIND_DUMP_STATS_AT(name);
    }
}


static void
micro_report(cJSON *results)
{
    double         ns;
    cJSON         *item;
    unsigned       i;
    micro_case_t  *c;

    for (i = 0; i < micro_n; i++) {
        c = &micro_cases[i];
        ns = micro_median(c->ns, MICRO_ROUNDS);

        item = cJSON_AddObjectToObject(results, c->name);

        cJSON_AddNumberToObject(item, "ns", ns);
        cJSON_AddStringToObject(item, "per", c->per);
        cJSON_AddNumberToObject(item, "units", c->units);
        cJSON_AddNumberToObject(item, "ns_per", ns / c->units);

        if (c->usual) {
            cJSON_AddStringToObject(item, "usual", c->usual);
        }

        if (c->instructions > 0) {
            cJSON_AddNumberToObject(item, "instructions", c->instructions);
        }
    }
}


void
micro_run_only(const char *part)
{
    unsigned  i, n;

    for (i = 0, n = 0; i < micro_n; i++) {
        if (strstr(micro_cases[i].name, part)) {
            micro_cases[n++] = micro_cases[i];
        }
    }

    micro_n = n;
}


void
micro_run_all(cJSON *results)
{
    double         t;
    unsigned       i, round;
    micro_case_t  *c;

    micro_pages(results);

    for (i = 0; i < micro_n; i++) {
        micro_calibrate(&micro_cases[i]);
    }

    for (round = 0; round < MICRO_ROUNDS; round++) {
        for (i = 0; i < micro_n; i++) {
            c = &micro_cases[i];

            t = micro_now();
            micro_sink += c->run(c, c->calls);
            c->ns[round] = (micro_now() - t) / c->calls;
        }
    }

    micro_perf();
    micro_report(cJSON_AddObjectToObject(results, "cases"));
}
