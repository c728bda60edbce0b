
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_index_turnover: how soon a peer computes its capacity again */


#include "util.h"
#include "core/index/kvr_index.h"

#include <math.h>
#include <stdlib.h>


#define LINES     4096
#define CAPACITY  6000               /* units */
#define START     (16777200ULL << 10)  /* the seconds wrap soon */


static kvr_index_t  *ix;
static uint64_t      chain[100];


static void
setup(void)
{
    ix = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(LINES, KVR_PEERS_FEW));
    memset((void *) ix, 0, kvr_index_size(LINES, KVR_PEERS_FEW));

    kvr_index_init(ix, LINES, KVR_PEERS_FEW);
    kvr_index_flush(ix, 3);
    kvr_index_capacity(ix, 3, CAPACITY, KVR_INDEX_ASSUMED);
}


static void
teardown(void)
{
    free((void *) ix);
}


/* computes this many units in each of these seconds, and reads in each */
static uint64_t
compute(unsigned seconds, unsigned units, uint64_t now)
{
    unsigned          i, k;
    kvr_index_undo_t  undo;

    for (i = 0; i < seconds; i++) {

        (void) kvr_index_turnover(ix, 3, now);

        for (k = 0; k < units; k++) {
            chain[k] = util_mix(now + i, k + 1);
        }

        if (units) {
            kvr_index_insert(ix, chain, units, units, 3, 0, &undo);
        }

        now += 1024;
    }

    return now;
}


static void
is_at(uint64_t now, double want, double by)
{
    double  have;

    have = kvr_index_turnover(ix, 3, now);

    util_check(fabs(have - want) <= by, "%.3f, not %.3f", have, want);
}


TEST(test_turnover_rate)
{
    uint64_t  now;

    is_at(START, 0, 0);

    /* 100 units a second: all in a minute, so half */

    now = compute(200, 100, START);
    is_at(now, 0.5, 0.02);

    /* within a second the value stays */

    kvr_index_capacity(ix, 3, CAPACITY / 10, KVR_INDEX_ASSUMED);
    is_at(now, 0.5, 0.02);
    is_at(now + 1024, 10 / 11.0, 0.02);
    kvr_index_capacity(ix, 3, CAPACITY, KVR_INDEX_ASSUMED);

    /* a tenth of the rate */

    now = compute(200, 10, now + 1024);
    is_at(now, 0.1 / 1.1, 0.02);

    /* no work, and no reads */

    is_at(now + 600 * 1024, 0, 0.03);
    now = compute(200, 0, now + 600 * 1024);
    is_at(now, 0, 0);
}


TEST(test_turnover_start)
{
    uint64_t  now;

    /* less than a minute: the rate so far */

    now = compute(30, 100, START);
    is_at(now, 0.5 / 1.5, 0.02);

    /* units from before a restart are not in the cache */

    kvr_index_flush(ix, 3);
    is_at(now + 1024, 0, 0);

    now = compute(15, 100, now + 1024);
    is_at(now, 0.25 / 1.25, 0.02);

    /* no such peer */

    util_check(kvr_index_turnover(ix, 4, now) == 0, "no capacity");
}


suite_around(setup, teardown);
