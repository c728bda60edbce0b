
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status as JSON.  Names follow those of the API of NGINX Plus where they
 * mean the same.  Any part of it can be asked for by its path: a member by its
 * name, an element of a list by its number, a peer by its address as well.
 */


#include "status/ngx_http_kvroute_status.h"


#define NGX_HTTP_KVROUTE_RECEIPTS  64   /* of each zone, the last ones */


static cJSON *ngx_http_kvroute_json_all(ngx_http_request_t *r);
static cJSON *ngx_http_kvroute_json_find(cJSON *json, ngx_str_t *path);
static cJSON *ngx_http_kvroute_json_zone(ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_json_models(cJSON *json, kvr_models_t *models);
static void ngx_http_kvroute_json_receipts(cJSON *list,
    ngx_http_kvroute_zone_t *zone);
static cJSON *ngx_http_kvroute_json_upstream(ngx_http_kvroute_fleet_t *fleet);
static cJSON *ngx_http_kvroute_json_histogram(kvr_stats_t *stats,
    kvr_stats_e kind);
static cJSON *ngx_http_kvroute_json_histograms(kvr_stats_t *stats,
    kvr_stats_e first, kvr_stats_e last);
static void ngx_http_kvroute_json_ttft(cJSON *json,
    ngx_http_kvroute_fleet_peer_t *p);
static cJSON *ngx_http_kvroute_json_peer(ngx_http_kvroute_fleet_peer_t *p);
static void ngx_http_kvroute_json_number(cJSON *json, const char *name,
    uint64_t value);
static void ngx_http_kvroute_json_string(cJSON *json, const char *name,
    const u_char *data, size_t len);
static void ngx_http_kvroute_json_time(cJSON *json, const char *name,
    uint64_t ms);


ngx_int_t
ngx_http_kvroute_status_json(ngx_http_request_t *r, ngx_str_t *path)
{
    char   *text;
    cJSON  *json, *part;

    json = ngx_http_kvroute_json_all(r);
    if (json == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    part = ngx_http_kvroute_json_find(json, path);

    if (part == NULL) {
        cJSON_Delete(json);

        return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                           "no such part of the status");
    }

    text = cJSON_PrintUnformatted(part);

    cJSON_Delete(json);

    return ngx_http_kvroute_send_json(r, NGX_HTTP_OK, text);
}


static cJSON *
ngx_http_kvroute_json_find(cJSON *json, ngx_str_t *path)
{
    char      *end, name[256];
    u_char    *p, *last;
    long       n;
    size_t     len;
    cJSON     *item, *s;

    p = path->data;
    last = p + path->len;

    for ( ;; ) {

        while (p < last && *p == '/') {
            p++;
        }

        if (p == last) {
            return json;
        }

        for (len = 0; p + len < last && p[len] != '/'; len++) { /* void */ }

        if (len >= sizeof(name)) {
            return NULL;
        }

        ngx_memcpy(name, p, len);
        name[len] = '\0';
        p += len;

        if (!cJSON_IsArray(json)) {
            json = cJSON_GetObjectItemCaseSensitive(json, name);

        } else {
            n = strtol(name, &end, 10);

            if (*end == '\0' && n >= 0 && n <= NGX_MAX_INT32_VALUE) {
                json = cJSON_GetArrayItem(json, (int) n);

            } else {
                cJSON_ArrayForEach(item, json) {
                    s = cJSON_GetObjectItemCaseSensitive(item, "name");

                    if (cJSON_IsString(s)
                        && ngx_strcmp(s->valuestring, name) == 0)
                    {
                        break;
                    }
                }

                json = item;
            }
        }

        if (json == NULL) {
            return NULL;
        }
    }
}


static cJSON *
ngx_http_kvroute_json_all(ngx_http_request_t *r)
{
    cJSON                          *json, *zones, *upstreams, *receipts, *item;
    ngx_uint_t                      i;
    ngx_time_t                     *tp;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_fleet_t       *fleet;
    ngx_http_kvroute_main_conf_t   *kmcf;

    fleet = ngx_http_kvroute_fleet_read(r);
    if (fleet == NULL) {
        return NULL;
    }

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    tp = ngx_timeofday();

    json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "version", NGX_HTTP_KVROUTE_VERSION);
    cJSON_AddStringToObject(json, "nginx_version", NGINX_VERSION);
    cJSON_AddNumberToObject(json, "pid", ngx_pid);
    ngx_http_kvroute_json_time(json, "timestamp",
                               (uint64_t) tp->sec * 1000 + tp->msec);

    zones = cJSON_AddObjectToObject(json, "zones");
    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        item = ngx_http_kvroute_json_zone(zone[i]);

        cJSON_AddItemToObject(zones, (char *) zone[i]->name.data, item);
    }

    upstreams = cJSON_AddObjectToObject(json, "upstreams");

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        item = ngx_http_kvroute_json_upstream(&fleet[i]);

        cJSON_AddItemToObject(upstreams, (char *) fleet[i].name.data, item);
    }

    receipts = cJSON_AddArrayToObject(json, "receipts");

    for (i = 0; i < kmcf->zones.nelts; i++) {
        ngx_http_kvroute_json_receipts(receipts, zone[i]);
    }

    return json;
}


static cJSON *
ngx_http_kvroute_json_zone(ngx_http_kvroute_zone_t *zone)
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

    ngx_http_kvroute_json_number(json, "size", zone->shm_zone->shm.size);
    ngx_http_kvroute_json_number(json, "block", sh->unit * KVR_BLOCK);
    ngx_http_kvroute_json_number(json, "lines", sh->lines);
    cJSON_AddNumberToObject(json, "fill",
                            kvr_index_fill(sh->index, (uint64_t) ngx_random()));
    ngx_http_kvroute_json_number(json, "evicted",
                                 kvr_get(&sh->index->evicted));
    ngx_http_kvroute_json_number(json, "peers", peers);
    ngx_http_kvroute_json_number(json, "max_peers", sh->max_peers);
    ngx_http_kvroute_json_number(json, "processes", processes);
    ngx_http_kvroute_json_number(json, "max_processes", sh->processes);
    ngx_http_kvroute_json_number(json, "generation", sh->shm->generation);
    ngx_http_kvroute_json_time(json, "created", sh->created * 1000);

    ngx_http_kvroute_json_models(json, &sh->registry->models);

    return json;
}


/* how long tokens are, by what responses have told */
static void
ngx_http_kvroute_json_models(cJSON *json, kvr_models_t *models)
{
    cJSON        *list, *item;
    size_t        len;
    u_char        name[KVR_MODEL_NAME_LEN];
    ngx_uint_t    i;
    kvr_model_t  *model;

    list = cJSON_AddArrayToObject(json, "models");

    for (i = 0; i < KVR_MODELS; i++) {
        model = &models->model[i];
        len = kvr_model_name(model, name);

        if (len == 0 || kvr_model_bytes(model) == 0) {
            continue;
        }

        item = cJSON_CreateObject();
        cJSON_AddItemToArray(list, item);

        ngx_http_kvroute_json_string(item, "model", name, len);
        ngx_http_kvroute_json_number(item, "responses",
                                     kvr_get(&model->responses));
        cJSON_AddNumberToObject(item, "bytes_per_token",
                                kvr_model_bytes(model));
    }
}


/* the youngest first */
static void
ngx_http_kvroute_json_receipts(cJSON *list, ngx_http_kvroute_zone_t *zone)
{
    char             hash[17];
    cJSON           *json;
    uint64_t         last, n;
    kvr_peer_t      *peer;
    kvr_receipt_t    rc;
    kvr_upstream_t  *upstream;

    last = kvr_get(&zone->sh->receipts->last);

    for (n = last; n > 0 && n + NGX_HTTP_KVROUTE_RECEIPTS > last; n--) {

        if (kvr_receipt_get(zone->sh->receipts, n, &rc) != KVR_OK) {
            continue;
        }

        peer = &zone->sh->registry->peer[rc.peer % KVR_INDEX_PEERS];
        upstream = &zone->sh->registry->upstream[rc.upstream
                                                 % KVR_REGISTRY_UPSTREAMS];

        json = cJSON_CreateObject();

        ngx_http_kvroute_json_number(json, "number", rc.number);
        ngx_http_kvroute_json_time(json, "time", rc.time);
        ngx_http_kvroute_json_string(json, "zone", zone->name.data,
                                     zone->name.len);
        ngx_http_kvroute_json_string(json, "upstream", upstream->name,
                                     upstream->len);
        ngx_http_kvroute_json_string(json, "peer", peer->name, peer->len);
        cJSON_AddStringToObject(json, "policy",
                                kvr_policy_name((kvr_policy_e) rc.policy));
        cJSON_AddStringToObject(json, "reason",
                                kvr_reason_name((kvr_reason_e) rc.reason));

        (void) ngx_sprintf((u_char *) hash, "%016xL%Z", rc.hash);

        if (rc.hash) {
            cJSON_AddStringToObject(json, "prompt", hash);
        }

        ngx_http_kvroute_json_number(json, "prompt_bytes", rc.prompt);
        ngx_http_kvroute_json_number(json, "matched_bytes", rc.matched);
        ngx_http_kvroute_json_number(json, "best_bytes", rc.best);

        if (rc.ttft) {
            cJSON_AddNumberToObject(json, "ttft", (rc.ttft - 1) / 1e3);
            cJSON_AddBoolToObject(json, "stream", rc.stream);
        }

        cJSON_AddItemToArray(list, json);
    }
}


static cJSON *
ngx_http_kvroute_json_upstream(ngx_http_kvroute_fleet_t *fleet)
{
    cJSON                        *json, *list, *item;
    ngx_uint_t                    i;
    kvr_stats_t                  *stats;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = fleet->conf;

    json = cJSON_CreateObject();

    ngx_http_kvroute_json_string(json, "zone", conf->zone->name.data,
                                 conf->zone->name.len);
    cJSON_AddStringToObject(json, "policy",
                            kvr_policy_name(conf->policy.conf.policy));
    ngx_http_kvroute_json_number(json, "max_pending", conf->max_pending);
    ngx_http_kvroute_json_number(json, "shared_prefix",
                                 fleet->shared
                                     ? kvr_get(&fleet->shared->shared) : 0);

    item = ngx_http_kvroute_queue_json(conf);

    if (item) {
        cJSON_AddItemToObject(json, "queue", item);
    }

    cJSON_AddBoolToObject(json, "locked", fleet->locked != 0);

    list = cJSON_AddArrayToObject(json, "peers");

    for (i = 0; i < fleet->number; i++) {
        cJSON_AddItemToArray(list,
                             ngx_http_kvroute_json_peer(&fleet->peer[i]));
    }

    item = cJSON_AddObjectToObject(json, "decisions");

    for (i = 1; i < KVR_REASON_MAX; i++) {
        ngx_http_kvroute_json_number(item, kvr_reason_name((kvr_reason_e) i),
                                     fleet->reason[i]);
    }

    if (fleet->shared == NULL) {
        return json;
    }

    stats = &fleet->shared->stats;

    item = cJSON_AddObjectToObject(json, "policies");

    for (i = 0; i < KVR_POLICIES; i++) {
        ngx_http_kvroute_json_number(item, kvr_policy_name((kvr_policy_e) i),
                                     kvr_get(&stats->policy[i]));
    }

    cJSON_AddItemToObject(json, "ttft",
              ngx_http_kvroute_json_histograms(stats, KVR_STATS_TTFT,
                                               KVR_STATS_TTFT_WHOLE));
    cJSON_AddItemToObject(json, "ttft_stream",
              ngx_http_kvroute_json_histogram(stats, KVR_STATS_TTFT));
    cJSON_AddItemToObject(json, "ttft_whole",
              ngx_http_kvroute_json_histogram(stats, KVR_STATS_TTFT_WHOLE));
    cJSON_AddItemToObject(json, "decision_time",
              ngx_http_kvroute_json_histogram(stats, KVR_STATS_DECISION));
    cJSON_AddItemToObject(json, "matched_share",
              ngx_http_kvroute_json_histogram(stats, KVR_STATS_MATCHED));

    if (conf->queue) {
        cJSON_AddItemToObject(json, "queue_time",
                  ngx_http_kvroute_json_histogram(stats, KVR_STATS_QUEUE));
    }

    return json;
}


static cJSON *
ngx_http_kvroute_json_histogram(kvr_stats_t *stats, kvr_stats_e kind)
{
    return ngx_http_kvroute_json_histograms(stats, kind, kind);
}


/* of several kinds together; buckets as in Prometheus: each has those before */
static cJSON *
ngx_http_kvroute_json_histograms(kvr_stats_t *stats, kvr_stats_e first,
    kvr_stats_e last)
{
    char              name[32];
    cJSON            *json, *buckets;
    double            scale;
    uint32_t          i, n;
    uint64_t          count;
    const uint64_t   *bound;
    kvr_histogram_t   h;

    kvr_stats_sum(stats, first, last, &h);
    bound = kvr_stats_bounds(first, &n);
    scale = kvr_stats_scale(first);

    json = cJSON_CreateObject();
    buckets = cJSON_CreateObject();
    count = 0;

    for (i = 0; i <= n; i++) {
        count += kvr_get(&h.bucket[i]);

        if (i < n) {
            (void) snprintf(name, sizeof(name), "%g",
                            (double) bound[i] / scale);
        }

        ngx_http_kvroute_json_number(buckets, i < n ? name : "+Inf", count);
    }

    ngx_http_kvroute_json_number(json, "count", count);
    cJSON_AddNumberToObject(json, "sum", (double) kvr_get(&h.sum) / scale);
    cJSON_AddItemToObject(json, "buckets", buckets);

    return json;
}


static cJSON *
ngx_http_kvroute_json_peer(ngx_http_kvroute_fleet_peer_t *p)
{
    cJSON       *json, *item;
    uint64_t     total;
    ngx_uint_t   i;

    static const char  *classes[] = { "1xx", "2xx", "3xx", "4xx", "5xx" };

    _Static_assert(kvr_nelts(classes) == KVR_STATUS_CLASSES, "classes");

    json = cJSON_CreateObject();

    if (p->id != KVR_REGISTRY_NONE) {
        ngx_http_kvroute_json_number(json, "id", p->id);
    }

    ngx_http_kvroute_json_string(json, "server", p->server.data,
                                 p->server.len);
    ngx_http_kvroute_json_string(json, "name", p->name.data, p->name.len);
    cJSON_AddBoolToObject(json, "backup", p->backup != 0);
    ngx_http_kvroute_json_number(json, "weight", p->weight);
    cJSON_AddStringToObject(json, "state", p->state);
    ngx_http_kvroute_json_number(json, "active", p->active);
    ngx_http_kvroute_json_number(json, "max_conns", p->max_conns);
    ngx_http_kvroute_json_number(json, "conns", p->conns);

    if (p->id == KVR_REGISTRY_NONE) {
        return json;
    }

    ngx_http_kvroute_json_number(json, "pending", p->pending);
    ngx_http_kvroute_json_number(json, "active_all", p->all.active);
    ngx_http_kvroute_json_number(json, "pending_all", p->all.pending);
    ngx_http_kvroute_json_number(json, "unanswered_all", p->unanswered);
    ngx_http_kvroute_json_number(json, "requests", p->requests);

    item = cJSON_AddObjectToObject(json, "responses");
    total = 0;

    for (i = 0; i < KVR_STATUS_CLASSES; i++) {
        ngx_http_kvroute_json_number(item, classes[i], p->responses[i]);
        total += p->responses[i];
    }

    ngx_http_kvroute_json_number(item, "total", total);

    ngx_http_kvroute_json_number(json, "sent", p->sent);
    ngx_http_kvroute_json_number(json, "received", p->received);
    ngx_http_kvroute_json_number(json, "fails", p->fails);
    ngx_http_kvroute_json_number(json, "unavail", p->unavail);

    if (p->selected) {
        ngx_http_kvroute_json_time(json, "selected", p->selected * 1000);
    }

    if (p->headers) {
        ngx_http_kvroute_json_number(json, "header_time",
                                     p->header_ms / p->headers);
    }

    if (p->ends) {
        ngx_http_kvroute_json_number(json, "response_time",
                                     p->end_ms / p->ends);
    }

    item = cJSON_AddObjectToObject(json, "decisions");

    for (i = 1; i < KVR_REASON_MAX; i++) {
        if (p->reason[i]) {
            ngx_http_kvroute_json_number(item,
                                         kvr_reason_name((kvr_reason_e) i),
                                         p->reason[i]);
        }
    }

    ngx_http_kvroute_json_number(json, "prompt_bytes", p->prompt);
    ngx_http_kvroute_json_number(json, "matched_bytes", p->matched);
    ngx_http_kvroute_json_number(json, "best_bytes", p->best);

    ngx_http_kvroute_json_ttft(json, p);

    /* of late; by Little's law active and expected are the same in the mean */

    item = cJSON_AddObjectToObject(json, "load");

    if (p->prefill.rate > 0) {
        cJSON_AddNumberToObject(item, "prefill_rate", p->prefill.rate);
        cJSON_AddNumberToObject(item, "utilization", p->prefill.utilization);
    }

    cJSON_AddNumberToObject(item, "rate", p->prefill.ends);
    cJSON_AddNumberToObject(item, "latency", p->prefill.latency);
    cJSON_AddNumberToObject(item, "active", p->prefill.active);
    cJSON_AddNumberToObject(item, "active_expected", p->prefill.expected);

    ngx_http_kvroute_json_number(json, "capacity_bytes", p->capacity);
    cJSON_AddBoolToObject(json, "capacity_reported", p->reported != 0);

    ngx_http_kvroute_signal_status(json, p->conf, p->id);

    return json;
}


/* times to the first event, of all answers and of streams */
static void
ngx_http_kvroute_json_ttft(cJSON *json, ngx_http_kvroute_fleet_peer_t *p)
{
    uint64_t  n, ms;

    n = p->firsts[0] + p->firsts[1];
    ms = p->ttft[0] + p->ttft[1];

    if (n) {
        cJSON_AddNumberToObject(json, "ttft", (double) ms / (double) n / 1e3);
    }

    ngx_http_kvroute_json_number(json, "ttft_count", n);
    cJSON_AddNumberToObject(json, "ttft_sum", (double) ms / 1e3);

    n = p->firsts[1];
    ms = p->ttft[1];

    if (n) {
        cJSON_AddNumberToObject(json, "ttft_stream",
                                (double) ms / (double) n / 1e3);
    }

    ngx_http_kvroute_json_number(json, "ttft_stream_count", n);
    cJSON_AddNumberToObject(json, "ttft_stream_sum", (double) ms / 1e3);
}


static void
ngx_http_kvroute_json_number(cJSON *json, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(json, name, (double) value);
}


static void
ngx_http_kvroute_json_string(cJSON *json, const char *name,
    const u_char *data, size_t len)
{
    char    buf[KVR_REGISTRY_TITLE_LEN + 4];

    len = ngx_min(len, sizeof(buf) - 1);

    ngx_memcpy(buf, data, len);
    buf[len] = '\0';

    cJSON_AddStringToObject(json, name, buf);
}


/* as RFC 3339 has it, in UTC */
static void
ngx_http_kvroute_json_time(cJSON *json, const char *name, uint64_t ms)
{
    ngx_tm_t   tm;
    u_char     buf[sizeof("1970-09-28T12:00:00.000Z") + 8];

    ngx_gmtime((time_t) (ms / 1000), &tm);

    (void) ngx_sprintf(buf, "%4d-%02d-%02dT%02d:%02d:%02d.%03uLZ%Z",
                       tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                       tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec,
                       ms % 1000);

    cJSON_AddStringToObject(json, name, (char *) buf);
}
