
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Classifies the end of a response for ejection, and applies the retry budget.
 *
 * The budget is checked twice.  At the pick, a spent budget makes this the last
 * try, so nginx passes on the engine's own error.  When an attempt fails, it is
 * checked again, because many attempts can fail at once.
 */


#include "balance/ngx_http_kvroute_balance_int.h"


static ngx_uint_t ngx_http_kvroute_eject_handshake(ngx_connection_t *c);
static kvr_outlier_e ngx_http_kvroute_eject_answer(
    ngx_http_kvroute_attempt_t *at, ngx_http_upstream_t *u);
static ngx_uint_t ngx_http_kvroute_eject_broken(ngx_peer_connection_t *pc,
    ngx_http_upstream_t *u);


void
ngx_http_kvroute_eject_retries(ngx_http_kvroute_attempt_t *at,
    uint32_t member)
{
    uint64_t                      now;
    kvr_upstream_t               *upstream;
    kvr_registry_t               *registry;
    ngx_peer_connection_t        *pc;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = at->conf;

    if (member == KVR_REGISTRY_NONE) {
        return;
    }

    registry = conf->zone->core.registry;
    upstream = &registry->upstream[registry->member[member].upstream];

    if (at->tries) {
        kvr_add(&upstream->retries, 1);
    }

    if (conf->eject.budget == 0) {
        return;
    }

    now = (uint64_t) ngx_current_msec;
    pc = &at->ctx->request->upstream->peer;

    kvr_outlier_sent(&upstream->fleet, at->tries != 0, now);

    at->denied = (pc->tries > 1
                  && !kvr_outlier_may_retry(&upstream->fleet, &conf->eject,
                                            now));

    if (at->denied) {
        pc->tries = 1;
    }
}


void
ngx_http_kvroute_eject_final(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, kvr_outlier_e reason, ngx_uint_t state)
{
    uint32_t         member;
    kvr_upstream_t  *upstream;
    kvr_registry_t  *registry;

    member = at->core.reservation.member;

    if (at->core.reservation.peer == KVR_REGISTRY_NONE) {
        return;
    }

    registry = at->conf->zone->core.registry;
    upstream = &registry->upstream[registry->member[member].upstream];

    /* round robin's free() subtracts one */

    if (state & NGX_PEER_FAILED && pc->tries > 1
        && !kvr_outlier_may_retry(&upstream->fleet, &at->conf->eject,
                                  (uint64_t) ngx_current_msec))
    {
        pc->tries = 1;
        at->denied = 1;
    }

    if (at->denied
        && ((reason != KVR_OUTLIER_NONE && reason < KVR_OUTLIER_400)
            || state & NGX_PEER_FAILED))
    {
        kvr_add(&upstream->denied, 1);
    }

    at->denied = 0;
}


kvr_outlier_e
ngx_http_kvroute_eject_reason(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state, ngx_uint_t status)
{
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    if (status / 100 == 5) {
        return KVR_OUTLIER_STATUS;
    }

    /* without a prompt, a 404 concerns the path */

    if (status / 100 == 4) {
        return status != NGX_HTTP_NOT_FOUND || at->ctx->parsed
               ? kvr_outlier_client((uint32_t) status) : KVR_OUTLIER_NONE;
    }

    /* without a response, an end that is no failure is the client's */

    u = at->ctx->request->upstream;

    if (status == 0 && state & NGX_PEER_FAILED) {
        c = pc->connection;

        if (c && (c->read->timedout || c->write->timedout)) {
            return KVR_OUTLIER_TIMEOUT;
        }

        if (u->state && u->state->connect_time != (ngx_msec_t) -1) {
            return KVR_OUTLIER_RESET;
        }

        return ngx_http_kvroute_eject_handshake(c) ? KVR_OUTLIER_TLS
                                                   : KVR_OUTLIER_REFUSED;
    }

    if (status / 100 != 2) {
        return KVR_OUTLIER_NONE;
    }

    return ngx_http_kvroute_eject_broken(pc, u)
           ? KVR_OUTLIER_BROKEN : ngx_http_kvroute_eject_answer(at, u);
}


/* Tells whether TLS has begun on a connection. */
static ngx_uint_t
ngx_http_kvroute_eject_handshake(ngx_connection_t *c)
{
#if (NGX_HTTP_SSL)
    return c && c->ssl;
#else
    return 0;
#endif
}


/* Classifies the body of a complete 2xx response. */
static kvr_outlier_e
ngx_http_kvroute_eject_answer(ngx_http_kvroute_attempt_t *at,
    ngx_http_upstream_t *u)
{
    ngx_uint_t               ended;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;

    switch (ctx->usage.error) {

    case KVR_RESPONSE_SERVER:
        return KVR_OUTLIER_ERROR;

    case KVR_RESPONSE_UNCLEAR:
    case KVR_RESPONSE_CLIENT:
        return KVR_OUTLIER_UNCLEAR;
    }

    /* a complete stream without an event */

    ended = u->buffering && u->pipe
            ? u->pipe->upstream_done || u->pipe->upstream_eof
            : u->length == 0;

    return ended && ctx->usage.stream && ctx->parsed && !at->core.started
           ? KVR_OUTLIER_UNCLEAR : KVR_OUTLIER_NONE;
}


/* Tells whether the response is incomplete, by nginx's rules. */
static ngx_uint_t
ngx_http_kvroute_eject_broken(ngx_peer_connection_t *pc,
    ngx_http_upstream_t *u)
{
    ngx_event_t       *rev;
    ngx_event_pipe_t  *p;

    if (u->upgrade || pc->connection == NULL) {
        return 0;
    }

    p = u->pipe;

    if (u->buffering && p) {
        return p->upstream_error
               || (p->upstream_eof && !p->upstream_done && p->length != -1
                   && p->length != 0);
    }

    rev = pc->connection->read;

    return rev->error || rev->timedout
           || (rev->eof && u->length != -1 && u->length != 0);
}


kvr_trial_arm_e
ngx_http_kvroute_eject_trial(ngx_http_kvroute_attempt_t *at,
    kvr_candidate_t *cand, ngx_uint_t n, uint32_t pick, uint64_t random)
{
    /* a request that cannot go elsewhere is no evidence */

    if (cand[pick].pinned || cand[pick].owner || at->rank.wanted
        || ngx_http_kvroute_balance_fallback(at))
    {
        return KVR_TRIAL_FIXED;
    }

    return kvr_likely(!cand[pick].doubted)
           ? KVR_TRIAL_NONE
           : kvr_eject_trial(cand, (uint32_t) n, kvr_mix(random, pick));
}


void
ngx_http_kvroute_eject_log(ngx_http_kvroute_attempt_t *at, unsigned bits)
{
    ngx_log_t       *log;
    uint64_t         state, now;
    kvr_peer_t      *peer;
    kvr_member_t    *m;
    kvr_registry_t  *registry;

    log = at->ctx->request->connection->log;
    registry = at->conf->zone->core.registry;

    if (bits & KVR_EJECT_RETURNED) {
        m = &registry->member[at->core.eject.member];
        peer = &registry->peer[m->peer];

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "kvroute peer %*s of upstream \"%V\" is back: it answers "
                      "again", (size_t) peer->len, peer->name,
                      &at->conf->upstream->host);
    }

    if (bits & KVR_EJECT_EJECTED) {
        m = &registry->member[at->core.eject.ejected];
        peer = &registry->peer[m->peer];

        now = (uint64_t) ngx_current_msec;
        state = kvr_get(&m->outlier.state);

        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "kvroute peer %*s of upstream \"%V\" is ejected for "
                      "%.1fs: it does worse than the others, the last was "
                      "\"%s\"",
                      (size_t) peer->len, peer->name,
                      &at->conf->upstream->host,
                      kvr_outlier_sick(state, now)
                      ? (double) (KVR_OUTLIER_TIME(state) - now) / 1000 : 0.0,
                      kvr_outlier_name(kvr_get(&m->outlier.reason)));
    }
}


void
ngx_http_kvroute_eject_log_silent(ngx_http_kvroute_attempt_t *at)
{
    if (at->silent) {
        at->core.eject.ejected = at->silent - 1;
        at->silent = 0;

        ngx_http_kvroute_eject_log(at, KVR_EJECT_EJECTED);
    }
}
