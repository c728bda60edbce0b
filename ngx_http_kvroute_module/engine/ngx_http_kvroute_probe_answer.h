
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_PROBE_ANSWER_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_PROBE_ANSWER_H_INCLUDED_


#include "engine/ngx_http_kvroute_probe.h"


/* Applies the result of a probe for metrics. */
void ngx_http_kvroute_probe_answer_metrics(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc, kvr_metrics_reader_t *r);

/* Applies the result of a health check. */
void ngx_http_kvroute_probe_answer_health(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc);


#endif /* _NGX_HTTP_KVROUTE_PROBE_ANSWER_H_INCLUDED_ */
