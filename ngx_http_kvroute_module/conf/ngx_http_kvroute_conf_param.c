
/*
 * Copyright (C) kvroute contributors
 */


#include "conf/ngx_http_kvroute_conf_param.h"


static ngx_int_t ngx_http_kvroute_conf_param_store(
    const ngx_http_kvroute_conf_param_t *param, int64_t n, void *field);
static void ngx_http_kvroute_conf_param_dollar(ngx_conf_t *cf,
    ngx_str_t *value);


const ngx_http_kvroute_conf_param_t *
ngx_http_kvroute_conf_param_find(const ngx_http_kvroute_conf_param_t *params,
    ngx_str_t *word)
{
    const ngx_http_kvroute_conf_param_t  *param;

    for (param = params; param->name.len; param++) {

        if (word->len >= param->name.len
            && ngx_strncmp(word->data, param->name.data, param->name.len) == 0
            && (word->len == param->name.len
                || param->name.data[param->name.len - 1] == '='))
        {
            return param;
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_kvroute_conf_param(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *params, ngx_str_t *word, void *conf)
{
    ngx_int_t                             rc;
    ngx_str_t                             value;
    const ngx_http_kvroute_conf_param_t  *param;

    param = ngx_http_kvroute_conf_param_find(params, word);

    if (param == NULL) {
        return NGX_DECLINED;
    }

    value.data = word->data + param->name.len;
    value.len = word->len - param->name.len;

    rc = param->set(cf, param, &value, (u_char *) conf + param->offset);

    if (rc == NGX_DECLINED) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must be %s: invalid value in parameter "
                           "\"%V\"", &param->name, param->must, word);

    } else if (rc == NGX_ABORT) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "value of parameter \"%V\" must be %s", word,
                           param->must);
    }

    return rc == NGX_OK ? NGX_OK : NGX_ERROR;
}


ngx_uint_t
ngx_http_kvroute_conf_param_off(ngx_conf_t *cf, char **rc)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    *rc = (cf->args->nelts == 2) ? NGX_CONF_OK
                                 : "is off: it takes no parameters";

    return ngx_strcmp(value[1].data, "off") == 0;
}


ngx_int_t
ngx_http_kvroute_conf_param_all(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *params, ngx_uint_t first, void *conf)
{
    ngx_int_t    rc;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (ngx_http_kvroute_conf_param_once(cf, first) != NGX_OK) {
        return NGX_ERROR;
    }

    value = cf->args->elts;

    for (i = first; i < cf->args->nelts; i++) {

        rc = ngx_http_kvroute_conf_param(cf, params, &value[i], conf);

        if (rc == NGX_DECLINED) {
            return ngx_http_kvroute_conf_param_unknown(cf, &value[i], params,
                                                       NULL);
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_conf_param_unknown(ngx_conf_t *cf, ngx_str_t *word,
    const ngx_http_kvroute_conf_param_t *params,
    const ngx_http_kvroute_conf_param_t *more)
{
    u_char                               *p;
    u_char                                text[512];
    ngx_uint_t                            i;
    const char                           *now;
    const ngx_http_kvroute_conf_param_t  *param;

    now = ngx_http_kvroute_conf_old_param(cf, word);

    if (now) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "there is no parameter \"%V\" any more: %s", word,
                           now);
        return NGX_ERROR;
    }

    p = text;

    for (i = 0; i < 2; i++) {
        for (param = i ? more : params; param && param->name.len; param++) {
            p = ngx_slprintf(p, text + sizeof(text) - 1, " %V", &param->name);
        }
    }

    *p = '\0';

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\": known are%s", word, text);

    return NGX_ERROR;
}


ngx_int_t
ngx_http_kvroute_conf_param_once(ngx_conf_t *cf, ngx_uint_t first)
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


/* NGX_ERROR of nginx's parsers is not a valid value of any parameter */
static ngx_int_t
ngx_http_kvroute_conf_param_store(const ngx_http_kvroute_conf_param_t *param,
    int64_t n, void *field)
{
    if (n == NGX_ERROR || n < param->min || (param->max && n > param->max)) {
        return NGX_DECLINED;
    }

    switch (param->size) {

    case sizeof(uint16_t):
        *(uint16_t *) field = (uint16_t) n;
        break;

    case sizeof(uint32_t):
        *(uint32_t *) field = (uint32_t) n;
        break;

    default:
        *(uint64_t *) field = (uint64_t) n;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_conf_param_number(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data, value->len);

    if (n != NGX_ERROR && (n < param->min || n > param->max)) {
        return NGX_ABORT;
    }

    return ngx_http_kvroute_conf_param_store(param, n, field);
}


ngx_int_t
ngx_http_kvroute_conf_param_size(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    return ngx_http_kvroute_conf_param_store(param, ngx_parse_size(value),
                                             field);
}


ngx_int_t
ngx_http_kvroute_conf_param_msec(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    return ngx_http_kvroute_conf_param_store(param, ngx_parse_time(value, 0),
                                             field);
}


ngx_int_t
ngx_http_kvroute_conf_param_sec(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    return ngx_http_kvroute_conf_param_store(param, ngx_parse_time(value, 1),
                                             field);
}


ngx_int_t
ngx_http_kvroute_conf_param_decimal(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_int_t  n;

    n = ngx_atofp(value->data, value->len, 3);

    if (n == NGX_ERROR) {
        return NGX_DECLINED;
    }

    if (n < param->min * 1000 || n > param->max * 1000) {
        return NGX_ABORT;
    }

    *(double *) field = (double) n / 1000;

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_conf_param_percent(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    uint32_t  *percent = field;

    ngx_int_t  n;

    if (value->len < 2 || value->data[value->len - 1] != '%') {
        return NGX_DECLINED;
    }

    n = ngx_atoi(value->data, value->len - 1);

    if (n == NGX_ERROR || n < param->min || n > param->max) {
        return NGX_DECLINED;
    }

    *percent = (uint32_t) n;

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_conf_param_choice(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    size_t       len;
    ngx_int_t    n;
    const char  *p;

    for (p = param->must, n = 0; *p; p += len, n++) {

        p += strspn(p, " ");
        len = strcspn(p, " ");

        if (value->len == len && ngx_strncmp(value->data, p, len) == 0) {
            return ngx_http_kvroute_conf_param_store(param, n, field);
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" must be one of \"%s\": invalid value in "
                       "parameter \"%V%V\"", &param->name, param->must,
                       &param->name, value);

    return NGX_ERROR;
}


ngx_int_t
ngx_http_kvroute_conf_param_flag(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    return ngx_http_kvroute_conf_param_store(param, 1, field);
}


char *
ngx_http_kvroute_conf_param_slot(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_http_kvroute_conf_param_dollar(cf, &value[1]);

    if (ngx_strcmp(value[1].data, "on") == 0
        || ngx_strcmp(value[1].data, "off") == 0)
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" of \"%V\" is a text and no switch: write a "
                           "variable, or \"\" for none", &value[1], &cmd->name);
    }

    return ngx_http_set_complex_value_slot(cf, cmd, conf);
}


ngx_uint_t
ngx_http_kvroute_conf_param_is(ngx_str_t *value, const char *text)
{
    return value->len == ngx_strlen(text)
           && ngx_strncmp(value->data, text, value->len) == 0;
}


/*
 * Warns of a constant that looks like the name of a variable, and of a variable
 * that no two requests share.
 */
static void
ngx_http_kvroute_conf_param_dollar(ngx_conf_t *cf, ngx_str_t *value)
{
    if (ngx_strncmp(value->data, "http_", 5) == 0
        || ngx_strncmp(value->data, "arg_", 4) == 0
        || ngx_strncmp(value->data, "cookie_", 7) == 0)
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" is the same text for all requests: if it is "
                           "to be a variable write \"$%V\"", value, value);

    } else if (ngx_http_kvroute_conf_param_is(value, "$request_id")
               || ngx_strnstr(value->data, "${request_id}", value->len))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" is another text for each request: write "
                           "what the requests of a client have in common",
                           value);
    }
}


ngx_int_t
ngx_http_kvroute_conf_param_complex(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_complex_value_t          **slot = field;
    ngx_http_compile_complex_value_t    ccv;

    ngx_http_kvroute_conf_param_dollar(cf, value);

    if (param && param->name.len
        && ngx_strcmp(param->name.data, "tenant=") == 0
        && (ngx_http_kvroute_conf_param_is(value, "$kvroute_tenant")
            || ngx_strnstr(value->data, "${kvroute_tenant}", value->len)))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V%V\" refers to itself: write a variable of "
                           "the request, such as $http_x_tenant", &param->name,
                           value);
    }

    *slot = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (*slot == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = *slot;

    return ngx_http_compile_complex_value(&ccv);
}


ngx_int_t
ngx_http_kvroute_conf_param_word(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_str_t  *word = field;

    size_t  i;

    if (value->len == 0 || (int64_t) value->len > param->max) {
        return NGX_DECLINED;
    }

    for (i = 0; i < value->len; i++) {
        if (value->data[i] <= ' ') {
            return NGX_DECLINED;
        }
    }

    *word = *value;

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_conf_param_path(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    if (value->len == 0 || value->data[0] != '/') {
        return NGX_DECLINED;
    }

    return ngx_http_kvroute_conf_param_word(cf, param, value, field);
}
