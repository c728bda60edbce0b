
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What follows from what engines tell, by probes or in their responses: the
 * capacity of their caches, that they have forgotten, that they have too much
 * to do.
 */


#include "ngx_http_kvroute.h"


#define NGX_HTTP_KVROUTE_MAX_PRESSURE     60    /* s */

/* ms; by it headers age where nobody is asked */
#define NGX_HTTP_KVROUTE_ORCA_INTERVAL    1000


static ngx_table_elt_t *ngx_http_kvroute_retry_after(ngx_http_upstream_t *u);
static void ngx_http_kvroute_learn(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_learned(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_reteach(ngx_http_kvroute_attempt_t *at,
    uint64_t units);
static uint32_t ngx_http_kvroute_signal_kind(ngx_http_request_t *r,
    unsigned stream);


/* the peer has forgotten all */
void
ngx_http_kvroute_flush(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_uint_t why, ngx_log_t *log)
{
    kvr_peer_t  *peer;

    peer = &zone->sh->registry->peer[id];

    kvr_index_flush(zone->sh->index, id);
    kvr_loop_restart(&peer->loop);

    if (why == NGX_HTTP_KVROUTE_FLUSH_PROBE) {
        kvr_add(&peer->loop.by_probe, 1);
    }

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "kvroute peer %*s was restarted: its cache is empty",
                  (size_t) peer->len, peer->name);
}


/* sets what the index takes a peer's cache to hold, if the engine told */
void
ngx_http_kvroute_capacity(ngx_http_kvroute_zone_t *zone, uint32_t id)
{
    double                     units, bytes;
    uint32_t                   active, waiting;
    uint64_t                   tokens;
    kvr_peer_t                *peer;
    ngx_http_kvroute_shctx_t  *sh;

    sh = zone->sh;
    peer = &sh->registry->peer[id];
    tokens = kvr_get(&peer->signal.capacity);

    if (kvr_get(&peer->signal.set) & KVR_METRICS_NO_CACHE) {
        kvr_index_capacity(sh->index, id, 1, 1);
        return;
    }

    if (tokens == 0) {
        return;
    }

    /* a new peer's tokens are taken to be as long as those of the others */

    bytes = kvr_ratio_get(&peer->loop.bytes);

    if (bytes == 0) {
        bytes = kvr_models_bytes(&sh->registry->models);
    }

    if (bytes == 0) {
        bytes = kvr_loop_bytes(&peer->loop);
    }

    /* those that are answered: prompts are in the index, replies are not */

    active = kvr_load_get(sh->load, id).active;
    waiting = kvr_load_get(sh->load, kvr_registry_resident(id)).active;

    units = kvr_loop_usable(&peer->loop, tokens,
                            active - ngx_min(waiting, active))
            * bytes / (double) (sh->unit * KVR_BLOCK);

    units = ngx_min(units, KVR_INDEX_CAPACITY_MAX);

    kvr_index_capacity(sh->index, id, (uint64_t) units, 1);
}


/* the peer asks to be left alone for a while: no fault of its */
void
ngx_http_kvroute_pressed(kvr_peer_t *peer, time_t seconds)
{
    seconds = ngx_max(seconds, 1);
    seconds = ngx_min(seconds, NGX_HTTP_KVROUTE_MAX_PRESSURE);

    kvr_set(&peer->signal.pressure,
            (uint64_t) ngx_current_msec + 1000 * (uint64_t) seconds);
}


/*
 * Whether a response with 429 or 503 asks to be left alone: it must then not
 * count as a failure.  It says so by Retry-After.  Engines that have too much to
 * do name no time, but their errors are JSON, which those of a proxy in front of
 * one that is gone are not.  One that was found ill is not believed.
 */
ngx_uint_t
ngx_http_kvroute_busy(ngx_http_kvroute_attempt_t *at)
{
    ngx_int_t             n;
    ngx_uint_t            status;
    kvr_peer_t           *peer;
    ngx_table_elt_t      *h;
    ngx_http_upstream_t  *u;

    u = at->ctx->request->upstream;
    status = ngx_http_kvroute_attempt_status(at);

    if (at->id == KVR_REGISTRY_NONE || (status != 429 && status != 503)) {
        return 0;
    }

    peer = &at->conf->zone->sh->registry->peer[at->id];

    h = ngx_http_kvroute_retry_after(u);

    if (h) {
        n = ngx_atoi(h->value.data, h->value.len);
        ngx_http_kvroute_pressed(peer, n == NGX_ERROR ? 1 : n);

        return 1;
    }

    h = u->headers_in.content_type;

    if (h == NULL || h->value.len < 16
        || ngx_strncasecmp(h->value.data, (u_char *) "application/json", 16)
           != 0
        || (at->conf->health
            && kvr_get(&peer->signal.health) != KVR_HEALTH_UP))
    {
        return 0;
    }

    ngx_http_kvroute_pressed(peer, 1);

    return 1;
}


static ngx_table_elt_t *
ngx_http_kvroute_retry_after(ngx_http_upstream_t *u)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &u->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return NULL;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == 11
            && ngx_strncasecmp(h[i].key.data, (u_char *) "retry-after", 11)
               == 0)
        {
            return &h[i];
        }
    }
}


/* what an ORCA header tells: little, but by the way and fresh */
void
ngx_http_kvroute_orca(ngx_http_kvroute_attempt_t *at, ngx_str_t *value)
{
    kvr_metrics_t  m;

    ngx_memzero(&m, sizeof(kvr_metrics_t));

    if (kvr_metrics_orca(&m, value->data, value->len)) {
        kvr_signal_orca(&at->conf->zone->sh->registry->peer[at->id].signal,
                        &m, (uint64_t) ngx_current_msec);
    }
}


/* a response is over: what was predicted is held against what was delivered */
void
ngx_http_kvroute_settle(ngx_http_kvroute_attempt_t *at)
{
    int                        found;
    uint64_t                   clock;
    kvr_peer_t                *peer;
    kvr_tokens_t               tokens;
    kvr_index_peer_t          *p;
    kvr_loop_response_t        response;
    ngx_http_request_t        *r;
    ngx_http_kvroute_ctx_t    *ctx;
    ngx_http_kvroute_shctx_t  *sh;

    ctx = at->ctx;
    r = ctx->request;
    sh = at->conf->zone->sh;

    if (at->id == KVR_REGISTRY_NONE || !ctx->parsed || ctx->extra) {
        return;
    }

    ngx_http_kvroute_learn(at);

    kvr_usage_tokens(&ctx->usage, &tokens);

    if (tokens.prompt <= 0) {
        return;
    }

    peer = &sh->registry->peer[at->id];
    p = &sh->index->peer[at->id];

    ngx_memzero(&response, sizeof(kvr_loop_response_t));

    response.bytes = ctx->bytes;
    response.matched = ctx->matched;
    response.prompt = tokens.prompt;
    response.cached = tokens.cached;
    response.completion = tokens.completion;
    response.key = at->predicted;
    response.clock = at->clock;
    response.kind = ngx_http_kvroute_signal_kind(r, ctx->usage.stream);
    response.block = (uint32_t) (sh->unit * KVR_BLOCK);
    response.capacity = kvr_get(&p->reported) ? kvr_get(&p->capacity) : 0;
    response.young = at->young;
    response.taught = (uint64_t) at->prompted * response.block;
    response.age = at->age;
    response.odd = ctx->odd;
    response.alive = at->conf->probe
                     && kvr_signal_same(&peer->signal, ngx_current_msec,
                                        at->conf->probe->interval);

    if (ctx->model.len && !ctx->odd) {
        kvr_models_take(&sh->registry->models,
                        kvr_metrics_lora(ctx->model.data, ctx->model.len),
                        ctx->model.data, ctx->model.len, ctx->bytes,
                        tokens.prompt);
    }

    found = kvr_loop_take(&peer->loop, &response, (uint32_t) ngx_time(),
                          &clock);

    if (found & KVR_LOOP_FORGOT) {
        kvr_index_floor(sh->index, at->id, clock);

        /* the next probe is not to tell the same again */

        kvr_signal_renew(&peer->signal, (uint64_t) ngx_current_msec);

        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "kvroute peer %V has forgotten what it was taught",
                      &ctx->peer);
    }

    if (found & KVR_LOOP_MISSED) {
        ngx_http_kvroute_reteach(at,
                                 ctx->units
                                 * (uint64_t) ngx_max(tokens.cached, 0)
                                 / (uint64_t) tokens.prompt);
    }

    /* tokens of the capacity are bytes to us, and how many becomes clear */

    if (found & KVR_LOOP_MISSED
        || (kvr_get(&peer->loop.responses) & 15) == 1)
    {

        if (kvr_get(&p->reported)) {
            ngx_http_kvroute_capacity(at->conf->zone, at->id);

        } else {
            ngx_http_kvroute_learned(at);
        }
    }
}


/*
 * A stream has begun.  Of an engine that tells neither what it can hold nor
 * what it held, the time that this took says whether it held what it was
 * taught.
 */
void
ngx_http_kvroute_timed(ngx_http_kvroute_attempt_t *at)
{
    int                        found;
    kvr_peer_t                *peer;
    kvr_loop_t                *loop;
    kvr_upstream_t            *upstream;
    kvr_timing_first_t         first;
    ngx_http_kvroute_ctx_t    *ctx;
    ngx_http_kvroute_shctx_t  *sh;

    ctx = at->ctx;
    sh = at->conf->zone->sh;

    /* what is no stream begins when all of it is there */

    if (at->id == KVR_REGISTRY_NONE || at->timed == 0 || at->young
        || !ctx->usage.stream || !ctx->parsed || ctx->extra)
    {
        return;
    }

    peer = &sh->registry->peer[at->id];
    loop = &peer->loop;

    /* others' requests, or an adapter to be loaded, take time as well */

    if (kvr_get(&sh->index->peer[at->id].reported) || kvr_get(&loop->told)
        || kvr_get(&peer->signal.foreign)
        || (at->models && !(at->models >> at->id & 1)))
    {
        return;
    }

    upstream = &sh->registry->upstream[sh->registry->seat[at->seat].upstream];

    first.bytes = ctx->bytes;
    first.taught = (uint64_t) at->taught * sh->unit * KVR_BLOCK;
    first.reply = (uint64_t) (at->taught - at->prompted) * sh->unit * KVR_BLOCK;
    first.ms = ctx->ttft;
    first.given = at->timed;

    found = kvr_timing_first(&peer->timing, &upstream->pace, &first);

    if (found == KVR_TIMING_NOTHING
        || !kvr_loop_timed(loop, at->age, found == KVR_TIMING_HELD))
    {
        return;
    }

    if (found == KVR_TIMING_LOST) {

        if (ctx->matched) {
            ngx_http_kvroute_reteach(at, 0);
        }

        ngx_http_kvroute_learned(at);

    } else if ((kvr_get(&loop->timed_held) & 15) == 1) {
        ngx_http_kvroute_learned(at);
    }
}


/* what its cache holds by what was seen, and no more than it is said to */
static void
ngx_http_kvroute_learned(ngx_http_kvroute_attempt_t *at)
{
    uint64_t                   set, units, learned;
    kvr_peer_t                *peer;
    kvr_horizon_t              sum;
    ngx_http_kvroute_shctx_t  *sh;

    sh = at->conf->zone->sh;
    peer = sh->registry->peer;

    ngx_memzero(&sum, sizeof(kvr_horizon_t));

    for (set = at->conf->set | (uint64_t) 1 << at->id; set; set &= set - 1) {
        kvr_horizon_add(&sum, &peer[__builtin_ctzll(set)].loop.horizon);
    }

    units = at->conf->capacity / (sh->unit * KVR_BLOCK);
    learned = kvr_loop_horizon(&peer[at->id].loop, &sum);

    kvr_index_capacity(sh->index, at->id,
                       learned ? ngx_min(learned, units) : units, 0);
}


/* the reply is in the engine's cache, and will be in the next prompt */
static void
ngx_http_kvroute_learn(ngx_http_kvroute_attempt_t *at)
{
    kvr_reply_t  *reply;

    reply = at->ctx->reply;

    if (reply == NULL || reply->bad || reply->n == 0
        || at->ctx->usage.mode != KVR_USAGE_REPLY)
    {
        return;
    }

    kvr_index_extend(at->conf->zone->sh->index, reply->value, reply->first,
                     reply->n, (reply->blocks - reply->start) / reply->unit,
                     at->id);
}


/*
 * It was taken to hold what it has computed anew, but for so many units: that
 * is younger than it was said to be, and has cost more of the cache.
 */
static void
ngx_http_kvroute_reteach(ngx_http_kvroute_attempt_t *at, uint64_t units)
{
    uint64_t                *chain;
    kvr_lesson_t             lesson;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;

    if (ctx->entries == 0) {
        return;
    }

    chain = ngx_http_kvroute_request_chain(ctx->request, ctx, at->conf->zone);
    if (chain == NULL) {
        return;
    }

    kvr_index_learn(at->conf->zone->sh->index, chain, ctx->entries, ctx->units,
                    at->id, (uint32_t) units, &lesson);
}


/* endpoint and mode, in which an engine has its fields or has not */
static uint32_t
ngx_http_kvroute_signal_kind(ngx_http_request_t *r, unsigned stream)
{
    return (ngx_hash_key(r->uri.data, r->uri.len) & 15) << 1 | stream;
}


/* what probing says of a candidate; called under the lock of the peers */
void
ngx_http_kvroute_signal_candidate(ngx_http_kvroute_attempt_t *at,
    kvr_candidate_t *c, uint32_t id)
{
    double                          worth;
    uint32_t                        cap, set;
    uint64_t                        now;
    kvr_by_e                        by;
    kvr_signal_t                   *s;
    ngx_http_kvroute_srv_conf_t    *conf;

    conf = at->conf;
    now = (uint64_t) ngx_current_msec;
    s = &conf->zone->sh->registry->peer[id].signal;

    if (conf->health) {
        c->sick = (kvr_get(&s->health) != KVR_HEALTH_UP);
    }

    by = at->policy->conf.by;

    if (by == KVR_BY_KV || by == KVR_BY_WAITING) {

        set = kvr_signal_fresh(s, now,
                               conf->probe ? conf->probe->interval
                                           : NGX_HTTP_KVROUTE_ORCA_INTERVAL);

        c->fresh = (set & (by == KVR_BY_KV ? KVR_METRICS_KV
                                           : KVR_METRICS_WAITING))
                   != 0;
        c->waiting = kvr_get(&s->waiting);
        c->kv = (double) kvr_get(&s->kv) / 10000;
    }

    if (conf->probe == NULL) {
        return;
    }

    worth = kvr_signal_worth(s, now, conf->probe->interval);

    if (conf->probe->mandatory && worth == 0) {
        c->sick = 1;
    }

    c->active += (uint32_t) (kvr_get(&s->foreign) * worth);

    cap = kvr_get(&s->cap);

    if (cap && worth > 0.5 && c->active >= cap) {
        c->full = 1;
    }
}


/* whether a peer is to have no work as long as there are others */
ngx_uint_t
ngx_http_kvroute_signal_sick(ngx_http_kvroute_srv_conf_t *conf, uint32_t id)
{
    kvr_signal_t  *s;

    if (id == KVR_REGISTRY_NONE) {
        return 0;
    }

    s = &conf->zone->sh->registry->peer[id].signal;

    if (conf->health && kvr_get(&s->health) != KVR_HEALTH_UP) {
        return 1;
    }

    return conf->probe && conf->probe->mandatory
           && kvr_signal_worth(s, ngx_current_msec, conf->probe->interval)
              == 0;
}


/* whether it has asked to be left alone, and the time is not over */
ngx_uint_t
ngx_http_kvroute_signal_pressed(ngx_http_kvroute_srv_conf_t *conf, uint32_t id)
{
    return id != KVR_REGISTRY_NONE
           && kvr_get(&conf->zone->sh->registry->peer[id].signal.pressure)
              > (uint64_t) ngx_current_msec;
}


/* whether what the engine said last still counts */
ngx_uint_t
ngx_http_kvroute_signal_fresh(ngx_http_kvroute_srv_conf_t *conf, uint32_t id)
{
    if (conf->probe == NULL) {
        return 0;
    }

    return kvr_signal_worth(&conf->zone->sh->registry->peer[id].signal,
                            ngx_current_msec, conf->probe->interval)
           > 0.5;
}


/* whether more than max_waiting= wait inside the engine, by its fresh word */
ngx_uint_t
ngx_http_kvroute_signal_waiting(ngx_http_kvroute_srv_conf_t *conf, uint32_t id)
{
    kvr_signal_t  *s;

    if (conf->max_waiting == NGX_CONF_UNSET || conf->probe == NULL) {
        return 0;
    }

    s = &conf->zone->sh->registry->peer[id].signal;

    return kvr_get(&s->set) & KVR_METRICS_WAITING
           && (ngx_int_t) kvr_get(&s->waiting) > conf->max_waiting
           && ngx_http_kvroute_signal_fresh(conf, id);
}
