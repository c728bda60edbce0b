/*
 * Prefill and decode on different replicas at the same time, as SGLang and
 * vLLM's MooncakeConnector have it.
 *
 * Both requests name one meeting: a room, or the id of a transfer.  Either waits
 * for the other one, as long as its client does; then one computes the prompt and
 * the other one goes on with it.  A meeting is for one pair.  Who comes to one
 * that is over, or finds another prompt there, or was sent to the wrong server,
 * answers with CORRUPT, and is counted.
 *
 * With --disaggregation-mode a replica is SGLang's: a request without a room is
 * an error there.
 */

#ifndef KVE_ENGINE_MEET_H
#define KVE_ENGINE_MEET_H


#include "reply/engine_request.h"


/* the message of an error with 400, or NULL: it may start */
const char *kve_meet_start(kve_job_t *job);

/* whether it has to wait for the other one; asked again and again */
int kve_meet_waits(kve_job_t *job);

/* its first token is there */
void kve_meet_computed(kve_job_t *job);

/* the request ends */
void kve_meet_end(kve_job_t *job);


#endif
