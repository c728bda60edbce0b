
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_ttft: correct and wrong conclusions from first tokens' times */


#include <math.h>

#include "util.h"
#include "core/learn/kvr_retention.h"
#include "core/learn/kvr_ttft.h"


#define NO  KVR_TTFT_NOTHING


static kvr_ttft_t         t;
static kvr_ttft_prefill_t  all;
static util_rng_t         rng;
static double    base, prefill;  /* of the engine: ms, ms per KB */
static uint64_t  reply;          /* KB inserted by a reply */


static void
fresh(void)
{
    memset((void *) &t, 0, sizeof(t));
    memset((void *) &all, 0, sizeof(all));
    base = 25;
    prefill = 7;
    reply = 0;
}


/* a prompt: KB, KB inserted, KB computed, factor of its time */
static int
one(uint64_t bytes, uint64_t inserted, uint64_t computed, double factor)
{
    kvr_ttft_first_t    f;

    f.bytes = bytes * 1024;
    f.inserted = inserted * 1024;
    f.reply = reply * 1024;
    f.ms = (uint64_t) ((base + prefill * (double) computed) * factor);
    f.given = kvr_ttft_give(&t, (bytes - inserted) * 1024, 0);

    return kvr_ttft_first(&t, &all, &f);
}


/* this many new prompts */
static void
new(unsigned n)
{
    while (n--) {
        (void) one(1, 0, 1, 1);
        (void) one(16, 0, 16, 1);
    }
}


TEST(test_timing_tells)
{
    fresh();

    new(KVR_TTFT_LEAST - 1);
    util_check(kvr_ttft_prefill(&t.prefill) == 0, "too few");
    util_check(one(64, 60, 4, 1) == NO && one(64, 60, 64, 1) == NO, "yet");

    new(KVR_TTFT_LEAST);
    util_check(fabs(kvr_ttft_prefill(&t.prefill) * 1024 - 7) < 0.7, "%f",
               kvr_ttft_prefill(&t.prefill) * 1024);

    util_check(one(64, 60, 4, 1) == KVR_TTFT_HELD, "held");
    util_check(one(64, 60, 4, 1.5) == KVR_TTFT_HELD, "held, slowly");
    util_check(one(64, 60, 64, 1) == KVR_TTFT_LOST, "lost");
    util_check(one(64, 60, 64, 1.4) == KVR_TTFT_LOST, "lost, slowly");
    util_check(one(64, 60, 44, 1) == KVR_TTFT_LOST, "a good part lost");

    /* ambiguous; far too slow; without a time */

    util_check(one(64, 60, 22, 1) == NO, "in between");
    util_check(one(64, 60, 64, 2) == NO, "stuck");
    util_check(one(64, 30, 34, 1) == NO, "half new, held");
    util_check(one(64, 30, 64, 1) == NO, "half new, lost");
    util_check(one(8, 7, 8, 1) == NO, "short");
    util_check(one(64, 0, 64, 1) == NO, "not inserted");
}


/* an engine that does not cache its replies */
TEST(test_timing_replies)
{
    unsigned  i;

    fresh();
    new(8);

    reply = 8;
    util_check(one(10, 9, 9, 1) == NO, "mostly a reply");
    util_check(one(18, 17, 9, 1) == NO, "half of it");
    util_check(one(64, 63, 9, 1) == KVR_TTFT_HELD, "before it, held");
    util_check(one(64, 63, 1, 1) == KVR_TTFT_HELD, "all blocks");
    util_check(one(64, 63, 64, 1) == KVR_TTFT_LOST, "nothing");

    /* the amount that was computed is unknown then */

    for (i = 0; i < 100; i++) {
        (void) one(20, 10, 10, 1);
        (void) one(20, 10, 18, 1);
    }

    util_check(fabs(kvr_ttft_prefill(&t.prefill) * 1024 - 7) < 0.7, "%f",
               kvr_ttft_prefill(&t.prefill) * 1024);
}


/* other requests, earlier or later, can explain a wait */
TEST(test_timing_others)
{
    kvr_ttft_first_t    f;

    fresh();
    new(8);

    f.bytes = 64 << 10;
    f.inserted = 60 << 10;
    f.reply = 0;
    f.ms = 25 + 7 * 64;

    f.given = kvr_ttft_give(&t, 4096, 1);
    util_check(f.given == 0 && kvr_ttft_first(&t, &all, &f) == NO, "before");

    f.given = kvr_ttft_give(&t, 4096, 0);
    (void) kvr_ttft_give(&t, 4096, 1);
    util_check(kvr_ttft_first(&t, &all, &f) == KVR_TTFT_LOST, "a little");

    (void) kvr_ttft_give(&t, 20 << 10, 1);
    f.ms = 25 + 7 * (4 + 20 + 15);
    util_check(kvr_ttft_first(&t, &all, &f) == NO,
               "another prefill explains it");

    (void) kvr_ttft_give(&t, 20 << 10, 1);
    f.ms = 25 + 7 * (64 + 28);
    util_check(kvr_ttft_first(&t, &all, &f) == NO, "much");

    /* a fast first token proves a hit, whatever other requests there are */

    f.ms = 60;
    util_check(kvr_ttft_first(&t, &all, &f) == KVR_TTFT_HELD, "held");

    /* they do not count for the pace or the base either */

    f.inserted = 0;
    f.ms = 5;
    util_check(kvr_ttft_first(&t, &all, &f) == NO
               && kvr_get(&t.base) > 20 * 256, "base %u", kvr_get(&t.base));
}


/* paces that are not reliable */
TEST(test_timing_uneven)
{
    unsigned  i;

    fresh();
    util_seed(&rng, "timing uneven", 0);

    for (i = 0; i < 100; i++) {
        (void) one(16, 0, 16, 0.3 + util_below(&rng, 40) / 10.0);
    }

    util_check(kvr_ttft_prefill(&t.prefill) == 0, "%f",
               kvr_ttft_prefill(&t.prefill));

    /* it streams before it computes, or its contents are unknown */

    fresh();

    for (i = 0; i < 100; i++) {
        util_check(one(4 + util_below(&rng, 100), 0, 0,
                       1 + util_below(&rng, 10) / 20.0) == NO, "new");
        util_check(one(64, 63, 1, 1) != KVR_TTFT_LOST, "held");
    }
}


/* the upstream's pace, until the peer has its own; peers can differ */
TEST(test_timing_all)
{
    unsigned  i;

    fresh();
    new(8);

    for (i = 0; i < 2; i++) {
        memset((void *) &t, 0, sizeof(t));
        base = i ? 50 : 25;
        prefill = i ? 14 : 7;

        (void) one(1, 1, 0, 1);
        util_check(kvr_ttft_prefill(&t.prefill) == 0, "own");
        util_check(one(64, 62, 2, 1) == KVR_TTFT_HELD, "held, %u", i);
        util_check(one(64, 62, 64, 1) == (i ? NO : KVR_TTFT_LOST), "lost");
        util_check(one(24, 20, 4, 1) != KVR_TTFT_LOST, "close, %u", i);
    }

    new(8);
    util_check(one(64, 62, 64, 1) == KVR_TTFT_LOST, "its own");

    memset((void *) &t, 0, sizeof(t));
    memset((void *) &all, 0, sizeof(all));
    util_check(kvr_ttft_prefill(&t.prefill) == 0 && kvr_ttft_prefill(&all) == 0
               && one(64, 62, 64, 1) == NO, "another peer");
}


/* a large cache and an uneven pace: nothing is lost or learned */
TEST(test_timing_noise)
{
    int              found;
    double           factor;
    unsigned         i, k, n, lost;
    uint32_t         age, got;
    kvr_retention_t  h;

    lost = 0;
    n = util_cases(500);

    for (i = 0; i < n; i++) {

        util_seed(&rng, "timing noise", i);
        fresh();
        memset((void *) &h, 0, sizeof(h));

        for (k = 0; k < 2000; k++) {

            /* uneven by about a third, and one in 20 is delayed */

            factor = 0.75 + util_below(&rng, 100) / 100.0;
            factor *= util_below(&rng, 20) ? 1 : 1 + util_below(&rng, 8);

            if (util_below(&rng, 10) == 0) {
                age = 8 + util_below(&rng, 60);
                (void) one(age, 0, age, factor);
                continue;
            }

            age = util_below(&rng, 1U << (8 + util_below(&rng, 10)));
            found = one(66, 64, 2, factor);

            if (found != NO) {
                kvr_retention_note(&h, age, found == KVR_TTFT_HELD);
                lost += found == KVR_TTFT_LOST;
            }

            got = kvr_retention_get(&h);
            util_check(got == 0 || got >= 1 << 15, "%u, case %u", got, i);
        }
    }

    /* slightly more than one in a hundred */

    util_check(lost < n * 40, "%u lost", lost);
}
