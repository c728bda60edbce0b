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
 * cost = a0 * pending + max(uncached, a1) * (1 + a2 * active)^a3
 *        + a4 * resident + a5
 */
static void
kvs_lab_power(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *c;

    for (i = 0; i < n; i++) {
        c = &cand[i];
        c->cost = conf->a[0] * (double) c->pending
                  + fmax(kvs_lab_own(req, c), conf->a[1])
                    * pow(1 + conf->a[2] * c->active, conf->a[3])
                  + conf->a[4] * (double) extra[i].resident;
    }
}


/* a floor that is added */
static void
kvs_lab_added(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *c;

    (void) extra;

    for (i = 0; i < n; i++) {
        c = &cand[i];
        c->cost = conf->a[0] * (double) c->pending
                  + (kvs_lab_own(req, c) + conf->a[1])
                    * pow(1 + conf->a[2] * c->active, conf->a[3]);
    }
}


/* pending delays the others too: (a0 * pending + own) * (1 + a2 * active)^a3 */
static void
kvs_lab_product(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *c;

    (void) extra;

    for (i = 0; i < n; i++) {
        c = &cand[i];
        c->cost = (conf->a[0] * (double) c->pending
                   + fmax(kvs_lab_own(req, c), conf->a[1]))
                  * pow(1 + conf->a[2] * c->active, conf->a[3]);
    }
}


/* active as a share of the mean, a2 at the mean */
static void
kvs_lab_share(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    double            mean;
    uint32_t          i;
    kvr_candidate_t  *c;

    (void) extra;

    mean = 0;

    for (i = 0; i < n; i++) {
        mean += (double) cand[i].active / n;
    }

    mean = fmax(mean, 1);

    for (i = 0; i < n; i++) {
        c = &cand[i];
        c->cost = conf->a[0] * (double) c->pending
                  + fmax(kvs_lab_own(req, c), conf->a[1])
                    * pow(1 + conf->a[2] * c->active / mean, conf->a[3]);
    }
}


/*
 * Those that wait for a token, a2 each, and those that run, a3 each; with a4
 * the floor is added.
 */
static void
kvs_lab_phases(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *c;

    for (i = 0; i < n; i++) {
        c = &cand[i];
        c->cost = conf->a[0] * (double) c->pending
                  + (conf->a[4] > 0 ? kvs_lab_own(req, c) + conf->a[1]
                                    : fmax(kvs_lab_own(req, c), conf->a[1]))
                    * (1 + conf->a[2] * extra[i].prefilling
                       + conf->a[3] * (c->active - extra[i].prefilling));
    }
}


/* those that wait, a2 each, and a power of those that run */
static void
kvs_lab_root(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    uint32_t          i;
    kvr_candidate_t  *c;

    for (i = 0; i < n; i++) {
        c = &cand[i];
        c->cost = conf->a[0] * (double) c->pending
                  + fmax(kvs_lab_own(req, c), conf->a[1])
                    * (1 + conf->a[2] * extra[i].prefilling
                       + conf->a[3] * pow(c->active - extra[i].prefilling,
                                          conf->a[4]));
    }
}


/*
 * Those that wait, by count or by work, and what a move costs beyond the
 * delay:
 *
 *     cost = pending + max(uncached, a0) * (1 + W + a2 * running)
 *            + a3 * uncached
 *
 * (running to the power of a5, unless 0) where W is a1 times their number, its
 * root, that of them at most a4, their work in prompts like this one, or in
 * uncached parts like this one's; or a1 times their number for the uncached
 * part only, and a4 times it for all.
 */

typedef enum {
    KVS_LAB_COUNT,
    KVS_LAB_ROOT,
    KVS_LAB_BOUND,
    KVS_LAB_PROMPTS,
    KVS_LAB_PARTS,
    KVS_LAB_BEYOND,
    KVS_LAB_BOTH
} kvs_lab_wait_e;


static inline void
kvs_lab_wait(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvs_lab_wait_e how)
{
    double            own, floor, running, waiting, w;
    uint32_t          i;
    kvr_candidate_t  *c;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        own = kvs_lab_own(req, c);
        floor = fmax(own, conf->a[0]);
        waiting = c->unanswered;
        running = c->active - kvr_min(c->unanswered, c->active);
        running = conf->a[5] > 0 ? pow(running, conf->a[5]) : running;
        w = 0;

        switch (how) {

        case KVS_LAB_COUNT:
            w = waiting;
            break;

        case KVS_LAB_ROOT:
            w = sqrt(waiting);
            break;

        case KVS_LAB_BOUND:
            w = fmin(waiting, conf->a[4]);
            break;

        case KVS_LAB_PROMPTS:
            w = fmin(waiting, (double) c->pending
                              / fmax((double) req->bytes, conf->a[0]));
            break;

        case KVS_LAB_PARTS:
            w = fmin(waiting, (double) c->pending / floor);
            break;

        case KVS_LAB_BEYOND:
            w = waiting * own / floor;
            break;

        case KVS_LAB_BOTH:
            w = waiting * own / floor + waiting * conf->a[4] / conf->a[1];
            break;
        }

        c->cost = (double) c->pending
                  + floor * (1 + conf->a[1] * w + conf->a[2] * running)
                  + conf->a[3] * own;
    }
}


#define KVS_LAB_WAIT(name, how)                                               \
    static void                                                               \
    kvs_lab_##name(const kvs_router_conf_t *conf,                             \
        const kvr_policy_request_t *req, kvr_candidate_t *cand,               \
        const kvs_extra_t *extra, uint32_t n)                                 \
    {                                                                         \
        (void) extra;                                                         \
        kvs_lab_wait(conf, req, cand, n, how);                                \
    }

KVS_LAB_WAIT(count, KVS_LAB_COUNT)
KVS_LAB_WAIT(sqroot, KVS_LAB_ROOT)
KVS_LAB_WAIT(bound, KVS_LAB_BOUND)
KVS_LAB_WAIT(prompts, KVS_LAB_PROMPTS)
KVS_LAB_WAIT(parts, KVS_LAB_PARTS)
KVS_LAB_WAIT(beyond, KVS_LAB_BEYOND)
KVS_LAB_WAIT(both, KVS_LAB_BOTH)


/* count, and a4 of its cost more where another one holds more of the prompt */
static void
kvs_lab_margin(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    uint32_t  i;
    uint64_t  best;

    (void) extra;

    kvs_lab_wait(conf, req, cand, n, KVS_LAB_COUNT);

    best = 0;

    for (i = 0; i < n; i++) {
        best = kvr_max(best, cand[i].matched);
    }

    for (i = 0; best * 2 > req->bytes && i < n; i++) {
        if (cand[i].matched < best) {
            cand[i].cost *= 1 + conf->a[4];
        }
    }
}


/*
 * What ships, with another part of own for each active one, a1, and a0 of the
 * prompts that are being answered there: their decode steps read them all.
 */
static void
kvs_lab_held(const kvs_router_conf_t *conf, const kvr_policy_request_t *req,
    kvr_candidate_t *cand, const kvs_extra_t *extra, uint32_t n)
{
    double            own;
    uint32_t          i;
    kvr_candidate_t  *c;

    for (i = 0; i < n; i++) {
        c = &cand[i];
        own = kvs_lab_own(req, c);
        c->cost = (double) c->pending
                  + fmax(own, 2048) * (1 + conf->a[1] * c->active)
                  + own * (0.75 + c->unanswered / 2.0)
                  + conf->a[0] * (double) extra[i].resident;
    }
}


#define LAB(id, fn, ...)                                                      \
    static const kvs_router_conf_t  kvs_conf_##id = {                         \
        .policy = KVR_POLICY_KV_CACHE, .capacity = 1.25, .reported = 1,       \
        .lab = kvs_lab_##fn, .a = { __VA_ARGS__ }                             \
    };

#include "lab.inc"

#undef LAB
#define LAB(id, fn, ...)                                                      \
    KVS_ROUTER("lab_" #id, KVS_LAB_KIND, &kvs_conf_##id),

const kvs_policy_t  kvs_lab_policies[] = {
#include "lab.inc"
    { NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
};
