
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DISAGGREGATE_H_INCLUDED_
#define _KVR_DISAGGREGATE_H_INCLUDED_


/*
 * Whether a request is better served by two servers: one that computes its
 * prompt, and one that decodes.
 *
 * Quantities are bytes of prompt to prefill, and the time to compute them.
 *
 *     lacks  part of the prompt that the decode server has not cached
 *     more   part that the prefill server has not cached beyond that
 *     time   transfer * lacks, and the way between the two: the extra time with
 *            two idle servers
 *
 * Each byte computed at a decode server delays all of its streams.  So two
 * servers are better if
 *
 *     time + 5 * more < streams * lacks
 *
 * The queue at the prefill servers does not count here.  Waiting there pays
 * only if all prompts are computed there: if some are not, nearly every answer
 * has a gap caused by another prompt.  "more" counts five times, because
 * computing what a decode server has cached also delays others at the prefill
 * server.
 *
 * This holds while the prefill servers and their links can do all the work
 * (kvr_demand.h; the work of a prompt is spread over all of them).  If they
 * cannot, the queue there never ends.  Then two servers are better only if the
 * first token comes at most slightly later, by the bytes to prefill before it
 * (ahead):
 *
 *     ahead at the prefill server + time
 *         < ahead at the decode server + streams * lacks / 32
 *
 * Found by simulation: make bench-pd-sim, docs/prefill-decode.md.
 *
 * The policy chooses the decode server as if each had cached the whole prompt
 * and had transfer * lacks * (1 + 2 * waiting) more pending.  The request
 * waits for the transfer as for pending bytes, but delays no stream.  It
 * shares the link with transfers under way: requests that wait for their first
 * token at the decode server mostly wait for those.
 */


#include "core/base/kvr_reason.h"
#include "core/legs/kvr_demand.h"
#include "core/policy/kvr_policy.h"


/* bytes: about 10 ms of a model of 8B, for the request and answer of the leg */
#define KVR_DISAGGREGATE_HOP     1536

#define KVR_DISAGGREGATE_MORE    5
#define KVR_DISAGGREGATE_STREAM  32    /* streams by this, if demand is high */
#define KVR_DISAGGREGATE_ENDS    2

#define KVR_DISAGGREGATE_SLOWEST 100   /* time of a transfer / of computing */

/* bytes pending that a transfer counts for, at most: days */
#define KVR_DISAGGREGATE_MOST    1e15


/* a server that could compute the prompt */
typedef struct {
    uint64_t           ahead;    /* bytes to prefill until it is computed */
    uint64_t           lacks;    /* bytes of the prompt among these */
} kvr_disaggregate_at_t;


typedef struct {
    uint64_t           bytes;    /* of the prompt */
    uint64_t           held;     /* most that a decode server has cached */
    uint64_t           min;      /* bytes not cached, at least */
    double             transfer; /* time of a byte / time to compute it */
    uint32_t           always;   /* at any cost */

    /* set if _worth() returned YES */

    kvr_disaggregate_at_t  plain;    /* the best decode server */
    kvr_disaggregate_at_t  prefill;  /* the best prefill server */
    uint32_t           streams;  /* in flight at the former */
    uint32_t           decodes;  /* number of servers */
    uint32_t           prefills;
    uint32_t           rate;     /* of kvr_prefill_t; 0: not known */
} kvr_disaggregate_t;


/* Returns YES if servers must be compared, or why not. */
kvr_disaggregate_e kvr_disaggregate_worth(const kvr_disaggregate_t *d);

/*
 * Returns the time to transfer a byte, divided by the time to compute it, 0
 * ..  100: as configured, or from the speeds of link and servers (of
 * kvr_prefill_t), if both are known.
 */
double kvr_disaggregate_transfer(double transfer, double link, uint32_t rate);

/*
 * Changes a decode server's candidate for the decode leg: the part of the
 * prompt that it has not cached will be transferred.
 */
void kvr_disaggregate_candidate(kvr_candidate_t *c, uint64_t bytes,
    double transfer);

/*
 * Returns YES or COST, and adds the prompt to the demand for the prefill
 * servers.  now: ms.
 */
kvr_disaggregate_e kvr_disaggregate(const kvr_disaggregate_t *d,
    kvr_demand_t *demand, uint64_t now);


#endif /* _KVR_DISAGGREGATE_H_INCLUDED_ */
