/*
 * The model's events and tokens -> replies.
 */

#ifndef KVE_ENGINE_RUN_H
#define KVE_ENGINE_RUN_H


#include "base/engine_server.h"


void kve_server_run(kve_server_t *s, double now);


#endif
