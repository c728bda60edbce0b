/*
 * Faults of a request.
 */

#ifndef KVE_ENGINE_INJECT_H
#define KVE_ENGINE_INJECT_H


#include "reply/engine_request.h"


/* returns non-zero if the job has ended */
int kve_inject_choose(kve_job_t *job);
int kve_inject_at_start(kve_job_t *job);
int kve_inject_at_reply(kve_job_t *job, const kve_buf_t *body);

/* 1: the job has ended, -1: the token must not be sent before *until */
int kve_inject_at_token(kve_job_t *job, kve_sub_t *sub, double now,
    double *until);


#endif
