
/*
 * Copyright (C) kvroute contributors
 */


/* Members of the JSON status. */


#include "status/ngx_http_kvroute_status.h"


static void ngx_http_kvroute_json_places(cJSON *json,
    const kvr_counter_t *row, const void *base);


void
ngx_http_kvroute_status_json_rows(cJSON *json, kvr_counter_group_e group,
    const void *base, uint32_t set)
{
    ngx_http_kvroute_status_json_table(json, kvr_counter_table,
                                       kvr_counter_rows, group, base, set);
}


void
ngx_http_kvroute_status_json_table(cJSON *json, const kvr_counter_t *row,
    uint32_t rows, kvr_counter_group_e group, const void *base, uint32_t set)
{
    double         n;
    const u_char  *p;

    for ( /* void */ ; rows; rows--, row++) {

        if (row->group != group || row->json == NULL
            || (row->needs & set) != row->needs)
        {
            continue;
        }

        if (row->n) {
            ngx_http_kvroute_json_places(json, row, base);
            continue;
        }

        if (row->metric_type == KVR_COUNTER_HISTOGRAM) {
            p = (const u_char *) base + row->offset;
            cJSON_AddItemToObject(json, row->json,
                ngx_http_kvroute_status_json_histogram(
                    (const kvr_histogram_t *) p, kvr_counter_kind(row)));
            continue;
        }

        n = kvr_counter_get(row, base, 0);

        if (row->metric_type == KVR_COUNTER_STAMP) {

            if (n > 0) {
                ngx_http_kvroute_status_json_time(json, row->json,
                                                  (uint64_t) n * 1000);
            }

        } else if (row->metric_type == KVR_COUNTER_SUMMARY) {

            if (n > 0) {
                n = kvr_counter_sum(row, base) / n;
                cJSON_AddNumberToObject(json, row->json, (uint64_t) n);
            }

        } else {
            cJSON_AddNumberToObject(json, row->json, n);
        }
    }
}


static void
ngx_http_kvroute_json_places(cJSON *json, const kvr_counter_t *row,
    const void *base)
{
    cJSON     *item;
    double     n, total;
    uint32_t   i;

    item = cJSON_AddObjectToObject(json, row->json);

    for (i = row->first, total = 0; i < row->n; i++) {
        n = kvr_counter_get(row, base, i);
        total += n;

        if (n > 0 || !row->sparse) {
            cJSON_AddNumberToObject(item, row->name(i), n);
        }
    }

    if (row->total) {
        cJSON_AddNumberToObject(item, "total", total);
    }
}


cJSON *
ngx_http_kvroute_status_json_histogram(const kvr_histogram_t *h,
    kvr_stats_e kind)
{
    char             name[32];
    cJSON           *json, *buckets;
    double           scale;
    uint32_t         i, n;
    uint64_t         count;
    const uint64_t  *bound;

    bound = kvr_stats_bounds(kind, &n);
    scale = kvr_stats_scale(kind);

    json = cJSON_CreateObject();
    buckets = cJSON_CreateObject();
    count = 0;

    for (i = 0; i <= n; i++) {
        count += kvr_get(&h->bucket[i]);

        if (i < n) {
            (void) snprintf(name, sizeof(name), "%g",
                            (double) bound[i] / scale);
        }

        cJSON_AddNumberToObject(buckets, i < n ? name : "+Inf", count);
    }

    cJSON_AddNumberToObject(json, "count", count);
    cJSON_AddNumberToObject(json, "sum", (double) kvr_get(&h->sum) / scale);
    cJSON_AddItemToObject(json, "buckets", buckets);

    return json;
}


void
ngx_http_kvroute_status_json_string(cJSON *json, const char *name,
    const u_char *data, size_t len)
{
    cJSON_AddItemToObject(json, name,
                          ngx_http_kvroute_status_json_text(data, len));
}


cJSON *
ngx_http_kvroute_status_json_text(const u_char *data, size_t len)
{
    char  buf[KVR_REGISTRY_TITLE_LEN + 4];

    len = ngx_min(len, sizeof(buf) - 1);

    ngx_memcpy(buf, data, len);
    buf[len] = '\0';

    return cJSON_CreateString(buf);
}


void
ngx_http_kvroute_status_json_time(cJSON *json, const char *name, uint64_t ms)
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
