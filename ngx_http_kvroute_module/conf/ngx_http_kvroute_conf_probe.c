
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The directives kvroute_probe and kvroute_health.
 */


#include "conf/ngx_http_kvroute_conf_param.h"


static ngx_http_kvroute_probe_conf_t *ngx_http_kvroute_conf_probe_read(
    ngx_conf_t *cf, const ngx_http_kvroute_conf_param_t *params,
    ngx_msec_t interval, ngx_msec_t timeout);
static ngx_int_t ngx_http_kvroute_conf_probe_engine(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_addr(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_probe_mandatory(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);


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
    { ngx_string("path="), NGX_HTTP_KVROUTE_CONF_PROBE_PATH },                \
                                                                              \
    { ngx_string("uri="), NGX_HTTP_KVROUTE_CONF_PROBE_PATH }

/* one thing by two names: either is the other's in some other software */
#define NGX_HTTP_KVROUTE_CONF_PROBE_PATH                                      \
    ngx_http_kvroute_conf_param_path,                                         \
    ngx_http_kvroute_conf_probe_field(path),                                  \
    0, 256, "a path that begins with \"/\""


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_conf_probe_list[] =
{
    NGX_HTTP_KVROUTE_CONF_PROBE_BOTH,

    { ngx_string("engine="), ngx_http_kvroute_conf_probe_engine,
      ngx_http_kvroute_conf_probe_field(engine), 0, 0,
      "vllm, sglang, trtllm, llamacpp, tgi or auto" },

    { ngx_string("addr="), ngx_http_kvroute_conf_probe_addr,
      ngx_http_kvroute_conf_probe_field(addr), 0, 0,
      "an address, with a port or without" },

    { ngx_string("mandatory"), ngx_http_kvroute_conf_probe_mandatory,
      0, 0, 0, 0, "without a value" },

    ngx_http_kvroute_conf_param_null
};


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_conf_probe_health_list[] =
{
    NGX_HTTP_KVROUTE_CONF_PROBE_BOTH,

    { ngx_string("fails="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_probe_field(fails),
      1, 1000, "between 1 and 1000" },

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

    if (ngx_http_kvroute_conf_param_all(cf, params, 1, probe) != NGX_OK) {
        return NULL;
    }

    /* the default is nobody's mistake */

    if (probe->timeout > probe->interval && probe->timeout != timeout) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"timeout=\" is longer than \"interval=\": a "
                           "server that does not answer is asked less often, "
                           "each %Mms", probe->timeout);
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


static ngx_int_t
ngx_http_kvroute_conf_probe_mandatory(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_kvroute_probe_conf_t  *probe = field;

    probe->mandatory = 1;

    return NGX_OK;
}
