
/*
 * Copyright (C) kvroute contributors
 */


/* The parameters of kvroute and kvroute_upstream; kvroute_ranks. */


#include "conf/ngx_http_kvroute_conf_param.h"


#define NGX_HTTP_KVROUTE_CONF_PENDING  500    /* ms */

#define ngx_http_kvroute_conf_upstream_of(field, name)                        \
    ((ngx_http_kvroute_srv_conf_t *)                                          \
         ((u_char *) field - offsetof(ngx_http_kvroute_srv_conf_t, name)))


static ngx_int_t ngx_http_kvroute_conf_upstream_zone(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_upstream_capacity(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_upstream_pending(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_conf_upstream_list[] =
{
    { ngx_string("zone="), ngx_http_kvroute_conf_upstream_zone,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_srv_conf_t, shm_zone),
      0, 0, "the name of a \"kvroute_zone\"" },

    { ngx_string("capacity="), ngx_http_kvroute_conf_upstream_capacity,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_srv_conf_t, capacity),
      KVR_BLOCK, 0, "a size such as 64m, 256 bytes at least, or 64m! to hold "
      "it against what engines report, or 64m+256m+4g with host memory and "
      "disk" },

    { ngx_string("max_pending="), ngx_http_kvroute_conf_upstream_pending,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_srv_conf_t, max_pending),
      1024, 0, "a size such as 256k, a time such as 500ms, or auto" },

    { ngx_string("max_waiting="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_srv_conf_t, max_waiting),
      0, 1000000, "between 0 and 1000000" },

    { ngx_string("slow_start="), ngx_http_kvroute_conf_param_sec,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_srv_conf_t, slow_start),
      0, 0, "a time such as 30s" },

    ngx_http_kvroute_conf_param_null
};


ngx_int_t
ngx_http_kvroute_conf_upstream_params(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf, ngx_uint_t first)
{
    ngx_int_t                             rc;
    ngx_str_t                            *value;
    ngx_uint_t                            i;
    const ngx_http_kvroute_conf_param_t  *rows;

    if (ngx_http_kvroute_conf_param_once(cf, first) != NGX_OK) {
        return NGX_ERROR;
    }

    value = cf->args->elts;
    i = first;

    kscf->policy.kind = KVR_POLICY_KV_CACHE;

    if (i < cf->args->nelts && ngx_strchr(value[i].data, '=') == NULL) {

        if (ngx_http_kvroute_conf_policy_name(cf, &kscf->policy, &value[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (kscf->policy.kind == KVR_POLICY_OFF) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "policy \"%V\" is for locations", &value[i]);
            return NGX_ERROR;
        }

        i++;
    }

    for ( /* void */ ; i < cf->args->nelts; i++) {

        rc = ngx_http_kvroute_conf_param(cf,
                                         ngx_http_kvroute_conf_upstream_list,
                                         &value[i], kscf);

        if (rc == NGX_DECLINED) {
            rc = ngx_http_kvroute_conf_policy_param(cf, &kscf->policy,
                                                    &value[i]);
        }

        if (rc == NGX_DECLINED
            && kvr_policy_by_name(value[i].data, value[i].len) != KVR_POLICIES)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\": the policy must be "
                               "the first word", &value[i]);
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            rows = ngx_http_kvroute_conf_policy_rows(kscf->policy.kind);

            return ngx_http_kvroute_conf_param_unknown(cf, &value[i],
                                     ngx_http_kvroute_conf_upstream_list, rows);
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (kscf->shm_zone == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter: \"zone=\" and "
                           "the name of a \"kvroute_zone\"", &value[0]);
        return NGX_ERROR;
    }

    return ngx_http_kvroute_conf_policy_check(cf, &kscf->policy);
}


/* Directives can come in any order, so missing ones are reported later. */
char *
ngx_http_kvroute_conf_upstream_ranks(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    ngx_int_t   n;
    ngx_str_t  *value;

    if (kscf->ranks) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "auto") == 0) {
        kscf->ranks = NGX_HTTP_KVROUTE_RANKS_AUTO;

    } else {
        n = ngx_atoi(value[1].data, value[1].len);

        if (n < 2 || n > KVR_REGISTRY_RANKS) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" must be a number between 2 and %d, or "
                               "auto: invalid value \"%V\"", &cmd->name,
                               KVR_REGISTRY_RANKS, &value[1]);
            return NGX_CONF_ERROR;
        }

        kscf->ranks = n;
    }

    return NGX_CONF_OK;
}


const ngx_http_kvroute_conf_param_t *
ngx_http_kvroute_conf_upstream_param(ngx_str_t *word)
{
    return ngx_http_kvroute_conf_param_find(ngx_http_kvroute_conf_upstream_list,
                                            word);
}


/* Finds the zone, which may be declared after the upstreams that use it. */
static ngx_int_t
ngx_http_kvroute_conf_upstream_zone(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_shm_zone_t  **shm_zone = field;

    if (value->len == 0 || ngx_strchr(value->data, ':')) {
        return NGX_DECLINED;
    }

    *shm_zone = ngx_shared_memory_add(cf, value, 0, &ngx_http_kvroute_module);

    return *shm_zone ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_kvroute_conf_upstream_capacity(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    u_char                       *p, *last;
    size_t                       *sizes[3];
    off_t                         n;
    ngx_str_t                     size;
    ngx_uint_t                    i;
    ngx_http_kvroute_srv_conf_t  *kscf;

    kscf = ngx_http_kvroute_conf_upstream_of(field, capacity);

    sizes[0] = &kscf->capacity;
    sizes[1] = &kscf->host;
    sizes[2] = &kscf->disk;

    p = value->data;
    last = p + value->len;

    for (i = 0; i < 3; i++) {

        size.data = p;

        p = ngx_strlchr(p, last, '+');
        size.len = (p ? p : last) - size.data;

        if (i == 0) {
            kscf->fixed = (size.len && size.data[size.len - 1] == '!');
            size.len -= kscf->fixed;
        }

        n = ngx_parse_offset(&size);

        if (n < param->min) {
            return NGX_DECLINED;
        }

        *sizes[i] = (size_t) n;

        if (p == NULL) {
            return NGX_OK;
        }

        p++;
    }

    return NGX_DECLINED;
}


/* Reads bytes, or a time, which is half of the target for first tokens. */
static ngx_int_t
ngx_http_kvroute_conf_upstream_pending(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_int_t                     n;
    ngx_http_kvroute_srv_conf_t  *kscf;

    kscf = ngx_http_kvroute_conf_upstream_of(field, max_pending);

    if (value->len && value->data[value->len - 1] == 's') {
        n = ngx_parse_time(value, 0);

        if (n == NGX_ERROR || n == 0) {
            return NGX_DECLINED;
        }

        kscf->target_ttft = 2 * n;

        return NGX_OK;
    }

    if (ngx_strcmp(value->data, "auto") == 0) {
        kscf->target_ttft = 2 * NGX_HTTP_KVROUTE_CONF_PENDING;
        return NGX_OK;
    }

    return ngx_http_kvroute_conf_param_size(cf, param, value, field);
}
