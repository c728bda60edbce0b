
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_home: the formula compared with its series, shares by weight, the keys
 * that move when a peer joins or leaves, and the effect of a credit on a pick.
 */


#include "util.h"
#include "core/policy/kvr_policy.h"

#include <math.h>


#define KEYS   20000
#define PEERS  16


static util_rng_t  rng;


/* returns the nearest of n peers, named by their indexes */
static uint32_t
nearest(uint64_t key, const uint64_t *name, const uint32_t *weight, uint32_t n)
{
    double    d, least;
    uint32_t  i, best;

    best = n;
    least = INFINITY;

    for (i = 0; i < n; i++) {
        d = kvr_home_distance(key, name[i], weight ? weight[i] : 1);

        if (d < least) {
            least = d;
            best = i;
        }
    }

    return best;
}


static void
names(uint64_t *name, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        name[i] = util_next(&rng);
    }
}


/* half of -ln(1 - u) */
TEST(test_home_formula)
{
    double    d, u, last;
    uint32_t  i;
    uint64_t  key, name;

    util_seed(&rng, "home", 1);

    for (i = 0; i < KEYS; i++) {
        key = util_next(&rng);
        name = util_next(&rng);
        u = (double) (kvr_mix(key, name) >> 11) * 0x1p-53;
        d = kvr_home_distance(key, name, 1);

        ck_assert_double_ge(d, 0);

        if (u < 0.6) {
            ck_assert_double_le(fabs(2 * d + log(1 - u)),
                                0.001 * -log(1 - u) + 1e-15);
        }

        ck_assert_double_eq_tol(kvr_home_distance(key, name, 4), d / 4, 1e-15);
    }

    /* it rises with u, so it keeps the order of u */

    last = -1;

    for (i = 0; i < 1000; i++) {
        u = i / 1000.0;
        u = u / (2 - u);
        d = u * (1 + u * u * (1.0 / 3 + u * u / 5));

        ck_assert_double_gt(d, last);
        last = d;
    }
}


TEST(test_home_shares)
{
    uint32_t  i, count[4] = { 0 };
    uint64_t  name[4];

    static const uint32_t  weight[4] = { 1, 2, 1, 4 };

    util_seed(&rng, "home", 2);
    names(name, 4);

    for (i = 0; i < KEYS; i++) {
        count[nearest(util_next(&rng), name, weight, 4)]++;
    }

    for (i = 0; i < 4; i++) {
        ck_assert_double_eq_tol((double) count[i] / KEYS, weight[i] / 8.0,
                                0.02);
    }
}


/* a removed peer takes its own keys with it, and no others move */
TEST(test_home_moves)
{
    uint32_t  i, before, after, moved;
    uint64_t  key, name[PEERS];

    util_seed(&rng, "home", 3);
    names(name, PEERS);

    moved = 0;

    for (i = 0; i < KEYS; i++) {
        key = util_next(&rng);
        before = nearest(key, name, NULL, PEERS);
        after = nearest(key, name, NULL, PEERS - 1);

        ck_assert(after == before || before == PEERS - 1);
        moved += (after != before);
    }

    ck_assert_double_eq_tol((double) moved / KEYS, 1.0 / PEERS, 0.01);
}


typedef struct {
    kvr_policy_request_t  req;
    kvr_home_t            home;
    kvr_home_peer_t       peer[PEERS];
    kvr_candidate_t       cand[PEERS];
    uint32_t              n;
    uint32_t              first, second;   /* the homes */
} fleet_t;


/* idle peers without any part of a prompt of 32 KB */
static void
fleet(fleet_t *f, uint64_t seed, uint32_t n)
{
    double    d, least, next;
    uint32_t  i;

    util_seed(&rng, "home", seed);
    memset(f, 0, sizeof(fleet_t));


    f->n = n;
    f->home.key = util_next(&rng);
    f->home.credit = KVR_HOME_CREDIT;
    f->home.peer = f->peer;

    f->req.policy = KVR_POLICY_KV_CACHE;
    f->req.bytes = 32768;
    f->req.random = util_next(&rng);
    f->req.parsed = 1;
    f->req.home = &f->home;

    least = INFINITY;
    next = INFINITY;

    for (i = 0; i < n; i++) {
        f->peer[i].hash = util_next(&rng);
        f->peer[i].weight = 1;
        f->cand[i].weight = 1;
        f->cand[i].place = i;
        f->cand[i].idle = (uint32_t) util_below(&rng, 100);

        d = kvr_home_distance(f->home.key, f->peer[i].hash, 1);

        if (d < least) {
            f->second = f->first;
            next = least;
            f->first = i;
            least = d;

        } else if (d < next) {
            f->second = i;
            next = d;
        }
    }
}


static uint32_t
pick(fleet_t *f, kvr_reason_e reason)
{
    kvr_decision_t  d;

    kvr_policy_pick(&f->req, f->cand, f->n, &d);

    ck_assert_int_eq(d.reason, reason);

    /* a credit is no match: it predicts nothing */

    ck_assert_uint_eq(d.matched, f->cand[d.pick].matched);

    return d.pick;
}


/* two hosts see different loads and caches, and still agree */
TEST(test_home_pick)
{
    uint32_t  i, other;
    uint64_t  seed;
    fleet_t   f;

    for (seed = 1; seed < 200; seed++) {
        fleet(&f, seed, 2 + seed % (PEERS - 1));

        ck_assert_uint_eq(pick(&f, KVR_REASON_HOME), f.first);

        /* a few requests are no reason to leave the home */

        for (i = 0; i < f.n; i++) {
            f.cand[i].active = (uint32_t) util_below(&rng, 3);
        }

        ck_assert_uint_eq(pick(&f, KVR_REASON_HOME), f.first);

        /* a queue is; then all hosts choose the same other peer */

        f.cand[f.first].active = 0;
        f.cand[f.first].pending = 60000;

        ck_assert_uint_eq(pick(&f, KVR_REASON_HOME), f.second);

        f.cand[f.first].pending = 0;

    /* leaving it out has the same effect */

        f.cand[f.first].unhealthy = 1;

        ck_assert_uint_eq(pick(&f, KVR_REASON_HOME), f.second);

        f.cand[f.first].unhealthy = 0;

        /* a peer that is known to have nearly all is better than a guess */

        other = (f.first + 1) % f.n;
        f.cand[other].matched = 32000;

        ck_assert_uint_eq(pick(&f, KVR_REASON_AFFINITY), other);

        /* a peer with a small part is not */

        f.cand[other].matched = 2048;

        ck_assert_uint_eq(pick(&f, KVR_REASON_HOME), f.first);
    }
}


/* a credit of 0 changes nothing, a small one decides ties only */
TEST(test_home_small)
{
    uint32_t  i;
    uint64_t  seed;
    fleet_t   f;

    for (seed = 1; seed < 100; seed++) {
        fleet(&f, seed, PEERS);

        f.home.credit = 0.02;

        ck_assert_uint_eq(pick(&f, KVR_REASON_HOME), f.first);

        f.cand[f.first].active = 1;

        ck_assert_uint_ne(pick(&f, KVR_REASON_HOME), f.first);

        f.cand[f.first].active = 0;
        f.req.home = NULL;

        for (i = 0; i < f.n; i++) {
            f.cand[i].idle = i;
        }

        ck_assert_uint_eq(pick(&f, KVR_REASON_COLD), f.n - 1);
    }
}
