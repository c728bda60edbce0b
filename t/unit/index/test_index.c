
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_index in one process: results of look-ups with keys, gaps, masks and
 * capacities, also after months.
 */


#include "index.h"


/* keys that have another meaning in a line */
TEST(test_index_keys)
{
    unsigned  i;

    static const uint64_t  keys[] = {
        0, 1, 2, 3, UINT32_MAX - 1, UINT32_MAX, 1ULL << 32, (1ULL << 32) + 1,
        UINT64_MAX, UINT64_MAX - 1, 1ULL << 63
    };

    table(64, 2, LARGE);

    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        table(64, 2, LARGE);

        util_check(lookup(&keys[i], 1, 0) == 0, "%u is there", i);
        (void) learn(&keys[i], 1, 0, 0);
        util_check(lookup(&keys[i], 1, 0) == 1, "%u is not there", i);
        (void) learn(&keys[i], 1, 1, 0);
        util_check(lookup(&keys[i], 1, 0) == 1 && matched[1] == 1, "%u", i);
    }
}


TEST(test_index_size)
{
    size_t       size;
    uint64_t     n;
    util_rng_t   r;
    uint64_t     c[40];
    unsigned     i, k;

    static const uint64_t  lines[] = { 4, 8, 12, 20, 100, 1000, 1028, 99996 };

    util_check(kvr_index_lines(0, KVR_PEERS_FEW) == 0, "no room");
    util_check(kvr_index_lines(kvr_index_size(4, KVR_PEERS_FEW) - 1,
                               KVR_PEERS_FEW)
               == 0, "no room for 4");

    for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        n = lines[i];
        size = kvr_index_size(n, KVR_PEERS_FEW);

        util_check(kvr_index_lines(size, KVR_PEERS_FEW) == n, "%llu lines",
                   (unsigned long long) n);
        util_check(kvr_index_lines(size - 1, KVR_PEERS_FEW) < n, "%llu lines",
                   (unsigned long long) n);
    }

    util_seed(&r, "index size", 0);

    for (i = 0; i < 1000; i++) {
        size = util_next(&r) >> (34 + util_below(&r, 20));
        n = kvr_index_lines(size, KVR_PEERS_FEW);

        util_check(n % KVR_INDEX_WAYS == 0, "%zu bytes", size);
        util_check(n == 0 || kvr_index_size(n, KVR_PEERS_FEW) <= size, "%zu bytes", size);
        util_check(kvr_index_size(n + KVR_INDEX_WAYS, KVR_PEERS_FEW) > size,
                   "%zu bytes",
                   size);
    }

    /* 16 MB is a quarter of a million lines, of 66 bytes each */

    util_check(kvr_index_lines(16 << 20, KVR_PEERS_FEW) > 254000, "16m");

    /* any number of lines works, and nothing is written after the table */

    for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {

        table(lines[i], 16, LARGE);

        for (k = 0; k < util_cases(500); k++) {
            chain(c, util_below(&r, 200), 0, 40);
            (void) learn(c, 1 + util_below(&r, 40), util_below(&r, 16),
                         util_below(&r, 3));
            (void) lookup(c, 40, 0);
        }

        util_check(ix->hand > 0, "no sweep");
    }
}


/* a deep cached block proves the blocks before it */
TEST(test_index_holes)
{
    uint32_t           i, k, n, w, lost, before, after, strict;
    uint64_t           c[2320], sum_before, sum_after, sum_strict;
    util_rng_t         r;
    kvr_index_line_t  *line;

    sum_before = 0;
    sum_after = 0;
    sum_strict = 0;
    lost = 0;

    for (i = 0; i < util_cases(60); i++) {

        util_seed(&r, "index holes", i);

        table(200000, 2, LARGE);

        n = 1 + util_below(&r, i % 4 ? 300 : 2320);
        chain(c, util_next(&r), 0, n);
        (void) learn(c, n, 0, 0);

        before = lookup(c, n, 0);
        util_check(before == kvr_chain_depth(n - 1), "%u of %u", before, n);

        /* one line in fifty is lost */

        strict = 0;

        for (k = 0; k < n; k++) {
            line = &ix->line[kvr_reduce(c[k], ix->nbuckets) * KVR_INDEX_WAYS];

            for (w = 0; w < KVR_INDEX_WAYS && line->key
                 != (c[k] & ~1ULL); w++) {
                line++;
            }

            util_check(w < KVR_INDEX_WAYS, "entry %u was not inserted", k);

            if (util_below(&r, 50) == 0) {
                lose(line);
                lost++;

            } else if (strict == k) {
                strict = k + 1;
            }
        }

        after = lookup(c, n, 0);

        util_check(after <= before, "%u, was %u", after, before);
        util_check(matched[1] == 0, "the other peer");

        sum_before += before;
        sum_after += after;
        sum_strict += strict ? kvr_chain_depth(strict - 1) : 0;
    }

    if (i < 50) {
        return;
    }

    util_check(lost > 300, "only %u entries were lost", lost);
    util_check(sum_after > sum_before * 0.998, "%.4f of the match is left",
               (double) sum_after / (double) sum_before);

    /* check: the strict rule gives less */

    util_check(sum_strict < sum_before * 0.4, "%.4f by the strict rule",
               (double) sum_strict / (double) sum_before);
}


/* this many absent entries in a row end a look-up */
TEST(test_index_gap)
{
    uint32_t  gap, k;
    uint64_t  c[200];

    for (gap = 1; gap < 80; gap++) {

        table(4096, 1, LARGE);
        chain(c, gap, 0, 200);
        (void) learn(c, 200, 0, 0);

        for (k = 20; k < 20 + gap; k++) {
            lose(find(c[k]));
        }

        k = lookup(c, 200, 0);
        util_check(k == (gap < 16 ? kvr_chain_depth(199) : 20), "a gap of %u: %u", gap, k);

        /* for an unknown prompt the look-up ends as early */

        chain(c, 1000 + gap, 0, 200);
        util_check(lookup(c, 200, 0) == 0, "unknown");
    }
}


/* a prompt is evicted from its end, unit by unit */
TEST(test_index_tail)
{
    uint32_t  k, n, got, expect, units, last;
    uint64_t  c[300];

    static const uint32_t  sizes[] = { 1, 2, 32, 64, 100, 200 };

    for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {

        table(65536, 2, 1500);

        n = sizes[k];
        units = kvr_chain_depth(n - 1);
        chain(c, n, 0, n);

        compute(0, 3000);
        (void) learn(c, n, 0, 0);
        (void) learn(c, n, 1, 0);

        last = units;

    /* units younger than 1500 are cached, the tail by its depth */

        for (expect = 1500; expect; expect--) {
            got = lookup(c, n, 0);

            while (last && last > expect) {

                /* units to the previous entry */

                last = kvr_chain_entries(last - 1);
                last = last ? kvr_chain_depth(last - 1) : 0;
            }

            util_check(got == last, "%u units left: %u, not %u", expect, got,
                       last);
            util_check(matched[1] == units, "the other peer: %u", matched[1]);

            compute(0, 1);
        }

        util_check(lookup(c, n, 0) == 0 && matched[1] == units, "gone");
    }
}


TEST(test_index_capacity)
{
    uint32_t  got;
    uint64_t  c[32];

    table(65536, 2, 1000);
    chain(c, 1, 0, 32);

    (void) learn(c, 32, 0, 0);
    compute(0, 900);

    /* after 900 units the first 32 are cached */

    util_check(lookup(c, 32, 0) == 32, "after it was computed");

    /* a smaller capacity forgets at once, a larger one finds them again */

    kvr_index_capacity(ix, 0, 916, KVR_INDEX_ASSUMED);
    util_check((got = lookup(c, 32, 0)) == 16, "916: %u", got);
    kvr_index_capacity(ix, 0, 901, KVR_INDEX_ASSUMED);
    util_check((got = lookup(c, 32, 0)) == 1, "901: %u", got);
    kvr_index_capacity(ix, 0, 900, KVR_INDEX_ASSUMED);
    util_check((got = lookup(c, 32, 0)) == 0, "900: %u", got);
    kvr_index_capacity(ix, 0, 925, KVR_INDEX_ASSUMED);
    util_check((got = lookup(c, 32, 0)) == 25, "925: %u", got);
    kvr_index_capacity(ix, 0, 5000, KVR_INDEX_REPORTED);
    util_check((got = lookup(c, 32, 0)) == 32, "5000: %u", got);

    /* only this peer's */

    (void) learn(c, 32, 1, 0);
    kvr_index_capacity(ix, 0, 10, KVR_INDEX_ASSUMED);
    (void) lookup(c, 32, 0);
    util_check(matched[0] == 0 && matched[1] == 32, "%u %u", matched[0],
               matched[1]);

    /* out of range */

    kvr_index_capacity(ix, 0, 0, KVR_INDEX_ASSUMED);
    util_check(kvr_index_peer(ix, 0)->capacity == 1, "0");
    kvr_index_capacity(ix, 0, UINT64_MAX, KVR_INDEX_ASSUMED);
    util_check(kvr_index_peer(ix, 0)->capacity == LARGE, "too large");
    kvr_index_capacity(ix, 0, (1ULL << 32) + 5, KVR_INDEX_ASSUMED);
    util_check(kvr_index_peer(ix, 0)->capacity == LARGE, "2^32 and some");

    /* a cache smaller than the prompt has its head */

    kvr_index_flush(ix, 0);
    kvr_index_capacity(ix, 0, 30, KVR_INDEX_ASSUMED);
    (void) learn(c, 32, 0, 0);
    util_check((got = lookup(c, 32, 0)) == 30, "30: %u", got);
}


/* a hit ages the others by its own age if the capacity is reported */
TEST(test_index_hits)
{
    uint64_t  before, moved, c[32];

    table(65536, 2, 1000);
    chain(c, 1, 0, 32);

    (void) learn(c, 32, 0, 0);
    compute(0, 500);

    /* assumed capacity: a hit counts as one unit, so that stamps differ */

    before = kvr_index_peer(ix, 0)->clock;
    (void) learn(c, 32, 0, 32);
    util_check(kvr_index_peer(ix, 0)->clock == before + (1 << FRACTION), "assumed");

    /* reported: 32 units of age 500 of 1000 are half of 16 */

    compute(0, 499);
    kvr_index_capacity(ix, 0, 1000, KVR_INDEX_REPORTED);

    before = kvr_index_peer(ix, 0)->clock;
    (void) learn(c, 32, 0, 32);
    moved = (kvr_index_peer(ix, 0)->clock - before) * 100 >> FRACTION;
    util_check(moved > 700 && moved < 1000, "%llu / 100 units",
               (unsigned long long) moved);

    /* at once again: nothing, except for half of its own length */

    before = kvr_index_peer(ix, 0)->clock;
    (void) learn(c, 32, 0, 32);
    moved = (kvr_index_peer(ix, 0)->clock - before) * 100 >> FRACTION;
    util_check(moved <= 130, "%llu / 100 units", (unsigned long long) moved);

    /* new units count fully, and age only up to the capacity */

    kvr_index_capacity(ix, 0, 50, KVR_INDEX_REPORTED);
    compute(0, 5000);
    before = kvr_index_peer(ix, 0)->clock;
    (void) learn(c, 32, 0, 20);
    moved = (kvr_index_peer(ix, 0)->clock - before) >> FRACTION;
    util_check(moved >= 12 && moved <= 22, "%llu units",
               (unsigned long long) moved);
}


/* more holders than slots in a line */
TEST(test_index_mask)
{
    unsigned  i, k, n;
    uint64_t  c[3];

    static const unsigned  sizes[] = { 8, 9, 16, 32, 64 };

    for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {

        n = sizes[k];
        util_note("%u peers", n);

        table(4096, 64, 100000);
        chain(c, n, 0, 3);

        for (i = 0; i < n; i++) {
            (void) learn(c, 3, i, 0);

            (void) lookup(c, 3, 0);
            util_check(matched[i] == 3 && matched[0] == 3, "peer %u", i);
        }

        for (i = 0; i < 64; i++) {
            util_check(matched[i] == (i < n ? 3 : 0), "peer %u: %u", i,
                       matched[i]);
        }

        util_check(bits(find(c[0])->mask) == (n > 8 ? n - 8 : 0), "mask");

        /* inserted many times by any of them: all have it all the time */

        for (i = 0; i < 5 * n; i++) {
            (void) learn(c, 3, i * 7 % n, 3);
            (void) lookup(c, 3, 0);

            util_check(matched[(i * 13 + 5) % n] == 3, "%u", i);
        }

        /* one restarts: it alone is out, whatever the others do then */

        for (i = 0; i < n; i += 3) {
            kvr_index_flush(ix, i);
        }

        for (i = 0; i < 5 * n; i++) {
            if (i % n % 3) {
                (void) learn(c, 3, i % n, 3);
            }
        }

        (void) lookup(c, 3, 0);

        for (i = 0; i < n; i++) {
            util_check(matched[i] == (i % 3 ? 3 : 0), "flushed %u: %u", i,
                       matched[i]);
        }

        /* and in again when it has computed it; the others stay in */

        for (i = 0; i < n; i += 3) {
            (void) learn(c, 3, i, 0);
            (void) lookup(c, 3, 0);
            util_check(matched[i] == 3, "back %u", i);
        }

        for (i = 0; i < 5 * n; i++) {
            (void) learn(c, 3, i % n, 3);
        }

        (void) lookup(c, 3, 0);

        for (i = 0; i < n; i++) {
            util_check(matched[i] == 3, "at last %u: %u", i, matched[i]);
        }
    }
}


/*
 * A holder without a stamp is forgotten too: after one to two turns of a
 * cache, even if others keep the block in use.
 */
TEST(test_index_mask_expiry)
{
    unsigned  i, k, round, n, held;
    uint64_t  c[2];

    for (k = 0; k < 3; k++) {

        n = 32;
        util_note("kind %u", k);

        table(65536, 64, 2000);
        chain(c, k, 0, 2);

        /* kind 2: these come after the table was in use for long */

        if (k == 2) {
            for (i = 32; i < 64; i++) {
                compute(i, 100000);
            }

            for (i = 0; i < n; i++) {
                kvr_index_flush(ix, i);
            }
        }

        for (i = 0; i < n; i++) {
            (void) learn(c, 2, i, 0);
        }

        /* half of them continue the block, half compute other things */

        for (round = 0; round < 5 * 20; round++) {

            for (i = 0; i < n; i++) {
                compute(i, 100);

                if (i < 16) {
                    (void) learn(c, 2, i, lookup(c, 2, i));
                }
            }

            (void) lookup(c, 2, 0);
            held = 0;

            for (i = 16; i < n; i++) {
                held += (matched[i] != 0);
            }

            /* after half a turn all have it, after two turns none */

            util_check(round > 8 || held == 16, "round %u: %u still hold it",
                       round, held);
            util_check(round < 41 || held == 0, "round %u: %u still hold it",
                       round, held);

        /* peers that use it have it, except when a mask is restarted */

            held = 0;

            for (i = 0; i < 16; i++) {
                held += (matched[i] != 0);
            }

            util_check(held >= 9, "round %u: %u of its users hold it", round,
                       held);
        }
    }
}


/* after months stamps and masks do not repeat */
TEST(test_index_uptime)
{
    unsigned  i, k;
    uint64_t  c[4], d[4], e[4];

    table(256, 20, 100000);
    chain(c, 1, 0, 4);
    chain(d, 2, 0, 4);

    (void) learn(c, 4, 0, 0);

    for (i = 0; i < 20; i++) {
        (void) learn(d, 4, i, 0);
    }

    (void) lookup(d, 4, 0);
    util_check(matched[0] && matched[19], "learned");

    /* 2^33 units in strides, with a pass over the table in each */

    for (k = 0; k < 64; k++) {

        for (i = 0; i < 20; i++) {
            kvr_index_peer(ix, i)->clock += (1ULL << 27) << FRACTION;
        }

        ix->clock += 20ULL << 27;

        sweep(k % 20);

        (void) lookup(c, 4, 0);

        for (i = 0; i < 20; i++) {
            util_check(matched[i] == 0, "stride %u: peer %u", k, i);
        }

        (void) lookup(d, 4, 0);

        for (i = 0; i < 20; i++) {
            util_check(matched[i] == 0, "stride %u: masked peer %u", k, i);
        }

        /* fresh ones always count, also masked ones */

        chain(e, 100 + k, 0, 4);

        for (i = 0; i < 20; i++) {
            (void) learn(e, 4, i, 0);
        }

        (void) lookup(e, 4, 0);

        for (i = 0; i < 20; i++) {
            util_check(matched[i] == 4, "stride %u: peer %u lost", k, i);
        }
    }

    /* a peer that does nothing while the others do all this */

    table(256, 20, LARGE);
    (void) learn(c, 4, 0, 0);

    for (k = 0; k < 64; k++) {
        ix->clock += 20ULL << 27;
        (void) learn(c, 4, 0, 4);
        sweep(1);
        util_check(lookup(c, 4, 0) == 4, "stride %u: lost", k);
    }

    /* a restart long ago still counts */

    table(256, 2, LARGE);
    compute(0, 5000);
    kvr_index_flush(ix, 0);

    for (k = 0; k < 40; k++) {
        kvr_index_peer(ix, 0)->clock += (1ULL << 28) << FRACTION;
        (void) learn(c, 4, 0, 0);
        util_check(lookup(c, 4, 0) == 4, "stride %u: lost", k);
    }
}
