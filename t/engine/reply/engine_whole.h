/*
 * Replies without streaming.
 */

#ifndef KVE_ENGINE_WHOLE_H
#define KVE_ENGINE_WHOLE_H


#include "reply/engine_request.h"


void kve_reply_frame(kve_job_t *job, const char *object);
void kve_reply_body(kve_job_t *job, kve_buf_t *b);


#endif
