
/*
 * Copyright (C) kvroute contributors
 */


/* Variables: the outcome of a request in a location with kvroute_prefill. */


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
    kvr_disaggregate_e       outcome;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r->main);

    if (ctx == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    outcome = ctx->legs ? ctx->legs->outcome : ctx->alone;

    if (outcome == KVR_DISAGGREGATE_NONE) {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_name(v,
                                           kvr_reason_disaggregated(outcome));
}


/* as a header it names the prefill server to a sidecar; empty: there is none */
static ngx_int_t
ngx_http_kvroute_legs_variables_peer(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ngx_http_kvroute_legs_variables_get(r);

    return legs ? ngx_http_kvroute_variables_string(v, &legs->peer)
                : ngx_http_kvroute_variables_none(v);
}


static ngx_int_t
ngx_http_kvroute_legs_variables_status(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ngx_http_kvroute_legs_variables_get(r);

    if (legs == NULL || legs->status == 0) {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_number(r, v, legs->status);
}


static ngx_int_t
ngx_http_kvroute_legs_variables_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_legs_t  *legs;

    legs = ngx_http_kvroute_legs_variables_get(r);

    if (legs == NULL || legs->start == 0
        || ngx_http_kvroute_legs_running(legs)) {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_time(r, v, legs->time);
}
