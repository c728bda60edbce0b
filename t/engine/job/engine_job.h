/*
 * Stations of every job: headers, an error, its end.
 */

#ifndef KVE_ENGINE_JOB_H
#define KVE_ENGINE_JOB_H


#include "reply/engine_request.h"


/* only once, and the beginning of a stream with them */
void kve_job_headers(kve_job_t *job);

/* after these there is no job any more */
void kve_job_error(kve_job_t *job, int status, const char *type,
    const char *message);
void kve_job_end(kve_job_t *job, int status, const char *how);
void kve_job_gone(kve_job_t *job, int killed);

/* those that no connection takes along */
void kve_jobs_background(kve_server_t *s);


#endif
