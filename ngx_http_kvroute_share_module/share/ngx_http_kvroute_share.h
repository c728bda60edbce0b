
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_


/*
 * What hosts tell each other goes through a stream of Redis or Valkey, which
 * core/share knows nothing of.  Nothing on a request's way waits for it.
 *
 *     _share_module  the directive, and what the router calls
 *     _share_conf    its parameters
 *     _share_status  what the status has of it
 *     _share         who the owner is, its timer, what goes where
 *     _share_stream  the commands of the stream, and their answers
 *     _share_conn    a connection to the store: names, TLS, AUTH, again
 *
 * Worker 0 has two connections in nginx's own event loop: one adds batches, one
 * reads them.  Of hiredis only the reader of answers and the formatter of
 * commands are used.  One command is under way on each at a time, and buffers
 * are bounded.  All timers can be cancelled: a worker that shuts down waits for
 * none.
 *
 * An old worker 0 goes on until a new one asks for the place, so nothing is
 * missed during a reload, and what its last streams count is told.
 */


#include "ngx_http_kvroute_extension.h"
#include "core/share/kvr_share.h"


/* what a zone shares with those of other hosts, and where */
typedef struct {
    ngx_http_kvroute_zone_t     *zone;
    ngx_shm_zone_t              *shm_zone;  /* data: kvr_share_t */
    ngx_str_t                    store;     /* host:port, for people */
    ngx_str_t                    host;
    in_port_t                    port;
    ngx_addr_t                  *addrs;     /* as of the configuration, */
    ngx_uint_t                   naddrs;    /* or none: the resolver knows */
    ngx_str_t                    user;
    ngx_str_t                    password;  /* empty: none is asked for */
    ngx_str_t                    stream;    /* its key */
    ngx_str_t                    name;      /* of this host, for people */
    ngx_msec_t                   interval;
    ngx_msec_t                   lease;
    ngx_str_t                    trusted;   /* file of certificates */
    void                        *ssl;       /* ngx_ssl_t, or NULL: no TLS */
    uint32_t                     verify;
    uint32_t                     all_hosts; /* max_conns counts theirs too */
    unsigned                     secure:1;
} ngx_http_kvroute_share_conf_t;


extern ngx_module_t  ngx_http_kvroute_share_module;


/* what a cycle shares: an array of ngx_http_kvroute_share_conf_t * */
#define ngx_http_kvroute_share_confs(cycle)                                   \
    ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_share_module)

/* _conf */

char *ngx_http_kvroute_share_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* once all is read: where the stores are */
ngx_int_t ngx_http_kvroute_share_conf_init(ngx_conf_t *cf);

/* what a zone shares, or NULL */
ngx_http_kvroute_share_conf_t *ngx_http_kvroute_share_conf_find(
    ngx_array_t *shares, ngx_http_kvroute_zone_t *zone);

/* _status: of a zone; series by host */

void ngx_http_kvroute_share_status_json(cJSON *json,
    ngx_http_kvroute_zone_t *zone, void *data);
void ngx_http_kvroute_share_status_prom(ngx_http_kvroute_status_prom_t *prom,
    ngx_pool_t *pool, ngx_http_kvroute_main_conf_t *kmcf);

/* _share: worker 0 begins to send and to read */
ngx_int_t ngx_http_kvroute_share_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_share_exit_process(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_ */
