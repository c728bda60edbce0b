
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_policy_int.h"


typedef uint32_t (*kvr_policy_pt)(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);


static kvr_candidate_t *kvr_policy_chosen(kvr_candidate_t *cand, uint32_t n,
    kvr_decision_t *d);
static int kvr_policy_leave_out(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);

typedef struct {
    const char     *name;
    kvr_policy_pt   pick;
} kvr_policy_t;


static const kvr_policy_t  kvr_policies[] = {
    { "off", NULL },
    { "kv_cache", kvr_pick_kv_cache },
    { "least_request", kvr_pick_least_request },
    { "round_robin", kvr_pick_round_robin },
    { "random", kvr_pick_random },
    { "prefix", kvr_pick_prefix },
    { "sticky", kvr_pick_sticky }
};

_Static_assert(kvr_nelts(kvr_policies) == KVR_POLICIES, "kvr_policies");


static const char *const  kvr_reasons[] = {
    "none", "affinity", "spill", "cold", "load", "turn", "random", "ring",
    "session", "bind", "overflow", "pinned", "unpinned", "full", "only",
    "retry", "unparsed", "bodyless", "bypass", "hot"
};

_Static_assert(kvr_nelts(kvr_reasons) == KVR_REASON_MAX, "kvr_reasons");


static const char *const  kvr_bys[] = {
    "active", "pending", "work", "kv", "waiting"
};

_Static_assert(kvr_nelts(kvr_bys) == KVR_BY_MAX, "kvr_bys");


static const kvr_policy_conf_t  kvr_policy_defaults = {
    .load_factor = 1.25,
    .timeout = 3600
};


/* flags that leave a candidate out, or choose it beforehand */
static const kvr_candidate_t  kvr_policy_special = {
    .full = 1, .draining = 1, .cold = 1, .sick = 1, .pressed = 1,
    .pinned = 1, .owner = 1
};


static const kvr_candidate_t  kvr_policy_out = { .out = 1 };


void
kvr_policy_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    int                     full;
    uint32_t                i, flags, special;
    uint64_t                best;
    kvr_candidate_t        *c, *chosen;
    kvr_policy_request_t    r;

    r = *req;

    if (r.conf == NULL) {
        r.conf = &kvr_policy_defaults;
    }

    d->reason = KVR_REASON_NONE;

    best = 0;
    flags = 0;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        best = kvr_max(best, c->matched);
        flags |= c->flags;
    }

    d->best = best;

    /* what is left of a decision before, if the caller has not cleared it */

    for (i = 0; i < n && (flags & kvr_policy_out.flags); i++) {
        cand[i].flags &= ~kvr_policy_out.flags;
    }

    for (i = 0; i < n && r.policy != KVR_POLICY_KV_CACHE; i++) {
        cand[i].cost = 0;
    }

    /* as a rule there is nobody to be left out, or chosen beforehand */

    special = flags & kvr_policy_special.flags;

    chosen = special ? kvr_policy_chosen(cand, n, d) : NULL;

    if (chosen) {
        d->pick = (uint32_t) (chosen - cand);
        chosen->cost = 0;
        full = 0;

    } else {
        full = special ? kvr_policy_leave_out(&r, cand, n) : 0;

        d->pick = kvr_policies[r.policy].pick(&r, cand, n, d);
    }

    if (d->pick == KVR_POLICY_NONE) {
        d->matched = 0;
        d->cost = 0;
        return;
    }

    d->matched = cand[d->pick].matched;
    d->cost = cand[d->pick].cost;

    if (n == 1 && d->reason != KVR_REASON_PINNED) {
        d->reason = KVR_REASON_ONLY;
    }

    if (full) {
        d->reason = KVR_REASON_FULL;
    }

    if (req->unpinned) {
        d->reason = KVR_REASON_UNPINNED;
    }

    if (req->retry) {
        d->reason = KVR_REASON_RETRY;
    }
}


/* the one that was named, or made the response that is referred to */
static kvr_candidate_t *
kvr_policy_chosen(kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        if (cand[i].pinned) {
            d->reason = KVR_REASON_PINNED;
            return &cand[i];
        }
    }

    for (i = 0; i < n; i++) {
        if (cand[i].owner) {
            d->reason = KVR_REASON_SESSION;
            return &cand[i];
        }
    }

    return NULL;
}


/*
 * A beginning that all prompts share makes none of them a peer's own.  Nor does
 * what is held where sessions decide: a new one stays away.
 */
static inline int
kvr_policy_own(const kvr_policy_request_t *req, const kvr_candidate_t *c)
{
    return c->bound
           || (req->policy != KVR_POLICY_STICKY
               && c->matched && c->matched * 2 >= req->bytes);
}


/* returns 1 if all are full, which then counts for none */
static int
kvr_policy_leave_out(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    uint32_t          i, roomy, steady, warm, well, calm;
    kvr_candidate_t  *c;

    /* those in health, of these those not pressed, of these those with room */

    well = 0;
    calm = 0;
    roomy = 0;

    for (i = 0; i < n; i++) {
        well += !cand[i].sick;
    }

    for (i = 0; i < n; i++) {
        c = &cand[i];

        c->out = (well && c->sick);
        calm += (!c->out && !c->pressed);
    }

    for (i = 0; i < n; i++) {
        c = &cand[i];

        c->out |= (calm && c->pressed);
        roomy += (!c->out && !c->full);
    }

    for (i = 0; i < n; i++) {
        cand[i].out |= (roomy && cand[i].full);
    }

    /* those that a drain or a warm-up does not concern, among the rest */

    steady = 0;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        steady += (!c->out && !c->draining);
    }

    for (i = 0; i < n && steady; i++) {
        c = &cand[i];

        c->out |= (c->draining && !kvr_policy_own(req, c));
    }

    warm = 0;

    for (i = 0; i < n; i++) {
        warm += (!cand[i].out && !cand[i].cold);
    }

    for (i = 0; i < n && warm; i++) {
        c = &cand[i];

        c->out |= (c->cold && !kvr_policy_own(req, c));
    }

    return roomy == 0;
}


void
kvr_policy_conf_init(kvr_policy_conf_t *conf, kvr_policy_e policy)
{
    *conf = kvr_policy_defaults;
    conf->policy = policy;
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


const char *
kvr_by_name(kvr_by_e by)
{
    return (unsigned) by < KVR_BY_MAX ? kvr_bys[by] : NULL;
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
