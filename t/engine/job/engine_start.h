/*
 * A request becomes a job, and its sequences requests of the model.
 */

#ifndef KVE_ENGINE_START_H
#define KVE_ENGINE_START_H


#include "base/engine_http.h"


void kve_job_create(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, kve_api_e api, const char *path);


#endif
