
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_retention: correct and wrong conclusions about a cache's size */


#include "util.h"
#include "core/learn/kvr_retention.h"


static kvr_retention_t  h;


static void
fresh(void)
{
    memset((void *) &h, 0, sizeof(h));
}


static void
note(uint32_t age, int delivered, uint32_t times)
{
    while (times--) {
        kvr_retention_note(&h, age, delivered);
    }
}


TEST(test_horizon_little)
{
    fresh();
    util_check(kvr_retention_get(&h) == 0, "nothing seen");

    note(1000, 1, 50);
    util_check(kvr_retention_get(&h) == 0, "nothing lost");

    note(50000, 0, KVR_RETENTION_ENOUGH - 1);
    util_check(kvr_retention_get(&h) == 0, "may be chance");

    note(50000, 0, 1);
    util_check(kvr_retention_get(&h) > 1000 && kvr_retention_get(&h) <= 50000,
               "%u", kvr_retention_get(&h));
}


/* an engine that always reports 0, or whose template changes the text */
TEST(test_horizon_zeros)
{
    uint32_t    i;
    util_rng_t  r;

    fresh();
    util_seed(&r, "horizon zeros", 0);

    for (i = 0; i < 10000; i++) {
        note(util_below(&r, 1 << 24), 0, 1);
    }

    util_check(kvr_retention_get(&h) == 0, "%u", kvr_retention_get(&h));
}


/* an LRU cache, requests of any age, and some wrong reports */
TEST(test_horizon_finds)
{
    uint32_t    i, k, age, size, got;
    util_rng_t  r;

    for (i = 0; i < util_cases(2000); i++) {

        util_seed(&r, "horizon finds", i);
        fresh();

        size = 400 + util_below(&r, 1U << (9 + util_below(&r, 15)));

        for (k = 0; k < 600; k++) {
            age = util_below(&r, 4 * size);
            note(age, util_below(&r, 10) == 0 ? (int) util_below(&r, 2)
                                              : age < size, 1);
        }

        got = kvr_retention_get(&h);

        /* a class covers a quarter of a doubling */

        util_check(got >= size * 0.8 && got <= size * 1.3, "%u of %u", got,
                   size);
    }
}


/* a cache that becomes larger or smaller */
TEST(test_horizon_changes)
{
    uint32_t  i, got;

    fresh();

    for (i = 0; i < 100; i++) {
        note(1000, 1, 1);
        note(5000, 0, 1);
    }

    got = kvr_retention_get(&h);
    util_check(got > 1000 && got <= 5000, "%u", got);

    /* older blocks are still used sometimes, and are found */

    for (i = 0; i < 100; i++) {
        note(5000, 1, 1);
        note(20000, 0, 1);
    }

    got = kvr_retention_get(&h);
    util_check(got > 5000 && got <= 20000, "%u", got);

    for (i = 0; i < 200; i++) {
        note(1000, 0, 1);
        note(300, 1, 1);
        note(5000, 0, 1);
    }

    got = kvr_retention_get(&h);
    util_check(got > 300 && got <= 1000, "%u", got);
}


/* a restart: all blocks are lost once, of any age */
TEST(test_horizon_restart)
{
    uint32_t  i, got;

    fresh();

    for (i = 0; i < 60; i++) {
        note(100 * (1 + i % 30), 1, 1);
    }

    note(800, 0, 3);
    note(1500, 0, 2);
    note(2800, 0, 3);

    got = kvr_retention_get(&h);
    util_check(got == 0 || got > 2000, "%u", got);
}


/* all ages have a class, in order, and no counter overflows */
TEST(test_horizon_edges)
{
    uint32_t  age, got, last;

    fresh();
    note(0, 1, 100000);
    note(UINT32_MAX, 0, 100000);
    util_check(kvr_retention_get(&h) > 0, "%u", kvr_retention_get(&h));

    last = 0;

    for (age = 1; age < 1U << 26; age += age / 7 + 1) {
        fresh();
        note(age, 1, 2);
        note(UINT32_MAX, 0, 100);

        got = kvr_retention_get(&h);
        util_check(got > age && got >= last, "%u of %u", got, age);
        last = got;
    }
}


/* equal peers learn from each other, and a different one does not */
TEST(test_horizon_among)
{
    uint32_t         i, k;
    kvr_retention_t  peer[3];
    kvr_retention_sum_t  sum = { 0 }, none = { 0 };

    memset((void *) peer, 0, sizeof(peer));

    /* too few for one peer, but enough for all together */

    for (i = 0; i < 3; i++) {
        for (k = 0; k < 10; k++) {
            kvr_retention_note(&peer[i], 1000, 1);
        }

        kvr_retention_note(&peer[i], 5000, 0);
        kvr_retention_note(&peer[i], 5000, 0);
        kvr_retention_note(&peer[i], 7000, 0);
        util_check(kvr_retention_get(&peer[i]) == 0, "alone");

        kvr_retention_add(&sum, &peer[i]);
    }

    for (i = 0; i < 3; i++) {
        k = kvr_retention_among(&peer[i], &sum);
        util_check(k > 1000 && k <= 5000, "%u", k);
    }

    /* a new peer; no reports at all */

    fresh();
    util_check(kvr_retention_among(&h, &sum) == kvr_retention_all(&sum), "new");
    util_check(kvr_retention_among(&peer[0], &none) == 0, "no reports");

    /* a larger one: it had older blocks, and lost none */

    note(6000, 1, 4);
    kvr_retention_add(&sum, &h);
    k = kvr_retention_all(&sum);
    util_check(k > 1000 && k <= 5000, "%u", k);
    util_check(kvr_retention_among(&h, &sum) == 0, "larger");

    /* a smaller one */

    fresh();
    note(300, 1, 3);
    note(600, 0, 5);
    kvr_retention_add(&sum, &h);
    util_check(kvr_retention_all(&sum) > 1000, "%u", kvr_retention_all(&sum));
    k = kvr_retention_among(&h, &sum);
    util_check(k > 300 && k <= 600, "%u", k);

    /* 64 of them at most, each full */

    memset(&sum, 0, sizeof(sum));
    memset(&none, 0, sizeof(none));
    fresh();

    for (i = 0; i < 1000; i++) {
        note(1000, 1, 1);
        note(9000, 0, 1);
    }

    for (i = 0; i < 64; i++) {
        kvr_retention_add(&sum, &h);
    }

    util_check(kvr_retention_all(&sum) == kvr_retention_get(&h), "%u",
               kvr_retention_all(&sum));
}
