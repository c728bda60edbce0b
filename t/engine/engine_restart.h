/*
 * A replica begins, and begins again.
 */

#ifndef KVE_ENGINE_RESTART_H
#define KVE_ENGINE_RESTART_H


#include "base/engine_server.h"


void kve_server_begin(kve_server_t *s);

/* its ports are open; -1: somebody else has them */
int kve_server_listen(kve_server_t *s);

/* connections are refused, for good or for some seconds */
void kve_server_deafen(kve_server_t *s, double seconds);

/* all connections are cut, but for the one that asks for it */
void kve_server_restart(kve_server_t *s, const kve_conn_t *except);


#endif
