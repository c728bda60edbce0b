#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replica_int.h"


void
kve_config_init(kve_config_t *cf, const kve_hw_t *hw)
{
    memset(cf, 0, sizeof(kve_config_t));

    cf->hw = *hw;
    cf->speed = 1;
    cf->block_size = 16;
    cf->max_seqs = hw->max_seqs;
    cf->max_batched = hw->max_batched;
}


kve_replica_t *
kve_replica_create(const kve_config_t *cf)
{
    kve_tier_e      i;
    kve_replica_t  *r;

    r = calloc(1, sizeof(kve_replica_t));
    if (r == NULL) {
        return NULL;
    }

    r->cf = *cf;

    if (r->cf.block_size == 0) {
        r->cf.block_size = 16;
    }

    if (r->cf.blocks == 0) {
        r->cf.blocks = r->cf.hw.kv_tokens / r->cf.block_size;
    }

    if (r->cf.blocks == 0) {
        r->cf.blocks = 1;
    }

    if (r->cf.speed <= 0) {
        r->cf.speed = 1;
    }

    if (r->cf.max_batched == 0) {
        r->cf.max_batched = 8192;
    }

    if (r->cf.max_seqs == 0) {
        r->cf.max_seqs = 256;
    }

    /* every decoding sequence has its token in every step */

    if (r->cf.max_seqs > r->cf.max_batched) {
        r->cf.max_seqs = r->cf.max_batched;
    }

    r->blocks = kve_blocks_create(r->cf.blocks);

    for (i = KVE_HOST; i < KVE_TIERS; i++) {
        r->by[i].r = r;
        r->by[i].tier = i;
        r->tier[i] = r->cf.tier[i].shared;

        if (r->tier[i] == NULL && r->cf.tier[i].blocks) {
            r->tier[i] = kve_blocks_create(r->cf.tier[i].blocks);
        }
    }

    r->phase = calloc(r->cf.block_size, sizeof(kve_req_t *));
    r->phase_count = calloc(r->cf.block_size, sizeof(uint32_t));

    if (r->blocks == NULL || r->phase == NULL || r->phase_count == NULL) {
        kve_replica_destroy(r);
        return NULL;
    }

    return r;
}


void
kve_replica_destroy(kve_replica_t *r)
{
    kve_tier_e   i;
    kve_req_t   *req;

    if (r == NULL) {
        return;
    }

    for (req = r->waiting.first; req; req = req->next) {
        free(req->blocks);
        req->blocks = NULL;
    }

    for (req = r->running.first; req; req = req->next) {
        free(req->blocks);
        req->blocks = NULL;
    }

    for (i = KVE_HOST; i < KVE_TIERS; i++) {
        if (r->cf.tier[i].shared == NULL) {
            kve_blocks_destroy(r->tier[i]);
        }
    }

    kve_blocks_destroy(r->blocks);
    free(r->phase);
    free(r->phase_count);
    free(r->heap);
    free(r->log);
    free(r->events);
    free(r->returned);
    free(r);
}


static void
kve_replica_removed(void *data, uint64_t hash)
{
    kve_replica_t  *r;

    r = data;
    r->told = 1;
    r->watch->removed(r->watch->data, hash);
}


static void
kve_replica_dropped(void *data, uint64_t hash)
{
    kve_told_tier_t *by = data;

    by->r->told = 1;
    by->r->watch->moved(by->r->watch->data, by->tier, hash, 0);
}


void
kve_replica_watch(kve_replica_t *r, const kve_watch_t *watch)
{
    kve_tier_e  i;

    r->watch = watch;
    kve_blocks_watch(r->blocks, watch ? kve_replica_removed : NULL, r);

    for (i = KVE_HOST; i < KVE_TIERS; i++) {
        if (r->tier[i] && r->cf.tier[i].shared == NULL) {
            kve_blocks_watch(r->tier[i],
                             watch && watch->moved ? kve_replica_dropped
                                                   : NULL,
                             &r->by[i]);
        }
    }
}


void
kve_replica_submit(kve_replica_t *r, kve_req_t *req, double t)
{
    req->cached_tokens = 0;
    memset(req->loaded, 0, sizeof(req->loaded));
    req->preemptions = 0;
    req->submit_time = t > r->now ? t : r->now;
    req->admit_time = NAN;
    req->first_time = NAN;
    req->done_time = NAN;

    req->state = KVE_ARRIVING;
    req->generated = 0;
    req->chunk = 0;
    req->need = 0;
    req->loading = 0;
    req->nblocks = 0;
    req->nkept = 0;
    req->named = 0;
    req->nspans = 0;
    req->blocks = NULL;

    if (req->prompt_tokens == 0) {
        req->prompt_tokens = 1;
    }

    if (req->output_tokens == 0) {
        req->output_tokens = 1;
    }

    kve_list_push(&r->arrivals, req);
    r->st.requests++;
}


void
kve_replica_abort(kve_replica_t *r, kve_req_t *req, double t)
{
    size_t  i, n;

    kve_replica_go(r, t);

    if (req->state != KVE_IDLE) {
        kve_replica_settle_to(r, t, 1);
        kve_replica_drop(r, req);
    }

    for (i = 0, n = 0; i < r->nevents; i++) {
        if (r->events[i].req != req) {
            r->events[n++] = r->events[i];
        }
    }

    r->nevents = n;
}


double
kve_replica_next(const kve_replica_t *r)
{
    double  te, ta;

    if (r->nevents) {
        return r->now;
    }

    te = r->active ? kve_run_time(&r->run, r->run.n) : INFINITY;
    ta = r->arrivals.first
         ? r->arrivals.first->submit_time + r->cf.hw.api : INFINITY;

    return fmin(fmin(te, ta), kve_replica_ready(r));
}


double
kve_replica_next_step(const kve_replica_t *r)
{
    double  t, next;

    next = kve_replica_next(r);

    if (r->active && r->step < r->run.step + r->run.n) {
        t = kve_run_time(&r->run, r->step + 1 - r->run.step);
        return t < next ? t : next;
    }

    return next;
}


static size_t
kve_replica_return(kve_replica_t *r, const kve_event_t **events)
{
    size_t        n, size;
    kve_event_t  *ev;

    ev = r->returned;
    size = r->returned_size;
    n = r->nevents;

    r->returned = r->events;
    r->returned_size = r->events_size;
    r->events = ev;
    r->events_size = size;
    r->nevents = 0;

    *events = r->returned;

    return n;
}


size_t
kve_replica_advance(kve_replica_t *r, double t, const kve_event_t **events)
{
    kve_replica_go(r, t);

    return kve_replica_return(r, events);
}


size_t
kve_replica_restart(kve_replica_t *r, double t, const kve_event_t **events)
{
    kve_list_t  *lists[3];
    size_t       i;
    kve_req_t   *req;

    kve_replica_go(r, t);

    lists[0] = &r->running;
    lists[1] = &r->waiting;
    lists[2] = &r->arrivals;

    for (i = 0; i < 3; i++) {
        while ((req = lists[i]->first) != NULL) {
            kve_replica_drop(r, req);
            kve_replica_event(r, KVE_ABORTED, req, r->now);
        }
    }

    kve_blocks_clear(r->blocks);

    /* files keep their blocks, and so do other processes */

    if (r->tier[KVE_HOST] && r->cf.tier[KVE_HOST].shared == NULL) {
        kve_blocks_clear(r->tier[KVE_HOST]);
    }

    memset(&r->st, 0, sizeof(kve_stats_t));
    r->active = 0;
    r->told = 0;

    return kve_replica_return(r, events);
}


int
kve_replica_reset_cache(kve_replica_t *r, double t)
{
    kve_replica_go(r, t);

    if (kve_blocks_held(r->blocks)) {
        return 0;
    }

    kve_blocks_clear(r->blocks);

    if (r->watch) {
        r->watch->cleared(r->watch->data);
        r->told = 1;
    }

    return 1;
}


int
kve_replica_set_blocks(kve_replica_t *r, uint32_t blocks, double t)
{
    kve_replica_go(r, t);
    kve_replica_settle_to(r, t, 1);

    if (kve_blocks_resize(r->blocks, blocks ? blocks : 1) != 0) {
        return -1;
    }

    r->cf.blocks = kve_blocks_total(r->blocks);

    return 0;
}


void
kve_replica_set_speed(kve_replica_t *r, double speed, double t)
{
    kve_replica_go(r, t);
    kve_replica_settle_to(r, t, 1);
    r->cf.speed = speed > 0 ? speed : 1;
}


uint32_t
kve_replica_match(const kve_replica_t *r, const uint64_t *hashes,
    uint32_t nhashes, uint32_t prompt_tokens)
{
    uint32_t  tokens[KVE_TIERS];

    kve_replica_reach(r, hashes, nhashes, prompt_tokens, tokens);

    return tokens[KVE_GPU] + tokens[KVE_HOST] + tokens[KVE_DISK];
}


void
kve_replica_reach(const kve_replica_t *r, const uint64_t *hashes,
    uint32_t nhashes, uint32_t prompt_tokens, uint32_t *tokens)
{
    uint32_t    limit;
    kve_tier_e  i;

    limit = prompt_tokens && !r->cf.no_cache
            ? (prompt_tokens - 1) / r->cf.block_size : 0;

    kve_replica_found(r, hashes, limit < nhashes ? limit : nhashes, NULL,
                      tokens);

    for (i = 0; i < KVE_TIERS; i++) {
        tokens[i] *= r->cf.block_size;
    }
}


void
kve_replica_stats(const kve_replica_t *r, kve_stats_t *st)
{
    *st = r->st;

    st->running = r->nrunning;
    st->waiting = r->nwaiting;
    st->prefilling = r->nprefill;
    st->decoding = r->ndecode;
    st->blocks = kve_blocks_total(r->blocks);
    st->held_blocks = kve_blocks_held(r->blocks);
    st->kv_usage = (double) st->held_blocks / st->blocks;
    st->waiting_tokens = r->waiting_tokens;
    st->context_tokens = r->context;
}


const kve_config_t *
kve_replica_config(const kve_replica_t *r)
{
    return &r->cf;
}


const kve_blocks_t *
kve_replica_blocks(const kve_replica_t *r)
{
    return r->blocks;
}


const kve_blocks_t *
kve_replica_tier(const kve_replica_t *r, kve_tier_e tier)
{
    return tier == KVE_GPU ? r->blocks : r->tier[tier];
}


uint32_t
kve_req_tokens(const kve_replica_t *r, const kve_req_t *req)
{
    if (req->state == KVE_DECODE) {
        return req->generated + (uint32_t) (r->step - req->joined);
    }

    return req->generated;
}


int
kve_replica_check(const kve_replica_t *r)
{
    uint32_t    i, n, blocks, prefill, decode, idle;
    uint64_t    context;
    kve_req_t  *req;

    prefill = 0;
    decode = 0;
    blocks = 0;
    context = 0;
    idle = 0;

    for (req = r->running.first; req; req = req->next) {

        blocks += req->nblocks;

        for (i = 0; i < req->nblocks; i++) {
            idle += !kve_blocks_is_held(r->blocks,
                                        req->blocks[i]);
        }

        if (req->state == KVE_PREFILL) {
            prefill++;
            continue;
        }

        decode++;
        context += req->prompt_tokens + kve_req_tokens(r, req);

        if (r->heap[req->heap] != req || req->finish < r->step) {
            return -10;
        }
    }

    if (idle
        || prefill != r->nprefill
        || decode != r->ndecode
        || context != r->context
        || prefill + decode != r->nrunning
        || r->nrunning > r->cf.max_batched
        || (r->nkept == 0 && blocks < kve_blocks_held(r->blocks)))
    {
        return -11;
    }

    for (i = 0, n = 0; i < r->cf.block_size; i++) {
        n += r->phase_count[i];
    }

    if (n != decode) {
        return -12;
    }

    for (i = 0, req = r->waiting.first; req; req = req->next) {
        i++;
    }

    if (i != r->nwaiting || (i && r->nrunning == 0 && r->nkept == 0)) {
        return -13;
    }

    return kve_blocks_check(r->blocks);
}
