
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_


/*
 * Sharing between hosts, through a stream in Redis or Valkey.  core/share knows
 * no store.  No request waits for the store.
 *
 *     _share_module  the directive, and the hooks that the router calls
 *     _share_conf    its parameters
 *     _share_status  its part of the status
 *     _share         the ownership, and the timer
 *     _share_stream  the commands of the stream, and their answers
 *     _share_conn    a connection to the store: name, TLS, AUTH, retries
 *
 * Worker 0 has two connections in nginx's event loop: one adds batches, one
 * reads them.  Only hiredis' reader of answers and formatter of commands are
 * used.  Each connection has one command under way, and buffers are bounded.
 * All timers are cancelable, so they do not delay a worker that shuts down.
 *
 * After a reload the old worker 0 continues until the new one wants to take
 * over, so nothing is missed, and the load of its last requests is published.
 */


#include "ngx_http_kvroute_extension.h"
#include "core/share/kvr_share.h"


/* ms between batches; how long a host may be silent */
#define NGX_HTTP_KVROUTE_SHARE_INTERVAL  5
#define NGX_HTTP_KVROUTE_SHARE_LEASE     2500


/* kvroute_share of a zone */
typedef struct {
    ngx_http_kvroute_zone_t     *zone;
    ngx_shm_zone_t              *shm_zone;  /* data: kvr_share_t */
    ngx_str_t                    store;     /* host:port, for people */
    ngx_str_t                    host;
    in_port_t                    port;
    ngx_addr_t                  *addrs;     /* from the configuration, */
    ngx_uint_t                   naddrs;    /* or none: use the resolver */
    ngx_str_t                    user;
    ngx_str_t                    password;  /* empty: no AUTH */
    ngx_str_t                    stream;    /* its key */
    ngx_str_t                    name;      /* of this host, for people */
    ngx_str_t                    trusted;   /* file of certificates */
    void                        *ssl;       /* ngx_ssl_t, or NULL: no TLS */
    uint32_t                     verify;
    uint32_t                     all_hosts; /* max_conns counts all hosts */
    unsigned                     secure:1;
} ngx_http_kvroute_share_conf_t;


extern ngx_module_t  ngx_http_kvroute_share_module;


/* returns a cycle's array of ngx_http_kvroute_share_conf_t * */
#define ngx_http_kvroute_share_confs(cycle)                                   \
    ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_share_module)

/* _conf */

char *ngx_http_kvroute_share_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Finds the addresses of the stores, once the configuration is read. */
ngx_int_t ngx_http_kvroute_share_conf_init(ngx_conf_t *cf);

/* Returns the kvroute_share of a zone, or NULL. */
ngx_http_kvroute_share_conf_t *ngx_http_kvroute_share_conf_find(
    ngx_array_t *shares, ngx_http_kvroute_zone_t *zone);

/* _status: a zone in JSON; series by host for Prometheus */

void ngx_http_kvroute_share_status_json(cJSON *json,
    ngx_http_kvroute_zone_t *zone, void *data);
void ngx_http_kvroute_share_status_prom(ngx_http_kvroute_status_prom_t *prom,
    ngx_pool_t *pool, ngx_http_kvroute_main_conf_t *kmcf);

/* _share: worker 0 begins to write and read. */
ngx_int_t ngx_http_kvroute_share_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_share_exit_process(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_ */
