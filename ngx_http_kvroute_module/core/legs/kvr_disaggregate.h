
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DISAGGREGATE_H_INCLUDED_
#define _KVR_DISAGGREGATE_H_INCLUDED_


/*
 * Whether a request is better served by two servers: one that computes its
 * prompt, and one that decodes.
 *
 * Costs are those of core/policy/kvr_score.h, in bytes of prompt to prefill.  A
 * plain request costs what it costs at the best decode server.  In two legs it
 * costs what it does at the best prefill server, and then, at the best decode
 * server for it, as if that one held the prompt but for a part: a byte that is
 * transferred takes so much of the time of one that is computed.  That part is
 * the parameter "transfer".  Besides there is the way between the two.
 *
 * So nothing has to be said of pools that are busy: prefill servers with a
 * queue make two legs dear, and decode servers with many streams the plain
 * request, as each byte that is computed there delays them all.
 */


#include "core/base/kvr_reason.h"
#include "core/policy/kvr_policy.h"


/* bytes: about 10 ms of a model of 8B, for the leg's own answer and request */
#define KVR_DISAGGREGATE_HOP  1536


typedef struct {
    uint64_t           bytes;    /* of the prompt */
    uint64_t           held;     /* by the decode server that holds most */
    uint64_t           min;      /* of bytes that are not, at least */
    uint32_t           always;   /* whatever it costs */
} kvr_disaggregate_t;


/* whether costs need be asked for at all: YES, or why not */
kvr_disaggregate_e kvr_disaggregate_worth(const kvr_disaggregate_t *d);

/*
 * A decode server as a candidate for leg 2: what it lacks of the prompt is
 * transferred, at so much of the time of computing it, 0 .. 1 and more.
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
