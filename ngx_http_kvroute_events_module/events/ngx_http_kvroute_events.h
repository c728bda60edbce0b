
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_


/*
 * KV events of engines (kvroute_events): who is listened to, and what they say.
 *
 *     _events_module  the directive, and what the router calls
 *     _events_conf    its parameters
 *     _events         sources: a publisher of a server each, and their life
 *     _events_find    where they are, if engines are to be asked for it
 *     _events_attribute  requests that ended, and blocks that were told of
 *     _events_source  what all of this knows of a source
 *     _events_read    what comes from a source, and the order of it
 *     _events_stream  a connection of a source: live, or a replay
 *
 * Worker 0 alone listens.  What it hears goes to the zone by core/hear.
 */


#include "ngx_http_kvroute_extension.h"
#include "core/hear/kvr_hear.h"


/* a port of kvroute_events that is to be added to that of the server */
#define NGX_HTTP_KVROUTE_EVENTS_ADD   0x10000

/* the engine is asked for its ports */
#define NGX_HTTP_KVROUTE_EVENTS_AUTO  0x20000


/* where engines publish KV events */
typedef struct {
    kvr_heard_t                 *heard;     /* of its zone, in a worker */
    ngx_shm_zone_t              *shm_zone;  /* data: kvr_events_t, by peer */
    ngx_shm_zone_t              *aliases_zone;  /* data: kvr_aliases_t */
    size_t                       aliases;   /* of a server, 0: there are none */
    ngx_http_complex_value_t    *session;   /* what engines call a request in
                                               events, or NULL */
    ngx_str_t                    topic;
    ngx_uint_t                   port;      /* or _AUTO; 0: no events */
    ngx_uint_t                   replay;    /* 0: none */
    ngx_uint_t                   ranks;
} ngx_http_kvroute_events_conf_t;


extern ngx_module_t  ngx_http_kvroute_events_module;


/* _conf */

char *ngx_http_kvroute_events_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* once all upstreams are known */
ngx_int_t ngx_http_kvroute_events_conf_init(ngx_conf_t *cf);

/* worker 0 begins to listen */
ngx_int_t ngx_http_kvroute_events_init(ngx_cycle_t *cycle);
void ngx_http_kvroute_events_exit(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_ */
