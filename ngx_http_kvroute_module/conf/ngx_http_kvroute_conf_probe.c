
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The directives kvroute_probe, kvroute_health and kvroute_engine.
 */


#include "conf/ngx_http_kvroute_conf_param.h"


/* most certificates in a chain between the engine's and a trusted one */
#define NGX_HTTP_KVROUTE_CONF_PROBE_DEPTH  4


static ngx_http_kvroute_probe_conf_t *ngx_http_kvroute_conf_probe_read(
    ngx_conf_t *cf, const ngx_http_kvroute_conf_param_t *params,
    ngx_msec_t interval, ngx_msec_t timeout);
static ngx_int_t ngx_http_kvroute_conf_probe_url(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_header(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_lines(ngx_conf_t *cf,
    ngx_str_t *text, ngx_str_t *header);


#define ngx_http_kvroute_conf_probe_field(name)                               \
    ngx_http_kvroute_conf_field(ngx_http_kvroute_probe_conf_t, name)
#define ngx_http_kvroute_conf_probe_engine_field(name)                        \
    ngx_http_kvroute_conf_field(ngx_http_kvroute_engine_conf_t, name)

#define ngx_http_kvroute_conf_probe_time(name)                                \
    ngx_http_kvroute_conf_param_msec, ngx_http_kvroute_conf_probe_field(name), \
    10, 3600 * 1000, "between 10ms and 1h"

static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_conf_probe_list[] =
{
    { ngx_string("interval="), ngx_http_kvroute_conf_probe_time(interval) },

    { ngx_string("timeout="), ngx_http_kvroute_conf_probe_time(timeout) },

    { ngx_string("url="), ngx_http_kvroute_conf_probe_url,
      0, 0, 0, 256, "[ADDRESS][:PORT][/PATH], as \":9400\" or \"/metrics\"" },

    ngx_http_kvroute_conf_param_null
};


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_conf_probe_health_list[] =
{
    { ngx_string("uri="), ngx_http_kvroute_conf_param_path,
      ngx_http_kvroute_conf_probe_field(path),
      0, 256, "a path that begins with \"/\"" },

    { ngx_string("interval="), ngx_http_kvroute_conf_probe_time(interval) },

    { ngx_string("timeout="), ngx_http_kvroute_conf_probe_time(timeout) },

    { ngx_string("fails="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_probe_field(fails),
      1, 1000, "between 1 and 1000" },

    ngx_http_kvroute_conf_param_null
};


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_conf_probe_engine_list[] =
{
    { ngx_string("ssl"), ngx_http_kvroute_conf_param_flag,
      ngx_http_kvroute_conf_probe_engine_field(secure),
      0, 0, "without a value" },

    { ngx_string("name="), ngx_http_kvroute_conf_param_word,
      ngx_http_kvroute_conf_probe_engine_field(name),
      0, 255, "the name of a host" },

    { ngx_string("trusted="), ngx_http_kvroute_conf_param_word,
      ngx_http_kvroute_conf_probe_engine_field(trusted),
      0, 4096, "a file of certificates" },

    { ngx_string("header="), ngx_http_kvroute_conf_probe_header,
      ngx_http_kvroute_conf_probe_engine_field(header),
      0, 0, "a line, as in \"Authorization: Bearer KEY\", or @FILE with such "
      "lines" },

    ngx_http_kvroute_conf_param_null
};


char *
ngx_http_kvroute_conf_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    if (kscf->probe) {
        return "is duplicate";
    }

    kscf->probe = ngx_http_kvroute_conf_probe_read(cf,
                                   ngx_http_kvroute_conf_probe_list, 1000, 500);

    return kscf->probe ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_kvroute_conf_probe_health(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    if (kscf->health) {
        return "is duplicate";
    }

    kscf->health = ngx_http_kvroute_conf_probe_read(cf,
                           ngx_http_kvroute_conf_probe_health_list, 5000, 2000);

    if (kscf->health == NULL) {
        return NGX_CONF_ERROR;
    }

    if (kscf->health->path.len == 0) {
        ngx_str_set(&kscf->health->path, "/health");
    }

    return NGX_CONF_OK;
}


static ngx_http_kvroute_probe_conf_t *
ngx_http_kvroute_conf_probe_read(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *params, ngx_msec_t interval,
    ngx_msec_t timeout)
{
    ngx_http_kvroute_probe_conf_t  *probe;

    probe = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_probe_conf_t));
    if (probe == NULL) {
        return NULL;
    }

    probe->interval = interval;
    probe->timeout = timeout;
    probe->fails = 3;

    if (ngx_http_kvroute_conf_param_all(cf, params, 1, probe) != NGX_OK) {
        return NULL;
    }

    /* no warning about a default */

    if (probe->timeout > probe->interval && probe->timeout != timeout) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"timeout=\" is longer than \"interval=\": a "
                           "server that does not answer is probed every %Mms",
                           probe->timeout);
    }

    return probe;
}


char *
ngx_http_kvroute_conf_probe_engine(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    uint32_t                         dialect;
    ngx_str_t                       *value;
    ngx_uint_t                       first;
    ngx_http_kvroute_engine_conf_t  *engine;

    if (kscf->engine_set) {
        return "is duplicate";
    }

    kscf->engine_set = 1;

    engine = &kscf->engine;
    value = cf->args->elts;
    first = 1;

    dialect = kvr_dialect_by_name(value[1].data, value[1].len);

    if (dialect != KVR_DIALECT_NONE) {
        engine->engine = dialect;
        first = 2;

    } else if (ngx_http_kvroute_conf_param_find(
                                        ngx_http_kvroute_conf_probe_engine_list,
                                        &value[1])
               == NULL)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown engine \"%V\": known are vllm, sglang, "
                           "trtllm, llamacpp, tgi and auto", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kvroute_conf_param_all(cf,
                                        ngx_http_kvroute_conf_probe_engine_list,
                                        first, engine)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (!engine->secure) {

        if (engine->trusted.len) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"trusted=\" needs \"ssl\"");
            return NGX_CONF_ERROR;
        }

        return NGX_CONF_OK;
    }

    if (engine->trusted.len && engine->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"trusted=\" needs \"name=\", the host name in the "
                           "certificates of the engines");
        return NGX_CONF_ERROR;
    }

    return ngx_http_kvroute_conf_probe_ssl(cf, &engine->trusted, &engine->ssl)
           == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_kvroute_conf_probe_url(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_kvroute_probe_conf_t  *probe = field;

    u_char     *slash;
    ngx_int_t   port;
    ngx_str_t   path;
    ngx_url_t   u;

    slash = ngx_strlchr(value->data, value->data + value->len, '/');

    if (slash) {
        path.data = slash;
        path.len = value->data + value->len - slash;

        if (ngx_http_kvroute_conf_param_path(cf, param, &path, &probe->path)
            != NGX_OK)
        {
            return NGX_DECLINED;
        }

        value->len -= path.len;

        if (value->len == 0) {
            return NGX_OK;
        }
    }

    if (value->len && value->data[0] == ':') {
        port = ngx_atoi(value->data + 1, value->len - 1);

        if (port < 1 || port > 65535) {
            return NGX_DECLINED;
        }

        probe->port = (in_port_t) port;

        return NGX_OK;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *value;
    u.default_port = 80;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0
        || u.addrs[0].socklen > (socklen_t) sizeof(ngx_sockaddr_t))
    {
        return NGX_DECLINED;
    }

    probe->addr = &u.addrs[0];

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_conf_probe_header(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_int_t  rc;
    ngx_str_t  text;
    u_char     buf[NGX_HTTP_KVROUTE_PROBE_HEADER];

    if (value->len < 2) {
        return NGX_DECLINED;
    }

    if (value->data[0] != '@') {
        return ngx_http_kvroute_conf_probe_lines(cf, value, field);
    }

    value->data++;
    value->len--;

    text.data = buf;

    rc = ngx_http_kvroute_conf_key_read(cf, "header", value, &text,
                                        sizeof(buf));
    if (rc == NGX_OK) {
        rc = ngx_http_kvroute_conf_probe_lines(cf, &text, field);
    }

    ngx_explicit_memzero(buf, sizeof(buf));

    return rc;
}


/* Reads lines of "Name: value". */
static ngx_int_t
ngx_http_kvroute_conf_probe_lines(ngx_conf_t *cf, ngx_str_t *text,
    ngx_str_t *header)
{
    u_char  *p, *last, *dst, *name;

    header->data = ngx_pnalloc(cf->pool, 2 * text->len + 2);
    if (header->data == NULL) {
        return NGX_ERROR;
    }

    dst = header->data;
    p = text->data;
    last = p + text->len;

    while (p < last) {

        name = p;

        while (p < last && (isalnum(*p) || *p == '-' || *p == '_')) {
            p++;
        }

        if (p == name || p == last || *p != ':') {
            return NGX_DECLINED;
        }

        while (p < last && *p != LF && *p != CR) {

            if (*p < ' ' || *p == 0x7f) {
                return NGX_DECLINED;
            }

            p++;
        }

        dst = ngx_cpymem(dst, name, p - name);
        *dst++ = CR;
        *dst++ = LF;

        while (p < last && (*p == LF || *p == CR)) {
            p++;
        }
    }

    header->len = dst - header->data;

    return header->len <= NGX_HTTP_KVROUTE_PROBE_HEADER ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_kvroute_conf_probe_ssl(ngx_conf_t *cf, ngx_str_t *trusted, void **ctx)
{
#if (NGX_HTTP_SSL)

    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;

    ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    if (ssl == NULL) {
        return NGX_ERROR;
    }

    ssl->log = cf->log;

    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL) != NGX_OK) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        ngx_ssl_cleanup_ctx(ssl);
        return NGX_ERROR;
    }

    cln->handler = ngx_ssl_cleanup_ctx;
    cln->data = ssl;

    if (trusted->len
        && ngx_ssl_trusted_certificate(cf, ssl, trusted,
                                       NGX_HTTP_KVROUTE_CONF_PROBE_DEPTH)
           != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"trusted=\" must be a file of certificates: "
                           "\"%V\" has none", trusted);
        return NGX_ERROR;
    }

    *ctx = ssl;

    return NGX_OK;

#else

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "TLS needs an nginx with its ssl module");

    return NGX_ERROR;

#endif
}
