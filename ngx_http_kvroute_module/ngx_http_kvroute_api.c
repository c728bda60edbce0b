
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The control API: what can be done to a peer without a reload, by its address.
 *
 *     POST .../drain?peer=ADDRESS      no new sessions and prompts
 *     POST .../undrain?peer=ADDRESS
 *
 * All of it may be said twice.  GET shows the state of all peers.
 */


#include "ngx_http_kvroute.h"

#include <cjson/cJSON.h>


typedef ngx_int_t (*ngx_http_kvroute_action_pt)(ngx_http_request_t *r,
    ngx_http_kvroute_zone_t *zone, uint32_t peer);


typedef struct {
    ngx_str_t                    name;
    ngx_http_kvroute_action_pt   act;
} ngx_http_kvroute_action_t;


static ngx_int_t ngx_http_kvroute_api_act(ngx_http_request_t *r,
    ngx_http_kvroute_action_t *action, ngx_str_t *peer);
static ngx_int_t ngx_http_kvroute_api_show(ngx_http_request_t *r);
static cJSON *ngx_http_kvroute_api_peers(ngx_http_kvroute_zone_t *zone);
static ngx_int_t ngx_http_kvroute_api_drain(ngx_http_request_t *r,
    ngx_http_kvroute_zone_t *zone, uint32_t peer);
static ngx_int_t ngx_http_kvroute_api_undrain(ngx_http_request_t *r,
    ngx_http_kvroute_zone_t *zone, uint32_t peer);


static ngx_http_kvroute_action_t  ngx_http_kvroute_actions[] = {
    { ngx_string("drain"), ngx_http_kvroute_api_drain },
    { ngx_string("undrain"), ngx_http_kvroute_api_undrain },
    { ngx_null_string, NULL }
};


ngx_int_t
ngx_http_kvroute_api_handler(ngx_http_request_t *r)
{
    u_char                       *p, *src, *dst;
    ngx_int_t                     rc;
    ngx_str_t                     name, peer;
    ngx_http_kvroute_action_t    *action;
    ngx_http_kvroute_loc_conf_t  *klcf;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) {
        return ngx_http_kvroute_api_show(r);
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (!klcf->write) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_ALLOWED,
                                           "this API is read-only");
    }

    if (r->method != NGX_HTTP_POST) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_ALLOWED,
                                           "actions are taken by POST");
    }

    /* the last part of the path */

    p = r->uri.data + r->uri.len;

    while (p > r->uri.data && p[-1] != '/') {
        p--;
    }

    name.data = p;
    name.len = r->uri.data + r->uri.len - p;

    for (action = ngx_http_kvroute_actions; action->name.len; action++) {

        if (action->name.len != name.len
            || ngx_strncmp(action->name.data, name.data, name.len) != 0)
        {
            continue;
        }

        if (ngx_http_arg(r, (u_char *) "peer", 4, &peer) != NGX_OK
            || peer.len == 0)
        {
            return ngx_http_kvroute_send_error(r, NGX_HTTP_BAD_REQUEST,
                                               "argument \"peer\" is missing");
        }

        src = peer.data;

        dst = ngx_pnalloc(r->pool, peer.len);
        if (dst == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        peer.data = dst;
        ngx_unescape_uri(&dst, &src, peer.len, 0);
        peer.len = dst - peer.data;

        return ngx_http_kvroute_api_act(r, action, &peer);
    }

    return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                      "unknown action");
}


/* does it in all zones that know the peer */
static ngx_int_t
ngx_http_kvroute_api_act(ngx_http_request_t *r,
    ngx_http_kvroute_action_t *action, ngx_str_t *peer)
{
    uint32_t                        id;
    ngx_int_t                       rc;
    ngx_uint_t                      i, found;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    zone = kmcf->zones.elts;
    found = 0;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        id = kvr_registry_find_peer(zone[i]->sh->registry, peer->data,
                                    peer->len);

        if (id == KVR_REGISTRY_NONE) {
            continue;
        }

        found = 1;

        rc = action->act(r, zone[i], id);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (!found) {
        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                           "unknown peer");
    }

    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                  "kvroute: %V of peer \"%V\"", &action->name, peer);

    return ngx_http_kvroute_api_show(r);
}


static ngx_int_t
ngx_http_kvroute_api_drain(ngx_http_request_t *r,
    ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_set(&zone->sh->registry->peer[peer].draining, 1);

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_api_undrain(ngx_http_request_t *r,
    ngx_http_kvroute_zone_t *zone, uint32_t peer)
{
    kvr_set(&zone->sh->registry->peer[peer].draining, 0);

    return NGX_OK;
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
    char         name[KVR_REGISTRY_NAME_LEN + 1];
    cJSON       *json, *item;
    uint32_t     i, len;
    kvr_peer_t  *peer;

    json = cJSON_CreateObject();

    for (i = 0; i < zone->sh->max_peers; i++) {

        peer = &zone->sh->registry->peer[i];
        len = peer->len;

        if (len == 0) {
            continue;
        }

        ngx_memcpy(name, peer->name, len);
        name[len] = '\0';

        item = cJSON_AddObjectToObject(json, name);

        cJSON_AddNumberToObject(item, "id", i);
        cJSON_AddBoolToObject(item, "draining", kvr_get(&peer->draining));
    }

    return json;
}
