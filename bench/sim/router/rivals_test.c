/*
 * Picks of the other routers in cases computed by hand from the published
 * formulas; cases with a file's name come from its tests.
 */

#include <check.h>

#include "bench/model/prefix.h"
#include "bench/sim/router/rivals.h"


#define BLOCK  KVS_UNIT_TOKENS


static kvs_rng_t  rng;


static kvs_view_t *
view(uint32_t n)
{
    static kvs_view_t  v[KVS_REPLICAS];

    memset(v, 0, n * sizeof(kvs_view_t));
    kvs_rng_seed(&rng, 1, 2);

    return v;
}


/* counts how often each of n is picked in 1,000 calls */
#define SHARES(n, share, pick)                                                \
    do {                                                                      \
        memset(share, 0, sizeof(share));                                      \
        for (uint32_t i_ = 0; i_ < 1000; i_++) {                              \
            uint32_t  p_ = (pick);                                            \
            ck_assert_uint_lt(p_, n);                                         \
            share[p_]++;                                                      \
        }                                                                     \
    } while (0)


START_TEST(two_choices)
{
    uint32_t     share[4];
    kvs_view_t  *v = view(4);

    v[0].active = 1;
    v[1].active = 2;
    v[2].active = 3;
    v[3].active = 4;

    /* of 6 pairs the first wins 3, the second 2, the third 1 */

    SHARES(4, share, kvs_pick_two_choices(v, 4, &rng));
    ck_assert_uint_gt(share[0], 450);
    ck_assert_uint_lt(share[0], 550);
    ck_assert_uint_gt(share[1], 280);
    ck_assert_uint_lt(share[1], 390);
    ck_assert_uint_eq(share[3], 0);

    ck_assert_uint_eq(kvs_pick_two_choices(v, 1, &rng), 0);
}
END_TEST


START_TEST(sglang_fleet)
{
    kvs_view_t  *v = view(3);
    kvs_gate_t   gate = { 0.3, 64, 1.5 };

    /* 40 of 100 is above the threshold: the tenant, whatever its load */

    v[0].active = 50;
    v[0].matched = 40;
    ck_assert_uint_eq(kvs_pick_sglang_fleet(v, 3, 100, 0, &gate), 0);

    /* 30 of 100 is not */

    v[0].matched = 30;
    ck_assert_uint_eq(kvs_pick_sglang_fleet(v, 3, 100, 0, &gate), 1);

    /* no replica has it: the fewest requests, then the fewest so far */

    v[1].picks = 7;
    ck_assert_uint_eq(kvs_pick_sglang_fleet(v, 3, 100, 3, &gate), 2);

    /* 65 - 0 > 64 and 65 > 1.5 * 0: no affinity at all */

    v[0].active = 65;
    v[0].matched = 100;
    ck_assert_uint_eq(kvs_pick_sglang_fleet(v, 3, 100, 0, &gate), 2);

    v[0].active = 64;
    ck_assert_uint_eq(kvs_pick_sglang_fleet(v, 3, 100, 0, &gate), 0);

    /* 300 - 210 > 64, but 300 < 1.5 * 210 */

    v[0].active = 300;
    v[1].active = 210;
    v[2].active = 210;
    ck_assert_uint_eq(kvs_pick_sglang_fleet(v, 3, 100, 0, &gate), 0);
}
END_TEST


/* Dynamo's two_tier_cost_fn.rs */
START_TEST(two_tier)
{
    kvs_view_t  *v = view(2);
    kvs_gate_t   gate = { 0.5, 32, 1.1 };

    v[1].matched = 6 * BLOCK;
    v[1].active = 4;
    ck_assert_uint_eq(kvs_pick_two_tier(v, 2, 10 * BLOCK, &gate), 1);

    v[1].matched = 5 * BLOCK;
    ck_assert_uint_eq(kvs_pick_two_tier(v, 2, 10 * BLOCK, &gate), 0);

    v[1].matched = 10 * BLOCK;
    v[1].active = 40;
    ck_assert_uint_eq(kvs_pick_two_tier(v, 2, 10 * BLOCK, &gate), 0);

    v[0].active = 640;
    v[1].active = 704;
    ck_assert_uint_eq(kvs_pick_two_tier(v, 2, 10 * BLOCK, &gate), 1);

    v[1].active = 705;
    ck_assert_uint_eq(kvs_pick_two_tier(v, 2, 10 * BLOCK, &gate), 0);

    gate.cache = 0.2;
    v[0].active = 0;
    v[1].active = 4;
    v[1].matched = 3 * BLOCK;
    ck_assert_uint_eq(kvs_pick_two_tier(v, 2, 10 * BLOCK, &gate), 1);
}
END_TEST


START_TEST(sglang_request)
{
    uint32_t     share[4];
    kvs_view_t  *v = view(4);
    kvs_gate_t   gate = { 0.3, 64, 1.5 };

    /* of the holders of the deepest match the one with fewer requests */

    v[1].matched = 50;
    v[2].matched = 50;
    v[3].matched = 49;
    v[1].active = 9;
    v[2].active = 8;
    ck_assert_uint_eq(kvs_pick_sglang_request(v, 4, 100, &gate, &rng), 2);

    /* ties: any */

    v[1].active = 8;
    SHARES(4, share, kvs_pick_sglang_request(v, 4, 100, &gate, &rng));
    ck_assert_uint_gt(share[1], 400);
    ck_assert_uint_gt(share[2], 400);

    /*
     * 100 is above 1.5 * 25 and above 25 + 64: elsewhere.  Another replica
     * that is busy does not matter.
     */

    v[1].matched = 0;
    v[1].active = 0;
    v[2].active = 100;
    ck_assert_uint_ne(kvs_pick_sglang_request(v, 4, 100, &gate, &rng), 2);

    v[1].active = 200;
    ck_assert_uint_eq(kvs_pick_sglang_request(v, 4, 100, &gate, &rng), 2);
}
END_TEST


START_TEST(rings)
{
    uint32_t     i, p, id[4], moved, share[4];
    kvs_ring_t   ring;
    kvs_view_t  *v = view(4);

    for (i = 0; i < 4; i++) {
        id[i] = i;
    }

    kvs_ring_init(&ring, 4, 160);

    /* each replica has its share of the keys, and a key its replica */

    memset(share, 0, sizeof(share));

    for (i = 0; i < 10000; i++) {
        p = kvs_pick_ring(&ring, id, 4, kvr_mix(i, 7));
        ck_assert_uint_eq(p, kvs_pick_ring(&ring, id, 4, kvr_mix(i, 7)));
        share[p]++;
    }

    for (i = 0; i < 4; i++) {
        ck_assert_uint_gt(share[i], 1900);
        ck_assert_uint_lt(share[i], 3200);
    }

    /* all keys of an absent replica go to the first present one */

    id[0] = 1;
    id[1] = 2;
    id[2] = 3;

    for (moved = 0, i = 0; i < 1000; i++) {
        moved += kvs_pick_ring(&ring, id, 3, kvr_mix(i, 7)) == 0;
    }

    ck_assert_uint_gt(moved, 400);

    kvs_ring_done(&ring);

    /* KubeAI: 3 in flight; a replica with at most 0.25 can get a fourth */

    for (i = 0; i < 4; i++) {
        id[i] = i;
    }

    kvs_ring_init(&ring, 4, 256);

    p = kvs_pick_ring_bounded(&ring, v, id, 4, kvr_mix(1, 7), 1.25);
    v[p].active = 3;
    i = kvs_pick_ring_bounded(&ring, v, id, 4, kvr_mix(1, 7), 1.25);
    ck_assert_uint_ne(i, p);

    /*
     * (6 + 1) / 4 * 1.25 = 2.19: replicas with one can get another, with two
     * not
     */

    for (i = 0; i < 4; i++) {
        v[i].active = i == p ? 1 : 5;
    }

    v[(p + 1) % 4].active = 0;
    v[(p + 2) % 4].active = 0;
    ck_assert_uint_eq(kvs_pick_ring_bounded(&ring, v, id, 4, kvr_mix(1, 7),
                                            1.25), p);

    /* none is below the bound: the first of the ring */

    for (i = 0; i < 4; i++) {
        v[i].active = 1;
    }

    ck_assert_uint_eq(kvs_pick_ring_bounded(&ring, v, id, 4, kvr_mix(1, 7),
                                            1.25), p);

    kvs_ring_done(&ring);
}
END_TEST


START_TEST(llmd_blend)
{
    kvs_view_t  *v = view(3);

    /* 3 + 2 * 0 + 2 * 0.5 = 4 against 0 + 2 + 2 * 0.9 = 3.8 */

    v[0].matched = 10 * BLOCK;
    v[0].waiting = 4;
    v[0].usage = 0.5;
    v[1].usage = 0.1;
    v[2].waiting = 4;
    v[2].usage = 0.9;
    ck_assert_uint_eq(kvs_pick_llmd_blend(v, 3, 10 * BLOCK, &rng), 0);

    /* 2.7 + 0 + 1 = 3.7 is not enough */

    v[0].matched = 9 * BLOCK;
    ck_assert_uint_eq(kvs_pick_llmd_blend(v, 3, 10 * BLOCK, &rng), 1);

    /* equal queues are worth 2 to all: 2.7 + 1 against 1.8 */

    v[0].waiting = 0;
    v[2].waiting = 0;
    ck_assert_uint_eq(kvs_pick_llmd_blend(v, 3, 10 * BLOCK, &rng), 0);
}
END_TEST


/* Dynamo's llm_d/optimized_baseline.rs */
START_TEST(llmd_sticky)
{
    kvs_view_t  *v = view(2);

    v[1].matched = 9 * BLOCK;
    v[1].pending = 10000;
    ck_assert_uint_eq(kvs_pick_llmd_sticky(v, 2, 10 * BLOCK, 0), 1);

    v[1].pending = 300000;
    ck_assert_uint_eq(kvs_pick_llmd_sticky(v, 2, 10 * BLOCK, 0), 0);

    v[0].pending = 100;
    v[1].pending = 1000;
    v[1].matched = 5 * BLOCK;
    ck_assert_uint_eq(kvs_pick_llmd_sticky(v, 2, 10 * BLOCK, 0), 0);

    /* 8 of 10 are sticky */

    v[1].matched = 8 * BLOCK;
    ck_assert_uint_eq(kvs_pick_llmd_sticky(v, 2, 10 * BLOCK, 0), 1);

    /* ties in turn */

    memset(v, 0, 2 * sizeof(kvs_view_t));
    ck_assert_uint_eq(kvs_pick_llmd_sticky(v, 2, 10 * BLOCK, 0), 0);
    ck_assert_uint_eq(kvs_pick_llmd_sticky(v, 2, 10 * BLOCK, 1), 1);
}
END_TEST


START_TEST(dynamo)
{
    kvs_view_t  *v = view(2);

    /* 10 - 8 + 20 = 22 against 10 + 11 = 21 */

    v[0].matched = 8 * BLOCK;
    v[0].blocks = 20;
    v[1].blocks = 11;
    ck_assert_uint_eq(kvs_pick_dynamo(v, 2, 10 * BLOCK, 1, &rng), 1);

    /* with a credit of 64 max(10 - 512, 0) + 20 = 20 against 21 */

    ck_assert_uint_eq(kvs_pick_dynamo(v, 2, 10 * BLOCK, 64, &rng), 0);

    /* the credit then covers the backlog of others too: 400 + 10 - 512 */

    v[0].pending = 400 * BLOCK;
    ck_assert_uint_eq(kvs_pick_dynamo(v, 2, 10 * BLOCK, 64, &rng), 0);

    v[0].pending = 520 * BLOCK;
    ck_assert_uint_eq(kvs_pick_dynamo(v, 2, 10 * BLOCK, 64, &rng), 1);
}
END_TEST


START_TEST(lmetric)
{
    kvs_view_t  *v = view(2);

    /* (100 + 50) * 3 = 450 against (0 + 460) * 1 */

    v[0].pending = 100;
    v[0].matched = 410;
    v[0].active = 2;
    ck_assert_uint_eq(kvs_pick_lmetric(v, 2, 460, &rng), 0);

    v[0].active = 3;
    ck_assert_uint_eq(kvs_pick_lmetric(v, 2, 460, &rng), 1);
}
END_TEST


/* Dynamo's lmetric.rs */
START_TEST(lmetric_dynamo)
{
    uint32_t       i;
    kvs_view_t    *v = view(4);
    kvs_hotspot_t  hot;

    kvs_hotspot_init(&hot, 4);

    v[1].matched = 8 * BLOCK;
    v[1].active = 3;
    ck_assert_uint_eq(kvs_pick_lmetric_dynamo(v, 2, 10 * BLOCK, &hot, 0, 2), 1);

    v[1].active = 4;
    ck_assert_uint_eq(kvs_pick_lmetric_dynamo(v, 2, 10 * BLOCK, &hot, 0, 2), 0);

    v[0].matched = 10 * BLOCK;
    v[1].matched = 10 * BLOCK;
    v[0].active = 3;
    v[1].active = 1;
    ck_assert_uint_eq(kvs_pick_lmetric_dynamo(v, 2, 10 * BLOCK, &hot, 0, 2), 1);

    /* one holder of four, a class that is all traffic: away with the second */

    memset(v, 0, 4 * sizeof(kvs_view_t));
    v[0].matched = 10 * BLOCK;
    v[0].active = 2;

    for (i = 1; i < 4; i++) {
        v[i].active = 1;
    }

    ck_assert_uint_eq(kvs_pick_lmetric_dynamo(v, 4, 10 * BLOCK, &hot, 7,
                                              2 * BLOCK), 0);
    ck_assert_uint_eq(kvs_pick_lmetric_dynamo(v, 4, 10 * BLOCK, &hot, 7,
                                              2 * BLOCK), 1);

    /* two holders of four for half of the requests: no lasting alarm */

    kvs_hotspot_done(&hot);
    kvs_hotspot_init(&hot, 4);

    v[1].matched = 10 * BLOCK;
    v[1].active = 2;

    for (i = 0; i < 4; i++) {
        ck_assert_uint_eq(kvs_pick_lmetric_dynamo(v, 4, 10 * BLOCK, &hot, 7,
                                                  2 * BLOCK), 0);
        kvs_pick_lmetric_dynamo(v, 4, 10 * BLOCK, &hot, 8, 2 * BLOCK);
    }

    kvs_hotspot_done(&hot);
}
END_TEST


START_TEST(additive)
{
    kvs_view_t  *v = view(3);

    /* 500 + 100 against 0 + 599 and 0 + 600 */

    v[0].pending = 500;
    v[0].matched = 500;
    v[1].matched = 1;
    ck_assert_uint_eq(kvs_pick_additive(v, 3, 600, 0), 1);

    /* equal: fewer requests, then in turn */

    v[1].matched = 0;
    v[1].active = 1;
    v[2].active = 1;
    ck_assert_uint_eq(kvs_pick_additive(v, 3, 600, 1), 0);

    v[0].active = 1;
    ck_assert_uint_eq(kvs_pick_additive(v, 3, 600, 1), 1);
    ck_assert_uint_eq(kvs_pick_additive(v, 3, 600, 2), 2);
}
END_TEST


START_TEST(aibrix)
{
    uint32_t     share[4];
    kvs_view_t  *v = view(4);

    /* mean 2, deviation 1.22: at most 3 requests */

    v[0].active = 3;
    v[0].matched = 9 * BLOCK;
    v[1].active = 3;
    v[1].matched = 8 * BLOCK;
    v[2].active = 2;
    ck_assert_uint_eq(kvs_pick_aibrix(v, 4, 10 * BLOCK, &rng), 0);

    /* mean 2.5, deviation 1.8: 5 are too many, the next holder then */

    v[0].active = 5;
    v[1].active = 3;
    ck_assert_uint_eq(kvs_pick_aibrix(v, 4, 10 * BLOCK, &rng), 1);

    /* no holder is left: the fewest requests */

    v[1].matched = 0;
    ck_assert_uint_eq(kvs_pick_aibrix(v, 4, 10 * BLOCK, &rng), 3);

    /* max 20 > 2 * (6.5 + 1) and 20 - 2 >= 8: only those with the fewest */

    v[0].active = 20;
    v[0].matched = 0;
    v[1].active = 2;
    v[2].active = 2;
    v[3].active = 2;
    v[2].matched = BLOCK;
    ck_assert_uint_eq(kvs_pick_aibrix(v, 4, 10 * BLOCK, &rng), 2);

    v[2].active = 3;
    SHARES(4, share, kvs_pick_aibrix(v, 4, 10 * BLOCK, &rng));
    ck_assert_uint_eq(share[0] + share[2], 0);
    ck_assert_uint_gt(share[1], 400);
}
END_TEST


/* Dynamo's ramjet.rs, with its absolute basis */
START_TEST(ramjet)
{
    kvs_view_t  *v = view(3);

    /* 32 - 4 * 7 = 4 is more than 0; 32 - 4 * 9 is not */

    v[1].matched = 40 * 512;
    v[1].units = 7;
    ck_assert_uint_eq(kvs_pick_ramjet(v, 2, 0), 1);

    v[1].units = 9;
    ck_assert_uint_eq(kvs_pick_ramjet(v, 2, 0), 0);

    /* blocks beyond the limit decide between equal ones only */

    v[0].matched = 90 * 512;
    v[0].units = 1;
    v[1].matched = 100 * 512;
    v[1].units = 2;
    ck_assert_uint_eq(kvs_pick_ramjet(v, 2, 0), 0);

    v[1].units = 1;
    ck_assert_uint_eq(kvs_pick_ramjet(v, 2, 0), 1);

    /* (index + turn) % 3 from 0 up */

    memset(v, 0, 3 * sizeof(kvs_view_t));
    ck_assert_uint_eq(kvs_pick_ramjet(v, 3, 0), 0);
    ck_assert_uint_eq(kvs_pick_ramjet(v, 3, 1), 2);
    ck_assert_uint_eq(kvs_pick_ramjet(v, 3, 2), 1);

    ck_assert_uint_eq(kvs_ramjet_units(1000, 0), 1);
    ck_assert_uint_eq(kvs_ramjet_units(32769, 0), 2);
    ck_assert_uint_eq(kvs_ramjet_units(32769, 2048), 1);
    ck_assert_uint_eq(kvs_ramjet_units(10000000, 0), 8);
    ck_assert_uint_eq(kvs_ramjet_units(100, 2048), 1);
}
END_TEST


/* nothing is lost when the tables grow and entries move */
START_TEST(prefix_grows)
{
    uint32_t            i, m[KVS_REPLICAS];
    uint64_t            hash;
    kvs_prefix_t       *px;
    kvs_prefix_conf_t   conf;

    memset(&conf, 0, sizeof(conf));
    px = kvs_prefix_create(&conf);

    for (i = 0; i < 200000; i++) {
        hash = kvr_mix(i, 3);
        kvs_prefix_insert(px, &hash, 1, i % 3, 1);
    }

    for (i = 0; i < 200000; i++) {
        hash = kvr_mix(i, 3);
        ck_assert_uint_eq(kvs_prefix_match(px, &hash, 1, kvr_set_below(3),
                                           1, m, NULL), 1);
        ck_assert_uint_eq(m[i % 3], 1);
    }

    kvs_prefix_destroy(px);
}
END_TEST


/* the routers' indexes */
START_TEST(prefix_lru)
{
    uint32_t            i, last, m[KVS_REPLICAS];
    uint64_t            a[8], b[8];
    kvs_prefix_t       *px;
    kvs_prefix_conf_t   conf;

    for (i = 0; i < 8; i++) {
        a[i] = kvr_mix(i, 1);
        b[i] = i < 4 ? a[i] : kvr_mix(i, 2);
    }

    memset(&conf, 0, sizeof(conf));
    conf.capacity = 10;
    px = kvs_prefix_create(&conf);

    kvs_prefix_insert(px, a, 8, 0, 1);
    kvs_prefix_insert(px, b, 4, 1, 2);

    ck_assert_uint_eq(kvs_prefix_match(px, a, 8, kvr_set_below(3), 3, m,
                                       &last), 8);
    ck_assert_uint_eq(m[0], 8);
    ck_assert_uint_eq(m[1], 4);
    ck_assert_uint_eq(m[2], 0);
    ck_assert_uint_eq(last, 0);

    kvs_prefix_match(px, b, 8, kvr_set_below(3), 3, m, &last);
    ck_assert_uint_eq(m[0], 4);
    ck_assert_uint_eq(last, 1);

    /* room for two more: the end of the first one is evicted */

    kvs_prefix_insert(px, b, 8, 0, 3);
    ck_assert_uint_eq(kvs_prefix_count(px, 0), 10);
    kvs_prefix_match(px, a, 8, kvr_set_below(2), 4, m, NULL);
    ck_assert_uint_eq(m[0], 6);
    ck_assert_uint_eq(m[1], 4);

    kvs_prefix_flush(px, 0);
    kvs_prefix_match(px, a, 8, kvr_set_below(2), 4, m, NULL);
    ck_assert_uint_eq(m[0], 0);
    ck_assert_uint_eq(m[1], 4);
    kvs_prefix_destroy(px);

    /* by age, in blocks of four units */

    memset(&conf, 0, sizeof(conf));
    conf.ttl = 10;
    conf.stride = 4;
    px = kvs_prefix_create(&conf);

    kvs_prefix_insert(px, a, 7, 0, 0);
    kvs_prefix_match(px, a, 8, kvr_set_below(1), 10, m, NULL);
    ck_assert_uint_eq(m[0], 4);
    kvs_prefix_match(px, a, 8, kvr_set_below(1), 10.1, m, NULL);
    ck_assert_uint_eq(m[0], 0);
    kvs_prefix_destroy(px);
}
END_TEST


START_TEST(prefix_held)
{
    uint32_t            i, m[KVS_REPLICAS];
    uint64_t            a[8];
    kvs_prefix_t       *px;
    kvs_prefix_conf_t   conf;

    for (i = 0; i < 8; i++) {
        a[i] = kvr_mix(i, 1);
    }

    memset(&conf, 0, sizeof(conf));
    px = kvs_prefix_create(&conf);

    kvs_prefix_hold(px, a, 8, 5);
    kvs_prefix_hold(px, a, 4, 5);
    ck_assert_uint_eq(kvs_prefix_count(px, 5), 8);

    kvs_prefix_drop(px, a, 8, 5);
    ck_assert_uint_eq(kvs_prefix_count(px, 5), 4);
    kvs_prefix_match(px, a, 8, kvr_set_of(5), 0, m, NULL);
    ck_assert_uint_eq(m[5], 4);

    kvs_prefix_drop(px, a, 4, 5);
    ck_assert_uint_eq(kvs_prefix_count(px, 5), 0);
    kvs_prefix_destroy(px);
}
END_TEST


int
main(void)
{
    int       failed;
    TCase    *tc;
    Suite    *s;
    SRunner  *sr;

    s = suite_create("rivals");
    tc = tcase_create("picks");
    tcase_set_timeout(tc, 0);

    tcase_add_test(tc, two_choices);
    tcase_add_test(tc, sglang_fleet);
    tcase_add_test(tc, two_tier);
    tcase_add_test(tc, sglang_request);
    tcase_add_test(tc, rings);
    tcase_add_test(tc, llmd_blend);
    tcase_add_test(tc, llmd_sticky);
    tcase_add_test(tc, dynamo);
    tcase_add_test(tc, lmetric);
    tcase_add_test(tc, lmetric_dynamo);
    tcase_add_test(tc, additive);
    tcase_add_test(tc, aibrix);
    tcase_add_test(tc, ramjet);
    tcase_add_test(tc, prefix_lru);
    tcase_add_test(tc, prefix_grows);
    tcase_add_test(tc, prefix_held);
    suite_add_tcase(s, tc);

    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);

    return failed != 0;
}
