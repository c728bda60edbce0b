
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The receipt of the last decision, for access logs.  A value that is not
 * known is "not found", which logs as "-".
 *
 * So is text that holds a control byte, whoever wrote it: the strings of a
 * body, the path and keys of sessions are decoded, and in a header a line end
 * would begin another one, or another request.  It is checked here, on its way
 * out, and nowhere else: what is only hashed may hold any byte.
 */


#include "ngx_http_kvroute.h"


#define NGX_HTTP_KVROUTE_VAR_POLICY   0
#define NGX_HTTP_KVROUTE_VAR_REASON   1
#define NGX_HTTP_KVROUTE_VAR_PEER     2
#define NGX_HTTP_KVROUTE_VAR_MODEL    3
#define NGX_HTTP_KVROUTE_VAR_PROMPT   4
#define NGX_HTTP_KVROUTE_VAR_MATCHED  5
#define NGX_HTTP_KVROUTE_VAR_BEST     6
#define NGX_HTTP_KVROUTE_VAR_TTFT     7
#define NGX_HTTP_KVROUTE_VAR_SESSION  8
#define NGX_HTTP_KVROUTE_VAR_TOKENS   9
#define NGX_HTTP_KVROUTE_VAR_CACHED   10
#define NGX_HTTP_KVROUTE_VAR_COMPLETED  11
#define NGX_HTTP_KVROUTE_VAR_TIER       12
#define NGX_HTTP_KVROUTE_VAR_PRIORITY   13
#define NGX_HTTP_KVROUTE_VAR_COST       14


static ngx_int_t ngx_http_kvroute_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_uint_t ngx_http_kvroute_printable(ngx_str_t *s);
static ngx_int_t ngx_http_kvroute_queue_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_http_variable_t  ngx_http_kvroute_vars[] = {

    { ngx_string("kvroute_policy"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_POLICY, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_reason"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_REASON, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_peer"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_PEER, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_model"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_MODEL, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_session"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_SESSION, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_service_tier"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_TIER, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_body_priority"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_PRIORITY, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_prompt_bytes"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_PROMPT, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_matched_bytes"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_MATCHED, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_best_bytes"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_BEST, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_cost"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_COST, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_queue_time"), NULL, ngx_http_kvroute_queue_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_queue_status"), NULL,
      ngx_http_kvroute_queue_variable, 1, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_ttft"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_TTFT, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_prompt_tokens"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_TOKENS, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_cached_tokens"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_CACHED, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_completion_tokens"), NULL, ngx_http_kvroute_variable,
      NGX_HTTP_KVROUTE_VAR_COMPLETED, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_kvroute_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_kvroute_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


/*
 * Whether any variable of the configuration tells tokens.  A script that asks
 * for one by its name is noticed when it first does.
 */
ngx_uint_t
ngx_http_kvroute_tokens_wanted(ngx_http_request_t *r)
{
    ngx_uint_t                     i;
    ngx_http_variable_t           *v;
    ngx_http_core_main_conf_t     *cmcf;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    if (kmcf->tokens != NGX_HTTP_KVROUTE_TOKENS_UNKNOWN) {
        return kmcf->tokens == NGX_HTTP_KVROUTE_TOKENS_YES;
    }

    kmcf->tokens = NGX_HTTP_KVROUTE_TOKENS_NO;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    v = cmcf->variables.elts;

    for (i = 0; i < cmcf->variables.nelts; i++) {

        if (v[i].get_handler == ngx_http_kvroute_variable
            && (v[i].data == NGX_HTTP_KVROUTE_VAR_TOKENS
                || v[i].data == NGX_HTTP_KVROUTE_VAR_CACHED
                || v[i].data == NGX_HTTP_KVROUTE_VAR_COMPLETED))
        {
            kmcf->tokens = NGX_HTTP_KVROUTE_TOKENS_YES;
        }
    }

    return kmcf->tokens == NGX_HTTP_KVROUTE_TOKENS_YES;
}


static ngx_int_t
ngx_http_kvroute_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    u_char                        *p;
    int64_t                        told;
    uint64_t                       n;
    ngx_str_t                      s;
    kvr_tokens_t                   tokens;
    ngx_http_kvroute_ctx_t        *ctx;
    ngx_http_kvroute_main_conf_t  *kmcf;

    ctx = ngx_http_kvroute_get_ctx(r);

    if (ctx == NULL) {
        goto not_found;
    }

    /* what the body says is known before any decision */

    if (!ctx->decided
        && data != NGX_HTTP_KVROUTE_VAR_MODEL
        && data != NGX_HTTP_KVROUTE_VAR_SESSION
        && data != NGX_HTTP_KVROUTE_VAR_TIER
        && data != NGX_HTTP_KVROUTE_VAR_PRIORITY
        && data != NGX_HTTP_KVROUTE_VAR_PROMPT)
    {
        goto not_found;
    }

    n = 0;

    switch (data) {

    case NGX_HTTP_KVROUTE_VAR_POLICY:
        s.data = (u_char *) kvr_policy_name(ctx->policy);
        s.len = ngx_strlen(s.data);
        goto string;

    case NGX_HTTP_KVROUTE_VAR_REASON:
        s.data = (u_char *) kvr_reason_name(ctx->reason);
        s.len = ngx_strlen(s.data);
        goto string;

    case NGX_HTTP_KVROUTE_VAR_PEER:
        s = ctx->peer;
        goto string;

    case NGX_HTTP_KVROUTE_VAR_MODEL:
        s = ctx->model;
        goto string;

    case NGX_HTTP_KVROUTE_VAR_TIER:
        s = ctx->hint[KVR_PROMPT_SERVICE_TIER];
        goto string;

    case NGX_HTTP_KVROUTE_VAR_PRIORITY:

        if (!ctx->prioritized) {
            goto not_found;
        }

        s.data = ngx_pnalloc(r->pool, NGX_INT32_LEN);
        if (s.data == NULL) {
            return NGX_ERROR;
        }

        s.len = ngx_sprintf(s.data, "%D", ctx->priority) - s.data;
        goto string;

    case NGX_HTTP_KVROUTE_VAR_SESSION:
        s = ctx->session;
        goto string;

    case NGX_HTTP_KVROUTE_VAR_TTFT:

        if (!ctx->ttft_set) {
            goto not_found;
        }

        p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
        if (p == NULL) {
            return NGX_ERROR;
        }

        v->len = ngx_sprintf(p, "%T.%03M", (time_t) (ctx->ttft / 1000),
                             ctx->ttft % 1000)
                 - p;
        v->data = p;

        goto found;

    case NGX_HTTP_KVROUTE_VAR_COST:

        /* of the others it is no number of bytes, or none at all */

        if (!(kvr_policy_needs(ctx->policy) & KVR_NEEDS_SCORE)
            || ctx->reason == KVR_REASON_LOAD || ctx->cost == 0)
        {
            goto not_found;
        }

        n = (uint64_t) ctx->cost;
        goto number;

    case NGX_HTTP_KVROUTE_VAR_TOKENS:
    case NGX_HTTP_KVROUTE_VAR_CACHED:
    case NGX_HTTP_KVROUTE_VAR_COMPLETED:

        kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);
        kmcf->tokens = NGX_HTTP_KVROUTE_TOKENS_YES;

        kvr_response_tokens(&ctx->usage, &tokens);

        told = (data == NGX_HTTP_KVROUTE_VAR_TOKENS) ? tokens.prompt
               : (data == NGX_HTTP_KVROUTE_VAR_CACHED) ? tokens.cached
                                                       : tokens.completion;
        if (told < 0) {
            goto not_found;
        }

        n = (uint64_t) told;
        goto number;

    case NGX_HTTP_KVROUTE_VAR_PROMPT:
        n = ctx->bytes;
        break;

    case NGX_HTTP_KVROUTE_VAR_MATCHED:
        n = ctx->matched;
        break;

    case NGX_HTTP_KVROUTE_VAR_BEST:
        n = ctx->best;
        break;
    }

    if (!ctx->parsed) {
        goto not_found;
    }

number:

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(p, "%uL", n) - p;
    v->data = p;

    goto found;

string:

    if (s.len == 0 || !ngx_http_kvroute_printable(&s)) {
        goto not_found;
    }

    v->len = s.len;
    v->data = s.data;

found:

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;

not_found:

    v->not_found = 1;

    return NGX_OK;
}


/* whether text can stand in a header */
static ngx_uint_t
ngx_http_kvroute_printable(ngx_str_t *s)
{
    size_t  i;

    for (i = 0; i < s->len; i++) {
        if (s->data[i] < ' ' || s->data[i] == 0x7f) {
            return 0;
        }
    }

    return 1;
}


static ngx_int_t
ngx_http_kvroute_queue_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                  *p;
    ngx_msec_t               time;
    const char              *status;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_get_ctx(r);
    status = ctx ? ngx_http_kvroute_queue_status(ctx, &time) : NULL;

    if (status == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    if (data) {
        v->data = (u_char *) status;
        v->len = ngx_strlen(status);

    } else {
        p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
        if (p == NULL) {
            return NGX_ERROR;
        }

        v->data = p;
        v->len = ngx_sprintf(p, "%T.%03M", (time_t) (time / 1000),
                             time % 1000)
                 - p;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}
