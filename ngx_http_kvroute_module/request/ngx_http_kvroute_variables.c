
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Variables of the last decision.  An unknown value is "not found", which the
 * access log shows as "-".
 *
 * Text with a control byte is "not found" too.  Strings of a body, the path and
 * session keys are decoded, and in a header a line end would begin another
 * header or another request.  Hashed text can contain any byte, so only values
 * of variables are checked.
 */


#include "request/ngx_http_kvroute_request.h"


typedef enum {
    NGX_HTTP_KVROUTE_VAR_EARLY = 0,
    NGX_HTTP_KVROUTE_VAR_PRIORITY,
    NGX_HTTP_KVROUTE_VAR_PROMPT,

    /* from here on there must be a decision */

    NGX_HTTP_KVROUTE_VAR_POLICY,
    NGX_HTTP_KVROUTE_VAR_REASON,
    NGX_HTTP_KVROUTE_VAR_RANK,
    NGX_HTTP_KVROUTE_VAR_MATCHED,
    NGX_HTTP_KVROUTE_VAR_BEST,
    NGX_HTTP_KVROUTE_VAR_COST,
    NGX_HTTP_KVROUTE_VAR_TTFT,

    /* tokens */

    NGX_HTTP_KVROUTE_VAR_PROMPT_TOKENS,
    NGX_HTTP_KVROUTE_VAR_CACHED_TOKENS,
    NGX_HTTP_KVROUTE_VAR_COMPUTED_TOKENS,
    NGX_HTTP_KVROUTE_VAR_COMPLETION_TOKENS
} ngx_http_kvroute_var_e;


static ngx_http_kvroute_ctx_t *ngx_http_kvroute_variables_ctx(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_variables_get(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_kvroute_variables_text(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_http_variable_t  ngx_http_kvroute_vars[] = {

    { ngx_string("kvroute_policy"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_POLICY, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_reason"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_REASON, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_early"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_EARLY, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_rank"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_RANK, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_body_priority"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_PRIORITY, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_prompt_bytes"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_PROMPT, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_matched_bytes"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_MATCHED, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_best_bytes"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_BEST, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_cost"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_COST, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_ttft"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_TTFT, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_prompt_tokens"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_PROMPT_TOKENS, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_cached_tokens"), NULL, ngx_http_kvroute_variables_get,
      NGX_HTTP_KVROUTE_VAR_CACHED_TOKENS, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_computed_tokens"), NULL,
      ngx_http_kvroute_variables_get, NGX_HTTP_KVROUTE_VAR_COMPUTED_TOKENS,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_completion_tokens"), NULL,
      ngx_http_kvroute_variables_get, NGX_HTTP_KVROUTE_VAR_COMPLETION_TOKENS,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_peer"), NULL, ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, peer), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_model"), NULL, ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, model), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_session"), NULL, ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, session), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_tenant"), NULL, ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, tenant), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("kvroute_service_tier"), NULL, ngx_http_kvroute_variables_text,
      offsetof(ngx_http_kvroute_ctx_t, hint[KVR_PROMPT_SERVICE_TIER]),
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


ngx_uint_t
ngx_http_kvroute_variables_used(ngx_conf_t *cf, const char *const *names)
{
    ngx_uint_t                  i, n;
    ngx_http_variable_t        *v;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    v = cmcf->variables.elts;

    for (i = 0; i < cmcf->variables.nelts; i++) {
        for (n = 0; names[n]; n++) {

            if (v[i].name.len == ngx_strlen(names[n])
                && ngx_strncmp(v[i].name.data, names[n], v[i].name.len) == 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


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

        if (v[i].get_handler == ngx_http_kvroute_variables_get
            && v[i].data >= NGX_HTTP_KVROUTE_VAR_PROMPT_TOKENS)
        {
            kmcf->tokens = NGX_HTTP_KVROUTE_TOKENS_YES;
        }
    }

    return kmcf->tokens == NGX_HTTP_KVROUTE_TOKENS_YES;
}


/*
 * nginx sets request_bufs right before it creates the upstream request, and the
 * pool of the output right after.  Between the two, headers are made.
 *
 * "client_body_early_read" of nginx reads the body before the location is known.
 */
static ngx_http_kvroute_ctx_t *
ngx_http_kvroute_variables_ctx(ngx_http_request_t *r)
{
    ngx_http_upstream_t           *u;
    ngx_http_kvroute_ctx_t        *ctx;
    ngx_http_kvroute_main_conf_t  *kmcf;

    u = r->upstream;

    if (u && u->request_bufs && u->output.pool == NULL) {
        kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);
        kmcf->decide(r);
    }

    ctx = ngx_http_kvroute_request_get_ctx(r);

    if (ctx || u || r != r->main || r->header_sent || r->request_body == NULL
        || r->request_body->rest != 0
        || ngx_http_kvroute_inspect(r) != NGX_DECLINED)
    {
        return ctx;
    }

    ctx = ngx_http_kvroute_request_get_ctx(r);

    /* the location may have another salt: it reads again */

    ctx->moved = 1;

    return ctx;
}


static ngx_int_t
ngx_http_kvroute_variables_get(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    int64_t                        n;
    kvr_tokens_t                   tokens;
    ngx_http_kvroute_ctx_t        *ctx;
    ngx_http_kvroute_main_conf_t  *kmcf;

    ctx = ngx_http_kvroute_variables_ctx(r);

    if (ctx == NULL
        || (data >= NGX_HTTP_KVROUTE_VAR_POLICY && !ctx->decided))
    {
        return ngx_http_kvroute_variables_none(v);
    }

    n = -1;

    switch ((ngx_http_kvroute_var_e) data) {

    case NGX_HTTP_KVROUTE_VAR_EARLY:
        return ngx_http_kvroute_variables_name(v,
                                ctx->early == NGX_HTTP_KVROUTE_KEPT ? "kept"
                                : ctx->early ? "moved" : "");

    case NGX_HTTP_KVROUTE_VAR_POLICY:
        return ngx_http_kvroute_variables_name(v, kvr_policy_name(ctx->policy));

    case NGX_HTTP_KVROUTE_VAR_REASON:
        return ngx_http_kvroute_variables_name(v, kvr_reason_name(ctx->reason));

    case NGX_HTTP_KVROUTE_VAR_PRIORITY:
        return ctx->prioritized
               ? ngx_http_kvroute_variables_number(r, v, ctx->priority)
               : ngx_http_kvroute_variables_none(v);

    case NGX_HTTP_KVROUTE_VAR_TTFT:
        return ctx->ttft_set ? ngx_http_kvroute_variables_time(r, v, ctx->ttft)
                             : ngx_http_kvroute_variables_none(v);

    case NGX_HTTP_KVROUTE_VAR_RANK:
        if (ctx->rank != NGX_HTTP_KVROUTE_UNSET_RANK) {
            ctx->ranked = 1;
            n = ctx->rank;
        }

        break;

    case NGX_HTTP_KVROUTE_VAR_PROMPT:
        n = ctx->parsed ? (int64_t) ctx->bytes : -1;
        break;

    case NGX_HTTP_KVROUTE_VAR_MATCHED:
        n = ctx->parsed ? (int64_t) ctx->matched : -1;
        break;

    case NGX_HTTP_KVROUTE_VAR_BEST:
        n = ctx->parsed ? (int64_t) ctx->best : -1;
        break;

    case NGX_HTTP_KVROUTE_VAR_COST:

        /* other policies have no cost, or one that is not in bytes */

        if (kvr_policy_needs(ctx->policy) & KVR_NEEDS_SCORE
            && ctx->reason != KVR_REASON_LOAD && ctx->cost != 0)
        {
            n = (int64_t) ctx->cost;
        }

        break;

    default: /* tokens; -1: not reported */
        kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);
        kmcf->tokens = NGX_HTTP_KVROUTE_TOKENS_YES;

        kvr_response_tokens(&ctx->usage, &tokens);

        n = data == NGX_HTTP_KVROUTE_VAR_PROMPT_TOKENS ? tokens.prompt
            : data == NGX_HTTP_KVROUTE_VAR_CACHED_TOKENS ? tokens.cached
            : data == NGX_HTTP_KVROUTE_VAR_COMPLETION_TOKENS ? tokens.completion
            : tokens.prompt - ngx_max(tokens.cached, 0);
    }

    return n < 0 ? ngx_http_kvroute_variables_none(v)
                 : ngx_http_kvroute_variables_number(r, v, n);
}


static ngx_int_t
ngx_http_kvroute_variables_text(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_variables_ctx(r);

    return ctx ? ngx_http_kvroute_variables_string(v,
                                       (ngx_str_t *) ((u_char *) ctx + data))
               : ngx_http_kvroute_variables_none(v);
}


ngx_int_t
ngx_http_kvroute_variables_string(ngx_http_variable_value_t *v, ngx_str_t *s)
{
    size_t  i;

    for (i = 0; i < s->len; i++) {
        if (s->data[i] < ' ' || s->data[i] == 0x7f) {
            return ngx_http_kvroute_variables_none(v);
        }
    }

    if (s->len == 0) {
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
ngx_http_kvroute_variables_name(ngx_http_variable_value_t *v, const char *name)
{
    ngx_str_t  s;

    s.data = (u_char *) name;
    s.len = ngx_strlen(name);

    return ngx_http_kvroute_variables_string(v, &s);
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
ngx_http_kvroute_variables_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, ngx_msec_t time)
{
    ngx_str_t  s;

    s.data = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (s.data == NULL) {
        return NGX_ERROR;
    }

    s.len = ngx_sprintf(s.data, "%T.%03M", (time_t) (time / 1000), time % 1000)
            - s.data;

    return ngx_http_kvroute_variables_string(v, &s);
}


ngx_int_t
ngx_http_kvroute_variables_none(ngx_http_variable_value_t *v)
{
    v->not_found = 1;

    return NGX_OK;
}
