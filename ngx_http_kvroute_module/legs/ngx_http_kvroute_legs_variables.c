
/*
 * Copyright (C) kvroute contributors
 */


/* What became of a request in a location with kvroute_prefill. */


#include "legs/ngx_http_kvroute_legs_int.h"


static ngx_http_kvroute_legs_t *ngx_http_kvroute_legs_variables_get(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_legs_variables_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_legs_variables_peer(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_legs_variables_status(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_legs_variables_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_http_variable_t  ngx_http_kvroute_legs_vars[] = {

    { ngx_string("kvroute_disaggregated"), NULL,
      ngx_http_kvroute_legs_variables_outcome, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_leg1_peer"), NULL,
      ngx_http_kvroute_legs_variables_peer, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_leg1_status"), NULL,
      ngx_http_kvroute_legs_variables_status, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_leg1_time"), NULL,
      ngx_http_kvroute_legs_variables_time, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_kvroute_legs_variables(ngx_conf_t *cf)
{
    return ngx_http_kvroute_variables_add(cf, ngx_http_kvroute_legs_vars);
}


static ngx_http_kvroute_legs_t *
ngx_http_kvroute_legs_variables_get(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r->main);

    return ctx ? ctx->legs : NULL;
}


static ngx_int_t
ngx_http_kvroute_legs_variables_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ngx_http_kvroute_legs_variables_get(r);

    if (legs == NULL || legs->outcome == KVR_DISAGGREGATE_NONE) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = (u_char *) kvr_reason_disaggregated(legs->outcome);
    v->len = ngx_strlen(v->data);
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


/* as a header it tells a sidecar who has the prompt: nobody, if it is empty */
static ngx_int_t
ngx_http_kvroute_legs_variables_peer(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ngx_http_kvroute_legs_variables_get(r);

    if (legs == NULL || legs->peer.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = legs->peer.data;
    v->len = legs->peer.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_legs_variables_status(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ngx_http_kvroute_legs_variables_get(r);

    if (legs == NULL || legs->status == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(v->data, "%ui", legs->status) - v->data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_legs_variables_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ngx_http_kvroute_legs_variables_get(r);

    if (legs == NULL || legs->start == 0 || legs->running) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_kvroute_variables_time(r, v, legs->time);
}
