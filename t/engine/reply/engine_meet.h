/*
 * Prefill and decode on different replicas at the same time, as in SGLang and
 * in vLLM's MooncakeConnector.
 *
 * Both requests name a meeting: a room, or the id of a transfer.  Each waits
 * for the other one, as long as its client does.  Then one computes the
 * prompt, and the other one continues it.  A meeting is for one pair.  A
 * request that names a finished one, finds another prompt, or was sent to the
 * wrong server, answers with CORRUPT, and is counted.
 *
 * With --disaggregation-mode a replica behaves like SGLang's: a request
 * without a room is an error.
 */

#ifndef KVE_ENGINE_MEET_H
#define KVE_ENGINE_MEET_H


#include "reply/engine_request.h"


/* the message of an error with 400, or NULL: it can start */
const char *kve_meet_start(kve_job_t *job);

/* returns whether it must wait for the other one; called repeatedly */
int kve_meet_waits(kve_job_t *job);

/* its first token is computed */
void kve_meet_computed(kve_job_t *job);

/* the request ends */
void kve_meet_end(kve_job_t *job);


#endif
