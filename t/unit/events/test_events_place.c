
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_events_place: the last blocks of known depth. */


#include "util.h"
#include "core/events/kvr_events_place.h"


static kvr_events_places_t  p;


/* a key of the same bucket */
static uint64_t
key(uint64_t n)
{
    return n << 32;
}


TEST(test_events_place_last)
{
    uint64_t  n;

    memset((void *) &p, 0, sizeof(p));

    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), KVR_EVENTS_NOWHERE);

    for (n = 1; n < 20; n++) {
        kvr_events_place_keep(&p, key(n), 100 + n);
    }

    for (n = 1; n < 20; n++) {
        ck_assert_uint_eq(kvr_events_place_find(&p, key(n)),
                          n < 16 ? KVR_EVENTS_NOWHERE : 100 + n);
    }

    /* an existing one stays where it is */

    kvr_events_place_keep(&p, key(16), 116);
    kvr_events_place_keep(&p, key(20), 120);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(16)), KVR_EVENTS_NOWHERE);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(17)), 117);

    /* another bucket */

    ck_assert_uint_eq(kvr_events_place_find(&p, key(17) + 1),
                      KVR_EVENTS_NOWHERE);
}


TEST(test_events_place_depths)
{
    memset((void *) &p, 0, sizeof(p));

    kvr_events_place_keep(&p, key(1), 0);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), KVR_EVENTS_NOWHERE);

    kvr_events_place_keep(&p, key(1), UINT32_MAX);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), KVR_EVENTS_NOWHERE);

    kvr_events_place_keep(&p, key(1), UINT32_MAX - 1ULL);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), UINT32_MAX - 1);

    /* stored once only, and unchanged */

    kvr_events_place_keep(&p, key(1), 7);
    ck_assert_uint_eq(kvr_events_place_find(&p, key(1)), UINT32_MAX - 1);
}
