
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_REASON_H_INCLUDED_
#define _KVR_REASON_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * Reasons for a pick, and for one server or two: what decisions are counted by,
 * in shared memory, and told by.
 */


typedef enum {
    KVR_REASON_NONE = 0,
    KVR_REASON_AFFINITY,         /* no peer holds more of the prompt */
    KVR_REASON_SPILL,            /* one does, but is busier than it is worth */
    KVR_REASON_COLD,             /* no peer holds any of it */
    KVR_REASON_LOAD,             /* only load counts: to the policy, or since
                                    nothing will stay in any cache */
    KVR_REASON_TURN,             /* round robin */
    KVR_REASON_RANDOM,
    KVR_REASON_RING,             /* where the prefix belongs */
    KVR_REASON_SESSION,          /* where the session is bound */
    KVR_REASON_BIND,             /* a session that is bound now */
    KVR_REASON_OVERFLOW,         /* bound to a peer that is full */
    KVR_REASON_PINNED,           /* the client named the peer */
    KVR_REASON_UNPINNED,         /* it did, but that one cannot be had */
    KVR_REASON_FULL,             /* all peers are over their caps */
    KVR_REASON_ONLY,             /* there was no choice */
    KVR_REASON_RETRY,            /* an earlier attempt failed */
    KVR_REASON_UNPARSED,         /* the body gave no prompt: by load */
    KVR_REASON_BODYLESS,         /* no body: nginx's own round robin */
    KVR_REASON_BYPASS,           /* switched off for this request */
    KVR_REASON_HOT,              /* many have what it computes once more */
    KVR_REASON_SHADOW,           /* another balancer's, see kvroute_shadow */
    KVR_REASON_MOVED,            /* the one decided on early, which headers may
                                    name, could not be had any more */
    KVR_REASON_HOME,             /* other hosts would send it there, too,
                                    and that is more than is known */
    KVR_REASON_MAX
} kvr_reason_e;


/*
 * What became of a request whose prompt another server might compute, see
 * core/legs/kvr_disaggregate.h: all but the first two are reasons why not.
 */
typedef enum {
    KVR_DISAGGREGATE_NONE = 0,   /* nobody asked */
    KVR_DISAGGREGATE_YES,
    KVR_DISAGGREGATE_UNREAD,     /* there is no prompt to speak of */
    KVR_DISAGGREGATE_KIND,       /* no such request can be */
    KVR_DISAGGREGATE_SHORT,      /* the prompt is */
    KVR_DISAGGREGATE_CACHED,     /* decode servers hold too much of it */
    KVR_DISAGGREGATE_NOBODY,     /* no prefill server can be had */
    KVR_DISAGGREGATE_COST,       /* it would cost more */
    KVR_DISAGGREGATE_FAILED,     /* the prefill leg did */
    KVR_DISAGGREGATE_ANSWER,     /* its answer had no descriptor */
    KVR_DISAGGREGATE_RETRIED,    /* leg 2 went to a second server, plain */
    KVR_DISAGGREGATE_LATE,       /* or would have come after the lease */
    KVR_DISAGGREGATE_MAX
} kvr_disaggregate_e;


/* names as in logs and in the status; NULL: no such number */
const char *kvr_reason_name(uint32_t reason);
const char *kvr_reason_disaggregated(uint32_t outcome);


#endif /* _KVR_REASON_H_INCLUDED_ */
