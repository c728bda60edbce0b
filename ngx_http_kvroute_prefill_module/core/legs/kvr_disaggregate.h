
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DISAGGREGATE_H_INCLUDED_
#define _KVR_DISAGGREGATE_H_INCLUDED_


/*
 * Whether a request is better served by two servers: one that computes its
 * prompt, and one that decodes.
 *
 * All is in bytes of prompt to prefill, and in the time that these take.
 *
 *     lacks  what the decode server has not of the prompt
 *     more   what the prefill server lacks beyond that
 *     time   transfer * lacks, and the way between the two: what it takes
 *            longer by two servers that have nothing else to do
 *
 * Each byte that is computed at a decode server delays all that it decodes.  So
 * two servers are better if
 *
 *     time + 5 * more < streams * lacks
 *
 * Prompts that wait at the prefill servers do not count there: if only some of
 * the prompts are computed elsewhere nearly every answer has a gap from one of
 * them, and all waiting was for nothing.  To compute what a decode server holds
 * takes the prefill server's time from others as well, so it counts more.
 *
 * This is so as long as the prefill servers and their links can do all there
 * is (kvr_demand.h; the work of a prompt is spread over all of them).  If they
 * cannot, a queue there helps nobody: it is never over.  Then two servers are
 * better if the first token comes no later by them, or by next to nothing:
 *
 *     ahead of it at the prefill server + time
 *         < ahead of it at the decode server + streams * lacks / 32
 *
 * Found by simulation: make bench-pd-sim, docs/prefill-decode.md.
 *
 * Where leg 2 goes is the policy's choice, as if each decode server held all
 * and had transfer * lacks * (1 + 2 * waiting) more pending.  The request waits
 * for that as for what is pending, but it delays nobody who decodes.  It shares
 * the link with what is on its way already: those that wait for their first
 * token at the decode server wait for that, mostly.
 */


#include "core/base/kvr_reason.h"
#include "core/legs/kvr_demand.h"
#include "core/policy/kvr_policy.h"


/* bytes: about 10 ms of a model of 8B, for the leg's own answer and request */
#define KVR_DISAGGREGATE_HOP     1536

#define KVR_DISAGGREGATE_MORE    5
#define KVR_DISAGGREGATE_STREAM  32    /* streams by this, if demand is high */
#define KVR_DISAGGREGATE_ENDS    2

#define KVR_DISAGGREGATE_SLOWEST 100   /* transfers, by computing */

/* bytes pending, at most, that stand for a transfer: days */
#define KVR_DISAGGREGATE_MOST    1e15


/* a server that the prompt would be computed at */
typedef struct {
    uint64_t           ahead;    /* bytes to prefill until it is, all of them */
    uint64_t           lacks;    /* its own of these */
} kvr_disaggregate_at_t;


typedef struct {
    uint64_t           bytes;    /* of the prompt */
    uint64_t           held;     /* by the decode server that holds most */
    uint64_t           min;      /* of bytes that are not, at least */
    double             transfer; /* time of a byte, by that of computing it */
    uint32_t           always;   /* whatever it costs */

    /* of servers, where _worth() says YES */

    kvr_disaggregate_at_t  plain;    /* the best decode server */
    kvr_disaggregate_at_t  prefill;  /* the best prefill server */
    uint32_t           streams;  /* in flight at the former */
    uint32_t           decodes;  /* servers there are */
    uint32_t           prefills;
    uint32_t           rate;     /* of kvr_prefill_t, 0: not known */
} kvr_disaggregate_t;


/* whether servers need be asked at all: YES, or why not */
kvr_disaggregate_e kvr_disaggregate_worth(const kvr_disaggregate_t *d);

/*
 * The time that a byte is transferred in, by that of computing it: as it is told,
 * or by the speed of a link and of servers (kvr_prefill_t's), if both are known.
 * 0 .. 100.
 */
double kvr_disaggregate_transfer(double transfer, double link, uint32_t rate);

/*
 * A decode server as a candidate for leg 2: what it lacks of the prompt is
 * transferred, at so much of the time of computing it, 0 .. 100.
 */
void kvr_disaggregate_candidate(kvr_candidate_t *c, uint64_t bytes,
    double transfer);

/*
 * YES or COST, at a time in ms.  demand is that of the prefill servers, which
 * this prompt is added to.
 */
kvr_disaggregate_e kvr_disaggregate(const kvr_disaggregate_t *d,
    kvr_demand_t *demand, uint64_t now);


#endif /* _KVR_DISAGGREGATE_H_INCLUDED_ */
