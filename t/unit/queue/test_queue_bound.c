
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_queue: how far a request can be passed, how long it can wait for a
 * better place, when the fleet is saturated, and what its tenant is charged.
 */


#include "util.h"
#include "core/queue/kvr_queue.h"


static kvr_queue_shared_t  *shared;


static void
setup(void)
{
    shared = aligned_alloc(KVR_CACHE_LINE, sizeof(kvr_queue_shared_t));
    util_check(shared != NULL, "no memory");
    memset((void *) shared, 0, sizeof(kvr_queue_shared_t));
}


static void
teardown(void)
{
    free(shared);
}


/* the limit for passing: it grows with the wait, up to a bound */
TEST(test_queue_bound)
{
    unsigned          i, n;
    uint64_t          now;
    kvr_queue_t       q = { 0 };
    kvr_queue_item_t  first, item[8], *near[KVR_QUEUE_NEAR];

    kvr_queue_item(&first, 1000, 3, 0, 1, 64000, 0);
    kvr_queue_insert(&q, shared, &first);

    util_check(kvr_queue_pass(&first, 1000) == 2000, "at first");
    util_check(kvr_queue_pass(&first, 11000) == 7000, "after 10 s");
    util_check(kvr_queue_pass(&first, 57000) == 30000, "after 56 s");
    util_check(kvr_queue_pass(&first, 3600000) == 30000, "after an hour");
    util_check(kvr_queue_pass(&first, 900) == 2000, "a clock behind");

    /* due from 26 to 33 s after it, an hour later */

    for (i = 0; i < 8; i++) {
        kvr_queue_item(&item[i], 28000 + 1000 * i, 3, 0, 1, 0, 0);
        kvr_queue_insert(&q, shared, &item[i]);
    }

    now = 3600000;
    n = kvr_queue_near(&first, now, near, KVR_QUEUE_NEAR);

    util_check(n == 5, "%u of them", n);

    for (i = 0; i < n; i++) {
        util_check(near[i]->due - first.due < KVR_QUEUE_PASS_MAX,
                   "due %u ms after it", near[i]->due - first.due);
    }
}


/* past the knee: at once with very many waiting, otherwise after a while */
TEST(test_queue_long)
{
    unsigned          i, n;
    uint64_t          now;
    kvr_queue_t       q = { 0 };
    kvr_queue_item_t  item[9];

    now = 1000;

    for (i = 0; i < 9; i++) {
        kvr_queue_item(&item[i], now, 3, 0, 1, 0, 0);
        kvr_queue_insert(&q, shared, &item[i]);
    }

    kvr_queue_publish(shared, 0, &q, now);
    util_check(!kvr_queue_long(shared, 9, now), "one request per peer");
    util_check(kvr_queue_long(shared, 2, now), "nine for two");

    for (n = 0; !kvr_queue_long(shared, 8, now); n++) {
        now += 100;
        kvr_queue_publish(shared, 0, &q, now);
        util_check(n < 600, "the queue is never long");
    }

    util_check(n > 150 && n < 300, "long after %u ms", 100 * n);

    /* a moment without waiting changes nothing, a minute does */

    util_check(!kvr_queue_long(shared, 9, now), "not long with nine peers");
    util_check(kvr_queue_long(shared, 8, now), "long with eight peers");

    for (i = 0; i < 600; i++) {
        now += 100;
        kvr_queue_publish(shared, 0, &q, now);
        (void) kvr_queue_long(shared, 9, now);
    }

    util_check(!kvr_queue_long(shared, 8, now), "anew");
}


TEST(test_queue_young)
{
    kvr_queue_item_t  item;

    kvr_queue_item(&item, 1000, 3, 0, 1, 64 * 500, 60000);

    util_check(kvr_queue_may_wait(&item, 1000, 0), "at first");
    util_check(kvr_queue_may_wait(&item, 1999, 0), "for a second");
    util_check(!kvr_queue_may_wait(&item, 2000, 0), "no longer");

    /* for a place that computes 128 bytes a ms it waits half as long */

    util_check(kvr_queue_may_wait(&item, 1499, 128), "half a second");
    util_check(!kvr_queue_may_wait(&item, 1500, 128),
               "at a fast one no longer");

    /* for a slow one it does not wait longer */

    util_check(kvr_queue_may_wait(&item, 1999, 1), "at a slow one");
    util_check(!kvr_queue_may_wait(&item, 2000, 1), "at a slow one no longer");

    kvr_queue_item(&item, 1000, 3, 0, 1, 0, 0);
    util_check(!kvr_queue_may_wait(&item, 1000, 0), "with no work not at all");
}


/* the cached parts of a tenant's prompts are lost by admission */
static int
room(void *data, kvr_queue_item_t *item)
{
    (void) data;

    if (item) {
        item->charge = item->work * (item->tenant ? 1 : 2);
    }

    return 1;
}


TEST(test_queue_charge)
{
    unsigned           i, given[2] = { 0 };
    kvr_queue_t        q = { 0 };
    kvr_queue_key_t    key;
    kvr_queue_item_t   item[400], *first;

    for (i = 0; i < 400; i++) {
        kvr_queue_item(&item[i], 1000, 3, i % 2, 1, 64000, 0);
        kvr_queue_insert(&q, shared, &item[i]);
    }

    for (i = 0; i < 200; i++) {
        first = kvr_queue_first(&q, shared, &key);
        given[first->tenant]++;

        util_check(kvr_queue_admit(shared, 0, &q, first, 2000, room, NULL)
                   == KVR_OK, "admitted");
    }

    util_check(given[0] >= 66 && given[0] <= 68,
               "%u and %u, not one to two", given[0], given[1]);
}


suite_around(setup, teardown);
