
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status as JSON: zones, and upstreams with their peers.  Names follow
 * those of the API of NGINX Plus where they mean the same.
 */


#include "ngx_http_kvroute.h"

#include <cjson/cJSON.h>


static cJSON *ngx_http_kvroute_status_json(ngx_http_request_t *r);
static cJSON *ngx_http_kvroute_status_zone(ngx_http_kvroute_zone_t *zone);
static cJSON *ngx_http_kvroute_status_upstream(
    ngx_http_upstream_srv_conf_t *uscf, ngx_log_t *log);
static cJSON *ngx_http_kvroute_status_peer(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id, uint32_t seat);
static const char *ngx_http_kvroute_status_state(
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_upstream_rr_peer_t *peer,
    uint32_t id);
static cJSON *ngx_http_kvroute_status_string(const u_char *data, size_t len);


ngx_int_t
ngx_http_kvroute_status_handler(ngx_http_request_t *r)
{
    char       *text;
    cJSON      *json;
    ngx_int_t   rc;
    ngx_str_t   type = ngx_string("application/json");

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    json = ngx_http_kvroute_status_json(r);
    if (json == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    text = cJSON_PrintUnformatted(json);

    cJSON_Delete(json);

    return ngx_http_kvroute_send(r, NGX_HTTP_OK, &type, text);
}


/* sends a text that cJSON has made, and frees it */
ngx_int_t
ngx_http_kvroute_send(ngx_http_request_t *r, ngx_uint_t status,
    ngx_str_t *type, char *text)
{
    size_t        len;
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    if (text == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    len = ngx_strlen(text);

    b = ngx_create_temp_buf(r->pool, len + 1);

    if (b) {
        b->last = ngx_cpymem(b->pos, text, len);
        *b->last++ = LF;
    }

    cJSON_free(text);

    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.status = status;
    r->headers_out.content_length_n = b->last - b->pos;

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, &out);
}


static cJSON *
ngx_http_kvroute_status_json(ngx_http_request_t *r)
{
    cJSON                          *json, *zones, *upstreams, *item;
    ngx_uint_t                      i;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_upstream_srv_conf_t  **uscf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "version", NGX_HTTP_KVROUTE_VERSION);
    cJSON_AddStringToObject(json, "nginx_version", NGINX_VERSION);
    cJSON_AddNumberToObject(json, "pid", ngx_pid);

    zones = cJSON_AddObjectToObject(json, "zones");
    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        item = ngx_http_kvroute_status_zone(zone[i]);

        cJSON_AddItemToObject(zones, (char *) zone[i]->name.data, item);
    }

    upstreams = cJSON_AddObjectToObject(json, "upstreams");
    uscf = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        item = ngx_http_kvroute_status_upstream(uscf[i], r->connection->log);
        if (item == NULL) {
            cJSON_Delete(json);
            return NULL;
        }

        cJSON_AddItemToObject(upstreams, (char *) uscf[i]->host.data, item);
    }

    return json;
}


static cJSON *
ngx_http_kvroute_status_zone(ngx_http_kvroute_zone_t *zone)
{
    cJSON                     *json;
    uint32_t                   i, processes, peers;
    ngx_http_kvroute_shctx_t  *sh;

    sh = zone->sh;

    processes = 0;

    for (i = 0; i < sh->processes; i++) {
        processes += (sh->load->row[i].owner != 0);
    }

    peers = 0;

    for (i = 0; i < sh->max_peers; i++) {
        peers += (sh->registry->peer[i].len != 0);
    }

    json = cJSON_CreateObject();

    cJSON_AddNumberToObject(json, "size", (double) zone->shm_zone->shm.size);
    cJSON_AddNumberToObject(json, "block", (double) (sh->unit * KVR_BLOCK));
    cJSON_AddNumberToObject(json, "lines", (double) sh->lines);
    cJSON_AddNumberToObject(json, "fill",
                            kvr_index_fill(sh->index, (uint64_t) ngx_random()));
    cJSON_AddNumberToObject(json, "evicted",
                            (double) kvr_get(&sh->index->evicted));
    cJSON_AddNumberToObject(json, "peers", peers);
    cJSON_AddNumberToObject(json, "max_peers", (double) sh->max_peers);
    cJSON_AddNumberToObject(json, "processes", processes);
    cJSON_AddNumberToObject(json, "max_processes", (double) sh->processes);
    cJSON_AddNumberToObject(json, "generation", (double) sh->generation);

    return json;
}


static cJSON *
ngx_http_kvroute_status_upstream(ngx_http_upstream_srv_conf_t *uscf,
    ngx_log_t *log)
{
    cJSON                         *json, *list, *item;
    uint64_t                       reasons[KVR_REASON_MAX];
    ngx_uint_t                     i, k, n;
    kvr_seat_t                    *seat;
    ngx_http_kvroute_list_t       *names;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    conf = ngx_http_conf_upstream_srv_conf(uscf, ngx_http_kvroute_module);

    peers = uscf->peer.data;

    if (conf->config != ngx_http_kvroute_peers_config(peers)
        && ngx_http_kvroute_peers_find(conf, log) != NGX_OK)
    {
        return NULL;
    }

    json = cJSON_CreateObject();

    cJSON_AddItemToObject(json, "zone",
                          ngx_http_kvroute_status_string(conf->zone->name.data,
                                                    conf->zone->name.len));
    cJSON_AddStringToObject(json, "policy",
                            kvr_policy_name(conf->policy.conf.policy));
    cJSON_AddNumberToObject(json, "shared_prefix",
                            (double) kvr_get(&conf->zone->sh->registry
                                              ->upstream[conf->number].shared));

    list = cJSON_AddArrayToObject(json, "peers");

    ngx_memzero(reasons, sizeof(reasons));

    for (k = 0; k < 2 && peers; k++, peers = peers->next) {

        names = &conf->list[k];

        ngx_http_upstream_rr_peers_rlock(peers);

        for (peer = peers->peer, i = 0;
             peer && i < names->number;
             peer = peer->next, i++)
        {
            item = ngx_http_kvroute_status_peer(conf, peer, names->id[i],
                                                names->seat[i]);

            cJSON_AddBoolToObject(item, "backup", k == 1);
            cJSON_AddItemToArray(list, item);

            if (names->seat[i] == KVR_REGISTRY_NONE) {
                continue;
            }

            seat = &conf->zone->sh->registry->seat[names->seat[i]];

            for (n = 0; n < KVR_REASON_MAX; n++) {
                reasons[n] += kvr_get(&seat->reason[n]);
            }
        }

        ngx_http_upstream_rr_peers_unlock(peers);
    }

    item = cJSON_AddObjectToObject(json, "decisions");

    for (n = 1; n < KVR_REASON_MAX; n++) {
        cJSON_AddNumberToObject(item, kvr_reason_name((kvr_reason_e) n),
                                (double) reasons[n]);
    }

    return json;
}


static cJSON *
ngx_http_kvroute_status_peer(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id, uint32_t seat)
{
    cJSON                     *json, *responses;
    double                     total;
    ngx_uint_t                 i;
    kvr_seat_t                *s;
    kvr_load_sum_t             sum, own;
    kvr_index_peer_t          *p;
    ngx_http_kvroute_shctx_t  *sh;

    static const char  *classes[] = { "1xx", "2xx", "3xx", "4xx", "5xx" };

    json = cJSON_CreateObject();

    cJSON_AddItemToObject(json, "server",
                          ngx_http_kvroute_status_string(peer->server.data,
                                                         peer->server.len));
    cJSON_AddItemToObject(json, "name",
                          ngx_http_kvroute_status_string(peer->name.data,
                                                         peer->name.len));
    cJSON_AddNumberToObject(json, "weight", (double) peer->weight);
    cJSON_AddStringToObject(json, "state",
                            ngx_http_kvroute_status_state(conf, peer, id));
    cJSON_AddNumberToObject(json, "max_conns", (double) peer->max_conns);
    cJSON_AddNumberToObject(json, "conns", (double) peer->conns);

    if (id == KVR_REGISTRY_NONE) {
        cJSON_AddNumberToObject(json, "active", (double) peer->conns);
        return json;
    }

    sh = conf->zone->sh;
    s = &sh->registry->seat[seat];
    p = &sh->index->peer[id];

    own = kvr_load_get(sh->load, kvr_registry_column(seat));
    sum = kvr_load_get(sh->load, id);

    cJSON_AddNumberToObject(json, "id", id);
    cJSON_AddNumberToObject(json, "active", own.active);
    cJSON_AddNumberToObject(json, "pending", (double) own.pending);
    cJSON_AddNumberToObject(json, "active_all", sum.active);
    cJSON_AddNumberToObject(json, "pending_all", (double) sum.pending);

    cJSON_AddNumberToObject(json, "requests", (double) kvr_get(&s->requests));

    responses = cJSON_AddObjectToObject(json, "responses");
    total = 0;

    for (i = 0; i < 5; i++) {
        cJSON_AddNumberToObject(responses, classes[i],
                                (double) kvr_get(&s->responses[i]));
        total += (double) kvr_get(&s->responses[i]);
    }

    cJSON_AddNumberToObject(responses, "total", total);

    cJSON_AddNumberToObject(json, "fails", (double) kvr_get(&s->fails));
    cJSON_AddNumberToObject(json, "selected", (double) kvr_get(&s->selected));

    cJSON_AddNumberToObject(json, "prompt_bytes",
                            (double) kvr_get(&s->prompt));
    cJSON_AddNumberToObject(json, "matched_bytes",
                            (double) kvr_get(&s->matched));
    cJSON_AddNumberToObject(json, "best_bytes", (double) kvr_get(&s->best));

    cJSON_AddNumberToObject(json, "capacity_bytes",
                            (double) kvr_get(&p->capacity)
                            * (double) (sh->unit * KVR_BLOCK));

    ngx_http_kvroute_signal_status(json, conf, id);

    return json;
}


static const char *
ngx_http_kvroute_status_state(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id)
{
    if (peer->down) {
        return "down";
    }

    if (peer->max_fails
        && peer->fails >= peer->max_fails
        && ngx_time() - peer->checked <= peer->fail_timeout)
    {
        return "unavail";
    }

    if (ngx_http_kvroute_draining(conf, id)) {
        return "draining";
    }

    return "up";
}


static cJSON *
ngx_http_kvroute_status_string(const u_char *data, size_t len)
{
    char    buf[256];

    len = ngx_min(len, sizeof(buf) - 1);

    ngx_memcpy(buf, data, len);
    buf[len] = '\0';

    return cJSON_CreateString(buf);
}
