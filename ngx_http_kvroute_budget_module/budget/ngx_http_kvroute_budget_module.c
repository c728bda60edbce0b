
/*
 * Copyright (C) kvroute contributors
 */


/* kvroute_budget off | string zone= rate= [burst=] [charge=] [over=]; */


#include "budget/ngx_http_kvroute_budget.h"
#include "conf/ngx_http_kvroute_conf_param.h"
#include "status/ngx_http_kvroute_status.h"
#include "zone/ngx_http_kvroute_zone.h"


static ngx_int_t ngx_http_kvroute_budget_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kvroute_budget_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kvroute_budget_init(ngx_conf_t *cf);
static void *ngx_http_kvroute_budget_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_kvroute_budget_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_kvroute_budget_merge(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_kvroute_budget_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_http_kvroute_budget_conf_rate(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_budget_conf_burst(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_budget_conf_over(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_budget_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static void ngx_http_kvroute_budget_json(cJSON *json,
    ngx_http_kvroute_zone_t *zone, void *data);


static ngx_command_t  ngx_http_kvroute_budget_commands[] = {

    { ngx_string("kvroute_budget"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_budget_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kvroute_budget_module_ctx = {
    ngx_http_kvroute_budget_preconfiguration,  /* preconfiguration */
    ngx_http_kvroute_budget_postconfiguration,  /* postconfiguration */

    ngx_http_kvroute_budget_create_main_conf,  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_kvroute_budget_create_loc_conf,  /* create location
                                                 configuration */
    ngx_http_kvroute_budget_merge          /* merge location configuration */
};


ngx_module_t  ngx_http_kvroute_budget_module = {
    NGX_MODULE_V1,
    &ngx_http_kvroute_budget_module_ctx,   /* module context */
    ngx_http_kvroute_budget_commands,      /* module directives */
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


/* what the router calls */
static const ngx_http_kvroute_extension_t  ngx_http_kvroute_budget_extension =
{
    .build = NGX_HTTP_KVROUTE_BUILD,
    .name = "ngx_http_kvroute_budget_module",
    .hooks = &kvr_budget_hooks,
    .init = ngx_http_kvroute_budget_init,
    .json = ngx_http_kvroute_budget_json
};


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_budget_list[] = {

    { ngx_string("zone="), ngx_http_kvroute_conf_param_word,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_budget_conf_t, zone_name),
      1, 255, "the name of a kvroute_zone" },

    { ngx_string("rate="), ngx_http_kvroute_budget_conf_rate,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_budget_conf_t, rate),
      0, 0, "tokens per s, m, h or d such as 100k/m, or a variable" },

    { ngx_string("burst="), ngx_http_kvroute_budget_conf_burst,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_budget_conf_t, burst),
      0, 0, "a number of tokens such as 100k" },

    { ngx_string("charge="), ngx_http_kvroute_conf_param_choice,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_budget_conf_t, charge),
      0, 0, "computed prompt all" },

    { ngx_string("over="), ngx_http_kvroute_budget_conf_over,
      0, sizeof(ngx_msec_t), 1, 86400000, "429, low, or a time to wait such as "
      "30s" },

    ngx_http_kvroute_conf_param_null
};


enum {
    NGX_HTTP_KVROUTE_BUDGET_STATE = 0,
    NGX_HTTP_KVROUTE_BUDGET_REMAINING,
    NGX_HTTP_KVROUTE_BUDGET_RETRY,
    NGX_HTTP_KVROUTE_BUDGET_CHARGED
};


static ngx_http_variable_t  ngx_http_kvroute_budget_vars[] = {

    { ngx_string("kvroute_budget"), NULL, ngx_http_kvroute_budget_variable,
      NGX_HTTP_KVROUTE_BUDGET_STATE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_budget_remaining"), NULL,
      ngx_http_kvroute_budget_variable,
      NGX_HTTP_KVROUTE_BUDGET_REMAINING, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_budget_retry"), NULL,
      ngx_http_kvroute_budget_variable,
      NGX_HTTP_KVROUTE_BUDGET_RETRY, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_budget_charged"), NULL,
      ngx_http_kvroute_budget_variable,
      NGX_HTTP_KVROUTE_BUDGET_CHARGED, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


static const char *const  ngx_http_kvroute_budget_states[] = {
    "waiting", "admitted", "lowered", "rejected", "gone"
};

_Static_assert(kvr_nelts(ngx_http_kvroute_budget_states)
               == NGX_HTTP_KVROUTE_BUDGET_STATES, "states");


static ngx_int_t
ngx_http_kvroute_budget_preconfiguration(ngx_conf_t *cf)
{
    if (ngx_http_kvroute_extension_add(cf, &ngx_http_kvroute_budget_extension)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_variables_add(cf, ngx_http_kvroute_budget_vars);
}


/* Behind the router's handlers of the phase, so nginx runs it before them. */
static ngx_int_t
ngx_http_kvroute_budget_postconfiguration(ngx_conf_t *cf)
{
    ngx_array_t  *budgets;

    budgets = ngx_http_conf_get_module_main_conf(cf,
                                               ngx_http_kvroute_budget_module);

    return budgets->nelts
           ? ngx_http_kvroute_request_phase(cf, ngx_http_kvroute_budget_handler)
           : NGX_OK;
}


/* Called by the router when it knows its zones. */
static ngx_int_t
ngx_http_kvroute_budget_init(ngx_conf_t *cf)
{
    uint64_t                          layout;
    ngx_uint_t                        i;
    ngx_array_t                      *budgets;
    ngx_http_kvroute_main_conf_t     *kmcf;
    ngx_http_kvroute_budget_conf_t  **bc;

    static const size_t  parts[] = { sizeof(kvr_budget_t),
                                     sizeof(kvr_budget_stats_t),
                                     sizeof(kvr_budget_account_t) };

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    budgets = ngx_http_conf_get_module_main_conf(cf,
                                               ngx_http_kvroute_budget_module);

    bc = budgets->elts;
    layout = kvr_layout(parts, kvr_nelts(parts));

    for (i = 0; i < budgets->nelts; i++) {

        bc[i]->zone = ngx_http_kvroute_conf_zone_find(cf, &bc[i]->zone_name);

        if (bc[i]->zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "kvroute zone \"%V\" is unknown in "
                          "\"kvroute_budget\": declare \"kvroute_zone "
                          "zone=%V:16m;\" in http", &bc[i]->zone_name,
                          &bc[i]->zone_name);
            return NGX_ERROR;
        }

        bc[i]->shm_zone = ngx_http_kvroute_shared_add(cf, "kvroute_budget.",
                                                      layout,
                                                      &bc[i]->zone_name,
                                                      sizeof(kvr_budget_t));
        if (bc[i]->shm_zone == NULL
            || ngx_http_kvroute_extension_attach(cf, &kvr_budget_hooks,
                                            bc[i]->zone, bc[i]->shm_zone, NULL)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (bc[i]->over == NGX_HTTP_KVROUTE_BUDGET_LOW && !kmcf->queues) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"over=low\" of \"kvroute_budget\" has no effect "
                          "without \"kvroute_queue\"");
        }

        kmcf->early = 1;
    }

    return NGX_OK;
}


/* an array of ngx_http_kvroute_budget_conf_t * */
static void *
ngx_http_kvroute_budget_create_main_conf(ngx_conf_t *cf)
{
    return ngx_array_create(cf->pool, 4, sizeof(void *));
}


/* a pointer to an ngx_http_kvroute_budget_conf_t */
static void *
ngx_http_kvroute_budget_create_loc_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(void *));
}


static char *
ngx_http_kvroute_budget_merge(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_kvroute_budget_conf_t **prev = parent;
    ngx_http_kvroute_budget_conf_t **conf = child;

    ngx_http_conf_ctx_t          *ctx;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_kvroute_loc_conf_t  *klcf;

    ctx = cf->ctx;

    if (*conf == NULL) {
        *conf = *prev;

    } else if ((*conf)->name) {
        ngx_http_kvroute_conf_check_used(cf, "kvroute_budget", 0);

        clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
        klcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_kvroute_module);

        /* of a server, its locations may have a tenant */

        if (ngx_http_kvroute_conf_param_is(&(*conf)->name->value,
                                           "$kvroute_tenant")
            && ngx_http_kvroute_pass_upstream(ctx->loc_conf)
            && (klcf->request == NULL || klcf->request->tenant == NULL))
        {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"kvroute_budget $kvroute_tenant\" in location "
                          "\"%V\" limits nobody without \"tenant=\" of "
                          "\"kvroute_request\"", &clcf->name);
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_kvroute_budget_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_budget_conf_t **field = conf;

    char                            *rc;
    ngx_str_t                       *value;
    ngx_array_t                     *budgets;
    ngx_http_kvroute_budget_conf_t  *bc, **bcp;

    if (*field) {
        return "is duplicate";
    }

    bc = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_budget_conf_t));
    if (bc == NULL) {
        return NGX_CONF_ERROR;
    }

    *field = bc;
    value = cf->args->elts;

    if (ngx_http_kvroute_conf_param_off(cf, &rc)) {
        return rc;
    }

    bc->burst = -1;

    if (ngx_http_kvroute_conf_param_complex(cf, NULL, &value[1], &bc->name)
        != NGX_OK
        || ngx_http_kvroute_conf_param_all(cf, ngx_http_kvroute_budget_list, 2,
                                           bc)
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (bc->zone_name.len == 0 || bc->rate == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have a string, such as $tenant, and "
                           "\"zone\" and \"rate\" parameters, such as "
                           "\"zone=NAME rate=100k/m\"", &cmd->name);
        return NGX_CONF_ERROR;
    }

    budgets = ngx_http_conf_get_module_main_conf(cf,
                                               ngx_http_kvroute_budget_module);

    bcp = ngx_array_push(budgets);
    if (bcp == NULL) {
        return NGX_CONF_ERROR;
    }

    *bcp = bc;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_kvroute_budget_conf_rate(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    kvr_budget_limit_t  limit;

    if (ngx_http_script_variables_count(value) == 0
        && kvr_budget_read_rate(value->data, value->len, &limit) != KVR_OK)
    {
        return NGX_DECLINED;
    }

    return ngx_http_kvroute_conf_param_complex(cf, param, value, field);
}


static ngx_int_t
ngx_http_kvroute_budget_conf_burst(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    return kvr_budget_read_amount(value->data, value->len, field) == KVR_OK
           ? NGX_OK : NGX_DECLINED;
}


/* A bare number is no time: "503" would be one. */
static ngx_int_t
ngx_http_kvroute_budget_conf_over(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_kvroute_budget_conf_t *bc = field;

    if (ngx_strcmp(value->data, "429") == 0) {
        bc->over = NGX_HTTP_KVROUTE_BUDGET_429;
        return NGX_OK;
    }

    if (ngx_strcmp(value->data, "low") == 0) {
        bc->over = NGX_HTTP_KVROUTE_BUDGET_LOW;
        return NGX_OK;
    }

    if (value->len == 0 || isdigit(value->data[value->len - 1])) {
        return NGX_DECLINED;
    }

    bc->over = NGX_HTTP_KVROUTE_BUDGET_QUEUE;

    return ngx_http_kvroute_conf_param_msec(cf, param, value, &bc->timeout);
}


static ngx_int_t
ngx_http_kvroute_budget_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    uint64_t                    now, wait;
    ngx_http_kvroute_budget_t  *b;

    b = ngx_http_kvroute_budget_get(r);

    if (b == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    now = (uint64_t) ngx_current_msec;

    switch (data) {

    case NGX_HTTP_KVROUTE_BUDGET_STATE:
        return ngx_http_kvroute_variables_name(v,
                                     ngx_http_kvroute_budget_states[b->state]);

    case NGX_HTTP_KVROUTE_BUDGET_REMAINING:
        return ngx_http_kvroute_variables_number(r, v,
                     (int64_t) kvr_budget_left(b->account, &b->limit, now));

    case NGX_HTTP_KVROUTE_BUDGET_RETRY:
        wait = kvr_budget_wait(b->account, &b->limit, now);

        return ngx_http_kvroute_variables_number(r, v,
                                            (int64_t) ((wait + 999) / 1000));

    default:
        return ngx_http_kvroute_variables_number(r, v, (int64_t) b->charged);
    }
}


static void
ngx_http_kvroute_budget_json(cJSON *json, ngx_http_kvroute_zone_t *zone,
    void *data)
{
    kvr_budget_t *budget = data;

    cJSON             *item, *list;
    uint32_t           i, n;
    kvr_tally_view_t   view[KVR_TALLY_ENTRIES + 1];

    json = cJSON_AddObjectToObject(json, "budget");

    ngx_http_kvroute_status_json_table(json, kvr_budget_hooks.counters,
                                       kvr_budget_hooks.ncounters,
                                       KVR_COUNTER_ZONE, &budget->stats,
                                       KVR_COUNTER_OWN);

    list = cJSON_AddArrayToObject(json, "accounts");
    n = kvr_tally_list(&budget->tally, KVR_TALLY_TENANT, 0, view);

    for (i = 0; i < n; i++) {
        item = cJSON_CreateObject();
        cJSON_AddItemToArray(list, item);

        if (view[i].len) {
            ngx_http_kvroute_status_json_string(item, "name",
                                                (u_char *) view[i].name,
                                                view[i].len);
        }

        cJSON_AddNumberToObject(item, "admitted",
                                (double) view[i].counts.requests);
        cJSON_AddNumberToObject(item, "rejected",
                                (double) view[i].counts.rejects);
        cJSON_AddNumberToObject(item, "charged_tokens",
                                (double) view[i].counts.computed);
    }
}
