
/*
 * Copyright (C) kvroute contributors
 */


#include "share/ngx_http_kvroute_share_int.h"


static ngx_int_t ngx_http_kvroute_share_preconfiguration(ngx_conf_t *cf);
static void *ngx_http_kvroute_share_create_conf(ngx_conf_t *cf);


static ngx_command_t  ngx_http_kvroute_share_commands[] = {

    { ngx_string("kvroute_share"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_share_conf,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kvroute_share_module_ctx = {
    ngx_http_kvroute_share_preconfiguration,  /* preconfiguration */
    ngx_http_kvroute_share_conf_init,      /* postconfiguration */

    ngx_http_kvroute_share_create_conf,    /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_kvroute_share_module = {
    NGX_MODULE_V1,
    &ngx_http_kvroute_share_module_ctx,    /* module context */
    ngx_http_kvroute_share_commands,       /* module directives */
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


static const ngx_http_kvroute_extension_t  ngx_http_kvroute_share_extension = {
    .build = NGX_HTTP_KVROUTE_BUILD,
    .name = "ngx_http_kvroute_share_module",
    .hooks = &kvr_share_hooks,
    .init_process = ngx_http_kvroute_share_init_process,
    .exit_process = ngx_http_kvroute_share_exit_process,
    .json = ngx_http_kvroute_share_status_json,
    .prom = ngx_http_kvroute_share_status_prom
};


static ngx_int_t
ngx_http_kvroute_share_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_kvroute_extension_add(cf,
                                          &ngx_http_kvroute_share_extension);
}


static void *
ngx_http_kvroute_share_create_conf(ngx_conf_t *cf)
{
    return ngx_array_create(cf->pool, 2,
                            sizeof(ngx_http_kvroute_share_conf_t *));
}
