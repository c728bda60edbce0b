
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests the mix of the chain: the chains of almost equal prompts must have
 * nothing in common.  By chance, 64-bit values collide in one of 3 * 10^7 runs
 * of these tests.
 */


#include "util.h"


#define VALUES  1000000


static int
compare(const void *a, const void *b)
{
    uint64_t  x, y;

    x = *(const uint64_t *) a;
    y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}


/* Sorts values and returns the number of duplicates. */
static size_t
twice(uint64_t *v, size_t n)
{
    size_t  i, found;

    qsort(v, n, sizeof(uint64_t), compare);

    found = 0;

    for (i = 1; i < n; i++) {
        found += (v[i] == v[i - 1]);
    }

    return found;
}


/*
 * Returns the chi-square of the number of set bits in n values, over 64 bits:
 * expected 64, standard deviation 11.3.
 */
static double
balance(const uint64_t *v, size_t n)
{
    int     bit;
    double  chi, d;
    size_t  i, set;

    chi = 0;

    for (bit = 0; bit < 64; bit++) {
        set = 0;

        for (i = 0; i < n; i++) {
            set += v[i] >> bit & 1;
        }

        d = (double) set - (double) n / 2;
        chi += d * d / ((double) n / 4);
    }

    return chi;
}


static uint64_t *
values(size_t n)
{
    uint64_t  *v;

    v = malloc(n * sizeof(uint64_t));

    if (v == NULL) {
        abort();
    }

    return v;
}


TEST(test_mix_reference)
{
    unsigned    i;
    uint64_t    a, b;
    util_rng_t  r;

    util_seed(&r, "mix reference", 0);

    for (i = 0; i < 100000; i++) {
        a = util_next(&r) >> util_below(&r, 64);
        b = util_next(&r) >> util_below(&r, 64);

        util_check(kvr_mix(a, b) == util_mix(a, b), "%llx, %llx",
                   (unsigned long long) a, (unsigned long long) b);
    }

    util_check(kvr_mix(0, 1) != kvr_mix(1, 0), "order");
}


/* equal blocks in a row: no cycle, no fixed point */
TEST(test_mix_equal_blocks)
{
    size_t    i, k;
    uint64_t  h, d, *v;
    uint8_t   block[KVR_BLOCK];

    v = values(VALUES);
    memset(block, ' ', sizeof(block));

    for (k = 0; k < 10; k++) {

        util_note("block %zu", k);

        block[0] = (uint8_t) k;
        d = util_digest(block, KVR_BLOCK);
        h = k;

        for (i = 0; i < VALUES / 10; i++) {
            h = kvr_mix(h, d);
            v[k * (VALUES / 10) + i] = h;
        }
    }

    util_check(balance(v, VALUES) < 64 + 8 * 11.3, "bits: %g",
               balance(v, VALUES));
    util_check(twice(v, VALUES) == 0, "a short cycle");

    free(v);
}


/* prompts of four blocks that differ slightly */
TEST(test_mix_near)
{
    size_t     n, i, k, bit, a, b;
    uint64_t   d[8], e[8], h, *v;
    uint8_t    block[8][KVR_BLOCK], t;

    v = values(VALUES + 100);
    n = 0;

    for (i = 0; i < 8; i++) {
        memset(block[i], 'a', KVR_BLOCK);
        block[i][255] = (uint8_t) ('0' + i);
        d[i] = util_digest(block[i], KVR_BLOCK);
    }

    /* one bit of one block; all later values differ */

    for (i = 0; i < 4; i++) {
        for (bit = 0; bit < KVR_BLOCK * 8; bit++) {

            memcpy(e, d, sizeof(e));
            t = block[i][bit / 8];
            block[i][bit / 8] ^= (uint8_t) (1 << bit % 8);
            e[i] = util_digest(block[i], KVR_BLOCK);
            block[i][bit / 8] = t;

            for (h = 0, k = 0; k < 8; k++) {
                h = kvr_mix(h, e[k]);

                if (k >= i) {
                    v[n++] = h;
                }
            }
        }
    }

    /* truncated: short last blocks */

    for (i = 0; i < 8; i++) {
        for (k = 1; k < KVR_BLOCK; k++) {
            v[n++] = kvr_mix(kvr_mix(0, d[0]), util_digest(block[i], k) + 1);
        }

        /* all begin with the same letters: only these of one block are new */

        if (i) {
            n -= KVR_BLOCK - 1;
        }
    }

    /* every order of the first pairs of eight blocks, and omitted blocks */

    for (a = 0; a < 8; a++) {
        for (b = 0; b < 8; b++) {
            for (i = 0; i < 8; i++) {
                for (k = 0; k < 8; k++) {
                    for (bit = 0; bit < 8; bit++) {
                        h = kvr_mix(kvr_mix(kvr_mix(99, d[a]), d[b]), d[i]);
                        v[n++] = kvr_mix(kvr_mix(h, d[k]), d[bit]);
                    }
                }
            }
        }
    }

    /* small differences of the values */

    for (i = 0; n < VALUES; i++) {
        v[n++] = kvr_mix(d[0] + i / 2, d[1] + (i & 1) * (1ULL << i / 2 % 64));

        /* the values are equal */

        if (i / 2 % 64 == 0 && (i & 1)) {
            n--;
        }
    }

    util_check(balance(v, n) < 64 + 8 * 11.3, "bits: %g", balance(v, n));

    k = twice(v, n);
    util_check(k == 0, "%zu of %zu collide", k, n);

    free(v);
}


/*
 * A flip of any bit of an argument should flip each bit of the result half the
 * time.  One folded multiplication is off by up to 7 % for the lowest and
 * highest bits.  That is harmless: digests never differ in a single bit, and
 * the second step removes it.
 */
TEST(test_mix_avalanche)
{
    int         in, out;
    double      p, d, chi, worst;
    unsigned    i, n, count[64], once[64];
    uint64_t    a, b, c, x, y;
    util_rng_t  r;

    n = 4000;
    chi = 0;
    worst = 0;

    for (in = 0; in < 128; in++) {

        util_seed(&r, "mix avalanche", (uint64_t) in);
        memset(count, 0, sizeof(count));
        memset(once, 0, sizeof(once));

        for (i = 0; i < n; i++) {
            a = util_next(&r);
            b = util_next(&r);
            c = util_next(&r);

            x = kvr_mix(a, b);
            y = in < 64 ? kvr_mix(a ^ 1ULL << in, b)
                        : kvr_mix(a, b ^ 1ULL << (in - 64));

            for (out = 0; out < 64; out++) {
                once[out] += (x ^ y) >> out & 1;
            }

            x = kvr_mix(x, c) ^ kvr_mix(y, c);

            for (out = 0; out < 64; out++) {
                count[out] += x >> out & 1;
            }
        }

        for (out = 0; out < 64; out++) {
            p = (double) once[out] / n;
            worst = kvr_max(worst, p > 0.5 ? p - 0.5 : 0.5 - p);

            d = (double) count[out] - n / 2.0;
            chi += d * d / (n / 4.0);
        }
    }

    /* 8192 pairs of bits: expected 8192, standard deviation 128 */

    util_check(chi < 8192 + 8 * 128, "chi-square %g", chi);
    util_check(chi > 8192 - 8 * 128, "chi-square %g", chi);
    util_check(worst < 0.12, "a pair of bits is off by %g", worst);
}


/* digests that differ only in their low, high or middle bits */
TEST(test_mix_sparse)
{
    size_t    i, k, n;
    uint64_t  h, *v;

    v = values(VALUES);
    n = 0;

    for (k = 0; k < 10; k++) {
        for (i = 0; i < VALUES / 10; i++) {

            /* two steps, as in any chain */

            h = kvr_mix(k, (uint64_t) i << k * 5);
            v[n++] = kvr_mix(h, 12345);

            if (i == 0 && k) {
                n--;
                v[n++] = kvr_mix(kvr_mix(1000 + k, 1), 12345);
            }
        }
    }

    k = twice(v, n);
    util_check(k == 0, "%zu of %zu collide", k, n);

    free(v);
}


/* other sizes, another order or number of sizes give another layout */
TEST(test_mix_layout)
{
    size_t    i, n, size[8];
    uint64_t  v[64];

    for (i = 0; i < 8; i++) {
        size[i] = 64 * (i + 1);
    }

    n = 0;

    for (i = 0; i <= 8; i++) {
        v[n++] = kvr_layout(size, i);
    }

    util_check(kvr_layout(size, 8) == v[8], "the same again");

    for (i = 0; i < 8; i++) {
        size[i] += 8;
        v[n++] = kvr_layout(size, 8);
        size[i] -= 8;
    }

    for (i = 0; i < 7; i++) {
        size[i] += 64;
        size[i + 1] -= 64;
        v[n++] = kvr_layout(size, 8);
        size[i] -= 64;
        size[i + 1] += 64;
    }

    util_check(twice(v, n) == 0, "two layouts have one number");
}
