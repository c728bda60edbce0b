
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONF_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONF_H_INCLUDED_


/*
 * Directives.  Each has a function that nginx calls with the words of the
 * directive; what several directives share is in _conf_param.
 *
 *     _conf_zone       kvroute_zone
 *     _conf_key          its key_file=
 *     _conf_attach     kvroute, kvroute_upstream: getting into upstreams
 *     _conf_upstream     their parameters
 *     _conf_policy     kvroute_policy
 *     _conf_queue      kvroute_queue, kvroute_priority, kvroute_tenant
 *     _conf_probe      kvroute_probe, kvroute_health
 */


#include "ngx_http_kvroute.h"


/* a "kvroute_upstream": the words of it are applied to each that matches */
typedef struct {
    ngx_str_t                    name;
#if (NGX_PCRE)
    ngx_regex_t                 *regex;     /* NULL: equal to the name */
#endif
    ngx_array_t                 *words;     /* of the directive */
    ngx_uint_t                   found;
    u_char                      *file;
    ngx_uint_t                   line;
} ngx_http_kvroute_conf_named_t;


char *ngx_http_kvroute_conf_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

ngx_int_t ngx_http_kvroute_conf_key(ngx_conf_t *cf,
    ngx_http_kvroute_zone_t *zone, ngx_str_t *file);

/* sets kscf from the words of the directive, from first on */
ngx_int_t ngx_http_kvroute_conf_upstream_params(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf, ngx_uint_t first);

char *ngx_http_kvroute_conf_attach(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kvroute_conf_attach_named(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_kvroute_conf_attach_init(ngx_conf_t *cf);
ngx_int_t ngx_http_kvroute_conf_attach_check(ngx_conf_t *cf);

char *ngx_http_kvroute_conf_policy(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_kvroute_conf_policy_name(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value);
ngx_int_t ngx_http_kvroute_conf_policy_param(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value);
ngx_int_t ngx_http_kvroute_conf_policy_check(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy);

char *ngx_http_kvroute_conf_queue(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
void ngx_http_kvroute_conf_queue_check(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf);

/* of each request; the field is that of cmd */
char *ngx_http_kvroute_conf_queue_priority(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kvroute_conf_queue_tenant(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* the class of a name or a number, 0 being the first; NGX_ERROR: neither */
ngx_int_t ngx_http_kvroute_conf_queue_class(ngx_str_t *value);

char *ngx_http_kvroute_conf_probe(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kvroute_conf_probe_health(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


#endif /* _NGX_HTTP_KVROUTE_CONF_H_INCLUDED_ */
