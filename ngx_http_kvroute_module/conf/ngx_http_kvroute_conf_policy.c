
/*
 * Copyright (C) kvroute contributors
 */


/* A policy and its parameters, as in "kvroute" and "kvroute_policy". */


#include "conf/ngx_http_kvroute_conf_param.h"


static ngx_int_t ngx_http_kvroute_conf_policy_key(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_conf_policy_sticky[] =
{
    { ngx_string("key="), ngx_http_kvroute_conf_policy_key,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_policy_t, key),
      0, 0, "a text with variables, or auto" },

    { ngx_string("timeout="), ngx_http_kvroute_conf_param_sec,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_policy_t, timeout),
      1, 365 * 24 * 3600, "between 1s and 365d" },

    ngx_http_kvroute_conf_param_null
};

static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_conf_policy_none[] =
{
    ngx_http_kvroute_conf_param_null
};


/* Reads the name of a policy and sets the defaults of its parameters. */
ngx_int_t
ngx_http_kvroute_conf_policy_name(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value)
{
    u_char       *p;
    u_char        text[256];
    ngx_uint_t    i;
    kvr_policy_e  name;

    name = kvr_policy_by_name(value->data, value->len);

    if (name == KVR_POLICIES) {

        p = text;

        for (i = KVR_POLICY_OFF + 1; i < KVR_POLICIES; i++) {
            p = ngx_slprintf(p, text + sizeof(text) - 1, " %s",
                             kvr_policy_name((kvr_policy_e) i));
        }

        *p = '\0';

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown policy \"%V\": known are%s", value, text);
        return NGX_ERROR;
    }

    policy->kind = name;
    policy->timeout = 3600;
    policy->key = NULL;

    return NGX_OK;
}


/* NGX_DECLINED: no parameter of any policy. */
ngx_int_t
ngx_http_kvroute_conf_policy_param(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *word)
{
    ngx_int_t  rc;

    rc = ngx_http_kvroute_conf_param(cf,
              ngx_http_kvroute_conf_policy_rows(policy->kind), word,
              policy);

    if (rc == NGX_DECLINED
        && ngx_http_kvroute_conf_param_find(ngx_http_kvroute_conf_policy_sticky,
                                            word))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "parameter \"%V\" is not one of policy \"%s\", but "
                           "of \"sticky\"", word,
                           kvr_policy_name(policy->kind));
        return NGX_ERROR;
    }

    return rc;
}


const ngx_http_kvroute_conf_param_t *
ngx_http_kvroute_conf_policy_rows(kvr_policy_e policy)
{
    return policy == KVR_POLICY_STICKY ? ngx_http_kvroute_conf_policy_sticky
                                       : ngx_http_kvroute_conf_policy_none;
}


/* Called after all parameters are read: sets the defaults of the others. */
ngx_int_t
ngx_http_kvroute_conf_policy_check(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy)
{
    ngx_str_t  value;

    if (!(kvr_policy_needs(policy->kind) & KVR_NEEDS_SESSION)
        || policy->key)
    {
        return NGX_OK;
    }

    ngx_str_set(&value, "$http_x_session_id");

    value.data = ngx_pstrdup(cf->pool, &value);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_conf_policy_key(cf, NULL, &value, &policy->key);
}


/*
 * Sets the text, with variables, that names a session; "auto" is an empty
 * value.
 */
static ngx_int_t
ngx_http_kvroute_conf_policy_key(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_complex_value_t  **key = field;

    if (value->len == 0) {
        return NGX_DECLINED;
    }

    if (ngx_strcmp(value->data, "auto") == 0) {
        *key = ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t));

        return *key ? NGX_OK : NGX_ERROR;
    }

    if (ngx_http_script_variables_count(value) == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "parameter \"key=%V\" has no variable, and would "
                           "bind all clients to one server: write \"key=$%V\"",
                           value, value);
        return NGX_ERROR;
    }

    return ngx_http_kvroute_conf_param_complex(cf, param, value, field);
}
