
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_ENGINE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_ENGINE_H_INCLUDED_


/*
 * What engines say, in answers to probes or in their responses, and what
 * follows from it.
 *
 *     _engine        what a word of an engine changes
 *     _probe         asks engines, from worker 0
 *     _probe_answer  what they have answered
 *     _fetch         one HTTP request of a probe
 *     _tls             over TLS, as other connections of our own
 */


#include "ngx_http_kvroute.h"


/* _engine: the peer was restarted, and its cache is empty */
void ngx_http_kvroute_engine_flush(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_log_t *log);

/* an attempt at it has failed: if it could not be reached, it is no more */
void ngx_http_kvroute_engine_lost(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_http_upstream_t *u);

/* the peer asks to be left alone for a while: no fault of its */
void ngx_http_kvroute_engine_throttle(kvr_registry_t *registry, uint32_t id,
    time_t seconds);

/* what _busy() returns; 0: the response does not ask for that */
#define NGX_HTTP_KVROUTE_BUSY_TIMED    1  /* it says for how long */
#define NGX_HTTP_KVROUTE_BUSY_UNTIMED  2

/*
 * Whether a peer's response of this status asks to be left alone: it must then
 * not count as a failure.
 */
ngx_uint_t ngx_http_kvroute_engine_busy(ngx_http_kvroute_srv_conf_t *conf,
    uint32_t id, ngx_http_upstream_t *u, ngx_uint_t status);

/* what an ORCA header of a response tells */
void ngx_http_kvroute_engine_orca(ngx_http_kvroute_srv_conf_t *conf,
    uint32_t id, ngx_str_t *value);

/* _probe */

ngx_int_t ngx_http_kvroute_probe_init(ngx_cycle_t *cycle);
void ngx_http_kvroute_probe_exit(void);


#endif /* _NGX_HTTP_KVROUTE_ENGINE_H_INCLUDED_ */
