/*
 * What the router learns: each prompt given, each first token, each reply.
 */

#include "router_int.h"


/* what a reply will be held against, before the insert is taught */
static void
kvs_router_predict(kvs_router_t *ro, kvs_request_t *rq, uint32_t n,
    uint32_t matched)
{
    uint32_t         k;
    kvr_feedback_t  *feedback;

    feedback = &ro->feedback[rq->replica];
    k = kvr_min(kvr_chain_entries(matched), n);

    rq->clock = kvr_index_clock(ro->index, rq->replica);
    rq->depth = kvr_index_inserted(ro->index, ro->chain, n, rq->replica,
                                   matched, &rq->age);
    rq->speculative = k && kvr_inflight_any(&feedback->inflight, ro->chain, k);
    rq->inflight = k < n ? kvr_inflight_add(&feedback->inflight, ro->chain,
                                            k) : 0;
}


static void kvs_router_capacity(kvs_router_t *ro, uint32_t i);


/* as ngx_http_kvroute_settle() does it */
void
kvs_router_settle(kvs_router_t *ro, kvs_request_t *rq, double now)
{
    int                      found;
    uint32_t                 n, k, i, cached;
    uint64_t                 clock;
    kvr_feedback_t          *feedback;
    kvr_index_undo_t         undo;
    kvr_feedback_response_t  r;

    i = rq->replica;
    feedback = &ro->feedback[i];
    cached = rq->req.cached_tokens / KVS_UNIT_TOKENS;

    n = kvs_router_chain(ro, rq->chain, rq->units);
    k = kvr_min(kvr_chain_entries(rq->matched / KVS_UNIT_TOKENS), n);

    memset(&r, 0, sizeof(r));

    r.bytes = rq->bytes;
    r.matched = (uint64_t) rq->matched * KVS_TOKEN_BYTES;
    r.prompt = rq->tokens;
    r.cached = rq->req.cached_tokens;
    r.key = k ? ro->chain[k - 1] : 0;
    r.clock = rq->clock;
    r.block = KVS_UNIT_BYTES;
    r.capacity = ro->conf.reported ? kvr_get(&ro->index->peer[i].capacity) : 0;
    r.speculative = rq->speculative;

    r.inserted = (uint64_t) rq->depth * KVS_UNIT_BYTES;
    r.age = rq->age;

    found = kvr_feedback_take(feedback, &r, (uint32_t) now, &clock);

    if (found & KVR_FEEDBACK_FORGOT) {
        kvr_index_floor(ro->index, i, clock);
    }

    if (found & KVR_FEEDBACK_MISSED) {
        kvr_index_insert(ro->index, ro->chain, n, rq->units, i, cached,
                         &undo);
    }

    kvs_router_capacity(ro, i);
}


/* what was learned of it, but no more than is assumed */
static void
kvs_router_capacity(kvs_router_t *ro, uint32_t i)
{
    uint32_t         k, units;
    kvr_retention_t  sum;

    memset((void *) &sum, 0, sizeof(kvr_retention_t));

    for (k = 0; k < ro->sim->n; k++) {
        kvr_retention_add(&sum, &ro->feedback[k].retention);
    }

    units = kvr_feedback_retention(&ro->feedback[i], &sum);
    units = units ? kvr_min(units, ro->assumed) : ro->assumed;
    kvr_index_capacity(ro->index, i, units, 0);
}


/* as ngx_http_kvroute_timed() does it */
void
kvs_router_timed(kvs_router_t *ro, kvs_request_t *rq, double now)
{
    int                 found;
    uint32_t            i, n;
    kvr_index_undo_t    undo;
    kvr_ttft_first_t    f;

    i = rq->replica;

    f.bytes = rq->bytes;
    f.inserted = (uint64_t) rq->depth * KVS_UNIT_BYTES;
    f.reply = 0;
    f.ms = (uint64_t) (1000 * (now - rq->given));
    f.given = rq->speculative ? 0 : rq->timed;

    found = kvr_ttft_first(&ro->ttft[i], &ro->prefill, &f);

    if (found == KVR_TTFT_NOTHING) {
        return;
    }

    kvr_feedback_timed(&ro->feedback[i], rq->age, found == KVR_TTFT_HELD);

    if (found == KVR_TTFT_LOST && rq->matched) {
        n = kvs_router_chain(ro, rq->chain, rq->units);
        kvr_index_insert(ro->index, ro->chain, n, rq->units, i, 0, &undo);
    }

    kvs_router_capacity(ro, i);
}


void
kvs_router_teach(kvs_router_t *ro, kvs_request_t *rq, double now,
    const uint64_t *chain, uint32_t units, uint32_t matched)
{
    uint32_t          n;
    kvr_index_undo_t  undo;

    if (ro->lru) {
        kvs_prefix_insert(ro->lru, chain, units, rq->replica, now);
    }

    n = kvs_router_chain(ro, chain, units);

    if (n && (ro->conf.usage || ro->conf.timed) && !rq->started) {
        kvs_router_predict(ro, rq, n, matched);
    }

    if (n == 0) {
        return;
    }

    if (rq->started || rq->speculative) {
        kvr_index_insert(ro->index, ro->chain, n, units, rq->replica, matched,
                         rq->started ? &undo : &rq->undo);

    } else {
        kvr_index_refresh(ro->index, ro->chain, n, units, rq->replica, matched,
                          &rq->undo);
    }
}
