
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status for Prometheus, second part: what engines said of themselves and
 * in their answers, and the queues.  What an engine has not said has no series.
 */


#include "ngx_http_kvroute_status.h"


typedef ngx_int_t (*ngx_http_kvroute_prom_signal_pt)(
    ngx_http_kvroute_fleet_peer_t *p, double *value);


typedef struct {
    const char                       *name;
    const char                       *type;
    const char                       *help;
    ngx_http_kvroute_prom_signal_pt   value;
} ngx_http_kvroute_prom_signal_t;


typedef struct {
    const char                       *reason;
    size_t                            offset;
} ngx_http_kvroute_prom_reject_t;


static void ngx_http_kvroute_prom_health(ngx_http_kvroute_prom_t *prom,
    ngx_str_t *labels);
static void ngx_http_kvroute_prom_classes(ngx_http_kvroute_prom_t *prom,
    const char *name, const char *help, size_t offset);


/* of answers */

static ngx_int_t
ngx_http_kvroute_prom_tokens(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = (double) kvr_get(&p->loop->prompt);
    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_prom_predicted(ngx_http_kvroute_fleet_peer_t *p,
    double *value)
{
    *value = (double) kvr_get(&p->loop->predicted);
    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_prom_delivered(ngx_http_kvroute_fleet_peer_t *p,
    double *value)
{
    *value = (double) kvr_get(&p->loop->delivered);
    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_prom_completion(ngx_http_kvroute_fleet_peer_t *p,
    double *value)
{
    *value = (double) kvr_get(&p->loop->completion);
    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_prom_flushes(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = (double) kvr_get(&p->loop->by_usage)
             + (double) kvr_get(&p->loop->by_probe);
    return NGX_OK;
}


/* of probes */

static ngx_int_t
ngx_http_kvroute_prom_probes(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = (double) kvr_get(&p->signal->asked);
    return p->conf->probe ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_kvroute_prom_failed(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = (double) kvr_get(&p->signal->failed);
    return p->conf->probe ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_kvroute_prom_age(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    uint64_t  now, time;

    now = (uint64_t) ngx_current_msec;
    time = kvr_get(&p->signal->time);

    *value = now > time ? (double) (now - time) / 1e3 : 0;

    return time ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_kvroute_prom_said(ngx_http_kvroute_fleet_peer_t *p, uint32_t what)
{
    return (kvr_get(&p->signal->time) && (kvr_get(&p->signal->set) & what))
           ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_kvroute_prom_running(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = (double) kvr_get(&p->signal->running);
    return ngx_http_kvroute_prom_said(p, KVR_METRICS_RUNNING);
}


static ngx_int_t
ngx_http_kvroute_prom_waiting(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = (double) kvr_get(&p->signal->waiting);
    return ngx_http_kvroute_prom_said(p, KVR_METRICS_WAITING);
}


static ngx_int_t
ngx_http_kvroute_prom_kv(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = (double) kvr_get(&p->signal->kv) / 10000;
    return ngx_http_kvroute_prom_said(p, KVR_METRICS_KV);
}


static ngx_int_t
ngx_http_kvroute_prom_engine_capacity(ngx_http_kvroute_fleet_peer_t *p,
    double *value)
{
    *value = (double) kvr_get(&p->signal->capacity);
    return ngx_http_kvroute_prom_said(p, KVR_METRICS_CAPACITY);
}


static ngx_int_t
ngx_http_kvroute_prom_preemptions(ngx_http_kvroute_fleet_peer_t *p,
    double *value)
{
    *value = (double) kvr_get(&p->signal->preemptions);
    return ngx_http_kvroute_prom_said(p, KVR_METRICS_PREEMPTIONS);
}


static ngx_int_t
ngx_http_kvroute_prom_pressed(ngx_http_kvroute_fleet_peer_t *p, double *value)
{
    *value = kvr_get(&p->signal->pressure) > (uint64_t) ngx_current_msec;
    return NGX_OK;
}


static ngx_http_kvroute_prom_signal_t  ngx_http_kvroute_prom_list[] = {

    { "kvroute_peer_prompt_tokens_total", "counter",
      "Tokens of prompts, in responses that tell of cached ones.",
      ngx_http_kvroute_prom_tokens },

    { "kvroute_peer_predicted_tokens_total", "counter",
      "Of these, tokens that were predicted to be cached.",
      ngx_http_kvroute_prom_predicted },

    { "kvroute_peer_delivered_tokens_total", "counter",
      "Of these, tokens that the engine had cached.",
      ngx_http_kvroute_prom_delivered },

    { "kvroute_peer_completion_tokens_total", "counter",
      "Tokens of answers, as engines count them.",
      ngx_http_kvroute_prom_completion },

    { "kvroute_peer_flushes_total", "counter",
      "Times the peer was found to have forgotten what it held.",
      ngx_http_kvroute_prom_flushes },

    { "kvroute_peer_pressed", "gauge",
      "1 while the engine is taken to be overloaded.",
      ngx_http_kvroute_prom_pressed },

    { "kvroute_peer_probes_total", "counter",
      "Times the engine was asked.", ngx_http_kvroute_prom_probes },

    { "kvroute_peer_probes_failed_total", "counter",
      "Times it gave no useful answer.", ngx_http_kvroute_prom_failed },

    { "kvroute_peer_engine_age_seconds", "gauge",
      "Time since the engine last said something.",
      ngx_http_kvroute_prom_age },

    { "kvroute_peer_engine_running_requests", "gauge",
      "Requests running in the engine, by its own word.",
      ngx_http_kvroute_prom_running },

    { "kvroute_peer_engine_waiting_requests", "gauge",
      "Requests waiting in the engine, by its own word.",
      ngx_http_kvroute_prom_waiting },

    { "kvroute_peer_engine_kv_usage_ratio", "gauge",
      "Share of the engine's KV memory in use, by its own word.",
      ngx_http_kvroute_prom_kv },

    { "kvroute_peer_engine_capacity_tokens", "gauge",
      "Tokens that the engine's KV memory holds, by its own word.",
      ngx_http_kvroute_prom_engine_capacity },

    { "kvroute_peer_engine_preemptions_total", "counter",
      "Requests that the engine had to start anew, by its own word.",
      ngx_http_kvroute_prom_preemptions },

    { NULL, NULL, NULL, NULL }
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

                if (p->signal == NULL || m->value(p, &value) != NGX_OK) {
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


static void
ngx_http_kvroute_prom_health(ngx_http_kvroute_prom_t *prom, ngx_str_t *labels)
{
    ngx_str_t                      *l;
    ngx_uint_t                      i, k, n, health;
    ngx_http_kvroute_fleet_peer_t  *p;

    static const char  *names[] = { "up", "starting", "down" };

    ngx_http_kvroute_prom_head(prom, "kvroute_peer_health", "gauge",
                               "1 for what the last health checks said.");

    for (i = 0, l = labels; i < prom->upstreams; i++) {
        for (k = 0; k < prom->fleet[i].number; k++, l++) {
            p = &prom->fleet[i].peer[k];

            if (p->signal == NULL || p->conf->health == NULL) {
                continue;
            }

            health = kvr_get(&p->signal->health);

            for (n = 0; n < 3; n++) {
                ngx_http_kvroute_prom_add(prom, "kvroute_peer_health{%V,"
                                          "health=\"%s\"} %d\n", l, names[n],
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
    kvr_queue_board_t               *board;
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
            board = queue->shm_zone->data;
            depth = kvr_queue_depth(board, k, now);

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
            board = queue->shm_zone->data;

            ngx_http_kvroute_prom_add(prom, "kvroute_queue_bytes"
                                      "{upstream=\"%V\"} %uL\n",
                                      &prom->names[i],
                                      kvr_queue_bytes(board, now));
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
            board = queue->shm_zone->data;

            for (r = rejects; r->reason; r++) {
                ngx_http_kvroute_prom_add(prom, "kvroute_queue_rejected_total"
                                          "{upstream=\"%V\",class=\"%ui\","
                                          "reason=\"%s\"} %uL\n",
                                          &prom->names[i], k, r->reason,
                                          kvr_get((_Atomic uint64_t *)
                                                  ((u_char *) &board->stats[k]
                                                   + r->offset)));
            }
        }
    }

    ngx_http_kvroute_prom_histogram(prom, KVR_STATS_QUEUE,
                                    "kvroute_queue_seconds",
                                    "Time that requests waited before they "
                                    "were let in.");
}


static void
ngx_http_kvroute_prom_classes(ngx_http_kvroute_prom_t *prom, const char *name,
    const char *help, size_t offset)
{
    ngx_uint_t                 i, k;
    kvr_queue_board_t         *board;
    ngx_http_kvroute_queue_t  *queue;

    ngx_http_kvroute_prom_head(prom, name, "counter", help);

    for (i = 0; i < prom->upstreams; i++) {
        queue = prom->fleet[i].conf->queue;

        for (k = 0; k < KVR_QUEUE_CLASSES && queue; k++) {
            board = queue->shm_zone->data;

            ngx_http_kvroute_prom_add(prom, "%s{upstream=\"%V\","
                                      "class=\"%ui\"} %uL\n", name,
                                      &prom->names[i], k,
                                      kvr_get((_Atomic uint64_t *)
                                              ((u_char *) &board->stats[k]
                                               + offset)));
        }
    }
}
