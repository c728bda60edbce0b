
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_drain: its end, when a server is empty, and the number of sessions left
 */


#include "util.h"
#include "core/health/kvr_drain.h"


#define NOW  (1000 * 60000ULL)


TEST(test_drain_states)
{
    kvr_drain_t  d;

    memset((void *) &d, 0, sizeof(d));

    ck_assert_int_eq(kvr_drain_state(&d, 0, NOW), KVR_DRAIN_NO);
    ck_assert(!kvr_drain_over(&d, NOW));

    kvr_drain_given(&d, NOW);

    /* without a timeout: empty after a while without requests */

    kvr_drain_begin(&d, 0, NOW);

    ck_assert_uint_eq(kvr_get(&d.requests), 0);
    ck_assert_int_eq(kvr_drain_state(&d, 0, NOW), KVR_DRAIN_ON);
    ck_assert_int_eq(kvr_drain_state(&d, 0, NOW + KVR_DRAIN_IDLE),
                     KVR_DRAIN_EMPTY);
    ck_assert_int_eq(kvr_drain_state(&d, 1, NOW + KVR_DRAIN_IDLE),
                     KVR_DRAIN_ON);
    ck_assert(!kvr_drain_over(&d, NOW + 1000 * KVR_DRAIN_IDLE));
    ck_assert_uint_eq(kvr_drain_left(&d, NOW), 0);

    kvr_drain_given(&d, NOW + 30000);

    ck_assert_uint_eq(kvr_get(&d.requests), 1);
    ck_assert_int_eq(kvr_drain_state(&d, 0, NOW + KVR_DRAIN_IDLE),
                     KVR_DRAIN_ON);
    ck_assert_int_eq(kvr_drain_state(&d, 0, NOW + 30000 + KVR_DRAIN_IDLE),
                     KVR_DRAIN_EMPTY);

    /* with a timeout: after it, if nothing runs; counts are kept */

    kvr_drain_begin(&d, 5000, NOW + 31000);

    ck_assert_uint_eq(kvr_get(&d.requests), 1);
    ck_assert_uint_eq(kvr_drain_left(&d, NOW + 32000), 4000);
    ck_assert(!kvr_drain_over(&d, NOW + 35999));
    ck_assert(kvr_drain_over(&d, NOW + 36000));
    ck_assert_uint_eq(kvr_drain_left(&d, NOW + 37000), 0);
    ck_assert_int_eq(kvr_drain_state(&d, 1, NOW + 36000), KVR_DRAIN_ON);
    ck_assert_int_eq(kvr_drain_state(&d, 0, NOW + 36000), KVR_DRAIN_EMPTY);

    /* reported once, and again if it had requests in between */

    ck_assert(!kvr_drain_report(&d, 1, NOW + 36000));
    ck_assert(kvr_drain_report(&d, 0, NOW + 36000));
    ck_assert(!kvr_drain_report(&d, 0, NOW + 37000));
    ck_assert(!kvr_drain_report(&d, 1, NOW + 38000));
    ck_assert(kvr_drain_report(&d, 0, NOW + 39000));

    ck_assert(kvr_drain_end(&d));
    ck_assert(!kvr_drain_end(&d));
    ck_assert(!kvr_drain_over(&d, NOW + 40000));
    ck_assert_int_eq(kvr_drain_state(&d, 0, NOW + 40000), KVR_DRAIN_NO);
    ck_assert(!kvr_drain_report(&d, 0, NOW + 40000));
}


TEST(test_drain_sessions)
{
    uint32_t     i, k, n, sum;
    util_rng_t   r;
    kvr_drain_t  d;

    static const uint32_t  counts[] = { 1, 2, 5, 10, 25, 50 };

    memset((void *) &d, 0, sizeof(d));

    ck_assert_uint_eq(kvr_drain_sessions(&d, NOW), 0);

    util_seed(&r, "drain sessions", 0);

    for (k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {

        sum = 0;

        for (i = 0; i < 200; i++) {
            memset((void *) &d, 0, sizeof(d));

            for (n = 0; n < counts[k]; n++) {
                uint64_t  key = util_next(&r);

    /* the same session counts once */

                kvr_drain_session(&d, key, NOW);
                kvr_drain_session(&d, key, NOW);
            }

            sum += kvr_drain_sessions(&d, NOW);
        }

        util_check(sum >= 200 * counts[k] * 0.93
                   && sum <= 200 * counts[k] * 1.07 + 20,
                   "%u sessions: %.2f on average", counts[k], sum / 200.0);
    }

    /* those of the previous minute count, older ones do not */

    memset((void *) &d, 0, sizeof(d));

    kvr_drain_session(&d, 1, NOW);
    kvr_drain_session(&d, 1, NOW + 60000);
    ck_assert_uint_eq(kvr_drain_sessions(&d, NOW + 119999), 1);
    ck_assert_uint_eq(kvr_drain_sessions(&d, NOW + 179999), 1);
    ck_assert_uint_eq(kvr_drain_sessions(&d, NOW + 180000), 0);

    for (i = 0; i < 100000; i++) {
        kvr_drain_session(&d, i, NOW + 200000);
    }

    ck_assert_uint_eq(kvr_drain_sessions(&d, NOW + 200000), 214);
}


/* streams are moved when sessions may move, one at a time */
TEST(test_drain_leaves)
{
    kvr_drain_t       d;
    _Atomic uint64_t  next;

    memset((void *) &d, 0, sizeof(kvr_drain_t));
    kvr_set(&next, 0);

    kvr_drain_begin(&d, 5000, NOW);
    ck_assert(!kvr_drain_leaves(&d, &next, NOW + 6000));

    kvr_drain_move(&d, 10);
    ck_assert(kvr_drain_moves(&d));
    ck_assert(!kvr_drain_leaves(&d, &next, NOW + 4000));

    ck_assert(kvr_drain_leaves(&d, &next, NOW + 5000));
    ck_assert(!kvr_drain_leaves(&d, &next, NOW + 5099));
    ck_assert(kvr_drain_leaves(&d, &next, NOW + 5100));

    /* another drain without it */

    kvr_drain_begin(&d, 5000, NOW);
    ck_assert(kvr_drain_on(&d) && !kvr_drain_moves(&d));

    kvr_drain_end(&d);
    ck_assert(!kvr_drain_moves(&d) && !kvr_drain_leaves(&d, &next, NOW + 9000));
}
