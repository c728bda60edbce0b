
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is a list of operations of two processes on a queue: requests of
 * any class, tenant, weight, size and deadline arrive, are admitted, leave, or
 * are displaced.  After each step the shared counts must be right, and no
 * request of a process may precede its first one.
 */


#include "util.h"
#include "core/queue/kvr_queue.h"


#define PROCESSES  2
#define ITEMS      64
#define LONGEST    100              /* input that is used */


typedef struct {
    kvr_queue_t        queue;
    kvr_queue_item_t   item[ITEMS];
} process_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static int
room(void *data, kvr_queue_item_t *item)
{
    int  *left = data;

    if (item == NULL) {
        (*left)++;
        return 0;
    }

    if (*left == 0) {
        return 0;
    }

    (*left)--;

    return 1;
}


/* numbers from the input; 0 when it is over */
static uint32_t
take(const uint8_t **p, const uint8_t *end, unsigned bytes)
{
    uint32_t  n;

    for (n = 0; bytes; bytes--) {
        n = n << 8 | (*p < end ? *(*p)++ : 0);
    }

    return n;
}


/* Counts the waiting requests of a process one by one. */
static void
check_first(process_t *pr, kvr_queue_shared_t *shared)
{
    unsigned           i, n;
    uint64_t           bytes;
    kvr_queue_key_t    key;
    kvr_queue_item_t  *first, *item;

    key = 0;
    first = kvr_queue_first(&pr->queue, shared, &key);
    bytes = 0;

    for (i = 0, n = 0; i < ITEMS; i++) {
        item = &pr->item[i];

        if (!item->waiting) {
            continue;
        }

        n++;
        bytes += item->bytes;

        util_check(first != NULL, "there is no first of %u", n);
        util_check(item->class >= first->class, "class %u comes before %u",
                   item->class, first->class);
        util_check(item->class != first->class || item->tenant != first->tenant
                   || (int32_t) (item->due - first->due) >= 0,
                   "due %u comes before %u", item->due, first->due);
    }

    util_check(pr->queue.n == n && pr->queue.bytes == bytes,
               "%u wait, %u are counted", n, pr->queue.n);
    util_check(n || first == NULL, "a first request of an empty queue");
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int                left;
    uint32_t           op, n, k;
    uint64_t           now;
    unsigned           i;
    process_t         *pr;
    const uint8_t     *end;
    kvr_queue_item_t  *item, *near[KVR_QUEUE_NEAR];

    static kvr_queue_shared_t  shared;
    static process_t          process[PROCESSES];

    /* unused rows are unchanged */

    memset(&shared, 0, offsetof(kvr_queue_shared_t, row[PROCESSES]));
    memset(process, 0, sizeof(process));

    end = data + kvr_min(size, LONGEST);
    now = (uint64_t) UINT32_MAX - 5000;     /* times wrap on the way */

    while (data < end) {
        op = take(&data, end, 1);
        pr = &process[op & 1];
        item = &pr->item[op >> 1 & (ITEMS - 1)];

        switch (op >> 1 & 7) {

        case 0:
        case 1:
        case 2:
            item = &pr->item[take(&data, end, 1) % ITEMS];

            if (item->waiting) {
                break;
            }

            n = take(&data, end, 2);
            kvr_queue_item(item, now, n >> 12,
                           kvr_queue_tenant(&shared, 1 + (n >> 4 & 255), now),
                           n & 15, take(&data, end, 3),
                           n & 1024 ? take(&data, end, 4) : 0);
            item->bytes = n & 4095;
            kvr_queue_insert(&pr->queue, &shared, item);
            break;

        case 3:
            item = &pr->item[take(&data, end, 1) % ITEMS];

            if (item->waiting) {
                kvr_queue_remove(&pr->queue, item);
            }

            break;

        case 4:
            now += take(&data, end, 1) * 8;
            break;

        case 5:
            n = take(&data, end, 1) % KVR_QUEUE_CLASSES;
            item = kvr_queue_last(&pr->queue, n);

            if (item) {
                util_check(item->waiting && item->class > n,
                           "class %u is displaced for %u", item->class, n);
                kvr_queue_remove(&pr->queue, item);

            } else if (kvr_queue_want(&shared, n, now) == KVR_OK) {
                util_check(kvr_queue_take(&shared, n) == KVR_OK
                           || n < KVR_QUEUE_CLASSES,
                           "a request for room is lost");
            }

            break;

        case 6:
            item = kvr_queue_first(&pr->queue, &shared,
                                   &(kvr_queue_key_t) { 0 });

            if (item) {
                k = kvr_queue_near(item, now, near, KVR_QUEUE_NEAR);
                util_check(k >= 1 && k <= KVR_QUEUE_NEAR, "%u are near", k);

                for (i = 0; i < k; i++) {
                    util_check(near[i]->waiting
                               && near[i]->class == item->class
                               && near[i]->tenant == item->tenant,
                               "a wrong request is near");
                }

                (void) kvr_queue_rival(&pr->queue, item);
                (void) kvr_queue_may_wait(item, now, take(&data, end, 1));
            }

            break;

        default:
            left = (int) (take(&data, end, 1) % 3);
            item = kvr_queue_first(&pr->queue, &shared,
                                   &(kvr_queue_key_t) { 0 });

            if (item
                && kvr_queue_admit(&shared, op & 1, &pr->queue, item, now, room,
                                   &left)
                   == KVR_OK)
            {
                util_check(!item->waiting, "it is admitted and waits");
            }

            util_check(left >= 0 && left < 3, "room for %d", left);
        }

        check_first(pr, &shared);

        for (i = 0; i < PROCESSES; i++) {
            if (pr == &process[i] || (op >> 1 & 7) == 4) {
                kvr_queue_publish(&shared, i, &process[i].queue, now);
            }
        }

        n = kvr_queue_depth(&shared, KVR_QUEUE_CLASSES - 1, now);
        util_check(n == process[0].queue.n + process[1].queue.n,
                   "%u wait by the shared counts", n);

        n = kvr_queue_retry_after(&shared, now);
        util_check(n >= 1, "Retry-After %u", n);
        (void) kvr_queue_long(&shared, 4, now);
    }

    return 0;
}


#include "main.h"
