
/*
 * Copyright (C) kvroute contributors
 */


/* Variables: the outcome of a request in a location with kvroute_prefill. */


#include "legs/ngx_http_kvroute_legs_int.h"


enum {
    NGX_HTTP_KVROUTE_LEGS_VAR_OUTCOME = 0,
    NGX_HTTP_KVROUTE_LEGS_VAR_PEER,
    NGX_HTTP_KVROUTE_LEGS_VAR_STATUS,
    NGX_HTTP_KVROUTE_LEGS_VAR_TIME
};


static ngx_int_t ngx_http_kvroute_legs_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_http_variable_t  ngx_http_kvroute_legs_vars[] = {

    { ngx_string("kvroute_disaggregated"), NULL,
      ngx_http_kvroute_legs_variable, NGX_HTTP_KVROUTE_LEGS_VAR_OUTCOME,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_leg1_peer"), NULL,
      ngx_http_kvroute_legs_variable, NGX_HTTP_KVROUTE_LEGS_VAR_PEER,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_leg1_status"), NULL,
      ngx_http_kvroute_legs_variable, NGX_HTTP_KVROUTE_LEGS_VAR_STATUS,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_leg1_time"), NULL,
      ngx_http_kvroute_legs_variable, NGX_HTTP_KVROUTE_LEGS_VAR_TIME,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_kvroute_legs_variables(ngx_conf_t *cf)
{
    return ngx_http_kvroute_variables_add(cf, ngx_http_kvroute_legs_vars);
}


static ngx_int_t
ngx_http_kvroute_legs_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    kvr_disaggregate_e        outcome;
    ngx_http_kvroute_ctx_t   *ctx;
    ngx_http_kvroute_legs_t  *legs;

    ctx = ngx_http_kvroute_request_get_ctx(r->main);

    if (ctx == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    legs = ctx->legs;

    if (data == NGX_HTTP_KVROUTE_LEGS_VAR_OUTCOME) {
        outcome = legs ? legs->outcome : ctx->alone;

        return outcome == KVR_DISAGGREGATE_NONE
               ? ngx_http_kvroute_variables_none(v)
               : ngx_http_kvroute_variables_name(v,
                                           kvr_reason_disaggregated(outcome));
    }

    if (legs == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    switch (data) {

    case NGX_HTTP_KVROUTE_LEGS_VAR_PEER:

        /* as a header it names the prefill server to a sidecar */

        return ngx_http_kvroute_variables_string(v, &legs->peer);

    case NGX_HTTP_KVROUTE_LEGS_VAR_STATUS:
        return legs->status
               ? ngx_http_kvroute_variables_number(r, v, legs->status)
               : ngx_http_kvroute_variables_none(v);

    default: /* NGX_HTTP_KVROUTE_LEGS_VAR_TIME */
        return legs->start && !ngx_http_kvroute_legs_running(legs)
               ? ngx_http_kvroute_variables_time(r, v, legs->time)
               : ngx_http_kvroute_variables_none(v);
    }
}
