
/*
 * Copyright (C) kvroute contributors
 */


/* What there is to say of a queue: in logs, and to those turned away. */


#include "queue/ngx_http_kvroute_queue_int.h"

#include <cjson/cJSON.h>


static ngx_int_t ngx_http_kvroute_queue_refuse(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);
static ngx_http_kvroute_wait_t *ngx_http_kvroute_queue_wait(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_queue_time_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_queue_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static const char  *ngx_http_kvroute_queue_states[] = {
    "", "passed", "waiting", "waited", "full", "timeout", "deadline", "shed",
    "aborted"
};

_Static_assert(kvr_nelts(ngx_http_kvroute_queue_states)
               == NGX_HTTP_KVROUTE_QUEUE_STATES, "states of the queue");


static ngx_http_variable_t  ngx_http_kvroute_queue_vars[] = {

    { ngx_string("kvroute_queue_time"), NULL,
      ngx_http_kvroute_queue_time_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_queue_status"), NULL,
      ngx_http_kvroute_queue_status_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


/* Retry-After, once; NGX_DECLINED if an error_page is to answer */
static ngx_int_t
ngx_http_kvroute_queue_refuse(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w)
{
    ngx_uint_t                 i;
    ngx_table_elt_t           *h;
    kvr_tally_counts_t         counts;
    kvr_queue_shared_t        *shared;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    if (w->again) {
        return NGX_OK;
    }

    ngx_memzero((void *) &counts, sizeof(kvr_tally_counts_t));
    counts.rejects = 1;

    ngx_http_kvroute_tally(w->ctx, w->conf->zone,
                           (uint32_t) w->conf->number, &counts, 0);

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
        message = "its place was given to another request";
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


ngx_int_t
ngx_http_kvroute_queue_variables(ngx_conf_t *cf)
{
    return ngx_http_kvroute_variables_add(cf, ngx_http_kvroute_queue_vars);
}


static ngx_http_kvroute_wait_t *
ngx_http_kvroute_queue_wait(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx == NULL || ctx->wait == NULL
        || ctx->wait->state == NGX_HTTP_KVROUTE_QUEUE_NONE)
    {
        return NULL;
    }

    return ctx->wait;
}


static ngx_int_t
ngx_http_kvroute_queue_time_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_wait_t  *w;

    w = ngx_http_kvroute_queue_wait(r);

    if (w == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_kvroute_variables_time(r, v, w->time);
}


static ngx_int_t
ngx_http_kvroute_queue_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_wait_t  *w;

    w = ngx_http_kvroute_queue_wait(r);

    if (w == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = (u_char *) ngx_http_kvroute_queue_states[w->state];
    v->len = ngx_strlen(v->data);
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}
