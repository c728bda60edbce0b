/*
 * Information about an engine: models, tokens, slots, loads.
 */

#ifndef KVE_ENGINE_INFO_H
#define KVE_ENGINE_INFO_H


#include "base/engine_server.h"


/* returns 0 for other paths */
int kve_info_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, const char *path);


#endif
