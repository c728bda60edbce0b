
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Sessions of the sticky policy: their keys, and the peers they are bound to.
 *
 * The zone's index has the binding under the hash of the key.  So all workers
 * know it, a reload keeps it, and no cookie is needed.
 */


#include "request/ngx_http_kvroute_request.h"


/* s; engines keep responses in memory, and later requests refer to them */
#define NGX_HTTP_KVROUTE_RESPONSE_TIME  (24 * 3600)


static ngx_int_t ngx_http_kvroute_session_auto(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_session_t *s,
    ngx_str_t *key);
static uint64_t ngx_http_kvroute_session_hash(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_str_t *key);
static void ngx_http_kvroute_session_bound(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_str_t *key,
    ngx_http_kvroute_session_t *s);


/* headers with the session of well-known clients, the most reliable first */

static ngx_str_t  ngx_http_kvroute_session_headers[] = {
    ngx_string("x-session-id"),
    ngx_string("x-claude-code-session-id"),
    ngx_string("x-session-affinity"),        /* OpenCode */
    ngx_string("session-id"),                /* Codex */
    ngx_string("session_id"),
    ngx_string("x-dynamo-session-id"),
    ngx_string("x-smg-routing-key"),
    ngx_null_string
};


/* members of the body, likewise */

static kvr_prompt_field_e  ngx_http_kvroute_session_fields[] = {
    KVR_PROMPT_CACHE_KEY,
    KVR_PROMPT_SESSION_ID,
    KVR_PROMPT_FIELDS
};


void
ngx_http_kvroute_session_find(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_policy_t *policy,
    ngx_http_kvroute_session_t *s)
{
    ngx_str_t                  key;
    ngx_http_complex_value_t  *cv;

    cv = policy->key;

    s->keyed = 0;
    s->bound = NGX_HTTP_KVROUTE_UNSET_PEER;

    ngx_str_null(&key);

    if (cv->value.len == 0) {

        if (ngx_http_kvroute_session_auto(ctx, conf, s, &key) != NGX_OK) {
            return;
        }

    } else if (ngx_http_complex_value(ctx->request, cv, &key) != NGX_OK
               || key.len == 0)
    {
        return;
    }

    ctx->session = key;

    if (!s->keyed) {
        ngx_http_kvroute_session_bound(ctx, conf, &key, s);
    }
}


static ngx_int_t
ngx_http_kvroute_session_auto(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_session_t *s,
    ngx_str_t *key)
{
    ngx_str_t           *name;
    ngx_table_elt_t     *h;
    kvr_prompt_field_e  *field;

    /* the engine that made the previous response has its state */

    if (ctx->hint[KVR_PROMPT_PREVIOUS_ID].len) {

        *key = ctx->hint[KVR_PROMPT_PREVIOUS_ID];

        ngx_http_kvroute_session_bound(ctx, conf, key, s);

        if (s->bound != NGX_HTTP_KVROUTE_UNSET_PEER) {
            return NGX_OK;
        }

        s->keyed = 0;
    }

    for (name = ngx_http_kvroute_session_headers; name->len; name++) {

        h = ngx_http_kvroute_headers_next(&ctx->request->headers_in.headers,
                                          name, NULL);

        if (h && h->value.len) {
            *key = h->value;
            return NGX_OK;
        }
    }

    for (field = ngx_http_kvroute_session_fields;
         *field != KVR_PROMPT_FIELDS;
         field++)
    {
        if (ctx->hint[*field].len) {
            *key = ctx->hint[*field];
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/* Hashes a key with the upstream and the salt, which separate sessions. */
static uint64_t
ngx_http_kvroute_session_hash(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_str_t *key)
{
    uint64_t        h;
    ngx_str_t      *host;
    const uint8_t  *secret;
    kvr_digest_pt   digest;

    secret = conf->zone->secret;
    digest = kvr_text_ops()->digest;
    host = &conf->upstream->host;

    h = digest(secret, host->data, host->len);
    h = kvr_mix(h, digest(secret,
                          ctx->salt.len ? ctx->salt.data : (u_char *) "",
                          ctx->salt.len));
    h = kvr_mix(h, digest(secret, key->data, key->len));

    return h;
}


static void
ngx_http_kvroute_session_bound(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_str_t *key,
    ngx_http_kvroute_session_t *s)
{
    uint32_t     peer, generation;
    kvr_zone_t  *zone;

    zone = &conf->zone->core;

    s->key = ngx_http_kvroute_session_hash(ctx, conf, key);
    s->keyed = 1;

    peer = kvr_index_bound(zone->index, s->key, (uint32_t) ngx_time(),
                           &generation);

    /* another peer has the slot now, or the drain time is over */

    if (peer == KVR_PEERS
        || generation != zone->registry->peer[peer].generation
        || kvr_drain_over(&zone->registry->peer[peer].drain,
                          (uint64_t) ngx_current_msec))
    {
        peer = NGX_HTTP_KVROUTE_UNSET_PEER;
    }

    s->bound = peer;
}


void
ngx_http_kvroute_session_bind(ngx_http_kvroute_srv_conf_t *conf, uint64_t key,
    uint32_t peer, time_t seconds)
{
    kvr_zone_t  *zone;

    zone = &conf->zone->core;

    kvr_hooks(zone, bound, key, peer, (uint32_t) seconds,
              (uint32_t) ngx_time());

    kvr_index_bind(zone->index, key, peer,
                   zone->registry->peer[peer].generation,
                   (uint32_t) (ngx_time() + seconds));
}


/*
 * Only the engine that made a response can serve requests that refer to it,
 * whatever the policy.
 */
uint32_t
ngx_http_kvroute_session_owner(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_policy_t *policy)
{
    ngx_str_t                    id;
    const uint8_t               *p;
    ngx_http_request_t          *r;
    ngx_http_kvroute_session_t   s;

    r = ctx->request;

    if (ctx->endpoint == KVR_ENDPOINT_RESPONSE) {
        id.len = kvr_endpoint_id(r->uri.data, r->uri.len, &p);
        id.data = (u_char *) p;

    } else {
        id = ctx->hint[KVR_PROMPT_PREVIOUS_ID];
    }

    /* session policies use the id as a session key */

    if (id.len == 0
        || (kvr_policy_needs(policy->kind) & KVR_NEEDS_SESSION
            && ctx->endpoint != KVR_ENDPOINT_RESPONSE))
    {
        return NGX_HTTP_KVROUTE_UNSET_PEER;
    }

    ngx_http_kvroute_session_bound(ctx, conf, &id, &s);

    /* polling keeps the binding alive */

    if (ctx->endpoint == KVR_ENDPOINT_RESPONSE
        && s.bound != NGX_HTTP_KVROUTE_UNSET_PEER)
    {
        ngx_http_kvroute_session_bind(conf, s.key, s.bound,
                                      NGX_HTTP_KVROUTE_RESPONSE_TIME);
    }

    return s.bound;
}


void
ngx_http_kvroute_session_name(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, uint32_t peer, u_char *id, size_t len)
{
    ngx_str_t  key;

    key.data = id;
    key.len = len;

    ngx_http_kvroute_session_bind(conf,
                           ngx_http_kvroute_session_hash(ctx, conf, &key),
                           peer, NGX_HTTP_KVROUTE_RESPONSE_TIME);
}
