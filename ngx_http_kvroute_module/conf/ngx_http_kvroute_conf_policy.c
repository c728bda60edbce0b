
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A policy and its parameters, as written in "kvroute" and "kvroute_policy".
 */


#include "ngx_http_kvroute.h"


typedef ngx_int_t (*ngx_http_kvroute_param_pt)(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);


typedef struct {
    ngx_str_t                    name;      /* with its "=" */
    kvr_policy_e                 policy;    /* that it belongs to */
    ngx_http_kvroute_param_pt    set;
} ngx_http_kvroute_param_t;


static ngx_int_t ngx_http_kvroute_param_threshold(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_balance_abs(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_balance_rel(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_balance(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_chunks(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_by(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_length(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_load_factor(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_key(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_timeout(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_param_strict(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix);
static ngx_int_t ngx_http_kvroute_choice(ngx_conf_t *cf, ngx_str_t *value,
    size_t prefix, const char *const *words);
static ngx_int_t ngx_http_kvroute_decimal(ngx_conf_t *cf, ngx_str_t *value,
    size_t prefix, ngx_int_t min, ngx_int_t max, double *result);


static ngx_http_kvroute_param_t  ngx_http_kvroute_params[] = {

    { ngx_string("threshold="), KVR_POLICY_KV_CACHE,
      ngx_http_kvroute_param_threshold },

    { ngx_string("balance_abs="), KVR_POLICY_KV_CACHE,
      ngx_http_kvroute_param_balance_abs },

    { ngx_string("balance_rel="), KVR_POLICY_KV_CACHE,
      ngx_http_kvroute_param_balance_rel },

    { ngx_string("balance="), KVR_POLICY_KV_CACHE,
      ngx_http_kvroute_param_balance },

    { ngx_string("chunks="), KVR_POLICY_KV_CACHE,
      ngx_http_kvroute_param_chunks },

    { ngx_string("by="), KVR_POLICY_LEAST_REQUEST,
      ngx_http_kvroute_param_by },

    { ngx_string("length="), KVR_POLICY_PREFIX,
      ngx_http_kvroute_param_length },

    { ngx_string("load_factor="), KVR_POLICY_PREFIX,
      ngx_http_kvroute_param_load_factor },

    { ngx_string("key="), KVR_POLICY_STICKY,
      ngx_http_kvroute_param_key },

    { ngx_string("timeout="), KVR_POLICY_STICKY,
      ngx_http_kvroute_param_timeout },

    { ngx_string("strict="), KVR_POLICY_STICKY,
      ngx_http_kvroute_param_strict },

    { ngx_null_string, KVR_POLICY_OFF, NULL }
};


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
    ngx_http_kvroute_param_t  *param;

    for (param = ngx_http_kvroute_params; param->name.len; param++) {

        if (value->len < param->name.len
            || ngx_strncmp(value->data, param->name.data, param->name.len)
               != 0)
        {
            continue;
        }

        if (param->policy != policy->conf.policy) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "parameter \"%V\" is not one of policy \"%s\"",
                               value, kvr_policy_name(policy->conf.policy));
            return NGX_ERROR;
        }

        return param->set(cf, policy, value, param->name.len);
    }

    return NGX_DECLINED;
}


/* all parameters are read: what was not said has its default */
ngx_int_t
ngx_http_kvroute_policy_check(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy)
{
    ngx_str_t  value, name;

    if (policy->conf.policy != KVR_POLICY_STICKY || policy->key) {
        return NGX_OK;
    }

    ngx_str_set(&name, "key=$http_x_session_id");

    value.data = ngx_pstrdup(cf->pool, &name);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = name.len;

    return ngx_http_kvroute_param_key(cf, policy, &value, 4);
}


static ngx_int_t
ngx_http_kvroute_param_threshold(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    return ngx_http_kvroute_decimal(cf, value, prefix, 0, 1,
                                    &policy->conf.threshold);
}


static ngx_int_t
ngx_http_kvroute_param_balance_abs(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    ngx_int_t  n;

    n = ngx_http_kvroute_number(cf, value, prefix, 0, 1000000);

    policy->conf.balance_abs = (uint32_t) n;

    return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_param_balance_rel(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    return ngx_http_kvroute_decimal(cf, value, prefix, 1, 1000,
                                    &policy->conf.balance_rel);
}


static ngx_int_t
ngx_http_kvroute_param_balance(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    ngx_int_t  n;

    static const char *const  words[] = { "all", "any", NULL };

    n = ngx_http_kvroute_choice(cf, value, prefix, words);

    policy->conf.balance_any = (n == 1);

    return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_param_chunks(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    ngx_int_t  n;

    static const char *const  words[] = { "off", "tie", "credit", NULL };

    _Static_assert(kvr_nelts(words) == KVR_CHUNKS_MAX + 1, "words of chunks");

    n = ngx_http_kvroute_choice(cf, value, prefix, words);

    policy->conf.chunks = (kvr_chunks_e) n;

    return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_param_by(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    ngx_int_t    n;
    const char  *words[KVR_BY_MAX + 1];

    for (n = 0; n < KVR_BY_MAX; n++) {
        words[n] = kvr_by_name((kvr_by_e) n);
    }

    words[n] = NULL;

    n = ngx_http_kvroute_choice(cf, value, prefix, words);

    policy->conf.by = (kvr_by_e) n;

    return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_param_length(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    ssize_t    size;
    ngx_str_t  s;

    s.data = value->data + prefix;
    s.len = value->len - prefix;

    if (s.len == 4 && ngx_strncmp(s.data, "auto", 4) == 0) {
        policy->conf.length = 0;
        return NGX_OK;
    }

    size = ngx_parse_size(&s);

    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    if (size < KVR_BLOCK || size > 64 * 1024 * 1024) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "value of parameter \"%V\" must be between "
                           "%d and 64m", value, KVR_BLOCK);
        return NGX_ERROR;
    }

    policy->conf.length = (uint32_t) size;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_param_load_factor(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    return ngx_http_kvroute_decimal(cf, value, prefix, 1, 1000,
                                    &policy->conf.load_factor);
}


static ngx_int_t
ngx_http_kvroute_param_key(ngx_conf_t *cf,
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


static ngx_int_t
ngx_http_kvroute_param_timeout(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    time_t     t;
    ngx_str_t  s;

    s.data = value->data + prefix;
    s.len = value->len - prefix;

    t = ngx_parse_time(&s, 1);

    if (t == (time_t) NGX_ERROR || t < 1 || t > 365 * 24 * 3600) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    policy->conf.timeout = (uint32_t) t;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_param_strict(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value, size_t prefix)
{
    ngx_int_t  n;

    static const char *const  words[] = { "off", "on", NULL };

    n = ngx_http_kvroute_choice(cf, value, prefix, words);

    policy->conf.strict = (n == 1);

    return n == NGX_ERROR ? NGX_ERROR : NGX_OK;
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
