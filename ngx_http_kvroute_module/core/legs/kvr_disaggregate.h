
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DISAGGREGATE_H_INCLUDED_
#define _KVR_DISAGGREGATE_H_INCLUDED_


/*
 * Whether a request is better served by two servers: one that computes its
 * prompt, and one that decodes.
 *
 * Costs are those of core/policy/kvr_score.h, in bytes of prompt to prefill.
 *
 *     plain  = cost at the best decode server
 *              + lacks * streams / 2
 *     two    = cost at the best prefill server
 *              + cost at the best decode server for it, as if that one held all
 *                and had transfer * lacks * (1 + 2 * waiting) more pending
 *              + the way between the two
 *
 * lacks is what the decode server has not of the prompt.  A byte of it that is
 * transferred takes so much of the time of one that is computed: the parameter
 * "transfer".  The request waits for that as for what is pending, but it delays
 * nobody who decodes.  It shares the links, at both of its ends, with what is
 * on its way already: those that wait for their first token at the decode
 * server wait for that, mostly.
 *
 * Each byte that is computed at a decode server delays all that it decodes.
 * When servers are compared, a fifth of that counts: some server's streams are
 * delayed, whichever it is.  Here there is a choice, and more of it counts: or
 * the time between two tokens, of which the worst one in a hundred is judged,
 * would be worse than if all prompts went to prefill servers.
 *
 * So nothing has to be said of pools that are busy: prefill servers with a
 * queue make two legs dear, and decode servers with many streams the plain
 * request.
 *
 * Both factors were found by simulation: make bench-pd-sim,
 * docs/prefill-decode.md.
 */


#include "core/base/kvr_reason.h"
#include "core/policy/kvr_policy.h"


/* bytes: about 10 ms of a model of 8B, for the leg's own answer and request */
#define KVR_DISAGGREGATE_HOP     1536

#define KVR_DISAGGREGATE_STREAM  0.5
#define KVR_DISAGGREGATE_ENDS    2

/* bytes pending, at most, that stand for a transfer: days */
#define KVR_DISAGGREGATE_MOST    1e15


typedef struct {
    uint64_t           bytes;    /* of the prompt */
    uint64_t           held;     /* by the decode server that holds most */
    uint64_t           min;      /* of bytes that are not, at least */
    uint32_t           streams;  /* in flight at the decode server that a
                                    plain request would go to */
    uint32_t           always;   /* whatever it costs */
} kvr_disaggregate_t;


/* whether costs need be asked for at all: YES, or why not */
kvr_disaggregate_e kvr_disaggregate_worth(const kvr_disaggregate_t *d);

/*
 * A decode server as a candidate for leg 2: what it lacks of the prompt is
 * transferred, at so much of the time of computing it, 0 .. 100.
 */
void kvr_disaggregate_candidate(kvr_candidate_t *c, uint64_t bytes,
    double transfer);

/*
 * YES or COST, by three costs: of the plain request at a decode server, of leg
 * 1 at a prefill server, and of leg 2.
 */
kvr_disaggregate_e kvr_disaggregate(const kvr_disaggregate_t *d, double plain,
    double prefill, double decode);


#endif /* _KVR_DISAGGREGATE_H_INCLUDED_ */
