
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


#include "request/ngx_http_kvroute_request.h"


static ngx_int_t ngx_http_kvroute_variables_why(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_early(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_rank(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_text(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_bytes(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_known(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_priority(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_cost(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_ttft(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_count(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_http_kvroute_ctx_t *ngx_http_kvroute_variables_decided(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_kvroute_variables_printable(ngx_str_t *s);


static ngx_http_variable_t  ngx_http_kvroute_vars[] = {

    { ngx_string("kvroute_policy"), NULL,
      ngx_http_kvroute_variables_why, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_reason"), NULL,
      ngx_http_kvroute_variables_why, 1,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_early"), NULL,
      ngx_http_kvroute_variables_early, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_peer"), NULL,
      ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, peer),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_rank"), NULL,
      ngx_http_kvroute_variables_rank, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_model"), NULL,
      ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, model),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_session"), NULL,
      ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, session),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_tenant"), NULL,
      ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, tenant),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_service_tier"), NULL,
      ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t,
               hint[KVR_PROMPT_SERVICE_TIER]),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_body_priority"), NULL,
      ngx_http_kvroute_variables_priority, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_prompt_bytes"), NULL,
      ngx_http_kvroute_variables_bytes,
      offsetof(ngx_http_kvroute_ctx_t, bytes),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_matched_bytes"), NULL,
      ngx_http_kvroute_variables_known,
      offsetof(ngx_http_kvroute_ctx_t, matched),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_best_bytes"), NULL,
      ngx_http_kvroute_variables_known,
      offsetof(ngx_http_kvroute_ctx_t, best),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_cost"), NULL,
      ngx_http_kvroute_variables_cost, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_ttft"), NULL,
      ngx_http_kvroute_variables_ttft, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_prompt_tokens"), NULL,
      ngx_http_kvroute_variables_count,
      offsetof(kvr_tokens_t, prompt),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_cached_tokens"), NULL,
      ngx_http_kvroute_variables_count,
      offsetof(kvr_tokens_t, cached),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_completion_tokens"), NULL,
      ngx_http_kvroute_variables_count,
      offsetof(kvr_tokens_t, completion),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_kvroute_variables_init(ngx_conf_t *cf)
{
    return ngx_http_kvroute_variables_add(cf, ngx_http_kvroute_vars);
}


ngx_int_t
ngx_http_kvroute_variables_add(ngx_conf_t *cf, ngx_http_variable_t *v)
{
    ngx_http_variable_t  *var;

    for ( /* void */ ; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


/* whether the configuration has $kvroute_rank anywhere */
ngx_uint_t
ngx_http_kvroute_variables_ranks(ngx_conf_t *cf)
{
    ngx_uint_t                  i;
    ngx_http_variable_t        *v;
    ngx_http_core_main_conf_t  *cmcf;

    static ngx_str_t  name = ngx_string("kvroute_rank");

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    v = cmcf->variables.elts;

    for (i = 0; i < cmcf->variables.nelts; i++) {

        if (v[i].name.len == name.len
            && ngx_strncmp(v[i].name.data, name.data, name.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/*
 * Whether any variable of the configuration tells tokens.  A script that asks
 * for one by its name is noticed when it first does.
 */
ngx_uint_t
ngx_http_kvroute_variables_tokens(ngx_http_request_t *r)
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

        if (v[i].get_handler == ngx_http_kvroute_variables_count) {
            kmcf->tokens = NGX_HTTP_KVROUTE_TOKENS_YES;
        }
    }

    return kmcf->tokens == NGX_HTTP_KVROUTE_TOKENS_YES;
}


/* data: whether it is the reason, else the policy */
static ngx_int_t
ngx_http_kvroute_variables_why(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                s;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_variables_decided(r);

    if (ctx == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    s.data = (u_char *) (data ? kvr_reason_name(ctx->reason)
                              : kvr_policy_name(ctx->policy));
    s.len = ngx_strlen(s.data);

    return ngx_http_kvroute_variables_string(v, &s);
}


/* what became of the decision that headers of the request were made by */
static ngx_int_t
ngx_http_kvroute_variables_early(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    static ngx_str_t  kept = ngx_string("kept");
    static ngx_str_t  moved = ngx_string("moved");

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx == NULL || ctx->early == 0) {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_string(v,
                       ctx->early == NGX_HTTP_KVROUTE_KEPT ? &kept : &moved);
}


/* not found if there is one rank only, or the engine chooses by itself */
static ngx_int_t
ngx_http_kvroute_variables_rank(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_variables_decided(r);

    if (ctx == NULL || ctx->rank == NGX_HTTP_KVROUTE_UNSET_RANK) {
        return ngx_http_kvroute_variables_none(v);
    }

    ctx->ranked = 1;

    return ngx_http_kvroute_variables_number(r, v, ctx->rank);
}


/* what the body says is known before any decision; the peer is not */
static ngx_int_t
ngx_http_kvroute_variables_text(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_string(v,
                                     (ngx_str_t *) ((u_char *) ctx + data));
}


static ngx_int_t
ngx_http_kvroute_variables_priority(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx == NULL || !ctx->prioritized) {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_number(r, v, ctx->priority);
}


/* bytes of a prompt that was read */
static ngx_int_t
ngx_http_kvroute_variables_bytes(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx == NULL || !ctx->parsed) {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_number(r, v,
                            *(int64_t *) (void *) ((u_char *) ctx + data));
}


/* bytes of it that peers were known to hold */
static ngx_int_t
ngx_http_kvroute_variables_known(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    return ngx_http_kvroute_variables_decided(r)
           ? ngx_http_kvroute_variables_bytes(r, v, data)
           : ngx_http_kvroute_variables_none(v);
}


/* of other policies it is no number of bytes, or none at all */
static ngx_int_t
ngx_http_kvroute_variables_cost(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_variables_decided(r);

    if (ctx == NULL
        || !(kvr_policy_needs(ctx->policy) & KVR_NEEDS_SCORE)
        || ctx->reason == KVR_REASON_LOAD || ctx->cost == 0)
    {
        return ngx_http_kvroute_variables_none(v);
    }

    return ngx_http_kvroute_variables_number(r, v, (int64_t) ctx->cost);
}


static ngx_int_t
ngx_http_kvroute_variables_ttft(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_variables_decided(r);

    return ctx && ctx->ttft_set
           ? ngx_http_kvroute_variables_time(r, v, ctx->ttft)
           : ngx_http_kvroute_variables_none(v);
}


/* tokens; -1 is what was not told */
static ngx_int_t
ngx_http_kvroute_variables_count(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    int64_t                        n;
    kvr_tokens_t                   tokens;
    ngx_http_kvroute_ctx_t        *ctx;
    ngx_http_kvroute_main_conf_t  *kmcf;

    ctx = ngx_http_kvroute_variables_decided(r);

    if (ctx == NULL) {
        return ngx_http_kvroute_variables_none(v);
    }

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);
    kmcf->tokens = NGX_HTTP_KVROUTE_TOKENS_YES;

    kvr_response_tokens(&ctx->usage, &tokens);

    n = *(int64_t *) (void *) ((u_char *) &tokens + data);

    return n < 0 ? ngx_http_kvroute_variables_none(v)
                 : ngx_http_kvroute_variables_number(r, v, n);
}


/* the context, if there was a decision */
static ngx_http_kvroute_ctx_t *
ngx_http_kvroute_variables_decided(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    return ctx && ctx->decided ? ctx : NULL;
}


ngx_int_t
ngx_http_kvroute_variables_string(ngx_http_variable_value_t *v, ngx_str_t *s)
{
    if (s->len == 0 || !ngx_http_kvroute_variables_printable(s)) {
        return ngx_http_kvroute_variables_none(v);
    }

    v->len = s->len;
    v->data = s->data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_variables_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, int64_t n)
{
    ngx_str_t  s;

    s.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (s.data == NULL) {
        return NGX_ERROR;
    }

    s.len = ngx_sprintf(s.data, "%L", n) - s.data;

    return ngx_http_kvroute_variables_string(v, &s);
}


ngx_int_t
ngx_http_kvroute_variables_none(ngx_http_variable_value_t *v)
{
    v->not_found = 1;

    return NGX_OK;
}


/* whether text can stand in a header */
static ngx_uint_t
ngx_http_kvroute_variables_printable(ngx_str_t *s)
{
    size_t  i;

    for (i = 0; i < s->len; i++) {
        if (s->data[i] < ' ' || s->data[i] == 0x7f) {
            return 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_http_kvroute_variables_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, ngx_msec_t time)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(p, "%T.%03M", (time_t) (time / 1000), time % 1000) - p;
    v->data = p;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}
