
/*
 * Copyright (C) kvroute contributors
 */


#include "events/ngx_http_kvroute_events_int.h"
#include "status/ngx_http_kvroute_status.h"


static ngx_int_t ngx_http_kvroute_events_preconfiguration(ngx_conf_t *cf);
static void *ngx_http_kvroute_events_create_conf(ngx_conf_t *cf);
static ngx_int_t ngx_http_kvroute_events_init_process(ngx_cycle_t *cycle);
static void ngx_http_kvroute_events_json(cJSON *json,
    ngx_http_kvroute_srv_conf_t *kscf, void *data, uint32_t peer);
static uint64_t ngx_http_kvroute_events_session(ngx_http_request_t *r,
    ngx_http_kvroute_srv_conf_t *kscf);


static ngx_command_t  ngx_http_kvroute_events_commands[] = {

    { ngx_string("kvroute_events"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_kvroute_events_conf,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kvroute_events_module_ctx = {
    ngx_http_kvroute_events_preconfiguration,  /* preconfiguration */
    ngx_http_kvroute_events_conf_init,     /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    ngx_http_kvroute_events_create_conf,   /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_kvroute_events_module = {
    NGX_MODULE_V1,
    &ngx_http_kvroute_events_module_ctx,   /* module context */
    ngx_http_kvroute_events_commands,      /* module directives */
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


static const ngx_http_kvroute_extension_t  ngx_http_kvroute_events_extension = {
    .build = NGX_HTTP_KVROUTE_BUILD,
    .name = "ngx_http_kvroute_events_module",
    .hooks = &kvr_sync_hooks,
    .init_process = ngx_http_kvroute_events_init_process,
    .exit_process = ngx_http_kvroute_events_exit,
    .session = ngx_http_kvroute_events_session,
    .json_peer = ngx_http_kvroute_events_json
};


static ngx_int_t
ngx_http_kvroute_events_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_kvroute_extension_add(cf,
                                          &ngx_http_kvroute_events_extension);
}


static void *
ngx_http_kvroute_events_create_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_events_conf_t));
}


/* prepares the zones in each worker; worker 0 reads events */
static ngx_int_t
ngx_http_kvroute_events_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                       i, n;
    kvr_feeds_t                     *h;
    ngx_http_kvroute_zone_t         *zone;
    ngx_http_kvroute_srv_conf_t    **kscf;
    ngx_http_kvroute_main_conf_t    *kmcf;
    ngx_http_kvroute_events_conf_t  *events;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    kscf = kmcf->upstreams.elts;
    n = 0;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        zone = kscf[i]->zone;
        events = ngx_http_kvroute_events_get(kscf[i]);

        if (events == NULL || zone == NULL) {
            continue;
        }

        h = events->feeds;
        h->zone = &zone->core;
        h->events = events->shm_zone->data;
        zone->core.listens = 1;

        if (events->aliases_zone) {
            h->aliases = events->aliases_zone->data;

            /* every process writes the same values */

            kvr_attribute_init(h->aliases, zone->max_peers, events->aliases);
        }

        n++;
    }

    return n ? ngx_http_kvroute_events_init(cycle) : NGX_OK;
}


static uint64_t
ngx_http_kvroute_events_session(ngx_http_request_t *r,
    ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_http_variable_value_t       *id;
    ngx_http_kvroute_events_conf_t  *events;

    events = ngx_http_kvroute_events_get(kscf);

    /* upstreams with and without events may share a zone */

    if (events == NULL || events->aliases == 0) {
        return 0;
    }

    /* no engine was sent what has no value by now */

    id = &r->variables[events->session];

    return id->valid && !id->not_found ? kvr_kvevent_session(id->data, id->len)
                                       : 0;
}


static void
ngx_http_kvroute_events_json(cJSON *json, ngx_http_kvroute_srv_conf_t *kscf,
    void *data, uint32_t peer)
{
    kvr_feeds_t *h = data;

    cJSON         *item;
    uint32_t       set;
    uint64_t       age;
    kvr_sync_e     state;
    kvr_events_t  *e;

    static const char *const  names[] = { "off", "stale", "silent", "fresh" };

    _Static_assert(kvr_nelts(names) == KVR_SYNC_STATES, "states");

    if (ngx_http_kvroute_events_get(kscf) == NULL) {
        return;
    }

    e = &h->events[peer];
    set = h->aliases ? KVR_SYNC_ALIASED : 0;

    state = kvr_sync_state(h, peer, (uint64_t) ngx_current_msec, &age);

    item = cJSON_AddObjectToObject(json, "events");

    ngx_http_kvroute_status_json_table(item, kvr_sync_hooks.counters,
                                       kvr_sync_hooks.ncounters,
                                       KVR_COUNTER_NOW, e, set);

    cJSON_AddStringToObject(item, "state", names[state]);

    if (state != KVR_SYNC_OFF) {
        cJSON_AddNumberToObject(item, "age_ms", (double) age);
    }

    cJSON_AddBoolToObject(item, "trusted", state == KVR_SYNC_FRESH);
    cJSON_AddNumberToObject(item, "age",
                            (double) (kvr_events_age(e) * KVR_BLOCK));
}
