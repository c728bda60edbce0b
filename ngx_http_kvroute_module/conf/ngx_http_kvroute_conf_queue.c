
/*
 * Copyright (C) kvroute contributors
 */


/* The directives kvroute_queue and kvroute_request. */


#include "conf/ngx_http_kvroute_conf_param.h"
#include "zone/ngx_http_kvroute_zone.h"


#define NGX_HTTP_KVROUTE_CONF_QUEUE_CLASSES                                   \
    "critical, high, interactive, normal, low, batch, background, a number "  \
    "from 0, or a variable"


static ngx_int_t ngx_http_kvroute_conf_queue_level(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_queue_weight(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);


static const size_t  ngx_http_kvroute_conf_queue_parts[] = {
    sizeof(kvr_queue_shared_t),
    sizeof(kvr_queue_stats_t),
    sizeof(kvr_queue_tenant_t),
    sizeof(kvr_queue_row_t),
    KVR_QUEUE_CLASSES,
    KVR_QUEUE_TENANTS,
    KVR_QUEUE_ROWS,
    KVR_PEERS
};


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_conf_queue_list[] =
{
    { ngx_string("max="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_queue_t, max),
      1, 1000000, "between 1 and 1000000" },

    { ngx_string("timeout="), ngx_http_kvroute_conf_param_msec,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_queue_t, timeout),
      1, 86400000, "between 1ms and 24h" },

    ngx_http_kvroute_conf_param_null
};


#define ngx_http_kvroute_conf_request_field(name)                             \
    ngx_http_kvroute_conf_field(ngx_http_kvroute_words_t, name)

static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_conf_request_list[]
= {
    { ngx_string("tenant="), ngx_http_kvroute_conf_param_complex,
      ngx_http_kvroute_conf_request_field(tenant),
      0, 0, "a variable, as \"$http_authorization\"" },

    { ngx_string("weight="), ngx_http_kvroute_conf_queue_weight,
      ngx_http_kvroute_conf_request_field(weight),
      0, 0, "a number, or a variable" },

    { ngx_string("name="), ngx_http_kvroute_conf_param_complex,
      ngx_http_kvroute_conf_request_field(name),
      0, 0, "a string" },

    { ngx_string("priority="), ngx_http_kvroute_conf_queue_level,
      ngx_http_kvroute_conf_request_field(priority),
      0, 0, NGX_HTTP_KVROUTE_CONF_QUEUE_CLASSES },

    { ngx_string("max_priority="), ngx_http_kvroute_conf_queue_level,
      ngx_http_kvroute_conf_request_field(max_priority),
      0, 0, NGX_HTTP_KVROUTE_CONF_QUEUE_CLASSES },

    { ngx_string("deadline="), ngx_http_kvroute_conf_param_complex,
      ngx_http_kvroute_conf_request_field(deadline),
      0, 0, "a time such as 500ms, or a variable" },

    { ngx_string("upstream="), ngx_http_kvroute_conf_param_complex,
      ngx_http_kvroute_conf_request_field(upstream),
      0, 0, "the variable of \"proxy_pass\"" },

    ngx_http_kvroute_conf_param_null
};


char *
ngx_http_kvroute_conf_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    uint64_t                       layout;
    ngx_http_kvroute_queue_t      *queue;
    ngx_http_kvroute_main_conf_t  *kmcf;
    ngx_http_upstream_srv_conf_t  *uscf;

    if (kscf->queue) {
        return "is duplicate";
    }

    if (kscf->shadow) {
        return "needs \"kvroute\": with \"kvroute_shadow\" no request waits";
    }

    if (kscf->shm_zone == NULL) {
        return "must come after \"kvroute\"";
    }

    queue = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_queue_t));
    if (queue == NULL) {
        return NGX_CONF_ERROR;
    }

    queue->timeout = 30000;

    if (ngx_http_kvroute_conf_param_all(cf, ngx_http_kvroute_conf_queue_list,
                                        1, queue)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (queue->max == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"max\" parameter: \"max=\" and a "
                           "number of requests", &cmd->name);
        return NGX_CONF_ERROR;
    }

    uscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);

    layout = kvr_layout(ngx_http_kvroute_conf_queue_parts,
                        kvr_nelts(ngx_http_kvroute_conf_queue_parts));

    queue->shm_zone = ngx_http_kvroute_shared_add(cf, "kvroute_queue.", layout,
                                                  &uscf->host,
                                                  sizeof(kvr_queue_shared_t));
    if (queue->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    kmcf->early = 1;
    kmcf->queues = 1;

    kscf->queue = queue;

    return NGX_CONF_OK;
}


/* Warns if no request can ever wait, or if max_waiting= has no metrics. */
void
ngx_http_kvroute_conf_queue_check(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_uint_t                     i, capped;
    ngx_http_upstream_server_t    *server, *open;
    ngx_http_upstream_srv_conf_t  *uscf;

    uscf = kscf->upstream;

    if (kscf->max_waiting != NGX_CONF_UNSET && kscf->probe == NULL) {
        ngx_http_kvroute_conf_check_warn(cf, uscf, "max_waiting",
                                         "needs \"kvroute_probe\"");
    }

    if (kscf->queue == NULL || kscf->max_pending || kscf->target_ttft
        || (kscf->max_waiting != NGX_CONF_UNSET && kscf->probe))
    {
        return;
    }

    server = uscf->servers->elts;

    for (i = 0, capped = 0, open = NULL; i < uscf->servers->nelts; i++) {

        if (server[i].max_conns) {
            capped = 1;

        } else if (!server[i].backup && !server[i].down) {
            open = &server[i];
        }
    }

    if (capped && open) {
        ngx_http_kvroute_conf_check_warn(cf, uscf, "kvroute_queue",
            "has no effect while server \"%V\" has no cap: write "
            "\"max_conns\" for it too", &open->name);
    }

    if (capped) {
        return;
    }

    ngx_http_kvroute_conf_check_warn(cf, uscf, "kvroute_queue",
        "has no effect without a cap: set \"max_pending\" of \"kvroute\", or "
        "\"max_conns\" of servers");
}


char *
ngx_http_kvroute_conf_request(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_loc_conf_t  *klcf = conf;

    ngx_http_kvroute_words_t  *words;

    if (klcf->request) {
        return "is duplicate";
    }

    words = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_words_t));
    if (words == NULL
        || ngx_http_kvroute_conf_param_all(cf,
                                           ngx_http_kvroute_conf_request_list,
                                           1, words)
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (words->tenant == NULL && (words->weight || words->name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"weight=\" and \"name=\" are those of a tenant: "
                           "write \"tenant=\" too");
        return NGX_CONF_ERROR;
    }

    if (words->priority == NULL && words->max_priority) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"max_priority=\" has no effect without "
                           "\"priority=\"");
        return NGX_CONF_ERROR;
    }

    klcf->request = words;

    return NGX_CONF_OK;
}


/* Sets a class; a value with variables is evaluated per request. */
static ngx_int_t
ngx_http_kvroute_conf_queue_level(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    if (ngx_http_script_variables_count(value) == 0
        && ngx_http_kvroute_conf_queue_class(value) == NGX_ERROR)
    {
        return NGX_DECLINED;
    }

    return ngx_http_kvroute_conf_param_complex(cf, param, value, field);
}


static ngx_int_t
ngx_http_kvroute_conf_queue_weight(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    if (ngx_http_script_variables_count(value) == 0
        && ngx_atoi(value->data, value->len) < 1)
    {
        return NGX_DECLINED;
    }

    return ngx_http_kvroute_conf_param_complex(cf, param, value, field);
}


ngx_int_t
ngx_http_kvroute_conf_queue_class(ngx_str_t *value)
{
    ngx_int_t   n;
    ngx_uint_t  i;

    /* includes the values of "service_tier" in the OpenAI API */

    static const struct {
        ngx_str_t  name;
        ngx_int_t  class;
    } names[] = {
        { ngx_string("critical"), 0 },
        { ngx_string("high"), 1 },
        { ngx_string("priority"), 1 },
        { ngx_string("interactive"), 2 },
        { ngx_string("normal"), KVR_QUEUE_NORMAL },
        { ngx_string("default"), KVR_QUEUE_NORMAL },
        { ngx_string("auto"), KVR_QUEUE_NORMAL },
        { ngx_string("low"), 5 },
        { ngx_string("flex"), 5 },
        { ngx_string("batch"), 6 },
        { ngx_string("background"), 7 },
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {

        if (value->len == names[i].name.len
            && ngx_strncasecmp(value->data, names[i].name.data, value->len)
               == 0)
        {
            return names[i].class;
        }
    }

    n = ngx_atoi(value->data, value->len);

    return n == NGX_ERROR ? n : ngx_min(n, KVR_QUEUE_CLASSES - 1);
}
