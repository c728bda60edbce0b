
/*
 * Copyright (C) kvroute contributors
 */


/*
 *     kvroute_continue on | off | number [usage=];
 *     kvroute_first_token TIME | auto | off [PERCENT];
 */


#include "continue/ngx_http_kvroute_continue.h"
#include "conf/ngx_http_kvroute_conf_param.h"
#include "zone/ngx_http_kvroute_zone.h"


static ngx_int_t ngx_http_kvroute_continue_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kvroute_continue_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kvroute_continue_init(ngx_conf_t *cf);
static void *ngx_http_kvroute_continue_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_kvroute_continue_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_kvroute_continue_merge(ngx_conf_t *cf, void *parent,
    void *child);
static void ngx_http_kvroute_continue_check(ngx_conf_t *cf,
    const char *directive, ngx_msec_t late);
static char *ngx_http_kvroute_continue_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_kvroute_continue_first(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_http_kvroute_continue_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_command_t  ngx_http_kvroute_continue_commands[] = {

    { ngx_string("kvroute_continue"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_continue_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_first_token"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE12,
      ngx_http_kvroute_continue_first,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kvroute_continue_module_ctx = {
    ngx_http_kvroute_continue_preconfiguration,  /* preconfiguration */
    ngx_http_kvroute_continue_postconfiguration,  /* postconfiguration */

    ngx_http_kvroute_continue_create_main_conf,  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_kvroute_continue_create_loc_conf,  /* create location
                                                   configuration */
    ngx_http_kvroute_continue_merge        /* merge location configuration */
};


ngx_module_t  ngx_http_kvroute_continue_module = {
    NGX_MODULE_V1,
    &ngx_http_kvroute_continue_module_ctx,  /* module context */
    ngx_http_kvroute_continue_commands,    /* module directives */
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


/* called by the router */
static const ngx_http_kvroute_extension_t
    ngx_http_kvroute_continue_extension =
{
    .build = NGX_HTTP_KVROUTE_BUILD,
    .name = "ngx_http_kvroute_continue_module",
    .hooks = &kvr_continue_hooks,
    .init = ngx_http_kvroute_continue_init
};


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_continue_conf_list[] =
{
    { ngx_string("usage="), ngx_http_kvroute_conf_param_choice,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_continue_conf_t, usage),
      0, 0, "off on" },

    ngx_http_kvroute_conf_param_null
};


static const ngx_http_kvroute_conf_param_t
    ngx_http_kvroute_continue_first_share =
{
    ngx_null_string, NULL, 0, sizeof(uint32_t), 1, 100, NULL
};


static const ngx_http_kvroute_continue_calls_t
    ngx_http_kvroute_continue_calls =
{
    .finalize = ngx_http_kvroute_continue_race_finalize,
    .moves = ngx_http_kvroute_continue_leave,
    .header = ngx_http_kvroute_continue_race_header,
    .body = ngx_http_kvroute_continue_race_body
};


static ngx_http_variable_t  ngx_http_kvroute_continue_vars[] = {

    { ngx_string("kvroute_continued"), NULL,
      ngx_http_kvroute_continue_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_cut"), NULL,
      ngx_http_kvroute_continue_variable, 1, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_late"), NULL,
      ngx_http_kvroute_continue_variable, 2, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


static ngx_int_t
ngx_http_kvroute_continue_preconfiguration(ngx_conf_t *cf)
{
    if (ngx_http_kvroute_extension_add(cf,
                                       &ngx_http_kvroute_continue_extension)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_variables_add(cf, ngx_http_kvroute_continue_vars);
}


/* called by the router once it knows its zones */
static ngx_int_t
ngx_http_kvroute_continue_init(ngx_conf_t *cf)
{
    size_t                                  size;
    ngx_uint_t                              i;
    ngx_shm_zone_t                         *shm_zone;
    ngx_http_kvroute_zone_t               **zone;
    ngx_http_kvroute_main_conf_t           *kmcf;
    ngx_http_kvroute_continue_main_conf_t  *cmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    cmcf = ngx_http_conf_get_module_main_conf(cf,
                                             ngx_http_kvroute_continue_module);

    if (!cmcf->used) {
        return NGX_OK;
    }

    if (ngx_http_kvroute_request_body_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (cmcf->races
        && ngx_http_kvroute_request_phase(cf,
                                       ngx_http_kvroute_continue_race_handler)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    zone = kmcf->zones.elts;
    size = sizeof(kvr_continue_t);

    for (i = 0; i < kmcf->zones.nelts; i++) {
        shm_zone = ngx_http_kvroute_shared_add(cf, "kvroute_continue.",
                                               kvr_layout(&size, 1),
                                               &zone[i]->name, size);
        if (shm_zone == NULL
            || ngx_http_kvroute_extension_attach(cf, &kvr_continue_hooks,
                                                 zone[i], shm_zone, NULL)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* without the directive there is no filter */
static ngx_int_t
ngx_http_kvroute_continue_postconfiguration(ngx_conf_t *cf)
{
    ngx_http_kvroute_continue_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf,
                                             ngx_http_kvroute_continue_module);

    if (cmcf->used) {
        ngx_http_kvroute_continue_filter_init(
                                             &ngx_http_kvroute_continue_calls);
    }

    /* behind the router's handlers of the phase, so nginx runs it before */

    return cmcf->usage
           ? ngx_http_kvroute_request_phase(cf,
                                       ngx_http_kvroute_continue_usage_handler)
           : NGX_OK;
}


static void *
ngx_http_kvroute_continue_create_main_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool,
                       sizeof(ngx_http_kvroute_continue_main_conf_t));
}


static void *
ngx_http_kvroute_continue_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_kvroute_continue_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_continue_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->on = (uint32_t) NGX_CONF_UNSET_UINT;
    conf->late = NGX_CONF_UNSET_MSEC;

    return conf;
}


static char *
ngx_http_kvroute_continue_merge(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_kvroute_continue_conf_t *prev = parent;
    ngx_http_kvroute_continue_conf_t *conf = child;

    if (conf->on == (uint32_t) NGX_CONF_UNSET_UINT) {
        conf->on = prev->on;
        conf->tries = prev->tries;
        conf->usage = prev->usage;

        if (conf->on == (uint32_t) NGX_CONF_UNSET_UINT) {
            conf->on = 0;
        }

    } else if (conf->on) {
        ngx_http_kvroute_conf_check_used(cf, "kvroute_continue", 0);

        if (conf->tries) {
            ngx_http_kvroute_continue_check(cf, "kvroute_continue", 0);
        }
    }

    if (conf->late == NGX_CONF_UNSET_MSEC) {
        conf->late = prev->late;
        conf->hedge = prev->hedge;

        if (conf->late == NGX_CONF_UNSET_MSEC) {
            conf->late = 0;
        }

    } else if (conf->late) {
        ngx_http_kvroute_conf_check_used(cf, "kvroute_first_token", 0);
        ngx_http_kvroute_continue_check(cf, "kvroute_first_token", conf->late);
    }

    return NGX_CONF_OK;
}


/* A location that inherits the directive may be one without streams. */
static void
ngx_http_kvroute_continue_check(ngx_conf_t *cf, const char *directive,
    ngx_msec_t late)
{
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_upstream_conf_t  *ucf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ucf = ngx_http_kvroute_conf_check_routed(cf);

    if (ucf && ucf->buffering) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s\" in location \"%V\" is for streams, and nginx "
                      "buffers them: write \"proxy_buffering off;\"",
                      directive, &clcf->name);
    }

    if (ucf && late != NGX_HTTP_KVROUTE_CONTINUE_AUTO
        && late >= ucf->read_timeout)
    {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s\" in location \"%V\" does not act before "
                      "\"proxy_read_timeout\" ends the request: write a time "
                      "below %Mms", directive, &clcf->name, ucf->read_timeout);
    }
}


static char *
ngx_http_kvroute_continue_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_continue_conf_t *ccf = conf;

    char                                   *rc;
    ngx_int_t                               tries;
    ngx_str_t                              *value;
    ngx_http_kvroute_continue_main_conf_t  *cmcf;

    if (ccf->on != (uint32_t) NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_kvroute_conf_param_off(cf, &rc)) {
        ccf->on = 0;
        return rc;
    }

    tries = ngx_strcmp(value[1].data, "on") == 0
            ? 3 : ngx_atoi(value[1].data, value[1].len);

    if (tries < 0 || tries > 100) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"kvroute_continue\": "
                           "write on, off, or a number between 0 and 100",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    ccf->on = 1;
    ccf->tries = (uint32_t) tries;

    cmcf = ngx_http_conf_get_module_main_conf(cf,
                                             ngx_http_kvroute_continue_module);
    cmcf->used = 1;

    if (ngx_http_kvroute_conf_param_all(cf,
                                        ngx_http_kvroute_continue_conf_list, 2,
                                        ccf)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    cmcf->usage |= ccf->usage;

    return NGX_CONF_OK;
}


static char *
ngx_http_kvroute_continue_first(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_continue_conf_t *ccf = conf;

    char                                   *rc;
    ngx_str_t                              *value;
    ngx_http_kvroute_continue_main_conf_t  *cmcf;

    if (ccf->late != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_kvroute_conf_param_off(cf, &rc)) {
        ccf->late = 0;
        return rc;
    }

    if (ngx_strcmp(value[1].data, "auto") == 0) {
        ccf->late = NGX_HTTP_KVROUTE_CONTINUE_AUTO;

    } else {
        ccf->late = ngx_parse_time(&value[1], 0);

        if (ccf->late == (ngx_msec_t) NGX_ERROR || ccf->late == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" in "
                               "\"kvroute_first_token\": write a time such as "
                               "2s, or auto, or off", &value[1]);
            return NGX_CONF_ERROR;
        }
    }

    ccf->hedge = 2;

    if (cf->args->nelts > 2
        && ngx_http_kvroute_conf_param_percent(cf,
                                       &ngx_http_kvroute_continue_first_share,
                                       &value[2], &ccf->hedge)
           != NGX_OK)
    {
        if (ngx_http_kvroute_conf_old_param(cf, &value[2])) {
            (void) ngx_http_kvroute_conf_param_unknown(cf, &value[2], NULL,
                                                       NULL);
            return NGX_CONF_ERROR;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"kvroute_first_token\": "
                           "write the share of requests that may be sent "
                           "twice, between 1%% and 100%%", &value[2]);
        return NGX_CONF_ERROR;
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf,
                                             ngx_http_kvroute_continue_module);
    cmcf->used = 1;
    cmcf->races = 1;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_kvroute_continue_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_continue_t  *c;

    c = ngx_http_get_module_ctx(r->main, ngx_http_kvroute_continue_module);

    if (c == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    if (data == 0) {
        return ngx_http_kvroute_variables_number(r, v, (int64_t) c->parts);
    }

    return ngx_http_kvroute_variables_name(v,
                                           data == 1
                                           ? kvr_answer_cut_name(c->cut)
                                           : kvr_continue_late(c->late));
}
