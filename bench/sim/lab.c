/*
 * Scores that were tried in place of the shipped one, with the same index,
 * counts and rule for ties.
 */

#include "router.h"


uint32_t
kvs_lab_least(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    int               less;
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

        } else if (c->idle != b->idle) {
            less = c->idle > b->idle;

        } else {
            random = kvr_mix(random, i);

            if (kvr_reduce(random, ++ties) == 0) {
                best = i;
            }

            continue;
        }

        if (less) {
            best = i;
            ties = 1;
        }
    }

    return best;
}


static inline double
kvs_lab_own(const kvr_policy_request_t *req, const kvr_candidate_t *c)
{
    return (double) (req->bytes - kvr_min(c->matched, req->bytes));
}


/*
 * a0 bytes for each in flight, hot blocks for less (a1: 20 requests halve it;
 * a2: counted at the first token; a3: s; a4: where), a5 of what goes for it
 */
static void
kvs_lab_hot(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    double            own, best;
    uint32_t          i;
    kvr_candidate_t  *c;

    best = 0;

    for (i = 0; i < n; i++) {
        best = fmax(best, (double) cand[i].matched);
    }

    for (i = 0; i < n; i++) {
        c = &cand[i];
        own = extra[i].own;
        c->cost = (double) c->pending
                  + fmax(own, 2048) * (1 + c->active / 5.0)
                  + own * (0.75 - conf->a[8] + c->unanswered / 2.0)
                  + conf->a[0] * c->active
                  + conf->a[10] * (double) extra[i].resident
                  + conf->a[11] * extra[i].stray
                    * (1 - conf->a[13] * best / (double) req->bytes)
                  + conf->a[5] * kvs_lab_own(req, c)
                    * extra[i].evicts;
    }
}


#define LAB(id, fn, ...)                                                      \
    static const kvs_router_conf_t  kvs_conf_##id = {                         \
        .policy = KVR_POLICY_KV_CACHE, .capacity = 1.25, .reported = 1,       \
        .lab = kvs_lab_##fn, .a = { __VA_ARGS__ }                             \
    };

#define HOT(id, ...)                                                          \
    static const kvs_router_conf_t  kvs_conf_##id = {                         \
        .policy = KVR_POLICY_KV_CACHE, .timed = 1, .heat = 1,                 \
        .lab = kvs_lab_hot, .a = { __VA_ARGS__ }                              \
    };                                                                        \
    static const kvs_router_conf_t  kvs_conf_r##id = {                        \
        .policy = KVR_POLICY_KV_CACHE, .capacity = 1.25, .reported = 1,       \
        .heat = 1, .lab = kvs_lab_hot, .a = { __VA_ARGS__ }                   \
    };

#include "lab.inc"

#undef HOT
#define HOT(id, ...)                                                          \
    KVS_ROUTER("hot_" #id, KVS_LAB_KIND, &kvs_conf_##id),                     \
    KVS_ROUTER("rhot_" #id, KVS_LAB_KIND, &kvs_conf_r##id),

#undef LAB
#define LAB(id, fn, ...)                                                      \
    KVS_ROUTER("lab_" #id, KVS_LAB_KIND, &kvs_conf_##id),

const kvs_policy_t  kvs_lab_policies[] = {
#include "lab.inc"
    { NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
};
