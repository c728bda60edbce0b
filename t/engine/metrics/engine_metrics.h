/*
 * GET /metrics, and its parts.
 */

#ifndef KVE_ENGINE_METRICS_H
#define KVE_ENGINE_METRICS_H


#include "reply/engine_request.h"


void kve_metrics_init(kve_server_t *s);
void kve_metrics_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req);

void kve_metrics_done(kve_server_t *s, kve_sub_t *sub);
void kve_metrics_free(kve_server_t *s);


#endif
