
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_hot: counts that decay, entries that stay in a full table, and the price
 * of an uncached part.
 */


#include "util_hot.h"
#include "util.h"
#include "core/hot/kvr_hot.h"

#include <math.h>
#include <pthread.h>


#define MINUTE   60000               /* ms */
#define HALF     (41 * 1024)         /* ms too */
#define ENTRIES  1500


static kvr_hot_t      hot;
static uint64_t       chain[ENTRIES];


/* answers a request; peers have these entries cached */
static void
answered(unsigned entries, uint64_t now)
{
    kvr_hot_keys_t      keys;

    kvr_hot_keys(chain, entries, &keys);
    kvr_hot_add(&hot, &keys, now);
}


static double
count(unsigned entry, uint64_t now)
{
    unsigned            i;
    kvr_hot_keys_t      keys;

    kvr_hot_keys(chain, entry, &keys);

    i = keys.n - 1;

    return util_hot_count(&hot, keys.key[i], now);
}


static void
view(unsigned entries, uint64_t now, kvr_hot_view_t *v)
{
    kvr_hot_keys_t      keys;

    kvr_hot_keys(chain, entries, &keys);
    kvr_hot_view(&hot, &keys, now, v);
}


static void
clear(void)
{
    memset((void *) &hot, 0, sizeof(hot));
}


TEST(test_hot_keys)
{
    unsigned            i, k, n;
    kvr_hot_keys_t      keys, again;

    static const unsigned  entries[][2] = {
        { 0, 0 }, { 1, 1 }, { 2, 2 }, { 3, 2 }, { 4, 2 }, { 5, 3 },
        { 63, 4 }, { 64, 4 }, { 65, 5 }, { 1023, 6 }, { 1024, 6 },
        { 1025, 7 }, { 1500, 7 }
    };

    util_chain(chain, 1, ENTRIES, 0, ENTRIES);

    for (i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        n = entries[i][0];

        kvr_hot_keys(chain, n, &keys);

        util_check(keys.n == entries[i][1], "%u: %u", n, keys.n);
        util_check(keys.entries == n, "%u: %u", n, keys.entries);

        /* the powers of four first, at any length */

        kvr_hot_keys(chain, 1024, &again);

        for (k = 0; k + 1 < keys.n; k++) {
            util_check(keys.key[k] == again.key[k], "%u: key %u", n, k);
        }
    }
}


/* halves every 42 seconds, whether or not the count changes */
TEST(test_hot_decay)
{
    double    have, want;
    unsigned  i, step;
    uint64_t  now, t;

    static const unsigned  steps[] = { 1024, 7000, 60000, 300000 };

    util_chain(chain, 2, 64, 0, 64);

    for (step = 0; step < sizeof(steps) / sizeof(steps[0]); step++) {

        clear();

        now = 1000000;

        for (i = 0; i < 1000; i++) {
            answered(64, now);
        }

        util_check(count(64, now) == 1000, "%.2f", count(64, now));

    /* one more at each step: the geometric series, and the rest */

        want = 1000;

        for (t = 0; t < 600000; t += steps[step]) {

            have = count(64, now);

            util_check(fabs(have - want) < 0.02 * want + 0.1,
                       "after %u s in steps of %u: %.2f, not %.2f",
                       (unsigned) (t / 1000), steps[step], have, want);

            now += steps[step];
            want *= exp2(-(double) steps[step] / HALF);

            answered(64, now);
            want += 1;
        }
    }

    /* in the end the count is 0, and stays 0 */

    now += 30 * MINUTE;
    util_check(count(64, now) == 0, "%.2f", count(64, now));

    clear();
    answered(64, now);
    util_check(count(64, now - 3000) == 1, "a clock behind");
    util_check(count(64, now + 24ULL * 60 * MINUTE) == 0, "after a day");
}


TEST(test_hot_sticks)
{
    double    have;
    unsigned  i, k;

    /* one prefix of all requests, and thousands of prompts that come twice */

    clear();

    for (i = 0; i < 20000; i++) {

        util_chain(chain, 3, 64, 0, 64);
        answered(64, i);

        util_chain(chain, 1000 + i, 64, 0, 64);
        answered(64, i);
        answered(64, i);
    }

    util_chain(chain, 3, 64, 0, 64);

    for (k = 1; k <= 64; k *= 4) {
        have = count(k, i);
        util_check(have > 0.9 * 60 * 1000 * (1 - exp(-20.0 / 60))
                   && have < 20000,
                   "entry %u: %.1f", k, have);
    }

    /* no count is too high */

    for (i = 0; i < 20000; i++) {
        util_chain(chain, 1000 + i, 64, 0, 64);
        util_check(count(64, 20000) <= 2, "%u: %.2f", i, count(64, 20000));
    }
}


/* five prefixes in a bucket of four words */
TEST(test_hot_bucket)
{
    double              have;
    unsigned            i, k;
    kvr_hot_keys_t      keys[5];

    static const unsigned  counts[] = { 10, 20, 30, 40, 3 };

    clear();

    for (i = 0; i < 5; i++) {
        chain[0] = 7ULL << 54 | (i + 1);
        kvr_hot_keys(chain, 1, &keys[i]);

        for (k = 0; k < counts[i]; k++) {
            kvr_hot_add(&hot, &keys[i], 1000);
        }
    }

    /* the last one has reduced the lowest count, and has no word yet */

    for (i = 0; i < 5; i++) {
        have = util_hot_count(&hot, keys[i].key[0], 1000);
        util_check(have == (i == 0 ? 7 : i == 4 ? 0 : counts[i]), "%u: %.2f",
                   i, have);
    }

    /* in the end it has one */

    for (k = 0; k < 8; k++) {
        kvr_hot_add(&hot, &keys[4], 1000);
    }

    have = util_hot_count(&hot, keys[4].key[0], 1000);
    util_check(have == 1, "%.2f", have);

    have = util_hot_count(&hot, keys[0].key[0], 1000);
    util_check(have == 0, "%.2f", have);
}


TEST(test_hot_full)
{
    unsigned            i;
    kvr_hot_keys_t      keys;

    clear();

    /* a count does not overflow into its neighbours */

    util_chain(chain, 4, 1, 0, 1);
    kvr_hot_keys(chain, 1, &keys);

    for (i = 0; i < 70000; i++) {
        kvr_hot_add(&hot, &keys, 5000);
    }

    util_check(count(1, 5000) > 65535 && count(1, 5000) < 65536, "%.2f",
               count(1, 5000));

    kvr_hot_keys(chain, 0, &keys);
    util_check(keys.n == 0, "no entries, no keys");
}


/* the expected result of kvr_hot_shared(), block by block */
static double
plainly(unsigned entries, unsigned from, unsigned active, double least,
    uint64_t now)
{
    double              shared, n;
    unsigned            i, k;
    kvr_hot_keys_t      keys;

    shared = 0;

    for (i = from; i < entries; i++) {

        /* the next counted depth, and all that are deeper */

        n = 0;

        kvr_hot_keys(chain, entries, &keys);

        for (k = 0; k < keys.n; k++) {
            if ((k == keys.n - 1 ? entries : 1U << 2 * k) > i) {
                n = fmax(n, util_hot_count(&hot, keys.key[k], now));
            }
        }

        if (n >= least) {
            shared += KVR_BLOCK * kvr_chain_step(i) * n
                      / (n + KVR_SCORE_HOT * (1 + active));
        }
    }

    return shared;
}


TEST(test_hot_view)
{
    unsigned            i;
    kvr_hot_keys_t      keys;
    kvr_hot_view_t      v;

    clear();

    util_chain(chain, 5, 24, 0, 100);
    view(0, 0, &v);
    util_check(kvr_hot_shared(&v, 0, 0, 0) == 0, "nothing is cached");

    view(24, 0, &v);
    util_check(kvr_hot_shared(&v, 0, 0, 0) == 0, "no request was answered");

    /* requests that halve the price, up to the end, which is no power */

    for (i = 0; i < KVR_SCORE_HOT; i++) {
        util_chain(chain, 5, 24, i, 100);
        answered(24, 1000);
    }

    util_chain(chain, 5, 24, 99, 100);
    view(24, 1000, &v);

    util_check(v.n == 1 && v.depth[0] == 24, "%u, %u", v.n, v.depth[0]);
    util_check(kvr_hot_shared(&v, 0, 0, 0) == 24 * KVR_BLOCK / 2, "%u",
               (unsigned) kvr_hot_shared(&v, 0, 0, 0));
    util_check(kvr_hot_shared(&v, 23, 0, 0) == KVR_BLOCK / 2,
               "the last one");
    util_check(kvr_hot_shared(&v, 24, 0, 0) == 0, "all cached");
    util_check(kvr_hot_shared(&v, 5000, 0, 0) == 0,
               "matched beyond the counts");

    /* a busy peer counts less: one more request there, a third */

    util_check(kvr_hot_shared(&v, 0, 1, 0) == 24 * KVR_BLOCK / 3, "%u",
               (unsigned) kvr_hot_shared(&v, 0, 1, 0));

    /* a peer without work for three minutes counts four times as much */

    util_check(kvr_hot_shared(&v, 0, 0, 3) == 24 * KVR_BLOCK * 4 / 5, "%u",
               (unsigned) kvr_hot_shared(&v, 0, 0, 3));

    /* for a peer that has more cached, up to the last counted depth */

    view(100, 1000, &v);

    util_check(v.n == 1 && v.depth[0] == 16, "%u, %u", v.n, v.depth[0]);
    util_check(kvr_hot_shared(&v, 16, 0, 0) == 0, "16 .. 100");
    util_check(kvr_hot_shared(&v, 0, 0, 0) == 16 * KVR_BLOCK / 2, "%u",
               (unsigned) kvr_hot_shared(&v, 0, 0, 0));

    /* the words of the shallower places were lost */

    util_chain(chain, 8, 24, 0, 24);
    kvr_hot_keys(chain, 24, &keys);

    keys.key[0] = keys.key[keys.n - 1];
    keys.n = 1;

    for (i = 0; i < KVR_SCORE_HOT; i++) {
        kvr_hot_add(&hot, &keys, 1000);
    }

    view(24, 1000, &v);

    util_check(kvr_hot_shared(&v, 0, 0, 0) == 24 * KVR_BLOCK / 2, "%u",
               (unsigned) kvr_hot_shared(&v, 0, 0, 0));

    /* a count that was lost and returned is low */

    kvr_hot_keys(chain, 16, &keys);
    kvr_hot_add(&hot, &keys, 1000);
    view(24, 1000, &v);

    util_check(kvr_hot_shared(&v, 0, 0, 0) == 24 * KVR_BLOCK / 2, "%u",
               (unsigned) kvr_hot_shared(&v, 0, 0, 0));

    /* two parts: many have the first cached, some the second */

    for (i = 0; i < 3; i++) {
        util_chain(chain, 5, 24, 7, 512);
        answered(512, 1000);
    }

    view(512, 1000, &v);

    util_check(v.n == 2 && v.depth[0] > 512 && v.depth[1] == 16, "%u, %u, %u",
               v.n, v.depth[0], v.depth[1]);
    util_check(v.count[0] == 3 && v.count[1] == KVR_SCORE_HOT + 3,
               "%.2f, %.2f", v.count[0], v.count[1]);
}


TEST(test_hot_random)
{
    double              most, least, last;
    unsigned            i, k, n, active, entries, depth;
    uint64_t            have;
    util_rng_t          r;
    kvr_hot_view_t      v;

    for (k = 0; k < util_cases(200); k++) {

        util_seed(&r, "hot view", k);
        clear();

        n = 1 + util_below(&r, 300);

        for (i = 0; i < n; i++) {
            util_chain(chain, 6, util_below(&r, ENTRIES), util_below(&r, 3),
                       ENTRIES);
            answered(util_below(&r, ENTRIES), util_below(&r, 100000));
        }

        util_chain(chain, 6, util_below(&r, ENTRIES), util_below(&r, 3),
                   ENTRIES);

        active = util_below(&r, 10);
        entries = 1 + util_below(&r, ENTRIES);
        view(entries, 100000, &v);
        last = INFINITY;

        for (i = 0; i < entries; i++) {
            depth = i ? kvr_chain_depth(i - 1) : 0;

            have = kvr_hot_shared(&v, depth, active, 0);
            /* counts are rounded down to an eighth; a quarter is 0 */

            most = plainly(entries, i, active, 0, 100000);
            least = plainly(entries, i, active, 0.25, 100000) * 7 / 8;

            util_check((double) have <= most + 1 && (double) have + 1 >= least,
                       "case %u, entry %u of %u: %.0f, not %.2f .. %.2f", k,
                       i, entries, (double) have, least, most);
            util_check((double) have <= last, "case %u: it rises", k);
            util_check(have <= (kvr_chain_depth(entries - 1) - depth)
                               * (uint64_t) KVR_BLOCK, "case %u: too much", k);

            last = (double) have;
        }
    }
}


static void *
count_in(void *data)
{
    unsigned            i;
    kvr_hot_keys_t      keys;

    (void) data;

    kvr_hot_keys(chain, 64, &keys);

    for (i = 0; i < 5000; i++) {
        kvr_hot_add(&hot, &keys, 1000);
    }

    return NULL;
}


TEST(test_hot_together)
{
    unsigned   i;
    pthread_t  thread[4];

    clear();
    util_chain(chain, 7, 64, 0, 64);

    for (i = 0; i < 4; i++) {
        util_check(pthread_create(&thread[i], NULL, count_in, NULL) == 0,
                   "thread");
    }

    for (i = 0; i < 4; i++) {
        (void) pthread_join(thread[i], NULL);
    }

    /* an overtaken change can be lost, but no count is too high */

    util_check(count(64, 1000) <= 20000 && count(64, 1000) >= 10000, "%.1f",
               count(64, 1000));
}
