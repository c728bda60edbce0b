
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_policy_int.h"

#include <math.h>


/* among more than these it pays to tell who is too dear at a glance */
#define KVR_PICK_FEW         8

/* one part in so many of a prompt draws no request to an idle peer */
#define KVR_PICK_SMALL       8


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
static uint32_t kvr_pick_chunks(kvr_candidate_t *cand, uint32_t n,
    uint32_t pick);
static int kvr_pick_unbalanced(const kvr_policy_conf_t *conf,
    kvr_candidate_t *cand, uint32_t n, uint32_t pick);
static int kvr_pick_above(const kvr_policy_conf_t *conf, uint32_t active,
    double mean);
static double kvr_pick_load(const kvr_candidate_t *c, kvr_by_e by);
static uint32_t kvr_pick_least_cost(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, int affine);
static inline int kvr_pick_less(kvr_candidate_t *c, kvr_candidate_t *b,
    uint32_t i, int affine, uint64_t *random, uint32_t *ties);


uint32_t
kvr_pick_kv_cache(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    int                       small;
    double                    delay;
    uint32_t                  pick;
    kvr_candidate_t          *c;
    const kvr_policy_conf_t  *conf;

    conf = req->conf;
    small = d->best * KVR_PICK_SMALL < req->bytes;

    /* both are in 1/16 */

    delay = kvr_score_delay((double) (int32_t) req->rate / 256, req->bytes,
                            d->best);

    if (n > KVR_PICK_FEW
        && conf->chunks == KVR_CHUNKS_OFF
        && conf->balance_abs == 0 && conf->balance_rel == 0)
    {
        pick = kvr_pick_bounded(req, cand, n, delay);

    } else {
        kvr_pick_costs(req, cand, n, delay);
        pick = kvr_pick_least_cost(req, cand, n, 1);
    }

    if (small && d->best) {
        pick = kvr_pick_rested(cand, n, pick);

        /* it may have been passed by */

        cand[pick].cost = kvr_pick_cost(req, &cand[pick], delay,
                                        conf->chunks == KVR_CHUNKS_CREDIT);
    }

    if (conf->chunks != KVR_CHUNKS_OFF) {
        pick = kvr_pick_chunks(cand, n, pick);
    }

    c = &cand[pick];

    if (!req->parsed) {
        d->reason = req->light ? KVR_REASON_LOAD : KVR_REASON_UNPARSED;
        return pick;
    }

    if (c->matched && c->matched < conf->threshold * (double) req->bytes) {
        return kvr_pick_least_request(req, cand, n, d);
    }

    if (c->matched && kvr_pick_unbalanced(conf, cand, n, pick)) {

        /* the cheapest of the others, which becomes a further holder */

        pick = kvr_pick_least_cost(req, cand, n, 1);
    }

    if (small && cand[pick].matched < d->best) {
        d->reason = KVR_REASON_COLD;

    } else if (cand[pick].matched < d->best) {
        d->reason = kvr_pick_hot(req, cand, n, pick, d->best, delay)
                    ? KVR_REASON_HOT : KVR_REASON_SPILL;

    } else {
        d->reason = d->best ? KVR_REASON_AFFINITY : KVR_REASON_COLD;
    }

    return pick;
}


static inline double
kvr_pick_cost(const kvr_policy_request_t *req, const kvr_candidate_t *c,
    double delay, int credit)
{
    kvr_score_t  s;

    s.uncached = req->bytes - kvr_min(c->matched, req->bytes);

    if (kvr_unlikely(credit)) {
        s.uncached -= kvr_min(c->chunks / 2, s.uncached);
    }

    /* an adapter would have to be loaded first */

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

    credit = (req->conf->chunks == KVR_CHUNKS_CREDIT);

    for (i = 0; i < n; i++) {
        cand[i].cost = kvr_pick_cost(req, &cand[i], delay, credit);
    }
}


/*
 * The least cost of many.  Most are too dear by what can be told in whole
 * numbers, kvr_score_least().  They are passed by, with an infinite cost.  The
 * pick is the same as with all known.
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
            || (b && !kvr_pick_less(c, b, i, 1, &random, &ties)))
        {
            continue;
        }

        if (b == NULL || c->cost < least) {
            least = c->cost;

            /* by one more than it need be: costs are rounded */

            limit = least < (double) INT64_MAX
                    ? (uint64_t) (int64_t) least + 1 : UINT64_MAX;
        }

        b = c;
    }

    return b ? (uint32_t) (b - cand) : KVR_POLICY_NONE;
}


/*
 * All prompts may begin alike.  The first peer that has that beginning would
 * be the cheapest of an idle fleet each time, and be filled with everything
 * while the caches of the others are empty.  So a match that is a small part
 * of the prompt does not choose between peers with the same load.
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
 * Whether a holder of more was left for what others will have of it here: it is
 * most of what that one holds, and with all of it charged the pick would have
 * been dearer.
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
    credit = (req->conf->chunks == KVR_CHUNKS_CREDIT);
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


/* of those that cost nearly the same, the one with most of the documents */
static uint32_t
kvr_pick_chunks(kvr_candidate_t *cand, uint32_t n, uint32_t pick)
{
    double    limit;
    uint32_t  i, best;

    best = pick;
    limit = cand[pick].cost * 1.1;

    for (i = 0; i < n; i++) {

        if (!cand[i].out
            && cand[i].cost <= limit
            && cand[i].matched >= cand[pick].matched
            && cand[i].chunks > cand[best].chunks)
        {
            best = i;
        }
    }

    return best;
}


/*
 * Whether the holder has so many more requests than the mean that it should be
 * spared.  It is asked for the one peer this request would go to: a fleet that
 * is out of balance elsewhere is no reason to leave a cache that is idle.  If
 * so it is left out, and with it the others of which the same is true: a hot
 * prompt has several holders.  One peer at least is not above the mean.
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

    /* what a weight of one has in the mean: more is due to a greater one */

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


/* a bound that is not set neither holds nor forbids */
static int
kvr_pick_above(const kvr_policy_conf_t *conf, uint32_t active, double mean)
{
    int  abs, rel;

    abs = active > mean + conf->balance_abs;
    rel = active > mean * conf->balance_rel;

    if (conf->balance_abs == 0) {
        return rel;
    }

    if (conf->balance_rel == 0) {
        return abs;
    }

    return conf->balance_any ? abs || rel : abs && rel;
}


uint32_t
kvr_pick_least_request(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d)
{
    kvr_by_e  by;
    uint32_t  i;

    by = req->conf->by;

    /*
     * An engine's word cannot be held against our count of another one's
     * requests: it is all of them or none.  One that is old is none.
     */

    if (by == KVR_BY_KV || by == KVR_BY_WAITING) {

        for (i = 0; i < n; i++) {
            if (!cand[i].out && !cand[i].fresh) {
                by = KVR_BY_ACTIVE;
                break;
            }
        }
    }

    for (i = 0; i < n; i++) {
        cand[i].cost = kvr_pick_load(&cand[i], by) / cand[i].weight;
    }

    d->reason = KVR_REASON_LOAD;

    return kvr_pick_least_cost(req, cand, n, 0);
}


static double
kvr_pick_load(const kvr_candidate_t *c, kvr_by_e by)
{
    switch (by) {

    case KVR_BY_PENDING:
        return (double) c->pending;

    case KVR_BY_WORK:
        return (double) c->pending + (double) c->resident;

    case KVR_BY_KV:
        return c->kv;

    case KVR_BY_WAITING:
        return c->waiting;

    default:
        return c->active;
    }
}


/* nginx's smooth weighted round robin */
uint32_t
kvr_pick_round_robin(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    int64_t           total;
    uint32_t          i, best;
    kvr_candidate_t  *c;

    (void) req;

    best = KVR_POLICY_NONE;
    total = 0;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        if (c->out) {
            continue;
        }

        c->current_weight += c->effective_weight;
        total += c->effective_weight;

        if (c->effective_weight < (int64_t) c->weight) {
            c->effective_weight++;
        }

        if (best == KVR_POLICY_NONE
            || c->current_weight > cand[best].current_weight)
        {
            best = i;
        }
    }

    cand[best].current_weight -= total;

    d->reason = KVR_REASON_TURN;

    return best;
}


uint32_t
kvr_pick_random(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    uint32_t  i, pick;
    uint64_t  total, at;

    total = 0;

    for (i = 0; i < n; i++) {
        total += cand[i].out ? 0 : cand[i].weight;
    }

    /* the random word may be a counter in its lower half */

    at = kvr_reduce(kvr_mix(req->random, 1), total);
    pick = 0;

    for (i = 0; i < n; i++) {

        if (cand[i].out) {
            continue;
        }

        pick = i;

        if (at < cand[i].weight) {
            break;
        }

        at -= cand[i].weight;
    }

    d->reason = KVR_REASON_RANDOM;

    return pick;
}


/*
 * The least cost; of equal ones that with fewer requests, then, if that is to
 * matter, the one that holds more of the prompt (below the score's floor it
 * costs the same), then the one not given work for longest, in proportion to
 * the weights, then any: never always the first, which would draw all the
 * traffic of an idle fleet.
 */
static uint32_t
kvr_pick_least_cost(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, int affine)
{
    double            least;
    uint32_t          i, ties;
    uint64_t          random;
    kvr_candidate_t  *c, *b;

    b = NULL;
    least = INFINITY;
    ties = 1;
    random = req->random;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        /* most are neither as cheap nor left out */

        if (kvr_likely(c->cost > least) || c->out
            || (b && !kvr_pick_less(c, b, i, affine, &random, &ties)))
        {
            continue;
        }

        b = c;
        least = c->cost;
    }

    return b ? (uint32_t) (b - cand) : KVR_POLICY_NONE;
}


/* whether c takes the place of b, the best so far, which is no cheaper */
static inline int
kvr_pick_less(kvr_candidate_t *c, kvr_candidate_t *b, uint32_t i, int affine,
    uint64_t *random, uint32_t *ties)
{
    int     less;
    double  idle, best_idle;

    if (c->cost != b->cost) {
        less = c->cost < b->cost;

    } else if (c->active != b->active) {
        less = c->active < b->active;

    } else if (affine && c->matched != b->matched) {
        less = c->matched > b->matched;

    } else {
        /* from 1, or the last one had no chance, whatever its weight */

        idle = ((double) c->idle + 1) * c->weight;
        best_idle = ((double) b->idle + 1) * b->weight;

        if (idle == best_idle) {

            /* each of the equal ones with the same probability */

            *random = kvr_mix(*random, i);

            return kvr_reduce(*random, ++*ties) == 0;
        }

        less = idle > best_idle;
    }

    if (less) {
        *ties = 1;
    }

    return less;
}
