
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_late: about one of a hundred first tokens is later than the limit. The
 * credit bounds the requests that are sent twice, and none is if most other
 * peers are busy.
 */


#include "util.h"
#include "util_zone.h"
#include "core/continue/kvr_late.h"


#define BYTES  100000
#define SHOULD 1016      /* expected ms for these, with the noise */
#define PEERS  8


static kvr_late_t     late;
static kvr_prefill_t  prefill;


static void
setup(void)
{
    memset((void *) &late, 0, sizeof(late));
    memset((void *) &prefill, 0, sizeof(prefill));

    kvr_set(&prefill.rate, BYTES / 1000 * KVR_PREFILL_RATE);
}


static uint64_t
after(uint64_t bytes)
{
    return kvr_late_after(&late, &prefill, bytes, 1);
}


/* 98 of 100 take up to twice the expected time, two up to ten times that */

TEST_LOOP(test_p99, 4)
{
    int         k, n;
    unsigned    x;
    uint64_t    ms;
    util_rng_t  rng;

    util_seed(&rng, "late", (uint64_t) loop);

    for (k = 0, n = 0; k < 40000; k++) {
        x = util_below(&rng, 10000);
        ms = SHOULD * (x < 9800 ? 10000 + x : 20000 + 400 * (x - 9800)) / 10000;

        n += (k >= 20000 && ms > after(BYTES));

        kvr_late_seen(&late, ms > after(BYTES));
    }

    util_check(n > 100 && n < 320, "%d of 20000 are late", n);
    util_check(after(BYTES) > 4 * SHOULD && after(BYTES) < 10 * SHOULD,
               "%lu", (unsigned long) after(BYTES));
    util_check(after(2 * BYTES) > 19 * after(BYTES) / 10, "twice the bytes");
}


TEST(test_bounds)
{
    int  k;

    for (k = 0; k < 10000; k++) {
        kvr_late_seen(&late, 0);
    }

    util_check(after(BYTES) == 2 * SHOULD, "at least twice the expected time");

    for (k = 0; k < 10000; k++) {
        kvr_late_seen(&late, 1);
    }

    util_check(after(BYTES) == 64 * SHOULD, "the factor has a limit");

    /* an unknown rate */

    kvr_set(&prefill.rate, 0);
    util_check(after(BYTES) == 0, "nothing is known");

    for (k = 0; k < 200; k++) {
        kvr_late_first(&late, k & 1 ? 120 : 80);
    }

    util_check(after(BYTES) > 64 * 110 && after(BYTES) < 64 * 122, "the mean");
}


TEST(test_credit)
{
    int  k, n;

    util_check(!kvr_late_spend(&late), "no credit at first");

    for (k = 0, n = 0; k < 10000; k++) {
        kvr_late_earn(&late, 2);
        n += kvr_late_spend(&late);
    }

    util_check(n == 200, "%d", n);

    for (k = 0; k < 10000; k++) {
        kvr_late_earn(&late, 2);
    }

    for (n = 0; kvr_late_spend(&late); n++) { /* void */ }

    util_check(n == KVR_LATE_SAVED, "%d were saved", n);
}


/* Drains, throttles or fails four peers, or undoes that. */
static void
spare(kvr_zone_t *z, const uint32_t *id, uint32_t way, int on)
{
    uint32_t     i;
    kvr_peer_t  *peer;

    for (i = 0; i < 4; i++) {
        peer = &z->registry->peer[id[i]];

        switch (way) {

        case 0:
            if (on) {
                kvr_drain_begin(&peer->drain, 0, 1000);

            } else {
                kvr_drain_end(&peer->drain);
            }

            break;

        case 1:
            kvr_set(&peer->engine.pressure, on ? 2000 : 0);
            break;

        default:
            kvr_set(&peer->engine.health,
                    on ? KVR_HEALTH_DOWN : KVR_HEALTH_UP);
        }
    }
}


TEST(test_room)
{
    char               name[8];
    uint32_t           i, way, id[PEERS];
    kvr_pool_t         pool;
    kvr_zone_t         z;
    kvr_reservation_t  r;

    memset(&z, 0, sizeof(z));
    memset(&pool, 0, sizeof(pool));

    pool.max_waiting = -1;

    util_zone(&z, PEERS, 256);

    for (i = 0; i < PEERS; i++) {
        snprintf(name, sizeof(name), "a:%u", i);
        id[i] = kvr_registry_peer(z.registry, z.load, z.row, z.index, name, 3,
                                  1000);
        kvr_set(&z.registry->peer[id[i]].prefill.rate, 100 * KVR_PREFILL_RATE);
    }

    util_check(!kvr_late_room(&z, &pool, id[0], 1000), "no peers");

    pool.set = kvr_set_of(id[0]);
    util_check(!kvr_late_room(&z, &pool, id[0], 1000), "no others");

    for (i = 1; i < PEERS; i++) {
        kvr_set_add(&pool.set, id[i]);
    }

    /* four of seven other peers are avoided, for each reason */

    pool.health = 1;

    for (way = 0; way < 3; way++) {
        spare(&z, &id[1], way, 1);
        util_check(!kvr_late_room(&z, &pool, id[0], 1000), "spared, %u", way);

        spare(&z, &id[1], way, 0);
        util_check(kvr_late_room(&z, &pool, id[0], 1000),
                   "room again, %u", way);
    }

    /* or busy */

    for (i = 1; i < 5; i++) {
        util_check(kvr_late_room(&z, &pool, id[0], 1000), "%u are busy", i - 1);

        memset(&r, 0, sizeof(r));
        r.peer = id[i];
        r.member = kvr_registry_member(z.registry, z.load, z.row, id[i], "u",
                                       1);
        r.pending = 200 * KVR_LATE_ROOM;
        r.unanswered = 1;
        kvr_reservation_take(&z, &r);
    }

    util_check(!kvr_late_room(&z, &pool, id[0], 1000), "most are busy");

    util_zone_free(&z);
}


suite_around(setup, NULL);
