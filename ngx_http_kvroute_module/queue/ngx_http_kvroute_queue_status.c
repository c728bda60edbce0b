
/*
 * Copyright (C) kvroute contributors
 */


/* What there is to say of a queue: in the status, and to those turned away. */


#include "queue/ngx_http_kvroute_queue.h"
#include "status/ngx_http_kvroute_status.h"


static ngx_int_t ngx_http_kvroute_queue_refuse(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);


static const char  *ngx_http_kvroute_queue_states[] = {
    "", "passed", "waiting", "waited", "full", "timeout", "deadline", "shed",
    "aborted"
};

_Static_assert(kvr_nelts(ngx_http_kvroute_queue_states)
               == NGX_HTTP_KVROUTE_QUEUE_STATES, "states of the queue");


/* NULL: the upstream has none */
cJSON *
ngx_http_kvroute_queue_json(ngx_http_kvroute_srv_conf_t *conf)
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

        item = cJSON_CreateObject();

        cJSON_AddNumberToObject(item, "class", i);
        cJSON_AddNumberToObject(item, "size", depth - ngx_min(above, depth));
        cJSON_AddNumberToObject(item, "passed", (double) kvr_get(&s->passed));

        n = kvr_get(&s->waited);
        cJSON_AddNumberToObject(item, "waited", (double) n);
        cJSON_AddNumberToObject(item, "wait_time_mean", (double)
                                kvr_get(&s->wait_ms) / ngx_max(n, 1));

        cJSON_AddNumberToObject(item, "full", (double) kvr_get(&s->full));
        cJSON_AddNumberToObject(item, "timeouts",
                                (double) kvr_get(&s->timeouts));
        cJSON_AddNumberToObject(item, "late", (double) kvr_get(&s->late));
        cJSON_AddNumberToObject(item, "shed", (double) kvr_get(&s->shed));
        cJSON_AddNumberToObject(item, "gone", (double) kvr_get(&s->gone));

        cJSON_AddItemToArray(list, item);

        above = depth;
    }

    return json;
}


/* Retry-After, once; NGX_DECLINED if an error_page is to answer */
static ngx_int_t
ngx_http_kvroute_queue_refuse(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w)
{
    ngx_uint_t                 i;
    ngx_table_elt_t           *h;
    kvr_queue_shared_t        *shared;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    if (w->again) {
        return NGX_OK;
    }

    shared = w->conf->queue->shm_zone->data;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
    ngx_str_set(&h->key, "Retry-After");

    h->value.data = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (h->value.data == NULL) {
        h->hash = 0;
        return NGX_ERROR;
    }

    h->value.len = ngx_sprintf(h->value.data, "%uD",
                               kvr_queue_retry_after(shared, ngx_current_msec))
                   - h->value.data;

    ngx_http_kvroute_header_end(h);

    w->retry = h;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->error_pages) {
        page = clcf->error_pages->elts;

        for (i = 0; i < clcf->error_pages->nelts; i++) {
            if (page[i].status == (ngx_int_t) w->conf->queue->status) {
                return NGX_DECLINED;
            }
        }
    }

    return NGX_OK;
}


/* an answer in the form that clients of the OpenAI API read */
ngx_int_t
ngx_http_kvroute_queue_reject(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w)
{
    char        *text;
    cJSON       *json, *error;
    u_char       code[32];
    ngx_int_t    rc;
    ngx_uint_t   status;
    const char  *message;

    status = w->conf->queue->status;

    rc = ngx_http_kvroute_queue_refuse(r, w);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? (ngx_int_t) status
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    switch (w->state) {

    case NGX_HTTP_KVROUTE_QUEUE_FULL:
        message = "too many requests are waiting";
        break;

    case NGX_HTTP_KVROUTE_QUEUE_SHED:
        message = "others had more right to the place";
        break;

    case NGX_HTTP_KVROUTE_QUEUE_LATE:
        message = "the deadline passed while waiting";
        break;

    default:
        message = "waited too long for a free engine";
    }

    ngx_sprintf(code, "queue_%s%Z", ngx_http_kvroute_queue_states[w->state]);

    json = cJSON_CreateObject();
    error = cJSON_AddObjectToObject(json, "error");

    cJSON_AddStringToObject(error, "message", message);
    cJSON_AddStringToObject(error, "type", "overloaded_error");
    cJSON_AddNullToObject(error, "param");
    cJSON_AddStringToObject(error, "code", (char *) code);

    text = cJSON_PrintUnformatted(json);

    cJSON_Delete(json);

    return ngx_http_kvroute_send_json(r, status, text);
}


const char *
ngx_http_kvroute_queue_state(ngx_http_kvroute_queue_state_e state)
{
    return ngx_http_kvroute_queue_states[state];
}
