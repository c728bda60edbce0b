
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvroute_prefill UPSTREAM | off [connector=] [min=] [transfer=] [timeout=]
 *                 [fallback=];
 */


#include "legs/ngx_http_kvroute_legs.h"
#include "conf/ngx_http_kvroute_conf_param.h"
#include "core/legs/kvr_connector.h"


static ngx_int_t ngx_http_kvroute_legs_conf_unused(ngx_conf_t *cf,
    ngx_http_kvroute_prefill_t *prefill);
static ngx_http_upstream_srv_conf_t *ngx_http_kvroute_legs_conf_upstream(
    ngx_conf_t *cf, ngx_str_t *name);
static ngx_int_t ngx_http_kvroute_legs_conf_hosts(ngx_conf_t *cf,
    ngx_http_kvroute_prefill_t *prefill);
static ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_legs_conf_routed(
    ngx_http_upstream_srv_conf_t *uscf);
static ngx_int_t ngx_http_kvroute_legs_conf_name(ngx_conf_t *cf,
    ngx_array_t **names, ngx_str_t *name);
static ngx_int_t ngx_http_kvroute_legs_conf_connector(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *conf);
static ngx_int_t ngx_http_kvroute_legs_conf_min(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *conf);
static ngx_int_t ngx_http_kvroute_legs_conf_transfer(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *conf);


/* approximate bytes of prompt per token */
#define NGX_HTTP_KVROUTE_CONF_TOKEN  4


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_legs_conf_list[] =
{
    { ngx_string("connector="), ngx_http_kvroute_legs_conf_connector,
      0, sizeof(uint32_t), 0, 0, "nixl store header sglang mooncake pull" },

    { ngx_string("min="), ngx_http_kvroute_legs_conf_min,
      0, sizeof(uint64_t), 0, 0, "a size such as 8k, or 8k! to use prefill "
      "servers whatever the cost" },

    { ngx_string("transfer="), ngx_http_kvroute_legs_conf_transfer,
      0, sizeof(ngx_http_kvroute_prefill_t),
      0, 100, "between 0 and 100, as 0.2: the time to transfer a token / the "
      "time to compute it; or bytes a second of a link / bytes of keys and "
      "values a token, as 20g/128k" },

    { ngx_string("timeout="), ngx_http_kvroute_conf_param_msec,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_prefill_t, timeout),
      1, 86400000, "between 1ms and 24h" },

    { ngx_string("fallback="), ngx_http_kvroute_conf_param_choice,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_prefill_t, strict),
      0, 0, "local none" },

    ngx_http_kvroute_conf_param_null
};


/* parameters, and the connectors without them */

#define ngx_http_kvroute_legs_conf_bit(name)  (1U << KVR_CONNECTOR_##name)

static const struct {
    ngx_str_t  name;
    uint32_t   connectors;
} ngx_http_kvroute_legs_conf_needs[] = {
    { ngx_string("min="), ngx_http_kvroute_legs_conf_bit(SGLANG) },
    { ngx_string("transfer="), ngx_http_kvroute_legs_conf_bit(SGLANG) },
    { ngx_string("timeout="), ngx_http_kvroute_legs_conf_bit(PULL) },
    { ngx_string("fallback="), ngx_http_kvroute_legs_conf_bit(SGLANG)
                               |ngx_http_kvroute_legs_conf_bit(PULL) }
};


char *
ngx_http_kvroute_legs_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_legs_loc_conf_t *llcf = conf;

    char                               *rc;
    ngx_str_t                          *value;
    ngx_http_kvroute_prefill_t         *prefill;
    ngx_http_kvroute_main_conf_t       *kmcf;
    ngx_http_kvroute_legs_main_conf_t  *lmcf;

    if (llcf->prefill != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_kvroute_conf_param_off(cf, &rc)) {
        llcf->prefill = NULL;
        return rc;
    }

    prefill = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_prefill_t));
    if (prefill == NULL) {
        return NGX_CONF_ERROR;
    }

    prefill->names = kvr_connector_private();
    prefill->min = 8 * 1024;
    prefill->transfer = 0.2;
    prefill->timeout = 120000;

    if (ngx_http_kvroute_conf_param_all(cf, ngx_http_kvroute_legs_conf_list,
                                        2, prefill)
        != NGX_OK
        || ngx_http_kvroute_legs_conf_unused(cf, prefill) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (prefill->bootstrap_port == 0) {
        prefill->bootstrap_port = prefill->connector == KVR_CONNECTOR_PULL
                                  ? 5710 : 8998;
    }

    prefill->upstream = ngx_http_kvroute_legs_conf_upstream(cf, &value[1]);
    if (prefill->upstream == NULL) {
        return NGX_CONF_ERROR;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    kmcf->early = 1;

    lmcf = ngx_http_conf_get_module_main_conf(cf,
                                              ngx_http_kvroute_prefill_module);
    lmcf->used = 1;

    llcf->prefill = prefill;

    return NGX_CONF_OK;
}


/* Refuses parameters without an effect: often the connector is wrong. */
static ngx_int_t
ngx_http_kvroute_legs_conf_unused(ngx_conf_t *cf,
    ngx_http_kvroute_prefill_t *prefill)
{
    ngx_str_t        *value;
    ngx_uint_t        i, k;
    const ngx_str_t  *name;

    value = cf->args->elts;

    if (prefill->always && kvr_connector(prefill->connector)->pull) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"!\" in \"min=\" of \"kvroute_prefill\" has no "
                           "effect with \"connector=pull\": remove it");
        return NGX_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {

        for (k = 0; k < sizeof(ngx_http_kvroute_legs_conf_needs)
                        / sizeof(ngx_http_kvroute_legs_conf_needs[0]); k++)
        {
            name = &ngx_http_kvroute_legs_conf_needs[k].name;

            if (ngx_http_kvroute_legs_conf_needs[k].connectors
                & 1U << prefill->connector
                && ngx_strncmp(value[i].data, name->data, name->len) == 0)
            {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "\"%V\" of \"kvroute_prefill\" has no "
                                   "effect with \"connector=%s\": remove it",
                                   &value[i],
                                   kvr_connector(prefill->connector)->name);
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


/* Reads sglang, or sglang:8998. */
static ngx_int_t
ngx_http_kvroute_legs_conf_connector(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *conf)
{
    ngx_http_kvroute_prefill_t *prefill = conf;

    u_char     *colon;
    ngx_int_t   port, rc;
    ngx_str_t   name;

    name = *value;
    colon = ngx_strlchr(name.data, name.data + name.len, ':');

    if (colon) {
        name.len = (size_t) (colon - name.data);
    }

    rc = ngx_http_kvroute_conf_param_choice(cf, param, &name,
                                            &prefill->connector);

    if (rc != NGX_OK || colon == NULL) {
        return rc;
    }

    port = ngx_atoi(colon + 1, value->len - name.len - 1);

    if (port < 1 || port > 65535
        || !((ngx_http_kvroute_legs_conf_bit(SGLANG)
              |ngx_http_kvroute_legs_conf_bit(MOONCAKE)
              |ngx_http_kvroute_legs_conf_bit(PULL))
             & 1U << prefill->connector))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"connector=%V\" of \"kvroute_prefill\" must be "
                           "sglang, mooncake or pull if it has a port, and the "
                           "port between 1 and 65535", value);
        return NGX_ERROR;
    }

    prefill->bootstrap_port = (uint32_t) port;

    return NGX_OK;
}


/* Reads 8k, or 8k! */
static ngx_int_t
ngx_http_kvroute_legs_conf_min(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *conf)
{
    ngx_http_kvroute_prefill_t *prefill = conf;

    ngx_str_t  size;

    size = *value;

    prefill->always = (size.len && size.data[size.len - 1] == '!');
    size.len -= prefill->always;

    return ngx_http_kvroute_conf_param_size(cf, param, &size, &prefill->min);
}


/* Reads 0.2, or 20g/128k. */
static ngx_int_t
ngx_http_kvroute_legs_conf_transfer(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *conf)
{
    ngx_http_kvroute_prefill_t *prefill = conf;

    off_t       speed, token;
    u_char     *slash;
    ngx_str_t   s;

    slash = ngx_strlchr(value->data, value->data + value->len, '/');

    if (slash == NULL) {
        return ngx_http_kvroute_conf_param_decimal(cf, param, value,
                                                   &prefill->transfer);
    }

    s.data = value->data;
    s.len = (size_t) (slash - s.data);
    speed = ngx_parse_offset(&s);

    s.data = slash + 1;
    s.len = (size_t) (value->data + value->len - s.data);
    token = ngx_parse_offset(&s);

    if (speed == NGX_ERROR || token == NGX_ERROR) {
        return NGX_DECLINED;
    }

    if (speed == 0 || token == 0) {
        return NGX_ABORT;
    }

    prefill->link = (double) speed / (double) token
                    * NGX_HTTP_KVROUTE_CONF_TOKEN / 1000;

    return NGX_OK;
}


/* Returns the upstream, which may be declared later in the file. */
static ngx_http_upstream_srv_conf_t *
ngx_http_kvroute_legs_conf_upstream(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_url_t  u;

    if (ngx_strlchr(name->data, name->data + name->len, '$')
        || ngx_strlchr(name->data, name->data + name->len, '=')
        || ngx_strlchr(name->data, name->data + name->len, '/'))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid upstream \"%V\" in \"kvroute_prefill\": "
                           "the first argument must be the name of an upstream "
                           "{} of prefill servers, or off", name);
        return NULL;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *name;
    u.host = *name;
    u.no_resolve = 1;
    u.no_port = 1;

    return ngx_http_upstream_add(cf, &u, 0);
}


/* Called when zones and policies of upstreams are known. */
ngx_int_t
ngx_http_kvroute_legs_conf_check(ngx_conf_t *cf,
    ngx_http_kvroute_prefill_t *prefill, ngx_http_upstream_srv_conf_t *decode,
    ngx_uint_t own)
{
    ngx_str_t                     *name;
    ngx_uint_t                     level;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_kvroute_srv_conf_t   *from, *to;
    ngx_http_upstream_srv_conf_t  *uscf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    uscf = prefill->upstream;
    from = ngx_http_kvroute_legs_conf_routed(uscf);

    if (from == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "upstream \"%V\" of \"kvroute_prefill\" has no "
                      "\"kvroute\": declare it above, with \"kvroute "
                      "kv_cache zone=...;\" in it", &uscf->host);
        return NGX_ERROR;
    }

    if ((kvr_connector(prefill->connector)->meet
         || kvr_connector(prefill->connector)->pull)
        && ngx_http_kvroute_legs_conf_hosts(cf, prefill) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (decode == NULL) {

        if (own && clcf->handler) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"kvroute_prefill\" in location \"%V\" has no "
                          "effect: \"proxy_pass\" must name the upstream of "
                          "the decode servers literally, not by a variable",
                          &clcf->name);
        }

        return NGX_OK;
    }

    if (kvr_connector(prefill->connector)->pull) {

        if (decode == uscf) {
            return ngx_http_kvroute_legs_conf_name(cf, &from->prefill,
                                                   &uscf->host);
        }

        if (!own) {
            return NGX_OK;
        }

        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"kvroute_prefill %V\" with \"connector=pull\" in "
                      "location \"%V\" must name the upstream of "
                      "\"proxy_pass\", \"%V\": its servers fetch from each "
                      "other", &uscf->host, &clcf->name, &decode->host);
        return NGX_ERROR;
    }

    if (decode == uscf) {
        level = own ? NGX_LOG_EMERG : NGX_LOG_WARN;

        ngx_log_error(level, cf->log, 0,
                      "\"kvroute_prefill %V\" in location \"%V\" names the "
                      "upstream of \"proxy_pass\": write the name of the "
                      "upstream of the prefill servers, or off",
                      &uscf->host, &clcf->name);

        return own ? NGX_ERROR : NGX_OK;
    }

    to = ngx_http_kvroute_legs_conf_routed(decode);

    if (to == NULL) {

        /* an inherited directive is not meant for this location */

        if (!own) {
            return NGX_OK;
        }

        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"kvroute_prefill\" in location \"%V\" needs "
                      "\"kvroute\" in upstream \"%V\" as well: it has the "
                      "decode servers", &clcf->name, &decode->host);
        return NGX_ERROR;
    }

    if (to->shm_zone != from->shm_zone) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "upstreams \"%V\" and \"%V\" of \"kvroute_prefill\" "
                      "in location \"%V\" must have the same \"zone=\" in "
                      "their \"kvroute\"%s",
                      &uscf->host, &decode->host, &clcf->name,
                      own ? "" : ", or write \"kvroute_prefill off;\" where it "
                                 "is inherited");
        return NGX_ERROR;
    }

    name = ngx_http_kvroute_conf_check_both(uscf, decode);

    if (name) {
        ngx_http_kvroute_conf_check_warn(cf, uscf, "kvroute_prefill",
            "and \"%V\" both have server \"%V\": a server that does both "
            "needs no prefill elsewhere", &decode->host, name);
    }

    if (ngx_http_kvroute_legs_conf_name(cf, &to->prefill, &uscf->host)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_legs_conf_name(cf, &from->decode,
                                              &decode->host);
}


/* Returns NULL if kvroute does not choose the servers of an upstream. */
static ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_legs_conf_routed(ngx_http_upstream_srv_conf_t *uscf)
{
    ngx_http_kvroute_srv_conf_t  *kscf;

    kscf = ngx_http_kvroute_pass_routed(uscf);

    return kscf && kscf->shm_zone && !kscf->shadow ? kscf : NULL;
}


/* Adds a name, unless it is there. */
static ngx_int_t
ngx_http_kvroute_legs_conf_name(ngx_conf_t *cf, ngx_array_t **names,
    ngx_str_t *name)
{
    ngx_str_t   **elt;
    ngx_uint_t    i;

    if (*names == NULL) {
        *names = ngx_array_create(cf->pool, 1, sizeof(ngx_str_t *));
        if (*names == NULL) {
            return NGX_ERROR;
        }
    }

    elt = (*names)->elts;

    for (i = 0; i < (*names)->nelts; i++) {
        if (elt[i] == name) {
            return NGX_OK;
        }
    }

    elt = ngx_array_push(*names);
    if (elt == NULL) {
        return NGX_ERROR;
    }

    *elt = name;

    return NGX_OK;
}


/* Checks that decode servers can connect to prefill servers by their names. */
static ngx_int_t
ngx_http_kvroute_legs_conf_hosts(ngx_conf_t *cf,
    ngx_http_kvroute_prefill_t *prefill)
{
    ngx_uint_t                     i;
    ngx_http_upstream_server_t    *server;
    ngx_http_upstream_srv_conf_t  *uscf;

    uscf = prefill->upstream;

    if (uscf->servers == NULL) {
        return NGX_OK;
    }

    server = uscf->servers->elts;

    for (i = 0; i < uscf->servers->nelts; i++) {

        if (server[i].naddrs
            && server[i].addrs[0].sockaddr->sa_family == AF_UNIX)
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "server \"%V\" in upstream \"%V\" in %s:%ui must "
                          "have a host and a port: with \"connector=%s\" of "
                          "\"kvroute_prefill\" other servers connect to it",
                          &server[i].name, &uscf->host, uscf->file_name,
                          uscf->line,
                          kvr_connector(prefill->connector)->name);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
