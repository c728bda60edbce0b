
/*
 * Copyright (C) kvroute contributors
 */


/* Compares each operation of kvr_set with an array of flags, one per peer. */


#include "util.h"


static void
fill(util_rng_t *r, kvr_set_t *s, uint8_t *has)
{
    uint32_t  i, part;

    *s = kvr_set_none();
    part = util_below(r, 5);

    for (i = 0; i < KVR_PEERS; i++) {
        has[i] = part == 4 ? i < KVR_PEERS / 2 : util_below(r, 4) < part;

        if (has[i]) {
            kvr_set_add(s, i);
        }
    }
}


static void
same(const char *what, kvr_set_t s, const uint8_t *has)
{
    uint32_t   i, peer, n, run, words;
    kvr_set_t  left;

    left = s;

    for (i = 0, n = 0; i < KVR_PEERS; i++) {
        util_check(kvr_set_test(&s, i) == has[i], "%s: %u", what, i);
        n += has[i];

        if (has[i]) {
            util_check(kvr_set_next(&left, &peer) && peer == i, "%s: next",
                       what);
        }
    }

    util_check(!kvr_set_next(&left, &peer), "%s: no next", what);
    util_check(kvr_set_empty(&s, KVR_SET_WORDS) == (n == 0), "%s: empty", what);

    for (run = 0; run < n && has[run]; run++) { /* void */ }

    util_check(kvr_set_run(&s, KVR_SET_WORDS) == (run == n ? n : 0), "%s: run",
               what);

    /* only the first words */

    for (words = 1; words < KVR_SET_WORDS; words++) {

        for (i = 0, n = 0; i < words * 64; i++) {
            n += has[i];
        }

        util_check(kvr_set_empty(&s, words) == (n == 0), "%s: empty %u", what,
                   words);
        util_check(kvr_set_run(&s, words) == (kvr_min(run, words * 64) == n
                                              ? n : 0),
                   "%s: run %u", what, words);
    }
}


TEST(test_set_all)
{
    uint8_t      a[KVR_PEERS], b[KVR_PEERS], c[KVR_PEERS];
    uint32_t     i, k, n;
    kvr_set_t    s, t, u;
    util_rng_t   r;

    util_seed(&r, "set", 1);

    for (n = 0; n < 500; n++) {

        fill(&r, &s, a);
        fill(&r, &t, b);

        same("made", s, a);

        for (k = 0; k < 3; k++) {
            for (i = 0; i < KVR_PEERS; i++) {
                c[i] = k == 0 ? a[i] | b[i] : k == 1 ? a[i] & !b[i] : !a[i];
            }

            u = k == 0 ? kvr_set_or(s, t) : k == 1 ? kvr_set_andnot(s, t)
                                                   : kvr_set_not(s);

            same(k == 0 ? "or" : k == 1 ? "andnot" : "not", u, c);
        }

        i = util_below(&r, KVR_PEERS);
        a[i] = 0;
        kvr_set_del(&s, i);
        same("del", s, a);

        a[i] = 1;
        kvr_set_add(&s, i);
        same("add", s, a);

        memset(c, 0, KVR_PEERS);
        c[i] = 1;
        same("of", kvr_set_of(i), c);

        i = util_below(&r, KVR_PEERS + 1);
        memset(c, 0, KVR_PEERS);
        memset(c, 1, i);
        same("below", kvr_set_below(i), c);
    }
}
