
/*
 * Copyright (C) kvroute contributors
 */


/* What another fleet would bring an upstream, in JSON and for Prometheus. */


#include "status/ngx_http_kvroute_status.h"


void
ngx_http_kvroute_status_whatif(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u)
{
    cJSON                  *item, *list;
    double                  scale;
    ngx_uint_t              i;
    const kvr_whatif_t     *w;
    kvr_whatif_estimate_t   e;

    static const double  times[] = { 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8 };

    w = kvr_registry_whatif(u->conf->zone->core.registry, u->conf->number);

    if (w == NULL
        || kvr_whatif_estimate(w, KVR_WHATIF_NOW, u->number, &e) != KVR_OK)
    {
        return;
    }

    json = cJSON_AddObjectToObject(json, "whatif");

    list = cJSON_AddArrayToObject(json, "curve");
    scale = kvr_whatif_share(w, 1);
    scale = scale > 0 ? e.cached / scale : 0;

    for (i = 0; i < kvr_nelts(times); i++) {
        item = cJSON_CreateObject();

        cJSON_AddNumberToObject(item, "capacity", times[i]);
        cJSON_AddNumberToObject(item, "cached",
                                ngx_min(kvr_whatif_share(w, times[i]) * scale,
                                        1));
        cJSON_AddItemToArray(list, item);
    }

    for (i = 0; i < KVR_WHATIF_CHANGES; i++) {

        if (kvr_whatif_estimate(w, (kvr_whatif_change_e) i, u->number, &e)
            != KVR_OK)
        {
            continue;
        }

        item = cJSON_AddObjectToObject(json, kvr_whatif_name(i));

        cJSON_AddNumberToObject(item, "cached", e.cached);
        cJSON_AddNumberToObject(item, "cached_low", e.low);
        cJSON_AddNumberToObject(item, "cached_high", e.high);
        cJSON_AddNumberToObject(item, "load", e.load);

        if (e.first > 0) {
            cJSON_AddNumberToObject(item, "ttft_p95", e.first);
            cJSON_AddNumberToObject(item, "ttft_p95_low", e.soonest);
            cJSON_AddNumberToObject(item, "ttft_p95_high", e.latest);
        }
    }
}


void
ngx_http_kvroute_status_prom_whatif(ngx_http_kvroute_status_prom_t *prom,
    ngx_uint_t kind, const ngx_str_t *labels, kvr_whatif_estimate_t **whatif)
{
    double      value;
    ngx_uint_t  i;

    for (i = 0; i < KVR_WHATIF_CHANGES; i++) {

        if (whatif[i] == NULL) {
            continue;
        }

        value = *(double *) ((u_char *) whatif[i]
                      + ngx_http_kvroute_status_whatif_metrics[kind].value);

        ngx_http_kvroute_status_prom_add(prom, "%s{%V,change=\"%s\"} %.4f\n",
                              ngx_http_kvroute_status_whatif_metrics[kind].name,
                              labels, kvr_whatif_name(i), value);
    }
}


kvr_whatif_estimate_t **
ngx_http_kvroute_status_estimates(ngx_pool_t *pool,
    ngx_http_kvroute_status_upstream_t *u)
{
    ngx_uint_t               i;
    const kvr_whatif_t      *w;
    kvr_whatif_estimate_t   *e, **whatif;

    whatif = ngx_pcalloc(pool, KVR_WHATIF_CHANGES
                               * (sizeof(*whatif) + sizeof(*e)));
    if (whatif == NULL) {
        return NULL;
    }

    e = (kvr_whatif_estimate_t *) &whatif[KVR_WHATIF_CHANGES];
    w = kvr_registry_whatif(u->conf->zone->core.registry, u->conf->number);

    for (i = 0; w && i < KVR_WHATIF_CHANGES; i++, e++) {

        if (kvr_whatif_estimate(w, (kvr_whatif_change_e) i, u->number, e)
            == KVR_OK)
        {
            whatif[i] = e;
        }
    }

    return whatif;
}


const ngx_http_kvroute_status_metric_t
    ngx_http_kvroute_status_whatif_metrics[NGX_HTTP_KVROUTE_WHATIF_METRICS] =
{
    { "kvroute_whatif_cached_ratio",
      "Estimated cached share of prompts, now and after a change.",
      offsetof(kvr_whatif_estimate_t, cached) },
    { "kvroute_whatif_cached_low_ratio",
      "The least that this share may be.",
      offsetof(kvr_whatif_estimate_t, low) },
    { "kvroute_whatif_cached_high_ratio",
      "The most that this share may be.",
      offsetof(kvr_whatif_estimate_t, high) },
    { "kvroute_whatif_load_ratio",
      "Estimated computed tokens of a server, 1: as now.",
      offsetof(kvr_whatif_estimate_t, load) },
    { "kvroute_whatif_ttft_p95_seconds",
      "Estimated P95 of the time to first token.",
      offsetof(kvr_whatif_estimate_t, first) },
    { "kvroute_whatif_ttft_p95_low_seconds",
      "The least that this time may be.",
      offsetof(kvr_whatif_estimate_t, soonest) },
    { "kvroute_whatif_ttft_p95_high_seconds",
      "The most that this time may be.",
      offsetof(kvr_whatif_estimate_t, latest) }
};
