
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status as JSON.  Names follow those of the API of NGINX Plus where they
 * mean the same.  A path selects a part: a member by its name, an element of a
 * list by its number, a peer by its address as well.
 */


#include "status/ngx_http_kvroute_status.h"


#define NGX_HTTP_KVROUTE_RECEIPTS  64   /* the last ones of each zone */


static cJSON *ngx_http_kvroute_json_all(ngx_http_request_t *r);
static cJSON *ngx_http_kvroute_json_find(cJSON *json, ngx_str_t *path);
static cJSON *ngx_http_kvroute_json_zone(ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_json_file(cJSON *json,
    ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_json_tally(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u, kvr_tally_kind_e kind);
static void ngx_http_kvroute_json_tally_one(cJSON *list, kvr_tally_kind_e kind,
    kvr_tally_view_t *view);
static void ngx_http_kvroute_json_receipts(cJSON *list,
    ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_json_resume(cJSON *json,
    const kvr_resume_t *resume);
static cJSON *ngx_http_kvroute_json_upstream(
    ngx_http_kvroute_status_upstream_t *u);
static void ngx_http_kvroute_json_names(cJSON *json, const char *member,
    ngx_array_t *names);
static cJSON *ngx_http_kvroute_json_peer(ngx_http_kvroute_status_peer_t *p);
static void ngx_http_kvroute_json_engine(cJSON *json,
    ngx_http_kvroute_status_peer_t *p);
static void ngx_http_kvroute_json_group(cJSON *json,
    kvr_counter_group_e group, ngx_http_kvroute_status_peer_t *p);
static void ngx_http_kvroute_json_ttft(cJSON *json, kvr_member_t *s);


ngx_int_t
ngx_http_kvroute_status_json(ngx_http_request_t *r, ngx_str_t *path)
{
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

    return ngx_http_kvroute_send_json(r, json, part);
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
    ngx_http_kvroute_status_upstream_t  *u;
    ngx_http_kvroute_srv_conf_t    *conf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    u = ngx_http_kvroute_status_snapshot(r->pool, r->connection->log);
    if (u == NULL) {
        return NULL;
    }

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    tp = ngx_timeofday();

    json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "version", NGX_HTTP_KVROUTE_VERSION);
    cJSON_AddStringToObject(json, "nginx_version", NGINX_VERSION);
    cJSON_AddNumberToObject(json, "pid", ngx_pid);
    ngx_http_kvroute_status_json_time(json, "timestamp",
                                      (uint64_t) tp->sec * 1000 + tp->msec);

    ngx_http_kvroute_status_json_healths(json, u, kmcf->upstreams.nelts);

    conf = ngx_http_get_module_srv_conf(r, ngx_http_kvroute_module);

    if (conf->api.len) {
        ngx_http_kvroute_status_json_string(json, "api", conf->api.data,
                                            conf->api.len);
    }

    zones = cJSON_AddObjectToObject(json, "zones");
    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        item = ngx_http_kvroute_json_zone(zone[i]);

        cJSON_AddItemToObject(zones, (char *) zone[i]->name.data, item);
    }

    upstreams = cJSON_AddObjectToObject(json, "upstreams");

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        item = ngx_http_kvroute_json_upstream(&u[i]);

        cJSON_AddItemToObject(upstreams, (char *) u[i].name.data, item);
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
    cJSON                               *json;
    const kvr_hook_t                    *hook;
    kvr_counter_zone_t                   z;
    const ngx_http_kvroute_extension_t  *ext;

    ngx_http_kvroute_status_snapshot_zone(zone, &z);

    json = cJSON_CreateObject();

    ngx_http_kvroute_status_json_rows(json, KVR_COUNTER_ZONE, &z, 0);
    ngx_http_kvroute_status_json_rows(json, KVR_COUNTER_INDEX, zone->core.index,
                                      0);
    ngx_http_kvroute_status_json_ages(json, zone, z.fill);

    ngx_http_kvroute_json_file(json, zone);

    for (hook = zone->core.hooks; hook; hook = hook->next) {
        ext = ngx_http_kvroute_extension(hook);

        if (ext->json) {
            ext->json(json, zone, hook->data);
        }
    }

    return json;
}


/* Adds the state of the snapshot file, if the zone has one. */
static void
ngx_http_kvroute_json_file(cJSON *json, ngx_http_kvroute_zone_t *zone)
{
    cJSON            *item;
    uint64_t          time;
    kvr_zone_file_t  *file;

    if (zone->snapshot == NULL) {
        return;
    }

    file = &zone->shm->file;
    item = cJSON_AddObjectToObject(json, "snapshot");

    ngx_http_kvroute_status_json_string(item, "file",
                                        zone->snapshot->file.data,
                                        zone->snapshot->file.len);
    ngx_http_kvroute_status_json_rows(item, KVR_COUNTER_FILE, file, 0);

    time = kvr_get(&file->time);

    if (time) {
        ngx_http_kvroute_status_json_time(item, "time", time * 1000);
    }
}


/* Adds counters by model or tenant; those without an entry come last. */
static void
ngx_http_kvroute_json_tally(cJSON *json, ngx_http_kvroute_status_upstream_t *u,
    kvr_tally_kind_e kind)
{
    cJSON             *list;
    uint32_t           i, n;
    kvr_tally_view_t   view[KVR_TALLY_ENTRIES + 1];

    list = cJSON_AddArrayToObject(json, kind == KVR_TALLY_MODEL ? "models"
                                                                : "tenants");
    if (u->shared == NULL) {
        return;
    }

    n = kvr_tally_list(u->conf->zone->core.registry->tally, kind,
                       u->conf->number, view);

    for (i = 0; i < n; i++) {
        ngx_http_kvroute_json_tally_one(list, kind, &view[i]);
    }
}


static void
ngx_http_kvroute_json_tally_one(cJSON *list, kvr_tally_kind_e kind,
    kvr_tally_view_t *view)
{
    cJSON               *item;
    uint64_t             n;
    kvr_tally_counts_t  *counts;

    counts = &view->counts;

    item = cJSON_CreateObject();
    cJSON_AddItemToArray(list, item);

    if (view->len) {
        ngx_http_kvroute_status_json_string(item, "name",
                                            (u_char *) view->name, view->len);

    } else {
        cJSON_AddBoolToObject(item, "other", 1);
    }

    ngx_http_kvroute_status_json_rows(item, KVR_COUNTER_MODEL + kind, counts,
                                      0);

    n = kvr_get(&counts->firsts);

    cJSON_AddNumberToObject(item, "ttft_stream_sum",
                            (double) kvr_get(&counts->ttft) / 1e3);

    if (n) {
        cJSON_AddNumberToObject(item, "ttft_stream",
                                (double) kvr_get(&counts->ttft) / (double) n
                                / 1e3);
    }
}


/* the newest first */
static void
ngx_http_kvroute_json_receipts(cJSON *list, ngx_http_kvroute_zone_t *zone)
{
    char             hash[33];
    cJSON           *json;
    uint64_t         last, n;
    ngx_uint_t       i;
    kvr_peer_t      *peer;
    kvr_receipt_t    rc;
    kvr_upstream_t  *upstream;

    static const char *const  tokens[] = { "prompt_tokens", "cached_tokens",
                                           "completion_tokens" };

    last = kvr_get(&zone->shm->receipts.last);

    for (n = last; n > 0 && n + NGX_HTTP_KVROUTE_RECEIPTS > last; n--) {

        if (kvr_receipt_get(&zone->shm->receipts, n, &rc) != KVR_OK) {
            continue;
        }

        peer = &zone->core.registry->peer[rc.peer % zone->max_peers];
        upstream = &zone->core.registry->upstream[rc.upstream
                                                 % KVR_REGISTRY_UPSTREAMS];

        json = cJSON_CreateObject();

        cJSON_AddNumberToObject(json, "number", rc.number);
        ngx_http_kvroute_status_json_time(json, "time", rc.time);
        ngx_http_kvroute_status_json_string(json, "zone", zone->name.data,
                                            zone->name.len);
        ngx_http_kvroute_status_json_string(json, "upstream", upstream->name,
                                            upstream->len);
        ngx_http_kvroute_status_json_string(json, "peer", peer->name,
                                            peer->len);
        cJSON_AddStringToObject(json, "policy",
                                kvr_policy_name((kvr_policy_e) rc.policy));
        cJSON_AddStringToObject(json, "reason",
                                kvr_reason_name((kvr_reason_e) rc.reason));

        if (rc.trace[0] || rc.trace[1]) {
            (void) ngx_sprintf((u_char *) hash, "%016xL%016xL%Z", rc.trace[0],
                               rc.trace[1]);
            cJSON_AddStringToObject(json, "trace_id", hash);
        }

        (void) ngx_sprintf((u_char *) hash, "%016xL%Z", rc.hash);

        if (rc.hash) {
            cJSON_AddStringToObject(json, "prompt", hash);
        }

        cJSON_AddNumberToObject(json, "prompt_bytes", rc.prompt);
        cJSON_AddNumberToObject(json, "matched_bytes", rc.matched);
        cJSON_AddNumberToObject(json, "best_bytes", rc.best);

        if (rc.ttft) {
            cJSON_AddNumberToObject(json, "ttft", (rc.ttft - 1) / 1e3);
            cJSON_AddBoolToObject(json, "stream", rc.stream);
        }

        if (rc.waited) {
            cJSON_AddNumberToObject(json, "queue_time", rc.waited / 1e3);
        }

        for (i = 0; i < kvr_nelts(rc.tokens); i++) {
            if (rc.tokens[i]) {
                cJSON_AddNumberToObject(json, tokens[i], rc.tokens[i] - 1.0);
            }
        }

        cJSON_AddItemToArray(list, json);
    }
}


/* Says where the prompts of a hybrid model resume. */
static void
ngx_http_kvroute_json_resume(cJSON *json, const kvr_resume_t *resume)
{
    char       text[128];
    cJSON     *item;
    uint32_t   step;

    step = kvr_resume_step(resume);

    if (step == 0) {
        return;
    }

    item = cJSON_AddObjectToObject(json, "resumes");

    (void) snprintf(text, sizeof(text), "this model resumes at multiples of %u "
                    "tokens; %.0f %% of the common prefix cannot be reused",
                    step, 100 * kvr_resume_lost(resume));

    cJSON_AddNumberToObject(item, "tokens", step);
    cJSON_AddNumberToObject(item, "lost_share", kvr_resume_lost(resume));
    cJSON_AddStringToObject(item, "text", text);
}


static cJSON *
ngx_http_kvroute_json_upstream(ngx_http_kvroute_status_upstream_t *u)
{
    void              *base;
    cJSON             *json, *list, *item;
    uint32_t           set;
    uint64_t           n;
    ngx_uint_t         i, k;
    kvr_stats_t       *stats;
    kvr_histogram_t    both;
    const kvr_hook_t  *hook;

    json = cJSON_CreateObject();

    ngx_http_kvroute_status_json_string(json, "zone", u->conf->zone->name.data,
                                        u->conf->zone->name.len);
    cJSON_AddStringToObject(json, "policy",
                            kvr_policy_name(u->conf->policy.kind));
    cJSON_AddNumberToObject(json, "max_pending", u->conf->max_pending);
    ngx_http_kvroute_json_names(json, "prefill", u->conf->prefill);
    ngx_http_kvroute_json_names(json, "decode", u->conf->decode);
    ngx_http_kvroute_status_json_health(json, u);
    ngx_http_kvroute_status_json_saved(json, u);
    ngx_http_kvroute_status_json_rows(json, KVR_COUNTER_UPSTREAM, u->shared,
                                      u->set);

    hook = u->shared ? u->conf->zone->core.hooks : NULL;

    for ( /* void */ ; hook; hook = hook->next) {
        set = 0;
        base = hook->call && hook->call->base
               ? hook->call->base(&u->conf->zone->core, hook->data,
                                  KVR_COUNTER_UPSTREAM, u->conf->number, &set)
               : NULL;

        if (base) {
            ngx_http_kvroute_status_json_table(json, hook->call->counters,
                                               hook->call->ncounters,
                                               KVR_COUNTER_UPSTREAM, base, set);
        }
    }

    item = ngx_http_kvroute_status_queue(u->conf);

    if (item) {
        cJSON_AddItemToObject(json, "queue", item);
    }

    if (u->shared) {
        ngx_http_kvroute_json_resume(json, &u->shared->resume);
        ngx_http_kvroute_status_whatif(json, u);
    }

    cJSON_AddBoolToObject(json, "locked", u->locked != 0);

    list = cJSON_AddArrayToObject(json, "peers");

    for (i = 0; i < u->number; i++) {
        cJSON_AddItemToArray(list, ngx_http_kvroute_json_peer(&u->peer[i]));
    }

    item = cJSON_AddObjectToObject(json, "decisions");

    for (i = 1; i < KVR_REASON_MAX; i++) {

        for (k = 0, n = 0; k < u->number; k++) {
            n += kvr_get(&u->peer[k].counted->reason[i]);
        }

        cJSON_AddNumberToObject(item, kvr_reason_name((kvr_reason_e) i), n);
    }

    ngx_http_kvroute_status_json_history(json, u);

    ngx_http_kvroute_json_tally(json, u, KVR_TALLY_MODEL);
    ngx_http_kvroute_json_tally(json, u, KVR_TALLY_TENANT);

    if (u->shared == NULL) {
        return json;
    }

    stats = &u->shared->stats;
    ngx_http_kvroute_status_json_rows(json, KVR_COUNTER_STATS, stats, u->set);

    kvr_stats_sum(stats, KVR_STATS_TTFT, KVR_STATS_TTFT_WHOLE, &both);
    cJSON_AddItemToObject(json, "ttft",
                          ngx_http_kvroute_status_json_histogram(&both,
                                                          KVR_STATS_TTFT));

    return json;
}


/* Adds names of other upstreams, if there are any. */
static void
ngx_http_kvroute_json_names(cJSON *json, const char *member,
    ngx_array_t *names)
{
    cJSON       *list;
    ngx_str_t  **name;
    ngx_uint_t   i;

    if (names == NULL) {
        return;
    }

    list = cJSON_AddArrayToObject(json, member);
    name = names->elts;

    for (i = 0; i < names->nelts; i++) {
        cJSON_AddItemToArray(list,
                             ngx_http_kvroute_status_json_text(name[i]->data,
                                                               name[i]->len));
    }
}


static cJSON *
ngx_http_kvroute_json_peer(ngx_http_kvroute_status_peer_t *p)
{
    cJSON  *json, *item;

    json = cJSON_CreateObject();

    if (p->id != KVR_REGISTRY_NONE) {
        cJSON_AddNumberToObject(json, "id", p->id);
    }

    ngx_http_kvroute_status_json_string(json, "server", p->server.data,
                                        p->server.len);
    ngx_http_kvroute_status_json_string(json, "name", p->name.data,
                                        p->name.len);
    cJSON_AddBoolToObject(json, "backup", p->backup != 0);
    cJSON_AddNumberToObject(json, "weight", p->weight);
    cJSON_AddStringToObject(json, "state",
                            ngx_http_kvroute_status_states[p->state]);
    cJSON_AddNumberToObject(json, "active", p->now.active);
    ngx_http_kvroute_status_json_since(json, p);

    if (p->ranks > 1) {
        cJSON_AddNumberToObject(json, "rank", p->rank);
    }

    cJSON_AddNumberToObject(json, "max_conns", p->max_conns);
    cJSON_AddNumberToObject(json, "conns", p->conns);

    if (p->id == KVR_REGISTRY_NONE) {
        return json;
    }

    ngx_http_kvroute_json_group(json, KVR_COUNTER_NOW, p);
    ngx_http_kvroute_json_group(json, KVR_COUNTER_MEMBER, p);
    ngx_http_kvroute_json_ttft(json, p->counted);
    ngx_http_kvroute_status_json_minute(json, p);

    if (p->conf->eject.on && p->now.ejected) {
        item = cJSON_AddObjectToObject(json, "ejected");

        cJSON_AddStringToObject(item, "reason",
                                kvr_outlier_name((kvr_outlier_e) p->now.why));
        cJSON_AddNumberToObject(item, "for", (double) p->now.until / 1e3);
    }

    item = cJSON_AddObjectToObject(json, "load");
    ngx_http_kvroute_json_group(item, KVR_COUNTER_LOAD, p);

    if (p->set & KVR_COUNTER_DRAINED) {
        item = cJSON_AddObjectToObject(json, "drain");
        ngx_http_kvroute_json_group(item, KVR_COUNTER_DRAIN, p);
    }

    cJSON_AddNumberToObject(json, "capacity_bytes", p->now.capacity);
    cJSON_AddStringToObject(json, "capacity_source",
                            kvr_capacity_source(p->now.source));

    if (p->now.gpu) {
        cJSON_AddNumberToObject(json, "gpu_bytes", p->now.gpu);
    }

    ngx_http_kvroute_json_engine(json, p);

    return json;
}


/* Adds values reported by the engine, in probes, checks and responses. */
static void
ngx_http_kvroute_json_engine(cJSON *json, ngx_http_kvroute_status_peer_t *p)
{
    cJSON                               *item;
    kvr_engine_t                        *s;
    const kvr_hook_t                    *hook;
    const ngx_http_kvroute_extension_t  *ext;

    s = p->engine;

    if (p->conf->health) {
        cJSON_AddStringToObject(json, "health",
                                kvr_engine_health_name(kvr_get(&s->health)));

        item = cJSON_AddObjectToObject(json, "health_checks");
        ngx_http_kvroute_json_group(item, KVR_COUNTER_HEALTH, p);

        if (kvr_get(&s->checks)) {
            cJSON_AddBoolToObject(item, "last_passed",
                                  kvr_get(&s->last) == KVR_CHECK_PASS);
        }
    }

    cJSON_AddBoolToObject(json, "pressed", p->now.throttled != 0);

    if (p->conf->probe || (p->set & KVR_COUNTER_REPORTS)) {
        item = cJSON_AddObjectToObject(json, "engine");

        cJSON_AddStringToObject(item, "name",
                     kvr_dialect(kvr_get(&s->engine))->name);

        if (p->set & KVR_COUNTER_REPORTS) {
            cJSON_AddNumberToObject(item, "age_ms", p->now.age);
        }

        ngx_http_kvroute_status_json_rows(item, KVR_COUNTER_ENGINE, s,
                                          p->set | KVR_COUNTER_PROBED);
    }

    for (hook = p->conf->zone->core.hooks; hook; hook = hook->next) {
        ext = ngx_http_kvroute_extension(hook);

        if (ext->json_peer) {
            ext->json_peer(json, p->conf, hook->data, p->id);
        }
    }

    item = cJSON_AddObjectToObject(json, "cache");
    ngx_http_kvroute_json_group(item, KVR_COUNTER_CACHE, p);

    cJSON_AddNumberToObject(item, "bytes_per_token",
                            kvr_feedback_bytes(p->feedback));
    cJSON_AddNumberToObject(item, "capacity_factor",
                            kvr_feedback_factor(p->feedback));
}


static void
ngx_http_kvroute_json_group(cJSON *json, kvr_counter_group_e group,
    ngx_http_kvroute_status_peer_t *p)
{
    ngx_http_kvroute_status_json_rows(json, group, p->base[group], p->set);
}


/* Adds times to the first event, of all responses and of streams. */
static void
ngx_http_kvroute_json_ttft(cJSON *json, kvr_member_t *s)
{
    uint64_t    n, ms;
    ngx_uint_t  i;

    static const char *const  names[2][3] = {
        { "ttft", "ttft_count", "ttft_sum" },
        { "ttft_stream", "ttft_stream_count", "ttft_stream_sum" }
    };

    for (i = 0; i < 2; i++) {
        n = kvr_get(&s->firsts[1]);
        ms = kvr_get(&s->ttft[1]);

        if (i == 0) {
            n += kvr_get(&s->firsts[0]);
            ms += kvr_get(&s->ttft[0]);
        }

        if (n) {
            cJSON_AddNumberToObject(json, names[i][0],
                                    (double) ms / (double) n / 1e3);
        }

        cJSON_AddNumberToObject(json, names[i][1], n);
        cJSON_AddNumberToObject(json, names[i][2], (double) ms / 1e3);
    }
}
