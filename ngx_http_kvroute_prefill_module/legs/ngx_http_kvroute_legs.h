
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_


/*
 * Prefill and decode by two servers: one request with two legs.
 *
 *     _prefill_module   the directive, and the hooks that the router calls
 *     _legs_conf        its parameters
 *     _legs             the states of both legs, and the steps between them
 *     _legs_decide      whether a request gets two legs, and their servers
 *     _legs_body        the body of a leg: members cut and appended
 *     _legs_prefill     the prefill leg: a subrequest and its answer
 *     _legs_decode      the decode leg: the client's request with another body
 *     _legs_both        both legs at the same time
 *     _legs_pull        one leg, whose server fetches from another
 *     _legs_variables   the outcome, for access logs
 */


#include "ngx_http_kvroute_extension.h"
#include "request/ngx_http_kvroute_request.h"


/*
 * prefill servers to try; how long a descriptor is valid; bytes of an answer
 * with a descriptor
 */
#define NGX_HTTP_KVROUTE_LEGS_TRIES   2
#define NGX_HTTP_KVROUTE_LEGS_LEASE   10000
#define NGX_HTTP_KVROUTE_LEGS_ANSWER  (1024 * 1024)


/* kvroute_prefill of a location */
typedef struct {
    ngx_http_upstream_srv_conf_t  *upstream;  /* of the prefill servers */
    const kvr_json_names_t      *names;     /* members no client may send */
    uint32_t                     connector; /* kvr_connector_e */
    uint32_t                     always;    /* 1: at any cost */
    uint32_t                     strict;    /* 1: no fallback to one server */
    size_t                       min;       /* bytes not cached, at least */
    double                       transfer;  /* time of a token / its prefill */
    ngx_msec_t                   timeout;
    double                       link;      /* bytes of prompt a ms; 0: use
                                               transfer */
    uint32_t                     bootstrap_port;  /* of prefill servers */
} ngx_http_kvroute_prefill_t;


typedef struct {
    ngx_uint_t                   used;      /* by any location */
} ngx_http_kvroute_legs_main_conf_t;


typedef struct {
    ngx_http_kvroute_prefill_t  *prefill;   /* or NULL */
    ngx_http_upstream_conf_t    *leg;       /* nginx's, for each leg; or NULL */
} ngx_http_kvroute_legs_loc_conf_t;


extern ngx_module_t  ngx_http_kvroute_prefill_module;


/* _conf */

char *ngx_http_kvroute_legs_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * Checks a location, and registers both upstreams with each other.  decode is
 * NULL if a variable names the upstream.  own: the directive is not inherited.
 */
ngx_int_t ngx_http_kvroute_legs_conf_check(ngx_conf_t *cf,
    ngx_http_kvroute_prefill_t *prefill, ngx_http_upstream_srv_conf_t *decode,
    ngx_uint_t own);

/* Adds a handler of a phase, if any location uses it. */
ngx_int_t ngx_http_kvroute_legs_init(ngx_conf_t *cf);

ngx_int_t ngx_http_kvroute_legs_variables(ngx_conf_t *cf);

/*
 * Copies nginx's merged upstream configuration of a location for each leg.
 * Since nginx 1.29.7 keepalive connections are found by its address.
 */
ngx_int_t ngx_http_kvroute_legs_merge(ngx_conf_t *cf,
    ngx_http_kvroute_legs_loc_conf_t *llcf);


#endif /* _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_ */
