
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status as text for Prometheus.  Labels have bounded sets of values: names
 * of zones and upstreams, addresses of peers, policies, reasons and states,
 * models and tenants in the zone's table.  A reason has a series from the first
 * decision on; a value that an engine does not report has none.
 */


#include "status/ngx_http_kvroute_status.h"


/*
 * the owner of series: a zone; an upstream, a class of its queue, its model or
 * tenant, or a server
 */
typedef struct {
    ngx_str_t                            labels;
    const void                          *base[KVR_COUNTER_GROUPS];
    uint32_t                             set;   /* KVR_COUNTER_... that apply */

    /*
     * selects rows of extensions: KVR_COUNTER_ZONE, _UPSTREAM, _NOW, and of
     * which
     */

    ngx_http_kvroute_zone_t             *zone;
    kvr_counter_group_e                  of;
    uint32_t                             number;

    ngx_http_kvroute_queue_t            *queue;  /* of an upstream, or NULL */
    ngx_http_kvroute_status_peer_t      *peer;   /* or NULL */
    kvr_verdict_t                       *verdict;  /* of an upstream, or NULL */
    ngx_http_kvroute_status_peer_t      *servers;  /* of its causes */
    const kvr_resume_t                  *resume;   /* likewise */
    kvr_whatif_estimate_t              **whatif;   /* by change, or NULL */
    ngx_uint_t                           nservers;
} ngx_http_kvroute_prom_target_t;


static ngx_int_t ngx_http_kvroute_prom_zone(ngx_pool_t *pool,
    ngx_array_t *targets, ngx_http_kvroute_zone_t *zone);
static ngx_int_t ngx_http_kvroute_prom_upstream(ngx_pool_t *pool,
    ngx_array_t *targets, ngx_http_kvroute_status_upstream_t *u);
static ngx_int_t ngx_http_kvroute_prom_tally(ngx_pool_t *pool,
    ngx_array_t *targets, ngx_str_t *labels,
    ngx_http_kvroute_status_upstream_t *u, kvr_tally_kind_e kind);
static ngx_http_kvroute_prom_target_t *ngx_http_kvroute_prom_target(
    ngx_pool_t *pool, ngx_array_t *targets, ngx_str_t *more,
    const char *label, ngx_str_t *value);
static void ngx_http_kvroute_prom_rows(ngx_http_kvroute_status_prom_t *prom,
    ngx_array_t *targets, const kvr_counter_t *row, uint32_t rows,
    const kvr_hooks_t *hooks);
static const void *ngx_http_kvroute_prom_base(
    ngx_http_kvroute_prom_target_t *t, const kvr_counter_t *row,
    const kvr_hooks_t *hooks, uint32_t *set);
static void ngx_http_kvroute_prom_queues(ngx_http_kvroute_status_prom_t *prom,
    ngx_array_t *targets);
static void ngx_http_kvroute_prom_states(ngx_http_kvroute_status_prom_t *prom,
    ngx_array_t *targets);
static void ngx_http_kvroute_prom_cause(ngx_http_kvroute_status_prom_t *prom,
    ngx_http_kvroute_prom_target_t *t, kvr_verdict_why_t *why);
static void ngx_http_kvroute_prom_gauge(ngx_http_kvroute_status_prom_t *prom,
    const char *name, const char *help);
static void ngx_http_kvroute_prom_state(ngx_http_kvroute_status_prom_t *prom,
    const char *name, ngx_http_kvroute_prom_target_t *t, const char *label,
    const char *value, ngx_uint_t on);


static const char *const  ngx_http_kvroute_prom_types[] = {
    "counter", "counter", "gauge", "gauge", "gauge", "summary", "histogram"
};

_Static_assert(kvr_nelts(ngx_http_kvroute_prom_types) == KVR_COUNTER_TYPES,
               "types of Prometheus");


ngx_int_t
ngx_http_kvroute_status_prom(ngx_http_request_t *r)
{
    ngx_uint_t                            i;
    ngx_array_t                           targets;
    ngx_http_kvroute_zone_t             **zone;
    ngx_http_kvroute_main_conf_t         *kmcf;
    ngx_http_kvroute_status_prom_t        prom;
    ngx_http_kvroute_status_upstream_t   *u;
    const ngx_http_kvroute_extension_t  **ext;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    ngx_memzero(&prom, sizeof(ngx_http_kvroute_status_prom_t));
    prom.pool = r->pool;

    u = ngx_http_kvroute_status_snapshot(r->pool, r->connection->log);

    if (u == NULL
        || ngx_array_init(&targets, r->pool, 16,
                          sizeof(ngx_http_kvroute_prom_target_t))
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (ngx_http_kvroute_prom_zone(r->pool, &targets, zone[i]) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        if (ngx_http_kvroute_prom_upstream(r->pool, &targets, &u[i])
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ngx_http_kvroute_status_prom_head(&prom, "kvroute_build_info", "gauge",
                                      "Versions of the module and of nginx.");
    ngx_http_kvroute_status_prom_add(&prom, "kvroute_build_info{"
                                     "version=\"%s\",nginx_version=\"%s\"} 1\n",
                                     NGX_HTTP_KVROUTE_VERSION, NGINX_VERSION);

    ngx_http_kvroute_prom_queues(&prom, &targets);
    ngx_http_kvroute_prom_states(&prom, &targets);
    ngx_http_kvroute_prom_rows(&prom, &targets, kvr_counter_table,
                               kvr_counter_rows, NULL);

    ext = kmcf->extensions.elts;

    for (i = 0; i < kmcf->extensions.nelts; i++) {
        if (ext[i]->hooks) {
            ngx_http_kvroute_prom_rows(&prom, &targets, ext[i]->hooks->counters,
                                       ext[i]->hooks->ncounters, ext[i]->hooks);
        }

        if (ext[i]->prom) {
            ext[i]->prom(&prom, r->pool, kmcf);
        }
    }

    if (prom.failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&r->headers_out.content_type,
                "text/plain; version=0.0.4; charset=utf-8");

    return ngx_http_kvroute_send_chain(r, NGX_HTTP_OK, prom.first);
}


static ngx_int_t
ngx_http_kvroute_prom_zone(ngx_pool_t *pool, ngx_array_t *targets,
    ngx_http_kvroute_zone_t *zone)
{
    kvr_counter_zone_t              *z;
    ngx_http_kvroute_prom_target_t  *t;

    z = ngx_palloc(pool, sizeof(kvr_counter_zone_t));
    t = ngx_http_kvroute_prom_target(pool, targets, NULL, "zone",
                                     &zone->name);

    if (z == NULL || t == NULL) {
        return NGX_ERROR;
    }

    ngx_http_kvroute_status_snapshot_zone(zone, z);

    t->zone = zone;
    t->of = KVR_COUNTER_ZONE;
    t->base[KVR_COUNTER_ZONE] = z;
    t->base[KVR_COUNTER_INDEX] = zone->core.index;

    if (zone->snapshot) {
        t->base[KVR_COUNTER_FILE] = &zone->shm->file;
    }

    return NGX_OK;
}


/* Adds an upstream, the classes of its queue, its usage, and its servers. */
static ngx_int_t
ngx_http_kvroute_prom_upstream(ngx_pool_t *pool, ngx_array_t *targets,
    ngx_http_kvroute_status_upstream_t *u)
{
    u_char                           digit;
    ngx_str_t                        labels, class;
    ngx_uint_t                       i;
    kvr_queue_shared_t              *shared;
    ngx_http_kvroute_prom_target_t  *t;

    _Static_assert(KVR_QUEUE_CLASSES <= 10, "a class is a digit");

    t = ngx_http_kvroute_prom_target(pool, targets, NULL, "upstream",
                                     &u->name);
    if (t == NULL) {
        return NGX_ERROR;
    }

    if (u->shared) {
        t->base[KVR_COUNTER_UPSTREAM] = u->shared;
        t->base[KVR_COUNTER_STATS] = &u->shared->stats;
        t->resume = &u->shared->resume;
        t->whatif = ngx_http_kvroute_status_estimates(pool, u);
        t->zone = u->conf->zone;
        t->of = KVR_COUNTER_UPSTREAM;
        t->number = u->conf->number;
    }

    t->set = u->set;
    t->queue = u->conf->queue;
    t->verdict = u->verdict;
    t->servers = u->peer;
    t->nservers = u->number;
    labels = t->labels;

    for (i = 0; i < KVR_QUEUE_CLASSES && u->conf->queue; i++) {
        digit = (u_char) ('0' + i);
        class.data = &digit;
        class.len = 1;

        t = ngx_http_kvroute_prom_target(pool, targets, &labels, "class",
                                         &class);
        if (t == NULL) {
            return NGX_ERROR;
        }

        shared = u->conf->queue->shm_zone->data;
        t->base[KVR_COUNTER_QUEUE] = &shared->stats[i];
    }

    for (i = 0; i < KVR_TALLY_KINDS && u->shared; i++) {
        if (ngx_http_kvroute_prom_tally(pool, targets, &labels, u, i)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < u->number; i++) {
        t = ngx_http_kvroute_prom_target(pool, targets, &labels, "peer",
                                         &u->peer[i].name);
        if (t == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(t->base, u->peer[i].base, sizeof(t->base));
        t->set = u->peer[i].set | KVR_COUNTER_RATED;
        t->peer = &u->peer[i];

        if (u->peer[i].id != KVR_REGISTRY_NONE) {
            t->zone = u->conf->zone;
            t->of = KVR_COUNTER_NOW;
            t->number = u->peer[i].id;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_prom_tally(ngx_pool_t *pool, ngx_array_t *targets,
    ngx_str_t *labels, ngx_http_kvroute_status_upstream_t *u,
    kvr_tally_kind_e kind)
{
    uint32_t                         i, n;
    ngx_str_t                        name;
    kvr_tally_view_t                *view;
    ngx_http_kvroute_prom_target_t  *t;

    view = ngx_palloc(pool, (KVR_TALLY_ENTRIES + 1) * sizeof(kvr_tally_view_t));
    if (view == NULL) {
        return NGX_ERROR;
    }

    n = kvr_tally_list(u->conf->zone->core.registry->tally, kind,
                       u->conf->number, view);

    for (i = 0; i < n; i++) {
        name.data = (u_char *) view[i].name;
        name.len = view[i].len;

        t = ngx_http_kvroute_prom_target(pool, targets, labels,
                                         kind == KVR_TALLY_MODEL ? "model"
                                                                 : "tenant",
                                         &name);
        if (t == NULL) {
            return NGX_ERROR;
        }

        t->base[KVR_COUNTER_MODEL + kind] = &view[i].counts;
    }

    return NGX_OK;
}


/* Adds a target, with the label behind those of more, which may be NULL. */
static ngx_http_kvroute_prom_target_t *
ngx_http_kvroute_prom_target(ngx_pool_t *pool, ngx_array_t *targets,
    ngx_str_t *more, const char *label, ngx_str_t *value)
{
    u_char                          *p;
    ngx_str_t                        escaped;
    ngx_http_kvroute_prom_target_t  *t;

    t = ngx_array_push(targets);

    if (t == NULL
        || ngx_http_kvroute_status_prom_label(pool, &escaped, value) != NGX_OK)
    {
        return NULL;
    }

    ngx_memzero(t, sizeof(ngx_http_kvroute_prom_target_t));

    t->labels.data = ngx_pnalloc(pool, (more ? more->len : 0)
                                       + ngx_strlen(label) + escaped.len
                                       + sizeof(",=\"\""));
    if (t->labels.data == NULL) {
        return NULL;
    }

    p = t->labels.data;

    if (more) {
        p = ngx_sprintf(p, "%V,", more);
    }

    p = ngx_sprintf(p, "%s=\"%V\"", label, &escaped);

    t->labels.len = p - t->labels.data;

    return t;
}


static void
ngx_http_kvroute_prom_rows(ngx_http_kvroute_status_prom_t *prom,
    ngx_array_t *targets, const kvr_counter_t *row, uint32_t rows,
    const kvr_hooks_t *hooks)
{
    uint32_t                         set;
    ngx_uint_t                       i;
    const char                      *type;
    const void                      *base;
    ngx_http_kvroute_prom_target_t  *t;

    t = targets->elts;

    for ( /* void */ ; rows; rows--, row++) {

        if (row->metric == NULL) {
            continue;
        }

        if (row->help) {
            type = ngx_http_kvroute_prom_types[row->metric_type];

            ngx_http_kvroute_status_prom_head(prom, row->metric, type,
                                              row->help);
        }

        for (i = 0; i < targets->nelts; i++) {
            base = ngx_http_kvroute_prom_base(&t[i], row, hooks, &set);

            if (base && (row->needs & set) == row->needs) {
                ngx_http_kvroute_status_prom_row(prom, row, &t[i].labels, base);
            }
        }
    }
}


/*
 * Returns the structure that a row reads, or NULL; an extension's by its hooks.
 */
static const void *
ngx_http_kvroute_prom_base(ngx_http_kvroute_prom_target_t *t,
    const kvr_counter_t *row, const kvr_hooks_t *hooks, uint32_t *set)
{
    const kvr_hook_t  *hook;

    *set = t->set;

    if (hooks == NULL) {
        return t->base[row->group];
    }

    if (t->zone == NULL || t->of != row->group || hooks->base == NULL) {
        return NULL;
    }

    for (hook = t->zone->core.hooks; hook; hook = hook->next) {
        if (hook->call == hooks) {
            return hooks->base(&t->zone->core, hook->data, t->of, t->number,
                               set);
        }
    }

    return NULL;
}


static void
ngx_http_kvroute_prom_queues(ngx_http_kvroute_status_prom_t *prom,
    ngx_array_t *targets)
{
    uint32_t                         depth, above;
    uint64_t                         now;
    ngx_uint_t                       i, k;
    kvr_queue_shared_t              *shared;
    ngx_http_kvroute_prom_target_t  *t;

    now = (uint64_t) ngx_current_msec;
    t = targets->elts;

    ngx_http_kvroute_prom_gauge(prom, "kvroute_queue_requests",
                                "Waiting requests, by class.");

    for (i = 0; i < targets->nelts; i++) {
        for (k = 0, above = 0; k < KVR_QUEUE_CLASSES && t[i].queue; k++) {
            depth = kvr_queue_depth(t[i].queue->shm_zone->data, k, now);

            ngx_http_kvroute_status_prom_add(prom, "kvroute_queue_requests"
                                             "{%V,class=\"%ui\"} %uD\n",
                                             &t[i].labels, k,
                                             depth - ngx_min(above, depth));
            above = depth;
        }
    }

    for (k = 0; k < 2; k++) {

        ngx_http_kvroute_prom_gauge(prom, k ? "kvroute_queue_bytes"
                                            : "kvroute_queue_max_requests",
                                    k ? "Bytes of waiting requests."
                                      : "Maximum number of waiting requests.");

        for (i = 0; i < targets->nelts; i++) {

            if (t[i].queue) {
                shared = t[i].queue->shm_zone->data;
                ngx_http_kvroute_status_prom_add(prom, "%s{%V} %uL\n",
                                       k ? "kvroute_queue_bytes"
                                         : "kvroute_queue_max_requests",
                                       &t[i].labels,
                                       k ? kvr_queue_bytes(shared, now)
                                         : (uint64_t) t[i].queue->max);
            }
        }
    }
}


static void
ngx_http_kvroute_prom_states(ngx_http_kvroute_status_prom_t *prom,
    ngx_array_t *targets)
{
    ngx_uint_t                       n, health;
    ngx_http_kvroute_prom_target_t  *t, *last;

    last = (ngx_http_kvroute_prom_target_t *) targets->elts + targets->nelts;

    ngx_http_kvroute_prom_gauge(prom, "kvroute_peer_state",
                                "1 for the state of the peer.");

    for (t = targets->elts; t < last; t++) {
        for (n = 0; t->peer && n < NGX_HTTP_KVROUTE_STATES; n++) {
            ngx_http_kvroute_prom_state(prom, "kvroute_peer_state", t, "state",
                                        ngx_http_kvroute_status_states[n],
                                        t->peer->state == n);
        }
    }

    ngx_http_kvroute_prom_gauge(prom, "kvroute_peer_state_timestamp_seconds",
                                "Since when the peer has its state.");

    for (t = targets->elts; t < last; t++) {
        if (t->peer && t->peer->since) {
            ngx_http_kvroute_status_prom_add(prom,
                                 "kvroute_peer_state_timestamp_seconds{%V} "
                                 "%uD\n", &t->labels, t->peer->since);
        }
    }

    ngx_http_kvroute_prom_gauge(prom, "kvroute_peer_reason",
                                "1 for the last error of the peer.");

    for (t = targets->elts; t < last; t++) {
        if (t->peer && t->peer->reason) {
            ngx_http_kvroute_prom_state(prom, "kvroute_peer_reason", t,
                                        "reason", t->peer->reason, 1);
        }
    }

    ngx_http_kvroute_prom_gauge(prom, "kvroute_upstream_health",
                                "1 for the health of the upstream: green, "
                                "amber, red.");

    for (t = targets->elts; t < last; t++) {
        for (n = 0; t->verdict && n < KVR_VERDICT_STATES; n++) {
            ngx_http_kvroute_prom_state(prom, "kvroute_upstream_health", t,
                                        "state", kvr_verdict_name(n),
                                        n == t->verdict->state);
        }
    }

    ngx_http_kvroute_prom_gauge(prom, "kvroute_upstream_cause_timestamp_seconds",
                                "Since when a cause of the health holds.");

    for (t = targets->elts; t < last; t++) {
        for (n = 0; t->verdict && n < t->verdict->n; n++) {
            ngx_http_kvroute_prom_cause(prom, t, &t->verdict->why[n]);
        }
    }

    ngx_http_kvroute_prom_gauge(prom, "kvroute_upstream_resume_tokens",
                                "Tokens between places where a hybrid model "
                                "resumes; 0: any block.");

    for (t = targets->elts; t < last; t++) {
        if (t->resume) {
            ngx_http_kvroute_status_prom_add(prom,
                                         "kvroute_upstream_resume_tokens{%V} "
                                         "%uD\n", &t->labels,
                                         kvr_resume_step(t->resume));
        }
    }

    ngx_http_kvroute_prom_gauge(prom, "kvroute_upstream_resume_lost",
                                "Share of common prefixes that a hybrid model "
                                "cannot reuse.");

    for (t = targets->elts; t < last; t++) {
        if (t->resume) {
            ngx_http_kvroute_status_prom_add(prom,
                                         "kvroute_upstream_resume_lost{%V} "
                                         "%.3f\n", &t->labels,
                                         kvr_resume_lost(t->resume));
        }
    }

    for (n = 0; n < NGX_HTTP_KVROUTE_WHATIF_METRICS; n++) {

        ngx_http_kvroute_prom_gauge(prom,
                              ngx_http_kvroute_status_whatif_metrics[n].name,
                              ngx_http_kvroute_status_whatif_metrics[n].help);

        for (t = targets->elts; t < last; t++) {
            if (t->whatif) {
                ngx_http_kvroute_status_prom_whatif(prom, n, &t->labels,
                                                    t->whatif);
            }
        }
    }

    ngx_http_kvroute_prom_gauge(prom, "kvroute_peer_health",
                                "1 for the result of the last health checks.");

    for (t = targets->elts; t < last; t++) {

        if (t->peer == NULL || t->peer->engine == NULL
            || !(t->set & KVR_COUNTER_CHECKED))
        {
            continue;
        }

        health = kvr_get(&t->peer->engine->health);

        for (n = 0; n < KVR_HEALTH_MAX; n++) {
            ngx_http_kvroute_prom_state(prom, "kvroute_peer_health", t,
                                        "health", kvr_engine_health_name(n),
                                        n == health);
        }
    }
}


/* Adds a cause, with its server if it is of one. */
static void
ngx_http_kvroute_prom_cause(ngx_http_kvroute_status_prom_t *prom,
    ngx_http_kvroute_prom_target_t *t, kvr_verdict_why_t *why)
{
    ngx_str_t    peer;
    ngx_uint_t   single;

    ngx_str_null(&peer);
    single = (why->reason < KVR_VERDICT_SINGLE);

    if (single
        && ngx_http_kvroute_status_prom_label(prom->pool, &peer,
                                       &t->servers[why->server[0]].name)
           != NGX_OK)
    {
        prom->failed = 1;
        return;
    }

    ngx_http_kvroute_status_prom_add(prom,
                              "kvroute_upstream_cause_timestamp_seconds{%V,"
                              "code=\"%s\",state=\"%s\"%s%V%s} %uD\n",
                              &t->labels, kvr_verdict_row(why->reason)->code,
                              kvr_verdict_name(why->state),
                              single ? ",peer=\"" : "", &peer,
                              single ? "\"" : "", why->since);
}


static void
ngx_http_kvroute_prom_gauge(ngx_http_kvroute_status_prom_t *prom,
    const char *name, const char *help)
{
    ngx_http_kvroute_status_prom_head(prom, name, "gauge", help);
}


static void
ngx_http_kvroute_prom_state(ngx_http_kvroute_status_prom_t *prom,
    const char *name, ngx_http_kvroute_prom_target_t *t, const char *label,
    const char *value, ngx_uint_t on)
{
    ngx_http_kvroute_status_prom_add(prom, "%s{%V,%s=\"%s\"} %ui\n", name,
                                     &t->labels, label, value, on);
}
