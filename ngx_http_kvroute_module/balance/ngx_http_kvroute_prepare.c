
/*
 * Copyright (C) kvroute contributors
 */


/* Gathers everything a decision needs, reading the body if necessary. */


#include "balance/ngx_http_kvroute_balance_int.h"


static ngx_int_t ngx_http_kvroute_prepare_fallback(
    ngx_http_kvroute_attempt_t *at, ngx_http_kvroute_mode_e mode);


static ngx_http_kvroute_policy_t  ngx_http_kvroute_prepare_round_robin = {
    .kind = KVR_POLICY_ROUND_ROBIN
};


ngx_http_kvroute_attempt_t *
ngx_http_kvroute_prepare(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, size_t size)
{
    ngx_http_kvroute_attempt_t  *at;

    at = ngx_pcalloc(ctx->request->pool, size);
    if (at == NULL) {
        return NULL;
    }

    at->ctx = ctx;
    at->conf = conf;
    at->began = ngx_http_kvroute_receipt_clock();

    return at;
}


ngx_int_t
ngx_http_kvroute_prepare_match(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    unsigned                      needs;
    ngx_uint_t                    body, bypass;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_srv_conf_t  *kscf;
    ngx_http_kvroute_loc_conf_t  *klcf;

    ctx = at->ctx;
    kscf = at->conf;

    ngx_http_kvroute_match_init(at);

    body = ngx_http_kvroute_request_weigh(r, ctx);

    at->policy = ngx_http_kvroute_request_policy(r, kscf, &bypass);

    /* the peer of this leg is already decided: do not bypass the policy */

    if (bypass && ctx->leg && ctx->leg->fixed) {
        at->policy = &kscf->policy;
        bypass = 0;
    }

    /* with a shadow, the other balancer chooses the peers of sessions */

    if (kscf->shadow
        && kvr_policy_needs(at->policy->kind) & KVR_NEEDS_SESSION)
    {
        at->policy = &kscf->policy;
    }

    if (bypass) {
        return ngx_http_kvroute_prepare_fallback(at, NGX_HTTP_KVROUTE_BYPASS);
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);
    needs = kvr_policy_needs(at->policy->kind);

    /* a header can name a session, and a path a response */

    if (!body && !(needs & KVR_NEEDS_SESSION)
        && klcf->pin == NULL && ctx->endpoint != KVR_ENDPOINT_RESPONSE)
    {
        return ngx_http_kvroute_prepare_fallback(at, NGX_HTTP_KVROUTE_BODYLESS);
    }

    /*
     * A single server needs no look-up.  Sessions are bound nevertheless, in
     * case servers are added, and the costs of legs are compared.
     */

    if (at->rrp.peers->single && ctx->legs == NULL
        && !(needs & KVR_NEEDS_SESSION) && !kscf->shadow)
    {
        return NGX_OK;
    }

    if (ngx_http_kvroute_request_salt(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    /* kvroute_shadow compares cached bytes, whatever the policy */

    if (body && (kscf->shadow || needs & KVR_NEEDS_BODY
                 || (needs & KVR_NEEDS_SESSION
                     && at->policy->key->value.len == 0)))
    {
        ngx_http_kvroute_request_read(r, ctx, kscf->zone);
    }

    ngx_http_kvroute_match(r, at);

    if (!body && !at->session.keyed && !at->pinned
        && ctx->endpoint != KVR_ENDPOINT_RESPONSE)
    {
        return ngx_http_kvroute_prepare_fallback(at, NGX_HTTP_KVROUTE_BODYLESS);
    }

    return NGX_OK;
}


void
ngx_http_kvroute_prepare_avoid(ngx_http_kvroute_attempt_t *at, uint32_t peer)
{
    ngx_uint_t                i;
    ngx_http_kvroute_list_t  *list;

    list = &at->conf->list[0];

    for (i = 0; i < list->number && peer != KVR_REGISTRY_NONE; i++) {

        if (list->id[list->first[i]] == peer) {
            at->rrp.tried[ngx_http_kvroute_tried_word(i)]
                |= ngx_http_kvroute_tried_bit(i);
        }
    }
}


static ngx_int_t
ngx_http_kvroute_prepare_fallback(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_mode_e mode)
{
    at->mode = mode;
    at->policy = &ngx_http_kvroute_prepare_round_robin;

    return NGX_OK;
}
