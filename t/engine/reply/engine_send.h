/*
 * Sends the reply of a job.
 */

#ifndef KVE_ENGINE_SEND_H
#define KVE_ENGINE_SEND_H


#include "reply/engine_request.h"


void kve_send_flush(kve_job_t *job);
void kve_send_end(kve_job_t *job);


#endif
