
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_load: words and rows in one process, then many processes that count,
 * claim, sweep and are killed meanwhile; test_load_steps.c does the same step
 * by step.
 */


#include "util.h"
#include "core/state/kvr_load.h"

#include <errno.h>
#include <signal.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>


#define ROWS        16
#define COLUMNS     192

#define OWNER(n)    kvr_load_owner(1000 + (n), 77)

#define MAX_ACTIVE  ((1U << 24) - 1)

#define WORKERS     6
#define SWEEPERS    3
#define SERIALS     4096


/* makes a table at the end of its memory */
static kvr_load_t *
table(uint32_t rows, uint32_t columns)
{
    char        *p;
    size_t       size, page;
    kvr_load_t  *load;

    page = (size_t) sysconf(_SC_PAGESIZE);
    size = (kvr_load_size(rows, columns) + page - 1) / page * page;

    p = mmap(NULL, size + page, PROT_READ|PROT_WRITE,
             MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    util_check(p != MAP_FAILED, "mmap: %d", errno);
    util_check(mprotect(p + size, page, PROT_NONE) == 0, "mprotect: %d",
               errno);

    load = (kvr_load_t *) (void *) (p + size - kvr_load_size(rows, columns));

    util_check((uintptr_t) load % KVR_CACHE_LINE == 0,
               "size is not a multiple of a cache line");

    kvr_load_init(load, rows, columns);

    return load;
}


static void
check_sum(kvr_load_t *load, uint32_t column, uint32_t active, uint64_t pending)
{
    kvr_load_sum_t  sum;

    sum = kvr_load_get(load, column);

    util_check(sum.active == active && sum.pending == pending,
               "column %u: %u %llu, not %u %llu", column, sum.active,
               (unsigned long long) sum.pending, active,
               (unsigned long long) pending);
}


TEST(test_load_words)
{
    uint32_t     row, k, n;
    int64_t      a, p, da, dp;
    unsigned     i;
    util_rng_t   r;
    kvr_load_t  *load;

    load = table(ROWS, COLUMNS);

    for (n = 0; n < 2; n++) {

        /* rows of its own, then the shared one */

        for (k = 0, row = 0; k < (n ? ROWS : 1); k++) {
            row = kvr_load_claim(load, OWNER(k + n), 1);
        }

        util_check(row == n * ROWS, "row %u", row);

        kvr_load_add(load, row, 5, 1, 1000);
        check_sum(load, 5, 1, 1000);

        kvr_load_add(load, row, 5, 2, 0);
        kvr_load_add(load, row, 5, 0, -400);
        check_sum(load, 5, 3, 600);
        check_sum(load, 4, 0, 0);
        check_sum(load, 6, 0, 0);

        /* neither half of a word borrows from the other */

        kvr_load_add(load, row, 5, 0, -601);
        check_sum(load, 5, 3, 0);
        kvr_load_add(load, row, 5, -4, 7);
        check_sum(load, 5, 0, 7);
        kvr_load_add(load, row, 5, INT32_MIN, INT64_MIN / 2);
        check_sum(load, 5, 0, 0);

        kvr_load_add(load, row, 5, 1, (int64_t) KVR_LOAD_BYTES_MASK);
        check_sum(load, 5, 1, KVR_LOAD_BYTES_MASK);
        kvr_load_add(load, row, 5, 1, 1);
        check_sum(load, 5, 2, KVR_LOAD_BYTES_MASK);
        kvr_load_add(load, row, 5, INT32_MAX, INT64_MAX / 2);
        check_sum(load, 5, MAX_ACTIVE, KVR_LOAD_BYTES_MASK);
        kvr_load_add(load, row, 5, -(int32_t) MAX_ACTIVE,
                     -(int64_t) KVR_LOAD_BYTES_MASK);
        check_sum(load, 5, 0, 0);

        /* compared with plain numbers */

        a = 0;
        p = 0;

        for (i = 0; i < util_cases(20000); i++) {
            util_seed(&r, "load words", i);

            da = (int64_t) util_below(&r, 2001) - 1000;
            dp = (int64_t) (util_next(&r) >> (30 + util_below(&r, 33)));
            dp = util_below(&r, 2) ? dp : -dp;

            a = kvr_min(kvr_max(a + da, 0), MAX_ACTIVE);
            p = kvr_min(kvr_max(p + dp, 0), (int64_t) KVR_LOAD_BYTES_MASK);

            kvr_load_add(load, row, COLUMNS - 1, (int32_t) da, dp);
            check_sum(load, COLUMNS - 1, (uint32_t) a, (uint64_t) p);
        }

        kvr_load_add(load, row, COLUMNS - 1, -(int32_t) a, -p);
    }
}


/* all words are separate; a sum is over all rows */
TEST(test_load_layout)
{
    uint32_t         i, n, column, rows, columns;
    kvr_load_t      *load;

    static const uint32_t  shapes[][2] = {
        { 1, 1 }, { 1, 8 }, { 2, 9 }, { 3, 7 }, { 16, 64 }, { 64, 192 },
        { 5, 256 }
    };

    for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {

        rows = shapes[i][0];
        columns = shapes[i][1];

        util_note("%u rows, %u columns", rows, columns);

        load = table(rows, columns);

        for (n = 0; n <= rows; n++) {
            util_check(kvr_load_claim(load, OWNER(n), n) == n, "claim %u", n);

            for (column = 0; column < columns; column++) {
                kvr_load_add(load, n, column, (int32_t) n + 1,
                             n * 1000 + column);
            }
        }

        for (column = 0; column < columns; column++) {
            check_sum(load, column, (rows + 1) * (rows + 2) / 2,
                      rows * (rows + 1) / 2 * 1000
                      + (uint64_t) column * (rows + 1));
        }

        /* processes write often: no cache line has words of two of them */

        util_check(load->stride % 8 == 0 && load->stride >= columns,
                   "stride %u", load->stride);
        util_check((uintptr_t) &load->row[0] % KVR_CACHE_LINE == 0, "rows");
        util_check(sizeof(kvr_load_row_t) % KVR_CACHE_LINE == 0, "row");
    }
}


/* simulated processes: those from this number on are alive */

typedef struct {
    uint64_t         dead[4];
    unsigned         ndead;
    unsigned         asked;
    unsigned         told;
    uint64_t         active;
    uint64_t         pending;
    unsigned         others;     /* processes that count in the same columns */
    unsigned         dropped;
    unsigned  busy;              /* postpones after this many bytes */
    kvr_load_t      *load;
} world_t;


static int
alive(void *data, kvr_load_owner_t owner)
{
    unsigned  i;
    world_t  *w;

    w = data;
    w->asked++;

    for (i = 0; i < w->ndead; i++) {
        if (w->dead[i] == owner) {
            return 0;
        }
    }

    return 1;
}


static int
drop(void *data, kvr_load_row_t *row)
{
    world_t  *w;

    w = data;
    w->dropped++;

    util_check(row->held == 5, "held %llu", (unsigned long long) row->held);
    util_check(row->sweeper != 0 && row->owner != 0, "the row was released");

    if (w->busy) {
        return KVR_AGAIN;
    }

    row->held = 0;

    return KVR_OK;
}


static int
heal(void *data, kvr_load_row_t *row, uint32_t column, _Atomic uint64_t *word)
{
    world_t         *w;
    kvr_load_sum_t   left;

    w = data;

    util_check(row->sweeper != 0 && row->owner != 0, "the row was released");
    util_check(row->generation == 9, "generation %llu",
               (unsigned long long) row->generation);
    util_check(row->held == 0 || w->busy, "the row is still held");

    /* the part that it subtracts first is gone, the rest stays */

    if (w->busy) {
        *word -= w->busy;
        w->pending += w->busy;
        w->told++;
        return KVR_AGAIN;
    }

    left = kvr_load_split(*word);

    w->told++;
    w->active += left.active;
    w->pending += left.pending;

    if (!w->others) {
        check_sum(w->load, column, left.active, left.pending);
    }

    return KVR_OK;
}


TEST(test_load_sweep)
{
    uint32_t     n;
    world_t      w = { 0 };
    kvr_load_t  *load;

    load = table(ROWS, COLUMNS);

    w.load = load;

    util_check(kvr_load_sweep(load, OWNER(0), alive, drop, heal, &w) == 0
               && w.asked == 0, "an empty table");

    for (n = 0; n < 4; n++) {
        util_check(kvr_load_claim(load, OWNER(n), 9) == n, "%u", n);
        kvr_load_name(load, n, n);
        kvr_load_add(load, n, 10 + n, 2, 100 + n);
        kvr_load_add(load, n, COLUMNS - 1 - n, 0, 7);
    }

    util_check(kvr_load_sweep(load, OWNER(0), alive, drop, heal, &w) == 0
               && w.told == 0, "all processes live");

    /* two die: only their counts are removed, once */

    w.dead[w.ndead++] = OWNER(1);
    w.dead[w.ndead++] = OWNER(3);

    util_check(kvr_load_sweep(load, OWNER(0), alive, drop, heal, &w) == 2,
               "two");
    util_check(w.told == 4 && w.active == 4 && w.pending == 101 + 103 + 14,
               "reported %u: %llu %llu", w.told, (unsigned long long) w.active,
               (unsigned long long) w.pending);
    util_check(kvr_load_sweep(load, OWNER(0), alive, drop, heal, &w) == 0,
               "a second sweep");

    for (n = 0; n < 4; n++) {
        check_sum(load, 10 + n, n & 1 ? 0 : 2, n & 1 ? 0 : 100 + n);
        util_check(kvr_load_used(load, n) == !(n & 1), "name %u", n);
        util_check(load->row[n].sweeper == 0, "sweeper of %u", n);
    }

    /* the lowest free row is next; without a healer there are no calls */

    util_check(kvr_load_claim(load, OWNER(4), 9) == 1, "lowest");
    kvr_load_add(load, 1, 3, 5, 5);
    w.dead[0] = OWNER(4);
    w.told = 0;

    util_check(kvr_load_sweep(load, OWNER(0), alive, NULL, NULL, &w) == 1
               && w.told == 0, "no healer");
    check_sum(load, 3, 0, 0);

    /* a process does not sweep its own row, even if it looks dead */

    w.dead[0] = OWNER(0);
    util_check(kvr_load_sweep(load, OWNER(0), alive, drop, heal, &w) == 0,
               "own");
    check_sum(load, 10, 2, 100);
}


/* another sweep does the postponed work, once */
TEST(test_load_sweep_again)
{
    world_t      w = { 0 };
    kvr_load_t  *load;

    load = table(ROWS, COLUMNS);

    w.load = load;

    util_check(kvr_load_claim(load, OWNER(1), 9) == 0, "claim");
    kvr_load_name(load, 0, 7);
    kvr_load_add(load, 0, 3, 2, 10);
    kvr_load_add(load, 0, 5, 1, 20);

    /* live processes are left alone */

    kvr_load_hold(load, 0, 5);
    kvr_load_sweep(load, OWNER(2), alive, drop, heal, &w);
    util_check(w.dropped == 0 && load->row[0].held == 5, "alive");

    w.dead[w.ndead++] = OWNER(1);
    w.busy = 3;

    util_check(kvr_load_sweep(load, OWNER(2), alive, drop, heal, &w) == 0
               && w.dropped == 1 && w.told == 2, "not now");
    util_check(load->row[0].owner == OWNER(1) && load->row[0].sweeper == 0
               && load->row[0].held == 5 && kvr_load_used(load, 7),
               "unchanged");
    check_sum(load, 3, 2, 7);
    check_sum(load, 5, 1, 17);

    /* so another process can do it */

    w.busy = 0;

    util_check(kvr_load_sweep(load, OWNER(3), alive, drop, heal, &w) == 1
               && w.dropped == 2, "now");
    util_check(w.active == 3 && w.pending == 30, "reported %llu %llu",
               (unsigned long long) w.active, (unsigned long long) w.pending);
    util_check(load->row[0].owner == 0 && load->row[0].held == 0
               && !kvr_load_used(load, 7), "free");
    check_sum(load, 3, 0, 0);

    /* without a held lock drop() is not called; without drop() it is cleared */

    util_check(kvr_load_claim(load, OWNER(1), 9) == 0, "claim");
    util_check(kvr_load_sweep(load, OWNER(3), alive, drop, heal, &w) == 1
               && w.dropped == 2, "nothing held");

    util_check(kvr_load_claim(load, OWNER(1), 9) == 0, "claim");
    kvr_load_hold(load, 0, 5);
    util_check(kvr_load_sweep(load, OWNER(3), alive, NULL, NULL, &w) == 1
               && load->row[0].held == 0, "cleared");

    /* the shared row is never swept */

    kvr_load_hold(load, ROWS, 5);
    kvr_load_sweep(load, OWNER(3), alive, drop, heal, &w);
    util_check(w.dropped == 2 && load->row[ROWS].held == 5, "shared");
}


/* a process id is reused: the start time differs */
TEST(test_load_pid_reuse)
{
    world_t           w = { 0 };
    kvr_load_t       *load;
    kvr_load_owner_t  one, two;

    load = table(ROWS, COLUMNS);

    one = kvr_load_owner(4194303, 0xfffffffe);
    two = kvr_load_owner(4194303, 0xffffffff);

    util_check(one >> 32 == 4194303 && (uint32_t) one == 0xfffffffe, "owner");
    util_check(one != two, "the same");

    w.load = load;
    w.others = 1;
    w.dead[w.ndead++] = one;

    util_check(kvr_load_claim(load, one, 9) == 0, "row 0");
    kvr_load_add(load, 0, 0, 1, 1);

    util_check(kvr_load_claim(load, two, 9) == 1, "two");
    kvr_load_add(load, 1, 0, 10, 10);

    util_check(kvr_load_sweep(load, two, alive, drop, heal, &w) == 1, "sweep");
    check_sum(load, 0, 10, 10);
}


TEST(test_load_exhausted)
{
    uint32_t     n;
    uint64_t     names[kvr_load_names_words(COLUMNS)];
    world_t      w = { 0 };
    kvr_load_t  *load;

    load = table(2, COLUMNS);

    w.load = load;

    for (n = 0; n < 5; n++) {
        util_check(kvr_load_claim(load, OWNER(n), 9) == kvr_min(n, 2),
                   "claim %u", n);
    }

    /* processes without a row share one; it counts, and is never swept */

    kvr_load_add(load, 2, 9, 3, 300);
    kvr_load_add(load, 2, 9, -1, -100);
    kvr_load_add(load, 0, 9, 1, 1);
    check_sum(load, 9, 3, 201);

    w.others = 1;
    w.dead[w.ndead++] = OWNER(2);
    w.dead[w.ndead++] = OWNER(3);
    w.dead[w.ndead++] = OWNER(0);

    util_check(kvr_load_sweep(load, OWNER(1), alive, drop, heal, &w) == 1,
               "one row");
    check_sum(load, 9, 2, 200);

    /* it keeps all names that any of its processes had */

    memset(names, 0, sizeof(names));
    names[2] = 1ULL << 62;
    kvr_load_rename(load, 2, names);
    names[2] = 1ULL << 61;
    kvr_load_rename(load, 2, names);
    kvr_load_name(load, 2, 3);

    util_check(kvr_load_used(load, 190) && kvr_load_used(load, 189)
               && kvr_load_used(load, 3) && !kvr_load_used(load, 191),
               "names");

    kvr_load_release(load, 2);
    util_check(kvr_load_used(load, 190), "shared names are kept");
    check_sum(load, 9, 2, 200);

    /* a process that starts when there is a free row gets its own */

    util_check(kvr_load_claim(load, OWNER(7), 9) == 0, "row");
}


/*
 * Processes.  A worker claims a row, which must be clean and stay its own, and
 * counts.  Sweepers sweep all the time.  Any process can be killed at any
 * time. In the end the sums equal the counts of the survivors.
 */

typedef struct {
    kvr_load_t        *load;
    _Atomic uint32_t   stop;
    _Atomic uint32_t   errors;
    _Atomic uint32_t   swept;
    _Atomic uint32_t   live[SERIALS];    /* by serial number: not yet reaped */
    _Atomic uint32_t   counts[SERIALS];  /* process with a row */
    _Atomic uint64_t  active[SERIALS];   /* its count when it stops */
    _Atomic uint64_t   pending[SERIALS];
} yard_t;


static yard_t  *yard;


static int
yard_alive(void *data, kvr_load_owner_t owner)
{
    (void) data;

    return (int) atomic_load(&yard->live[owner & 0xffffffff]);
}


static void
sweeper(uint32_t serial)
{
    while (!atomic_load(&yard->stop)) {
        yard->swept += kvr_load_sweep(yard->load,
                                      kvr_load_owner(getpid(), serial),
                                      yard_alive, NULL, NULL, NULL);
        sched_yield();
    }
}


static void
worker(uint32_t serial)
{
    int64_t            a, p;
    uint32_t           row, i, column;
    uint64_t           active, pending;
    util_rng_t         r;
    _Atomic uint64_t  *words;
    kvr_load_owner_t   owner;

    util_seed(&r, "load worker", serial);

    owner = kvr_load_owner(getpid(), serial);
    row = kvr_load_claim(yard->load, owner, 1);

    words = (_Atomic uint64_t *) (void *) &yard->load->row[ROWS + 1]
            + (size_t) row * yard->load->stride;

    if (row == ROWS) {
        yard->errors++;
        return;
    }

    for (i = 0; i < COLUMNS; i++) {
        if (atomic_load(&words[i]) || kvr_load_names(yard->load, row)[i / 64]) {
            yard->errors++;
        }
    }

    active = 0;
    pending = 0;

    for (i = 0; ; i++) {

        if (i % 64 == 0) {

            if (atomic_load(&yard->load->row[row].owner) != owner) {
                yard->errors++;
            }

            if (atomic_load(&yard->stop)) {
                break;
            }
        }

        /* in and out; some requests stay */

        column = util_below(&r, COLUMNS);
        a = util_below(&r, 3);
        p = util_below(&r, 100000);

        kvr_load_name(yard->load, row, column);
        kvr_load_add(yard->load, row, column, (int32_t) a, p);

        if (util_below(&r, 50)) {
            kvr_load_add(yard->load, row, column, -(int32_t) a, -p);

        } else {
            active += (uint64_t) a;
            pending += (uint64_t) p;
        }
    }

    yard->active[serial] = active;
    yard->pending[serial] = pending;
    yard->counts[serial] = 1;
}


static pid_t
hire(uint32_t serial, unsigned sweeps)
{
    pid_t  pid;

    util_check(serial < SERIALS, "out of numbers");

    yard->live[serial] = 1;

    pid = fork();
    util_check(pid != -1, "fork: %d", errno);

    if (pid == 0) {

        /* otherwise the killing process gets no CPU among all these */

        (void) !nice(10);

        if (sweeps) {
            sweeper(serial);

        } else {
            worker(serial);
        }

        _exit(0);
    }

    return pid;
}


TEST(test_load_kills)
{
    int             status;
    pid_t           pid[WORKERS + SWEEPERS];
    unsigned        i, k, kills, first, last;
    uint32_t        column, n, serial, who[WORKERS + SWEEPERS];
    uint64_t        active, pending, sum_active, sum_pending;
    util_rng_t      r;
    kvr_load_sum_t  sum;

    yard = mmap(NULL, sizeof(yard_t), PROT_READ|PROT_WRITE,
                MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    util_check(yard != MAP_FAILED, "mmap: %d", errno);

    yard->load = table(ROWS, COLUMNS);

    util_seed(&r, "load kills", 0);

    serial = 1;

    for (i = 0; i < WORKERS + SWEEPERS; i++) {
        who[i] = serial++;
        pid[i] = hire(who[i], i >= WORKERS);
    }

    kills = util_cases(500);

    /* one or several at a time: each needs CPU time to die */

    for (k = 0; k < kills; k += last - first) {

        usleep(util_below(&r, 3000));

        first = util_below(&r, WORKERS + SWEEPERS);
        last = first + 1 + util_below(&r, WORKERS + SWEEPERS - first);

        for (i = first; i < last; i++) {
            kill(pid[i], SIGKILL);
        }

        for (i = first; i < last; i++) {
            waitpid(pid[i], &status, 0);
            atomic_store(&yard->live[who[i]], 0);
        }

        /* there are more rows than workers, once dead ones are swept */

        kvr_load_sweep(yard->load, kvr_load_owner(getpid(), 0), yard_alive,
                       NULL, NULL, NULL);

        for (i = first; i < last; i++) {
            who[i] = serial++;
            pid[i] = hire(who[i], i >= WORKERS);
        }
    }

    usleep(2000);
    atomic_store(&yard->stop, 1);

    for (i = 0; i < WORKERS + SWEEPERS; i++) {
        waitpid(pid[i], &status, 0);

        util_check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                   "process %u: %x", i, status);
    }

    util_check(yard->errors == 0, "%u errors of workers", yard->errors);

    yard->swept += kvr_load_sweep(yard->load, kvr_load_owner(getpid(), 0),
                                  yard_alive, NULL, NULL, NULL);

    active = 0;
    pending = 0;

    for (i = 0; i < WORKERS; i++) {
        util_check(yard->counts[who[i]], "worker %u had no row", i);

        active += yard->active[who[i]];
        pending += yard->pending[who[i]];
    }

    sum_active = 0;
    sum_pending = 0;

    for (column = 0; column < COLUMNS; column++) {
        sum = kvr_load_get(yard->load, column);
        sum_active += sum.active;
        sum_pending += sum.pending;
    }

    util_check(sum_active == active && sum_pending == pending,
               "%llu %llu, not %llu %llu", (unsigned long long) sum_active,
               (unsigned long long) sum_pending, (unsigned long long) active,
               (unsigned long long) pending);

    util_check(yard->swept || kills < 100, "no row was swept");

    /* the last workers end too: no count is left */

    for (i = 0; i < WORKERS; i++) {
        yard->live[who[i]] = 0;
    }

    kvr_load_sweep(yard->load, kvr_load_owner(getpid(), 0), yard_alive, NULL,
                   NULL, NULL);

    for (column = 0; column < COLUMNS; column++) {
        check_sum(yard->load, column, 0, 0);
        util_check(!kvr_load_used(yard->load, column), "column %u", column);
    }

    for (n = 0; n < ROWS; n++) {
        util_check(yard->load->row[n].owner == 0, "row %u", n);
    }
}


/* processes that share a row also count exactly */
TEST(test_load_shared)
{
    int          status;
    pid_t        pid[4];
    unsigned     i, k, n;
    kvr_load_t  *load;

    load = table(1, 8);
    n = util_cases(50000);

    for (i = 0; i < 5; i++) {
        (void) kvr_load_claim(load, OWNER(i), 1);
    }

    for (i = 0; i < 4; i++) {
        pid[i] = fork();
        util_check(pid[i] != -1, "fork: %d", errno);

        if (pid[i] == 0) {

            for (k = 0; k < n; k++) {
                kvr_load_add(load, 1, 0, 3, 500);
                kvr_load_add(load, 1, 0, -2, -400);
            }

            _exit(0);
        }
    }

    for (i = 0; i < 4; i++) {
        waitpid(pid[i], &status, 0);
        util_check(status == 0, "process %u: %x", i, status);
    }

    check_sum(load, 0, 4 * n, 400ULL * n);
}
