
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What a zone shares with other hosts.  It works if the host receives its own
 * batches, and index updates of each other host.
 */


#include "share/ngx_http_kvroute_share_int.h"
#include "status/ngx_http_kvroute_status.h"


static ngx_uint_t ngx_http_kvroute_share_status_name(kvr_share_host_t *host,
    u_char *name);


void
ngx_http_kvroute_share_status_json(cJSON *json, ngx_http_kvroute_zone_t *zone,
    void *data)
{
    kvr_share_t *s = data;

    u_char                          name[KVR_SHARE_NAME + 1];
    cJSON                          *share, *hosts, *item;
    uint64_t                        now, heard;
    ngx_uint_t                      i, len;
    kvr_share_host_t               *host;
    ngx_http_kvroute_share_conf_t  *conf;

    conf = ngx_http_kvroute_share_conf_find(
               ngx_http_kvroute_share_confs(zone->cycle), zone);

    share = cJSON_AddObjectToObject(json, "share");

    ngx_http_kvroute_status_json_string(share, "store", conf->store.data,
                                        conf->store.len);
    ngx_http_kvroute_status_json_string(share, "name", conf->name.data,
                                        conf->name.len);

    ngx_http_kvroute_status_json_table(share, kvr_share_hooks.counters,
                                       kvr_share_hooks.ncounters,
                                       KVR_COUNTER_ZONE, &s->stats, 0);

    cJSON_AddBoolToObject(share, "joining", kvr_get(&s->wants) != 0);

    hosts = cJSON_AddArrayToObject(share, "hosts");
    now = (uint64_t) ngx_current_msec;

    for (i = 0; i < KVR_SHARE_HOSTS; i++) {
        host = &s->host[i];

        if (kvr_get(&host->id) == 0) {
            continue;
        }

        item = cJSON_CreateObject();
        cJSON_AddItemToArray(hosts, item);

        len = ngx_http_kvroute_share_status_name(host, name);
        heard = kvr_get(&host->heard);

        ngx_http_kvroute_status_json_string(item, "name", name, len);
        cJSON_AddBoolToObject(item, "alive", kvr_get(&host->alive) != 0);
        cJSON_AddNumberToObject(item, "age_ms",
                                (double) (now - ngx_min(heard, now)));
        cJSON_AddNumberToObject(item, "batches",
                                (double) kvr_get(&host->number));
        cJSON_AddNumberToObject(item, "lessons",
                                (double) kvr_get(&host->updates));
        cJSON_AddNumberToObject(item, "gaps", (double) kvr_get(&host->gaps));
    }
}


/* kvr_share_batch_open() has checked its characters */
static ngx_uint_t
ngx_http_kvroute_share_status_name(kvr_share_host_t *host, u_char *name)
{
    uint64_t    word;
    ngx_uint_t  i;

    for (i = 0; i < kvr_nelts(host->name); i++) {
        word = kvr_get(&host->name[i]);
        ngx_memcpy(name + 8 * i, &word, 8);
    }

    name[KVR_SHARE_NAME] = '\0';

    return ngx_strlen(name);
}


void
ngx_http_kvroute_share_status_prom(ngx_http_kvroute_status_prom_t *prom,
    ngx_pool_t *pool, ngx_http_kvroute_main_conf_t *kmcf)
{
    u_char                           name[KVR_SHARE_NAME + 1];
    ngx_str_t                        label;
    ngx_uint_t                       i, k;
    kvr_share_t                     *s;
    ngx_array_t                     *shares;
    kvr_share_host_t                *host;
    ngx_http_kvroute_share_conf_t  **share;

    shares = ngx_http_kvroute_share_confs(ngx_cycle);
    share = shares->elts;

    ngx_http_kvroute_status_prom_head(prom, "kvroute_share_host_lessons_total",
                                      "counter",
                                      "Index updates received from another "
                                      "host.");

    for (i = 0; i < shares->nelts; i++) {

        s = share[i]->shm_zone->data;

        if (ngx_http_kvroute_status_prom_label(pool, &label,
                                               &share[i]->zone->name)
            != NGX_OK)
        {
            continue;
        }

        for (k = 0; k < KVR_SHARE_HOSTS; k++) {
            host = &s->host[k];

            if (kvr_get(&host->id)) {
                (void) ngx_http_kvroute_share_status_name(host, name);

                ngx_http_kvroute_status_prom_add(prom,
                                 "kvroute_share_host_lessons_total{zone=\"%V\","
                                 "host=\"%s\",id=\"%016xL\"} %uL\n", &label,
                                 name, kvr_get(&host->id),
                                 kvr_get(&host->updates));
            }
        }
    }
}
