
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_sketch: the prefixes that the traffic shares, and the key that spreads
 * it.
 */


#include "util.h"
#include "core/hot/kvr_sketch.h"


#define MAX_UNITS  1500


static kvr_sketch_t  hot;
static uint64_t   chain[MAX_UNITS];


TEST(test_hot_share)
{
    unsigned  i;
    double    share;

    memset(&hot, 0, sizeof(hot));
    util_chain(chain, 1, 0, 1, 10);
    util_check(kvr_sketch_share(&hot, chain[0]) == 0, "nothing yet");

    /* with few requests shares are unknown */

    kvr_sketch_add(&hot, chain, 10);
    util_check(kvr_sketch_share(&hot, chain[0]) < 0.05, "one request");

    memset(&hot, 0, sizeof(hot));

    for (i = 0; i < 2000; i++) {
        util_chain(chain, 1, 4, i % 50, 10);
        kvr_sketch_add(&hot, chain, 10);
    }

    util_chain(chain, 1, 4, 3, 10);
    util_check(kvr_sketch_share(&hot, chain[0]) == 1, "all requests share it");
    util_check(kvr_sketch_share(&hot, chain[3]) == 1, "up to the 4th");

    share = kvr_sketch_share(&hot, chain[7]);
    util_check(share >= 0.02 && share < 0.07, "one of 50: %.3f", share);

    /* old traffic is forgotten gradually */

    for (i = 0; i < 4 * KVR_SKETCH_WINDOW; i++) {
        util_chain(chain, 2, 4, i % 50, 10);
        kvr_sketch_add(&hot, chain, 10);
    }

    util_check(kvr_sketch_share(&hot, chain[0]) > 0.8, "the new one");
    util_chain(chain, 1, 4, 3, 10);
    util_check(kvr_sketch_share(&hot, chain[0]) < 0.2, "the old one");
}


TEST(test_hot_entry)
{
    size_t    k;
    unsigned  i, entry;

    static const struct {
        const char  *what;
        unsigned     sessions;
        unsigned     shared;
        unsigned     units;
        unsigned     first, last;   /* range of the key */
    } cases[] = {
        { "nothing is shared", 100, 0, 20, 0, 0 },
        { "the first unit", 100, 1, 20, 1, 1 },
        { "4 units", 100, 4, 20, 7, 7 },
        { "8 units", 100, 8, 20, 15, 15 },
        { "40 units", 100, 40, 100, 63, 63 },
        { "1000 units", 100, 1000, 1100, 1023, 1023 },
        { "more than is counted", 100, 1100, 1200, 1199, 1199 },
        { "5 of 7 units", 100, 5, 7, 6, 6 },
        { "few sessions: where they differ", 4, 4, 20, 7, 7 },
        { "two, from the start", 2, 0, 20, 0, 19 },
        { "one and the same prompt", 1, 20, 20, 19, 19 }
    };

    for (k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {

        memset(&hot, 0, sizeof(hot));

        for (i = 0; i < 3000; i++) {
            util_chain(chain, 1, cases[k].shared, i % cases[k].sessions,
                    cases[k].units);
            kvr_sketch_add(&hot, chain, cases[k].units);
        }

        for (i = 0; i < cases[k].sessions; i++) {
            util_chain(chain, 1, cases[k].shared, i, cases[k].units);

            entry = kvr_sketch_entry(&hot, chain, cases[k].units, 4);

            util_check(entry >= cases[k].first && entry <= cases[k].last,
                       "%s: entry %u", cases[k].what, entry);
        }
    }

    /* conversations keep their key as they grow */

    memset(&hot, 0, sizeof(hot));

    for (i = 0; i < 400; i++) {
        util_chain(chain, 1, 6, i % 8, 12 + i / 8);
        kvr_sketch_add(&hot, chain, 12 + i / 8);

        entry = kvr_sketch_entry(&hot, chain, 12 + i / 8, 4);

        util_check(i < 80 || (entry >= 7 && entry <= 15),
                   "request %u: entry %u", i, entry);
    }

    /* a prompt of one unit */

    util_chain(chain, 1, 0, 1, 1);
    util_check(kvr_sketch_entry(&hot, chain, 1, 4) == 0, "one unit");
}
