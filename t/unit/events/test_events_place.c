
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_events_place: who keeps a place, and who gives way. */


#include "util.h"
#include "core/events/kvr_events_place.h"


static kvr_events_places_t  p;


/* a key of the same bucket */
static uint64_t
key(uint64_t n)
{
    return n << 32;
}


TEST(test_events_place_gives_way)
{
    uint64_t  n;

    memset((void *) &p, 0, sizeof(p));

    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), KVR_EVENTS_NOWHERE);

    /* a system prompt, from which several go on */

    kvr_events_place_keep(&p, key(1), 100, 0);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), 100);

    /* ends of others come and go, and it stays */

    for (n = 2; n < 20; n++) {
        kvr_events_place_keep(&p, key(n), n, 1);

        ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), 100);
    }

    ck_assert_uint_eq(kvr_events_place_find(&p, key(17)), KVR_EVENTS_NOWHERE);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(18)), 18);

    /* one has gone on from 18: it makes room, and both others stay */

    kvr_events_place_keep(&p, key(20), 20, 1);
    kvr_events_place_keep(&p, key(21), 21, 0);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(19)), 19);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(20)), 20);

    /* what is no end takes no end's place */

    memset((void *) &p, 0, sizeof(p));

    for (n = 1; n < 100; n++) {
        kvr_events_place_keep(&p, key(n), n, n <= 2);
    }

    for (n = 1; n <= 2; n++) {
        ck_assert_uint_eq(kvr_events_place_find(&p, key(n)), n);
    }
}


/* where several go on from all of them, one goes in the end */
TEST(test_events_place_forks)
{
    uint64_t  n;

    memset((void *) &p, 0, sizeof(p));

    for (n = 1; n <= 4; n++) {
        kvr_events_place_keep(&p, key(n), n, 1);
        ck_assert_uint_eq(kvr_events_place_find(&p, key(n)), n);
        ck_assert_uint_eq(kvr_events_place_find(&p, key(n)), n);
    }

    for (n = 5; n < 16; n++) {
        kvr_events_place_keep(&p, key(n), n, 0);
        ck_assert_uint_eq(kvr_events_place_find(&p, key(n)),
                          KVR_EVENTS_NOWHERE);
    }

    kvr_events_place_keep(&p, key(16), 16, 0);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(16)), 16);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), KVR_EVENTS_NOWHERE);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(4)), 4);
}


TEST(test_events_place_depths)
{
    memset((void *) &p, 0, sizeof(p));

    kvr_events_place_keep(&p, key(1), 0, 1);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), KVR_EVENTS_NOWHERE);

    kvr_events_place_keep(&p, key(1), 1ULL << 30, 1);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), KVR_EVENTS_NOWHERE);

    kvr_events_place_keep(&p, key(1), (1ULL << 30) - 1, 1);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), (1U << 30) - 1);

    /* kept once only, and as it was */

    kvr_events_place_keep(&p, key(1), 7, 1);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), (1U << 30) - 1);
}
