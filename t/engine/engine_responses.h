/*
 * Responses that are kept, asked for by their id.
 */

#ifndef KVE_ENGINE_RESPONSES_H
#define KVE_ENGINE_RESPONSES_H


#include "base/engine_server.h"


/* 0: the path is not of these */
int kve_responses_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, const char *path);


#endif
