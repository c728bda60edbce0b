
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What operators ask first, as JSON: does it work, and if not, why; what does
 * kvroute save; what happened in the last ten minutes.
 */


#include "status/ngx_http_kvroute_status.h"


/* metrics are old after this many probes without an answer, and this time */
#define NGX_HTTP_KVROUTE_STALE_PROBES  5
#define NGX_HTTP_KVROUTE_STALE_TIME    10000

/* s, up for so long, and warmed up, a server gets its share */
#define NGX_HTTP_KVROUTE_STEADY        60


static void ngx_http_kvroute_health_server(ngx_http_kvroute_status_peer_t *p,
    kvr_verdict_server_t *s);
static void ngx_http_kvroute_health_since(ngx_http_kvroute_status_peer_t *p,
    kvr_verdict_server_t *s);
static const char *ngx_http_kvroute_health_reason(
    ngx_http_kvroute_status_peer_t *p);
static uint32_t ngx_http_kvroute_health_full(ngx_http_kvroute_zone_t *zone,
    double fill);
static cJSON *ngx_http_kvroute_health_json(cJSON *json, kvr_verdict_e state);
static cJSON *ngx_http_kvroute_health_why(ngx_http_kvroute_status_upstream_t *u,
    kvr_verdict_why_t *why);
static void ngx_http_kvroute_health_number(cJSON *json, const char *name,
    uint64_t n);
static void ngx_http_kvroute_health_caps(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);


const char  *ngx_http_kvroute_status_states[NGX_HTTP_KVROUTE_STATES] = {
    "up", "unavail", "draining", "drained", "down", "unhealthy", "checking",
    "ejected", "probed", "placeholder"
};


ngx_int_t
ngx_http_kvroute_status_health(ngx_pool_t *pool,
    ngx_http_kvroute_status_upstream_t *u)
{
    uint64_t                 since, now, rejects;
    ngx_uint_t               i;
    kvr_history_t           *history;
    const kvr_zone_t        *zone;
    kvr_united_t            *united;
    kvr_verdict_server_t    *server;
    kvr_verdict_upstream_t   upstream;

    u->verdict = ngx_palloc(pool, sizeof(kvr_verdict_t));
    server = ngx_pcalloc(pool, (u->number + 1) * sizeof(kvr_verdict_server_t));

    if (u->verdict == NULL || server == NULL) {
        return NGX_ERROR;
    }

    zone = &u->conf->zone->core;
    history = u->conf->zone->history;
    rejects = ngx_http_kvroute_zone_rejects(u->conf);

    for (i = 0; i < u->number; i++) {
        ngx_http_kvroute_health_server(&u->peer[i], &server[i]);
    }

    upstream.locked = (u->locked != 0);
    upstream.rejects = u->shared ? kvr_history_rejects(history, zone,
                                                     u->conf->number, rejects)
                                 : 0;

    /* seconds since sharing fails, at least 1; 0: it works */

    united = zone->united;
    since = united ? kvr_get(&united->failing) : 0;
    now = ngx_max((uint64_t) ngx_current_msec, since);

    upstream.alone = since ? (now - since) / 1000 + 1 : 0;

    kvr_verdict(&upstream, server, (uint32_t) u->number, u->verdict);

    if (u->shared) {
        kvr_history_upstream(history, zone, u->conf->number, rejects);
        kvr_since_causes(history, zone, u->conf->number, server, u->verdict,
                         (uint32_t) ngx_time());
        (void) ngx_http_kvroute_health_full(u->conf->zone,
                                            kvr_index_fill(zone->index,
                                                   (uint64_t) ngx_random()));
    }

    return NGX_OK;
}


/* Returns since when the index of a zone is full; 0: it is not. */
static uint32_t
ngx_http_kvroute_health_full(ngx_http_kvroute_zone_t *zone, double fill)
{
    return kvr_since_full(zone->history, fill,
                          kvr_get(&zone->core.index->evicted),
                          (uint32_t) ngx_time());
}


static void
ngx_http_kvroute_health_server(ngx_http_kvroute_status_peer_t *p,
    kvr_verdict_server_t *s)
{
    uint64_t           old;
    const kvr_zone_t  *zone;

    p->judged = s;

    s->active = p->now.active;
    s->backup = (p->backup != 0);
    s->weight = (uint32_t) p->weight;
    s->member = p->member;
    s->up = (p->state == NGX_HTTP_KVROUTE_STATE_UP);
    s->planned = (p->state == NGX_HTTP_KVROUTE_STATE_DRAINING
                  || p->state == NGX_HTTP_KVROUTE_STATE_DRAINED
                  || p->state == NGX_HTTP_KVROUTE_STATE_DOWN);
    s->uncounted = (p->id == KVR_REGISTRY_NONE);

    if (s->uncounted) {
        return;
    }

    zone = &p->conf->zone->core;

    kvr_history_member(p->conf->zone->history, zone, p->member, s);

    s->refuses = (p->conf->eject.on && p->now.ejected
                  && kvr_outlier_refusal((kvr_outlier_e) p->now.why));
    s->mute = p->now.mute;

    if (p->conf->probe && (p->set & KVR_COUNTER_REPORTS)) {
        old = ngx_max(NGX_HTTP_KVROUTE_STALE_PROBES * p->conf->probe->interval,
                      NGX_HTTP_KVROUTE_STALE_TIME);

        s->stale = (p->now.age > old);
    }

    ngx_http_kvroute_health_since(p, s);
    p->reason = ngx_http_kvroute_health_reason(p);
}


/* Finds since when a server has its state.  A half-open one is ejected. */
static void
ngx_http_kvroute_health_since(ngx_http_kvroute_status_peer_t *p,
    kvr_verdict_server_t *s)
{
    uint32_t                         now;
    ngx_http_kvroute_status_state_e  state;

    now = (uint32_t) ngx_time();
    state = p->state;

    if (state == NGX_HTTP_KVROUTE_STATE_PROBED) {
        state = NGX_HTTP_KVROUTE_STATE_EJECTED;
    }

    p->since = kvr_since_state(p->conf->zone->history,
                               &p->conf->zone->core, p->member, state, now);

    s->steady = (s->up && now - p->since >= NGX_HTTP_KVROUTE_STEADY
                                            + p->conf->pool.slow_start);
}


/*
 * Returns the last error that explains the state, or that clients got.  A 4xx
 * may be their own fault.
 */
static const char *
ngx_http_kvroute_health_reason(ngx_http_kvroute_status_peer_t *p)
{
    kvr_engine_t    *s;
    kvr_registry_t  *registry;

    registry = p->conf->zone->core.registry;
    s = &registry->peer[registry->peer[p->id].address].engine;

    switch (p->state) {

    case NGX_HTTP_KVROUTE_STATE_EJECTED:
    case NGX_HTTP_KVROUTE_STATE_PROBED:
        return kvr_outlier_name((kvr_outlier_e) p->now.why);

    case NGX_HTTP_KVROUTE_STATE_UNHEALTHY:
    case NGX_HTTP_KVROUTE_STATE_CHECKING:
        return kvr_fault_name(kvr_get(&s->check_fault));

    case NGX_HTTP_KVROUTE_STATE_UNAVAIL:
        break;

    case NGX_HTTP_KVROUTE_STATE_UP:

        if (p->now.mute) {
            return kvr_outlier_name(KVR_OUTLIER_SILENT);
        }

        if (p->judged->errors == 0) {
            return p->conf->probe ? kvr_fault_name(kvr_get(&s->probe_fault))
                                  : NULL;
        }

        break;

    default:
        return NULL;
    }

    return p->now.last == KVR_OUTLIER_NONE
           ? NULL : kvr_outlier_name((kvr_outlier_e) p->now.last);
}


/* Adds since when a server has its state, and the last error behind it. */
void
ngx_http_kvroute_status_json_since(cJSON *json,
    ngx_http_kvroute_status_peer_t *p)
{
    if (p->since) {
        ngx_http_kvroute_status_json_time(json, "since",
                                          (uint64_t) p->since * 1000);
    }

    if (p->reason) {
        cJSON_AddStringToObject(json, "reason", p->reason);
    }
}


/*
 * Adds when a zone was created, and since when its index is full.  fill: as it
 * stands in the same JSON.
 */
void
ngx_http_kvroute_status_json_ages(cJSON *json, ngx_http_kvroute_zone_t *zone,
    double fill)
{
    uint32_t  full;

    full = ngx_http_kvroute_health_full(zone, fill);

    ngx_http_kvroute_status_json_time(json, "created",
                                      zone->shm->created * 1000);

    if (full) {
        ngx_http_kvroute_status_json_time(json, "full_since",
                                          (uint64_t) full * 1000);
    }
}


void
ngx_http_kvroute_status_json_minute(cJSON *json,
    ngx_http_kvroute_status_peer_t *p)
{
    cJSON  *item;

    item = cJSON_AddObjectToObject(json, "minute");

    cJSON_AddNumberToObject(item, "requests", (double) p->judged->requests);
    cJSON_AddNumberToObject(item, "errors", (double) p->judged->errors);
    cJSON_AddNumberToObject(item, "errors_4xx", (double) p->judged->refused);
    cJSON_AddNumberToObject(item, "streams", (double) p->judged->firsts);

    if (p->judged->firsts) {
        cJSON_AddNumberToObject(item, "ttft_stream",
                                (double) p->judged->ttft
                                / (double) p->judged->firsts / 1e3);
    }

    if (p->judged->window) {
        cJSON_AddNumberToObject(item, "ttft_window",
                                (double) p->judged->window / 1e3);
    }
}


void
ngx_http_kvroute_status_json_health(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u)
{
    cJSON       *why;
    ngx_uint_t   i;

    why = ngx_http_kvroute_health_json(json, u->verdict->state);

    for (i = 0; i < u->verdict->n; i++) {
        cJSON_AddItemToArray(why, ngx_http_kvroute_health_why(u,
                                                     &u->verdict->why[i]));
    }
}


/* Adds the worst state of all upstreams, and each cause with its upstream. */
void
ngx_http_kvroute_status_json_healths(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u, ngx_uint_t n)
{
    cJSON              *why, *item;
    ngx_uint_t          i, k;
    kvr_verdict_e       state, worst;
    kvr_verdict_why_t  *w;

    worst = KVR_VERDICT_GREEN;

    for (i = 0; i < n; i++) {
        worst = ngx_max(worst, u[i].verdict->state);
    }

    why = ngx_http_kvroute_health_json(json, worst);

    for (state = worst; state > KVR_VERDICT_GREEN; state--) {

        for (i = 0; i < n; i++) {

            for (k = 0; k < u[i].verdict->n; k++) {
                w = &u[i].verdict->why[k];

                if (w->state == state) {
                    item = ngx_http_kvroute_health_why(&u[i], w);
                    cJSON_AddStringToObject(item, "upstream",
                                            (char *) u[i].name.data);
                    cJSON_AddItemToArray(why, item);
                }
            }
        }
    }
}


/* Adds "health" and returns the list of its causes. */
static cJSON *
ngx_http_kvroute_health_json(cJSON *json, kvr_verdict_e state)
{
    json = cJSON_AddObjectToObject(json, "health");

    cJSON_AddStringToObject(json, "state", kvr_verdict_name(state));

    return cJSON_AddArrayToObject(json, "why");
}


/*
 * Makes a cause of addresses, states and numbers; nothing comes from clients.
 */
static cJSON *
ngx_http_kvroute_health_why(ngx_http_kvroute_status_upstream_t *u,
    kvr_verdict_why_t *why)
{
    cJSON                           *json, *list, *item;
    ngx_uint_t                       i;
    const char                      *fault;
    kvr_outlier_e                    reason;
    const kvr_verdict_row_t         *row;
    ngx_http_kvroute_status_peer_t  *p;

    row = kvr_verdict_row(why->reason);
    json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "code", row->code);
    cJSON_AddStringToObject(json, "state", kvr_verdict_name(why->state));

    if (why->since) {
        ngx_http_kvroute_status_json_time(json, "since",
                                          (uint64_t) why->since * 1000);
    }

    ngx_http_kvroute_health_number(json, row->n, why->n);
    ngx_http_kvroute_health_number(json, row->all, why->all);
    ngx_http_kvroute_health_number(json, row->percent, why->percent);
    ngx_http_kvroute_health_number(json, row->of_all, why->of_all);

    list = why->servers ? cJSON_AddArrayToObject(json, "servers") : NULL;

    for (i = 0; i < why->servers; i++) {
        p = &u->peer[why->server[i]];

        item = cJSON_CreateObject();
        cJSON_AddItemToArray(list, item);

        ngx_http_kvroute_status_json_string(item, "name", p->name.data,
                                            p->name.len);
        cJSON_AddStringToObject(item, "state",
                                ngx_http_kvroute_status_states[p->state]);
        ngx_http_kvroute_status_json_since(item, p);
    }

    if (why->reason == KVR_VERDICT_REJECTS) {
        ngx_http_kvroute_health_caps(json, u);

    } else if (why->reason == KVR_VERDICT_REFUSES) {

        /* the status that the server is ejected for, or its last one */

        p = &u->peer[why->server[0]];
        reason = (kvr_outlier_e) (p->now.ejected ? p->now.why : p->now.refusal);

        cJSON_AddStringToObject(json, "status",
                                kvr_outlier_name(kvr_outlier_refusal(reason)
                                                 ? reason : KVR_OUTLIER_4XX));

    } else if (why->reason == KVR_VERDICT_ALONE) {
        fault = kvr_fault_name(kvr_get(&u->conf->zone->core.united->fault));

        if (fault) {
            cJSON_AddStringToObject(json, "reason", fault);
        }
    }

    return json;
}


static void
ngx_http_kvroute_health_number(cJSON *json, const char *name, uint64_t n)
{
    if (name) {
        cJSON_AddNumberToObject(json, name, (double) n);
    }
}


/*
 * Adds the caps that the servers are at, and their mean load if it is known.
 * If servers differ in max_conns the largest one is shown.
 */
static void
ngx_http_kvroute_health_caps(cJSON *json, ngx_http_kvroute_status_upstream_t *u)
{
    cJSON                           *caps;
    double                           load;
    ngx_uint_t                       i, n, max;
    kvr_queue_shared_t              *shared;
    ngx_http_kvroute_srv_conf_t     *conf;
    ngx_http_kvroute_status_peer_t  *p;

    load = 0;

    for (i = 0, n = 0, max = 0; i < u->number; i++) {
        p = &u->peer[i];

        max = ngx_max(max, p->max_conns);

        if (p->set & KVR_COUNTER_RATED) {
            load += p->now.load.utilization;
            n++;
        }
    }

    if (n) {
        cJSON_AddNumberToObject(json, "load", load / (double) n);
    }

    conf = u->conf;
    shared = conf->queue->shm_zone->data;
    caps = cJSON_AddObjectToObject(json, "caps");

    if (kvr_get(&shared->cap) == KVR_ADMISSION_TAKEN) {
        ngx_http_kvroute_health_number(caps, "max_conns", max);
        return;
    }

    if (conf->pool.target_ttft) {
        ngx_http_kvroute_health_number(caps, "target_ttft_ms",
                                       conf->pool.target_ttft);

    } else if (conf->pool.max_pending) {
        ngx_http_kvroute_health_number(caps, "max_pending",
                                       conf->pool.max_pending);
    }

    if (conf->pool.max_waiting >= 0) {
        ngx_http_kvroute_health_number(caps, "max_waiting",
                                       (uint64_t) conf->pool.max_waiting);
    }
}


/*
 * Adds the work saved because the chosen server had a part cached: in
 * tokens, by the engines' reports or else by bytes per token; in seconds, by
 * the measured prefill rate of each engine.
 */
void
ngx_http_kvroute_status_json_saved(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u)
{
    cJSON                           *item;
    double                           tokens, bytes, prompt, mean, seconds, n;
    double                           matched;
    ngx_uint_t                       i;
    ngx_http_kvroute_status_peer_t  *p;

    tokens = matched = prompt = mean = seconds = 0;

    for (i = 0; i < u->number; i++) {
        p = &u->peer[i];

        if (p->id == KVR_REGISTRY_NONE) {
            continue;
        }

        bytes = (double) kvr_get(&p->counted->matched);

        prompt += (double) kvr_get(&p->counted->prompt);
        mean += (double) kvr_get(&p->counted->mean);
        matched += bytes;

        n = (double) kvr_feedback_bytes(p->feedback);

        if (n > 0) {
            tokens += bytes / n;
        }

        if (p->now.load.rate > 0) {
            seconds += bytes / p->now.load.rate;
        }
    }

    item = cJSON_AddObjectToObject(json, "saved");

    cJSON_AddNumberToObject(item, "tokens", (double) (uint64_t) tokens);
    cJSON_AddNumberToObject(item, "seconds", (double) (uint64_t) seconds);
    cJSON_AddNumberToObject(item, "share", prompt > 0 ? matched / prompt : 0);

    /* the shadow does not count it */

    if (!u->conf->shadow) {
        cJSON_AddNumberToObject(item, "round_robin_share",
                                prompt > 0 ? mean / prompt : 0);
    }
}


void
ngx_http_kvroute_status_json_history(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u)
{
    cJSON                 *list, *item;
    uint32_t               i, n, p95;
    kvr_history_sample_t   s[KVR_HISTORY_SAMPLES];

    list = cJSON_AddArrayToObject(json, "history");

    n = !u->shared ? 0 : kvr_history_samples(u->conf->zone->history,
                                             &u->conf->zone->core,
                                             u->conf->number, s);

    for (i = 0; i < n; i++) {
        item = cJSON_CreateObject();
        cJSON_AddItemToArray(list, item);

        ngx_http_kvroute_status_json_time(item, "time",
                                          (uint64_t) kvr_get(&s[i].time)
                                          * 1000);
        cJSON_AddNumberToObject(item, "requests", kvr_get(&s[i].requests));
        cJSON_AddNumberToObject(item, "errors", kvr_get(&s[i].errors));
        cJSON_AddNumberToObject(item, "rejects", kvr_get(&s[i].rejects));
        cJSON_AddNumberToObject(item, "active", kvr_get(&s[i].active));

        p95 = kvr_get(&s[i].p95);

        if (p95) {
            cJSON_AddNumberToObject(item, "ttft_p50",
                                    kvr_get(&s[i].p50) / 1e3);
            cJSON_AddNumberToObject(item, "ttft_p95", p95 / 1e3);
        }

        if (kvr_get(&s[i].matched) != KVR_HISTORY_NONE) {
            cJSON_AddNumberToObject(item, "matched_share",
                                    kvr_get(&s[i].matched) / 1e4);
        }
    }
}
