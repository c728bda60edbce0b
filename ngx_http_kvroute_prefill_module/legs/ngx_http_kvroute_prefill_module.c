
/*
 * Copyright (C) kvroute contributors
 */


#include "legs/ngx_http_kvroute_legs.h"


static ngx_int_t ngx_http_kvroute_legs_preconfiguration(ngx_conf_t *cf);
static void *ngx_http_kvroute_legs_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_kvroute_legs_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_kvroute_legs_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);


static ngx_command_t  ngx_http_kvroute_legs_commands[] = {

    { ngx_string("kvroute_prefill"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_legs_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kvroute_prefill_module_ctx = {
    ngx_http_kvroute_legs_preconfiguration,  /* preconfiguration */
    NULL,                                  /* postconfiguration */

    ngx_http_kvroute_legs_create_main_conf,  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_kvroute_legs_create_loc_conf,  /* create location configuration */
    ngx_http_kvroute_legs_merge_loc_conf   /* merge location configuration */
};


ngx_module_t  ngx_http_kvroute_prefill_module = {
    NGX_MODULE_V1,
    &ngx_http_kvroute_prefill_module_ctx,  /* module context */
    ngx_http_kvroute_legs_commands,        /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static const ngx_http_kvroute_extension_t  ngx_http_kvroute_legs_extension = {
    .build = NGX_HTTP_KVROUTE_BUILD,
    .name = "ngx_http_kvroute_prefill_module",
    .init = ngx_http_kvroute_legs_init
};


static ngx_int_t
ngx_http_kvroute_legs_preconfiguration(ngx_conf_t *cf)
{
    if (ngx_http_kvroute_extension_add(cf, &ngx_http_kvroute_legs_extension)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_legs_variables(cf);
}


static void *
ngx_http_kvroute_legs_create_main_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_legs_main_conf_t));
}


static void *
ngx_http_kvroute_legs_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_kvroute_legs_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_legs_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->leg = NULL;
     */

    conf->prefill = NGX_CONF_UNSET_PTR;

    return conf;
}


/* called after the router and the modules that pass requests on have merged */
static char *
ngx_http_kvroute_legs_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_kvroute_legs_loc_conf_t *prev = parent;
    ngx_http_kvroute_legs_loc_conf_t *conf = child;

    ngx_uint_t                    own;
    ngx_http_conf_ctx_t          *ctx;
    ngx_http_kvroute_loc_conf_t  *klcf;

    own = (conf->prefill != NGX_CONF_UNSET_PTR);
    ngx_conf_merge_ptr_value(conf->prefill, prev->prefill, NULL);

    if (conf->prefill == NULL) {
        return NGX_CONF_OK;
    }

    ctx = cf->ctx;

    klcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_kvroute_module);
    klcf->names = conf->prefill->names;

    if (ngx_http_kvroute_legs_conf_check(cf, conf->prefill,
                                 ngx_http_kvroute_pass_upstream(ctx->loc_conf),
                                 own)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_kvroute_legs_merge(cf, conf) == NGX_OK ? NGX_CONF_OK
                                                           : NGX_CONF_ERROR;
}
