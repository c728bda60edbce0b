
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_policy_int.h"

#include <math.h>


/* with more candidates a cheap lower bound of the cost pays */
#define KVR_PICK_FEW         8

/* a best match below 1/8 of the prompt does not outweigh an idle peer */
#define KVR_PICK_SMALL       8


static uint32_t kvr_policy_kv_cache_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
static void kvr_pick_credits(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);
static void kvr_pick_home(const kvr_policy_request_t *req, kvr_candidate_t *c,
    double share);
static inline double kvr_pick_cost(const kvr_policy_request_t *req,
    const kvr_candidate_t *c, double delay);
static void kvr_pick_costs(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, double delay);
static uint32_t kvr_pick_bounded(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, double delay);
static uint32_t kvr_pick_rested(kvr_candidate_t *cand, uint32_t n,
    uint32_t pick);
static int kvr_pick_hot(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, uint32_t pick, uint64_t best,
    double delay);


const kvr_policy_t  kvr_policy_kv_cache = {
    .name = "kv_cache",
    .needs = KVR_NEEDS_BODY | KVR_NEEDS_MATCH | KVR_NEEDS_SCORE
             | KVR_NEEDS_HOME,
    .pick = kvr_policy_kv_cache_pick
};


static uint32_t
kvr_policy_kv_cache_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    int               small;
    double            delay;
    uint32_t          pick;
    kvr_candidate_t  *c;

    small = d->best * KVR_PICK_SMALL < req->bytes;

    /* rate and delay are in 1/16 */

    delay = kvr_score_delay((double) (int32_t) req->rate / 256, req->bytes,
                            d->best);

    if (n > KVR_PICK_FEW && req->home == NULL) {
        pick = kvr_pick_bounded(req, cand, n, delay);

    } else {
        if (req->home) {
            kvr_pick_credits(req, cand, n);
        }

        kvr_pick_costs(req, cand, n, delay);
        pick = kvr_policy_least_request_cost(req, cand, n, 1);
    }

    if (small && d->best && !(req->home && cand[pick].credit)) {
        pick = kvr_pick_rested(cand, n, pick);

        /* its cost may not have been computed */

        cand[pick].cost = kvr_pick_cost(req, &cand[pick], delay);
    }

    c = &cand[pick];

    if (!req->parsed) {
        d->reason = req->no_prefill ? KVR_REASON_LOAD : KVR_REASON_UNPARSED;
        return pick;
    }

    if (kvr_unlikely(req->home != NULL) && c->credit > c->matched) {
        d->reason = KVR_REASON_HOME;

    } else if (small && c->matched < d->best) {
        d->reason = KVR_REASON_COLD;

    } else if (c->matched < d->best) {
        d->reason = kvr_pick_hot(req, cand, n, pick, d->best, delay)
                    ? KVR_REASON_HOT : KVR_REASON_SPILL;

    } else {
        d->reason = d->best ? KVR_REASON_AFFINITY : KVR_REASON_COLD;
    }

    return pick;
}


/* Sets the bytes that count as cached, though they are not known to be. */
static void
kvr_pick_credits(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *home, *second;

    for (i = 0; i < n; i++) {
        cand[i].credit = 0;
    }

    home = kvr_policy_home(req, cand, n, &second);

    if (home) {
        kvr_pick_home(req, home, req->home->credit);
    }

    if (second) {
        kvr_pick_home(req, second, req->home->credit * KVR_HOME_SECOND);
    }
}


static void
kvr_pick_home(const kvr_policy_request_t *req, kvr_candidate_t *c,
    double share)
{
    uint64_t  uncached;

    uncached = req->bytes - kvr_min(c->matched, req->bytes);

    c->credit = (uint64_t) (int64_t) (share * (double) (int64_t) uncached);
}


static inline double
kvr_pick_cost(const kvr_policy_request_t *req, const kvr_candidate_t *c,
    double delay)
{
    kvr_score_t  s;

    s.uncached = req->bytes - kvr_min(c->matched, req->bytes) + c->load;

    if (kvr_unlikely(req->home != NULL)) {
        s.uncached -= kvr_min(c->credit, s.uncached);
    }

    /* an adapter must be loaded first */

    s.pending = c->pending;

    if (kvr_unlikely(c->other)) {
        s.pending += c->evicts ? 2 * KVR_SCORE_MODEL : KVR_SCORE_MODEL;
    }

    s.delay = delay * (double) (int32_t) c->delay;
    s.shared = c->shared;
    s.resident = c->resident;
    s.active = c->active;
    s.waiting = c->unanswered;
    s.weight = c->weight;
    s.turnover = c->turnover;

    return kvr_score_cost(&s);
}


static void
kvr_pick_costs(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, double delay)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        cand[i].cost = kvr_pick_cost(req, &cand[i], delay);
    }
}


/*
 * Returns the least cost of many.  Most candidates are too expensive by their
 * lower bound, kvr_score_least(); they are skipped, with an infinite cost.  The
 * pick is the same as with all costs.
 */
static uint32_t
kvr_pick_bounded(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, double delay)
{
    double            least;
    uint32_t          i, ties;
    uint64_t          uncached, limit, random;
    kvr_candidate_t  *c, *b;

    b = NULL;
    least = INFINITY;
    limit = UINT64_MAX;
    ties = 1;
    random = req->random;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        uncached = req->bytes - kvr_min(c->matched, req->bytes);

        if (kvr_likely(kvr_score_least(c->pending, uncached, c->shared,
                                       c->active)
                       > limit
                       && c->weight == 1))
        {
            c->cost = INFINITY;
            continue;
        }

        c->cost = kvr_pick_cost(req, c, delay);

        if (c->cost > least || c->out
            || (b && !kvr_policy_less(c, b, i, 1, &random, &ties)))
        {
            continue;
        }

        if (b == NULL || c->cost < least) {
            least = c->cost;

            /* plus one: costs are rounded */

            limit = least < (double) INT64_MAX
                    ? (uint64_t) (int64_t) least + 1 : UINT64_MAX;
        }

        b = c;
    }

    return (uint32_t) (b - cand);
}


/*
 * Replaces a pick by an idle peer with the same load.  All prompts may share a
 * prefix.  The first peer that has it would always be the cheapest of an idle
 * fleet, and get everything while the caches of the others are empty.  So a
 * match that is a small part of the prompt does not decide between such peers.
 */
static uint32_t
kvr_pick_rested(kvr_candidate_t *cand, uint32_t n, uint32_t pick)
{
    uint32_t          i, best;
    kvr_candidate_t  *c, *b;

    best = pick;

    for (i = 0; i < n; i++) {
        c = &cand[i];
        b = &cand[best];

        if (!c->out
            && c->weight == b->weight
            && c->active == b->active
            && c->pending == b->pending
            && c->other == b->other
            && c->idle > b->idle)
        {
            best = i;
        }
    }

    return best;
}


/*
 * Tells whether the pick was preferred to a peer with more of the prompt
 * because others will use what it computes: that is most of the missing part,
 * and with the full cost the other peer would have been cheaper.
 */
static int
kvr_pick_hot(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, uint32_t pick, uint64_t best, double delay)
{
    double            cost;
    uint32_t          i;
    kvr_candidate_t   c;

    c = cand[pick];

    if (c.shared * 2 < best - c.matched) {
        return 0;
    }

    c.shared = 0;
    cost = kvr_pick_cost(req, &c, delay);

    for (i = 0; i < n; i++) {

        if (!cand[i].out && cand[i].matched > c.matched
            && kvr_pick_cost(req, &cand[i], delay) < cost)
        {
            return 1;
        }
    }

    return 0;
}
