
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_prefill: a peer's prefill rate, its pending bytes, and its utilization
 */


#include "util.h"
#include "core/learn/kvr_prefill.h"


#define START   4294960000ULL      /* 32 bits of ms wrap in between */


static kvr_prefill_t  prefill;


static void
setup(void)
{
    memset((void *) &prefill, 0, sizeof(kvr_prefill_t));
}


static int
near(double a, double b, double part)
{
    return fabs(a - b) <= part * fabs(b);
}


/* a prompt of 50 KB each second, prefilled at 100 KB/s */
static uint64_t
steady(unsigned seconds, uint64_t now)
{
    unsigned  i;
    uint64_t  left;

    for (i = 0; i < seconds; i++) {
        left = kvr_prefill_give(&prefill, 50000, 0, now);
        util_check(left == 50000, "left %u", (unsigned) left);

        kvr_prefill_first(&prefill, left, 500, now + 500);

        now += 1000;
    }

    return now;
}


TEST(test_pace_unknown)
{
    kvr_prefill_load_t  load;

    util_check(kvr_prefill_left(&prefill, 1000, START) == 1000, "left");
    util_check(!kvr_prefill_full(&prefill, 1000, 1ULL << 30, START), "full");

    kvr_prefill_load(&prefill, START, &load);

    util_check(load.rate == 0 && load.utilization == 0, "load");

    /* too small to give a rate */

    kvr_prefill_first(&prefill, 8000, 10, START);
    kvr_prefill_load(&prefill, START, &load);
    util_check(load.rate == 0, "rate %f", load.rate);
}


TEST(test_pace_rate)
{
    unsigned            i;
    kvr_prefill_load_t  load;

    kvr_prefill_first(&prefill, 100000, 1000, START);
    kvr_prefill_load(&prefill, START, &load);
    util_check(near(load.rate, 100000, 0.01), "first %f", load.rate);

    /* slower ones lower it less than faster ones raise it */

    /* the rate is known after some */

    for (unsigned i = 0; i < 31; i++) {
        kvr_prefill_first(&prefill, 100000, 1000, START);
    }

    kvr_prefill_first(&prefill, 50000, 1000, START);
    kvr_prefill_load(&prefill, START, &load);
    util_check(load.rate > 98000 && load.rate < 100000, "down %f", load.rate);

    for (i = 0; i < 50; i++) {
        kvr_prefill_first(&prefill, 200000, 1000, START);
    }

    kvr_prefill_load(&prefill, START, &load);
    util_check(near(load.rate, 200000, 0.01), "up %f", load.rate);
}


TEST(test_pace_left)
{
    uint64_t  left;

    kvr_prefill_first(&prefill, 100000, 1000, START);  /* 100 bytes a ms */

    left = kvr_prefill_give(&prefill, 60000, 0, START);
    util_check(left == 60000, "its own: %u", (unsigned) left);

    left = kvr_prefill_left(&prefill, 60000, START + 200);
    util_check(left == 40000, "after 200 ms: %u", (unsigned) left);

    /* the next one finds the rest of the first */

    left = kvr_prefill_give(&prefill, 30000, 60000, START + 200);
    util_check(left == 70000, "the rest and its own: %u", (unsigned) left);

    /* stuck: at most the largest prompt, decayed, counts as computed */

    left = kvr_prefill_left(&prefill, 90000, START + 600000);
    util_check(left == 90000 - (60000 - 60000 / 16), "stuck: %u",
               (unsigned) left);

    /* it continues */

    kvr_prefill_first(&prefill, 60000, 600, START + 600);
    left = kvr_prefill_left(&prefill, 30000, START + 700);
    util_check(left == 20000, "the second: %u", (unsigned) left);

    /* another process's clock is ahead */

    left = kvr_prefill_left(&prefill, 30000, START + 590);
    util_check(left == 30000, "before: %u", (unsigned) left);

    util_check(kvr_prefill_left(&prefill, 100, START + 900) == 0,
               "no prefill is left");
}


/* prompts that arrive during a prefill do not give too high a rate */
TEST(test_pace_new)
{
    uint64_t            left, now;
    unsigned            i;
    kvr_prefill_load_t  load;

    kvr_prefill_give(&prefill, 100000, 0, START);
    left = kvr_prefill_give(&prefill, 100000, 100000, START + 500);
    util_check(left == 150000, "half of the first: %u", (unsigned) left);

    kvr_prefill_first(&prefill, left, 1500, START + 2000);
    kvr_prefill_load(&prefill, START + 2000, &load);
    util_check(near(load.rate, 100000, 0.01), "rate %f", load.rate);

    /*
     * a rate that is too high at first is corrected soon, and later moves
     * slowly
     */

    setup();
    kvr_prefill_first(&prefill, 200000, 1000, START);
    now = START;

    for (i = 0; i < 31; i++) {
        now += 1000;
        kvr_prefill_first(&prefill, 100000, 1000, now);
    }

    kvr_prefill_load(&prefill, now, &load);
    util_check(near(load.rate, 100000, 0.03), "new: %f", load.rate);

    for (i = 0; i < 8; i++) {
        kvr_prefill_first(&prefill, 50000, 1000, now);
    }

    kvr_prefill_load(&prefill, now, &load);
    util_check(load.rate > 90000, "known: %f", load.rate);
}


TEST(test_pace_full)
{
    kvr_prefill_first(&prefill, 100000, 1000, START);
    kvr_prefill_give(&prefill, 120000, 0, START);

    /* for 1 s: until 500 ms are left, which is 50 KB */

    util_check(kvr_prefill_full(&prefill, 1000, 120000, START), "at first");
    util_check(kvr_prefill_full(&prefill, 1000, 120000, START + 690), "690 ms");
    util_check(!kvr_prefill_full(&prefill, 1000, 120000, START + 710),
               "710 ms");
    util_check(!kvr_prefill_full(&prefill, 3000, 120000, START), "for 3 s");

    /* a second one closes it, however long it is stuck */

    kvr_prefill_give(&prefill, 120000, 120000, START + 710);
    util_check(kvr_prefill_full(&prefill, 1000, 240000, START + 900000),
               "stuck");
}


TEST(test_pace_load)
{
    uint64_t            now;
    kvr_prefill_load_t  load;

    now = steady(300, START);
    kvr_prefill_load(&prefill, now - 400, &load);

    util_check(near(load.rate, 100000, 0.01), "rate %f", load.rate);
    util_check(near(load.utilization, 0.5, 0.05), "utilization %f",
               load.utilization);

    /* it is known in the first seconds */

    setup();
    now = steady(8, START);
    kvr_prefill_load(&prefill, now - 400, &load);

    util_check(near(load.utilization, 0.5, 0.2), "new: utilization %f",
               load.utilization);

    setup();
    now = steady(300, START);

    kvr_prefill_load(&prefill, now + 300000, &load);
    util_check(load.utilization < 0.06, "idle: %f", load.utilization);

    /* after any time: 32 bits of ms are 25 days, or 50 */

    now += 26ULL * 24 * 3600 * 1000;
    kvr_prefill_load(&prefill, now, &load);
    util_check(load.utilization < 0.001, "26 days: %f", load.utilization);
    util_check(kvr_prefill_left(&prefill, 50000, now) < 50000, "26 days");

    now += 24ULL * 24 * 3600 * 1000;
    kvr_prefill_load(&prefill, now, &load);
    util_check(load.utilization < 0.001, "50 days: %f", load.utilization);
    util_check(kvr_prefill_left(&prefill, 50000, now) < 50000, "50 days");
}


/* delay of first tokens in ms: at 100 KB/s, and at least 20 ms */
TEST(test_pace_delay)
{
    double    have, want, base;
    unsigned  i;
    uint32_t  rate;
    uint64_t  now;

    setup();

    rate = 100 * KVR_PREFILL_RATE;
    now = START;

    kvr_prefill_waited(&prefill, 0, 0, 5000, 0, now);
    util_check(kvr_prefill_delay(&prefill, now) == 0, "no rate, no delay");

    /* the time to compute what is pending */

    for (i = 0, base = 20; i < 50; i++) {
        kvr_prefill_waited(&prefill, 1000 * i, 0, 20 + 10 * i, rate, now);
        base += (20 + 10 * i - base) / 256;
    }

    util_check(kvr_prefill_delay(&prefill, now) <= KVR_PREFILL_RATE, "%u",
               kvr_prefill_delay(&prefill, now));

    /* 800 ms more: the delay moves by an eighth of the difference each time */

    want = kvr_prefill_delay(&prefill, now) / (double) KVR_PREFILL_RATE;

    for (i = 0; i < 40; i++) {
        kvr_prefill_waited(&prefill, 1000, 0, 830, rate, now);
        base += (830 - base) / 256;
        want += (820 - 16 - base - want) / 8;
        have = kvr_prefill_delay(&prefill, now) / (double) KVR_PREFILL_RATE;

        util_check(near(have, want, 0.02), "%u: %.1f, not %.1f", i, have,
                   want);
    }

    /* it halves in seven seconds, and ends at 0 */

    have = kvr_prefill_delay(&prefill, now);

    for (i = 0; i < 20; i++) {
        want = have * exp2(-(double) i / 7);

        util_check(near(kvr_prefill_delay(&prefill, now + 1024 * i), want,
                        0.07),
                   "after %u s: %u, not %.1f", i,
                   kvr_prefill_delay(&prefill, now + 1024 * i), want);
    }

    util_check(kvr_prefill_delay(&prefill, now + 1000000) == 0, "forgotten");
    util_check(kvr_prefill_delay(&prefill, now - 3000) == have,
               "a clock behind");

    /* a wrong prediction is no delay */

    setup();

    for (i = 0; i < 20; i++) {
        kvr_prefill_waited(&prefill, 1000, 0, 30, rate, now);
    }

    for (i = 0; i < 20; i++) {
        kvr_prefill_waited(&prefill, 1000, 80000, 830, rate, now);
        kvr_prefill_waited(&prefill, 1000, 80000, 600, rate, now);
    }

    util_check(kvr_prefill_delay(&prefill, now) <= 2 * KVR_PREFILL_RATE, "%u",
               kvr_prefill_delay(&prefill, now));

    /* a request that never ends does not count */

    for (i = 0; i < 200; i++) {
        kvr_prefill_waited(&prefill, UINT64_MAX, UINT64_MAX, UINT64_MAX, rate,
                           now);
        kvr_prefill_waited(&prefill, 0, 0, UINT64_MAX, rate, now);
    }

    util_check(kvr_prefill_delay(&prefill, now) <= 600000U * KVR_PREFILL_RATE,
               "%u", kvr_prefill_delay(&prefill, now));

    memset((void *) &prefill, 0, sizeof(prefill));
    util_check(kvr_prefill_delay(&prefill, now) == 0, "another peer");
}


/* minutes without work since it was seen first */
TEST(test_pace_rest)
{
    uint64_t  now, minute;

    setup();

    minute = 1 << KVR_PREFILL_MINUTE;
    now = START;

    util_check(kvr_prefill_rest(&prefill, now) == 0, "new");
    util_check(kvr_prefill_rest(&prefill, now + minute - 1) == 0,
               "not yet a minute");
    util_check(kvr_prefill_rest(&prefill, now + minute) == 1, "a minute");
    util_check(kvr_prefill_rest(&prefill, now - 1) == 0,
               "a clock that is behind");

    now += 7 * minute;
    util_check(kvr_prefill_rest(&prefill, now) == 7,
               "read, without work");

    kvr_prefill_give(&prefill, 1000, 0, now);
    util_check(kvr_prefill_rest(&prefill, now + 1) == 0, "work");
    util_check(kvr_prefill_rest(&prefill, now + 2 * minute) == 2,
               "since the last work");

    util_check(kvr_prefill_rest(&prefill, now + (1ULL << 40))
               == KVR_PREFILL_REST, "for ever");

    memset((void *) &prefill, 0, sizeof(prefill));
    util_check(kvr_prefill_rest(&prefill, now) == 0, "another peer");
}


suite_around(setup, NULL);
