
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_policy_pick(): each policy, with tables of candidates that are full,
 * draining, warming up, bound or pinned; models; random's shares by chi
 * square.
 */


#include "util.h"
#include "core/policy/kvr_policy.h"

#include <math.h>


/* rows name the fields that matter, the others are 0 */

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"


#define MAX  6


/* flags of a candidate */
enum { F = 1, D = 2, C = 4, B = 8, P = 16, O = 32, E = 128,
       COMMON = 256 };


typedef struct {
    uint32_t         weight;
    uint32_t         active;
    uint64_t         pending;
    uint64_t         matched;
    uint32_t         idle;
    unsigned         flags;
    uint64_t         resident;
    uint64_t         shared;
    float            turnover;
    uint32_t         delay;
} peer_t;


typedef struct {
    const char         *what;
    kvr_policy_e        policy;
    uint64_t            bytes;
    uint32_t            pick;
    kvr_reason_e        reason;
    uint32_t            n;
    peer_t              peer[MAX];
    unsigned            keyed:1;
    unsigned            busy:1;
    unsigned            unpinned:1;
    unsigned            retry:1;
    unsigned            unparsed:1;
    uint32_t            rate;
} case_t;


#define KV      KVR_POLICY_KV_CACHE
#define LR      KVR_POLICY_LEAST_REQUEST
#define RR      KVR_POLICY_ROUND_ROBIN
#define RND     KVR_POLICY_RANDOM
#define STICKY  KVR_POLICY_STICKY


static const case_t  cases[] = {

    /* full peers get no requests while others are usable */

    { "full: not the holder", KV, 10000, 1, KVR_REASON_SPILL, 3,
      { { 1, 0, 0, 10000, 0, F }, { 1, 0, 0, 0, 9, 0 },
        { 1, 0, 0, 0, 1, 0 } } },
    { "full: if all are, as if none were", KV, 10000, 0, KVR_REASON_FULL, 2,
      { { 1, 0, 0, 10000, 0, F }, { 1, 0, 0, 0, 9, F } } },
    { "full: least_request", LR, 0, 2, KVR_REASON_LOAD, 3,
      { { 1, 0, 0, 0, 0, F }, { 1, 3, 0, 0, 0, 0 }, { 1, 2, 0, 0, 0, 0 } } },
    { "full: all, least_request", LR, 0, 1, KVR_REASON_FULL, 2,
      { { 1, 3, 0, 0, 0, F }, { 1, 2, 0, 0, 0, F } } },
    { "full: round_robin", RR, 0, 1, KVR_REASON_TURN, 2,
      { { 5, 0, 0, 0, 0, F }, { 1, 0, 0, 0, 0, 0 } } },
    { "full: random", RND, 0, 1, KVR_REASON_RANDOM, 2,
      { { 5, 0, 0, 0, 0, F }, { 1, 0, 0, 0, 0, 0 } } },

    /* draining: only bound sessions, or mostly cached prompts */

    { "draining: not for a cold prompt", KV, 10000, 1, KVR_REASON_COLD, 2,
      { { 1, 0, 0, 0, 9, D }, { 1, 5, 0, 0, 0, 0 } } },
    { "draining: not for a small part", KV, 10000, 1, KVR_REASON_SPILL, 2,
      { { 1, 0, 0, 4999, 9, D }, { 1, 0, 0, 0, 0, 0 } } },
    { "draining: for a prompt of which it has half", KV, 10000, 0,
      KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 5000, 9, D }, { 1, 0, 0, 0, 0, 0 } } },
    { "draining: not for a prefix that others have", KV, 10000, 1,
      KVR_REASON_SPILL, 3,
      { { 1, 0, 0, 9000, 9, D }, { 1, 0, 0, 8500, 0, 0 },
        { 1, 9, 0, 0, 0, 0 } } },
    { "draining: has half of what others compute", KV, 10000, 0,
      KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 9000, 9, D }, { 1, 0, 0, 8000, 0, 0 } } },
    { "draining: has less than half of that", KV, 10000, 1, KVR_REASON_SPILL, 2,
      { { 1, 0, 0, 8999, 9, D }, { 1, 0, 0, 8000, 0, 0 } } },
    { "draining: a full peer's prefix does not count", KV, 10000, 0,
      KVR_REASON_AFFINITY, 3,
      { { 1, 0, 0, 9000, 9, D }, { 1, 0, 0, 9000, 0, F }, { 1, 0, 0, 0 } } },
    { "draining: two, and one has the prefix", KV, 10000, 1,
      KVR_REASON_AFFINITY, 3,
      { { 1, 0, 0, 5000, 9, D }, { 1, 0, 0, 9000, 0, D }, { 1, 0, 0, 0 } } },
    { "draining: not for a shared prefix", KV, 10000, 1,
      KVR_REASON_SPILL, 2,
      { { 1, 0, 0, 9000, 9, D | COMMON }, { 1, 0, 0, 0, 0, 0 } } },
    { "draining: bound, and a shared prefix", STICKY, 10000, 0,
      KVR_REASON_SESSION, 2,
      { { 1, 0, 0, 9000, 9, D | B | COMMON }, { 1, 0, 0, 0, 0, 0 } },
      .keyed = 1 },
    { "ended: not even a cached prompt", KV, 10000, 1, KVR_REASON_SPILL, 2,
      { { 1, 0, 0, 9000, 9, D | E }, { 1, 9, 0, 0, 0, 0 } } },
    { "ended: a draining peer is preferred", LR, 0, 1, KVR_REASON_LOAD, 2,
      { { 1, 0, 0, 0, 0, D | E }, { 1, 9, 0, 0, 0, D } } },
    { "ended: all others are full", LR, 0, 0, KVR_REASON_LOAD, 2,
      { { 1, 9, 0, 0, 0, D | E }, { 1, 0, 0, 0, 0, F } } },
    { "ended: all peers", LR, 0, 1, KVR_REASON_LOAD, 2,
      { { 1, 9, 0, 0, 0, D | E }, { 1, 1, 0, 0, 0, D | E } } },
    { "draining: if all others are full", LR, 0, 0, KVR_REASON_LOAD, 2,
      { { 1, 9, 0, 0, 0, D }, { 1, 0, 0, 0, 0, F } } },
    { "draining: all peers", LR, 0, 1, KVR_REASON_LOAD, 2,
      { { 1, 9, 0, 0, 0, D }, { 1, 1, 0, 0, 0, D } } },
    { "draining: bound", STICKY, 0, 0, KVR_REASON_SESSION, 2,
      { { 1, 9, 0, 0, 0, D | B }, { 1, 1, 0, 0, 0, 0 } }, .keyed = 1 },
    { "draining: not bound", STICKY, 0, 1, KVR_REASON_BIND, 2,
      { { 9, 0, 0, 0, 0, D }, { 1, 1, 0, 0, 0, 0 } }, .keyed = 1 },

    /* warming up */

    { "cold: not this decision", LR, 0, 1, KVR_REASON_LOAD, 2,
      { { 1, 0, 0, 0, 9, C }, { 1, 7, 0, 0, 0, 0 } } },
    { "cold: a prompt that it has cached", KV, 10000, 0, KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 9000, 9, C }, { 1, 0, 0, 0, 0, 0 } } },
    { "cold: not for a small part", KV, 10000, 1, KVR_REASON_SPILL, 2,
      { { 1, 0, 0, 4999, 9, C }, { 1, 0, 0, 0, 0, 0 } } },
    { "cold: not for a prefix that others have", KV, 10000, 1,
      KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 9000, 9, C }, { 1, 0, 0, 9000, 0, 0 } } },
    { "cold: all peers", LR, 0, 0, KVR_REASON_LOAD, 2,
      { { 1, 0, 0, 0, 9, C }, { 1, 7, 0, 0, 0, C } } },
    { "cold: the other one is full", LR, 0, 0, KVR_REASON_LOAD, 2,
      { { 1, 0, 0, 0, 9, C }, { 1, 7, 0, 0, 0, F } } },
    { "cold before draining", LR, 0, 0, KVR_REASON_LOAD, 2,
      { { 1, 9, 0, 0, 9, C }, { 1, 0, 0, 0, 0, D } } },

    /* pins */

    { "pinned", KV, 10000, 1, KVR_REASON_PINNED, 2,
      { { 1, 0, 0, 10000, 0, 0 }, { 1, 9, 99999, 0, 0, P } } },
    { "pinned: even if full or draining", RR, 0, 1, KVR_REASON_PINNED,
      2, { { 1, 0, 0, 0, 0, 0 }, { 1, 9, 0, 0, 0, P | F | D } } },
    { "pinned: the only one", LR, 0, 0, KVR_REASON_PINNED, 1,
      { { 1, 0, 0, 0, 0, P } } },
    { "unpinned", LR, 0, 0, KVR_REASON_UNPINNED, 2,
      { { 1, 0, 0, 0, 0, 0 }, { 1, 1, 0, 0, 0, 0 } }, .unpinned = 1 },

    /* sessions */

    { "no session", STICKY, 0, 0, KVR_REASON_TURN, 2,
      { { 2, 9, 0, 0, 0, 0 }, { 1, 0, 0, 0, 0, B } } },
    { "a new session", STICKY, 0, 1, KVR_REASON_BIND, 2,
      { { 1, 0, 0, 0, 0, 0 }, { 2, 9, 0, 0, 0, 0 } }, .keyed = 1 },
    { "bound, however busy", STICKY, 0, 1, KVR_REASON_SESSION, 2,
      { { 1, 0, 0, 0, 0, 0 }, { 1, 99, 99999, 0, 0, B } }, .keyed = 1 },
    { "bound to a full peer", STICKY, 0, 0, KVR_REASON_OVERFLOW, 2,
      { { 1, 0, 0, 0, 0, 0 }, { 5, 0, 0, 0, 0, B | F } }, .keyed = 1 },
    { "bound, and all peers are full", STICKY, 0, 1, KVR_REASON_FULL, 2,
      { { 5, 0, 0, 0, 0, F }, { 1, 9, 0, 0, 0, B | F } }, .keyed = 1 },
    { "bound to a peer whose drain has ended", STICKY, 0, 1,
      KVR_REASON_OVERFLOW, 2, { { 1, 0, 0, 0, 0, 0 }, { 2, 0, 0, 0, 0, 0 } },
      .keyed = 1, .busy = 1 },
    { "bound to a removed peer", STICKY, 0, 1, KVR_REASON_BIND, 2,
      { { 1, 0, 0, 0, 0, 0 }, { 2, 0, 0, 0, 0, 0 } },
      .keyed = 1 },
    { "a retry", STICKY, 0, 1, KVR_REASON_RETRY, 2,
      { { 1, 0, 0, 0, 0, 0 }, { 2, 0, 0, 0, 0, 0 } }, .keyed = 1,
      .retry = 1 },

    { "fewest requests in flight", LR, 0, 1, KVR_REASON_LOAD, 2,
      { { 1, 2, 0, 0, 0, 0, 0 }, { 1, 1, 9000, 0, 0, 0, 9000 } } },

    /* a prefix that is a small part of the prompt */

    { "small: the next peer in turn", KV, 10000, 1, KVR_REASON_COLD, 3,
      { { 1, 0, 0, 1249, 1, 0 }, { 1, 0, 0, 0, 5, 0 },
        { 1, 0, 0, 0, 4, 0 } } },
    { "small: the holder's turn", KV, 10000, 0, KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 1249, 9, 0 }, { 1, 0, 0, 0, 5, 0 } } },
    { "not small: an eighth of the prompt", KV, 10000, 0,
      KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 1250, 1, 0 }, { 1, 0, 0, 0, 5, 0 } } },
    { "small, but others are busier", KV, 10000, 0, KVR_REASON_AFFINITY, 3,
      { { 1, 0, 0, 1249, 1, 0 }, { 1, 0, 1, 0, 5, 0 },
        { 1, 1, 0, 0, 5, 0 } } },
    { "small, among usable peers", KV, 10000, 2, KVR_REASON_COLD,
      3, { { 1, 0, 0, 1249, 1, 0 }, { 1, 0, 0, 0, 5, F },
           { 1, 0, 0, 0, 4, 0 } } },

    /* models: loading an adapter costs */

    { "another model", KV, 9000, 1, KVR_REASON_COLD, 2,
      { { 1, 0, 0, 0, 9, O }, { 1, 1, 0, 0, 0, 0 } } },
    { "another model, the others are too busy", KV, 9000, 0, KVR_REASON_COLD, 2,
      { { 1, 0, 0, 0, 9, O }, { 1, 16, 0, 0, 0, 0 } } },

    /* a hot prefix is computed where there is time for it */

    { "hot: few requests have the prefix", KV, 20000, 0, KVR_REASON_AFFINITY, 2,
      { { 1, 2, 0, 16000 }, { 1, 0, 0, 0, .shared = 8000 } } },
    { "hot: many requests have the prefix", KV, 20000, 1, KVR_REASON_HOT, 2,
      { { 1, 2, 0, 16000 }, { 1, 0, 0, 0, .shared = 15900 } } },
    { "hot: the holder is idle", KV, 20000, 0,
      KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 16000 }, { 1, 0, 0, 0, .shared = 16000 } } },
    { "hot: the holder is too busy anyway", KV, 20000, 1, KVR_REASON_SPILL, 2,
      { { 1, 2, 40000, 16000 }, { 1, 0, 0, 0, .shared = 15900 } } },
    { "hot: a small part, the holder is too busy", KV, 20000, 1,
      KVR_REASON_SPILL, 2,
      { { 1, 2, 22000, 16000 }, { 1, 0, 0, 0, .shared = 3000 } } },
    { "hot: the holder is not usable", KV, 20000, 1, KVR_REASON_SPILL, 2,
      { { 1, 2, 0, 16000, 0, F }, { 1, 0, 0, 0, .shared = 15900 } } },

    /* context of running requests, turnover, delay */

    { "context: the peer with less", KV, 10000, 1, KVR_REASON_COLD, 2,
      { { 1, 2, 0, 0, 9, .resident = 400000 },
        { 1, 2, 0, 0, 0, .resident = 4000 } } },
    { "turnover: where no block in use is evicted", KV, 10000, 1,
      KVR_REASON_COLD, 2,
      { { 1, 0, 0, 0, 9, .turnover = 0.5f },
        { 1, 0, 0, 0, 0, .turnover = 0.25f } } },
    { "turnover: a session stays", KV, 10000, 0, KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 9000, 9, .turnover = 0.9f },
        { 1, 0, 0, 0, 0, 0 } } },
    { "delay: 10 ms at 100 bytes per ms", KV, 10000, 1, KVR_REASON_COLD,
      2, { { 1, 0, 900, 0, 9, .delay = 160 }, { 1, 0, 1800, 0 } },
      .rate = 1600 },
    { "delay: counts a fifth for a cached prompt", KV, 10000, 0,
      KVR_REASON_AFFINITY, 2,
      { { 1, 0, 0, 10000, 0, .delay = 16000 }, { 1, 0, 0, 0 } },
      .rate = 100 * 7 },
    { "delay: none without a rate", KV, 10000, 0, KVR_REASON_COLD, 2,
      { { 1, 0, 900, 0, 9, .delay = 160 }, { 1, 0, 1800, 0 } } }
};


static void
fill(kvr_candidate_t *c, const peer_t *p, uint32_t n)
{
    uint32_t  i;

    memset(c, 0, n * sizeof(kvr_candidate_t));

    for (i = 0; i < n; i++) {
        c[i].weight = p[i].weight;
        c[i].effective_weight = p[i].weight;
        c[i].active = p[i].active;
        c[i].pending = p[i].pending;
        c[i].matched = p[i].matched;
        c[i].idle = p[i].idle;
        c[i].resident = p[i].resident;
        c[i].shared = p[i].shared;
        c[i].turnover = p[i].turnover;
        c[i].delay = p[i].delay;
        c[i].full = (p[i].flags & F) != 0;
        c[i].draining = (p[i].flags & D) != 0;
        c[i].ended = (p[i].flags & E) != 0;
        c[i].common = (p[i].flags & COMMON) != 0;
        c[i].cold = (p[i].flags & C) != 0;
        c[i].bound = (p[i].flags & B) != 0;
        c[i].pinned = (p[i].flags & P) != 0;
        c[i].other = (p[i].flags & O) != 0;
        c[i].place = i;
    }
}


TEST(test_pick_cases)
{
    size_t                i;
    const case_t         *c;
    kvr_decision_t        d;
    kvr_candidate_t       cand[MAX];
    kvr_policy_request_t  req;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        c = &cases[i];

        util_note("case %zu: %s", i, c->what);

        memset(&req, 0, sizeof(req));
        req.policy = c->policy;
        req.bytes = c->bytes;
        req.random = 1;
        req.parsed = !c->unparsed;
        req.keyed = c->keyed;
        req.busy = c->busy;
        req.unpinned = c->unpinned;
        req.retry = c->retry;
        req.rate = c->rate;

        fill(cand, c->peer, c->n);

        kvr_policy_pick(&req, cand, c->n, &d);

        util_check(d.pick == c->pick, "picked %u, not %u", d.pick, c->pick);

        util_check(d.reason == c->reason, "%s, not %s",
                   kvr_reason_name(d.reason), kvr_reason_name(c->reason));
        util_check(d.matched == cand[d.pick].matched
                   && d.best >= d.matched, "matched");
    }
}


/* candidates in any state: picks a usable one, if there is one */
TEST(test_pick_any)
{
    uint32_t              i, k, n, able;
    util_rng_t            r;
    kvr_decision_t        d;
    kvr_candidate_t       c[MAX];
    kvr_policy_e          policy;
    kvr_policy_request_t  req;

    for (i = 0; i < util_cases(20000); i++) {

        util_seed(&r, "pick any", i);
        n = 1 + util_below(&r, MAX);

        policy = 1 + util_below(&r, KVR_POLICIES - 1);

        memset(&req, 0, sizeof(req));
        memset(c, 0, sizeof(c));
        able = 0;

        for (k = 0; k < n; k++) {
            c[k].weight = 1 + util_below(&r, 5);
            c[k].effective_weight = util_below(&r, c[k].weight + 1);
            c[k].active = util_below(&r, 8);
            c[k].pending = util_below(&r, 3) * 5000;
            c[k].matched = util_below(&r, 4) * 2500;
            c[k].idle = util_below(&r, 9);
            c[k].full = util_below(&r, 3) == 0;
            c[k].draining = util_below(&r, 4) == 0;
            c[k].ended = c[k].draining && util_below(&r, 2) == 0;
            c[k].common = util_below(&r, 4) == 0;
            c[k].cold = util_below(&r, 4) == 0;
            c[k].bound = util_below(&r, 9) == 0;
            c[k].other = util_below(&r, 4) == 0;
            c[k].place = k;

            able |= (unsigned) (!c[k].full && !c[k].draining && !c[k].cold)
                    << k;
        }

        req.policy = policy;
        req.bytes = 10000;
        req.random = util_next(&r);
        req.parsed = util_below(&r, 4) != 0;
        req.keyed = util_below(&r, 4) != 0;

        kvr_policy_pick(&req, c, n, &d);

        util_check(d.pick < n, "policy %u: %u of %u", policy, d.pick, n);

        /* a full one only if all are full, or the session is bound to it */

        if (able && c[d.pick].full) {
            util_fail(__FILE__, __LINE__, "full", "policy %u", policy);
        }

        if (able && c[d.pick].draining && !c[d.pick].bound) {
            util_check(c[d.pick].matched >= 5000 && !c[d.pick].common,
                       "draining, policy %u", policy);
        }

        if (able && c[d.pick].ended) {
            util_fail(__FILE__, __LINE__, "ended", "policy %u", policy);
        }

        if (able && c[d.pick].cold && !c[d.pick].bound) {
            util_check(c[d.pick].matched, "cold, policy %u", policy);
        }
    }
}


/* chi square at one in a million */
TEST(test_pick_random)
{
    size_t                k;
    double                chi, expect, total;
    uint32_t              i, n;
    unsigned              count[4];
    util_rng_t            r;
    kvr_decision_t        d;
    kvr_candidate_t       c[4];
    kvr_policy_request_t  req;

    static const peer_t  fleets[][4] = {
        { { .weight = 1 }, { .weight = 1 }, { .weight = 1 }, { .weight = 1 } },
        { { .weight = 1 }, { .weight = 2 }, { .weight = 5 },
          { .weight = 9, .flags = F } },
        { { .weight = 100 }, { .weight = 1, .flags = D }, { .weight = 300 },
          { .weight = 50 } }
    };

    for (k = 0; k < sizeof(fleets) / sizeof(fleets[0]); k++) {

        util_seed(&r, "pick random", k);
        memset(&req, 0, sizeof(req));
        memset(count, 0, sizeof(count));
        req.policy = RND;

        for (i = 0; i < 20000; i++) {
            fill(c, fleets[k], 4);

            /* as in nginx: 31 random bits, and a counter */

            req.random = (util_next(&r) >> 33) << 32 | i;
            kvr_policy_pick(&req, c, 4, &d);
            count[d.pick]++;
        }

        total = 0;
        chi = 0;
        n = 0;

        for (i = 0; i < 4; i++) {
            total += fleets[k][i].flags ? 0 : fleets[k][i].weight;
        }

        for (i = 0; i < 4; i++) {

            if (fleets[k][i].flags) {
                util_check(count[i] == 0, "%u was left out", i);
                continue;
            }

            expect = 20000 * fleets[k][i].weight / total;
            chi += (count[i] - expect) * (count[i] - expect) / expect;
            n++;
        }

        util_check(chi < (n == 4 ? 30.66 : 27.63), "fleet %zu: chi square "
                   "%.1f", k, chi);
    }
}
