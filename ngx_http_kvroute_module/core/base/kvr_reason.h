
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_REASON_H_INCLUDED_
#define _KVR_REASON_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * Reasons of a decision for a peer, and of a decision to disaggregate a
 * request.  Decisions are counted by them in shared memory, and reported by
 * their names.
 */


typedef enum {
    KVR_REASON_NONE = 0,
    KVR_REASON_AFFINITY,         /* no peer has cached more of the prompt */
    KVR_REASON_SPILL,            /* a peer has, but is too busy */
    KVR_REASON_COLD,             /* no peer has cached any of it */
    KVR_REASON_LOAD,             /* by load: the policy only uses load, or the
                                    request computes no KV */
    KVR_REASON_TURN,             /* round robin */
    KVR_REASON_RANDOM,
    KVR_REASON_SESSION,          /* the peer that the session is bound to */
    KVR_REASON_BIND,             /* the session was bound by this request */
    KVR_REASON_OVERFLOW,         /* the peer of the session is full */
    KVR_REASON_PINNED,           /* the client named the peer */
    KVR_REASON_UNPINNED,         /* the named peer is not usable */
    KVR_REASON_FULL,             /* all peers are at their limits */
    KVR_REASON_ONLY,             /* there was one candidate */
    KVR_REASON_RETRY,            /* an earlier attempt failed */
    KVR_REASON_UNPARSED,         /* by load: the body has no prompt */
    KVR_REASON_BODYLESS,         /* no body: nginx's round robin */
    KVR_REASON_BYPASS,           /* disabled for this request */
    KVR_REASON_HOT,              /* copied: many requests share the prefix */
    KVR_REASON_SHADOW,           /* by another balancer, see kvroute_shadow */
    KVR_REASON_MOVED,            /* the peer of the early decision, which
                                    headers can name, became unusable */
    KVR_REASON_HOME,             /* the preferred peer of the prefix, which all
                                    hosts agree on */
    KVR_REASON_MAX
} kvr_reason_e;


/*
 * Results of disaggregation, see core/legs/kvr_disaggregate.h: all but the
 * first two are reasons why a request was not disaggregated.
 */
typedef enum {
    KVR_DISAGGREGATE_NONE = 0,   /* not configured */
    KVR_DISAGGREGATE_YES,
    KVR_DISAGGREGATE_UNREAD,     /* the prompt is not known */
    KVR_DISAGGREGATE_KIND,       /* this kind of request cannot be */
    KVR_DISAGGREGATE_SHORT,      /* the prompt is too short */
    KVR_DISAGGREGATE_CACHED,     /* decode peers have cached too much of it */
    KVR_DISAGGREGATE_NOBODY,     /* no usable prefill peer */
    KVR_DISAGGREGATE_COST,       /* one peer is estimated to be faster */
    KVR_DISAGGREGATE_FAILED,     /* the prefill leg failed */
    KVR_DISAGGREGATE_ANSWER,     /* the prefill response had no descriptor */
    KVR_DISAGGREGATE_RETRIED,    /* the decode leg was retried as a whole */
    KVR_DISAGGREGATE_EXPIRED,    /* the lease ended before the decode leg */
    KVR_DISAGGREGATE_MAX
} kvr_disaggregate_e;


/* Return the name for logs and the status; NULL: no such number. */
const char *kvr_reason_name(uint32_t reason);
const char *kvr_reason_disaggregated(uint32_t outcome);


#endif /* _KVR_REASON_H_INCLUDED_ */
