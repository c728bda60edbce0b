
/*
 * Copyright (C) kvroute contributors
 */


/* Rejects requests, and has the variables of the queue. */


#include "queue/ngx_http_kvroute_queue_int.h"


static ngx_int_t ngx_http_kvroute_queue_refuse(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);
static ngx_int_t ngx_http_kvroute_queue_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


/* states, and messages of those that reject a request */

static const struct {
    const char  *name;
    const char  *message;
} ngx_http_kvroute_queue_states[] = {
    { "", "" },
    { "passed", "" },
    { "waiting", "" },
    { "waited", "" },
    { "full", "too many requests are waiting" },
    { "timeout", "waited too long for a free engine" },
    { "deadline", "the deadline passed while waiting" },
    { "shed", "displaced by another request" },
    { "aborted", "" }
};

_Static_assert(kvr_nelts(ngx_http_kvroute_queue_states)
               == NGX_HTTP_KVROUTE_QUEUE_STATES, "states of the queue");


static ngx_http_variable_t  ngx_http_kvroute_queue_vars[] = {

    { ngx_string("kvroute_queue_time"), NULL,
      ngx_http_kvroute_queue_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_queue_status"), NULL,
      ngx_http_kvroute_queue_variable, 1, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_kvroute_queue_variables(ngx_conf_t *cf)
{
    return ngx_http_kvroute_variables_add(cf, ngx_http_kvroute_queue_vars);
}


/* Returns the time, or the state if data is 1. */
static ngx_int_t
ngx_http_kvroute_queue_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_wait_t  *w;

    ctx = ngx_http_kvroute_request_get_ctx(r);
    w = ctx ? ctx->wait : NULL;

    if (w == NULL || w->state == NGX_HTTP_KVROUTE_QUEUE_NONE) {
        return ngx_http_kvroute_variables_none(v);
    }

    return data ? ngx_http_kvroute_variables_name(v,
                                  ngx_http_kvroute_queue_states[w->state].name)
                : ngx_http_kvroute_variables_time(r, v, w->time);
}


ngx_msec_t
ngx_http_kvroute_queue_time(ngx_http_kvroute_ctx_t *ctx)
{
    return ctx->wait ? ctx->wait->time : 0;
}


/* Responds in the format of OpenAI's API, unless an error_page does. */
ngx_int_t
ngx_http_kvroute_queue_reject(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w)
{
    u_char     text[256];
    ngx_int_t  rc;

    rc = ngx_http_kvroute_queue_refuse(r, w);

    if (rc != NGX_OK) {
        return rc == NGX_DECLINED ? NGX_HTTP_TOO_MANY_REQUESTS
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    (void) ngx_sprintf(text, "{\"error\":{\"message\":\"%s\",\"type\":"
                       "\"overloaded_error\",\"param\":null,\"code\":"
                       "\"queue_%s\"}}%Z",
                       ngx_http_kvroute_queue_states[w->state].message,
                       ngx_http_kvroute_queue_states[w->state].name);

    return ngx_http_kvroute_send_text(r, NGX_HTTP_TOO_MANY_REQUESTS,
                                      (char *) text);
}


/* Adds Retry-After, once.  NGX_DECLINED: an error_page is to respond. */
static ngx_int_t
ngx_http_kvroute_queue_refuse(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w)
{
    u_char              *value;
    kvr_tally_counts_t   counts;

    if (w->again) {
        return NGX_OK;
    }

    ngx_memzero((void *) &counts, sizeof(kvr_tally_counts_t));
    counts.rejects = 1;

    ngx_http_kvroute_tally(w->ctx, w->conf->zone,
                           (uint32_t) w->conf->number, &counts, 0);

    value = ngx_pnalloc(r->pool, NGX_INT32_LEN + 1);
    if (value == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_sprintf(value, "%uD%Z",
                       kvr_queue_retry_after(w->conf->queue->shm_zone->data,
                                             ngx_current_msec));

    w->retry = ngx_http_kvroute_headers_add(r, "Retry-After", (char *) value);

    if (w->retry == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_send_paged(r) ? NGX_DECLINED : NGX_OK;
}
