
/*
 * Copyright (C) kvroute contributors
 */


/*
 * An attempt: one peer in use by one request, from get() to free().
 *
 * While it lasts it is counted in this process's row: as active to its end, as
 * pending to the first event of the response.  What the index learned from it
 * stands if the peer answered 2xx, and is taken back if it did not.  All of it
 * can be ended twice: a worker that is made to quit may destroy the request's
 * pool before free() comes.
 */


#include "ngx_http_kvroute.h"


/* tokens of a reply when nobody says, and at most: clients ask for the moon */
#define NGX_HTTP_KVROUTE_OUTPUT      256
#define NGX_HTTP_KVROUTE_MAX_OUTPUT  2048

/* ms; how exactly it is known when a peer last sent something */
#define NGX_HTTP_KVROUTE_ALIVE       100


static void ngx_http_kvroute_attempt_count(ngx_http_kvroute_attempt_t *at,
    int32_t active, int32_t unanswered, int64_t pending);
static void ngx_http_kvroute_attempt_answered(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_attempt_timed(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_attempt_state(kvr_seat_t *seat,
    ngx_http_upstream_state_t *state);
static void ngx_http_kvroute_attempt_teach_chunks(
    ngx_http_kvroute_attempt_t *at);


/* called under the peers' lock: nothing but arithmetic */
void
ngx_http_kvroute_attempt_begin(ngx_http_kvroute_attempt_t *at, uint32_t id,
    uint32_t seat, uint64_t pending)
{
    uint32_t                   waiting;
    uint64_t                   before;
    ngx_http_kvroute_shctx_t  *sh;

    at->id = id;
    at->seat = seat;
    at->pending = pending;
    at->resident = ngx_http_kvroute_attempt_resident(at->ctx);
    at->lesson.valid = 0;
    at->awaited = 0;
    at->timed = 0;
    at->taught = 0;
    at->prompted = 0;
    at->young = 0;
    at->ahead = 0;
    at->started = 0;
    at->stream = 0;
    at->unanswered = !at->ctx->light;
    at->watched = 1;
    at->named = 0;
    at->start = ngx_current_msec;
    at->reserved = 1;

    /* counted before it is uncounted: nobody shall see room in between */

    if (!ngx_http_kvroute_queue_take(at)) {
        ngx_http_kvroute_attempt_count(at, 1, at->unanswered,
                                       (int64_t) pending);
        ngx_http_kvroute_queue_consume(at);
    }

    /* what is no prompt tells nothing of how fast prompts are computed */

    if (id == KVR_REGISTRY_NONE || at->ctx->light) {
        return;
    }

    sh = at->conf->zone->sh;
    before = kvr_load_get(sh->load, id).pending;
    before -= ngx_min(before, pending);

    at->ahead = kvr_pace_give(&sh->registry->peer[id].pace, pending, before,
                              (uint64_t) ngx_current_msec);

    /* its own is counted already */

    waiting = kvr_load_get(sh->load, kvr_registry_resident(id)).active;

    at->timed = kvr_timing_give(&sh->registry->peer[id].timing, pending,
                                waiting > 1);
}


/* bytes of context that a request comes to, at four to a token */
uint64_t
ngx_http_kvroute_attempt_resident(ngx_http_kvroute_ctx_t *ctx)
{
    uint64_t  output;

    if (ctx->light) {
        return 0;
    }

    output = ctx->output ? ctx->output : NGX_HTTP_KVROUTE_OUTPUT;

    return ctx->bytes + 4 * ngx_min(output, NGX_HTTP_KVROUTE_MAX_OUTPUT);
}


static void
ngx_http_kvroute_attempt_count(ngx_http_kvroute_attempt_t *at, int32_t active,
    int32_t unanswered, int64_t pending)
{
    kvr_load_t               *load;
    ngx_http_kvroute_zone_t  *zone;

    if (active < 0 || pending < 0) {
        ngx_http_kvroute_queue_freed(at->conf);
    }

    if (at->id == KVR_REGISTRY_NONE) {
        return;
    }

    zone = at->conf->zone;
    load = zone->sh->load;

    kvr_load_add(load, zone->row, at->id, active, pending);
    kvr_load_add(load, zone->row, kvr_registry_column(at->seat), active,
                 pending);

    /* its context, and what it may become, for as long as it is there */

    kvr_load_add(load, zone->row, kvr_registry_resident(at->id), unanswered,
                 active * (int64_t) at->resident);
}


/* the index learns at the pick: siblings of a burst follow the first one */
void
ngx_http_kvroute_attempt_teach(ngx_http_kvroute_attempt_t *at)
{
    uint32_t                 k, matched;
    uint64_t                *chain;
    kvr_loop_t              *loop;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;
    at->young = 0;
    at->taught = 0;
    at->prompted = 0;

    if (at->id == KVR_REGISTRY_NONE || !ctx->parsed) {
        return;
    }

    kvr_index_note(at->conf->zone->sh->index, ctx->model_root, at->id);

    if (ctx->entries == 0) {
        return;
    }

    chain = ngx_http_kvroute_request_chain(ctx->request, ctx, at->conf->zone);
    if (chain == NULL) {
        return;
    }

    /* what it is held to: the deepest block that it is believed to have */

    at->clock = kvr_index_clock(at->conf->zone->sh->index, at->id);
    at->predicted = 0;
    loop = &at->conf->zone->sh->registry->peer[at->id].loop;
    matched = at->matched ? at->matched[at->id] : 0;
    k = 0;

    if (matched) {
        k = kvr_chain_entries(matched);
        k = ngx_min(k, ctx->entries);

        at->predicted = chain[k - 1];
        at->young = kvr_loop_young(loop, chain, k);
    }

    /*
     * An engine that does not look into its cache says nothing of what is
     * there.  It keeps what it computes all the same, as so many new blocks:
     * the lesson is that of a prompt nothing of which was held.
     */

    if (!ctx->skips) {
        at->taught = kvr_index_taught(at->conf->zone->sh->index, chain,
                                      ctx->entries, at->id, matched, &at->age);

        at->prompted = kvr_index_prompted(at->conf->zone->sh->index, chain,
                                          at->taught, at->id, KVR_REPLY_VALUES,
                                          &at->age);
    }

    if (k < ctx->entries) {
        at->awaited = kvr_loop_await(loop, chain, k);
    }

    if (at->young) {
        kvr_index_learn(at->conf->zone->sh->index, chain, ctx->entries,
                        ctx->units, at->id, matched, &at->lesson);

    } else {
        kvr_index_repeat(at->conf->zone->sh->index, chain, ctx->entries,
                         ctx->units, at->id, matched, &at->lesson);
    }

    if (at->policy->conf.chunks != KVR_CHUNKS_OFF) {
        ngx_http_kvroute_attempt_teach_chunks(at);
    }
}


static void
ngx_http_kvroute_attempt_teach_chunks(ngx_http_kvroute_attempt_t *at)
{
    uint32_t       i;
    kvr_chunks_t  *chunks;

    chunks = ngx_http_kvroute_request_chunks(at->ctx->request, at->ctx,
                                             at->conf->zone);

    for (i = 0; chunks && i < chunks->n; i++) {
        kvr_index_note(at->conf->zone->sh->index, chunks->chunk[i].digest,
                       at->id);
    }
}


/* the first event of the body: the prompt is computed */
void
ngx_http_kvroute_attempt_first(ngx_http_kvroute_attempt_t *at)
{
    uint64_t                 now;
    ngx_uint_t               status;
    kvr_peer_t              *peer;
    ngx_http_request_t      *r;
    ngx_http_kvroute_ctx_t  *ctx;

    if (!at->reserved || at->started) {
        return;
    }

    at->started = 1;

    ngx_http_kvroute_attempt_count(at, 0, -(int32_t) at->unanswered,
                                   -(int64_t) at->pending);
    at->unanswered = 0;
    at->pending = 0;

    ngx_http_kvroute_attempt_answered(at);

    ctx = at->ctx;
    r = ctx->request;

    status = r->upstream ? r->upstream->headers_in.status_n : 0;

    if (status >= 200 && status < 300) {
        at->lesson.valid = 0;

        now = (uint64_t) ngx_current_msec;

        ctx->ttft = ngx_current_msec - at->start;
        ctx->ttft_set = 1;

        ngx_http_kvroute_timed(at);

        ngx_http_kvroute_request_firm(ctx);

        if (at->id == KVR_REGISTRY_NONE) {
            return;
        }

        peer = &at->conf->zone->sh->registry->peer[at->id];

        kvr_set(&peer->signal.success, now);

        /* of the others it is no time to a token */

        if (!ctx->light) {
            kvr_popular_add(at->conf->zone->sh->popular, &at->counted, now);

            ngx_http_kvroute_attempt_timed(at);

            kvr_pace_first(&peer->pace, at->ahead, ctx->ttft, now);

            /* what is no stream begins when all of it is there */

            if (ctx->usage.stream) {
                kvr_pace_waited(&peer->pace, at->ahead, ctx->matched,
                                ctx->ttft, at->rate, now);
            }
        }
    }
}


/* it streams: checks that time out do not say that it is down */
void
ngx_http_kvroute_attempt_alive(ngx_http_kvroute_attempt_t *at)
{
    uint64_t       now;
    kvr_signal_t  *s;

    if (at->id == KVR_REGISTRY_NONE || !at->ctx->ttft_set) {
        return;
    }

    now = (uint64_t) ngx_current_msec;
    s = &at->conf->zone->sh->registry->peer[at->id].signal;

    if (now - kvr_get(&s->success) >= NGX_HTTP_KVROUTE_ALIVE) {
        kvr_set(&s->success, now);
    }
}


/* others may be held to what this one has brought there */
static void
ngx_http_kvroute_attempt_answered(ngx_http_kvroute_attempt_t *at)
{
    if (at->awaited) {
        kvr_loop_answered(&at->conf->zone->sh->registry->peer[at->id].loop,
                          at->awaited);
        at->awaited = 0;
    }
}


static void
ngx_http_kvroute_attempt_timed(ngx_http_kvroute_attempt_t *at)
{
    uint64_t                   ttft;
    kvr_seat_t                *seat;
    kvr_upstream_t            *upstream;
    ngx_http_kvroute_shctx_t  *sh;

    sh = at->conf->zone->sh;
    ttft = at->ctx->ttft;

    seat = &sh->registry->seat[at->seat];
    upstream = &sh->registry->upstream[seat->upstream];

    /* what is no stream begins when all of it is there: it is counted apart */

    kvr_add(&seat->firsts[at->stream], 1);
    kvr_add(&seat->ttft[at->stream], ttft);

    kvr_stats_observe(&upstream->stats,
                      at->stream ? KVR_STATS_TTFT : KVR_STATS_TTFT_WHOLE,
                      1000 * ttft);
    kvr_receipts_ttft(sh->receipts, at->receipt, (uint32_t) ttft, at->stream);
}


/*
 * Ends an attempt, here and in nginx's own balancer, if pc is not NULL.  They
 * are one right after the other, as a worker may be killed in between; what it
 * taught is taken back afterwards, since to hash the body again takes time.
 */
void
ngx_http_kvroute_attempt_end(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state)
{
    ngx_uint_t               reserved;
    uint64_t                *chain;
    ngx_http_kvroute_ctx_t  *ctx;

    reserved = at->reserved;
    at->reserved = 0;

    if (reserved) {
        ngx_http_kvroute_attempt_count(at, -1, -(int32_t) at->unanswered,
                                       -(int64_t) at->pending);
        at->unanswered = 0;
        at->pending = 0;
    }

    if (pc) {
        ngx_http_upstream_free_round_robin_peer(pc, &at->rrp, state);
    }

    if (!reserved) {
        return;
    }

    ctx = at->ctx;

    ngx_http_kvroute_attempt_answered(at);

    /* a last line without its end */

    if (at->watched) {
        at->watched = 0;
        kvr_usage_end(&ctx->usage, ctx->reply ? kvr_reply_part : NULL,
                      ctx->reply);
    }

    if (at->started) {
        ngx_http_kvroute_settle(at);
    }

    if (at->id != KVR_REGISTRY_NONE) {
        kvr_pace_end(&at->conf->zone->sh->registry->peer[at->id].pace,
                     ngx_current_msec - at->start,
                     (uint64_t) ngx_current_msec);
    }

    if (!at->lesson.valid) {
        return;
    }

    at->lesson.valid = 0;

    chain = ngx_http_kvroute_request_chain(ctx->request, ctx, at->conf->zone);

    if (chain) {
        kvr_index_forget(at->conf->zone->sh->index, chain, ctx->entries,
                         &at->lesson);
    }
}


/*
 * How this peer has answered; 0: it has not.  While it is being connected to,
 * nginx still keeps what the one before has answered.
 */
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


/* counts how the peer answered, if it did */
void
ngx_http_kvroute_attempt_result(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t state)
{
    ngx_uint_t                    status;
    kvr_seat_t                   *seat;
    ngx_http_upstream_t          *u;
    ngx_http_upstream_rr_peer_t  *peer;

    if (!at->reserved || at->id == KVR_REGISTRY_NONE) {
        return;
    }

    seat = &at->conf->zone->sh->registry->seat[at->seat];

    if (state & NGX_PEER_FAILED) {
        kvr_add(&seat->fails, 1);

        /* this one is too many: when it is back it will be warmed up */

        peer = at->rrp.current;

        if (peer->max_fails && peer->fails + 1 >= peer->max_fails) {
            kvr_add(&seat->unavail, peer->fails + 1 == peer->max_fails);
            kvr_set(&seat->lost, 1);
        }
    }

    u = at->ctx->request->upstream;
    status = ngx_http_kvroute_attempt_status(at);

    if (status >= 100 && status < 100 * (KVR_STATUS_CLASSES + 1)) {
        kvr_add(&seat->responses[status / 100 - 1], 1);
    }

    if (u->state) {
        ngx_http_kvroute_attempt_state(seat, u->state);
    }
}


/* nginx's own measures; a time of -1 has not come */
static void
ngx_http_kvroute_attempt_state(kvr_seat_t *seat,
    ngx_http_upstream_state_t *state)
{
    kvr_add(&seat->sent, (uint64_t) ngx_max(state->bytes_sent, 0));
    kvr_add(&seat->received, (uint64_t) ngx_max(state->bytes_received, 0));

    if (state->header_time == (ngx_msec_t) -1) {
        return;
    }

    kvr_add(&seat->headers, 1);
    kvr_add(&seat->header_ms, state->header_time);

    if (state->response_time != (ngx_msec_t) -1) {
        kvr_add(&seat->ends, 1);
        kvr_add(&seat->end_ms, state->response_time);
    }
}
