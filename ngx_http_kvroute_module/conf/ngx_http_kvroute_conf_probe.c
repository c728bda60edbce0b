
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The directives kvroute_probe and kvroute_health.
 */


#include "ngx_http_kvroute.h"


static ngx_http_kvroute_probe_conf_t *ngx_http_kvroute_probe_read(
    ngx_conf_t *cf, ngx_uint_t health);
static ngx_int_t ngx_http_kvroute_probe_param(ngx_conf_t *cf,
    ngx_http_kvroute_probe_conf_t *probe, ngx_str_t *value,
    ngx_uint_t health);
static ngx_int_t ngx_http_kvroute_probe_time(ngx_conf_t *cf, ngx_str_t *value,
    size_t prefix, ngx_msec_t *msec);


char *
ngx_http_kvroute_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    if (kscf->probe) {
        return "is duplicate";
    }

    kscf->probe = ngx_http_kvroute_probe_read(cf, 0);

    return kscf->probe ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_kvroute_health(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    if (kscf->health) {
        return "is duplicate";
    }

    kscf->health = ngx_http_kvroute_probe_read(cf, 1);

    return kscf->health ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_http_kvroute_probe_conf_t *
ngx_http_kvroute_probe_read(ngx_conf_t *cf, ngx_uint_t health)
{
    ngx_str_t                      *value;
    ngx_uint_t                      i;
    ngx_http_kvroute_probe_conf_t  *probe;

    if (ngx_http_kvroute_params_once(cf, 1) != NGX_OK) {
        return NULL;
    }

    probe = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_probe_conf_t));
    if (probe == NULL) {
        return NULL;
    }

    probe->interval = health ? 5000 : 1000;
    probe->timeout = health ? 2000 : 500;
    probe->fails = 3;
    probe->passes = 2;

    if (health) {
        ngx_str_set(&probe->path, "/health");
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {
        if (ngx_http_kvroute_probe_param(cf, probe, &value[i], health)
            != NGX_OK)
        {
            return NULL;
        }
    }

    return probe;
}


static ngx_int_t
ngx_http_kvroute_probe_param(ngx_conf_t *cf,
    ngx_http_kvroute_probe_conf_t *probe, ngx_str_t *value, ngx_uint_t health)
{
    u_char     *p;
    size_t      prefix;
    ngx_int_t   n;
    ngx_str_t   s;
    ngx_url_t   u;

    if (ngx_strncmp(value->data, "interval=", 9) == 0) {
        return ngx_http_kvroute_probe_time(cf, value, 9, &probe->interval);
    }

    if (ngx_strncmp(value->data, "timeout=", 8) == 0) {
        return ngx_http_kvroute_probe_time(cf, value, 8, &probe->timeout);
    }

    if (ngx_strncmp(value->data, "port=", 5) == 0) {
        n = ngx_http_kvroute_number(cf, value, 5, 1, 65535);
        probe->port = (in_port_t) n;

        return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
    }

    prefix = health ? 4 : 5;

    if (ngx_strncmp(value->data, health ? "uri=" : "path=", prefix) == 0) {

        s.data = value->data + prefix;
        s.len = value->len - prefix;

        if (s.len == 0 || s.data[0] != '/' || s.len > 256) {
            goto invalid;
        }

        for (p = s.data; p < s.data + s.len; p++) {
            if (*p <= ' ') {
                goto invalid;
            }
        }

        probe->path = s;

        return NGX_OK;
    }

    if (health && ngx_strncmp(value->data, "fails=", 6) == 0) {
        n = ngx_http_kvroute_number(cf, value, 6, 1, 1000);
        probe->fails = (uint32_t) n;

        return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
    }

    if (health && ngx_strncmp(value->data, "passes=", 7) == 0) {
        n = ngx_http_kvroute_number(cf, value, 7, 1, 1000);
        probe->passes = (uint32_t) n;

        return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
    }

    if (!health && ngx_strncmp(value->data, "engine=", 7) == 0) {

        probe->engine = kvr_dialect_by_name(value->data + 7, value->len - 7);

        if (probe->engine == KVR_DIALECT_NONE) {
            goto invalid;
        }

        return NGX_OK;
    }

    if (!health && ngx_strncmp(value->data, "addr=", 5) == 0) {

        ngx_memzero(&u, sizeof(ngx_url_t));

        u.url.data = value->data + 5;
        u.url.len = value->len - 5;
        u.default_port = 80;

        if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0
            || u.addrs[0].socklen > (socklen_t) sizeof(ngx_sockaddr_t))
        {
            goto invalid;
        }

        probe->addr = &u.addrs[0];

        return NGX_OK;
    }

    if (!health && ngx_strcmp(value->data, "mandatory") == 0) {
        probe->mandatory = 1;
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\"", value);
    return NGX_ERROR;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value in parameter \"%V\"", value);
    return NGX_ERROR;
}


static ngx_int_t
ngx_http_kvroute_probe_time(ngx_conf_t *cf, ngx_str_t *value, size_t prefix,
    ngx_msec_t *msec)
{
    ngx_int_t  n;
    ngx_str_t  s;

    s.data = value->data + prefix;
    s.len = value->len - prefix;

    n = ngx_parse_time(&s, 0);

    if (n == NGX_ERROR || n < 10 || n > 3600 * 1000) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    *msec = (ngx_msec_t) n;

    return NGX_OK;
}
