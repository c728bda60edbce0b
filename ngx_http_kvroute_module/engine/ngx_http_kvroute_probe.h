
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_PROBE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_PROBE_H_INCLUDED_


#include "engine/ngx_http_kvroute_fetch.h"


#define NGX_HTTP_KVROUTE_PROBE_BODY    256


/* one kind of probe of one peer */

typedef struct ngx_http_kvroute_slot_s  ngx_http_kvroute_slot_t;

struct ngx_http_kvroute_slot_s {
    ngx_http_kvroute_fetch_t         fetch;
    ngx_event_t                      event;
    ngx_connection_t                 dummy;

    ngx_http_kvroute_slot_t         *next;
    ngx_http_kvroute_srv_conf_t     *conf;
    ngx_http_kvroute_probe_conf_t   *probe;
    uint32_t                         id;
    uint32_t                         generation;
    ngx_uint_t                       reader;  /* while the fetch is busy */
    uint64_t                         asked;   /* ms, start of the probe */
    uint32_t                         before[KVR_METRICS_RANKS];  /* requests in
                                                 flight then, by rank */
    ngx_uint_t                       path;    /* the one to try */
    ngx_msec_t                       interval;
    unsigned                         health:1;
    unsigned                         seen:1;  /* the peer still exists */

    ngx_uint_t                       bad;     /* consecutive failures */
    time_t                           warned;  /* s, last warning; 0: never */
    unsigned                         good:1;  /* a probe has succeeded */

    size_t                           body_len;
    u_char                           body[NGX_HTTP_KVROUTE_PROBE_BODY];
};


#endif /* _NGX_HTTP_KVROUTE_PROBE_H_INCLUDED_ */
