/*
 * What an engine tells of itself: models, tokens, slots, loads.
 */

#ifndef KVE_ENGINE_INFO_H
#define KVE_ENGINE_INFO_H


#include "base/engine_server.h"


/* 0: the path is not of these */
int kve_info_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, const char *path);


#endif
