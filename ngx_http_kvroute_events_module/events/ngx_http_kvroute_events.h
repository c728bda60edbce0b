
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_


/*
 * KV events of engines (kvroute_events).
 *
 *     _events_module     the directive, and the hooks that the router calls
 *     _events_conf       its parameters
 *     _events            sources: the publishers, and their connections
 *     _events_find       port=auto: asks engines for their publishers
 *     _events_attribute  aliases=: matches requests with stored blocks
 *     _events_source     access to a source's state
 *     _events_read       the messages of a source, in their order
 *     _events_stream     a connection of a source: live, or a replay
 *
 * Only worker 0 reads events.  core/sync applies them to the zone.
 */


#include "ngx_http_kvroute_extension.h"
#include "core/sync/kvr_sync.h"


/* flag of a port: an offset to the server's port */
#define NGX_HTTP_KVROUTE_EVENTS_ADD   0x10000

/* port=auto */
#define NGX_HTTP_KVROUTE_EVENTS_AUTO  0x20000


/* kvroute_events of an upstream */
typedef struct {
    kvr_feeds_t                 *feeds;     /* of its zone */
    ngx_shm_zone_t              *shm_zone;  /* data: kvr_events_t, by peer */
    ngx_shm_zone_t              *aliases_zone;  /* data: kvr_aliases_t */
    size_t                       aliases;   /* bytes per server, or 0 */
    ngx_int_t                    session;   /* index of $request_id, if there
                                               are aliases */
    ngx_uint_t                   port;      /* or _AUTO; 0: no events */
    ngx_uint_t                   replay;    /* 0: none */
    ngx_uint_t                   ranks;
} ngx_http_kvroute_events_conf_t;


extern ngx_module_t  ngx_http_kvroute_events_module;


/* _conf */

char *ngx_http_kvroute_events_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Checks all upstreams, once they are known. */
ngx_int_t ngx_http_kvroute_events_conf_init(ngx_conf_t *cf);

/* Worker 0 begins to read events. */
ngx_int_t ngx_http_kvroute_events_init(ngx_cycle_t *cycle);
void ngx_http_kvroute_events_exit(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_ */
