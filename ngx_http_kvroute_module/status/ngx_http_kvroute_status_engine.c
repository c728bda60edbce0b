
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The part of the status of a peer that engines have told: so that it can be
 * seen whether it is the workload, the routing or a stale index when caches are
 * not hit.
 */


#include "ngx_http_kvroute.h"

#include <cjson/cJSON.h>


static void ngx_http_kvroute_signal_number(cJSON *json, const char *name,
    uint64_t value);


void
ngx_http_kvroute_signal_status(void *data, ngx_http_kvroute_srv_conf_t *conf,
    uint32_t id)
{
    cJSON *json = data;

    cJSON           *item;
    uint32_t         set;
    uint64_t         now, time;
    kvr_feedback_t  *l;
    kvr_engine_t    *s;

    now = (uint64_t) ngx_current_msec;
    s = &conf->zone->sh->registry->peer[id].signal;
    l = &conf->zone->sh->registry->peer[id].feedback;

    if (conf->health) {
        cJSON_AddStringToObject(json, "health",
                                kvr_engine_health_name(kvr_get(&s->health)));

        item = cJSON_AddObjectToObject(json, "health_checks");

        ngx_http_kvroute_signal_number(item, "checks", kvr_get(&s->checks));
        ngx_http_kvroute_signal_number(item, "fails",
                                       kvr_get(&s->checks_failed));
        ngx_http_kvroute_signal_number(item, "unhealthy",
                                       kvr_get(&s->unhealthy));

        if (kvr_get(&s->checks)) {
            cJSON_AddBoolToObject(item, "last_passed",
                                  kvr_get(&s->last) == KVR_CHECK_PASS);
        }
    }

    cJSON_AddBoolToObject(json, "pressed", kvr_get(&s->pressure) > now);

    /* what the engine says; nothing of it if it has not said anything */

    set = kvr_engine_said(s, &time);

    if (conf->probe || time) {
        item = cJSON_AddObjectToObject(json, "engine");

        cJSON_AddStringToObject(item, "name",
                     kvr_engine_name((kvr_engine_e) kvr_get(&s->engine)));
        ngx_http_kvroute_signal_number(item, "probes", kvr_get(&s->asked));
        ngx_http_kvroute_signal_number(item, "failed", kvr_get(&s->failed));

        if (time) {
            ngx_http_kvroute_signal_number(item, "age_ms",
                                           now > time ? now - time : 0);
        }

        if (set & KVR_METRICS_RUNNING) {
            ngx_http_kvroute_signal_number(item, "running",
                                           kvr_get(&s->running));
            ngx_http_kvroute_signal_number(item, "foreign",
                                           kvr_get(&s->foreign));
        }

        if (set & KVR_METRICS_WAITING) {
            ngx_http_kvroute_signal_number(item, "waiting",
                                           kvr_get(&s->waiting));
        }

        if (set & KVR_METRICS_KV) {
            cJSON_AddNumberToObject(item, "kv_usage",
                                    (double) kvr_get(&s->kv) / 10000);
        }

        if (set & KVR_METRICS_CAPACITY) {
            ngx_http_kvroute_signal_number(item, "capacity_tokens",
                                           kvr_get(&s->capacity));
        }

        if (set & KVR_METRICS_QUERIES) {
            ngx_http_kvroute_signal_number(item, "cache_queries",
                                           kvr_get(&s->queries));
        }

        if (set & KVR_METRICS_HITS) {
            ngx_http_kvroute_signal_number(item, "cache_hits",
                                           kvr_get(&s->hits));
        }

        if (set & KVR_METRICS_PREEMPTIONS) {
            ngx_http_kvroute_signal_number(item, "preemptions",
                                           kvr_get(&s->preemptions));
            ngx_http_kvroute_signal_number(item, "cap", kvr_get(&s->cap));
        }

        if (set & KVR_METRICS_LORA) {
            ngx_http_kvroute_signal_number(item, "adapters",
                                           kvr_get(&s->loras));
            ngx_http_kvroute_signal_number(item, "max_adapters",
                                           kvr_get(&s->max_loras));
        }
    }

    item = cJSON_AddObjectToObject(json, "cache");

    ngx_http_kvroute_signal_number(item, "responses",
                                   kvr_get(&l->responses));
    ngx_http_kvroute_signal_number(item, "prompt_tokens",
                                   kvr_get(&l->prompt));
    ngx_http_kvroute_signal_number(item, "predicted_tokens",
                                   kvr_get(&l->predicted));
    ngx_http_kvroute_signal_number(item, "delivered_tokens",
                                   kvr_get(&l->delivered));
    ngx_http_kvroute_signal_number(item, "completion_tokens",
                                   kvr_get(&l->completion));
    ngx_http_kvroute_signal_number(item, "missed", kvr_get(&l->missed));
    ngx_http_kvroute_signal_number(item, "timed_held",
                                   kvr_get(&l->timed_held));
    ngx_http_kvroute_signal_number(item, "timed_lost",
                                   kvr_get(&l->timed_lost));
    ngx_http_kvroute_signal_number(item, "flushes_usage",
                                   kvr_get(&l->by_usage));
    ngx_http_kvroute_signal_number(item, "flushes_probe",
                                   kvr_get(&l->by_probe));
    cJSON_AddNumberToObject(item, "bytes_per_token", kvr_feedback_bytes(l));
    cJSON_AddNumberToObject(item, "capacity_factor", kvr_feedback_factor(l));
}


static void
ngx_http_kvroute_signal_number(cJSON *json, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(json, name, (double) value);
}
