
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What operators ask first, as JSON: is it working, and if not, why; what is
 * saved; which server is hot; what were the last ten minutes like.
 */


#include "status/ngx_http_kvroute_status.h"


/* no answer to so many probes in a row: what the engine said is old */
#define NGX_HTTP_KVROUTE_STALE_PROBES  5
#define NGX_HTTP_KVROUTE_STALE_TIME    10000

/* longer sentences are cut */
#define NGX_HTTP_KVROUTE_WHY_LEN       640


static uint64_t ngx_http_kvroute_health_alone(kvr_share_t *share);
static void ngx_http_kvroute_health_server(ngx_http_kvroute_status_peer_t *p,
    kvr_verdict_server_t *s);
static cJSON *ngx_http_kvroute_health_json(kvr_verdict_e state, cJSON *why);
static void ngx_http_kvroute_health_say(ngx_http_kvroute_status_upstream_t *u,
    kvr_verdict_why_t *why, u_char *text);
static u_char *ngx_http_kvroute_health_cap(u_char *p, u_char *last,
    ngx_http_kvroute_status_upstream_t *u);
static u_char *ngx_http_kvroute_health_load(u_char *p, u_char *last,
    ngx_http_kvroute_status_upstream_t *u);
static u_char *ngx_http_kvroute_health_names(u_char *p, u_char *last,
    ngx_http_kvroute_status_upstream_t *u, kvr_verdict_why_t *why);


ngx_int_t
ngx_http_kvroute_status_health(ngx_pool_t *pool,
    ngx_http_kvroute_status_upstream_t *u)
{
    ngx_uint_t               i;
    kvr_verdict_server_t    *server;
    kvr_verdict_upstream_t   upstream;

    u->verdict = ngx_palloc(pool, sizeof(kvr_verdict_t));
    server = ngx_pcalloc(pool, (u->number + 1) * sizeof(kvr_verdict_server_t));

    if (u->verdict == NULL || server == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < u->number; i++) {
        ngx_http_kvroute_health_server(&u->peer[i], &server[i]);
    }

    upstream.locked = (u->locked != 0);
    upstream.rejects = !u->shared ? 0
                       : kvr_history_rejects(u->conf->zone->sh->history,
                                         &u->conf->zone->core, u->conf->number,
                                         ngx_http_kvroute_zone_rejects(u->conf));

    upstream.alone = ngx_http_kvroute_health_alone(u->conf->zone->core.share);

    kvr_verdict(&upstream, server, (uint32_t) u->number, u->verdict);

    return NGX_OK;
}


/* seconds for which no batch of this host has come back, at least 1; or 0 */
static uint64_t
ngx_http_kvroute_health_alone(kvr_share_t *share)
{
    uint64_t  since;

    since = share ? kvr_get(&share->failing) : 0;

    return since ? kvr_share_since(since, (uint64_t) ngx_current_msec) / 1000
                   + 1
                 : 0;
}


static void
ngx_http_kvroute_health_server(ngx_http_kvroute_status_peer_t *p,
    kvr_verdict_server_t *s)
{
    uint64_t                old;
    kvr_history_minute_t   *minute;
    const kvr_zone_t       *zone;

    s->active = p->now.active;
    s->backup = (p->backup != 0);
    s->up = (ngx_strcmp(p->state, "up") == 0);
    s->planned = (ngx_strcmp(p->state, "draining") == 0
                  || ngx_strcmp(p->state, "drained") == 0
                  || ngx_strcmp(p->state, "down") == 0);
    s->uncounted = (p->id == KVR_REGISTRY_NONE);

    if (s->uncounted) {
        return;
    }

    zone = &p->conf->zone->core;
    minute = &p->minute;

    kvr_history_member(p->conf->zone->sh->history, zone, p->member, minute);

    s->requests = minute->requests;
    s->errors = minute->errors;
    s->firsts = minute->firsts;
    s->ttft = minute->ttft;

    if (p->conf->probe && (p->set & KVR_COUNTER_HEARD)) {
        old = ngx_max(NGX_HTTP_KVROUTE_STALE_PROBES * p->conf->probe->interval,
                      NGX_HTTP_KVROUTE_STALE_TIME);

        s->stale = (p->now.age > old);
    }
}


void
ngx_http_kvroute_status_json_minute(cJSON *json,
    ngx_http_kvroute_status_peer_t *p)
{
    cJSON  *item;

    item = cJSON_AddObjectToObject(json, "minute");

    cJSON_AddNumberToObject(item, "requests", (double) p->minute.requests);
    cJSON_AddNumberToObject(item, "errors", (double) p->minute.errors);
    cJSON_AddNumberToObject(item, "streams", (double) p->minute.firsts);

    if (p->minute.firsts) {
        cJSON_AddNumberToObject(item, "ttft_stream",
                                (double) p->minute.ttft
                                / (double) p->minute.firsts / 1e3);
    }
}


void
ngx_http_kvroute_status_json_health(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u)
{
    cJSON       *why;
    u_char       text[NGX_HTTP_KVROUTE_WHY_LEN];
    ngx_uint_t   i;

    why = cJSON_CreateArray();

    for (i = 0; i < u->verdict->n; i++) {
        ngx_http_kvroute_health_say(u, &u->verdict->why[i], text);
        cJSON_AddItemToArray(why, cJSON_CreateString((char *) text));
    }

    cJSON_AddItemToObject(json, "health",
                          ngx_http_kvroute_health_json(u->verdict->state, why));
}


/* of all upstreams: the worst state, and sentences that begin with a name */
void
ngx_http_kvroute_status_json_healths(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u, ngx_uint_t n)
{
    cJSON          *why;
    u_char         *p, text[KVR_REGISTRY_TITLE_LEN + 2
                            + NGX_HTTP_KVROUTE_WHY_LEN];
    ngx_uint_t      i, k;
    kvr_verdict_e   state, worst;

    worst = KVR_VERDICT_GREEN;
    why = cJSON_CreateArray();

    for (i = 0; i < n; i++) {
        worst = ngx_max(worst, u[i].verdict->state);
    }

    for (state = KVR_VERDICT_RED; state > KVR_VERDICT_GREEN; state--) {

        for (i = 0; i < n; i++) {

            for (k = 0; k < u[i].verdict->n; k++) {

                if (u[i].verdict->why[k].state != state) {
                    continue;
                }

                p = ngx_snprintf(text, KVR_REGISTRY_TITLE_LEN + 2, "%V: ",
                                 &u[i].name);
                ngx_http_kvroute_health_say(&u[i], &u[i].verdict->why[k], p);

                cJSON_AddItemToArray(why, cJSON_CreateString((char *) text));
            }
        }
    }

    cJSON_AddItemToObject(json, "health",
                          ngx_http_kvroute_health_json(worst, why));
}


static cJSON *
ngx_http_kvroute_health_json(kvr_verdict_e state, cJSON *why)
{
    cJSON  *json;

    json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "state", kvr_verdict_name(state));
    cJSON_AddItemToObject(json, "why", why);

    return json;
}


/* a reason as a sentence: addresses, states and numbers, nothing of clients */
static void
ngx_http_kvroute_health_say(ngx_http_kvroute_status_upstream_t *u,
    kvr_verdict_why_t *why, u_char *text)
{
    u_char     *p, *last;
    ngx_str_t  *name;

    p = text;
    last = text + NGX_HTTP_KVROUTE_WHY_LEN - 1;
    name = why->servers ? &u->peer[why->server[0]].name : NULL;

    switch (why->reason) {

    case KVR_VERDICT_LOCKED:
        p = ngx_slprintf(p, last, "the servers are locked: if for long, by a "
                         "process that was killed, see the error log");
        break;

    case KVR_VERDICT_NONE_UP:
        p = ngx_slprintf(p, last, "none of %uL servers is up%s", why->all,
                         why->n ? ": " : "");
        p = ngx_http_kvroute_health_names(p, last, u, why);
        break;

    case KVR_VERDICT_LOST:
        p = ngx_slprintf(p, last, "%uL of %uL servers not up: ", why->n,
                         why->all);
        p = ngx_http_kvroute_health_names(p, last, u, why);
        break;

    case KVR_VERDICT_FAILS:
        p = ngx_slprintf(p, last, "%V fails: %uD%% of its %uL requests in the "
                         "last minute, %uD%% of all requests", name,
                         why->percent, why->n, why->of_all);
        break;

    case KVR_VERDICT_REJECTED:
        p = ngx_slprintf(p, last, "%uD%% of requests rejected in the last "
                         "minute (%uL): ", why->percent, why->n);
        p = ngx_http_kvroute_health_cap(p, last, u);
        p = ngx_http_kvroute_health_load(p, last, u);
        break;

    case KVR_VERDICT_SLOW:
        p = ngx_slprintf(p, last, "%V is slow: first tokens after %.2f s, "
                         "elsewhere after %.2f s", name,
                         (double) why->n / 1e3, (double) why->all / 1e3);
        break;

    case KVR_VERDICT_HOT:
        p = ngx_slprintf(p, last, "%V is hot: %uL of %uL requests in flight",
                         name, why->n, why->all);
        break;

    case KVR_VERDICT_STALE:
        p = ngx_slprintf(p, last, "old metrics, as the probe fails: ");
        p = ngx_http_kvroute_health_names(p, last, u, why);
        break;

    case KVR_VERDICT_ALONE:
        p = ngx_slprintf(p, last, "nothing is shared with other hosts for %uL "
                         "s: see kvroute_share in the error log", why->n);
        break;

    case KVR_VERDICT_PLANNED:
        p = ngx_slprintf(p, last, "%uL of %uL servers taken out by hand: ",
                         why->n, why->all);
        p = ngx_http_kvroute_health_names(p, last, u, why);
        break;

    default: /* KVR_VERDICT_UNCOUNTED */
        p = ngx_slprintf(p, last, "%uL of %uL servers without counters, as the "
                         "zone is full: ", why->n, why->all);
        p = ngx_http_kvroute_health_names(p, last, u, why);
        break;
    }

    *p = '\0';
}


/* the cap that all servers are at */
static u_char *
ngx_http_kvroute_health_cap(u_char *p, u_char *last,
    ngx_http_kvroute_status_upstream_t *u)
{
    char                            *sep;
    ngx_uint_t                       i, max;
    kvr_queue_shared_t              *shared;
    ngx_http_kvroute_srv_conf_t     *conf;
    ngx_http_kvroute_status_peer_t  *s;

    conf = u->conf;
    shared = conf->queue->shm_zone->data;

    if (kvr_get(&shared->cap) == KVR_ADMISSION_TAKEN) {

        max = 0;

        for (i = 0; i < u->number; i++) {
            s = &u->peer[i];

            if (ngx_strcmp(s->state, "up") != 0) {
                continue;
            }

            if (max && s->max_conns != max) {
                return ngx_slprintf(p, last, "every server is at its "
                                    "max_conns");
            }

            max = s->max_conns;
        }

        return ngx_slprintf(p, last, "every server is at max_conns=%ui", max);
    }

    p = ngx_slprintf(p, last, "every server is at ");
    sep = "";

    if (conf->pool.target_ttft) {
        p = ngx_slprintf(p, last, "max_pending=auto (target_ttft=%uLms)",
                         conf->pool.target_ttft);
        sep = " or ";

    } else if (conf->pool.max_pending) {
        p = ngx_slprintf(p, last, "max_pending=%uL", conf->pool.max_pending);
        sep = " or ";
    }

    if (conf->pool.max_waiting >= 0) {
        p = ngx_slprintf(p, last, "%smax_waiting=%L", sep,
                         conf->pool.max_waiting);
        sep = " or ";
    }

    return *sep ? p : ngx_slprintf(p, last, "its cap");
}


/* the mean load of the servers, where it is known */
static u_char *
ngx_http_kvroute_health_load(u_char *p, u_char *last,
    ngx_http_kvroute_status_upstream_t *u)
{
    double                           load;
    ngx_uint_t                       i, n;
    ngx_http_kvroute_status_peer_t  *s;

    load = 0;

    for (i = 0, n = 0; i < u->number; i++) {
        s = &u->peer[i];

        if (s->set & KVR_COUNTER_RATED) {
            load += s->now.load.utilization;
            n++;
        }
    }

    return n ? ngx_slprintf(p, last, ", load is %ui%%",
                            (ngx_uint_t) (100 * load / (double) n))
             : p;
}


/* the first of them, with their states, and how many more there are */
static u_char *
ngx_http_kvroute_health_names(u_char *p, u_char *last,
    ngx_http_kvroute_status_upstream_t *u, kvr_verdict_why_t *why)
{
    ngx_uint_t                       i;
    ngx_http_kvroute_status_peer_t  *s;

    for (i = 0; i < why->servers; i++) {
        s = &u->peer[why->server[i]];

        p = ngx_slprintf(p, last, "%s%V", i ? ", " : "", &s->name);

        if (ngx_strcmp(s->state, "up") != 0) {
            p = ngx_slprintf(p, last, " (%s)", s->state);
        }
    }

    if (why->n > why->servers) {
        p = ngx_slprintf(p, last, " and %uL more", why->n - why->servers);
    }

    return p;
}


/*
 * What need not be computed, since the chosen server had it: tokens by the word
 * of the engines, or by bytes to a token where they do not tell; and seconds of
 * an engine, at the rate that each is seen to prefill.
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

    /* of another balancer's choice it is not counted */

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

    n = !u->shared ? 0 : kvr_history_samples(u->conf->zone->sh->history,
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
