
/*
 * Copyright (C) kvroute contributors
 */


/*
 * An attempt: one peer in use by one request, from get() to free().
 *
 * Until its end it counts as active in this process's row, and until the first
 * event of the response as pending.  Its index update stands if the peer
 * answers 2xx, and is undone otherwise.  Ending an attempt twice is harmless:
 * a worker that quits may destroy the request's pool before free() is called.
 */


#include "ngx_http_kvroute_extension.h"
#include "balance/ngx_http_kvroute_balance_int.h"


/* ms; precision of the time when a peer last sent something */
#define NGX_HTTP_KVROUTE_ALIVE       100


static void ngx_http_kvroute_attempt_reinsert(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_attempt_ttft(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_attempt_read(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_attempt_settle(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_attempt_report(ngx_http_kvroute_attempt_t *at,
    const kvr_tokens_t *tokens);
static void ngx_http_kvroute_attempt_tally(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t status, ngx_uint_t state);
static void ngx_http_kvroute_attempt_state(kvr_member_t *member,
    ngx_http_upstream_state_t *state);


void
ngx_http_kvroute_attempt_begin(ngx_http_kvroute_attempt_t *at,
    kvr_begin_t *begin)
{
    kvr_reservation_t            *reserved;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = at->conf;

    at->stream = 0;
    at->watched = 1;
    at->named = 0;

    begin->bytes = at->ctx->bytes;
    begin->resident = ngx_http_kvroute_request_resident(at->ctx);
    begin->no_prefill = at->ctx->no_prefill;
    begin->stream = at->ctx->stream && !at->ctx->unsized && !at->ctx->extra;
    begin->pool = &conf->pool;

    if (at->tries || conf->eject.budget) {
        ngx_http_kvroute_eject_retries(at, begin->member);
    }

    reserved = ngx_http_kvroute_reserve_held(&at->ctx->reserved, conf);

    kvr_attempt_begin(&at->core, &conf->zone->core, begin, reserved,
                      (uint64_t) ngx_current_msec);

    ngx_http_kvroute_reserve_consume(&at->ctx->reserved, conf,
                                     at->core.reservation.peer);
}


/*
 * A conversation without a key is identified by the first block behind the
 * prefix that other peers have cached too.
 */
void
ngx_http_kvroute_attempt_drain(ngx_http_kvroute_attempt_t *at)
{
    uint32_t                 i, k, id, others;
    uint64_t                *chain, key;
    kvr_zone_t              *zone;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;
    id = at->core.reservation.peer;
    zone = &at->conf->zone->core;

    if (id == KVR_REGISTRY_NONE || !kvr_candidate_draining(zone, id)) {
        return;
    }

    if (at->session.keyed) {
        key = at->session.key;

    } else if (at->matched) {
        others = 0;

        for (i = 0; i < zone->registry->max_peers; i++) {
            if (kvr_set_test(&at->conf->set, i)
                && !kvr_candidate_draining(zone, i))
            {
                others = ngx_max(others, at->matched[i]);
            }
        }

        k = kvr_chain_entries(others);

        chain = ngx_http_kvroute_prompt_chain(ctx->request, ctx,
                                              at->conf->zone);
        if (chain == NULL || k >= ctx->entries) {
            return;
        }

        key = chain[k];

    } else {
        return;
    }

    kvr_drain_session(&zone->registry->peer[id].drain, key,
                      (uint64_t) ngx_current_msec);
}


void
ngx_http_kvroute_attempt_insert(ngx_http_kvroute_attempt_t *at)
{
    uint32_t                 peer;
    uint64_t                *chain;
    kvr_insert_t             in;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;
    peer = at->core.reservation.peer;

    if (peer == KVR_REGISTRY_NONE || !ctx->parsed || at->rank.unknown
        || ngx_http_kvroute_balance_fallback(at))
    {
        return;
    }

    kvr_index_note(at->conf->zone->core.index, ctx->model_root, peer);

    if (ctx->entries == 0) {
        return;
    }

    chain = ngx_http_kvroute_prompt_chain(ctx->request, ctx, at->conf->zone);
    if (chain == NULL) {
        return;
    }

    in.chain = chain;
    in.entries = ctx->entries;
    in.units = ctx->units;
    in.held = at->matched ? at->matched[peer] : 0;
    in.skips = ctx->skips;

    kvr_attempt_insert(&at->core, &at->conf->zone->core, &in);

    if (at->counted) {
        kvr_attempt_burst(&at->core, &at->conf->zone->core, at->counted);
    }

    /* an extension needs the chain when the attempt has ended */

    if (kvr_hooks_wants(&at->conf->zone->core, peer)) {
        ngx_http_kvroute_prompt_keep_chain(ctx->request, ctx, at->conf->zone);
    }
}


static void
ngx_http_kvroute_attempt_reinsert(ngx_http_kvroute_attempt_t *at)
{
    uint64_t                *chain;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;

    chain = ngx_http_kvroute_prompt_chain(ctx->request, ctx, at->conf->zone);

    if (chain) {
        kvr_attempt_reinsert(&at->core, &at->conf->zone->core, chain);
    }
}


void
ngx_http_kvroute_attempt_first(ngx_http_kvroute_attempt_t *at)
{
    unsigned                 rc;
    uint32_t                 peer;
    ngx_uint_t               status;
    kvr_first_t              first;
    ngx_http_request_t      *r;
    ngx_http_kvroute_ctx_t  *ctx;

    if (!at->core.reservation.held || at->core.started) {
        return;
    }

    ngx_http_kvroute_reserve_freed(at->conf);

    ctx = at->ctx;
    r = ctx->request;
    peer = at->core.reservation.peer;

    status = r->upstream ? r->upstream->headers_in.status_n : 0;

    first.ok = (status >= 200 && status < 300);
    first.stream = ctx->usage.stream;
    first.plain = ctx->parsed && !ctx->extra
                  && (ctx->leg == NULL || !ctx->leg->decode)
                  && (at->models == NULL
                      || peer == KVR_REGISTRY_NONE
                      || kvr_set_test(&at->models->loaded, peer));
    first.hot = at->counted;

    rc = kvr_attempt_first(&at->core, &at->conf->zone->core, &at->conf->pool,
                           &first, (uint64_t) ngx_current_msec);

    if (!first.ok) {
        return;
    }

    ngx_http_kvroute_eject_log(at, rc);

    ctx->ttft = ngx_current_msec - (ngx_msec_t) at->core.start;
    ctx->ttft_set = 1;

    if (ctx->leg && ctx->leg->begun) {
        ctx->leg->begun(ctx->leg, r);
    }

    if (rc & KVR_ATTEMPT_REINSERT) {
        ngx_http_kvroute_attempt_reinsert(at);
    }

    if (!kvr_hooks_wants(&at->conf->zone->core, peer)) {
        ngx_http_kvroute_prompt_free_chain(ctx);
    }

    /* streams stay open for minutes, and no other attempt follows */

    at->matched = NULL;
    at->loads = NULL;
    at->hot = NULL;
    at->counted = NULL;

    ngx_free(ctx->lookup);
    ctx->lookup = NULL;

    /* a request that computes no prompt has no first token */

    if (peer != KVR_REGISTRY_NONE && !ctx->no_prefill) {
        ngx_http_kvroute_attempt_ttft(at);
    }
}


void
ngx_http_kvroute_attempt_alive(ngx_http_kvroute_attempt_t *at)
{
    uint32_t       peer;
    uint64_t       now;
    kvr_engine_t  *s;

    peer = at->core.reservation.peer;

    if (peer == KVR_REGISTRY_NONE || !at->ctx->ttft_set) {
        return;
    }

    now = (uint64_t) ngx_current_msec;
    s = &at->conf->zone->core.registry->peer[peer].engine;

    if (now - kvr_get(&s->success) >= NGX_HTTP_KVROUTE_ALIVE) {
        kvr_set(&s->success, now);
    }
}


static void
ngx_http_kvroute_attempt_ttft(ngx_http_kvroute_attempt_t *at)
{
    uint64_t                  ttft;
    kvr_member_t             *member;
    kvr_upstream_t           *upstream;
    ngx_http_kvroute_zone_t  *zone;

    zone = at->conf->zone;
    ttft = at->ctx->ttft;

    member = &zone->core.registry->member[at->member];
    upstream = &zone->core.registry->upstream[member->upstream];

    /* other responses start when they are complete: count them separately */

    kvr_add(&member->firsts[at->stream], 1);
    kvr_add(&member->ttft[at->stream], ttft);

    kvr_stats_observe(&upstream->stats,
                      at->stream ? KVR_STATS_TTFT : KVR_STATS_TTFT_WHOLE,
                      1000 * ttft);
    kvr_receipt_ttft(&zone->shm->receipts, at->receipt, (uint32_t) ttft,
                     at->stream);
}


/*
 * The first two calls are adjacent, because a worker may be killed between
 * them.  The insert is undone later, because hashing the body again takes time.
 */
void
ngx_http_kvroute_attempt_end(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state)
{
    int                      held;
    uint64_t                *chain;
    ngx_http_kvroute_ctx_t  *ctx;

    held = kvr_attempt_release(&at->core, &at->conf->zone->core);

    if (pc) {
        ngx_http_upstream_free_round_robin_peer(pc, &at->rrp, state);
    }

    if (!held) {
        return;
    }

    ngx_http_kvroute_reserve_freed(at->conf);

    ctx = at->ctx;

    ngx_http_kvroute_attempt_read(at);

    if (at->core.started) {
        ngx_http_kvroute_attempt_settle(at);
    }

    if (!(kvr_attempt_end(&at->core) & KVR_ATTEMPT_UNDO)) {
        return;
    }

    chain = ngx_http_kvroute_prompt_chain(ctx->request, ctx, at->conf->zone);

    if (chain) {
        kvr_attempt_undo(&at->core, &at->conf->zone->core, chain);
    }
}


void
ngx_http_kvroute_attempt_cleanup(void *data)
{
    ngx_http_kvroute_attempt_end(data, NULL, 0);
}


/* Reads the last line of the response, which may have no end. */
static void
ngx_http_kvroute_attempt_read(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;

    if (at->watched) {
        at->watched = 0;
        kvr_response_end(&ctx->usage, ctx->reply ? kvr_reply_part : NULL,
                         ctx->reply);
    }
}


/* Compares what was predicted with what the engine delivered. */
static void
ngx_http_kvroute_attempt_settle(ngx_http_kvroute_attempt_t *at)
{
    unsigned                 rc;
    kvr_reply_t             *reply;
    kvr_settle_t             settle;
    ngx_http_request_t      *r;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;
    r = ctx->request;

    if (at->core.reservation.peer == KVR_REGISTRY_NONE
        || !ctx->parsed || ctx->extra)
    {
        return;
    }

    /* the engine has cached the reply, and the next prompt contains it */

    reply = ctx->reply;

    if (reply && !reply->bad && reply->n && !at->rank.unknown
        && ctx->usage.mode == KVR_RESPONSE_REPLY)
    {
        kvr_attempt_extend(&at->core, &at->conf->zone->core, reply);
    }

    /* engines report transferred tokens as cached, or as computed */

    if (ctx->leg && ctx->leg->decode) {
        return;
    }

    kvr_response_tokens(&ctx->usage, &settle.tokens);

    if (settle.tokens.prompt <= 0) {
        return;
    }

    /* engines report tokens for some paths and modes only */

    settle.kind = (r->uri.len & 15) << 1 | ctx->usage.stream;
    settle.seconds = (uint32_t) ngx_time();
    settle.unsized = ctx->unsized;
    settle.sampled = ctx->sampled;

    rc = kvr_attempt_settle(&at->core, &at->conf->zone->core, &at->conf->pool,
                            &settle, (uint64_t) ngx_current_msec);

    if (rc & KVR_ATTEMPT_FORGOT) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "kvroute peer %V no longer has what the index predicts: "
                      "its entries are removed", &ctx->peer);
    }

    if (rc & KVR_ATTEMPT_REPORT) {
        ngx_http_kvroute_attempt_report(at, &settle.tokens);
    }

    if (rc & KVR_ATTEMPT_REINSERT) {
        ngx_http_kvroute_attempt_reinsert(at);
    }
}


static void
ngx_http_kvroute_attempt_report(ngx_http_kvroute_attempt_t *at,
    const kvr_tokens_t *tokens)
{
    uint64_t                            *chain, session;
    const kvr_hook_t                    *hook;
    ngx_http_kvroute_ctx_t              *ctx;
    const ngx_http_kvroute_extension_t  *ext;

    ctx = at->ctx;

    chain = ngx_http_kvroute_prompt_chain(ctx->request, ctx, at->conf->zone);

    if (chain == NULL) {
        return;
    }

    session = 0;

    for (hook = at->conf->zone->core.hooks; hook; hook = hook->next) {
        ext = ngx_http_kvroute_extension(hook);

        if (ext->session && session == 0) {
            session = ext->session(ctx->request, at->conf);
        }
    }

    kvr_attempt_report(&at->core, &at->conf->zone->core, chain, tokens,
                       session, (uint64_t) ngx_current_msec);
}


/* While nginx connects to a peer, it still has the previous peer's status. */
ngx_uint_t
ngx_http_kvroute_attempt_status(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_upstream_t  *u;

    u = at->ctx->request->upstream;

    if (u->state == NULL || u->state->header_time == (ngx_msec_t) -1) {
        return 0;
    }

    return u->headers_in.status_n;
}


void
ngx_http_kvroute_attempt_result(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t state)
{
    ngx_uint_t                    status;
    kvr_member_t                 *member;
    kvr_registry_t               *registry;
    ngx_http_upstream_t          *u;
    ngx_http_upstream_rr_peer_t  *peer;

    if (!at->core.reservation.held
        || at->core.reservation.peer == KVR_REGISTRY_NONE)
    {
        return;
    }

    registry = at->conf->zone->core.registry;
    member = &registry->member[at->member];

    if (state & NGX_PEER_FAILED) {
        kvr_add(&member->fails, 1);

        /* one failure too many: warm the peer up when it recovers */

        peer = at->rrp.current;

        if (peer->max_fails && peer->fails + 1 >= peer->max_fails) {
            kvr_add(&member->unavail, peer->fails + 1 == peer->max_fails);
            kvr_set(&registry->member[at->core.reservation.member].lost, 1);
        }
    }

    u = at->ctx->request->upstream;
    status = ngx_http_kvroute_attempt_status(at);

    if (status >= 100 && status < 100 * (KVR_STATUS_CLASSES + 1)) {
        kvr_add(&member->responses[status / 100 - 1], 1);
    }

    if (u->state) {
        ngx_http_kvroute_attempt_state(member, u->state);
    }

    ngx_http_kvroute_attempt_tally(at, status, state);
}


/* Counts the attempt, with its usage, for the request's model and tenant. */
static void
ngx_http_kvroute_attempt_tally(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t status, ngx_uint_t state)
{
    kvr_tokens_t             tokens;
    kvr_registry_t          *registry;
    kvr_tally_counts_t       counts;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;
    registry = at->conf->zone->core.registry;

    ngx_http_kvroute_attempt_read(at);
    kvr_response_tokens(&ctx->usage, &tokens);

    ngx_memzero((void *) &counts, sizeof(kvr_tally_counts_t));

    counts.requests = 1;
    counts.errors = (status / 100 == 5 || state & NGX_PEER_FAILED);

    if (ctx->parsed) {
        counts.prompt = ctx->bytes;
        counts.matched = ctx->matched;
    }

    if (at->tries == 1) {
        counts.waited = ngx_http_kvroute_queue_time(ctx);
    }

    if (tokens.prompt >= 0) {
        counts.tokens = tokens.prompt;
        counts.cached = ngx_min(ngx_max(tokens.cached, 0), tokens.prompt);
        counts.computed = counts.tokens - counts.cached;
        counts.output = ngx_max(tokens.completion, 0);

        kvr_receipt_usage(&at->conf->zone->shm->receipts, at->receipt,
                          tokens.prompt, tokens.cached, tokens.completion);
    }

    if (ctx->ttft_set && at->stream && !ctx->no_prefill) {
        counts.firsts = 1;
        counts.ttft = ctx->ttft;
    }

    ngx_http_kvroute_tally(ctx, at->conf->zone,
                 registry->member[at->core.reservation.member].upstream,
                 &counts, status / 100 == 2);
}


/* Adds what nginx measured; -1: not reached. */
static void
ngx_http_kvroute_attempt_state(kvr_member_t *member,
    ngx_http_upstream_state_t *state)
{
    kvr_add(&member->sent, (uint64_t) ngx_max(state->bytes_sent, 0));
    kvr_add(&member->received, (uint64_t) ngx_max(state->bytes_received, 0));

    if (state->header_time == (ngx_msec_t) -1) {
        return;
    }

    kvr_add(&member->headers, 1);
    kvr_add(&member->header_ms, state->header_time);

    if (state->response_time != (ngx_msec_t) -1) {
        kvr_add(&member->ends, 1);
        kvr_add(&member->end_ms, state->response_time);
    }
}
