
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_POLICY_H_INCLUDED_
#define _KVR_POLICY_H_INCLUDED_


/*
 * The policies: pure functions from what is known of the peers to a pick and
 * its reason.  The caller offers only usable peers, and keeps what the policy
 * writes to a candidate (the weights of smooth round robin) for the next time.
 *
 * Before the policy is asked, peers that should get nothing now are left out,
 * if there are others: unhealthy, ejected or overloaded ones, those over their
 * cap of pending work, draining ones, and those that are warming up in
 * decisions that are not for them.  Draining and warm-up do not leave out a
 * peer that the session is bound to or that alone has the prompt, see
 * kvr_policy_own().  When the time of draining is over, the peer is always
 * left out.
 *
 * A policy is a file, kvr_policy_NAME.c, with a descriptor of that name, and a
 * line of the table below.  Other code does not ask which policy it is: the
 * descriptor says what the policy needs.
 */


#include "core/base/kvr_reason.h"
#include "core/policy/kvr_score.h"
#include "core/policy/kvr_home.h"


/*
 * All policies.  A policy's number is its place here, and is kept in shared
 * memory: add new ones at the end.
 */
#define KVR_POLICY_TABLE(policy)                                              \
    policy(OFF, off)                                                          \
    policy(KV_CACHE, kv_cache)                                                \
    policy(LEAST_REQUEST, least_request)                                      \
    policy(ROUND_ROBIN, round_robin)                                          \
    policy(RANDOM, random)                                                    \
    policy(STICKY, sticky)


#define KVR_POLICY_NUMBER(number, name)  KVR_POLICY_##number,

typedef enum {
    KVR_POLICY_TABLE(KVR_POLICY_NUMBER)
    KVR_POLICIES
} kvr_policy_e;


#define KVR_POLICY_NONE  ((uint32_t) -1)


/* bits of needs: what the caller must find out or keep for a policy */

#define KVR_NEEDS_BODY     0x01  /* the prompt, even if nothing else needs it */
#define KVR_NEEDS_MATCH    0x02  /* matched of candidates */
#define KVR_NEEDS_SCORE    0x04  /* shared, other, evicts; costs are bytes */
#define KVR_NEEDS_SESSION  0x08  /* the session's key; the pick is bound */
#define KVR_NEEDS_TURNS    0x10  /* current_weight and effective_weight kept */
#define KVR_NEEDS_HOME     0x20  /* the home, if several hosts route */


typedef struct {
    /* what a decision reads of each peer, in one cache line */

    uint32_t         weight;     /* from 1 */
    uint32_t         active;     /* requests in flight */
    uint32_t         unanswered; /* of these, without a first event */

    union {
        struct {
            unsigned     full:1;     /* over its cap of pending work */
            unsigned     draining:1;
            unsigned     ended:1;    /* the time of draining is over */
            unsigned     common:1;   /* new sessions start with the match */
            unsigned     cold:1;     /* warming up, left out this time */
            unsigned     bound:1;    /* has the session */
            unsigned     pinned:1;   /* named by the request */
            unsigned     owner:1;    /* of the previous response */
            unsigned     other:1;    /* seems not to have the model */
            unsigned     unhealthy:1;  /* used only if all are */
            unsigned     sick:1;     /* ejected, likewise */
            unsigned     doubted:1;  /* on trial, see kvr_trial.h */
            unsigned     throttled:1;  /* has asked for a pause, likewise */
            unsigned     evicts:1;   /* must unload another model */

            unsigned     out:1;      /* result: left out */
        };

        uint32_t     flags;      /* all of these */
    };

    uint64_t         pending;    /* bytes to be prefilled */
    uint64_t         matched;    /* leading bytes of the prompt in its cache */
    uint64_t         shared;     /* bytes of the rest that others will use */
    double           cost;       /* out; infinite: more than the pick's */
    uint32_t         idle;       /* picks since its last one */
    float            turnover;   /* of its cache, see kvr_index_turnover() */
    uint64_t         load;       /* bytes of prefill that loads from lower
                                    tiers take as long as, */
    uint64_t         fetch;      /* and those from another peer */
    uint64_t         resident;   /* bytes of context of running requests */

    uint32_t         delay;      /* of its first tokens, kvr_prefill_delay() */
    uint32_t         place;      /* in the list */
    uint64_t         credit;     /* bytes of the rest that count as cached, as
                                    it is the home; set by the policy */

    int64_t          current_weight;  /* in and out: smooth round robin */
    int64_t          effective_weight;
} kvr_candidate_t;


typedef struct {
    kvr_policy_e     policy;

    uint64_t         bytes;      /* of the prompt */
    uint64_t         random;
    uint32_t         rate;       /* of the fastest peer, see kvr_prefill_t */
    unsigned         parsed:1;   /* a prompt was read */
    unsigned         no_prefill:1;  /* such a request has no prompt */
    unsigned         retry:1;
    unsigned         keyed:1;    /* a key of the session is set */
    unsigned         unpinned:1; /* the named peer is not usable */

    /* kv_cache, sticky */
    const kvr_home_t  *home;     /* or NULL */

    /* sticky */
    unsigned         busy:1;     /* the peer of the session is full now */
} kvr_policy_request_t;


typedef struct {
    uint32_t         pick;       /* index of the candidate */
    kvr_reason_e     reason;
    uint64_t         matched;    /* bytes cached on the pick */
    uint64_t         best;       /* bytes cached on the best peer */
    uint64_t         mean;       /* bytes cached on the average peer */
    uint32_t         active;     /* requests in flight at the pick */
    double           cost;
} kvr_decision_t;


/*
 * Returns the index of a candidate that is not out, and sets the reason.  There
 * is always one.
 */
typedef uint32_t (*kvr_policy_pick_pt)(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);


typedef struct {
    const char                *name;     /* in the configuration, in logs */
    const char                *alias;    /* or NULL */
    unsigned                   needs;    /* KVR_NEEDS_... */
    kvr_policy_pick_pt         pick;     /* NULL: nginx picks */
} kvr_policy_t;


#define KVR_POLICY_EXTERN(number, name)                                       \
    extern const kvr_policy_t  kvr_policy_##name;

KVR_POLICY_TABLE(KVR_POLICY_EXTERN)


/* by kvr_policy_e */
extern const kvr_policy_t *const  kvr_policy_table[KVR_POLICIES];


/* Returns KVR_NEEDS_... of a policy. */
static inline unsigned
kvr_policy_needs(kvr_policy_e policy)
{
    return kvr_policy_table[policy]->needs;
}


/* Picks one of n candidates, n from 1. */
void kvr_policy_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *decision);

/* Returns the name in the configuration and in logs, or NULL. */
const char *kvr_policy_name(uint32_t policy);

/* Returns the policy of a name or an alias, or KVR_POLICIES. */
kvr_policy_e kvr_policy_by_name(const void *name, size_t len);


#endif /* _KVR_POLICY_H_INCLUDED_ */
