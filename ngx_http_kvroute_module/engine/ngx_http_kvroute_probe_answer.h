
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_PROBE_ANSWER_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_PROBE_ANSWER_H_INCLUDED_


#include "engine/ngx_http_kvroute_probe.h"


/* how an attempt to ask for metrics has ended; r: what was read, or NULL */
void ngx_http_kvroute_probe_answer_metrics(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc, kvr_metrics_reader_t *r);

/* the same of a health check */
void ngx_http_kvroute_probe_answer_health(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc);


#endif /* _NGX_HTTP_KVROUTE_PROBE_ANSWER_H_INCLUDED_ */
