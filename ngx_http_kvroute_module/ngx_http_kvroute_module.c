
/*
 * Copyright (C) kvroute contributors
 */


#include "ngx_http_kvroute.h"


#define NGX_HTTP_KVROUTE_MAX_BODY   (16 * 1024 * 1024)
#define NGX_HTTP_KVROUTE_CAPACITY   (64 * 1024 * 1024)
#define NGX_HTTP_KVROUTE_PROCESSES  128


static ngx_int_t ngx_http_kvroute_preconfiguration(ngx_conf_t *cf);
static void ngx_http_kvroute_exit_process(ngx_cycle_t *cycle);
static void *ngx_http_kvroute_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_kvroute_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_kvroute_create_srv_conf(ngx_conf_t *cf);
static void *ngx_http_kvroute_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_kvroute_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_kvroute_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_kvroute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_kvroute_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


static ngx_command_t  ngx_http_kvroute_commands[] = {

    { ngx_string("kvroute_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kvroute_max_body"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_size_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kvroute_loc_conf_t, max_body),
      NULL },

    { ngx_string("kvroute_salt"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kvroute_loc_conf_t, salt),
      NULL },

    { ngx_string("kvroute_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_kvroute_status,
      0,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kvroute_module_ctx = {
    ngx_http_kvroute_preconfiguration,     /* preconfiguration */
    NULL,                                  /* postconfiguration */

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
    ngx_http_kvroute_zone_init_process,    /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_kvroute_exit_process,         /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_kvroute_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_kvroute_add_variables(cf);
}


static void
ngx_http_kvroute_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_kvroute_zone_exit_process(cycle);
    ngx_http_kvroute_request_exit();
    ngx_http_kvroute_upstream_exit();
}


static void *
ngx_http_kvroute_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_main_conf_t));
    if (kmcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&kmcf->zones, cf->pool, 4,
                       sizeof(ngx_http_kvroute_zone_t *))
        != NGX_OK)
    {
        return NULL;
    }

    if (ngx_array_init(&kmcf->upstreams, cf->pool, 4,
                       sizeof(ngx_http_upstream_srv_conf_t *))
        != NGX_OK)
    {
        return NULL;
    }

    kmcf->max_body = NGX_HTTP_KVROUTE_MAX_BODY;

    return kmcf;
}


/* zones may be declared after the upstreams that use them */
static char *
ngx_http_kvroute_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_kvroute_main_conf_t *kmcf = conf;

    ngx_uint_t                      i;
    ngx_http_upstream_srv_conf_t  **uscf;
    ngx_http_kvroute_srv_conf_t    *kscf;

    uscf = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        kscf = ngx_http_conf_upstream_srv_conf(uscf[i],
                                               ngx_http_kvroute_module);

        kscf->zone = kscf->shm_zone->data;

        if (kscf->zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "kvroute zone \"%V\" is unknown in upstream \"%V\" "
                          "in %s:%ui", &kscf->shm_zone->shm.name,
                          &uscf[i]->host, uscf[i]->file_name, uscf[i]->line);
            return NGX_CONF_ERROR;
        }
    }

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
     *     conf->policy = KVR_POLICY_OFF;
     *     conf->list = { NULL, NULL };
     *     conf->ready = 0;
     */

    conf->capacity = NGX_CONF_UNSET_SIZE;

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
     *     conf->salt = NULL;
     */

    conf->max_body = NGX_CONF_UNSET_SIZE;

    return conf;
}


static char *
ngx_http_kvroute_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_kvroute_loc_conf_t *prev = parent;
    ngx_http_kvroute_loc_conf_t *conf = child;

    ngx_http_kvroute_main_conf_t  *kmcf;

    ngx_conf_merge_size_value(conf->max_body, prev->max_body,
                              NGX_HTTP_KVROUTE_MAX_BODY);

    if (conf->salt == NULL) {
        conf->salt = prev->salt;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    kmcf->max_body = ngx_max(kmcf->max_body, conf->max_body);

    return NGX_CONF_OK;
}


/* reads the number of a "name=number" parameter within its bounds */
static ngx_int_t
ngx_http_kvroute_number(ngx_conf_t *cf, ngx_str_t *value, size_t prefix,
    ngx_int_t min, ngx_int_t max)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data + prefix, value->len - prefix);

    if (n == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value in parameter \"%V\"", value);
        return NGX_ERROR;
    }

    if (n < min || n > max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "value of parameter \"%V\" must be between "
                           "%i and %i", value, min, max);
        return NGX_ERROR;
    }

    return n;
}


static char *
ngx_http_kvroute_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_main_conf_t  *kmcf = conf;

    u_char                    *p;
    ssize_t                    size;
    ngx_int_t                  n;
    ngx_str_t                 *value, name, s;
    ngx_uint_t                 i;
    ngx_http_kvroute_zone_t   *zone, **zonep;

    value = cf->args->elts;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_zone_t));
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    zone->unit = 1;
    zone->max_peers = KVR_INDEX_PEERS;
    zone->processes = NGX_HTTP_KVROUTE_PROCESSES;

    size = 0;
    name.len = 0;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "zone=", 5) == 0) {

            name.data = value[i].data + 5;

            p = (u_char *) ngx_strchr(name.data, ':');

            if (p == NULL || p == name.data) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            name.len = p - name.data;

            s.data = p + 1;
            s.len = value[i].data + value[i].len - s.data;

            size = ngx_parse_size(&s);

            if (size == NGX_ERROR) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            if (size < (ssize_t) (128 * ngx_pagesize)) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "zone \"%V\" is too small", &value[i]);
                return NGX_CONF_ERROR;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "block=", 6) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 6, KVR_BLOCK, 4096);

            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            if (n & (n - 1)) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "value of parameter \"%V\" must be a power "
                                   "of two", &value[i]);
                return NGX_CONF_ERROR;
            }

            zone->unit = n / KVR_BLOCK;

            continue;
        }

        if (ngx_strncmp(value[i].data, "max_peers=", 10) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 10, 1, KVR_INDEX_PEERS);

            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            zone->max_peers = n;

            continue;
        }

        if (ngx_strncmp(value[i].data, "processes=", 10) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 10, 1, 1024);

            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            zone->processes = n;

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\"", &value[i]);
        return NGX_CONF_ERROR;
    }

    if (name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    zone->name.len = name.len;
    zone->name.data = ngx_pnalloc(cf->pool, name.len + 1);
    if (zone->name.data == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_cpystrn(zone->name.data, name.data, name.len + 1);

    if (ngx_http_kvroute_zone_add(cf, zone, &name, size) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    zonep = ngx_array_push(&kmcf->zones);
    if (zonep == NULL) {
        return NGX_CONF_ERROR;
    }

    *zonep = zone;

    return NGX_CONF_OK;
}


static char *
ngx_http_kvroute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    ssize_t                         size;
    ngx_str_t                      *value, name, s;
    ngx_uint_t                      i;
    kvr_policy_e                    policy;
    ngx_http_upstream_srv_conf_t   *uscf, **uscfp;
    ngx_http_kvroute_main_conf_t   *kmcf;

    if (kscf->shm_zone) {
        return "is duplicate";
    }

    value = cf->args->elts;

    name.len = 0;
    kscf->policy = KVR_POLICY_KV_CACHE;

    for (i = 1; i < cf->args->nelts; i++) {

        if (i == 1 && ngx_strchr(value[i].data, '=') == NULL) {

            policy = kvr_policy_by_name(value[i].data, value[i].len);

            if (policy == KVR_POLICIES || policy == KVR_POLICY_OFF) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "unknown policy \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            kscf->policy = policy;

            continue;
        }

        if (ngx_strncmp(value[i].data, "zone=", 5) == 0) {

            name.data = value[i].data + 5;
            name.len = value[i].len - 5;

            continue;
        }

        if (ngx_strncmp(value[i].data, "capacity=", 9) == 0) {

            s.data = value[i].data + 9;
            s.len = value[i].len - 9;

            size = ngx_parse_size(&s);

            if (size == NGX_ERROR || size < KVR_BLOCK) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid value in parameter \"%V\"",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }

            kscf->capacity = size;

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\"", &value[i]);
        return NGX_CONF_ERROR;
    }

    if (name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter", &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (kscf->capacity == NGX_CONF_UNSET_SIZE) {
        kscf->capacity = NGX_HTTP_KVROUTE_CAPACITY;
    }

    kscf->shm_zone = ngx_shared_memory_add(cf, &name, 0,
                                           &ngx_http_kvroute_module);
    if (kscf->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    uscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);

    if (uscf->peer.init_upstream) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "load balancing method redefined");
    }

    uscf->peer.init_upstream = ngx_http_kvroute_upstream_init;

    uscf->flags = NGX_HTTP_UPSTREAM_CREATE
                  |NGX_HTTP_UPSTREAM_MODIFY
                  |NGX_HTTP_UPSTREAM_WEIGHT
                  |NGX_HTTP_UPSTREAM_MAX_CONNS
                  |NGX_HTTP_UPSTREAM_MAX_FAILS
                  |NGX_HTTP_UPSTREAM_FAIL_TIMEOUT
                  |NGX_HTTP_UPSTREAM_DOWN
                  |NGX_HTTP_UPSTREAM_BACKUP;

    kscf->upstream = uscf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    uscfp = ngx_array_push(&kmcf->upstreams);
    if (uscfp == NULL) {
        return NGX_CONF_ERROR;
    }

    *uscfp = uscf;

    return NGX_CONF_OK;
}


static char *
ngx_http_kvroute_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    clcf->handler = ngx_http_kvroute_status_handler;

    return NGX_CONF_OK;
}
