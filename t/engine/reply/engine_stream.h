/*
 * Streamed replies, in each API's format.
 */

#ifndef KVE_ENGINE_STREAM_H
#define KVE_ENGINE_STREAM_H


#include "reply/engine_request.h"


void kve_stream_open(kve_job_t *job);
void kve_stream_first(kve_job_t *job, kve_sub_t *sub);
void kve_stream_token(kve_job_t *job, kve_sub_t *sub, uint32_t n);
void kve_stream_finish(kve_job_t *job, kve_sub_t *sub);
void kve_stream_close(kve_job_t *job);
void kve_stream_error(kve_job_t *job, int code, const char *message);


#endif
