
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_policy.h"


static uint32_t kvr_policy_kv_cache(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);
static uint32_t kvr_policy_least_request(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);
static uint32_t kvr_policy_round_robin(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);
static uint32_t kvr_policy_least_cost(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);


typedef struct {
    const char     *name;
    uint32_t      (*pick)(const kvr_policy_request_t *req,
                          kvr_candidate_t *cand, uint32_t n);
    kvr_reason_e    reason;
} kvr_policy_t;


static const kvr_policy_t  kvr_policies[KVR_POLICIES] = {
    { "off", NULL, KVR_REASON_NONE },
    { "kv_cache", kvr_policy_kv_cache, KVR_REASON_COLD },
    { "least_request", kvr_policy_least_request, KVR_REASON_LOAD },
    { "round_robin", kvr_policy_round_robin, KVR_REASON_TURN },
};


static const char  *kvr_reasons[KVR_REASON_MAX] = {
    "none", "affinity", "spill", "cold", "load", "turn", "only", "retry",
    "unparsed", "bodyless"
};


void
kvr_policy_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    uint32_t             i;
    const kvr_policy_t  *policy;

    policy = &kvr_policies[req->policy];

    d->best = 0;

    for (i = 0; i < n; i++) {
        cand[i].cost = 0;
        d->best = kvr_max(d->best, cand[i].matched);
    }

    d->pick = policy->pick(req, cand, n);
    d->matched = cand[d->pick].matched;
    d->cost = cand[d->pick].cost;
    d->reason = policy->reason;

    if (req->policy == KVR_POLICY_KV_CACHE) {

        if (!req->parsed) {
            d->reason = KVR_REASON_UNPARSED;

        } else if (d->matched < d->best) {
            d->reason = KVR_REASON_SPILL;

        } else if (d->best) {
            d->reason = KVR_REASON_AFFINITY;
        }
    }

    if (n == 1) {
        d->reason = KVR_REASON_ONLY;
    }

    if (req->retry) {
        d->reason = KVR_REASON_RETRY;
    }
}


static uint32_t
kvr_policy_kv_cache(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *c;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        c->cost = kvr_score_cost(c->pending,
                                 req->bytes - kvr_min(c->matched, req->bytes),
                                 c->active, c->weight);
    }

    return kvr_policy_least_cost(req, cand, n);
}


static uint32_t
kvr_policy_least_request(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        cand[i].cost = (double) cand[i].active / cand[i].weight;
    }

    return kvr_policy_least_cost(req, cand, n);
}


/*
 * The least cost; of equal ones that with fewer requests, then the one that
 * holds more of the prompt (below the score's floor it costs the same), then
 * the one not given work for longest, in proportion to the weights, then any:
 * never always the first, which would draw all the traffic of an idle fleet.
 */
static uint32_t
kvr_policy_least_cost(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    int               less;
    double            idle, best_idle;
    uint32_t          i, best, ties;
    uint64_t          random;
    kvr_candidate_t  *c, *b;

    best = 0;
    ties = 1;
    random = req->random;

    for (i = 1; i < n; i++) {
        c = &cand[i];
        b = &cand[best];

        if (c->cost != b->cost) {
            less = c->cost < b->cost;

        } else if (c->active != b->active) {
            less = c->active < b->active;

        } else if (c->matched != b->matched) {
            less = c->matched > b->matched;

        } else {
            /* from 1, or the last one had no chance, whatever its weight */

            idle = ((double) c->idle + 1) * c->weight;
            best_idle = ((double) b->idle + 1) * b->weight;

            if (idle == best_idle) {

                /* each of the equal ones with the same probability */

                random = kvr_mix(random, i);
                less = kvr_reduce(random, ++ties) == 0;

                if (less) {
                    best = i;
                }

                continue;
            }

            less = idle > best_idle;
        }

        if (less) {
            best = i;
            ties = 1;
        }
    }

    return best;
}


/* nginx's smooth weighted round robin */
static uint32_t
kvr_policy_round_robin(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    int64_t           total;
    uint32_t          i, best;
    kvr_candidate_t  *c;

    (void) req;

    best = 0;
    total = 0;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        c->current_weight += c->effective_weight;
        total += c->effective_weight;

        if (c->effective_weight < (int64_t) c->weight) {
            c->effective_weight++;
        }

        if (c->current_weight > cand[best].current_weight) {
            best = i;
        }
    }

    cand[best].current_weight -= total;

    return best;
}


const char *
kvr_policy_name(kvr_policy_e policy)
{
    return (unsigned) policy < KVR_POLICIES ? kvr_policies[policy].name : NULL;
}


const char *
kvr_reason_name(kvr_reason_e reason)
{
    return (unsigned) reason < KVR_REASON_MAX ? kvr_reasons[reason] : NULL;
}


kvr_policy_e
kvr_policy_by_name(const void *name, size_t len)
{
    unsigned     i;
    const char  *p;

    if (len == 10 && memcmp(name, "least_conn", 10) == 0) {
        return KVR_POLICY_LEAST_REQUEST;
    }

    for (i = 0; i < KVR_POLICIES; i++) {
        p = kvr_policies[i].name;

        if (strlen(p) == len && memcmp(p, name, len) == 0) {
            return (kvr_policy_e) i;
        }
    }

    return KVR_POLICIES;
}
