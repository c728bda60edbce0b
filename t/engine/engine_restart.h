/*
 * Start and restart of a replica.
 */

#ifndef KVE_ENGINE_RESTART_H
#define KVE_ENGINE_RESTART_H


#include "base/engine_server.h"


void kve_server_begin(kve_server_t *s);

/* opens its ports; -1: another process has them */
int kve_server_listen(kve_server_t *s);

/* refuses connections, for ever or for some seconds */
void kve_server_deafen(kve_server_t *s, double seconds);

/* cuts all connections except that of the request */
void kve_server_restart(kve_server_t *s, const kve_conn_t *except);


#endif
