
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_queue: the order compared with a plain sort, fairness, and processes
 * that admit from one shared state while some of them are killed.
 */


#include "util.h"
#include "core/queue/kvr_queue.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define ITEMS       400
#define PROCESSES   4
#define ROOM        6


static kvr_queue_shared_t  *shared;


static void
setup(void)
{
    shared = mmap(NULL, sizeof(kvr_queue_shared_t), PROT_READ|PROT_WRITE,
                  MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    util_check(shared != MAP_FAILED, "mmap: %d", errno);
}


static void
teardown(void)
{
    munmap(shared, sizeof(kvr_queue_shared_t));
}


/* as much room as *data; NULL gives one place back */
static int
room(void *data, kvr_queue_item_t *item)
{
    int  *left = data;

    if (item == NULL) {
        (*left)++;
        return 1;
    }

    if (*left == 0) {
        return 0;
    }

    (*left)--;

    return 1;
}


static int
admit(kvr_queue_t *q, kvr_queue_item_t *item, uint64_t now)
{
    int  left;

    left = 1;

    return kvr_queue_admit(shared, 0, q, item, now, room, &left);
}


TEST(test_queue_order)
{
    unsigned           i, k, n, seq, class;
    uint32_t           last;
    util_rng_t         r;
    kvr_queue_key_t    key;
    kvr_queue_t        q;
    kvr_queue_item_t   item[ITEMS], *first;

    for (k = 0; k < util_cases(200); k++) {

        util_seed(&r, "queue order", k);
        memset(&q, 0, sizeof(q));

        n = 1 + util_below(&r, ITEMS);

        for (i = 0; i < n; i++) {
            kvr_queue_item(&item[i], 0xfffff000ULL + i,
                           util_below(&r, KVR_QUEUE_CLASSES), 0, 1,
                           util_below(&r, 1000000),
                           util_below(&r, 4) ? 0 : 1 + util_below(&r, 5000));
            kvr_queue_insert(&q, shared, &item[i]);
        }

        /* some leave from the middle */

        for (i = 0; i < n; i += 1 + util_below(&r, 5)) {
            kvr_queue_remove(&q, &item[i]);
            kvr_queue_remove(&q, &item[i]);
        }

        class = 0;
        last = 0;
        seq = q.n;

        for (i = 0; i < seq; i++) {
            first = kvr_queue_first(&q, shared, &key);

            util_check(first != NULL, "lost one of %u", seq);
            util_check(first->class >= class, "class %u", first->class);

            if (i && first->class == class) {
                util_check((int32_t) (first->due - last) >= 0, "due");
            }

            class = first->class;
            last = first->due;

            kvr_queue_remove(&q, first);
        }

        util_check(q.n == 0, "%u left", q.n);
        util_check(kvr_queue_first(&q, shared, &key) == NULL,
                   "an unexpected item");

        for (i = 0; i < KVR_QUEUE_CLASSES; i++) {
            util_check(q.tenants[i] == 0 && q.depth[i] == 0, "class %u", i);
        }
    }
}


/* a large request is passed only by those within its aging bound */
TEST(test_queue_aging)
{
    uint64_t           bound;
    kvr_queue_key_t    key;
    kvr_queue_t        q = { 0 };
    kvr_queue_item_t   giant, small, late;

    bound = 1000000 / KVR_QUEUE_AGING;

    kvr_queue_item(&giant, 1000, 3, 0, 1, 1000000, 0);
    kvr_queue_item(&small, 1000 + bound - 1, 3, 0, 1, 0, 0);
    kvr_queue_item(&late, 1000 + bound + 1, 3, 0, 1, 0, 0);

    kvr_queue_insert(&q, shared, &giant);
    kvr_queue_insert(&q, shared, &small);
    kvr_queue_insert(&q, shared, &late);

    util_check(kvr_queue_first(&q, shared, &key) == &small, "small");
    kvr_queue_remove(&q, &small);

    util_check(kvr_queue_first(&q, shared, &key) == &giant, "giant");
    kvr_queue_remove(&q, &giant);
    kvr_queue_remove(&q, &late);
}


/*
 * Tenants of weight 1 and 3, the first with ten times the requests; a third
 * one comes later and gets no credit for the time before.
 */
TEST(test_queue_tenants)
{
    unsigned           i, k, t, let;
    uint64_t           given[3] = { 0 }, sum;
    util_rng_t         r;
    kvr_queue_key_t    key;
    kvr_queue_t        q = { 0 };
    kvr_queue_item_t   item[3][ITEMS], *first;

    static const uint32_t  weight[3] = { 1, 3, 1 };

    util_seed(&r, "tenants", 0);

    for (t = 0; t < 3; t++) {
        k = kvr_queue_tenant(shared, 77 * t + 5, 1);

        util_check(k == kvr_queue_tenant(shared, 77 * t + 5, 2), "same place");

        for (i = 0; i < ITEMS; i++) {
            kvr_queue_item(&item[t][i], 1000 + i, 3, (uint8_t) k, weight[t],
                           1000 + util_below(&r, 100000), 0);
        }
    }

    for (i = 0; i < ITEMS; i++) {
        kvr_queue_insert(&q, shared, &item[0][i]);
        kvr_queue_insert(&q, shared, &item[1][i]);
    }

    for (let = 0; let < ITEMS; let++) {
        first = kvr_queue_first(&q, shared, &key);
        util_check(admit(&q, first, 2000) == KVR_OK, "admitted");
        given[first >= item[1] ? 1 : 0] += first->work;
    }

    sum = given[0] + given[1];

    util_check(given[0] > 0.23 * sum && given[0] < 0.27 * sum,
               "%.3f of the work, not a quarter", (double) given[0] / sum);

    memset(given, 0, sizeof(given));

    for (i = 0; i < ITEMS; i++) {
        kvr_queue_insert(&q, shared, &item[2][i]);
    }

    for (let = 0; let < 200; let++) {
        first = kvr_queue_first(&q, shared, &key);
        util_check(admit(&q, first, 2000) == KVR_OK, "admitted");
        given[first >= item[2] ? 2 : first >= item[1] ? 1 : 0] += first->work;
    }

    sum = given[0] + given[1] + given[2];

    util_check(given[2] > 0.16 * sum && given[2] < 0.24 * sum,
               "%.3f of the work, not a fifth", (double) given[2] / sum);
}


TEST(test_queue_arrivals)
{
    int                none;
    kvr_queue_t        q = { 0 };
    kvr_queue_item_t   a, b, c;

    none = 0;

    kvr_queue_item(&a, 1000, 3, 0, 1, 5000, 0);

    util_check(kvr_queue_admit(shared, 0, &q, &a, 1000, room, &none)
               == KVR_DECLINED, "no room");
    util_check(admit(&q, &a, 1000) == KVR_OK, "room, and none waits");

    kvr_queue_item(&a, 1000, 3, 0, 1, 5000, 0);
    kvr_queue_insert(&q, shared, &a);
    kvr_queue_publish(shared, 0, &q, 1000);

    util_check(kvr_queue_depth(shared, 7, 1000) == 1, "depth");
    util_check(kvr_queue_depth(shared, 2, 1000) == 0, "depth above");
    util_check(kvr_queue_depth(shared, 7, 1001 + KVR_QUEUE_STALE) == 0, "old");

    /*
     * no request of the same class passes it, one of a more urgent class does
     */

    kvr_queue_item(&b, 1001, 3, 0, 1, 5000, 0);
    util_check(admit(&q, &b, 1001) == KVR_DECLINED, "passed");

    kvr_queue_item(&c, 1001, 2, 0, 1, 500000, 0);
    util_check(admit(&q, &c, 1001) == KVR_OK, "a more urgent class");

    util_check(kvr_queue_last(&q, 3) == NULL, "no item of a less urgent class");
    util_check(kvr_queue_last(&q, 2) == &a, "to be shed");

    /* the same seen from another process */

    kvr_queue_remove(&q, &a);
    shared->row[1].seen = 1001;
    shared->row[1].depth[3] = 1;
    shared->row[1].key[3] = 1;
    shared->rows = 2;

    util_check(admit(&q, &b, 1001) == KVR_DECLINED, "passed another's");

    util_check(admit(&q, &b, 1002 + KVR_QUEUE_STALE) == KVR_OK,
               "blocked by a process that has ended");
}


/*
 * A tenant returns after any amount of work by others, and waits only for its
 * turn.  Turns of 32 bits would make it wait long.
 */
TEST(test_queue_comes_back)
{
    unsigned           i;
    kvr_queue_t        q = { 0 };
    kvr_queue_key_t    key;
    kvr_queue_item_t   a, b;

    kvr_queue_item(&a, 1000, 3, 1, 1, 1000, 0);
    util_check(admit(&q, &a, 1000) == KVR_OK, "once");

    for (i = 0; i < 40; i++) {
        kvr_queue_item(&b, 1000, 3, 2, 1, UINT64_MAX, 0);
        util_check(admit(&q, &b, 1000) == KVR_OK, "work");

        kvr_queue_item(&a, 1000, 3, 1, 1, 1000, 0);
        kvr_queue_item(&b, 1000, 3, 2, 1, 1000, 0);
        kvr_queue_insert(&q, shared, &a);
        kvr_queue_insert(&q, shared, &b);

        util_check(kvr_queue_first(&q, shared, &key) == &a, "after %u", i);

        kvr_queue_remove(&q, &a);
        kvr_queue_remove(&q, &b);
    }
}


/* admissions in bursts or one by one, and after a pause */
TEST(test_queue_retry_after)
{
    unsigned           i;
    uint32_t           s, pause;
    kvr_queue_t        q = { 0 };
    kvr_queue_item_t   item, waiting[200];

    /* ten a second, in bursts of five */

    for (i = 0; i < 600; i++) {
        kvr_queue_item(&item, 1000 + i / 5 * 500, 3, 0, 1, 0, 0);
        util_check(admit(&q, &item, 1000 + i / 5 * 500) == KVR_OK, "in");
    }

    for (i = 0; i < 200; i++) {
        kvr_queue_item(&waiting[i], 61000, 3, 0, 1, 0, 0);
        kvr_queue_insert(&q, shared, &waiting[i]);
    }

    kvr_queue_publish(shared, 0, &q, 61000);
    s = kvr_queue_retry_after(shared, 61000);

    util_check(s >= 16 && s <= 24, "%u s for 200 at 10/s", s);

    kvr_queue_publish(shared, 0, &q, 71000);
    pause = kvr_queue_retry_after(shared, 71000);

    util_check(pause > s, "%u s after a pause", pause);

    util_check(kvr_queue_rate(shared, 71000) * 2
               <= kvr_queue_rate(shared, 61000) + 500, "the rate fades");
}


/*
 * Room for ROOM requests at a time, each for a short while; processes come and
 * are killed.  There must never be more requests inside.
 */

typedef struct {
    _Atomic int        inside[PROCESSES * 8];  /* by life of a process */
    _Atomic uint64_t   let;
    _Atomic int        lives;
} tally_t;

typedef struct {
    tally_t           *t;
    int                generation;
} generation_t;


static int
shared_room(void *data, kvr_queue_item_t *item)
{
    int      i, sum;
    generation_t  *l = data;

    if (item == NULL) {
        l->t->inside[l->generation]--;
        return 1;
    }

    sum = 0;

    for (i = 0; i < PROCESSES * 8; i++) {
        sum += l->t->inside[i];
    }

    if (sum >= ROOM) {
        return 0;
    }

    l->t->inside[l->generation]++;

    return 1;
}


static uint64_t
clock_ms(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


static void
worker(tally_t *t, int generation, unsigned row)
{
    int                i, in;
    generation_t       l;
    util_rng_t         r;
    kvr_queue_t        q = { 0 };
    kvr_queue_key_t    key;
    kvr_queue_item_t   item[64], *first;

    util_seed(&r, "queue worker", generation);

    l.t = t;
    l.generation = generation;
    in = 0;

    for (i = 0; i < 64; i++) {
        item[i].waiting = 0;
    }

    for ( ;; ) {
        i = util_below(&r, 64);

        if (!item[i].waiting) {
            kvr_queue_item(&item[i], clock_ms(), util_below(&r, 8),
                           (uint8_t) util_below(&r, 4), 1,
                           util_below(&r, 10000), 0);
            kvr_queue_insert(&q, shared, &item[i]);
        }

        kvr_queue_publish(shared, row, &q, clock_ms());

        first = kvr_queue_first(&q, shared, &key);

        if (first
            && kvr_queue_admit(shared, row, &q, first, clock_ms(), shared_room,
                               &l)
               == KVR_OK)
        {
            in++;
            t->let++;
        }

        if (in && util_below(&r, 2)) {
            t->inside[generation]--;
            in--;
        }
    }
}


TEST(test_queue_processes)
{
    int        i, k, generation, sum, max;
    pid_t      pid[PROCESSES];
    tally_t   *t;
    uint64_t   let, rounds;

    t = mmap(NULL, sizeof(tally_t), PROT_READ|PROT_WRITE,
             MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    util_check(t != MAP_FAILED, "mmap: %d", errno);

    generation = 0;
    let = 0;
    max = 0;

    for (i = 0; i < PROCESSES; i++) {
        pid[i] = fork();

        if (pid[i] == 0) {
            worker(t, generation, i);
        }

        generation++;
    }

    for (k = 0; k < 12; k++) {

        let = t->let;

        for (rounds = 0; t->let < let + 200; rounds++) {

            for (i = sum = 0; i < PROCESSES * 8; i++) {
                sum += t->inside[i];
            }

        /*
         * concurrent processes can each reserve one place too many, until they
         * find that another one was first
         */

            max = sum > max ? sum : max;
            sched_yield();
        }

        i = k % PROCESSES;

        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);

        /* as a sweep does */

        t->inside[i + PROCESSES * (k / PROCESSES)] = 0;

        pid[i] = fork();

        if (pid[i] == 0) {
            worker(t, i + PROCESSES * (k / PROCESSES + 1), i);
        }
    }

    for (i = 0; i < PROCESSES; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }

    util_check(max <= ROOM + PROCESSES - 1, "%d admitted", max);

    munmap(t, sizeof(tally_t));
}


/* requests that can pass the first one, admitted at its place */
TEST(test_queue_near)
{
    int               left;
    unsigned          i, k, n, late;
    uint64_t          now;
    util_rng_t        r;
    kvr_queue_t       q = { 0 };
    kvr_queue_key_t   key;
    kvr_queue_item_t  item[ITEMS], *first, *near[KVR_QUEUE_NEAR];

    util_seed(&r, "near", 0);

    for (i = 0; i < ITEMS; i++) {
        kvr_queue_item(&item[i], 1000 + util_below(&r, 20000), 3, 0, 1,
                       util_below(&r, 100000), 0);
        kvr_queue_insert(&q, shared, &item[i]);
    }

    now = 30000;
    late = 0;

    for (k = 0; k < ITEMS; k++) {
        first = kvr_queue_first(&q, shared, &key);
        n = kvr_queue_near(first, now, near, KVR_QUEUE_NEAR);

        util_check(n >= 1 && n <= KVR_QUEUE_NEAR, "%u of them", n);
        util_check(near[0] == first, "the first is not first");

        for (i = 1; i < n; i++) {
            util_check(near[i]->waiting, "an item that does not wait");
            util_check((int32_t) (near[i]->due - near[i - 1]->due) >= 0,
                       "items out of order");
            util_check(near[i]->due - first->due
                       < KVR_QUEUE_PASS + (now - first->arrival) / 2,
                       "due %u ms after it", near[i]->due - first->due);
        }

        late += n > 1;
        left = 1;

        util_check(kvr_queue_admit(shared, 0, &q, near[n - 1], now, room, &left)
                   == KVR_OK, "admitted");
        util_check(!near[n - 1]->waiting, "the last item was removed");
    }

    util_check(q.n == 0, "%u left", q.n);
    util_check(late > ITEMS / 2, "%u could have been passed", late);

    /* another process's request is earlier: it does not replace the first */

    kvr_queue_item(&item[0], 1000, 3, 0, 1, 0, 0);
    kvr_queue_item(&item[1], 1500, 3, 0, 1, 0, 0);
    kvr_queue_insert(&q, shared, &item[0]);
    kvr_queue_insert(&q, shared, &item[1]);

    first = kvr_queue_first(&q, shared, &key);
    util_check(first == &item[0], "the first of two");

    kvr_set(&shared->rows, 2);
    kvr_set(&shared->row[1].seen, now);
    kvr_set(&shared->row[1].key[3], (key & ~0xffffffffULL) | 1200);
    kvr_set(&shared->row[1].depth[3], 1);
    left = 1;

    util_check(kvr_queue_admit(shared, 0, &q, &item[1], now, room, &left)
               == KVR_OK, "the first is before the other");
    util_check(kvr_queue_admit(shared, 0, &q, &item[0], now, room, &left)
               == KVR_DECLINED, "no room");

    left = 1;
    kvr_queue_remove(&q, &item[0]);
    kvr_queue_item(&item[1], 1500, 3, 0, 1, 0, 0);
    kvr_queue_insert(&q, shared, &item[1]);

    (void) kvr_queue_first(&q, shared, &key);
    kvr_set(&shared->row[1].key[3], (key & ~0xffffffffULL) | 1200);

    util_check(kvr_queue_admit(shared, 0, &q, &item[1], now, room, &left)
               == KVR_DECLINED, "the other's is before it");
    kvr_queue_remove(&q, &item[1]);
}


suite_around(setup, teardown);
