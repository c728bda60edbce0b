
/*
 * Copyright (C) kvroute contributors
 */


/* The directive kvroute_policy: a policy of a location. */


#include "conf/ngx_http_kvroute_conf_param.h"


static ngx_int_t ngx_http_kvroute_conf_location_unknown(ngx_conf_t *cf,
    kvr_policy_e policy, ngx_str_t *word);


char *
ngx_http_kvroute_conf_location(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_loc_conf_t  *klcf = conf;

    ngx_int_t    rc;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (klcf->policy) {
        return "is duplicate";
    }

    if (ngx_http_kvroute_conf_param_once(cf, 2) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    klcf->policy = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_policy_t));
    if (klcf->policy == NULL) {
        return NGX_CONF_ERROR;
    }

    rc = ngx_http_kvroute_conf_policy_name(cf, klcf->policy, &value[1]);

    for (i = 2; i < cf->args->nelts && rc == NGX_OK; i++) {
        rc = ngx_http_kvroute_conf_policy_param(cf, klcf->policy, &value[i]);

        if (rc == NGX_DECLINED) {
            rc = ngx_http_kvroute_conf_location_unknown(cf,
                                       klcf->policy->kind, &value[i]);
        }
    }

    if (rc != NGX_OK
        || ngx_http_kvroute_conf_policy_check(cf, klcf->policy) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* Reports a word that is no parameter of a policy. */
static ngx_int_t
ngx_http_kvroute_conf_location_unknown(ngx_conf_t *cf, kvr_policy_e policy,
    ngx_str_t *word)
{
    const ngx_http_kvroute_conf_param_t  *param, *rows;

    param = ngx_http_kvroute_conf_upstream_param(word);

    if (param) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\": \"%V\" belongs to "
                           "\"kvroute\" in the upstream", word, &param->name);
        return NGX_ERROR;
    }

    rows = ngx_http_kvroute_conf_policy_rows(policy);

    if (rows->name.len == 0
        && ngx_http_kvroute_conf_old_param(cf, word) == NULL)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\": policy \"%s\" has none",
                           word, kvr_policy_name(policy));
        return NGX_ERROR;
    }

    return ngx_http_kvroute_conf_param_unknown(cf, word, rows, NULL);
}
