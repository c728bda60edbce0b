
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_tier: the tier of a prompt, and the cost of loading it.  kvr_resume: the
 * places where a hybrid model resumes.
 */


#include <math.h>

#include "util.h"
#include "core/learn/kvr_resume.h"
#include "core/learn/kvr_retention.h"
#include "core/learn/kvr_tier.h"


static kvr_tier_t    tier[KVR_TIERS];
static kvr_resume_t  resume;

static kvr_tier_prices_t  prices;


static void
fresh(uint32_t gpu, uint32_t host)
{
    memset((void *) tier, 0, sizeof(tier));
    memset((void *) &resume, 0, sizeof(resume));
    memset((void *) &prices, 0, sizeof(prices));
    kvr_set(&tier[KVR_TIER_GPU].until, gpu);
    kvr_set(&tier[KVR_TIER_HOST].until, host);
}


TEST(test_tier_split)
{
    kvr_tier_split_t  s;

    /* 100 units with an end that is 100 old: one insert, now */

    fresh(1000, 4000);

    s = kvr_tier_split(tier, 100, 100, 0);
    util_check(s.host == 0 && s.disk == 0, "new");

    s = kvr_tier_split(tier, 100, 1050, 0);
    util_check(s.host == 50 && s.disk == 0, "its end is in host memory: %u",
               s.host);

    s = kvr_tier_split(tier, 100, 2000, 0);
    util_check(s.host == 100 && s.disk == 0, "host");

    s = kvr_tier_split(tier, 100, 4030, 0);
    util_check(s.host == 70 && s.disk == 30, "%u %u", s.host, s.disk);

    s = kvr_tier_split(tier, 100, 9000, 0);
    util_check(s.host == 0 && s.disk == 100, "disk");

    /* the end can be newer than its depth says */

    s = kvr_tier_split(tier, 100, 3, 0);
    util_check(s.host == 0 && s.disk == 0, "a reply");

    fresh(1000, 0);
    s = kvr_tier_split(tier, 100, UINT32_MAX, 0);
    util_check(s.host == 100 && s.disk == 0, "one lower tier");

    fresh(0, 0);
    s = kvr_tier_split(tier, 100, 9000, 0);
    util_check(s.host == 0 && s.disk == 0, "the GPU alone");

    /* a common store has 300 units; a peer has 60, 40 of them in its GPU */

    fresh(1000, 0);
    s = kvr_tier_split(tier, 60, 1020, 300);
    util_check(s.host == 0 && s.disk == 260, "%u %u", s.host, s.disk);

    s = kvr_tier_split(tier, 0, 0, 300);
    util_check(s.host == 0 && s.disk == 300, "a peer without it: %u", s.disk);
}


/* with any reports, each unit is in one tier, and the cost is at most all */
TEST(test_tier_any)
{
    uint32_t          i, units, stored, cost;
    util_rng_t        r;
    kvr_tier_split_t  s;

    util_seed(&r, "tier any", 0);

    for (i = 0; i < 20000; i++) {
        fresh((uint32_t) util_below(&r, 1ULL << util_below(&r, 33)),
              (uint32_t) util_below(&r, 1ULL << util_below(&r, 33)));

        units = (uint32_t) util_below(&r, 1 << 20);
        stored = i % 2 ? units + (uint32_t) util_below(&r, 1 << 10) : 0;
        s = kvr_tier_split(tier, units, (uint32_t)
                           util_below(&r, 1ULL << util_below(&r, 33)), stored);

        units = kvr_max(units, stored);
        util_check((uint64_t) s.host + s.disk <= units, "%u %u of %u", s.host,
                   s.disk, units);

        kvr_tier_first(&prices, &s, (double) util_below(&r, 100000) - 5000,
                       i % 100 ? (double) util_below(&r, 1000) : NAN);

        cost = kvr_tier_cost(&prices, &s);
        util_check(cost <= units, "%u for %u", cost, units);
    }
}


TEST(test_tier_price)
{
    uint32_t          i;
    kvr_tier_split_t  s = { 1000, 0 }, both = { 500, 500 };

    fresh(1000, 4000);

    util_check(kvr_tier_cost(&prices, &s) == 99, "a tenth, at first: %u",
               kvr_tier_cost(&prices, &s));

    for (i = 0; i < 200; i++) {
        kvr_tier_first(&prices, &s, 30, 100);
    }

    util_check(kvr_tier_cost(&prices, &s) >= 280
               && kvr_tier_cost(&prices, &s) <= 300, "%u",
               kvr_tier_cost(&prices, &s));

    /* of two tiers together it is unknown which one was slow */

    kvr_tier_first(&prices, &both, 100, 100);
    util_check(kvr_get(&prices.disk) == 0, "unknown");
}


TEST(test_resume)
{
    uint32_t  i;

    fresh(0, 0);

    /* an attention model, by blocks of 16 */

    for (i = 1; i < 40; i++) {
        kvr_resume_take(&resume, 4000, 16 * (i * 37 % 200));
    }

    util_check(kvr_resume_step(&resume) == 0, "%u", kvr_resume_step(&resume));

    /* another model: multiples of 528, two thirds of which are kept */

    for (i = 1; i < 200; i++) {
        kvr_resume_take(&resume, 528 * 3, 528 * (1 + i % 3));
    }

    util_check(kvr_resume_step(&resume) == 528, "%u",
               kvr_resume_step(&resume));
    util_check(fabs(kvr_resume_lost(&resume) - 1.0 / 3) < 0.02, "%f",
               kvr_resume_lost(&resume));

    /* 100 units of 256 bytes at 4 bytes: 6,400 tokens, 12 steps, two thirds */

    i = kvr_resume_units(&resume, 100, 4);
    util_check(i >= 63 && i <= 67, "%u", i);

    /* one number that does not fit ends it */

    kvr_resume_take(&resume, 528 * 3, 16);
    util_check(kvr_resume_step(&resume) == 0, "blocks");
}


/* the same prompt again proves no step */
TEST(test_resume_same)
{
    uint32_t  i;

    fresh(0, 0);

    for (i = 0; i < 100; i++) {
        kvr_resume_take(&resume, 1040, 1024);
        kvr_resume_take(&resume, 0, 0);
    }

    util_check(kvr_resume_step(&resume) == 0, "%u", kvr_resume_step(&resume));
}


/* with any reports, at most the prefix is predicted */
TEST(test_resume_any)
{
    double      lost;
    uint32_t    i, units, n;
    util_rng_t  r;

    util_seed(&r, "resume any", 0);

    for (i = 0; i < 20000; i++) {

        if (i % 1000 == 0) {
            fresh(0, 0);
        }

        n = (uint32_t) (util_next(&r) >> (32 + util_below(&r, 32)));
        kvr_resume_take(&resume, n, util_below(&r, 2) ? n / 512 * 512 : 512);

        units = (uint32_t) util_below(&r, 1 << 20);
        n = kvr_resume_units(&resume, units, 0.25 + (double) (i % 16));
        lost = kvr_resume_lost(&resume);

        util_check(n <= units, "%u of %u", n, units);
        util_check(lost >= 0 && lost <= 1, "%f", lost);
    }
}


TEST(test_retention_beyond)
{
    uint32_t             i;
    kvr_retention_t      h;
    kvr_retention_sum_t  sum;

    memset((void *) &h, 0, sizeof(h));

    for (i = 0; i < KVR_RETENTION_ENOUGH; i++) {
        memset(&sum, 0, sizeof(sum));
        kvr_retention_add(&sum, &h);
        util_check(!kvr_retention_beyond(&sum, 1000), "%u prove nothing", i);

        kvr_retention_note(&h, 5000, 1);
        kvr_retention_note(&h, 900, 1);
    }

    memset(&sum, 0, sizeof(sum));
    kvr_retention_add(&sum, &h);
    util_check(kvr_retention_beyond(&sum, 1000), "older ones are delivered");
    util_check(!kvr_retention_beyond(&sum, 5000), "nothing older");

    for (i = 0; i < 2; i++) {
        kvr_retention_note(&h, 2000, 0);
    }

    memset(&sum, 0, sizeof(sum));
    kvr_retention_add(&sum, &h);
    util_check(!kvr_retention_beyond(&sum, 1000),
               "as many deliveries as losses");
}
