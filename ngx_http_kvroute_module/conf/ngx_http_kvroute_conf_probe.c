
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The directives kvroute_probe and kvroute_health.
 */


#include "conf/ngx_http_kvroute_conf_param.h"


/* certificates between the engine's and a trusted one */
#define NGX_HTTP_KVROUTE_CONF_PROBE_DEPTH  4


static ngx_http_kvroute_probe_conf_t *ngx_http_kvroute_conf_probe_read(
    ngx_conf_t *cf, const ngx_http_kvroute_conf_param_t *params,
    ngx_msec_t interval, ngx_msec_t timeout);
static ngx_int_t ngx_http_kvroute_conf_probe_engine(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_addr(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_header(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_header_file(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_status(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_ssl(ngx_conf_t *cf,
    ngx_http_kvroute_probe_conf_t *probe);


#define ngx_http_kvroute_conf_probe_field(name)                               \
    ngx_http_kvroute_conf_field(ngx_http_kvroute_probe_conf_t, name)

#define NGX_HTTP_KVROUTE_CONF_PROBE_BOTH                                      \
    { ngx_string("interval="), ngx_http_kvroute_conf_param_msec,              \
      ngx_http_kvroute_conf_probe_field(interval),                            \
      10, 3600 * 1000, "between 10ms and 1h" },                               \
                                                                              \
    { ngx_string("timeout="), ngx_http_kvroute_conf_param_msec,               \
      ngx_http_kvroute_conf_probe_field(timeout),                             \
      10, 3600 * 1000, "between 10ms and 1h" },                               \
                                                                              \
    { ngx_string("port="), ngx_http_kvroute_conf_param_number,                \
      ngx_http_kvroute_conf_probe_field(port),                                \
      1, 65535, "between 1 and 65535" },                                      \
                                                                              \
    { ngx_string("ssl"), ngx_http_kvroute_conf_param_flag,                    \
      ngx_http_kvroute_conf_probe_field(secure),                              \
      0, 0, "without a value" },                                              \
                                                                              \
    { ngx_string("name="), ngx_http_kvroute_conf_param_word,                  \
      ngx_http_kvroute_conf_probe_field(name),                                \
      0, 255, "the name of a host" },                                         \
                                                                              \
    { ngx_string("verify="), ngx_http_kvroute_conf_param_choice,              \
      ngx_http_kvroute_conf_probe_field(verify), 0, 1, "off on" },            \
                                                                              \
    { ngx_string("trusted="), ngx_http_kvroute_conf_param_word,               \
      ngx_http_kvroute_conf_probe_field(trusted),                             \
      0, 4096, "a file of certificates" },                                    \
                                                                              \
    { ngx_string("header="), ngx_http_kvroute_conf_probe_header,              \
      ngx_http_kvroute_conf_probe_field(header),                              \
      0, 0, "as in \"Authorization: Bearer KEY\"" },                          \
                                                                              \
    { ngx_string("header_file="), ngx_http_kvroute_conf_probe_header_file,    \
      ngx_http_kvroute_conf_probe_field(header),                              \
      0, 0, "a file with lines as \"Authorization: Bearer KEY\"" }

#define NGX_HTTP_KVROUTE_CONF_PROBE_PATH                                      \
    ngx_http_kvroute_conf_param_path,                                         \
    ngx_http_kvroute_conf_probe_field(path),                                  \
    0, 256, "a path that begins with \"/\""


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_conf_probe_list[] =
{
    NGX_HTTP_KVROUTE_CONF_PROBE_BOTH,

    { ngx_string("path="), NGX_HTTP_KVROUTE_CONF_PROBE_PATH },

    { ngx_string("engine="), ngx_http_kvroute_conf_probe_engine,
      ngx_http_kvroute_conf_probe_field(engine), 0, 0,
      "vllm, sglang, trtllm, llamacpp, tgi or auto" },

    { ngx_string("addr="), ngx_http_kvroute_conf_probe_addr,
      ngx_http_kvroute_conf_probe_field(addr), 0, 0,
      "an address, with a port or without" },

    { ngx_string("mandatory"), ngx_http_kvroute_conf_param_flag,
      ngx_http_kvroute_conf_probe_field(mandatory), 0, 0, "without a value" },

    ngx_http_kvroute_conf_param_null
};


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_conf_probe_health_list[] =
{
    NGX_HTTP_KVROUTE_CONF_PROBE_BOTH,

    { ngx_string("uri="), NGX_HTTP_KVROUTE_CONF_PROBE_PATH },

    { ngx_string("fails="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_probe_field(fails),
      1, 1000, "between 1 and 1000" },

    { ngx_string("status="), ngx_http_kvroute_conf_probe_status,
      0, 0, 0, 0, "a status or a range of them, as 200-299" },

    { ngx_string("passes="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_probe_field(passes),
      1, 1000, "between 1 and 1000" },

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
    probe->passes = 2;
    probe->first = 200;
    probe->last = 299;

    if (ngx_http_kvroute_conf_param_all(cf, params, 1, probe) != NGX_OK
        || ngx_http_kvroute_conf_probe_ssl(cf, probe) != NGX_OK)
    {
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


static ngx_int_t
ngx_http_kvroute_conf_probe_engine(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    uint32_t  *engine = field;

    *engine = kvr_dialect_by_name(value->data, value->len);

    return *engine == KVR_DIALECT_NONE ? NGX_DECLINED : NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_conf_probe_addr(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_addr_t  **addr = field;

    ngx_url_t  u;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *value;
    u.default_port = 80;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0
        || u.addrs[0].socklen > (socklen_t) sizeof(ngx_sockaddr_t))
    {
        return NGX_DECLINED;
    }

    *addr = &u.addrs[0];

    return NGX_OK;
}


/* Reads lines of "Name: value". */
static ngx_int_t
ngx_http_kvroute_conf_probe_header(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_str_t  *header = field;

    u_char  *p, *last, *dst, *name;

    /* "header=" and "header_file=" set the same field */

    if (header->len || value->len == 0) {
        return NGX_DECLINED;
    }

    header->data = ngx_pnalloc(cf->pool, 2 * value->len + 2);
    if (header->data == NULL) {
        return NGX_ERROR;
    }

    dst = header->data;
    p = value->data;
    last = p + value->len;

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


static ngx_int_t
ngx_http_kvroute_conf_probe_header_file(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_int_t  rc;
    ngx_str_t  text;
    u_char     buf[NGX_HTTP_KVROUTE_PROBE_HEADER];

    if (value->len == 0) {
        return NGX_DECLINED;
    }

    text.data = buf;

    rc = ngx_http_kvroute_conf_key_read(cf, "header_file", value, &text,
                                        sizeof(buf));
    if (rc == NGX_OK) {
        rc = ngx_http_kvroute_conf_probe_header(cf, param, &text, field);
    }

    ngx_explicit_memzero(buf, sizeof(buf));

    return rc;
}


static ngx_int_t
ngx_http_kvroute_conf_probe_status(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_kvroute_probe_conf_t  *probe = field;

    ngx_int_t  first, last;

    first = ngx_atoi(value->data, ngx_min(value->len, 3));
    last = first;

    if (value->len == 7 && value->data[3] == '-') {
        last = ngx_atoi(value->data + 4, 3);

    } else if (value->len != 3) {
        return NGX_DECLINED;
    }

    if (first < 200 || last > 599 || first > last) {
        return NGX_DECLINED;
    }

    probe->first = (uint32_t) first;
    probe->last = (uint32_t) last;

    return NGX_OK;
}


/* Applies the TLS parameters once all are known. */
static ngx_int_t
ngx_http_kvroute_conf_probe_ssl(ngx_conf_t *cf,
    ngx_http_kvroute_probe_conf_t *probe)
{
    if (!probe->secure) {

        if (probe->verify || probe->trusted.len) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"verify=\" and \"trusted=\" need \"ssl\"");
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    if (probe->verify && (probe->trusted.len == 0 || probe->name.len == 0)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"verify=on\" needs \"trusted=\", a file of "
                           "certificates, and \"name=\", the host name in the "
                           "certificates of the engines");
        return NGX_ERROR;
    }

    return ngx_http_kvroute_conf_probe_tls(cf, &probe->trusted, &probe->ssl);
}


ngx_int_t
ngx_http_kvroute_conf_probe_tls(ngx_conf_t *cf, ngx_str_t *trusted, void **ctx)
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
