
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The control API: actions without a reload, mostly on a peer by its address.
 *
 *     POST .../drain?peer=ADDRESS      no new sessions and prompts; with
 *                    &timeout=TIME     after that time nothing at all
 *     POST .../undrain?peer=ADDRESS
 *     POST .../flush?peer=ADDRESS      forgets what the peer has cached
 *     POST .../capacity?peer=ADDRESS&size=SIZE|auto
 *                                      the size of its cache, in prompt text
 *     POST .../reset[?peer=ADDRESS]    counters start from zero
 *
 * Each call is idempotent.  GET shows the state of all peers; GET of an action
 * is refused.
 */


#include "status/ngx_http_kvroute_status.h"


/* arguments, as bits */
typedef enum {
    NGX_HTTP_KVROUTE_API_PEER = 1,
    NGX_HTTP_KVROUTE_API_SIZE = 2,
    NGX_HTTP_KVROUTE_API_TIMEOUT = 4,
    NGX_HTTP_KVROUTE_API_MOVE = 8,
    NGX_HTTP_KVROUTE_API_RATE = 16
} ngx_http_kvroute_api_arg_e;


/* streams that leave a server in a second */
#define NGX_HTTP_KVROUTE_API_STREAMS  50


typedef struct ngx_http_kvroute_action_s  ngx_http_kvroute_action_t;


/* an action with its arguments */
typedef struct {
    const ngx_http_kvroute_action_t  *action;
    ngx_str_t                         peer;     /* "": all peers */
    uint64_t                          size;     /* 0: auto */
    ngx_msec_t                        timeout;  /* 0: none */
    ngx_uint_t                        move;     /* streams leave, */
    uint32_t                          rate;     /* per second */
    char                              wrong[80];  /* the reason for a refusal */
} ngx_http_kvroute_call_t;


typedef struct {
    ngx_str_t                         name;
    ngx_http_kvroute_api_arg_e        bit;
    const char                       *expected;
} ngx_http_kvroute_api_arg_t;


struct ngx_http_kvroute_action_s {
    ngx_str_t                         name;
    void                            (*act)(ngx_http_kvroute_call_t *call,
                                           ngx_http_request_t *r,
                                           ngx_http_kvroute_zone_t *zone,
                                           uint32_t peer);
    ngx_uint_t                        needs;
    ngx_uint_t                        may;
};


static const ngx_http_kvroute_action_t *ngx_http_kvroute_api_action(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_kvroute_api_shown(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_api_refuse(ngx_http_request_t *r,
    const ngx_http_kvroute_action_t *action);
static ngx_int_t ngx_http_kvroute_api_parse(ngx_http_request_t *r,
    ngx_http_kvroute_call_t *call);
static const char *ngx_http_kvroute_api_set(ngx_http_kvroute_call_t *call,
    ngx_http_kvroute_api_arg_e arg, ngx_str_t *value);
static ngx_uint_t ngx_http_kvroute_api_dispatch(ngx_http_request_t *r,
    ngx_http_kvroute_call_t *call);
static ngx_int_t ngx_http_kvroute_api_show(ngx_http_request_t *r);
static cJSON *ngx_http_kvroute_api_peers(ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_api_drain(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_undrain(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_flush(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_capacity(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_reset(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);


static const ngx_http_kvroute_api_arg_t  ngx_http_kvroute_api_args[] = {
    { ngx_string("peer"), NGX_HTTP_KVROUTE_API_PEER, "10.0.0.1:8000" },
    { ngx_string("size"), NGX_HTTP_KVROUTE_API_SIZE, "64m or auto" },
    { ngx_string("timeout"), NGX_HTTP_KVROUTE_API_TIMEOUT, "10m or 90s" },
    { ngx_string("move"), NGX_HTTP_KVROUTE_API_MOVE, "1" },
    { ngx_string("rate"), NGX_HTTP_KVROUTE_API_RATE, "50" }
};


static const ngx_http_kvroute_action_t  ngx_http_kvroute_actions[] = {

    { ngx_string("drain"), ngx_http_kvroute_api_drain,
      NGX_HTTP_KVROUTE_API_PEER,
      NGX_HTTP_KVROUTE_API_TIMEOUT|NGX_HTTP_KVROUTE_API_MOVE
      |NGX_HTTP_KVROUTE_API_RATE },

    { ngx_string("undrain"), ngx_http_kvroute_api_undrain,
      NGX_HTTP_KVROUTE_API_PEER, 0 },

    { ngx_string("flush"), ngx_http_kvroute_api_flush,
      NGX_HTTP_KVROUTE_API_PEER, 0 },

    { ngx_string("capacity"), ngx_http_kvroute_api_capacity,
      NGX_HTTP_KVROUTE_API_PEER|NGX_HTTP_KVROUTE_API_SIZE, 0 },

    { ngx_string("reset"), ngx_http_kvroute_api_reset,
      0, NGX_HTTP_KVROUTE_API_PEER },

    { ngx_null_string, NULL, 0, 0 }
};


ngx_int_t
ngx_http_kvroute_api_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_kvroute_call_t  call;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_memzero(&call, sizeof(ngx_http_kvroute_call_t));

    call.action = ngx_http_kvroute_api_action(r);

    if (call.action == NULL && r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) {
        return ngx_http_kvroute_api_shown(r)
               ? ngx_http_kvroute_api_show(r)
               : ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                             "unknown action");
    }

    rc = ngx_http_kvroute_api_refuse(r, call.action);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_http_kvroute_api_parse(r, &call);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != NGX_OK) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_BAD_REQUEST, call.wrong);
    }

    if (!ngx_http_kvroute_api_dispatch(r, &call)) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                           "unknown peer");
    }

    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                  "kvroute: %V, arguments \"%V\"", &call.action->name,
                  &r->args);

    return ngx_http_kvroute_api_show(r);
}


/* Answers a request that may not act.  NGX_DECLINED: it may. */
static ngx_int_t
ngx_http_kvroute_api_refuse(ngx_http_request_t *r,
    const ngx_http_kvroute_action_t *action)
{
    const char                   *why;
    ngx_http_kvroute_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (!klcf->write) {
        return ngx_http_kvroute_send_not_allowed(r, action ? "" : "GET, HEAD",
                                                 "this API is read-only");
    }

    if (r->method != NGX_HTTP_POST) {
        return ngx_http_kvroute_send_not_allowed(r,
                                                 action ? "POST" : "GET, HEAD",
                                                 "actions are taken by POST");
    }

    why = ngx_http_kvroute_api_origin(r);

    if (why) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_FORBIDDEN, why);
    }

    return action ? NGX_DECLINED
                  : ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                                "unknown action");
}


/* Returns the action that the last part of the path names, or NULL. */
static const ngx_http_kvroute_action_t *
ngx_http_kvroute_api_action(ngx_http_request_t *r)
{
    u_char                           *p;
    size_t                            len;
    const ngx_http_kvroute_action_t  *action;

    p = r->uri.data + r->uri.len;

    while (p > r->uri.data && p[-1] != '/') {
        p--;
    }

    len = r->uri.data + r->uri.len - p;

    for (action = ngx_http_kvroute_actions; action->name.len; action++) {
        if (action->name.len == len
            && ngx_strncmp(action->name.data, p, len) == 0)
        {
            return action;
        }
    }

    return NULL;
}


/*
 * Tells whether the path is the location itself: behind its name the name
 * of an action follows.  A regular expression matches any path.
 */
static ngx_uint_t
ngx_http_kvroute_api_shown(ngx_http_request_t *r)
{
    size_t                        i;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_kvroute_loc_conf_t  *klcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (!klcf->prefix) {
        return 1;
    }

    for (i = clcf->name.len; i < r->uri.len; i++) {
        if (r->uri.data[i] != '/') {
            return 0;
        }
    }

    return 1;
}


/* Fills the call.  NGX_DECLINED: an argument is wrong, see call->wrong. */
static ngx_int_t
ngx_http_kvroute_api_parse(ngx_http_request_t *r, ngx_http_kvroute_call_t *call)
{
    u_char                            *src, *dst;
    ngx_str_t                          value;
    ngx_uint_t                         i, needs;
    const char                        *fault;
    const ngx_http_kvroute_api_arg_t  *arg;

    /* a misspelled "peer" does not reset all */

    needs = call->action->needs
            | (r->args.len ? NGX_HTTP_KVROUTE_API_PEER : 0);

    for (i = 0; i < kvr_nelts(ngx_http_kvroute_api_args); i++) {

        arg = &ngx_http_kvroute_api_args[i];
        fault = NULL;

        if (ngx_http_arg(r, arg->name.data, arg->name.len, &value) != NGX_OK) {

            if (needs & arg->bit) {
                fault = "missing";
            }

        } else if (value.len == 0) {
            fault = "missing";

        } else if (!((needs | call->action->may) & arg->bit)) {
            (void) ngx_snprintf((u_char *) call->wrong, sizeof(call->wrong),
                                "unexpected \"%V\" argument%Z", &arg->name);
            return NGX_DECLINED;

        } else {
            src = value.data;
            dst = ngx_pnalloc(r->pool, value.len);

            if (dst == NULL) {
                return NGX_ERROR;
            }

            value.data = dst;
            ngx_unescape_uri(&dst, &src, value.len, 0);
            value.len = dst - value.data;

            fault = ngx_http_kvroute_api_set(call, arg->bit, &value);
        }

        if (fault) {
            (void) ngx_snprintf((u_char *) call->wrong, sizeof(call->wrong),
                                "%s \"%V\" argument, expected e.g. %s%Z",
                                fault, &arg->name, arg->expected);
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


/* Sets an argument; returns NULL, or the error. */
static const char *
ngx_http_kvroute_api_set(ngx_http_kvroute_call_t *call,
    ngx_http_kvroute_api_arg_e arg, ngx_str_t *value)
{
    ssize_t  n;

    switch (arg) {

    case NGX_HTTP_KVROUTE_API_PEER:
        call->peer = *value;
        return NULL;

    case NGX_HTTP_KVROUTE_API_SIZE:

        if (value->len == 4 && ngx_strncmp(value->data, "auto", 4) == 0) {
            return NULL;
        }

        n = ngx_parse_size(value);
        call->size = (uint64_t) n;

        return n < KVR_BLOCK ? "invalid" : NULL;

    case NGX_HTTP_KVROUTE_API_TIMEOUT:
        n = ngx_parse_time(value, 0);
        call->timeout = (ngx_msec_t) n;

        return n <= 0 ? "invalid" : NULL;

    case NGX_HTTP_KVROUTE_API_MOVE:
        call->move = 1;

        return value->len == 1 && value->data[0] == '1' ? NULL : "invalid";

    case NGX_HTTP_KVROUTE_API_RATE:
        n = ngx_atoi(value->data, value->len);
        call->rate = (uint32_t) n;

        return n <= 0 || n > 10000 ? "invalid" : NULL;
    }

    return "unexpected";
}


/*
 * Acts in all zones that know the peer, or in all zones if none is named.
 * Returns 0 if no zone knows it.
 */
static ngx_uint_t
ngx_http_kvroute_api_dispatch(ngx_http_request_t *r,
    ngx_http_kvroute_call_t *call)
{
    uint32_t                        id, k;
    ngx_uint_t                      i, found;
    kvr_registry_t                 *registry;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    zone = kmcf->zones.elts;
    found = 0;
    id = KVR_REGISTRY_NONE;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        registry = zone[i]->core.registry;

        if (call->peer.len) {
            id = kvr_registry_find_peer(registry, call->peer.data,
                                        call->peer.len);

            if (id == KVR_REGISTRY_NONE) {
                continue;
            }
        }

        found = 1;

        call->action->act(call, r, zone[i], id);

        /* an action on an address is one on each of its ranks */

        for (k = 0; k < zone[i]->max_peers; k++) {
            if (k != id && kvr_registry_behind(registry, k, id)) {
                call->action->act(call, r, zone[i], k);
            }
        }
    }

    return found;
}


static void
ngx_http_kvroute_api_drain(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_registry_t  *registry;

    /* all ranks of a server are drained together */

    registry = zone->core.registry;
    peer = registry->peer[peer].address;

    /* streams leave once sessions may: without a time, now */

    kvr_drain_begin(&registry->peer[peer].drain,
                    (uint64_t) (call->timeout ? call->timeout : call->move),
                    (uint64_t) ngx_current_msec);

    if (call->move) {
        kvr_drain_move(&registry->peer[peer].drain,
                       call->rate ? call->rate
                                  : NGX_HTTP_KVROUTE_API_STREAMS);
    }

    kvr_registry_share(registry, peer);
}


static void
ngx_http_kvroute_api_undrain(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_peer_t      *p;
    kvr_registry_t  *registry;

    registry = zone->core.registry;
    peer = registry->peer[peer].address;
    p = &registry->peer[peer];

    if (kvr_drain_end(&p->drain)) {

        /* slow start */

        kvr_set(&p->since, (uint32_t) ngx_time());
    }

    kvr_registry_share(registry, peer);
}


static void
ngx_http_kvroute_api_flush(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_index_flush(zone->core.index, peer);
}


/* Sets the capacity; it holds over reloads, "auto" takes it back. */
static void
ngx_http_kvroute_api_capacity(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    ngx_uint_t                    i;
    ngx_http_kvroute_srv_conf_t  *conf;

    static const kvr_pool_t  none;

    /* the first upstream of the peer */

    i = 0;

    do {
        conf = ngx_http_kvroute_zone_next(zone, &i);

    } while (conf && !kvr_set_test(&conf->set, peer));

    kvr_capacity_set(&zone->core, conf ? &conf->pool : &none, peer,
                     (call->size + KVR_BLOCK - 1) / KVR_BLOCK,
                     (uint64_t) ngx_current_msec);
}


static void
ngx_http_kvroute_api_reset(ngx_http_kvroute_call_t *call,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    ngx_uint_t                    i, k;
    kvr_queue_shared_t           *shared;
    ngx_http_kvroute_srv_conf_t  *conf;

    kvr_registry_reset(zone->core.registry, peer);
    kvr_hooks_reset(&zone->core, peer);

    if (peer != KVR_REGISTRY_NONE) {
        return;
    }

    kvr_counter_reset(KVR_COUNTER_INDEX, zone->core.index);
    kvr_counter_reset(KVR_COUNTER_FILE, &zone->shm->file);

    i = 0;

    while ((conf = ngx_http_kvroute_zone_next(zone, &i)) != NULL) {

        if (conf->queue == NULL) {
            continue;
        }

        shared = conf->queue->shm_zone->data;

        for (k = 0; k < KVR_QUEUE_CLASSES; k++) {
            kvr_counter_reset(KVR_COUNTER_QUEUE, &shared->stats[k]);
        }
    }
}


static ngx_int_t
ngx_http_kvroute_api_show(ngx_http_request_t *r)
{
    cJSON                          *json, *zones;
    ngx_uint_t                      i;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    json = cJSON_CreateObject();
    zones = cJSON_AddObjectToObject(json, "zones");

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        cJSON_AddItemToObject(zones, (char *) zone[i]->name.data,
                              ngx_http_kvroute_api_peers(zone[i]));
    }

    return ngx_http_kvroute_send_json(r, json, json);
}


static cJSON *
ngx_http_kvroute_api_peers(ngx_http_kvroute_zone_t *zone)
{
    char               name[KVR_REGISTRY_NAME_LEN + 1];
    cJSON             *json, *item;
    uint32_t           i, len;
    kvr_peer_t        *peer;
    kvr_load_sum_t     load;
    kvr_index_peer_t  *ip;

    json = cJSON_CreateObject();

    for (i = 0; i < zone->max_peers; i++) {

        peer = &zone->core.registry->peer[i];
        ip = kvr_index_peer(zone->core.index, i);
        len = peer->len;

        if (len == 0) {
            continue;
        }

        ngx_memcpy(name, peer->name, len);
        name[len] = '\0';

        load = kvr_load_here(zone->core.load, i);

        item = cJSON_AddObjectToObject(json, name);

        cJSON_AddNumberToObject(item, "id", i);
        cJSON_AddBoolToObject(item, "draining", kvr_drain_on(&peer->drain));
        cJSON_AddNumberToObject(item, "active", load.active);
        cJSON_AddNumberToObject(item, "pending", (double) load.pending);
        cJSON_AddNumberToObject(item, "capacity_bytes",
                                (double) kvr_get(&ip->capacity)
                                * KVR_BLOCK);
        cJSON_AddStringToObject(item, "capacity_source",
                                kvr_capacity_source(kvr_get(&ip->source)));
    }

    return json;
}
