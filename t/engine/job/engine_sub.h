/*
 * A sequence: its reply, its length, the names of its blocks.
 */

#ifndef KVE_ENGINE_SUB_H
#define KVE_ENGINE_SUB_H


#include "reply/engine_request.h"


void kve_sub_init(kve_job_t *job, int i, const kve_buf_t *prompt);


#endif
