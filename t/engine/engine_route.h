/*
 * The handler of each path.
 */

#ifndef KVE_ENGINE_ROUTE_H
#define KVE_ENGINE_ROUTE_H


#include "base/engine_server.h"


void kve_route(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req);


#endif
