/*
 * Commands and counters for tests.
 */

#ifndef KVE_ENGINE_CONTROL_H
#define KVE_ENGINE_CONTROL_H


#include "base/engine_server.h"


void kve_control_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req);


#endif
