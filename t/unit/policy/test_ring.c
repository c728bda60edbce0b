
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_ring: shares by weight, keys that move when a peer is added or removed,
 * and where a key goes if its peer has no room.
 */


#include "util.h"
#include "core/policy/kvr_ring.h"


#define MAX_PEERS  65
#define KEYS       40000


typedef struct {
    kvr_ring_t       ring;
    kvr_ring_peer_t  peer[MAX_PEERS];
    uint32_t         n;
    int              room[MAX_PEERS];
    uint64_t         seen[2];
} fleet_t;


static void
build(fleet_t *f, const uint32_t *weight, uint32_t n)
{
    uint32_t  i, size;

    for (i = 0; i < n; i++) {
        f->peer[i].hash = util_mix(i + 1, 77);
        f->peer[i].weight = weight ? weight[i] : 1;
        f->room[i] = 1;
    }

    f->n = n;
    size = kvr_ring_size(f->peer, n);

    /* exactly as many points as announced */

    f->ring.point = malloc(size * sizeof(kvr_ring_point_t));

    kvr_ring_build(&f->ring, f->peer, n);

    util_check(f->ring.n == size, "%u points, not %u", f->ring.n, size);
}


static int
room(void *data, uint32_t place)
{
    fleet_t  *f = data;

    util_check(place < f->n, "place %u", place);

    return f->room[place];
}


static uint32_t
pick(fleet_t *f, uint64_t key, uint32_t *first)
{
    uint32_t  unused;

    memset(f->seen, 0xff, sizeof(f->seen));

    return kvr_ring_pick(&f->ring, key, f->n, f->seen, room, f,
                         first ? first : &unused);
}


static uint64_t
key(uint32_t i)
{
    return util_mix(i, 4711);
}


TEST(test_ring_shares)
{
    size_t    k;
    double    share, want;
    fleet_t   f;
    uint32_t  i, total;
    unsigned  count[MAX_PEERS];

    static const struct {
        uint32_t  n;
        uint32_t  weight[8];
        uint32_t  points;
    } cases[] = {
        { 1, { 1 }, 160 },
        { 1, { 50 }, 160 },
        { 2, { 1, 1 }, 320 },
        { 2, { 100, 200 }, 480 },
        { 3, { 1, 2, 5 }, 1280 },
        { 4, { 3, 3, 3, 3 }, 640 },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 9 }, 2560 }
    };

    for (k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {

        build(&f, cases[k].weight, cases[k].n);

        util_check(f.ring.n == cases[k].points, "case %zu: %u points", k,
                   f.ring.n);

        memset(count, 0, sizeof(count));
        total = 0;

        for (i = 0; i < KEYS; i++) {
            count[pick(&f, key(i), NULL)]++;
        }

        for (i = 0; i < f.n; i++) {
            total += f.peer[i].weight;
        }

        for (i = 0; i < f.n; i++) {
            share = (double) count[i] / KEYS;
            want = (double) f.peer[i].weight / total;

            util_check(share > 0.7 * want && share < 1.35 * want,
                       "case %zu: %u has %.3f, not %.3f", k, i, share, want);
        }

        free(f.ring.point);
    }
}


TEST(test_ring_moves)
{
    fleet_t   f, g;
    uint32_t  i, n, a, b, moved;

    static const uint32_t  sizes[] = { 1, 2, 3, 4, 8, 16, 64 };

    for (n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {

        build(&f, NULL, sizes[n]);
        build(&g, NULL, sizes[n] + 1);

        moved = 0;

        for (i = 0; i < KEYS; i++) {
            a = pick(&f, key(i), NULL);
            b = pick(&g, key(i), NULL);

            util_check(a == b || b == sizes[n], "from %u to %u", a, b);
            moved += (a != b);
        }

        util_check(moved > 0.7 * KEYS / (sizes[n] + 1)
                   && moved < 1.35 * KEYS / (sizes[n] + 1),
                   "%u to one more: %u moved", sizes[n], moved);

        free(f.ring.point);
        free(g.ring.point);
    }
}


TEST(test_ring_order)
{
    fleet_t          f, g;
    uint32_t         i, k;
    kvr_ring_peer_t  t;

    static const uint32_t  weight[] = { 1, 2, 5, 1, 3 };

    /* the same peers in another order have the same keys */

    build(&f, weight, 5);
    build(&g, weight, 5);
    free(g.ring.point);

    for (i = 0; i < 2; i++) {
        t = g.peer[i];
        g.peer[i] = g.peer[4 - i];
        g.peer[4 - i] = t;
    }

    g.ring.point = malloc(f.ring.n * sizeof(kvr_ring_point_t));
    kvr_ring_build(&g.ring, g.peer, 5);

    for (i = 0; i < KEYS; i++) {
        k = pick(&f, key(i), NULL);
        util_check(pick(&g, key(i), NULL) == 4 - k, "key %u", i);
    }

    free(f.ring.point);
    free(g.ring.point);
}


TEST(test_ring_room)
{
    fleet_t   f;
    uint32_t  i, k, home, first, second;
    unsigned  count[8] = { 0 };

    build(&f, NULL, 8);

    for (i = 0; i < KEYS; i++) {
        home = pick(&f, key(i), &first);
        util_check(home == first, "it is its own home");

        /* no room: the next one, always the same */

        f.room[home] = 0;
        second = pick(&f, key(i), &first);

        util_check(second != home && first == home, "%u %u %u", home, second,
                   first);
        util_check(pick(&f, key(i), NULL) == second, "another second");

        if (home == 3) {
            count[second]++;
        }

        /* not there at all: that one's keys belong to the second */

        f.room[home] = -1;
        util_check(pick(&f, key(i), &first) == second && first == second,
                   "not there");

        f.room[second] = 0;
        k = pick(&f, key(i), &first);
        util_check(k != home && k != second && first == second, "a third");

        f.room[home] = f.room[second] = 1;
    }

    /* overflow goes to several peers, not to one neighbour */

    for (i = 0; i < 8; i++) {
        util_check((i == 3) == (count[i] == 0), "%u got %u", i, count[i]);
    }

    /* no peer has room, or there is none */

    for (i = 0; i < 8; i++) {
        f.room[i] = 0;
    }

    home = pick(&f, key(1), &first);
    util_check(home == 8 && first < 8, "%u %u", home, first);

    for (i = 0; i < 8; i++) {
        f.room[i] = -1;
    }

    home = pick(&f, key(1), &first);
    util_check(home == 8 && first == 8, "%u %u", home, first);

    free(f.ring.point);

    /* more peers than bits of a word; the ends of the ring */

    build(&f, NULL, MAX_PEERS);

    for (i = 0; i < MAX_PEERS; i++) {
        f.room[i] = (i == 64);
    }

    util_check(pick(&f, 0, NULL) == 64, "the last one, from 0");
    util_check(pick(&f, UINT64_MAX, NULL) == 64, "the last one, from the end");

    free(f.ring.point);
}


TEST(test_ring_bound)
{
    size_t    i;
    uint32_t  n;

    static const struct {
        uint64_t  total;
        uint32_t  weight;
        uint64_t  weights;
        double    factor;
        uint32_t  floor;
        uint32_t  bound;
    } cases[] = {
        { 0, 1, 4, 1.25, 4, 4 },
        { 12, 1, 4, 1.25, 4, 5 },        /* 4.06 */
        { 15, 1, 4, 1.25, 4, 5 },        /* 5 */
        { 16, 1, 4, 1.25, 4, 6 },        /* 5.31 */
        { 63, 1, 4, 1.25, 4, 20 },
        { 64, 1, 4, 1.25, 4, 21 },       /* 20.31 */
        { 79, 5, 8, 1.25, 4, 63 },       /* 62.5 */
        { 79, 1, 8, 1.25, 4, 13 },
        { 0, 1, 1, 1, 0, 1 },
        { 99, 1, 1, 1, 4, 100 },         /* one peer takes all */
        { 3, 1, 4, 1000, 4, 1000 }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        n = kvr_ring_bound(cases[i].total, cases[i].weight, cases[i].weights,
                           cases[i].factor, cases[i].floor);
        util_check(n == cases[i].bound, "case %zu: %u, not %u", i, n,
                   cases[i].bound);
    }
}


/* a hot key: the bounds leave room for all, whatever the factor and weights */
TEST(test_ring_fill)
{
    fleet_t     f;
    double      factor;
    uint32_t    i, k, n, c, total, weights, weight[8], active[8];
    util_rng_t  r;

    for (c = 0; c < util_cases(200); c++) {

        util_seed(&r, "ring fill", c);
        n = 1 + util_below(&r, 8);
        factor = 1 + util_below(&r, 100) / 100.0;
        weights = 0;

        for (i = 0; i < n; i++) {
            weight[i] = 1 + util_below(&r, 5);
            weights += weight[i];
            active[i] = 0;
        }

        build(&f, weight, n);

        for (total = 0; total < 300; total++) {

            for (i = 0; i < n; i++) {
                f.room[i] = active[i] < kvr_ring_bound(total, weight[i],
                                                       weights, factor, 4);
            }

            k = pick(&f, key(c), NULL);

            util_check(k < n, "no room at %u of %u, factor %.2f", total, n,
                       factor);
            active[k]++;
        }

        free(f.ring.point);
    }
}


/* absurd weights, with which a ring must stay small */
TEST(test_ring_large)
{
    uint32_t         i, size, large;
    kvr_ring_t       ring;
    kvr_ring_peer_t  peer[3];

    static const uint32_t  weights[][3] = {
        { 4095, 1, 0 }, { 65535, 1, 0 }, { 20000000, 20000001, 1 },
        { 4294967295U, 4294967294U, 1 }
    };

    for (i = 0; i < 4; i++) {

        for (size = 0; size < 3; size++) {
            peer[size].hash = key(size);
            peer[size].weight = weights[i][size];
        }

        size = kvr_ring_size(peer, weights[i][2] ? 3 : 2);

        util_check(size <= KVR_RING_UNITS * KVR_RING_POINTS + 3, "case %u: %u",
                   i, size);

        ring.point = malloc(size * sizeof(kvr_ring_point_t));
        kvr_ring_build(&ring, peer, weights[i][2] ? 3 : 2);

        util_check(ring.n == size, "case %u: %u points", i, ring.n);

        for (large = 0; size; size--) {
            large += ring.point[size - 1].place == 0;
        }

        util_check(large >= ring.n / 2 - 2 && large < ring.n,
                   "case %u: %u are the first one's", i, large);

        free(ring.point);
    }
}
