
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
static inline int kvr_pick_credited(const kvr_policy_request_t *req);
static void kvr_pick_credits(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);
static void kvr_pick_home(const kvr_policy_request_t *req, kvr_candidate_t *c,
    double share);
static inline double kvr_pick_cost(const kvr_policy_request_t *req,
    const kvr_candidate_t *c, double delay, int credit);
static void kvr_pick_costs(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, double delay);
static uint32_t kvr_pick_bounded(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, double delay);
static uint32_t kvr_pick_rested(kvr_candidate_t *cand, uint32_t n,
    uint32_t pick);
static int kvr_pick_hot(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, uint32_t pick, uint64_t best,
    double delay);
static uint32_t kvr_pick_documents(kvr_candidate_t *cand, uint32_t n,
    uint32_t pick);
static int kvr_pick_unbalanced(const kvr_policy_conf_t *conf,
    kvr_candidate_t *cand, uint32_t n, uint32_t pick);
static int kvr_pick_above(const kvr_policy_conf_t *conf, uint32_t active,
    double mean);


static const char *const  kvr_policy_kv_cache_documents[] = {
    "off", "tie", "credit", NULL
};

_Static_assert(kvr_nelts(kvr_policy_kv_cache_documents)
               == KVR_DOCUMENTS_MAX + 1, "words of chunks=");


static const kvr_policy_param_t  kvr_policy_kv_cache_params[] = {
    { "threshold", KVR_PARAM_DECIMAL, offsetof(kvr_policy_conf_t, threshold),
      0, 1, NULL },
    { "balance_abs", KVR_PARAM_NUMBER,
      offsetof(kvr_policy_conf_t, balance_abs), 0, 1000000, NULL },
    { "balance_rel", KVR_PARAM_DECIMAL,
      offsetof(kvr_policy_conf_t, balance_rel), 1, 1000, NULL },
    { "chunks", KVR_PARAM_WORD, offsetof(kvr_policy_conf_t, documents),
      0, 0, kvr_policy_kv_cache_documents },
    { 0 }
};


const kvr_policy_t  kvr_policy_kv_cache = {
    .name = "kv_cache",
    .needs = KVR_NEEDS_BODY | KVR_NEEDS_MATCH | KVR_NEEDS_SCORE
             | KVR_NEEDS_HOME,
    .params = kvr_policy_kv_cache_params,
    .pick = kvr_policy_kv_cache_pick
};


static uint32_t
kvr_policy_kv_cache_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    int                       small;
    double                    delay;
    uint32_t                  pick;
    kvr_candidate_t          *c;
    const kvr_policy_conf_t  *conf;

    conf = req->conf;
    small = d->best * KVR_PICK_SMALL < req->bytes;

    /* rate and delay are in 1/16 */

    delay = kvr_score_delay((double) (int32_t) req->rate / 256, req->bytes,
                            d->best);

    if (n > KVR_PICK_FEW
        && req->home == NULL
        && conf->documents == KVR_DOCUMENTS_OFF
        && conf->balance_abs == 0 && conf->balance_rel == 0)
    {
        pick = kvr_pick_bounded(req, cand, n, delay);

    } else {
        if (kvr_pick_credited(req)) {
            kvr_pick_credits(req, cand, n);
        }

        kvr_pick_costs(req, cand, n, delay);
        pick = kvr_policy_least_request_cost(req, cand, n, 1);
    }

    if (small && d->best && !(req->home && cand[pick].credit)) {
        pick = kvr_pick_rested(cand, n, pick);

        /* its cost may not have been computed */

        cand[pick].cost = kvr_pick_cost(req, &cand[pick], delay,
                                        kvr_pick_credited(req));
    }

    if (conf->documents != KVR_DOCUMENTS_OFF) {
        pick = kvr_pick_documents(cand, n, pick);
    }

    c = &cand[pick];

    if (!req->parsed) {
        d->reason = req->no_prefill ? KVR_REASON_LOAD : KVR_REASON_UNPARSED;
        return pick;
    }

    if (c->matched && c->matched < conf->threshold * (double) req->bytes) {
        return kvr_policy_least_request_pick(req, cand, n, d);
    }

    if (c->matched && kvr_pick_unbalanced(conf, cand, n, pick)) {

        /* the cheapest of the others, which becomes another holder */

        pick = kvr_policy_least_request_cost(req, cand, n, 1);
    }

    if (kvr_unlikely(req->home != NULL)
        && cand[pick].credit > cand[pick].matched)
    {
        d->reason = KVR_REASON_HOME;

    } else if (small && cand[pick].matched < d->best) {
        d->reason = KVR_REASON_COLD;

    } else if (cand[pick].matched < d->best) {
        d->reason = kvr_pick_hot(req, cand, n, pick, d->best, delay)
                    ? KVR_REASON_HOT : KVR_REASON_SPILL;

    } else {
        d->reason = d->best ? KVR_REASON_AFFINITY : KVR_REASON_COLD;
    }

    return pick;
}


/* Tells whether candidates have a credit. */
static inline int
kvr_pick_credited(const kvr_policy_request_t *req)
{
    return req->home != NULL || req->conf->documents == KVR_DOCUMENTS_CREDIT;
}


/* Sets the bytes that count as cached, though they are not known to be. */
static void
kvr_pick_credits(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *home, *second;

    for (i = 0; i < n; i++) {
        cand[i].credit = req->conf->documents == KVR_DOCUMENTS_CREDIT
                         ? cand[i].documents / 2 : 0;
    }

    if (req->home == NULL) {
        return;
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

    c->credit += (uint64_t) (int64_t) (share * (double) (int64_t) uncached);
}


static inline double
kvr_pick_cost(const kvr_policy_request_t *req, const kvr_candidate_t *c,
    double delay, int credit)
{
    kvr_score_t  s;

    s.uncached = req->bytes - kvr_min(c->matched, req->bytes) + c->load;

    if (kvr_unlikely(credit)) {
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
    int       credit;
    uint32_t  i;

    credit = kvr_pick_credited(req);

    for (i = 0; i < n; i++) {
        cand[i].cost = kvr_pick_cost(req, &cand[i], delay, credit);
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

        c->cost = kvr_pick_cost(req, c, delay, 0);

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

    return b ? (uint32_t) (b - cand) : KVR_POLICY_NONE;
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
    int               credit;
    double            cost;
    uint32_t          i;
    kvr_candidate_t   c;

    c = cand[pick];

    if (c.shared * 2 < best - c.matched) {
        return 0;
    }

    c.shared = 0;
    credit = kvr_pick_credited(req);
    cost = kvr_pick_cost(req, &c, delay, credit);

    for (i = 0; i < n; i++) {

        if (!cand[i].out && cand[i].matched > c.matched
            && kvr_pick_cost(req, &cand[i], delay, credit) < cost)
        {
            return 1;
        }
    }

    return 0;
}


/* Returns the peer with most of the documents, among nearly equal costs. */
static uint32_t
kvr_pick_documents(kvr_candidate_t *cand, uint32_t n, uint32_t pick)
{
    double    limit;
    uint32_t  i, best;

    best = pick;
    limit = cand[pick].cost * 1.1;

    for (i = 0; i < n; i++) {

        if (!cand[i].out
            && cand[i].cost <= limit
            && cand[i].matched >= cand[pick].matched
            && cand[i].documents > cand[best].documents)
        {
            best = i;
        }
    }

    return best;
}


/*
 * Tells whether the picked holder has too many more requests than the average.
 * Only the peer that this request would go to is compared: an imbalance
 * elsewhere is no reason to leave an idle cache.  If so, it is left out, with
 * all others for which the same is true: a hot prompt has several holders.  At
 * least one peer is not above the average.
 */
static int
kvr_pick_unbalanced(const kvr_policy_conf_t *conf, kvr_candidate_t *cand,
    uint32_t n, uint32_t pick)
{
    double    mean, weights;
    uint32_t  i, count;

    if (conf->balance_abs == 0 && conf->balance_rel == 0) {
        return 0;
    }

    mean = 0;
    weights = 0;
    count = 0;

    for (i = 0; i < n; i++) {
        if (!cand[i].out) {
            mean += cand[i].active;
            weights += cand[i].weight;
            count++;
        }
    }

    if (count < 2) {
        return 0;
    }

    /* the average for a weight of one */

    mean /= weights;

    if (!kvr_pick_above(conf, cand[pick].active, mean * cand[pick].weight)) {
        return 0;
    }

    for (i = 0; i < n; i++) {
        cand[i].out |= kvr_pick_above(conf, cand[i].active,
                                      mean * cand[i].weight);
    }

    return 1;
}


/* Tells whether all configured bounds are exceeded. */
static int
kvr_pick_above(const kvr_policy_conf_t *conf, uint32_t active, double mean)
{
    return (conf->balance_abs == 0 || active > mean + conf->balance_abs)
           && (conf->balance_rel == 0 || active > mean * conf->balance_rel);
}
