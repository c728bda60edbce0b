
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The control API: what can be done without a reload, mostly to a peer by its
 * address.
 *
 *     POST .../drain?peer=ADDRESS      no new sessions and prompts; with
 *                    &timeout=TIME     after that time nothing at all
 *     POST .../undrain?peer=ADDRESS
 *     POST .../flush?peer=ADDRESS      forgets what the peer holds
 *     POST .../capacity?peer=ADDRESS&size=SIZE|auto
 *                                      what its cache holds, of prompt text
 *     POST .../reset[?peer=ADDRESS]    counters start from zero
 *
 * All of it may be said twice.  GET shows the state of all peers; of an action
 * it is refused, so that nobody takes what was only looked at for done.
 */


#include "status/ngx_http_kvroute_status.h"


typedef struct ngx_http_kvroute_action_s  ngx_http_kvroute_action_t;

typedef void (*ngx_http_kvroute_action_pt)(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);


struct ngx_http_kvroute_action_s {
    ngx_str_t                    name;
    ngx_http_kvroute_action_pt   act;
    ngx_uint_t                   needs;     /* arguments */
    uint64_t                     size;      /* given, 0: auto */
    ngx_msec_t                   timeout;   /* given, 0: none */
};


#define NGX_HTTP_KVROUTE_NEEDS_PEER  1
#define NGX_HTTP_KVROUTE_NEEDS_SIZE  2
#define NGX_HTTP_KVROUTE_HAS_TIMEOUT 4


static ngx_http_kvroute_action_t *ngx_http_kvroute_api_action(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_kvroute_api_shown(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_api_arg(ngx_http_request_t *r,
    const char *name, ngx_str_t *value);
static ngx_int_t ngx_http_kvroute_api_act(ngx_http_request_t *r,
    ngx_http_kvroute_action_t *action, ngx_str_t *peer);
static ngx_int_t ngx_http_kvroute_api_show(ngx_http_request_t *r);
static cJSON *ngx_http_kvroute_api_peers(ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_api_drain(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_undrain(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_flush(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_capacity(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);
static const kvr_pool_t *ngx_http_kvroute_api_pool(ngx_http_request_t *r,
    ngx_http_kvroute_zone_t *zone, uint32_t peer);
static void ngx_http_kvroute_api_reset(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer);


static ngx_http_kvroute_action_t  ngx_http_kvroute_actions[] = {

    { ngx_string("drain"), ngx_http_kvroute_api_drain,
      NGX_HTTP_KVROUTE_NEEDS_PEER|NGX_HTTP_KVROUTE_HAS_TIMEOUT, 0, 0 },

    { ngx_string("undrain"), ngx_http_kvroute_api_undrain,
      NGX_HTTP_KVROUTE_NEEDS_PEER, 0, 0 },

    { ngx_string("flush"), ngx_http_kvroute_api_flush,
      NGX_HTTP_KVROUTE_NEEDS_PEER, 0, 0 },

    { ngx_string("capacity"), ngx_http_kvroute_api_capacity,
      NGX_HTTP_KVROUTE_NEEDS_PEER|NGX_HTTP_KVROUTE_NEEDS_SIZE, 0, 0 },

    { ngx_string("reset"), ngx_http_kvroute_api_reset, 0, 0, 0 },

    { ngx_null_string, NULL, 0, 0, 0 }
};


ngx_int_t
ngx_http_kvroute_api_handler(ngx_http_request_t *r)
{
    ssize_t                       size;
    ngx_int_t                     rc, timeout;
    ngx_str_t                     peer, value;
    const char                   *why;
    ngx_http_kvroute_action_t    *known, action;
    ngx_http_kvroute_loc_conf_t  *klcf;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    known = ngx_http_kvroute_api_action(r);

    if (known == NULL && r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) {

        if (ngx_http_kvroute_api_shown(r)) {
            return ngx_http_kvroute_api_show(r);
        }

        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                           "unknown action");
    }

    if (!klcf->write) {
        return ngx_http_kvroute_send_not_allowed(r, known ? "" : "GET, HEAD",
                                                 "this API is read-only");
    }

    if (r->method != NGX_HTTP_POST) {
        return ngx_http_kvroute_send_not_allowed(r,
                                                 known ? "POST" : "GET, HEAD",
                                                 "actions are taken by POST");
    }

    why = ngx_http_kvroute_api_origin(r);

    if (why) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_FORBIDDEN, why);
    }

    if (known == NULL) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                           "unknown action");
    }

    action = *known;

    rc = ngx_http_kvroute_api_arg(r, "peer", &peer);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* of all peers only if nothing was said: not if "peer" is spelled badly */

    if (peer.len == 0
        && (r->args.len || (action.needs & NGX_HTTP_KVROUTE_NEEDS_PEER)))
    {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_BAD_REQUEST,
                                           "argument \"peer\" is missing");
    }

    if (action.needs & NGX_HTTP_KVROUTE_NEEDS_SIZE) {

        rc = ngx_http_kvroute_api_arg(r, "size", &value);

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (value.len == 0) {
            return ngx_http_kvroute_send_error(r, NGX_HTTP_BAD_REQUEST,
                                               "argument \"size\" is missing");
        }

        if (value.len != 4 || ngx_strncmp(value.data, "auto", 4) != 0) {

            size = ngx_parse_size(&value);

            if (size < KVR_BLOCK) {
                return ngx_http_kvroute_send_error(r, NGX_HTTP_BAD_REQUEST,
                                            "invalid \"size\" argument: a "
                                            "size such as 64m, or auto");
            }

            action.size = (uint64_t) size;
        }
    }

    rc = ngx_http_kvroute_api_arg(r, "timeout", &value);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_OK) {

        if (!(action.needs & NGX_HTTP_KVROUTE_HAS_TIMEOUT)) {
            return ngx_http_kvroute_send_error(r, NGX_HTTP_BAD_REQUEST,
                                      "argument \"timeout\" is for \"drain\"");
        }

        timeout = ngx_parse_time(&value, 0);

        if (timeout == NGX_ERROR || timeout == 0) {
            return ngx_http_kvroute_send_error(r, NGX_HTTP_BAD_REQUEST,
                             "argument \"timeout\" is no time, as 10m or 90s");
        }

        action.timeout = (ngx_msec_t) timeout;
    }

    return ngx_http_kvroute_api_act(r, &action, &peer);
}


/* the action that the last part of the path names, or NULL */
static ngx_http_kvroute_action_t *
ngx_http_kvroute_api_action(ngx_http_request_t *r)
{
    u_char                     *p;
    size_t                      len;
    ngx_http_kvroute_action_t  *action;

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
 * Whether the path is the location itself.  What follows its name would be the
 * name of an action; a regular expression may be any path.
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


/* an argument without its escapes; NGX_DECLINED and no length: there is none */
static ngx_int_t
ngx_http_kvroute_api_arg(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    u_char  *src, *dst;

    ngx_str_null(value);

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), value) != NGX_OK) {
        return NGX_DECLINED;
    }

    src = value->data;

    dst = ngx_pnalloc(r->pool, value->len + 1);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    value->data = dst;
    ngx_unescape_uri(&dst, &src, value->len, 0);
    value->len = dst - value->data;

    return NGX_OK;
}


/* does it in all zones that know the peer, or in all if none is named */
static ngx_int_t
ngx_http_kvroute_api_act(ngx_http_request_t *r,
    ngx_http_kvroute_action_t *action, ngx_str_t *peer)
{
    uint32_t                        id;
    uint32_t                        k;
    ngx_uint_t                      i, found;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    zone = kmcf->zones.elts;
    found = 0;
    id = KVR_REGISTRY_NONE;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        if (peer->len) {
            id = kvr_registry_find_peer(zone[i]->sh->registry, peer->data,
                                        peer->len);

            if (id == KVR_REGISTRY_NONE) {
                continue;
            }
        }

        found = 1;
    }

    for (i = 0; found && i < kmcf->zones.nelts; i++) {

        if (peer->len) {
            id = kvr_registry_find_peer(zone[i]->sh->registry, peer->data,
                                        peer->len);

            if (id == KVR_REGISTRY_NONE) {
                continue;
            }
        }

        action->act(action, r, zone[i], id);

        /* what is done to an address is done to each of its ranks */

        for (k = 0; k < zone[i]->sh->max_peers; k++) {
            if (k != id && kvr_registry_behind(zone[i]->sh->registry, k, id)) {
                action->act(action, r, zone[i], k);
            }
        }
    }

    if (!found) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                           "unknown peer");
    }

    if (action->size) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "kvroute: %V of peer \"%V\" is %uL", &action->name, peer,
                      action->size);

    } else if (action->timeout) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "kvroute: %V of peer \"%V\", timeout %Mms",
                      &action->name, peer, action->timeout);

    } else {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "kvroute: %V of peer \"%V\"", &action->name, peer);
    }

    return ngx_http_kvroute_api_show(r);
}


static void
ngx_http_kvroute_api_drain(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_registry_t  *registry;

    /* a server is drained with all its ranks */

    registry = zone->sh->registry;
    peer = registry->peer[peer].address;

    kvr_drain_begin(&registry->peer[peer].drain,
                    (uint64_t) action->timeout, (uint64_t) ngx_current_msec);
    kvr_registry_share(registry, peer);
}


static void
ngx_http_kvroute_api_undrain(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_peer_t      *p;
    kvr_registry_t  *registry;

    registry = zone->sh->registry;
    peer = registry->peer[peer].address;
    p = &registry->peer[peer];

    if (kvr_drain_end(&p->drain)) {

        /* it is warmed up */

        kvr_set(&p->since, (uint32_t) ngx_time());
    }

    kvr_registry_share(registry, peer);
}


static void
ngx_http_kvroute_api_flush(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_index_flush(zone->sh->index, peer);
}


/* kept over reloads, until it is set again or taken back by "auto" */
static void
ngx_http_kvroute_api_capacity(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_capacity_set(&zone->core, ngx_http_kvroute_api_pool(r, zone, peer),
                     peer,
                     (action->size + zone->core.unit - 1) / zone->core.unit,
                     (uint64_t) ngx_current_msec);
}


/* the first upstream that a peer is in; an empty one if there is none */
static const kvr_pool_t *
ngx_http_kvroute_api_pool(ngx_http_request_t *r,
    ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    ngx_uint_t                     i;
    ngx_http_kvroute_srv_conf_t   *conf, **confp;
    ngx_http_kvroute_main_conf_t  *kmcf;

    static const kvr_pool_t  none;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    confp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        conf = confp[i];

        if (conf->zone == zone && kvr_set_test(&conf->set, peer)) {
            return &conf->pool;
        }
    }

    return &none;
}


static void
ngx_http_kvroute_api_reset(ngx_http_kvroute_action_t *action,
    ngx_http_request_t *r, ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    ngx_uint_t                     i, k;
    kvr_queue_shared_t            *shared;
    ngx_http_kvroute_srv_conf_t   *conf, **confp;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kvr_registry_reset(zone->sh->registry, peer);

    for (i = 0; zone->core.events && i < zone->sh->max_peers; i++) {
        if (peer == KVR_REGISTRY_NONE || peer == i) {
            kvr_counter_reset(KVR_COUNTER_EVENTS, &zone->core.events[i]);
        }
    }

    if (peer != KVR_REGISTRY_NONE) {
        return;
    }

    kvr_counter_reset(KVR_COUNTER_INDEX, zone->sh->index);
    kvr_counter_reset(KVR_COUNTER_FILE, &zone->sh->shm->file);

    if (zone->core.share) {
        kvr_counter_reset(KVR_COUNTER_SHARE, &zone->core.share->stats);
    }

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    confp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        conf = confp[i];

        if (conf->zone != zone || conf->queue == NULL) {
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
    char                           *s;
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

    s = cJSON_PrintUnformatted(json);

    cJSON_Delete(json);

    return ngx_http_kvroute_send_json(r, NGX_HTTP_OK, s);
}


static cJSON *
ngx_http_kvroute_api_peers(ngx_http_kvroute_zone_t *zone)
{
    char                      name[KVR_REGISTRY_NAME_LEN + 1];
    cJSON                    *json, *item;
    uint32_t                  i, len;
    kvr_peer_t               *peer;
    kvr_index_peer_t         *ip;
    kvr_load_sum_t            load;
    ngx_http_kvroute_shctx_t *sh;

    sh = zone->sh;
    json = cJSON_CreateObject();

    for (i = 0; i < sh->max_peers; i++) {

        peer = &sh->registry->peer[i];
        ip = kvr_index_peer(sh->index, i);
        len = peer->len;

        if (len == 0) {
            continue;
        }

        ngx_memcpy(name, peer->name, len);
        name[len] = '\0';

        load = kvr_load_here(sh->load, i);

        item = cJSON_AddObjectToObject(json, name);

        cJSON_AddNumberToObject(item, "id", i);
        cJSON_AddBoolToObject(item, "draining", kvr_drain_on(&peer->drain));
        cJSON_AddNumberToObject(item, "active", load.active);
        cJSON_AddNumberToObject(item, "pending", (double) load.pending);
        cJSON_AddNumberToObject(item, "capacity_bytes",
                                (double) kvr_get(&ip->capacity)
                                * (double) (sh->unit * KVR_BLOCK));
        cJSON_AddStringToObject(item, "capacity_source",
                                kvr_capacity_source(kvr_get(&ip->source)));
    }

    return json;
}
