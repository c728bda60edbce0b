
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A policy and its parameters, as in "kvroute" and "kvroute_policy".
 * core/policy lists the parameters of each policy.
 */


#include "conf/ngx_http_kvroute_conf_param.h"


/* length of the text that describes valid values */
#define NGX_HTTP_KVROUTE_CONF_POLICY_MUST  128


static void ngx_http_kvroute_conf_policy_kind(const kvr_policy_param_t *param,
    ngx_http_kvroute_conf_param_t *row, char *text, size_t size);
static ngx_int_t ngx_http_kvroute_conf_policy_size(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_policy_key(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);


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

    kvr_policy_conf_init(&policy->conf, name);
    policy->key = NULL;

    return NGX_OK;
}


/* NGX_DECLINED: no parameter of any policy. */
ngx_int_t
ngx_http_kvroute_conf_policy_param(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *word)
{
    ngx_int_t                             rc;
    ngx_uint_t                            i;
    const ngx_http_kvroute_conf_param_t  *rows;

    rows = ngx_http_kvroute_conf_policy_rows(cf, policy->conf.policy);
    if (rows == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_http_kvroute_conf_param(cf, rows, word, policy);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    for (i = 0; i < KVR_POLICIES; i++) {

        if (kvr_policy_param((kvr_policy_e) i, word->data, word->len) == NULL) {
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "parameter \"%V\" is not one of policy \"%s\", but "
                           "of \"%s\"", word,
                           kvr_policy_name(policy->conf.policy),
                           kvr_policy_name((kvr_policy_e) i));
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


const ngx_http_kvroute_conf_param_t *
ngx_http_kvroute_conf_policy_rows(ngx_conf_t *cf, kvr_policy_e policy)
{
    char                           *must;
    size_t                          n, len;
    const kvr_policy_param_t       *param, *params;
    ngx_http_kvroute_conf_param_t  *rows, *row;

    params = kvr_policy_table[policy]->params;

    for (n = 0; params && params[n].name; n++) { /* void */ }

    rows = ngx_pcalloc(cf->pool,
                       (n + 1) * sizeof(ngx_http_kvroute_conf_param_t));
    if (rows == NULL) {
        return NULL;
    }

    for (param = params, row = rows; n; n--, param++, row++) {

        len = ngx_strlen(param->name) + 1;

        row->name.data = ngx_pnalloc(cf->pool,
                                     len + NGX_HTTP_KVROUTE_CONF_POLICY_MUST);
        if (row->name.data == NULL) {
            return NULL;
        }

        row->name.len = len;
        *ngx_cpymem(row->name.data, param->name, len - 1) = '=';

        must = (char *) row->name.data + len;

        row->size = sizeof(uint32_t);
        row->min = param->min;
        row->max = param->max;
        row->offset = offsetof(ngx_http_kvroute_policy_t, conf) + param->offset;

        ngx_http_kvroute_conf_policy_kind(param, row, must,
                                          NGX_HTTP_KVROUTE_CONF_POLICY_MUST);
    }

    return rows;
}


/* Called after all parameters are read: sets the defaults of the others. */
ngx_int_t
ngx_http_kvroute_conf_policy_check(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy)
{
    ngx_str_t  value;

    if (policy->conf.balance_rel != 0 && policy->conf.balance_abs == 0) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"balance_rel=\" without \"balance_abs=\" leaves a "
                           "server for one request in flight: set both");
    }

    if (!(kvr_policy_needs(policy->conf.policy) & KVR_NEEDS_SESSION)
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


/* Returns the setter of a kind of parameters, and describes valid values. */
static void
ngx_http_kvroute_conf_policy_kind(const kvr_policy_param_t *param,
    ngx_http_kvroute_conf_param_t *row, char *text, size_t size)
{
    size_t      len;
    ngx_uint_t  i;

    row->must = text;

    switch (param->kind) {

    case KVR_PARAM_WORD:
        row->set = ngx_http_kvroute_conf_param_choice;

        for (i = 0, len = 0; param->words[i] && len < size; i++) {
            len += snprintf(text + len, size - len, "%s%s", i ? " " : "",
                            param->words[i]);
        }

        break;

    case KVR_PARAM_SIZE:
        row->set = ngx_http_kvroute_conf_policy_size;
        (void) snprintf(text, size, "between %u and %um, or auto", param->min,
                        param->max / (1024 * 1024));
        break;

    case KVR_PARAM_TIME:
        row->set = ngx_http_kvroute_conf_param_sec;
        (void) snprintf(text, size, "between %us and %us", param->min,
                        param->max);
        break;

    case KVR_PARAM_KEY:
        row->set = ngx_http_kvroute_conf_policy_key;
        row->offset = offsetof(ngx_http_kvroute_policy_t, key);
        row->must = "a text with variables, or auto";
        break;

    default: /* KVR_PARAM_NUMBER, KVR_PARAM_DECIMAL */
        row->set = param->kind == KVR_PARAM_DECIMAL
                   ? ngx_http_kvroute_conf_param_decimal
                   : ngx_http_kvroute_conf_param_number;
        (void) snprintf(text, size, "between %u and %u", param->min,
                        param->max);
    }
}


/* Sets bytes, 0 for "auto". */
static ngx_int_t
ngx_http_kvroute_conf_policy_size(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    uint32_t  *bytes = field;

    ssize_t  size;

    if (ngx_strcmp(value->data, "auto") == 0) {
        *bytes = 0;
        return NGX_OK;
    }

    size = ngx_parse_size(value);

    if (size == NGX_ERROR) {
        return NGX_DECLINED;
    }

    if (size < param->min || size > param->max) {
        return NGX_ABORT;
    }

    *bytes = (uint32_t) size;

    return NGX_OK;
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
