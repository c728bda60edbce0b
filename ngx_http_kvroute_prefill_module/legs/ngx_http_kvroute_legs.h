
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_


/*
 * Prefill and decode by two servers: two legs, one request.
 *
 *     _prefill_module   the directive, and what the router calls
 *     _legs_conf        its parameters
 *     _legs             whether there are two, and the way from one to the next
 *     _legs_decide      by whom it is served
 *     _legs_body        what the body of a leg loses and gets
 *     _legs_prefill     the prefill leg: a subrequest and its answer
 *     _legs_decode      the decode leg: the client's request with another body
 *     _legs_both        both at the same time
 *     _legs_variables   what became of it, for access logs
 */


#include "ngx_http_kvroute_extension.h"
#include "request/ngx_http_kvroute_request.h"


/* kvroute_prefill of a location */
typedef struct {
    ngx_http_upstream_srv_conf_t  *upstream;  /* of the prefill servers */
    const kvr_json_names_t      *names;     /* members no client may send */
    uint32_t                     connector; /* kvr_connector_e */
    uint32_t                     always;    /* 1: whatever it costs */
    uint32_t                     strict;    /* 1: rather an error than plain */
    uint32_t                     tries;
    size_t                       min;       /* bytes not held, at least */
    double                       transfer;  /* of a token, to computing it */
    ngx_msec_t                   timeout;
    ngx_msec_t                   lease;     /* of a descriptor */
    size_t                       max_params;
    double                       link;      /* bytes of prompt a ms that are
                                               transferred; 0: it is told by
                                               how long they take */
    uint32_t                     bootstrap_port;  /* of prefill servers */
} ngx_http_kvroute_prefill_t;


typedef struct {
    ngx_uint_t                   used;      /* by any location */
    ngx_int_t                    body;      /* indices of $request_body, */
    ngx_int_t                    length;    /* and $content_length, if so */
} ngx_http_kvroute_legs_main_conf_t;


typedef struct {
    ngx_http_kvroute_prefill_t  *prefill;   /* or NULL */
    ngx_http_upstream_conf_t    *leg;       /* nginx's own, for each leg; or
                                               NULL */
} ngx_http_kvroute_legs_loc_conf_t;


extern ngx_module_t  ngx_http_kvroute_prefill_module;


/* _conf */

char *ngx_http_kvroute_legs_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * Checks a location that passes to decode, or to what a variable tells (NULL).
 * own: whether it is that location's, or inherited.  Both upstreams are told of
 * each other.
 */
ngx_int_t ngx_http_kvroute_legs_conf_check(ngx_conf_t *cf,
    ngx_http_kvroute_prefill_t *prefill, ngx_http_upstream_srv_conf_t *decode,
    ngx_uint_t own);

/* after the configuration is read: a handler of a phase, if it is needed */
ngx_int_t ngx_http_kvroute_legs_init(ngx_conf_t *cf);

ngx_int_t ngx_http_kvroute_legs_variables(ngx_conf_t *cf);

/*
 * Copies nginx's own configuration of a location for each leg, once it is merged.
 * Since nginx 1.29.7 kept connections are found by the address of that.
 */
ngx_int_t ngx_http_kvroute_legs_merge(ngx_conf_t *cf,
    ngx_http_kvroute_legs_loc_conf_t *llcf);


#endif /* _NGX_HTTP_KVROUTE_LEGS_H_INCLUDED_ */
