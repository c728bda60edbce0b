
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A policy and its parameters, as written in "kvroute" and "kvroute_policy".
 */


#include "ngx_http_kvroute.h"


static ngx_int_t ngx_http_kvroute_policy_value(ngx_conf_t *cf,
    const kvr_policy_param_t *param, ngx_str_t *value, size_t prefix,
    void *data);
static ngx_int_t ngx_http_kvroute_policy_size(ngx_conf_t *cf,
    const kvr_policy_param_t *param, ngx_str_t *value, ngx_str_t *s);
static ngx_int_t ngx_http_kvroute_policy_key(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_choice(ngx_conf_t *cf, ngx_str_t *value,
    size_t prefix, const char *const *words);
static ngx_int_t ngx_http_kvroute_decimal(ngx_conf_t *cf, ngx_str_t *value,
    size_t prefix, ngx_int_t min, ngx_int_t max, double *result);


/* reads the name of a policy and sets the defaults of its parameters */
ngx_int_t
ngx_http_kvroute_policy_name(ngx_conf_t *cf, ngx_http_kvroute_policy_t *policy,
    ngx_str_t *value)
{
    kvr_policy_e  name;

    name = kvr_policy_by_name(value->data, value->len);

    if (name == KVR_POLICIES) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown policy \"%V\"", value);
        return NGX_ERROR;
    }

    kvr_policy_conf_init(&policy->conf, name);
    policy->key = NULL;

    return NGX_OK;
}


/* NGX_DECLINED: it is no parameter of any policy */
ngx_int_t
ngx_http_kvroute_policy_param(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value)
{
    size_t                     prefix;
    ngx_uint_t                 i;
    const kvr_policy_param_t  *param;

    param = kvr_policy_param(policy->conf.policy, value->data, value->len);

    if (param == NULL) {

        for (i = 0; i < KVR_POLICIES; i++) {
            if (kvr_policy_param((kvr_policy_e) i, value->data, value->len)) {
                break;
            }
        }

        if (i == KVR_POLICIES) {
            return NGX_DECLINED;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "parameter \"%V\" is not one of policy \"%s\"",
                           value, kvr_policy_name(policy->conf.policy));
        return NGX_ERROR;
    }

    prefix = ngx_strlen(param->name) + 1;

    if (param->kind == KVR_PARAM_KEY) {
        return ngx_http_kvroute_policy_key(cf, policy, value, prefix);
    }

    return ngx_http_kvroute_policy_value(cf, param, value, prefix,
                                  (u_char *) &policy->conf + param->offset);
}


/* all parameters are read: what was not said has its default */
ngx_int_t
ngx_http_kvroute_policy_check(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy)
{
    ngx_str_t  value, name;

    if (!(kvr_policy_needs(policy->conf.policy) & KVR_NEEDS_SESSION)
        || policy->key)
    {
        return NGX_OK;
    }

    ngx_str_set(&name, "key=$http_x_session_id");

    value.data = ngx_pstrdup(cf->pool, &name);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = name.len;

    return ngx_http_kvroute_policy_key(cf, policy, &value, 4);
}


/* a value as its kind is written, to its place */
static ngx_int_t
ngx_http_kvroute_policy_value(ngx_conf_t *cf, const kvr_policy_param_t *param,
    ngx_str_t *value, size_t prefix, void *data)
{
    double    *decimal = data;
    uint32_t  *number = data;

    ngx_int_t  n;
    ngx_str_t  s;

    s.data = value->data + prefix;
    s.len = value->len - prefix;

    switch (param->kind) {

    case KVR_PARAM_DECIMAL:
        return ngx_http_kvroute_decimal(cf, value, prefix, param->min,
                                        param->max, decimal);

    case KVR_PARAM_WORD:
        n = ngx_http_kvroute_choice(cf, value, prefix, param->words);
        break;

    case KVR_PARAM_SIZE:
        n = ngx_http_kvroute_policy_size(cf, param, value, &s);
        break;

    case KVR_PARAM_TIME:
        n = ngx_parse_time(&s, 1);

        if (n < (ngx_int_t) param->min || n > (ngx_int_t) param->max) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value in parameter \"%V\"", value);
            return NGX_ERROR;
        }

        break;

    default: /* KVR_PARAM_NUMBER */
        n = ngx_http_kvroute_number(cf, value, prefix, param->min,
                                    param->max);
    }

    if (n == NGX_ERROR) {
        return NGX_ERROR;
    }

    *number = (uint32_t) n;

    return NGX_OK;
}


/* bytes, or 0 for "auto" */
static ngx_int_t
ngx_http_kvroute_policy_size(ngx_conf_t *cf, const kvr_policy_param_t *param,
    ngx_str_t *value, ngx_str_t *s)
{
    ssize_t  size;

    if (s->len == 4 && ngx_strncmp(s->data, "auto", 4) == 0) {
        return 0;
    }

    size = ngx_parse_size(s);

    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    if (size < (ssize_t) param->min || size > (ssize_t) param->max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "value of parameter \"%V\" must be between "
                           "%uD and %uDm", value, param->min,
                           param->max / (1024 * 1024));
        return NGX_ERROR;
    }

    return size;
}


/* what names a session: a text with variables, or "auto" */
static ngx_int_t
ngx_http_kvroute_policy_key(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    ngx_str_t                          s;
    ngx_http_compile_complex_value_t   ccv;

    s.data = value->data + prefix;
    s.len = value->len - prefix;

    if (s.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    policy->key = ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (policy->key == NULL) {
        return NGX_ERROR;
    }

    if (s.len == 4 && ngx_strncmp(s.data, "auto", 4) == 0) {

        /* an empty value says so */

        return NGX_OK;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &s;
    ccv.complex_value = policy->key;

    return ngx_http_compile_complex_value(&ccv);
}


/* the number of one of several words */
static ngx_int_t
ngx_http_kvroute_choice(ngx_conf_t *cf, ngx_str_t *value, size_t prefix,
    const char *const *words)
{
    ngx_int_t  n;

    for (n = 0; words[n]; n++) {
        if (ngx_strcmp(value->data + prefix, words[n]) == 0) {
            return n;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value in parameter \"%V\"", value);

    return NGX_ERROR;
}


/* a number with up to three decimals, within its bounds */
static ngx_int_t
ngx_http_kvroute_decimal(ngx_conf_t *cf, ngx_str_t *value, size_t prefix,
    ngx_int_t min, ngx_int_t max, double *result)
{
    ngx_int_t  n;

    n = ngx_atofp(value->data + prefix, value->len - prefix, 3);

    if (n == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    if (n < min * 1000 || n > max * 1000) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "value of parameter \"%V\" must be between "
                           "%i and %i", value, min, max);
        return NGX_ERROR;
    }

    *result = (double) n / 1000;

    return NGX_OK;
}


/* reads the number of a "name=number" parameter within its bounds */
ngx_int_t
ngx_http_kvroute_number(ngx_conf_t *cf, ngx_str_t *value, size_t prefix,
    ngx_int_t min, ngx_int_t max)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data + prefix, value->len - prefix);

    if (n == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    if (n < min || n > max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "value of parameter \"%V\" must be between "
                           "%i and %i", value, min, max);
        return NGX_ERROR;
    }

    return n;
}


/*
 * Whether no parameter is said twice, from a word on: one of the two would
 * count, and nobody would know which.
 */
ngx_int_t
ngx_http_kvroute_params_once(ngx_conf_t *cf, ngx_uint_t first)
{
    u_char      *p;
    size_t       len;
    ngx_str_t   *value;
    ngx_uint_t   i, k;

    value = cf->args->elts;

    for (i = first; i < cf->args->nelts; i++) {

        p = ngx_strlchr(value[i].data, value[i].data + value[i].len, '=');

        len = p ? (size_t) (p + 1 - value[i].data) : value[i].len;

        for (k = first; k < i; k++) {

            if (value[k].len < len
                || (p == NULL && value[k].len != len)
                || ngx_strncmp(value[k].data, value[i].data, len) != 0)
            {
                continue;
            }

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate parameter \"%V\"", &value[i]);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
