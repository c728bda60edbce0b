
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_POLICY_H_INCLUDED_
#define _KVR_POLICY_H_INCLUDED_


/*
 * The policies: pure functions from what is known of the peers to a pick and
 * the reason for it.  The caller offers only peers that may be had at all, and
 * keeps what the policy writes to the candidate (the smooth round robin's
 * weights) for the next time.
 *
 * Before any policy is asked, peers are left out that should get nothing now,
 * as long as there are others: those over their cap of pending work, those
 * being drained, those that are warming up and whose turn it is not.  A peer
 * is not left out for draining or warming up if the session is bound to it, or
 * the prompt is its own: see kvr_policy_own().  One whose time to be drained is
 * over is left out whatever it holds.
 *
 * A policy is a file, kvr_policy_NAME.c, with a descriptor of that name, and a
 * line of the table below.  Nobody else asks which policy it is: the descriptor
 * says what the policy needs.
 */


#include "core/base/kvr_reason.h"
#include "core/policy/kvr_score.h"
#include "core/policy/kvr_home.h"
#include "core/policy/kvr_ring.h"


/*
 * All policies.  The number of a policy is its place, and is kept in shared
 * memory: a new one goes to the end.
 */
#define KVR_POLICY_TABLE(policy)                                              \
    policy(OFF, off)                                                          \
    policy(KV_CACHE, kv_cache)                                                \
    policy(LEAST_REQUEST, least_request)                                      \
    policy(ROUND_ROBIN, round_robin)                                          \
    policy(RANDOM, random)                                                    \
    policy(PREFIX, prefix)                                                    \
    policy(STICKY, sticky)


#define KVR_POLICY_NUMBER(number, name)  KVR_POLICY_##number,

typedef enum {
    KVR_POLICY_TABLE(KVR_POLICY_NUMBER)
    KVR_POLICIES
} kvr_policy_e;


#define KVR_POLICY_NONE  ((uint32_t) -1)


/* what the caller has to find out, or to keep, for a policy: bits of needs */

#define KVR_NEEDS_BODY     0x01  /* the prompt, even if nobody else asks */
#define KVR_NEEDS_MATCH    0x02  /* candidates: matched, documents */
#define KVR_NEEDS_SCORE    0x04  /* shared, other, evicts; costs are bytes */
#define KVR_NEEDS_RING     0x08  /* the prefix's key, and a ring of the peers */
#define KVR_NEEDS_SESSION  0x10  /* its key and peer; the pick is bound */
#define KVR_NEEDS_TURNS    0x20  /* current_weight, effective_weight are kept */
#define KVR_NEEDS_HOME     0x40  /* the home, where several hosts route */


/* how a parameter is written */
typedef enum {
    KVR_PARAM_NUMBER = 0,        /* uint32_t, min .. max */
    KVR_PARAM_DECIMAL,           /* double, min .. max, to a thousandth */
    KVR_PARAM_SIZE,              /* uint32_t, bytes, min .. max; "auto": 0 */
    KVR_PARAM_TIME,              /* uint32_t, seconds, min .. max */
    KVR_PARAM_WORD,              /* uint32_t, the place in words[] */
    KVR_PARAM_KEY                /* the session's key, which the caller keeps */
} kvr_param_e;


/* a parameter of a policy: a place in kvr_policy_conf_t */
typedef struct {
    const char         *name;    /* NULL: the last one */
    kvr_param_e         kind;
    size_t              offset;
    uint32_t            min;
    uint32_t            max;
    const char *const  *words;   /* up to a NULL */
} kvr_policy_param_t;


/* what least_request takes for load */
typedef enum {
    KVR_BY_ACTIVE = 0,           /* requests in flight */
    KVR_BY_PENDING,              /* bytes to be prefilled */
    KVR_BY_WORK,                 /* those, and what is running */
    KVR_BY_KV,                   /* share of the engine's KV in use */
    KVR_BY_WAITING,              /* requests waiting in the engine */
    KVR_BY_MAX
} kvr_by_e;


typedef enum {
    KVR_DOCUMENTS_OFF = 0,
    KVR_DOCUMENTS_TIE,
    KVR_DOCUMENTS_CREDIT,
    KVR_DOCUMENTS_MAX
} kvr_documents_e;


/* a policy and its parameters, as configured */
typedef struct {
    kvr_policy_e     policy;

    /* least_request */
    uint32_t         by;         /* kvr_by_e */

    /* kv_cache: guardrails, 0 when off */
    double           threshold;  /* matched / prompt worth chasing */
    uint32_t         balance_abs;
    double           balance_rel;
    uint32_t         documents;  /* kvr_documents_e */

    /* prefix */
    uint32_t         length;     /* bytes, 0: auto */
    double           load_factor;

    /* sticky */
    uint32_t         timeout;    /* seconds */
    uint32_t         strict;     /* 1: never another peer than the bound one */
} kvr_policy_conf_t;


typedef struct {
    /* what a decision reads of each, in one cache line */

    uint32_t         weight;     /* from 1 */
    uint32_t         active;     /* requests in flight */
    uint32_t         unanswered; /* of them, without a first event */

    union {
        struct {
            unsigned     full:1;     /* over its cap of pending work */
            unsigned     draining:1;
            unsigned     ended:1;    /* and its time for that is over */
            unsigned     common:1;   /* and new sessions begin with what it
                                        holds */
            unsigned     cold:1;     /* warming up, and not its turn */
            unsigned     bound:1;    /* to this session */
            unsigned     pinned:1;   /* by this request */
            unsigned     owner:1;    /* made the response it refers to */
            unsigned     other:1;    /* has not this model, it seems */
            unsigned     unhealthy:1;  /* not in health: only if all are */
            unsigned     sick:1;     /* ejected, likewise */
            unsigned     doubted:1;  /* on trial, see kvr_trial.h */
            unsigned     throttled:1;  /* asked to be left alone, likewise */
            unsigned     evicts:1;   /* and would have to unload another */
            unsigned     fresh:1;    /* kv and waiting: the engine's word */

            unsigned     out:1;      /* out: left out */
        };

        uint32_t     flags;      /* all of these */
    };

    uint64_t         pending;    /* bytes to be prefilled */
    uint64_t         matched;    /* leading bytes of this prompt it holds */
    uint64_t         shared;     /* bytes of the rest, to the use of others */
    double           cost;       /* out; infinite: dearer than the pick */
    uint32_t         idle;       /* picks since it was last given work */
    float            turnover;   /* of its cache, see kvr_index_turnover() */
    uint64_t         resident;   /* bytes of context of what is running */

    uint32_t         delay;      /* of its first tokens, kvr_prefill_delay() */
    uint32_t         place;      /* on the ring */
    uint64_t         documents;  /* bytes of it that it holds elsewhere */
    uint64_t         credit;     /* bytes of the rest that count as held; set
                                    by the policy, if at all */

    double           kv;         /* share in use, if fresh */
    uint32_t         waiting;    /* in the engine, if fresh */

    int64_t          current_weight;  /* in and out: smooth round robin */
    int64_t          effective_weight;
} kvr_candidate_t;


typedef struct {
    kvr_policy_e     policy;
    const kvr_policy_conf_t  *conf;  /* NULL: parameters have defaults */

    uint64_t         bytes;      /* of the prompt */
    uint64_t         random;
    uint32_t         rate;       /* the fastest peer's, of kvr_prefill_t */
    unsigned         parsed:1;   /* there is a prompt to speak of */
    unsigned         no_prefill:1;  /* such a request has no prompt */
    unsigned         retry:1;
    unsigned         keyed:1;    /* there is a session, or a prefix's key */
    unsigned         unpinned:1; /* a peer was named that is not offered */

    /* prefix */
    uint64_t         key;
    const kvr_ring_t  *ring;
    uint32_t         places;     /* on the ring */
    uint32_t        *by_place;   /* scratch, one each */
    uint64_t        *seen;       /* scratch, one bit each */

    /* kv_cache, sticky */
    const kvr_home_t  *home;     /* NULL: no peer is preferred to another */

    /* sticky */
    unsigned         was_bound:1;  /* to a peer that is not offered */
    unsigned         busy:1;       /* since it can take no more now */
} kvr_policy_request_t;


typedef struct {
    uint32_t         pick;       /* index, or KVR_POLICY_NONE: rather wait */
    kvr_reason_e     reason;
    uint64_t         matched;    /* bytes held by the pick */
    uint64_t         best;       /* bytes held by the best of all */
    uint64_t         mean;       /* bytes held by all, to each */
    uint32_t         active;     /* requests in flight at the pick */
    double           cost;
} kvr_decision_t;


/*
 * What a policy is asked, once peers that should get nothing are left out: the
 * index of a candidate that is not out (or KVR_POLICY_NONE, if the policy would
 * rather wait), and the reason.
 */
typedef uint32_t (*kvr_policy_pick_pt)(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);


typedef struct {
    const char                *name;     /* in the configuration, in logs */
    const char                *alias;    /* or NULL */
    unsigned                   needs;    /* KVR_NEEDS_... */
    const kvr_policy_param_t  *params;   /* or NULL */
    kvr_policy_pick_pt         pick;     /* NULL: it is nginx that picks */
} kvr_policy_t;


#define KVR_POLICY_EXTERN(number, name)                                       \
    extern const kvr_policy_t  kvr_policy_##name;

KVR_POLICY_TABLE(KVR_POLICY_EXTERN)


/* by kvr_policy_e */
extern const kvr_policy_t *const  kvr_policy_table[KVR_POLICIES];


/* KVR_NEEDS_... of a policy */
static inline unsigned
kvr_policy_needs(kvr_policy_e policy)
{
    return kvr_policy_table[policy]->needs;
}


/* picks one of n candidates, n from 1 */
void kvr_policy_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *decision);

/* the defaults of a policy's parameters */
void kvr_policy_conf_init(kvr_policy_conf_t *conf, kvr_policy_e policy);

/* the name as in the configuration and in logs; NULL: no such number */
const char *kvr_policy_name(uint32_t policy);

/* the policy of a name, aliases too; KVR_POLICIES if there is none */
kvr_policy_e kvr_policy_by_name(const void *name, size_t len);

/* the parameter of a policy that "name=..." is, or NULL */
const kvr_policy_param_t *kvr_policy_param(kvr_policy_e policy,
    const void *word, size_t len);


#endif /* _KVR_POLICY_H_INCLUDED_ */
