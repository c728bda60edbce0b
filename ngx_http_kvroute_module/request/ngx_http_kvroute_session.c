
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Sessions of the sticky policy: what names one, and which peer it is bound to.
 *
 * The binding is kept in the zone's index under the hash of the key, so that
 * all workers know it, a reload keeps it, and no cookie is needed.
 */


#include "ngx_http_kvroute.h"


/* engines keep responses in memory; how long a later one may refer to them */
#define NGX_HTTP_KVROUTE_RESPONSE_TIME  (24 * 3600)


static ngx_int_t ngx_http_kvroute_session_auto(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at, ngx_str_t *key);
static ngx_int_t ngx_http_kvroute_session_header(ngx_http_request_t *r,
    ngx_str_t *name, ngx_str_t *value);
static uint64_t ngx_http_kvroute_session_hash(ngx_http_kvroute_attempt_t *at,
    ngx_str_t *key);
static void ngx_http_kvroute_session_response(ngx_http_kvroute_attempt_t *at,
    uint64_t key, uint32_t id);
static void ngx_http_kvroute_session_bound(ngx_http_kvroute_attempt_t *at,
    ngx_str_t *key);


/* headers that clients send to name their sessions, in the order of trust */

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


/* the same in bodies */

static kvr_prompt_field_e  ngx_http_kvroute_session_fields[] = {
    KVR_PROMPT_CACHE_KEY,
    KVR_PROMPT_SESSION_ID,
    KVR_PROMPT_FIELDS
};


/* finds out the session of a request and the peer that it is bound to */
void
ngx_http_kvroute_session_find(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    ngx_str_t                  key;
    ngx_http_kvroute_ctx_t    *ctx;
    ngx_http_complex_value_t  *cv;

    ctx = at->ctx;
    cv = at->policy->key;

    ngx_str_null(&key);

    if (cv->value.len == 0) {

        if (ngx_http_kvroute_session_auto(r, at, &key) != NGX_OK) {
            return;
        }

    } else if (ngx_http_complex_value(r, cv, &key) != NGX_OK || key.len == 0) {
        return;
    }

    ctx->session = key;

    if (!at->keyed) {
        ngx_http_kvroute_session_bound(at, &key);
    }
}


static ngx_int_t
ngx_http_kvroute_session_auto(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at, ngx_str_t *key)
{
    ngx_str_t               *name;
    kvr_prompt_field_e      *field;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;

    /* the state behind a response is in one engine: if known, that decides */

    if (ctx->hint[KVR_PROMPT_PREVIOUS_ID].len) {

        *key = ctx->hint[KVR_PROMPT_PREVIOUS_ID];

        ngx_http_kvroute_session_bound(at, key);

        if (at->bound != NGX_HTTP_KVROUTE_UNSET_PEER) {
            return NGX_OK;
        }

        at->keyed = 0;
    }

    for (name = ngx_http_kvroute_session_headers; name->len; name++) {
        if (ngx_http_kvroute_session_header(r, name, key) == NGX_OK) {
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


static ngx_int_t
ngx_http_kvroute_session_header(ngx_http_request_t *r, ngx_str_t *name,
    ngx_str_t *value)
{
    ngx_uint_t        i;
    ngx_table_elt_t  *h;
    ngx_list_part_t  *part;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return NGX_DECLINED;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].hash == 0
            || h[i].key.len != name->len
            || ngx_strncasecmp(h[i].key.data, name->data, name->len) != 0
            || h[i].value.len == 0)
        {
            continue;
        }

        *value = h[i].value;

        return NGX_OK;
    }
}


/* the same name means another session to another tenant or upstream */
static uint64_t
ngx_http_kvroute_session_hash(ngx_http_kvroute_attempt_t *at, ngx_str_t *key)
{
    uint64_t         h;
    ngx_str_t       *host;
    const uint8_t   *secret;
    kvr_digest_pt    digest;

    secret = at->conf->zone->sh->secret;
    digest = kvr_text_ops()->digest;
    host = &at->conf->upstream->host;

    h = digest(secret, host->data, host->len);
    h = kvr_mix(h, digest(secret,
                          at->ctx->salt.len ? at->ctx->salt.data
                                            : (u_char *) "",
                          at->ctx->salt.len));
    h = kvr_mix(h, digest(secret, key->data, key->len));

    return h;
}


static void
ngx_http_kvroute_session_bound(ngx_http_kvroute_attempt_t *at, ngx_str_t *key)
{
    uint32_t                   peer, generation;
    ngx_http_kvroute_shctx_t  *sh;

    sh = at->conf->zone->sh;

    at->key = ngx_http_kvroute_session_hash(at, key);
    at->keyed = 1;

    peer = kvr_index_bound(sh->index, at->key, (uint32_t) ngx_time(),
                           &generation);

    if (peer == KVR_INDEX_PEERS || generation
        != sh->registry->peer[peer].generation) {
        peer = NGX_HTTP_KVROUTE_UNSET_PEER;
    }

    at->bound = peer;
}


/*
 * Binds the session to the peer taken, or renews the binding.  A session whose
 * peer is only full stays bound to it.
 */
void
ngx_http_kvroute_session_keep(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t offered)
{
    ngx_http_kvroute_shctx_t  *sh;

    if (at->core.reservation.peer == KVR_REGISTRY_NONE
        || ((offered || at->busy) && at->core.reservation.peer != at->bound))
    {
        return;
    }

    sh = at->conf->zone->sh;

    kvr_index_bind(sh->index, at->key, at->core.reservation.peer,
                   sh->registry->peer[at->core.reservation.peer].generation,
                   (uint32_t) ngx_time() + at->policy->conf.timeout);
}


/*
 * A request that refers to an earlier response, or asks for it, can only be
 * served where that was made, whatever the policy.
 */
void
ngx_http_kvroute_session_owner(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    ngx_str_t      id;
    const uint8_t *p;

    if (at->ctx->endpoint == KVR_ENDPOINT_RESPONSE) {
        id.len = kvr_endpoint_id(r->uri.data, r->uri.len, &p);
        id.data = (u_char *) p;

    } else {
        id = at->ctx->hint[KVR_PROMPT_PREVIOUS_ID];
    }

    /* a policy of sessions takes it for the name of one, and binds that */

    if (id.len == 0
        || (kvr_policy_needs(at->policy->conf.policy) & KVR_NEEDS_SESSION
            && at->ctx->endpoint != KVR_ENDPOINT_RESPONSE))
    {
        return;
    }

    ngx_http_kvroute_session_bound(at, &id);

    at->owner = at->bound;

    /* who asks again and again shall find it the next time, too */

    if (at->ctx->endpoint == KVR_ENDPOINT_RESPONSE
        && at->owner != NGX_HTTP_KVROUTE_UNSET_PEER)
    {
        ngx_http_kvroute_session_response(at, at->key, at->owner);
    }

    at->bound = NGX_HTTP_KVROUTE_UNSET_PEER;
    at->keyed = 0;
}


/* the response has told by which id it may be referred to */
void
ngx_http_kvroute_session_name(ngx_http_kvroute_attempt_t *at, u_char *id,
    size_t len)
{
    ngx_str_t  key;

    if (at->core.reservation.peer == KVR_REGISTRY_NONE || at->native) {
        return;
    }

    key.data = id;
    key.len = len;

    ngx_http_kvroute_session_response(at, ngx_http_kvroute_session_hash(at,
                                                                        &key),
                                      at->core.reservation.peer);
}


static void
ngx_http_kvroute_session_response(ngx_http_kvroute_attempt_t *at, uint64_t key,
    uint32_t id)
{
    ngx_http_kvroute_shctx_t  *sh;

    sh = at->conf->zone->sh;

    kvr_index_bind(sh->index, key, id, sh->registry->peer[id].generation,
                   (uint32_t) ngx_time() + NGX_HTTP_KVROUTE_RESPONSE_TIME);
}
