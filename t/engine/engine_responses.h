/*
 * Stored responses, by id.
 */

#ifndef KVE_ENGINE_RESPONSES_H
#define KVE_ENGINE_RESPONSES_H


#include "base/engine_server.h"


/* returns 0 for other paths */
int kve_responses_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, const char *path);


#endif
