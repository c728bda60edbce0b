
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status as text for Prometheus.  Labels have bounded sets of values: names
 * of zones and upstreams, addresses of peers, policies, reasons and states.
 * Series of reasons appear with the first decision for that reason.
 */


#include "status/ngx_http_kvroute_status.h"


/* what a line takes at most, with all of its labels escaped */
#define NGX_HTTP_KVROUTE_PROM_LINE  2048
#define NGX_HTTP_KVROUTE_PROM_BUF   (32 * 1024)

/* what is no stream has the time of all of the answer */
#define NGX_HTTP_KVROUTE_PROM_STREAM  ",stream=\"true\""
#define NGX_HTTP_KVROUTE_PROM_WHOLE   ",stream=\"false\""


/* a word of ngx_http_kvroute_fleet_peer_t */
typedef struct {
    const char                 *name;
    const char                 *type;
    const char                 *help;
    size_t                      offset;
    ngx_uint_t                  fraction;   /* a double */
} ngx_http_kvroute_prom_peer_t;


/* times: how many, and ms of all of them */
typedef struct {
    const char                 *name;
    const char                 *help;       /* NULL: of the row above */
    const char                 *label;
    size_t                      count;
    size_t                      sum;
} ngx_http_kvroute_prom_summary_t;


static ngx_int_t ngx_http_kvroute_prom_label(ngx_pool_t *pool,
    ngx_str_t *dst, ngx_str_t *src);
static void ngx_http_kvroute_prom_zones(ngx_http_kvroute_prom_t *prom,
    ngx_http_kvroute_main_conf_t *kmcf);
static void ngx_http_kvroute_prom_upstreams(ngx_http_kvroute_prom_t *prom);
static void ngx_http_kvroute_prom_peers(ngx_http_kvroute_prom_t *prom);


#define ngx_http_kvroute_prom_at(field)                                       \
    offsetof(ngx_http_kvroute_fleet_peer_t, field)


static ngx_http_kvroute_prom_peer_t  ngx_http_kvroute_prom_metrics[] = {

    { "active_requests", "gauge",
      "Requests in flight.",
      ngx_http_kvroute_prom_at(active), 0 },

    { "pending_bytes", "gauge",
      "Prompt bytes sent and not yet prefilled.",
      ngx_http_kvroute_prom_at(pending), 0 },

    { "capacity_bytes", "gauge",
      "Prompt bytes that the peer's cache is taken to hold.",
      ngx_http_kvroute_prom_at(capacity), 0 },

    { "selected_timestamp_seconds", "gauge",
      "When the peer was last picked.",
      ngx_http_kvroute_prom_at(selected), 0 },

    { "requests_total", "counter",
      "Attempts sent to the peer.",
      ngx_http_kvroute_prom_at(requests), 0 },

    { "failures_total", "counter",
      "Attempts that failed.",
      ngx_http_kvroute_prom_at(fails), 0 },

    { "unavailable_total", "counter",
      "Times the peer was given up after failures.",
      ngx_http_kvroute_prom_at(unavail), 0 },

    { "sent_bytes_total", "counter",
      "Bytes sent to the peer, with headers.",
      ngx_http_kvroute_prom_at(sent), 0 },

    { "received_bytes_total", "counter",
      "Bytes received from the peer, with headers.",
      ngx_http_kvroute_prom_at(received), 0 },

    { "prompt_bytes_total", "counter",
      "Bytes of the prompts sent to the peer.",
      ngx_http_kvroute_prom_at(prompt), 0 },

    { "matched_bytes_total", "counter",
      "Bytes of these that the peer held, by the index.",
      ngx_http_kvroute_prom_at(matched), 0 },

    { "best_bytes_total", "counter",
      "Bytes of these that the best peer held; the rest is regret.",
      ngx_http_kvroute_prom_at(best), 0 },

    { "utilization_ratio", "gauge",
      "Prompt bytes given of late to those it can prefill; 0: not known.",
      ngx_http_kvroute_prom_at(prefill.utilization), 1 },

    { "active_mean_requests", "gauge",
      "Requests in flight, mean of late.",
      ngx_http_kvroute_prom_at(prefill.active), 1 },

    { "active_expected_requests", "gauge",
      "The same by Little's law: requests ended a second by their time.",
      ngx_http_kvroute_prom_at(prefill.expected), 1 },

    { NULL, NULL, NULL, 0, 0 }
};


static ngx_http_kvroute_prom_summary_t  ngx_http_kvroute_prom_summaries[] = {

    { "ttft_seconds", "Time to the first event of streams, or to the whole "
      "of other answers, by peer.", NGX_HTTP_KVROUTE_PROM_STREAM,
      ngx_http_kvroute_prom_at(firsts[1]), ngx_http_kvroute_prom_at(ttft[1]) },

    { "ttft_seconds", NULL, NGX_HTTP_KVROUTE_PROM_WHOLE,
      ngx_http_kvroute_prom_at(firsts[0]), ngx_http_kvroute_prom_at(ttft[0]) },

    { "header_seconds", "Time to the header of the response.", "",
      ngx_http_kvroute_prom_at(headers), ngx_http_kvroute_prom_at(header_ms) },

    { "response_seconds", "Time to the end of the response.", "",
      ngx_http_kvroute_prom_at(ends), ngx_http_kvroute_prom_at(end_ms) },

    { NULL, NULL, NULL, 0, 0 }
};


static uint64_t
ngx_http_kvroute_prom_word(ngx_http_kvroute_fleet_peer_t *p, size_t offset)
{
    return *(uint64_t *) ((u_char *) p + offset);
}


ngx_int_t
ngx_http_kvroute_status_prom(ngx_http_request_t *r)
{
    ngx_uint_t                     i;
    ngx_http_kvroute_prom_t        prom;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    ngx_memzero(&prom, sizeof(ngx_http_kvroute_prom_t));

    prom.pool = r->pool;
    prom.upstreams = kmcf->upstreams.nelts;
    prom.fleet = ngx_http_kvroute_fleet_read(r);
    prom.names = ngx_palloc(r->pool, (prom.upstreams + 1) * sizeof(ngx_str_t));

    if (prom.fleet == NULL || prom.names == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    for (i = 0; i < prom.upstreams; i++) {
        if (ngx_http_kvroute_prom_label(r->pool, &prom.names[i],
                                        &prom.fleet[i].name)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ngx_http_kvroute_prom_head(&prom, "kvroute_build_info", "gauge",
                               "Versions of the module and of nginx.");
    ngx_http_kvroute_prom_add(&prom, "kvroute_build_info{version=\"%s\","
                              "nginx_version=\"%s\"} 1\n",
                              NGX_HTTP_KVROUTE_VERSION, NGINX_VERSION);

    ngx_http_kvroute_prom_zones(&prom, kmcf);
    ngx_http_kvroute_prom_upstreams(&prom);
    ngx_http_kvroute_prom_queues(&prom);
    ngx_http_kvroute_prom_peers(&prom);

    if (prom.failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&r->headers_out.content_type,
                "text/plain; version=0.0.4; charset=utf-8");

    return ngx_http_kvroute_send_chain(r, NGX_HTTP_OK, prom.first);
}


void
ngx_http_kvroute_prom_add(ngx_http_kvroute_prom_t *prom, const char *fmt, ...)
{
    va_list       args;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    cl = prom->last;

    if (cl == NULL
        || cl->buf->end - cl->buf->last < NGX_HTTP_KVROUTE_PROM_LINE)
    {
        cl = ngx_alloc_chain_link(prom->pool);
        b = ngx_create_temp_buf(prom->pool, NGX_HTTP_KVROUTE_PROM_BUF);

        if (cl == NULL || b == NULL) {
            prom->failed = 1;
            return;
        }

        cl->buf = b;
        cl->next = NULL;

        if (prom->last) {
            prom->last->next = cl;

        } else {
            prom->first = cl;
        }

        prom->last = cl;
    }

    b = cl->buf;

    va_start(args, fmt);
    b->last = ngx_vslprintf(b->last, b->last + NGX_HTTP_KVROUTE_PROM_LINE, fmt,
                            args);
    va_end(args);
}


void
ngx_http_kvroute_prom_head(ngx_http_kvroute_prom_t *prom, const char *name,
    const char *type, const char *help)
{
    ngx_http_kvroute_prom_add(prom, "# HELP %s %s\n# TYPE %s %s\n",
                              name, help, name, type);
}


/* the value of a label */
static ngx_int_t
ngx_http_kvroute_prom_label(ngx_pool_t *pool, ngx_str_t *dst, ngx_str_t *src)
{
    u_char      *p;
    ngx_uint_t   i;

    p = ngx_pnalloc(pool, 2 * src->len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    dst->data = p;

    for (i = 0; i < src->len; i++) {

        switch (src->data[i]) {

        case '\\':
        case '"':
            *p++ = '\\';
            *p++ = src->data[i];
            break;

        case LF:
            *p++ = '\\';
            *p++ = 'n';
            break;

        default:
            *p++ = src->data[i];
        }
    }

    dst->len = p - dst->data;

    return NGX_OK;
}


static void
ngx_http_kvroute_prom_zones(ngx_http_kvroute_prom_t *prom,
    ngx_http_kvroute_main_conf_t *kmcf)
{
    double                     value;
    ngx_str_t                  name;
    ngx_uint_t                 i, k;
    ngx_http_kvroute_shctx_t  *sh;
    ngx_http_kvroute_zone_t  **zone;

    static const char  *metrics[][3] = {
        { "kvroute_zone_size_bytes", "gauge",
          "Size of the shared memory zone." },
        { "kvroute_index_lines", "gauge",
          "Lines of the zone's index." },
        { "kvroute_index_fill_ratio", "gauge",
          "Share of the index in use, by a sample." },
        { "kvroute_index_evictions_total", "counter",
          "Lines that were given to others while in use." }
    };

    zone = kmcf->zones.elts;

    for (k = 0; k < 4; k++) {

        ngx_http_kvroute_prom_head(prom, metrics[k][0], metrics[k][1],
                                   metrics[k][2]);

        for (i = 0; i < kmcf->zones.nelts; i++) {

            if (ngx_http_kvroute_prom_label(prom->pool, &name, &zone[i]->name)
                != NGX_OK)
            {
                prom->failed = 1;
                return;
            }

            sh = zone[i]->sh;

            if (k == 2) {
                value = kvr_index_fill(sh->index, (uint64_t) ngx_random());

                ngx_http_kvroute_prom_add(prom, "%s{zone=\"%V\"} %.6f\n",
                                          metrics[k][0], &name, value);
                continue;
            }

            ngx_http_kvroute_prom_add(prom, "%s{zone=\"%V\"} %uL\n",
                                      metrics[k][0], &name,
                                      k == 0 ? zone[i]->shm_zone->shm.size
                                      : k == 1 ? sh->lines
                                      : kvr_get(&sh->index->evicted));
        }
    }
}


static void
ngx_http_kvroute_prom_upstreams(ngx_http_kvroute_prom_t *prom)
{
    ngx_uint_t                 i, n;
    ngx_http_kvroute_fleet_t  *fleet;

    ngx_http_kvroute_prom_head(prom, "kvroute_policy_decisions_total",
                               "counter", "Decisions by policy.");

    for (i = 0; i < prom->upstreams; i++) {
        fleet = &prom->fleet[i];

        for (n = 0; n < KVR_POLICIES && fleet->shared; n++) {
            ngx_http_kvroute_prom_add(prom, "kvroute_policy_decisions_total"
                                      "{upstream=\"%V\",policy=\"%s\"} %uL\n",
                                      &prom->names[i],
                                      kvr_policy_name((kvr_policy_e) n),
                                      kvr_get(&fleet->shared
                                               ->stats.policy[n]));
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_shared_prefix_decisions_total",
                               "counter", "Decisions on prompts whose matched "
                               "part most prompts have.");

    for (i = 0; i < prom->upstreams; i++) {
        fleet = &prom->fleet[i];

        if (fleet->shared) {
            ngx_http_kvroute_prom_add(prom,
                                      "kvroute_shared_prefix_decisions_total"
                                      "{upstream=\"%V\"} %uL\n",
                                      &prom->names[i],
                                      kvr_get(&fleet->shared->shared));
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_ttft_seconds", "histogram",
                               "Time from the pick to the first event of a "
                               "stream, or to the whole of another answer, "
                               "with 2xx.");
    ngx_http_kvroute_prom_histogram(prom, KVR_STATS_TTFT,
                                    "kvroute_ttft_seconds",
                                    NGX_HTTP_KVROUTE_PROM_STREAM);
    ngx_http_kvroute_prom_histogram(prom, KVR_STATS_TTFT_WHOLE,
                                    "kvroute_ttft_seconds",
                                    NGX_HTTP_KVROUTE_PROM_WHOLE);

    ngx_http_kvroute_prom_head(prom, "kvroute_decision_seconds", "histogram",
                               "Time that a decision took, with reading of "
                               "the body.");
    ngx_http_kvroute_prom_histogram(prom, KVR_STATS_DECISION,
                                    "kvroute_decision_seconds", "");

    ngx_http_kvroute_prom_head(prom, "kvroute_matched_ratio", "histogram",
                               "Share of the prompt that the chosen peer "
                               "held.");
    ngx_http_kvroute_prom_histogram(prom, KVR_STATS_MATCHED,
                                    "kvroute_matched_ratio", "");
}


void
ngx_http_kvroute_prom_histogram(ngx_http_kvroute_prom_t *prom,
    kvr_stats_e kind, const char *name, const char *label)
{
    char              le[32];
    double            scale;
    uint32_t          n, bounds;
    uint64_t          count;
    ngx_uint_t        i;
    const uint64_t   *bound;
    kvr_histogram_t  *h;

    bound = kvr_stats_bounds(kind, &bounds);
    scale = kvr_stats_scale(kind);

    for (i = 0; i < prom->upstreams; i++) {

        if (prom->fleet[i].shared == NULL
            || (kind == KVR_STATS_QUEUE && prom->fleet[i].conf->queue == NULL))
        {
            continue;
        }

        h = &prom->fleet[i].shared->stats.histogram[kind];
        count = 0;

        for (n = 0; n <= bounds; n++) {
            count += kvr_get(&h->bucket[n]);

            if (n < bounds) {
                (void) snprintf(le, sizeof(le), "%g",
                                (double) bound[n] / scale);
            }

            ngx_http_kvroute_prom_add(prom, "%s_bucket{upstream=\"%V\"%s,"
                                      "le=\"%s\"} %uL\n", name,
                                      &prom->names[i], label,
                                      n < bounds ? le : "+Inf", count);
        }

        ngx_http_kvroute_prom_add(prom, "%s_sum{upstream=\"%V\"%s} %.9f\n"
                                  "%s_count{upstream=\"%V\"%s} %uL\n", name,
                                  &prom->names[i], label,
                                  (double) kvr_get(&h->sum) / scale, name,
                                  &prom->names[i], label, count);
    }
}


static void
ngx_http_kvroute_prom_peers(ngx_http_kvroute_prom_t *prom)
{
    u_char                         *labels, *p;
    ngx_str_t                       name, *all, *l;
    ngx_uint_t                      i, k, n, total;
    ngx_http_kvroute_fleet_t       *fleet;
    ngx_http_kvroute_fleet_peer_t  *peer;
    ngx_http_kvroute_prom_peer_t   *m;
    ngx_http_kvroute_prom_summary_t  *t;

    /* each peer's labels once */

    for (i = 0, total = 0; i < prom->upstreams; i++) {
        total += prom->fleet[i].number;
    }

    all = ngx_palloc(prom->pool, (total + 1) * sizeof(ngx_str_t));
    if (all == NULL) {
        prom->failed = 1;
        return;
    }

    for (i = 0, l = all; i < prom->upstreams; i++) {
        fleet = &prom->fleet[i];

        for (k = 0; k < fleet->number; k++, l++) {

            if (ngx_http_kvroute_prom_label(prom->pool, &name,
                                            &fleet->peer[k].name)
                != NGX_OK)
            {
                prom->failed = 1;
                return;
            }

            labels = ngx_pnalloc(prom->pool,
                                 sizeof("upstream=\"\",peer=\"\"")
                                 + prom->names[i].len + name.len);
            if (labels == NULL) {
                prom->failed = 1;
                return;
            }

            p = ngx_sprintf(labels, "upstream=\"%V\",peer=\"%V\"",
                            &prom->names[i], &name);

            l->data = labels;
            l->len = p - labels;
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_peer_state", "gauge",
                               "1 for the state that the peer is in.");

    for (i = 0, l = all; i < prom->upstreams; i++) {
        fleet = &prom->fleet[i];

        for (k = 0; k < fleet->number; k++, l++) {
            for (n = 0; ngx_http_kvroute_states[n]; n++) {
                ngx_http_kvroute_prom_add(prom, "kvroute_peer_state{%V,"
                                          "state=\"%s\"} %d\n", l,
                                          ngx_http_kvroute_states[n],
                                          fleet->peer[k].state
                                          == ngx_http_kvroute_states[n]);
            }
        }
    }

    for (m = ngx_http_kvroute_prom_metrics; m->name; m++) {

        ngx_http_kvroute_prom_add(prom, "# HELP kvroute_peer_%s %s\n"
                                  "# TYPE kvroute_peer_%s %s\n",
                                  m->name, m->help, m->name, m->type);

        for (i = 0, l = all; i < prom->upstreams; i++) {
            fleet = &prom->fleet[i];

            for (k = 0; k < fleet->number; k++, l++) {
                p = (u_char *) &fleet->peer[k] + m->offset;

                if (m->fraction) {
                    ngx_http_kvroute_prom_add(prom,
                                              "kvroute_peer_%s{%V} %.6f\n",
                                              m->name, l, *(double *) p);
                    continue;
                }

                ngx_http_kvroute_prom_add(prom, "kvroute_peer_%s{%V} %uL\n",
                                          m->name, l, *(uint64_t *) p);
            }
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_peer_responses_total", "counter",
                               "Responses by class of status.");

    for (i = 0, l = all; i < prom->upstreams; i++) {
        fleet = &prom->fleet[i];

        for (k = 0; k < fleet->number; k++, l++) {
            for (n = 0; n < KVR_STATUS_CLASSES; n++) {
                ngx_http_kvroute_prom_add(prom, "kvroute_peer_responses_total"
                                          "{%V,class=\"%uixx\"} %uL\n", l,
                                          n + 1, fleet->peer[k].responses[n]);
            }
        }
    }

    ngx_http_kvroute_prom_head(prom, "kvroute_decisions_total", "counter",
                               "Decisions for the peer by reason.");

    for (i = 0, l = all; i < prom->upstreams; i++) {
        fleet = &prom->fleet[i];

        for (k = 0; k < fleet->number; k++, l++) {
            for (n = 1; n < KVR_REASON_MAX; n++) {

                if (fleet->peer[k].reason[n] == 0) {
                    continue;
                }

                ngx_http_kvroute_prom_add(prom, "kvroute_decisions_total{%V,"
                                          "reason=\"%s\"} %uL\n", l,
                                          kvr_reason_name((kvr_reason_e) n),
                                          fleet->peer[k].reason[n]);
            }
        }
    }

    for (t = ngx_http_kvroute_prom_summaries; t->name; t++) {

        if (t->help) {
            ngx_http_kvroute_prom_add(prom, "# HELP kvroute_peer_%s %s\n"
                                      "# TYPE kvroute_peer_%s summary\n",
                                      t->name, t->help, t->name);
        }

        for (i = 0, l = all; i < prom->upstreams; i++) {
            fleet = &prom->fleet[i];

            for (k = 0; k < fleet->number; k++, l++) {
                peer = &fleet->peer[k];

                ngx_http_kvroute_prom_add(prom,
                                          "kvroute_peer_%s_sum{%V%s} %.3f\n"
                                          "kvroute_peer_%s_count{%V%s} %uL\n",
                                          t->name, l, t->label,
                                          (double) ngx_http_kvroute_prom_word(
                                              peer, t->sum) / 1e3,
                                          t->name, l, t->label,
                                          ngx_http_kvroute_prom_word(
                                              peer, t->count));
            }
        }
    }

    ngx_http_kvroute_prom_signals(prom, all);
}
