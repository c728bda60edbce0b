/*
 * A replica begins, and begins again.
 */

#ifndef KVE_ENGINE_RESTART_H
#define KVE_ENGINE_RESTART_H


#include "base/engine_server.h"


void kve_server_begin(kve_server_t *s);

/* all connections are cut, but for the one that asks for it */
void kve_server_restart(kve_server_t *s, const kve_conn_t *except);


#endif
