/*
 * Stages of each job: headers, an error, the end.
 */

#ifndef KVE_ENGINE_JOB_H
#define KVE_ENGINE_JOB_H


#include "reply/engine_request.h"


/* sends the headers once, and the start of a stream */
void kve_job_headers(kve_job_t *job);

/* the job has ended after these */
void kve_job_error(kve_job_t *job, int status, const char *type,
    const char *message);
void kve_job_end(kve_job_t *job, int status, const char *how);
void kve_job_gone(kve_job_t *job, int killed);

/* ends jobs without a connection */
void kve_jobs_background(kve_server_t *s);


#endif
