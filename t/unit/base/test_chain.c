
/*
 * Copyright (C) kvroute contributors
 */


/* Tests kvr_chain: the depths with an entry, and their places in the index. */


#include "util.h"
#include "core/base/kvr_chain.h"

#include <math.h>


#define MAX_UNITS   20000


/* Checks the rule: each of the first 64 units, then every 2nd, 4th and 8th. */
static uint32_t
next_depth(uint32_t depth)
{
    if (depth < 64) {
        return depth + 1;
    }

    if (depth < 192) {
        return depth + 2;
    }

    if (depth < 448) {
        return depth + 4;
    }

    return depth + 8;
}


TEST(test_chain_depth)
{
    uint32_t  k, units, depth, entries;

    depth = 0;
    units = 0;

    for (k = 0; depth <= MAX_UNITS; k++) {

        depth = next_depth(depth);

        util_check(kvr_chain_depth(k) == depth, "entry %u: %u, not %u", k,
                   kvr_chain_depth(k), depth);

        /* a prompt of this length has the entry, a shorter one has not */

        for ( /* void */ ; units <= depth; units++) {
            entries = k + (units == depth);

            util_check(kvr_chain_entries(units) == entries,
                       "%u units: %u, not %u", units, kvr_chain_entries(units),
                       entries);
        }
    }
}


TEST(test_chain_sizes)
{
    uint32_t  k, units, step;

    /* 32 KB, 2 MB and 4 MB in units of 256 bytes, and 2 MB in 1 KB ones */

    util_check(kvr_chain_entries(0) == 0, "%u", kvr_chain_entries(0));
    util_check(kvr_chain_entries(1) == 1, "%u", kvr_chain_entries(1));
    util_check(kvr_chain_entries(128) == 96, "%u", kvr_chain_entries(128));
    util_check(kvr_chain_entries(8192) == 1160, "%u", kvr_chain_entries(8192));
    util_check(kvr_chain_entries(16384) == 2184, "%u",
               kvr_chain_entries(16384));
    util_check(kvr_chain_entries(2048) == 392, "%u", kvr_chain_entries(2048));

    /* a match is known to one step, at most 1/32 of it */

    for (k = 1; k < 4000; k++) {
        step = kvr_chain_depth(k) - kvr_chain_depth(k - 1);

        util_check(step == 1 || step * 32 <= kvr_chain_depth(k - 1),
                   "a step of %u at %u", step, kvr_chain_depth(k - 1));
    }

    /* the longest possible body, in the smallest units */

    for (units = 1U << 20; units < 1U << 27; units += 999983) {
        k = kvr_chain_entries(units);

        util_check(kvr_chain_depth(k - 1) <= units
                   && units < kvr_chain_depth(k), "%u", units);
    }
}


/* the places of entries are used evenly, for any number of lines */
TEST(test_chain_reduce)
{
    double       chi, expect;
    size_t       i, n;
    unsigned     k, *count, cases;
    uint64_t     h, a;
    util_rng_t   r;

    static const size_t  sizes[] = { 1, 2, 3, 7, 100, 1000, 1021 };

    util_seed(&r, "chain reduce", 0);
    cases = 200000;

    for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        n = sizes[k];
        count = calloc(n, sizeof(unsigned));

        h = util_next(&r);
        a = util_next(&r);

        for (i = 0; i < cases; i++) {
            h = kvr_mix(h, i % 3 ? a : util_next(&r));

            util_check(kvr_reduce(h, n) < n, "beyond %zu", n);
            count[kvr_reduce(h, n)]++;
        }

        expect = (double) cases / (double) n;
        chi = 0;

        for (i = 0; i < n; i++) {
            chi += (count[i] - expect) * (count[i] - expect) / expect;
        }

        /* five standard deviations */

        util_check(chi < (double) n + 5 * 1.5 * sqrt((double) n) + 10,
                   "%zu places: chi square %.1f", n, chi);

        free(count);
    }

    util_check(kvr_reduce(0, 10) == 0, "first");
    util_check(kvr_reduce(UINT64_MAX, 10) == 9, "last");
}
