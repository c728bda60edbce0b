
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status for Prometheus, second part: what engines said of themselves and
 * in their answers, and the queues.  What an engine has not said has no series.
 */


#include "status/ngx_http_kvroute_status.h"


/* where a number is */
typedef enum {
    NGX_HTTP_KVROUTE_PROM_ANSWERS = 0,      /* kvr_feedback_t */
    NGX_HTTP_KVROUTE_PROM_PROBE,            /* kvr_engine_t, if asked */
    NGX_HTTP_KVROUTE_PROM_HEALTH,           /* the same, if checked */
    NGX_HTTP_KVROUTE_PROM_ENGINE,           /* the same, if it said so */
    NGX_HTTP_KVROUTE_PROM_FLUSHES,          /* put together of several */
    NGX_HTTP_KVROUTE_PROM_PRESSED,
    NGX_HTTP_KVROUTE_PROM_AGE
} ngx_http_kvroute_prom_where_e;


typedef struct {
    const char                       *name;
    const char                       *type;
    const char                       *help;
    ngx_http_kvroute_prom_where_e     where;
    size_t                            offset;
    size_t                            size;
    uint32_t                          set;      /* KVR_METRICS_... */
    double                            scale;
} ngx_http_kvroute_prom_signal_t;


typedef struct {
    const char                       *reason;
    size_t                            offset;
} ngx_http_kvroute_prom_reject_t;


static ngx_int_t ngx_http_kvroute_prom_value(
    ngx_http_kvroute_prom_signal_t *m, ngx_http_kvroute_fleet_peer_t *p,
    double *value);
static void ngx_http_kvroute_prom_health(ngx_http_kvroute_prom_t *prom,
    ngx_str_t *labels);
static void ngx_http_kvroute_prom_classes(ngx_http_kvroute_prom_t *prom,
    const char *name, const char *help, size_t offset);


#define ngx_http_kvroute_prom_in(type, field)                                 \
    offsetof(type, field), sizeof(((type *) 0)->field)


static ngx_http_kvroute_prom_signal_t  ngx_http_kvroute_prom_list[] = {

    { "kvroute_peer_prompt_tokens_total", "counter",
      "Tokens of prompts, in responses that tell of cached ones.",
      NGX_HTTP_KVROUTE_PROM_ANSWERS,
      ngx_http_kvroute_prom_in(kvr_feedback_t, prompt), 0, 1 },

    { "kvroute_peer_predicted_tokens_total", "counter",
      "Of these, tokens that were predicted to be cached.",
      NGX_HTTP_KVROUTE_PROM_ANSWERS,
      ngx_http_kvroute_prom_in(kvr_feedback_t, predicted), 0, 1 },

    { "kvroute_peer_delivered_tokens_total", "counter",
      "Of these, tokens that the engine had cached.",
      NGX_HTTP_KVROUTE_PROM_ANSWERS,
      ngx_http_kvroute_prom_in(kvr_feedback_t, delivered), 0, 1 },

    { "kvroute_peer_completion_tokens_total", "counter",
      "Tokens of answers, as engines count them.",
      NGX_HTTP_KVROUTE_PROM_ANSWERS,
      ngx_http_kvroute_prom_in(kvr_feedback_t, completion), 0, 1 },

    { "kvroute_peer_flushes_total", "counter",
      "Times the peer was found to have forgotten what it held.",
      NGX_HTTP_KVROUTE_PROM_FLUSHES, 0, 0, 0, 1 },

    { "kvroute_peer_pressed", "gauge",
      "1 while the engine is taken to be overloaded.",
      NGX_HTTP_KVROUTE_PROM_PRESSED, 0, 0, 0, 1 },

    { "kvroute_peer_probes_total", "counter",
      "Times the engine was asked.",
      NGX_HTTP_KVROUTE_PROM_PROBE,
      ngx_http_kvroute_prom_in(kvr_engine_t, asked), 0, 1 },

    { "kvroute_peer_probes_failed_total", "counter",
      "Times it gave no useful answer.",
      NGX_HTTP_KVROUTE_PROM_PROBE,
      ngx_http_kvroute_prom_in(kvr_engine_t, failed), 0, 1 },

    { "kvroute_peer_health_checks_total", "counter",
      "Checks of health.",
      NGX_HTTP_KVROUTE_PROM_HEALTH,
      ngx_http_kvroute_prom_in(kvr_engine_t, checks), 0, 1 },

    { "kvroute_peer_health_checks_failed_total", "counter",
      "Checks of health that failed.",
      NGX_HTTP_KVROUTE_PROM_HEALTH,
      ngx_http_kvroute_prom_in(kvr_engine_t, checks_failed), 0, 1 },

    { "kvroute_peer_unhealthy_total", "counter",
      "Times the peer was found down by checks.",
      NGX_HTTP_KVROUTE_PROM_HEALTH,
      ngx_http_kvroute_prom_in(kvr_engine_t, unhealthy), 0, 1 },

    { "kvroute_peer_engine_age_seconds", "gauge",
      "Time since the engine last said something.",
      NGX_HTTP_KVROUTE_PROM_AGE, 0, 0, 0, 1 },

    { "kvroute_peer_engine_running_requests", "gauge",
      "Requests running in the engine, by its own word.",
      NGX_HTTP_KVROUTE_PROM_ENGINE,
      ngx_http_kvroute_prom_in(kvr_engine_t, running), KVR_METRICS_RUNNING, 1 },

    { "kvroute_peer_engine_waiting_requests", "gauge",
      "Requests waiting in the engine, by its own word.",
      NGX_HTTP_KVROUTE_PROM_ENGINE,
      ngx_http_kvroute_prom_in(kvr_engine_t, waiting), KVR_METRICS_WAITING, 1 },

    { "kvroute_peer_engine_kv_usage_ratio", "gauge",
      "Share of the engine's KV memory in use, by its own word.",
      NGX_HTTP_KVROUTE_PROM_ENGINE,
      ngx_http_kvroute_prom_in(kvr_engine_t, kv), KVR_METRICS_KV, 10000 },

    { "kvroute_peer_engine_capacity_tokens", "gauge",
      "Tokens that the engine's KV memory holds, by its own word.",
      NGX_HTTP_KVROUTE_PROM_ENGINE,
      ngx_http_kvroute_prom_in(kvr_engine_t, capacity),
      KVR_METRICS_CAPACITY, 1 },

    { "kvroute_peer_engine_preemptions_total", "counter",
      "Requests that the engine had to start anew, by its own word.",
      NGX_HTTP_KVROUTE_PROM_ENGINE,
      ngx_http_kvroute_prom_in(kvr_engine_t, preemptions),
      KVR_METRICS_PREEMPTIONS, 1 },

    { NULL, NULL, NULL, 0, 0, 0, 0, 0 }
};


void
ngx_http_kvroute_prom_signals(ngx_http_kvroute_prom_t *prom,
    ngx_str_t *labels)
{
    double                           value;
    ngx_str_t                       *l;
    ngx_uint_t                       i, k;
    ngx_http_kvroute_fleet_peer_t   *p;
    ngx_http_kvroute_prom_signal_t  *m;

    ngx_http_kvroute_prom_health(prom, labels);

    for (m = ngx_http_kvroute_prom_list; m->name; m++) {

        ngx_http_kvroute_prom_head(prom, m->name, m->type, m->help);

        for (i = 0, l = labels; i < prom->upstreams; i++) {
            for (k = 0; k < prom->fleet[i].number; k++, l++) {
                p = &prom->fleet[i].peer[k];

                /* one that has no counters has told nothing either */

                if (p->signal == NULL
                    || ngx_http_kvroute_prom_value(m, p, &value) != NGX_OK)
                {
                    continue;
                }

                ngx_http_kvroute_prom_add(prom, value == (uint64_t) value
                                                ? "%s{%V} %.0f\n"
                                                : "%s{%V} %.4f\n",
                                          m->name, l, value);
            }
        }
    }
}


/* NGX_DECLINED: there is none */
static ngx_int_t
ngx_http_kvroute_prom_value(ngx_http_kvroute_prom_signal_t *m,
    ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    u_char    *base;
    uint32_t   set;
    uint64_t   now, time;

    now = (uint64_t) ngx_current_msec;
    set = kvr_engine_said(p->signal, &time);

    switch (m->where) {

    case NGX_HTTP_KVROUTE_PROM_FLUSHES:
        *value = (double) kvr_get(&p->feedback->by_usage)
                 + (double) kvr_get(&p->feedback->by_probe);
        return NGX_OK;

    case NGX_HTTP_KVROUTE_PROM_PRESSED:
        *value = kvr_get(&p->signal->pressure) > now;
        return NGX_OK;

    case NGX_HTTP_KVROUTE_PROM_AGE:
        *value = now > time ? (double) (now - time) / 1e3 : 0;
        return time ? NGX_OK : NGX_DECLINED;

    case NGX_HTTP_KVROUTE_PROM_PROBE:
        if (p->conf->probe == NULL) {
            return NGX_DECLINED;
        }

        break;

    case NGX_HTTP_KVROUTE_PROM_HEALTH:
        if (p->conf->health == NULL) {
            return NGX_DECLINED;
        }

        break;

    case NGX_HTTP_KVROUTE_PROM_ENGINE:
        if (!(set & m->set)) {
            return NGX_DECLINED;
        }

        break;

    default: /* NGX_HTTP_KVROUTE_PROM_ANSWERS */
        break;
    }

    base = m->where == NGX_HTTP_KVROUTE_PROM_ANSWERS ? (u_char *) p->feedback
                                                     : (u_char *) p->signal;
    base += m->offset;

    *value = m->size == sizeof(uint64_t)
             ? (double) kvr_get((_Atomic uint64_t *) base)
             : (double) kvr_get((_Atomic uint32_t *) base);
    *value /= m->scale;

    return NGX_OK;
}


static void
ngx_http_kvroute_prom_health(ngx_http_kvroute_prom_t *prom, ngx_str_t *labels)
{
    ngx_str_t                      *l;
    ngx_uint_t                      i, k, n, health;
    ngx_http_kvroute_fleet_peer_t  *p;

    ngx_http_kvroute_prom_head(prom, "kvroute_peer_health", "gauge",
                               "1 for what the last health checks said.");

    for (i = 0, l = labels; i < prom->upstreams; i++) {
        for (k = 0; k < prom->fleet[i].number; k++, l++) {
            p = &prom->fleet[i].peer[k];

            if (p->signal == NULL || p->conf->health == NULL) {
                continue;
            }

            health = kvr_get(&p->signal->health);

            for (n = 0; n < KVR_HEALTH_MAX; n++) {
                ngx_http_kvroute_prom_add(prom, "kvroute_peer_health{%V,"
                                          "health=\"%s\"} %d\n", l,
                                          kvr_engine_health_name(n),
                                          n == health);
            }
        }
    }
}


void
ngx_http_kvroute_prom_queues(ngx_http_kvroute_prom_t *prom)
{
    uint32_t                         depth, above;
    uint64_t                         now;
    ngx_uint_t                       i, k;
    kvr_queue_shared_t              *shared;
    ngx_http_kvroute_queue_t        *queue;
    ngx_http_kvroute_prom_reject_t  *r;

    static ngx_http_kvroute_prom_reject_t  rejects[] = {
        { "full", offsetof(kvr_queue_stats_t, full) },
        { "timeout", offsetof(kvr_queue_stats_t, timeouts) },
        { "deadline", offsetof(kvr_queue_stats_t, late) },
        { "shed", offsetof(kvr_queue_stats_t, shed) },
        { "aborted", offsetof(kvr_queue_stats_t, gone) },
        { NULL, 0 }
    };

    now = (uint64_t) ngx_current_msec;

    ngx_http_kvroute_prom_head(prom, "kvroute_queue_requests", "gauge",
                               "Requests that wait, by class.");

    for (i = 0; i < prom->upstreams; i++) {
        queue = prom->fleet[i].conf->queue;

        for (k = 0, above = 0; k < KVR_QUEUE_CLASSES && queue; k++) {
            shared = queue->shm_zone->data;
            depth = kvr_queue_depth(shared, k, now);

            ngx_http_kvroute_prom_add(prom, "kvroute_queue_requests"
                                      "{upstream=\"%V\",class=\"%ui\"} %uD\n",
                                      &prom->names[i], k,
                                      depth - ngx_min(above, depth));
            above = depth;
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_queue_max_requests", "gauge",
                               "Requests that may wait.");

    for (i = 0; i < prom->upstreams; i++) {
        queue = prom->fleet[i].conf->queue;

        if (queue) {
            ngx_http_kvroute_prom_add(prom, "kvroute_queue_max_requests"
                                      "{upstream=\"%V\"} %ui\n",
                                      &prom->names[i], queue->max);
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_queue_bytes", "gauge",
                               "Bytes of requests that wait.");

    for (i = 0; i < prom->upstreams; i++) {
        queue = prom->fleet[i].conf->queue;

        if (queue) {
            shared = queue->shm_zone->data;

            ngx_http_kvroute_prom_add(prom, "kvroute_queue_bytes"
                                      "{upstream=\"%V\"} %uL\n",
                                      &prom->names[i],
                                      kvr_queue_bytes(shared, now));
        }
    }

    ngx_http_kvroute_prom_classes(prom, "kvroute_queue_passed_total",
                                  "Requests that did not have to wait.",
                                  offsetof(kvr_queue_stats_t, passed));
    ngx_http_kvroute_prom_classes(prom, "kvroute_queue_waited_total",
                                  "Requests let in after waiting.",
                                  offsetof(kvr_queue_stats_t, waited));

    ngx_http_kvroute_prom_head(prom, "kvroute_queue_rejected_total", "counter",
                               "Requests that were not let in, by reason.");

    for (i = 0; i < prom->upstreams; i++) {
        queue = prom->fleet[i].conf->queue;

        for (k = 0; k < KVR_QUEUE_CLASSES && queue; k++) {
            shared = queue->shm_zone->data;

            for (r = rejects; r->reason; r++) {
                ngx_http_kvroute_prom_add(prom, "kvroute_queue_rejected_total"
                                          "{upstream=\"%V\",class=\"%ui\","
                                          "reason=\"%s\"} %uL\n",
                                          &prom->names[i], k, r->reason,
                                          kvr_get((_Atomic uint64_t *)
                                                  ((u_char *) &shared->stats[k]
                                                   + r->offset)));
            }
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_queue_seconds", "histogram",
                               "Time that requests waited before they were "
                               "let in.");
    ngx_http_kvroute_prom_histogram(prom, KVR_STATS_QUEUE,
                                    "kvroute_queue_seconds", "");
}


static void
ngx_http_kvroute_prom_classes(ngx_http_kvroute_prom_t *prom, const char *name,
    const char *help, size_t offset)
{
    ngx_uint_t                 i, k;
    kvr_queue_shared_t        *shared;
    ngx_http_kvroute_queue_t  *queue;

    ngx_http_kvroute_prom_head(prom, name, "counter", help);

    for (i = 0; i < prom->upstreams; i++) {
        queue = prom->fleet[i].conf->queue;

        for (k = 0; k < KVR_QUEUE_CLASSES && queue; k++) {
            shared = queue->shm_zone->data;

            ngx_http_kvroute_prom_add(prom, "%s{upstream=\"%V\","
                                      "class=\"%ui\"} %uL\n", name,
                                      &prom->names[i], k,
                                      kvr_get((_Atomic uint64_t *)
                                              ((u_char *) &shared->stats[k]
                                               + offset)));
        }
    }
}
