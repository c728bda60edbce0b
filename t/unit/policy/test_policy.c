
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_policy: picks from tables of candidates, with costs computed by hand;
 * each reason; ties; nginx's own sequences.
 */


#include "util.h"
#include "core/policy/kvr_policy.h"

#include <math.h>


#define MAX_CANDIDATES  256


typedef struct {
    uint32_t         weight;
    uint32_t         active;
    uint64_t         pending;
    uint64_t         matched;
    uint32_t         idle;
    double           cost;
} peer_t;


typedef struct {
    const char      *what;
    kvr_policy_e     policy;
    uint64_t         bytes;
    unsigned         parsed:1;
    unsigned         retry:1;
    uint32_t         pick;
    kvr_reason_e     reason;
    uint32_t         n;
    peer_t           peer[5];
} case_t;


#define COST(pending, uncached, active)                                       \
    ((pending) + 400.0 * (active)                                             \
     + kvr_max(uncached, 2048) * (1 + 64.0 * (active) / (320 + (active)))     \
     + (uncached) * 0.75)


static const case_t  cases[] = {

    /*
     * kv_cache without waiting requests:
     * (pending + 400 * active
     *  + max(uncached, 2048) * (1 + 64 * active / (320 + active))
     *  + uncached * 3 / 4) / weight
     */

    { "equal except for the match", KVR_POLICY_KV_CACHE, 10000, 1, 0,
      1, KVR_REASON_AFFINITY, 3,
      { { 1, 0, 0, 2000, 0, 14000 },
        { 1, 0, 0, 6000, 0, 7000 },
        { 1, 0, 0, 0, 0, 17500 } } },

    { "the holder is worth waiting for", KVR_POLICY_KV_CACHE, 32768, 1, 0,
      0, KVR_REASON_AFFINITY, 2,
      { { 1, 8, 8192, 24576, 0, COST(8192, 8192, 8) },
        { 1, 0, 0, 0, 0, 57344 } } },

    { "the holder is too busy", KVR_POLICY_KV_CACHE, 32768, 1, 0,
      1, KVR_REASON_SPILL, 2,
      { { 1, 8, 29901, 24576, 0, COST(29901, 8192, 8) },
        { 1, 0, 0, 0, 0, 57344 } } },

    { "the holder runs too many", KVR_POLICY_KV_CACHE, 10000, 1, 0,
      1, KVR_REASON_SPILL, 2,
      { { 1, 20, 0, 10000, 0, COST(0, 0, 20) },
        { 1, 0, 0, 0, 0, 17500 } } },

    { "the holder runs one request less", KVR_POLICY_KV_CACHE, 10000, 1, 0,
      0, KVR_REASON_AFFINITY, 2,
      { { 1, 19, 0, 10000, 0, COST(0, 0, 19) },
        { 1, 0, 0, 0, 0, 17500 } } },

    { "spills to the next best holder", KVR_POLICY_KV_CACHE, 40000, 1, 0,
      2, KVR_REASON_SPILL, 3,
      { { 1, 16, 100000, 40000, 0, COST(100000, 0, 16) },
        { 1, 0, 0, 0, 0, 70000 },
        { 1, 2, 0, 20000, 0, COST(0, 20000, 2) } } },

    { "one of two best holders is free", KVR_POLICY_KV_CACHE, 40000, 1, 0,
      1, KVR_REASON_AFFINITY, 3,
      { { 1, 16, 100000, 40000, 0, COST(100000, 0, 16) },
        { 1, 0, 0, 40000, 0, 2048 },
        { 1, 2, 0, 20000, 0, COST(0, 20000, 2) } } },

    { "no peer has it: by load", KVR_POLICY_KV_CACHE, 10000, 1, 0,
      2, KVR_REASON_COLD, 3,
      { { 1, 4, 0, 0, 0, COST(0, 10000, 4) },
        { 1, 0, 6000, 0, 0, 23500 },
        { 1, 2, 0, 0, 0, COST(0, 10000, 2) } } },

    { "weight halves the cost", KVR_POLICY_KV_CACHE, 10000, 1, 0,
      1, KVR_REASON_COLD, 2,
      { { 1, 0, 0, 0, 0, 17500 },
        { 2, 4, 4000, 0, 0, COST(4000, 10000, 4) / 2 } } },

    { "weights 1, 2 and 5", KVR_POLICY_KV_CACHE, 10000, 1, 0,
      2, KVR_REASON_COLD, 3,
      { { 1, 0, 0, 0, 0, 17500 },
        { 2, 0, 0, 0, 0, 8750 },
        { 5, 8, 0, 0, 0, COST(0, 10000, 8) / 5 } } },

    { "below the floor one more request equals a part of the match",
      KVR_POLICY_KV_CACHE, 2000, 1, 0,
      0, KVR_REASON_AFFINITY, 2,
      { { 1, 1, 0, 2000, 0, COST(0, 0, 1) },
        { 1, 0, 0, 0, 0, 3548 } } },

    { "below the floor four requests are too many",
      KVR_POLICY_KV_CACHE, 2000, 1, 0,
      1, KVR_REASON_SPILL, 2,
      { { 1, 4, 0, 2000, 0, COST(0, 0, 4) },
        { 1, 0, 0, 0, 0, 3548 } } },

    { "the better match", KVR_POLICY_KV_CACHE, 2000, 1, 0,
      1, KVR_REASON_AFFINITY, 3,
      { { 1, 0, 0, 0, 9, 3548 },
        { 1, 0, 0, 1024, 0, 2780 },
        { 1, 0, 0, 512, 9, 3164 } } },

    { "equal costs: fewer requests before a longer rest",
      KVR_POLICY_KV_CACHE, 8192, 1, 0,
      1, KVR_REASON_COLD, 2,
      { { 1, 5, 0, 0, 50, COST(0, 8192, 5) },
        { 1, 0, 8192, 0, 1, 22528 } } },

    { "equal in all: the longer rest", KVR_POLICY_KV_CACHE, 8192, 1, 0,
      2, KVR_REASON_COLD, 3,
      { { 1, 0, 0, 0, 3, 14336 },
        { 1, 0, 0, 0, 4, 14336 },
        { 1, 0, 0, 0, 5, 14336 } } },

    { "rest counts by weight", KVR_POLICY_LEAST_REQUEST, 0, 0, 0,
      1, KVR_REASON_LOAD, 2,
      { { 1, 0, 0, 0, 4, 0 },
        { 5, 0, 0, 0, 1, 0 } } },

    { "more matched than the prompt has", KVR_POLICY_KV_CACHE, 5000, 1, 0,
      1, KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 0, 0, 8750 },
        { 1, 0, 0, 6000, 0, 2048 } } },

    { "no prompt: by load, reason unparsed", KVR_POLICY_KV_CACHE, 50000, 0, 0,
      1, KVR_REASON_UNPARSED, 2,
      { { 1, 6, 0, 0, 0, COST(0, 50000, 6) },
        { 1, 4, 0, 0, 0, COST(0, 50000, 4) } } },

    { "an empty prompt", KVR_POLICY_KV_CACHE, 0, 1, 0,
      1, KVR_REASON_COLD, 2,
      { { 1, 6, 0, 0, 0, COST(0, 0, 6) },
        { 1, 4, 0, 0, 0, COST(0, 0, 4) } } },

    /* reasons that come before the policy's own */

    { "no choice", KVR_POLICY_KV_CACHE, 10000, 1, 0, 0, KVR_REASON_ONLY, 1,
      { { 1, 18, 9000, 10000, 0, COST(9000, 0, 18) } } },
    { "no choice", KVR_POLICY_LEAST_REQUEST, 0, 0, 0, 0, KVR_REASON_ONLY, 1,
      { { 2, 9, 9000, 0, 0, 4.5 } } },
    { "no choice", KVR_POLICY_ROUND_ROBIN, 0, 0, 0, 0, KVR_REASON_ONLY, 1,
      { { 2, 9, 9000, 0, 0, 0 } } },
    { "no choice left", KVR_POLICY_KV_CACHE, 10000, 1, 1, 0, KVR_REASON_RETRY,
      1, { { 1, 0, 0, 0, 0, 17500 } } },
    { "second try", KVR_POLICY_KV_CACHE, 10000, 1, 1, 1, KVR_REASON_RETRY, 2,
      { { 1, 0, 0, 0, 0, 17500 }, { 1, 0, 0, 5000, 0, 8750 } } },
    { "second try, unparsed", KVR_POLICY_KV_CACHE, 10000, 0, 1, 1,
      KVR_REASON_RETRY, 2,
      { { 1, 2, 0, 0, 0, COST(0, 10000, 2) }, { 1, 0, 0, 0, 0, 17500 } } },

    /* least_request: active / weight, nothing else */

    { "fewest requests", KVR_POLICY_LEAST_REQUEST, 10000, 1, 0,
      1, KVR_REASON_LOAD, 3,
      { { 1, 5, 0, 10000, 0, 5 },
        { 1, 2, 900000, 0, 0, 2 },
        { 1, 3, 0, 10000, 0, 3 } } },

    { "fewest for their weights", KVR_POLICY_LEAST_REQUEST, 0, 0, 0,
      2, KVR_REASON_LOAD, 3,
      { { 1, 1, 0, 0, 0, 1 },
        { 2, 2, 0, 0, 0, 1 },
        { 5, 4, 0, 0, 0, 0.8 } } },

    { "equal by weight: the fewer requests", KVR_POLICY_LEAST_REQUEST,
      0, 0, 0, 2, KVR_REASON_LOAD, 3,
      { { 5, 5, 0, 0, 7, 1 },
        { 2, 2, 0, 0, 7, 1 },
        { 1, 1, 0, 0, 7, 1 } } }
};


static void
request(kvr_policy_request_t *req, kvr_policy_e policy, uint64_t bytes)
{
    memset(req, 0, sizeof(kvr_policy_request_t));

    req->policy = policy;
    req->bytes = bytes;
    req->parsed = 1;
    req->random = 1;
}


static void
candidates(kvr_candidate_t *c, uint32_t n)
{
    uint32_t  i;

    memset(c, 0, n * sizeof(kvr_candidate_t));

    for (i = 0; i < n; i++) {
        c[i].weight = 1;
        c[i].effective_weight = 1;
    }
}


TEST(test_policy_cases)
{
    size_t                i;
    uint32_t              k;
    uint64_t              best, matched;
    const case_t         *c;
    kvr_decision_t        d;
    kvr_candidate_t       cand[5];
    kvr_policy_request_t  req;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        c = &cases[i];

        util_note("case %zu: %s", i, c->what);

        request(&req, c->policy, c->bytes);
        req.parsed = c->parsed;
        req.retry = c->retry;

        candidates(cand, c->n);
        best = 0;

        for (k = 0; k < c->n; k++) {
            cand[k].weight = c->peer[k].weight;
            cand[k].effective_weight = c->peer[k].weight;
            cand[k].active = c->peer[k].active;
            cand[k].pending = c->peer[k].pending;
            cand[k].matched = c->peer[k].matched;
            cand[k].idle = c->peer[k].idle;
            cand[k].cost = -1;

            best = kvr_max(best, cand[k].matched);
        }

        memset(&d, 0x5a, sizeof(d));

        kvr_policy_pick(&req, cand, c->n, &d);

        for (k = 0; k < c->n; k++) {
            util_check(fabs(cand[k].cost - c->peer[k].cost) < 1e-9,
                       "candidate %u costs %.3f, not %.3f", k, cand[k].cost,
                       c->peer[k].cost);
        }

        matched = c->peer[c->pick].matched;

        util_check(d.pick == c->pick, "picked %u, not %u", d.pick, c->pick);
        util_check(d.reason == c->reason, "%s, not %s",
                   kvr_reason_name(d.reason), kvr_reason_name(c->reason));
        util_check(d.best == best, "best %llu", (unsigned long long) d.best);
        util_check(d.matched == matched, "matched %llu",
                   (unsigned long long) d.matched);
        util_check(fabs(d.cost - c->peer[c->pick].cost) < 1e-9, "cost %.3f",
                   d.cost);
    }
}


/* the pick is one of the best candidates, in the documented order */
static int
better(const kvr_candidate_t *a, const kvr_candidate_t *b, int affine)
{
    uint64_t  ia, ib;

    if (a->cost != b->cost) {
        return a->cost < b->cost;
    }

    if (a->active != b->active) {
        return a->active < b->active;
    }

    if (affine && a->matched != b->matched) {
        return a->matched > b->matched;
    }

    ia = (a->idle + 1ULL) * a->weight;
    ib = (b->idle + 1ULL) * b->weight;

    return ia > ib;
}


TEST(test_policy_random)
{
    uint32_t              i, k, n, few;
    util_rng_t            r;
    kvr_decision_t        d;
    kvr_candidate_t       c[MAX_CANDIDATES];
    kvr_policy_request_t  req;

    for (i = 0; i < util_cases(20000); i++) {

        util_seed(&r, "policy random", i);

        n = util_below(&r, 4) ? 1 + util_below(&r, 8)
                              : 1 + util_below(&r, MAX_CANDIDATES);
        few = 1 + util_below(&r, 4);

        request(&req, util_below(&r, 2) ? KVR_POLICY_KV_CACHE
                                        : KVR_POLICY_LEAST_REQUEST,
                util_below(&r, 3) * 5000);
        req.random = util_next(&r);

        candidates(c, n);

        for (k = 0; k < n; k++) {
            c[k].weight = 1 + util_below(&r, few);
            c[k].active = util_below(&r, few);
            c[k].pending = util_below(&r, few) * 1000;
            c[k].matched = util_below(&r, few) * 1000;
            c[k].idle = util_below(&r, few);
        }

        kvr_policy_pick(&req, c, n, &d);

        util_check(d.pick < n, "%u of %u", d.pick, n);

        /* small matches have their own rules, see test_pick.c */

        if (d.best * 8 < req.bytes) {
            continue;
        }

        for (k = 0; k < n; k++) {
            util_check(!better(&c[k], &c[d.pick],
                               req.policy == KVR_POLICY_KV_CACHE),
                       "%u is better than %u", k, d.pick);
        }
    }
}


/* chi square, five deviations above its mean */
static void
check_even(const unsigned *count, unsigned n, unsigned total, const char *what)
{
    double    chi, expect;
    unsigned  i;

    chi = 0;
    expect = (double) total / n;

    for (i = 0; i < n; i++) {
        chi += (count[i] - expect) * (count[i] - expect) / expect;
    }

    util_check(chi < n - 1 + 5 * sqrt(2.0 * n), "%s: %u of %u first, chi "
               "square %.1f", what, count[0], total, chi);
}


TEST(test_policy_ties)
{
    uint32_t              i, k, n, total;
    unsigned              count[MAX_CANDIDATES];
    util_rng_t            r;
    kvr_decision_t        d;
    kvr_candidate_t       c[MAX_CANDIDATES];
    kvr_policy_request_t  req;

    static const uint32_t  sizes[] = { 2, 3, 4, 7, 16, 64, 256 };

    /* an idle fleet: each peer as often, in each policy that uses load */

    for (k = 0; k < 2 * sizeof(sizes) / sizeof(sizes[0]); k++) {
        n = sizes[k / 2];
        total = 200 * n;

        util_seed(&r, "policy ties", k);
        request(&req, k & 1 ? KVR_POLICY_KV_CACHE : KVR_POLICY_LEAST_REQUEST,
                10000);
        candidates(c, n);
        memset(count, 0, sizeof(count));

        for (i = 0; i < total; i++) {
            req.random = util_next(&r);
            kvr_policy_pick(&req, c, n, &d);
            count[d.pick]++;
        }

        check_even(count, n, total, "idle");

        /* also with few random bits (31), as ngx_random() has */

        memset(count, 0, sizeof(count));

        for (i = 0; i < total; i++) {
            req.random = (util_next(&r) >> 33) << 32 ^ i;
            kvr_policy_pick(&req, c, n, &d);
            count[d.pick]++;
        }

        check_even(count, n, total, "31 bits");
    }

    /* with worse ones before, between and after them */

    util_seed(&r, "policy ties between", 0);
    request(&req, KVR_POLICY_KV_CACHE, 10000);
    candidates(c, 9);
    memset(count, 0, sizeof(count));

    c[0].active = 1;
    c[2].pending = 1;
    c[4].active = 2;
    c[5].pending = 5;
    c[8].active = 1;

    for (i = 0; i < 4000; i++) {
        req.random = util_next(&r);
        kvr_policy_pick(&req, c, 9, &d);
        count[d.pick]++;
    }

    util_check(count[0] + count[2] + count[4] + count[5] + count[8] == 0,
               "a worse one was picked");

    count[0] = count[1];
    count[1] = count[3];
    count[2] = count[6];
    count[3] = count[7];

    check_even(count, 4, 4000, "between");
}


/* the sequences of nginx's smooth weighted round robin */
TEST(test_policy_round_robin)
{
    char                  got[32];
    size_t                i, k, n, len;
    kvr_decision_t        d;
    kvr_candidate_t       c[4];
    kvr_policy_request_t  req;

    static const struct {
        int64_t      weight[4];
        int64_t      effective[4];
        const char  *picks;
    } rr[] = {
        { { 5, 1, 1 }, { 5, 1, 1 }, "aabacaaaabacaa" },
        { { 1, 1, 1 }, { 1, 1, 1 }, "abcabc" },
        { { 2, 1 }, { 2, 1 }, "abaaba" },
        { { 4, 2, 1 }, { 4, 2, 1 }, "abacabaabacaba" },
        { { 1, 3 }, { 1, 3 }, "babbbabb" },
        { { 7 }, { 7 }, "aaa" },

    /* a failed peer gets its weight back step by step */

        { { 2, 2 }, { 0, 2 }, "bbababab" }
    };

    request(&req, KVR_POLICY_ROUND_ROBIN, 1000);

    for (i = 0; i < sizeof(rr) / sizeof(rr[0]); i++) {

        for (n = 0; n < 4 && rr[i].weight[n]; n++) { /* void */ }

        candidates(c, (uint32_t) n);

        for (k = 0; k < n; k++) {
            c[k].weight = (uint32_t) rr[i].weight[k];
            c[k].effective_weight = rr[i].effective[k];

            /* none of this is used */

            c[k].active = (uint32_t) (k * 7);
            c[k].matched = 1000 - k;
            c[k].pending = k * 5000;
        }

        len = strlen(rr[i].picks);

        for (k = 0; k < len; k++) {
            kvr_policy_pick(&req, c, (uint32_t) n, &d);

            util_check(d.reason == (n > 1 ? KVR_REASON_TURN : KVR_REASON_ONLY),
                       "%s", kvr_reason_name(d.reason));

            got[k] = (char) ('a' + d.pick);
        }

        got[k] = '\0';

        util_check(strcmp(got, rr[i].picks) == 0, "%s, not %s", got,
                   rr[i].picks);
    }
}


TEST(test_policy_names)
{
    unsigned      i;
    const char   *name;

    for (i = 0; i < KVR_POLICIES; i++) {
        name = kvr_policy_name((kvr_policy_e) i);

        util_check(name && kvr_policy_by_name(name, strlen(name)) == i, "%u",
                   i);
        util_check(kvr_policy_by_name(name, strlen(name) - 1) == KVR_POLICIES,
                   "\"%s\" cut", name);
    }

    util_check(kvr_policy_name(KVR_POLICIES) == NULL, "beyond");
    util_check(kvr_policy_name((kvr_policy_e) -1) == NULL, "below");

    util_check(kvr_policy_by_name("least_conn", 10)
               == KVR_POLICY_LEAST_REQUEST, "alias");
    util_check(kvr_policy_by_name("kv_cachee", 9) == KVR_POLICIES, "longer");
    util_check(kvr_policy_by_name("", 0) == KVR_POLICIES, "empty");

    for (i = 0; i < KVR_REASON_MAX; i++) {
        name = kvr_reason_name((kvr_reason_e) i);

        util_check(name && name[0], "reason %u has no name", i);
    }

    util_check(kvr_reason_name(KVR_REASON_MAX) == NULL, "beyond");
}
