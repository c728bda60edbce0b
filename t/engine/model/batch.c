#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replica_int.h"


void
kve_list_push(kve_list_t *l, kve_req_t *req)
{
    req->prev = l->last;
    req->next = NULL;

    if (l->last) {
        l->last->next = req;

    } else {
        l->first = req;
    }

    l->last = req;
}


static void
kve_list_push_front(kve_list_t *l, kve_req_t *req)
{
    req->prev = NULL;
    req->next = l->first;

    if (l->first) {
        l->first->prev = req;

    } else {
        l->last = req;
    }

    l->first = req;
}


void
kve_list_remove(kve_list_t *l, kve_req_t *req)
{
    if (req->prev) {
        req->prev->next = req->next;

    } else {
        l->first = req->next;
    }

    if (req->next) {
        req->next->prev = req->prev;

    } else {
        l->last = req->prev;
    }
}


/* the heap: decoding sequences in the order in which they end */

static int
kve_heap_less(const kve_req_t *a, const kve_req_t *b)
{
    return a->finish < b->finish;
}


static void
kve_heap_set(kve_replica_t *r, uint32_t i, kve_req_t *req)
{
    r->heap[i] = req;
    req->heap = i;
}


static void
kve_heap_up(kve_replica_t *r, uint32_t i)
{
    uint32_t    parent;
    kve_req_t  *req;

    req = r->heap[i];

    while (i > 0) {
        parent = (i - 1) / 2;

        if (!kve_heap_less(req, r->heap[parent])) {
            break;
        }

        kve_heap_set(r, i, r->heap[parent]);
        i = parent;
    }

    kve_heap_set(r, i, req);
}


static void
kve_heap_down(kve_replica_t *r, uint32_t i)
{
    uint32_t    child;
    kve_req_t  *req;

    req = r->heap[i];

    for ( ;; ) {
        child = 2 * i + 1;

        if (child >= r->ndecode) {
            break;
        }

        if (child + 1 < r->ndecode
            && kve_heap_less(r->heap[child + 1], r->heap[child]))
        {
            child++;
        }

        if (!kve_heap_less(r->heap[child], req)) {
            break;
        }

        kve_heap_set(r, i, r->heap[child]);
        i = child;
    }

    kve_heap_set(r, i, req);
}


static void
kve_prefill_remove(kve_replica_t *r, kve_req_t *req)
{
    if (req->pprev) {
        req->pprev->pnext = req->pnext;

    } else {
        r->prefill.first = req->pnext;
    }

    if (req->pnext) {
        req->pnext->pprev = req->pprev;

    } else {
        r->prefill.last = req->pprev;
    }

    r->nprefill--;
}


/* the steps, modulo the block size, in which it needs a new block */

static uint32_t
kve_req_phase(const kve_replica_t *r, const kve_req_t *req)
{
    uint32_t  bs, used;

    bs = r->cf.block_size;
    used = (req->prompt_tokens + req->generated - 1) % bs;

    return (req->joined + bs - used) % bs;
}


/* a request in state PREFILL or DECODE leaves the batch, with its blocks */

static void
kve_replica_leave(kve_replica_t *r, kve_req_t *req)
{
    uint32_t    i, phase;
    kve_req_t  *last;

    if (req->state == KVE_PREFILL) {
        kve_prefill_remove(r, req);
        r->nloading -= req->loading;
        req->loading = 0;

    } else {
        phase = kve_req_phase(r, req);

        if (req->pprev) {
            req->pprev->pnext = req->pnext;

        } else {
            r->phase[phase] = req->pnext;
        }

        if (req->pnext) {
            req->pnext->pprev = req->pprev;
        }

        r->phase_count[phase]--;

        r->ndecode--;
        i = req->heap;
        last = r->heap[r->ndecode];

        if (last != req) {
            kve_heap_set(r, i, last);
            kve_heap_up(r, i);
            kve_heap_down(r, last->heap);
        }

        req->generated += r->step - req->joined;
        r->context -= req->prompt_tokens + req->generated;
    }

    kve_list_remove(&r->running, req);
    r->nrunning--;

    /* its last blocks are evicted first */

    while (req->nblocks) {
        if (req->nblocks <= req->named && req->nblocks <= req->nhashes) {
            kve_replica_below(r, req->hashes[req->nblocks - 1]);
        }

        kve_blocks_release(r->blocks,
                           req->blocks[--req->nblocks]);
    }

    req->named = 0;
    req->state = KVE_IDLE;
}


static void
kve_replica_name(kve_replica_t *r, kve_req_t *req, uint32_t upto)
{
    int       new;
    uint32_t  i, n;

    n = 0;

    while (req->named < upto) {
        i = req->named++;

        new = !r->cf.no_cache && i < req->nhashes
              && kve_blocks_name(r->blocks, req->blocks[i],
                                 req->hashes[i]);

        if (i < req->nhashes) {
            kve_replica_below(r, req->hashes[i]);
        }

        if (r->watch == NULL) {
            continue;
        }

        n += new;

        if (n && (!new || req->named == upto)) {
            r->watch->stored(r->watch->data, req, i + new - n, n);
            r->told = 1;
            n = 0;
        }
    }
}


/* new blocks of the decoding sequences for step s */

void
kve_replica_begin(kve_replica_t *r, uint64_t s)
{
    kve_req_t  *req;

    for (req = r->phase[s % r->cf.block_size]; req; req = req->pnext) {
        kve_replica_name(r, req, req->nblocks);
        req->blocks[req->nblocks++] = kve_blocks_alloc(r->blocks);
    }
}


static void
kve_replica_keep(kve_replica_t *r, kve_req_t *req)
{
    uint32_t  i;

    for (i = 0; i < req->nblocks; i++) {
        kve_blocks_hold(r->blocks, req->blocks[i]);
    }

    req->nkept = req->nblocks;
    r->nkept++;
}


/* releases the kept blocks, the last first */

void
kve_replica_let(kve_replica_t *r, kve_req_t *req)
{
    while (req->nkept) {
        kve_blocks_release(r->blocks,
                           req->blocks[--req->nkept]);
    }

    free(req->blocks);
    req->blocks = NULL;
    r->nkept--;
}


void
kve_replica_finish(kve_replica_t *r, kve_req_t *req, double t)
{
    kve_replica_name(r, req, (req->prompt_tokens + req->output_tokens - 1)
                             / r->cf.block_size);

    if (req->keep) {
        kve_replica_keep(r, req);
    }

    kve_replica_leave(r, req);

    if (!req->keep) {
        free(req->blocks);
        req->blocks = NULL;
    }

    req->done_time = t + r->cf.hw.output * req->output_tokens;
    r->st.done++;

    kve_replica_event(r, KVE_DONE, req, req->done_time);
}


/* the prefill is done: the step has made a token, too */

void
kve_replica_join(kve_replica_t *r, kve_req_t *req, double t)
{
    uint32_t  phase;

    req->generated++;
    r->st.generation_tokens++;

    if (req->nspans == KVE_SPANS) {
        memmove(&req->spans[0], &req->spans[1],
                (KVE_SPANS - 1) * sizeof(kve_span_t));
        req->nspans--;
    }

    req->spans[req->nspans].step = r->step;
    req->spans[req->nspans++].token = req->generated;

    if (req->generated == 1) {
        r->st.prompt_tokens += req->prompt_tokens;
        req->first_time = t + r->cf.hw.output;
        kve_replica_event(r, KVE_FIRST, req, req->first_time);
    }

    if (req->generated == req->output_tokens) {
        kve_replica_finish(r, req, t);
        return;
    }

    kve_prefill_remove(r, req);

    req->state = KVE_DECODE;
    req->joined = r->step;
    req->finish = r->step + (req->output_tokens - req->generated);

    phase = kve_req_phase(r, req);

    req->pprev = NULL;
    req->pnext = r->phase[phase];

    if (req->pnext) {
        req->pnext->pprev = req;
    }

    r->phase[phase] = req;
    r->phase_count[phase]++;

    r->heap = kve_grow(r->heap, &r->heap_size, r->ndecode,
                       sizeof(kve_req_t *));

    kve_heap_set(r, r->ndecode++, req);
    kve_heap_up(r, req->heap);

    r->context += req->prompt_tokens + req->generated;
}


void
kve_replica_preempt(kve_replica_t *r, kve_req_t *req, double t)
{
    if (req->state == KVE_DECODE) {
        kve_replica_name(r, req, (uint32_t)
                         (req->prompt_tokens + req->generated - 1
                          + (r->step - req->joined)) / r->cf.block_size);
    }

    kve_replica_leave(r, req);

    req->state = KVE_WAITING;
    req->preemptions++;
    req->chunk = 0;
    req->need = 0;
    r->st.preemptions++;

    kve_list_push_front(&r->waiting, req);
    r->nwaiting++;
    r->waiting_tokens += req->prompt_tokens + req->generated;

    kve_replica_event(r, KVE_PREEMPTED, req, t);
}


/*
 * Gives a chunk to a prefilling request.  Its blocks can be found from now on,
 * because requests that are scheduled later run later, or in the same step.
 */

uint32_t
kve_replica_chunk(kve_replica_t *r, kve_req_t *req, uint32_t budget)
{
    req->chunk = req->todo < budget ? req->todo : budget;

    kve_replica_name(r, req, (req->depth + req->chunk) / r->cf.block_size);

    if (r->cf.state) {
        kve_replica_states(r, req, req->depth + req->chunk);
    }

    return req->chunk;
}


void
kve_replica_drop(kve_replica_t *r, kve_req_t *req)
{
    switch (req->state) {

    case KVE_ARRIVING:
        kve_list_remove(&r->arrivals, req);
        break;

    case KVE_WAITING:
        kve_list_remove(&r->waiting, req);
        r->nwaiting--;
        r->waiting_tokens -= req->prompt_tokens + req->generated;
        break;

    default:
        kve_replica_leave(r, req);
        break;
    }

    req->state = KVE_IDLE;
    free(req->blocks);
    req->blocks = NULL;
    r->st.aborted++;
}


/*
 * 1: admitted, 0: no room yet, -1: there will never be room for it.
 */

int
kve_replica_admit(kve_replica_t *r, kve_req_t *req, double t, uint32_t budget)
{
    uint32_t    i, bs, total, limit, shared, found, idle, size;
    uint32_t    tier[KVE_TIERS];
    kve_tier_e  k;

    bs = r->cf.block_size;
    size = (req->prompt_tokens + req->output_tokens + bs - 2) / bs;

    if (size > kve_blocks_total(r->blocks)) {
        return -1;
    }

    /*
     * While it is at the head no other request is admitted, so it can share
     * less and less with running requests, and its need can only grow.
     */

    if (req->need > kve_blocks_free(r->blocks)) {
        return 0;
    }

    if (req->blocks == NULL) {
        req->blocks = malloc((size + 1) * sizeof(uint32_t));
        if (req->blocks == NULL) {
            return -1;
        }
    }

    req->resume = req->prompt_tokens + req->generated;
    total = (req->resume + bs - 1) / bs;

    /* the last token is always computed, to get logits */

    limit = r->cf.no_cache || req->skip ? 0 : (req->resume - 1) / bs;

    if (limit > req->nhashes) {
        limit = req->nhashes;
    }

    found = kve_replica_found(r, req->hashes, limit, req->blocks, tier);

    if (found < limit && kve_replica_coming(r, req->hashes[found])) {
        return 0;
    }

    found = kve_replica_fetched(req, limit, found, tier);

    shared = tier[KVE_GPU];

    for (i = 0, idle = 0; i < shared; i++) {
        idle += !kve_blocks_is_held(r->blocks, req->blocks[i]);
    }

    if (total - shared + idle > kve_blocks_free(r->blocks)) {
        req->need = total - shared + idle;
        return r->nrunning || r->nkept ? 0 : -1;
    }

    for (i = 0; i < shared; i++) {
        kve_blocks_hold(r->blocks, req->blocks[i]);
    }

    for ( /* void */ ; i < total; i++) {
        req->blocks[i] = kve_blocks_alloc(r->blocks);
    }

    req->nblocks = total;
    req->named = shared;
    req->depth = found * bs;

    if (req->given && req->preemptions == 0) {
        req->depth = req->resume - 1;
    }

    req->todo = req->resume - req->depth;

    if (req->preemptions == 0) {
        req->cached_tokens = req->depth;
        req->admit_time = t;
        r->st.queries += req->skip ? 0 : req->prompt_tokens;
        r->st.hits += req->depth;

        for (k = KVE_HOST; k < KVE_TIERS; k++) {
            req->loaded[k] = tier[k] * bs;
            r->st.loaded[k] += req->loaded[k];
        }

        kve_replica_event(r, KVE_ADMITTED, req, t);

    } else {
        r->st.recomputed_tokens += req->todo;
    }

    kve_list_remove(&r->waiting, req);
    r->nwaiting--;
    r->waiting_tokens -= req->resume;

    kve_list_push(&r->running, req);
    r->nrunning++;

    req->state = KVE_PREFILL;
    req->pnext = NULL;
    req->pprev = r->prefill.last;

    if (req->pprev) {
        req->pprev->pnext = req;

    } else {
        r->prefill.first = req;
    }

    r->prefill.last = req;
    r->nprefill++;

    kve_replica_load(r, req, tier, t);

    if (!req->loading) {
        kve_replica_chunk(r, req, budget);
    }

    return 1;
}
