
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_policy_int.h"

#include <math.h>


static kvr_candidate_t *kvr_policy_chosen(kvr_candidate_t *cand, uint32_t n,
    kvr_decision_t *d);
static int kvr_policy_leave_out(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n);
static int kvr_policy_avoid(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_candidate_t flag);


const kvr_policy_t  kvr_policy_off = { .name = "off" };


#define KVR_POLICY_ENTRY(number, name)  &kvr_policy_##name,

const kvr_policy_t *const  kvr_policy_table[] = {
    KVR_POLICY_TABLE(KVR_POLICY_ENTRY)
};

_Static_assert(kvr_nelts(kvr_policy_table) == KVR_POLICIES, "policies");


/* flags that leave a candidate out, or choose it directly */
static const kvr_candidate_t  kvr_policy_special = {
    .full = 1, .draining = 1, .cold = 1, .unhealthy = 1, .sick = 1,
    .throttled = 1,
    .pinned = 1, .owner = 1
};


static const kvr_candidate_t  kvr_policy_out = { .out = 1 };


void
kvr_policy_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    int                     full;
    uint32_t                i, flags, special;
    uint64_t                best, held;
    kvr_candidate_t        *c, *chosen;
    const kvr_policy_t     *policy;

    policy = kvr_policy_table[req->policy];

    d->reason = KVR_REASON_NONE;

    best = 0;
    held = 0;
    flags = 0;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        best = kvr_max(best, c->matched);
        held += c->matched;
        flags |= c->flags;
    }

    d->best = best;
    d->mean = held / n;

    /* from an earlier decision, if the caller has not cleared it */

    for (i = 0; i < n && (flags & kvr_policy_out.flags); i++) {
        cand[i].flags &= ~kvr_policy_out.flags;
    }

    for (i = 0; i < n && !(policy->needs & KVR_NEEDS_SCORE); i++) {
        cand[i].cost = 0;
    }

    /* usually no candidate is left out or chosen directly */

    special = flags & kvr_policy_special.flags;

    chosen = special ? kvr_policy_chosen(cand, n, d) : NULL;

    if (chosen) {
        d->pick = (uint32_t) (chosen - cand);
        chosen->cost = 0;
        full = 0;

    } else {
        full = special ? kvr_policy_leave_out(req, cand, n) : 0;

        d->pick = policy->pick(req, cand, n, d);
    }

    d->matched = cand[d->pick].matched;
    d->active = cand[d->pick].active;
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


/* Returns the pinned candidate, or the owner of the previous response. */
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
 * Tells whether a request belongs to a peer that gets no other requests: its
 * session is bound there, or the peer has cached at least half of what the
 * others would have to compute.  others: bytes that the best of them has.  So
 * a prefix that all have does not count, and neither does one from which many
 * requests continue, because these are new sessions.  If the policy binds
 * sessions, only these count.
 */
static inline int
kvr_policy_own(const kvr_policy_request_t *req, const kvr_candidate_t *c,
    uint64_t others)
{
    return c->bound
           || (!(kvr_policy_needs(req->policy) & KVR_NEEDS_SESSION)
               && !c->common && c->matched > others
               && (c->matched - others) * 2 + others >= req->bytes);
}


/*
 * Leaves out first the peers that are unhealthy, of the rest those ejected, and
 * so on.  Returns 1 if all that are left are full.
 */
static int
kvr_policy_leave_out(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n)
{
    int  room;

    kvr_policy_avoid(NULL, cand, n, (kvr_candidate_t) { .unhealthy = 1 });
    kvr_policy_avoid(NULL, cand, n, (kvr_candidate_t) { .sick = 1 });
    kvr_policy_avoid(NULL, cand, n, (kvr_candidate_t) { .throttled = 1 });

    room = kvr_policy_avoid(NULL, cand, n, (kvr_candidate_t) { .full = 1 });

    kvr_policy_avoid(NULL, cand, n, (kvr_candidate_t) { .ended = 1 });
    kvr_policy_avoid(req, cand, n, (kvr_candidate_t) { .draining = 1 });
    kvr_policy_avoid(req, cand, n, (kvr_candidate_t) { .cold = 1 });

    return !room;
}


/*
 * Leaves out the candidates that have a flag, if there are others.  With req it
 * keeps the candidates that the request belongs to.  Returns 0 if there are no
 * others.
 */
static int
kvr_policy_avoid(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_candidate_t flag)
{
    uint32_t          i, others;
    uint64_t          best;
    kvr_candidate_t  *c;

    others = 0;
    best = 0;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        if (!c->out && !(c->flags & flag.flags)) {
            best = kvr_max(best, c->matched);
            others++;
        }
    }

    for (i = 0; i < n && others; i++) {
        c = &cand[i];

        c->out |= (c->flags & flag.flags)
                  && !(req && kvr_policy_own(req, c, best));
    }

    return others != 0;
}


const char *
kvr_policy_name(uint32_t policy)
{
    return policy < KVR_POLICIES ? kvr_policy_table[policy]->name : NULL;
}


kvr_candidate_t *
kvr_policy_home(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_candidate_t **second)
{
    double             d, least, next;
    uint32_t           i;
    kvr_candidate_t   *c, *first;
    const kvr_home_t  *home;

    home = req->home;
    first = NULL;
    *second = NULL;
    least = INFINITY;
    next = INFINITY;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        if (c->out) {
            continue;
        }

        d = kvr_home_distance(home->key, home->peer[c->place].hash, c->weight);

        if (d < least) {
            *second = first;
            next = least;
            first = c;
            least = d;

        } else if (d < next) {
            *second = c;
            next = d;
        }
    }

    return first;
}


kvr_policy_e
kvr_policy_by_name(const void *name, size_t len)
{
    unsigned             i;
    const kvr_policy_t  *p;

    for (i = 0; i < KVR_POLICIES; i++) {
        p = kvr_policy_table[i];

        if ((strlen(p->name) == len && memcmp(p->name, name, len) == 0)
            || (p->alias && strlen(p->alias) == len
                && memcmp(p->alias, name, len) == 0))
        {
            break;
        }
    }

    return (kvr_policy_e) i;
}
