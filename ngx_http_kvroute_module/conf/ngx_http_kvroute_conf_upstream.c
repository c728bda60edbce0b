
/*
 * Copyright (C) kvroute contributors
 */


/* The directives kvroute_zone and kvroute. */


#include "zone/ngx_http_kvroute_zone.h"


#define NGX_HTTP_KVROUTE_TARGET  1000                 /* ms */


char *
ngx_http_kvroute_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_main_conf_t  *kmcf = conf;

    u_char                    *p;
    ssize_t                    size;
    ngx_int_t                  n;
    ngx_str_t                 *value, name, s;
    ngx_uint_t                 i;
    ngx_http_kvroute_zone_t   *zone, **zonep;

    if (ngx_http_kvroute_params_once(cf, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_zone_t));
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    zone->cycle = cf->cycle;
    zone->unit = 1;
    zone->max_peers = KVR_PEERS;

    size = 0;
    name.len = 0;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "zone=", 5) == 0) {

            name.data = value[i].data + 5;

            p = (u_char *) ngx_strchr(name.data, ':');

            if (p == NULL || p == name.data) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            name.len = p - name.data;

            s.data = p + 1;
            s.len = value[i].data + value[i].len - s.data;

            size = ngx_parse_size(&s);

            if (size == NGX_ERROR) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            if (size < (ssize_t) (128 * ngx_pagesize)) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "zone \"%V\" is too small", &value[i]);
                return NGX_CONF_ERROR;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "block=", 6) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 6, KVR_BLOCK, 4096);

            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            if (n & (n - 1)) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "value of parameter \"%V\" must be a power "
                                   "of two", &value[i]);
                return NGX_CONF_ERROR;
            }

            zone->unit = n / KVR_BLOCK;

            continue;
        }

        if (ngx_strncmp(value[i].data, "max_peers=", 10) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 10, 1, KVR_PEERS);

            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            zone->max_peers = n;

            continue;
        }

        if (ngx_strncmp(value[i].data, "processes=", 10) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 10, 1, KVR_ROWS);

            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            zone->processes = n;

            continue;
        }

        if (ngx_strncmp(value[i].data, "key_file=", 9) == 0) {

            s.data = value[i].data + 9;
            s.len = value[i].len - 9;

            if (ngx_http_kvroute_conf_key(cf, zone, &s) != NGX_OK) {
                return NGX_CONF_ERROR;
            }

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\"", &value[i]);
        return NGX_CONF_ERROR;
    }

    if (name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    zone->name.len = name.len;
    zone->name.data = ngx_pnalloc(cf->pool, name.len + 1);
    if (zone->name.data == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_cpystrn(zone->name.data, name.data, name.len + 1);

    if (ngx_http_kvroute_zone_add(cf, zone, &name, size) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    zonep = ngx_array_push(&kmcf->zones);
    if (zonep == NULL) {
        return NGX_CONF_ERROR;
    }

    *zonep = zone;

    return NGX_CONF_OK;
}


char *
ngx_http_kvroute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    char                          *rv;
    ngx_http_upstream_srv_conf_t  *uscf;

    if (kscf->shm_zone) {
        return "is duplicate";
    }

    rv = ngx_http_kvroute_upstream_params(cf, cmd, kscf, 1);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    uscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);

    ngx_http_kvroute_attach_replace(cf, uscf);

    uscf->flags = NGX_HTTP_UPSTREAM_CREATE
                  |NGX_HTTP_UPSTREAM_MODIFY
                  |NGX_HTTP_UPSTREAM_WEIGHT
                  |NGX_HTTP_UPSTREAM_MAX_CONNS
                  |NGX_HTTP_UPSTREAM_MAX_FAILS
                  |NGX_HTTP_UPSTREAM_FAIL_TIMEOUT
                  |NGX_HTTP_UPSTREAM_DOWN
                  |NGX_HTTP_UPSTREAM_BACKUP;

    return ngx_http_kvroute_attach(cf, uscf, kscf);
}


/* the parameters of an upstream's directive, from a word on */
char *
ngx_http_kvroute_upstream_params(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_kvroute_srv_conf_t *kscf, ngx_uint_t first)
{
    ssize_t      size;
    ngx_int_t    rc, target;
    ngx_str_t   *value, name, s;
    ngx_uint_t   i;

    if (ngx_http_kvroute_params_once(cf, first) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    name.len = 0;
    target = 0;
    kvr_policy_conf_init(&kscf->policy.conf, KVR_POLICY_KV_CACHE);

    for (i = first; i < cf->args->nelts; i++) {

        if (i == first && ngx_strchr(value[i].data, '=') == NULL) {

            if (ngx_http_kvroute_policy_name(cf, &kscf->policy, &value[i])
                != NGX_OK)
            {
                return NGX_CONF_ERROR;
            }

            if (kscf->policy.conf.policy == KVR_POLICY_OFF) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "policy \"%V\" is for locations",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "zone=", 5) == 0) {

            name.data = value[i].data + 5;
            name.len = value[i].len - 5;

            continue;
        }

        if (ngx_strncmp(value[i].data, "capacity=", 9) == 0) {

            s.data = value[i].data + 9;
            s.len = value[i].len - 9;

            size = ngx_parse_size(&s);

            if (size == NGX_ERROR || size < KVR_BLOCK) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid value in parameter \"%V\"",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }

            kscf->capacity = size;

            continue;
        }

        if (ngx_strncmp(value[i].data, "max_pending=", 12) == 0) {

            s.data = value[i].data + 12;
            s.len = value[i].len - 12;

            if (ngx_strcmp(s.data, "auto") == 0) {
                target = target ? target : NGX_HTTP_KVROUTE_TARGET;
                kscf->target_ttft = target;
                continue;
            }

            size = ngx_parse_size(&s);

            if (size == NGX_ERROR || size == 0) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid value in parameter \"%V\"",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }

            kscf->max_pending = size;

            continue;
        }

        if (ngx_strncmp(value[i].data, "target_ttft=", 12) == 0) {

            s.data = value[i].data + 12;
            s.len = value[i].len - 12;

            target = ngx_parse_time(&s, 0);

            if (target == NGX_ERROR || target == 0) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid value in parameter \"%V\"",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }

            kscf->target_ttft = kscf->target_ttft ? target : 0;

            continue;
        }

        if (ngx_strncmp(value[i].data, "max_waiting=", 12) == 0) {

            kscf->max_waiting = ngx_http_kvroute_number(cf, &value[i], 12, 0,
                                                        1000000);
            if (kscf->max_waiting == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "slow_start=", 11) == 0) {

            s.data = value[i].data + 11;
            s.len = value[i].len - 11;

            kscf->slow_start = ngx_parse_time(&s, 1);

            if (kscf->slow_start == (time_t) NGX_ERROR) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid value in parameter \"%V\"",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }

            continue;
        }

        rc = ngx_http_kvroute_policy_param(cf, &kscf->policy, &value[i]);

        if (rc == NGX_OK) {
            continue;
        }

        if (rc == NGX_ERROR) {
            return NGX_CONF_ERROR;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\"", &value[i]);
        return NGX_CONF_ERROR;
    }

    if (name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter", &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kvroute_policy_check(cf, &kscf->policy) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    kscf->shm_zone = ngx_shared_memory_add(cf, &name, 0,
                                           &ngx_http_kvroute_module);
    if (kscf->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}
