
/*
 * Copyright (C) kvroute contributors
 */


/* The queue of an upstream in the JSON status. */


#include "status/ngx_http_kvroute_status.h"


cJSON *
ngx_http_kvroute_status_queue(ngx_http_kvroute_srv_conf_t *conf)
{
    cJSON                     *json, *list, *item;
    uint32_t                   i, depth, above;
    uint64_t                   now, n;
    kvr_queue_stats_t         *s;
    kvr_queue_shared_t        *shared;
    ngx_http_kvroute_queue_t  *queue;

    queue = conf->queue;

    if (queue == NULL) {
        return NULL;
    }

    shared = queue->shm_zone->data;
    now = ngx_current_msec;

    json = cJSON_CreateObject();

    cJSON_AddNumberToObject(json, "size",
                            kvr_queue_depth(shared, KVR_QUEUE_CLASSES - 1,
                                            now));
    cJSON_AddNumberToObject(json, "max_size", (double) queue->max);

    for (i = 0, n = 0; i < KVR_QUEUE_CLASSES; i++) {
        n += kvr_get(&shared->stats[i].full);
    }

    cJSON_AddNumberToObject(json, "overflows", (double) n);
    cJSON_AddNumberToObject(json, "bytes",
                            (double) kvr_queue_bytes(shared, now));
    cJSON_AddNumberToObject(json, "rate",
                            (double) kvr_queue_rate(shared, now) / 1000);

    list = cJSON_AddArrayToObject(json, "classes");

    above = 0;

    for (i = 0; i < KVR_QUEUE_CLASSES; i++) {
        depth = kvr_queue_depth(shared, i, now);
        s = &shared->stats[i];
        n = kvr_get(&s->waited);

        item = cJSON_CreateObject();

        cJSON_AddNumberToObject(item, "class", i);
        cJSON_AddNumberToObject(item, "size", depth - ngx_min(above, depth));
        ngx_http_kvroute_status_json_rows(item, KVR_COUNTER_QUEUE, s, 0);
        cJSON_AddNumberToObject(item, "wait_time_mean",
                                (double) kvr_get(&s->wait_ms) / ngx_max(n, 1));

        cJSON_AddItemToArray(list, item);

        above = depth;
    }

    return json;
}
