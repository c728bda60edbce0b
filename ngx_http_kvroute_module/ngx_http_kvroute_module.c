
/*
 * Copyright (C) kvroute contributors
 */


#include "ngx_http_kvroute_extension.h"
#include "zone/ngx_http_kvroute_zone.h"
#include "request/ngx_http_kvroute_request.h"
#include "conf/ngx_http_kvroute_conf.h"
#include "engine/ngx_http_kvroute_engine.h"
#include "status/ngx_http_kvroute_status.h"
#include "queue/ngx_http_kvroute_queue.h"
#include "balance/ngx_http_kvroute_balance.h"


#define NGX_HTTP_KVROUTE_CAPACITY  (64 * 1024 * 1024)


static ngx_int_t ngx_http_kvroute_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kvroute_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kvroute_init_process(ngx_cycle_t *cycle);
static void ngx_http_kvroute_exit_process(ngx_cycle_t *cycle);
static void *ngx_http_kvroute_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_kvroute_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_kvroute_create_srv_conf(ngx_conf_t *cf);
static void *ngx_http_kvroute_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_kvroute_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_kvroute_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_kvroute_api(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_uint_t ngx_http_kvroute_is_prefix(ngx_http_core_loc_conf_t *clcf);


static ngx_command_t  ngx_http_kvroute_commands[] = {

    { ngx_string("kvroute_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_conf_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_conf_attach,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_shadow"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_conf_attach,
      NGX_HTTP_SRV_CONF_OFFSET,
      1,
      NULL },

    { ngx_string("kvroute_upstream"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_kvroute_conf_attach_named,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_queue"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_conf_queue,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_request"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_conf_request,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_salt"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_kvroute_conf_param_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kvroute_loc_conf_t, salt),
      NULL },

    { ngx_string("kvroute_policy"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF
                        |NGX_CONF_1MORE,
      ngx_http_kvroute_conf_location,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_pin"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_kvroute_conf_param_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kvroute_loc_conf_t, pin),
      NULL },

    { ngx_string("kvroute_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
      ngx_http_kvroute_api,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_ranks"),
      NGX_HTTP_UPS_CONF|NGX_CONF_TAKE1,
      ngx_http_kvroute_conf_upstream_ranks,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_engine"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_conf_probe_engine,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_probe"),
      NGX_HTTP_UPS_CONF|NGX_CONF_ANY,
      ngx_http_kvroute_conf_probe,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_health"),
      NGX_HTTP_UPS_CONF|NGX_CONF_ANY,
      ngx_http_kvroute_conf_probe_health,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_eject"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_conf_eject,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
      ngx_http_kvroute_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    ngx_http_kvroute_conf_removed("kvroute_bypass"),
    ngx_http_kvroute_conf_removed("kvroute_deadline"),
    ngx_http_kvroute_conf_removed("kvroute_early"),
    ngx_http_kvroute_conf_removed("kvroute_inspect"),
    ngx_http_kvroute_conf_removed("kvroute_learn_reply"),
    ngx_http_kvroute_conf_removed("kvroute_max_body"),
    ngx_http_kvroute_conf_removed("kvroute_priority"),
    ngx_http_kvroute_conf_removed("kvroute_queue_for"),
    ngx_http_kvroute_conf_removed("kvroute_tenant"),

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kvroute_module_ctx = {
    ngx_http_kvroute_preconfiguration,     /* preconfiguration */
    ngx_http_kvroute_postconfiguration,    /* postconfiguration */

    ngx_http_kvroute_create_main_conf,     /* create main configuration */
    ngx_http_kvroute_init_main_conf,       /* init main configuration */

    ngx_http_kvroute_create_srv_conf,      /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_kvroute_create_loc_conf,      /* create location configuration */
    ngx_http_kvroute_merge_loc_conf        /* merge location configuration */
};


ngx_module_t  ngx_http_kvroute_module = {
    NGX_MODULE_V1,
    &ngx_http_kvroute_module_ctx,          /* module context */
    ngx_http_kvroute_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_kvroute_zone_init_module,     /* init module */
    ngx_http_kvroute_init_process,         /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_kvroute_exit_process,         /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_kvroute_preconfiguration(ngx_conf_t *cf)
{
    ngx_http_kvroute_pass_init(cf);

    if (ngx_http_kvroute_variables_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_queue_variables(cf);
}


static ngx_int_t
ngx_http_kvroute_postconfiguration(ngx_conf_t *cf)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    static const char *const  body[] = {
        "kvroute_model", "kvroute_session", "kvroute_service_tier",
        "kvroute_body_priority", "kvroute_prompt_bytes", NULL
    };

    if (ngx_http_kvroute_conf_attach_check(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    ngx_http_kvroute_conf_check_upstreams(cf, kmcf);

    /* nginx runs the handlers of a phase in reverse order */

    if (ngx_http_kvroute_extension_init(cf) != NGX_OK
        || ngx_http_kvroute_queue_init(cf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* the body is read where it may choose the upstream */

    return kmcf->variable && ngx_http_kvroute_variables_used(cf, body)
           ? ngx_http_kvroute_inspect_init(cf) : NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_init_process(ngx_cycle_t *cycle)
{
    /* other processes, and those without "http", have nothing to do */

    if ((ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
        || ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module)
           == NULL)
    {
        return NGX_OK;
    }

    if (ngx_http_kvroute_zone_init_process(cycle) != NGX_OK
        || ngx_http_kvroute_extension_init_process(cycle) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_kvroute_status_watch(cycle);

    return ngx_http_kvroute_probe_init(cycle);
}


static void
ngx_http_kvroute_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_kvroute_probe_exit();
    ngx_http_kvroute_extension_exit_process(cycle);
    ngx_http_kvroute_zone_exit_process(cycle);
    ngx_http_kvroute_prompt_exit();
    ngx_http_kvroute_choose_exit();
    ngx_http_kvroute_queue_exit();
}


static void *
ngx_http_kvroute_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_main_conf_t));
    if (kmcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&kmcf->zones, cf->pool, 4, sizeof(void *)) != NGX_OK
        || ngx_array_init(&kmcf->extensions, cf->pool, 4, sizeof(void *))
           != NGX_OK
        || ngx_array_init(&kmcf->attached, cf->pool, 4,
                          sizeof(ngx_http_kvroute_extension_at_t))
           != NGX_OK
        || ngx_array_init(&kmcf->upstreams, cf->pool, 4, sizeof(void *))
           != NGX_OK
        || ngx_array_init(&kmcf->named, cf->pool, 4,
                          sizeof(ngx_http_kvroute_conf_named_t))
           != NGX_OK)
    {
        return NULL;
    }

    kmcf->init_upstream = ngx_http_kvroute_upstream_init;
    kmcf->decide = ngx_http_kvroute_early_decide;

    return kmcf;
}


/* Zones can be declared after the upstreams that use them. */
static char *
ngx_http_kvroute_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_kvroute_main_conf_t *kmcf = conf;

    ngx_uint_t                    i;
    ngx_http_kvroute_srv_conf_t  *kscf, **kscfp;

    if (ngx_http_kvroute_conf_attach_init(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        kscf = kscfp[i];

        kscf->zone = kscf->shm_zone->data;

        if (kscf->zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "kvroute zone \"%V\" is unknown in upstream \"%V\" "
                          "in %s:%ui: declare \"kvroute_zone zone=%V:16m;\" in "
                          "http", &kscf->shm_zone->shm.name,
                          &kscf->upstream->host,
                          kscf->upstream->file_name, kscf->upstream->line,
                          &kscf->shm_zone->shm.name);
            return NGX_CONF_ERROR;
        }

        ngx_http_kvroute_conf_queue_check(cf, kscf);

        if (kscf->shadow) {
            ngx_http_kvroute_shadow_add(kscf);
        }
    }

    ngx_http_kvroute_conf_check_zones(cf, kmcf);

    return NGX_CONF_OK;
}


static void *
ngx_http_kvroute_create_srv_conf(ngx_conf_t *cf)
{
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_srv_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->zone = NULL;
     *     conf->shm_zone = NULL;
     *     conf->policy = { 0 };
     *     conf->list = { 0 };
     *     conf->max_pending = 0;
     *     conf->slow_start = 0;
     *     conf->ready = 0;
     *     conf->shadow = 0;
     *     conf->real_upstream = NULL;
     *     conf->real_peer = NULL;
     */

    conf->capacity = NGX_HTTP_KVROUTE_CAPACITY;
    conf->max_waiting = NGX_CONF_UNSET;

    ngx_http_kvroute_conf_eject_init(&conf->eject);

    return conf;
}


static void *
ngx_http_kvroute_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_kvroute_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->policy = NULL;
     *     conf->request = NULL;
     *     conf->variable = 0;
     *     conf->api = 0;
     *     conf->write = 0;
     *     conf->status = 0;
     */

    conf->salt = NGX_CONF_UNSET_PTR;
    conf->pin = NGX_CONF_UNSET_PTR;

    return conf;
}


static char *
ngx_http_kvroute_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_kvroute_loc_conf_t *prev = parent;
    ngx_http_kvroute_loc_conf_t *conf = child;

    ngx_http_conf_ctx_t           *ctx;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_kvroute_srv_conf_t   *kscf;
    ngx_http_kvroute_main_conf_t  *kmcf;
    ngx_http_upstream_srv_conf_t  *uscf;

    ngx_http_kvroute_conf_check_location(cf, conf);

    ngx_conf_merge_ptr_value(conf->salt, prev->salt, NULL);
    ngx_conf_merge_ptr_value(conf->pin, prev->pin, NULL);

    /* a directive is inherited with its parameters */

    if (conf->request == NULL) {
        conf->request = prev->request;
    }

    if (conf->policy == NULL) {
        conf->policy = prev->policy;
    }

    /* the handler stays inside "if" */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname) {
        conf->api = prev->api;
        conf->write = prev->write;
        conf->status = prev->status;
        conf->prefix = prev->prefix;
    }

    ctx = cf->ctx;
    uscf = ngx_http_kvroute_pass_upstream(ctx->loc_conf);

    kscf = ngx_http_kvroute_pass_routed(uscf);

    if (kscf) {
        kscf->named = 1;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    /* a handler without a literal upstream usually has a variable */

    if (clcf->handler && uscf == NULL && !conf->status && !conf->api) {
        conf->variable = 1;
        kmcf->variable = 1;
    }

    kmcf->expected |= (conf->request && conf->request->upstream);

    return NGX_CONF_OK;
}


static char *
ngx_http_kvroute_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_loc_conf_t  *klcf = conf;

    ngx_str_t                    *value;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_kvroute_srv_conf_t  *kscf;

    if (klcf->api) {
        return "is duplicate";
    }

    klcf->api = 1;

    value = cf->args->elts;

    if (cf->args->nelts == 2) {

        if (ngx_strcmp(value[1].data, "write=on") == 0) {
            klcf->write = 1;

        } else if (ngx_strcmp(value[1].data, "write=off") != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\": known are "
                               "\"write=on\" and \"write=off\"", &value[1]);
            return NGX_CONF_ERROR;
        }
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    klcf->prefix = ngx_http_kvroute_is_prefix(clcf);
    clcf->handler = ngx_http_kvroute_api_handler;

    /* the page needs the path to offer actions */

    kscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_kvroute_module);

    if (klcf->write && klcf->prefix && kscf->api.len == 0) {
        kscf->api = clcf->name;
    }

    return NGX_CONF_OK;
}


/* Tells whether all paths of a location start with its name. */
static ngx_uint_t
ngx_http_kvroute_is_prefix(ngx_http_core_loc_conf_t *clcf)
{
#if (NGX_PCRE)
    if (clcf->regex) {
        return 0;
    }
#endif

    return !clcf->named;
}


static char *
ngx_http_kvroute_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_loc_conf_t  *klcf = conf;

    ngx_str_t                 *value;
    ngx_uint_t                 i;
    ngx_http_core_loc_conf_t  *clcf;

    /* formats, by NGX_HTTP_KVROUTE_STATUS_... */

    static const char *const  formats[] = { "", "", "json", "prometheus",
                                            "html" };

    if (klcf->status) {
        return "is duplicate";
    }

    value = cf->args->elts;
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    klcf->status = NGX_HTTP_KVROUTE_STATUS_ALL;
    klcf->prefix = ngx_http_kvroute_is_prefix(clcf);

    if (cf->args->nelts == 2) {

        for (i = NGX_HTTP_KVROUTE_STATUS_JSON; i < kvr_nelts(formats); i++) {
            if (ngx_strcmp(value[1].data, formats[i]) == 0) {
                klcf->status = i;
            }
        }

        if (klcf->status == NGX_HTTP_KVROUTE_STATUS_ALL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "unknown format \"%V\": known are json, "
                               "prometheus and html", &value[1]);
            return NGX_CONF_ERROR;
        }

    } else if (clcf->exact_match || !klcf->prefix) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"kvroute_status\" needs a format (json, "
                           "prometheus or html) in location \"%V\"",
                           &clcf->name);
        return NGX_CONF_ERROR;

    } else if (clcf->name.len && clcf->name.data[clcf->name.len - 1] == '/') {
        clcf->auto_redirect = 1;
    }

    clcf->handler = ngx_http_kvroute_status_handler;

    return NGX_CONF_OK;
}
