
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_ENGINE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_ENGINE_H_INCLUDED_


/*
 * What engines report, in probes or in responses, and its consequences.
 *
 *     _engine        applies reports of an engine
 *     _probe         probes engines, from worker 0
 *     _probe_answer  applies the results
 *     _fetch         one HTTP request of a probe
 *     _conn          connections that a worker opens by itself
 */


#include "ngx_http_kvroute.h"


/* _engine: Empties the cache in the index: the peer was restarted. */
void ngx_http_kvroute_engine_flush(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_log_t *log);

/* Forgets the number of ranks if the attempt could not connect. */
void ngx_http_kvroute_engine_lost(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_http_upstream_t *u);

/* Marks a peer as overloaded for a time. */
void ngx_http_kvroute_engine_throttle(kvr_registry_t *registry, uint32_t id,
    time_t seconds);

/* results of _busy(); 0: not overloaded */
#define NGX_HTTP_KVROUTE_BUSY_TIMED    1  /* with Retry-After */
#define NGX_HTTP_KVROUTE_BUSY_UNTIMED  2

/*
 * Tells whether a response reports overload, which does not count as a failure,
 * and marks the peer.
 */
ngx_uint_t ngx_http_kvroute_engine_busy(ngx_http_kvroute_srv_conf_t *conf,
    uint32_t id, ngx_http_upstream_t *u, ngx_uint_t status);

/* _probe */

ngx_int_t ngx_http_kvroute_probe_init(ngx_cycle_t *cycle);
void ngx_http_kvroute_probe_exit(void);


#endif /* _NGX_HTTP_KVROUTE_ENGINE_H_INCLUDED_ */
