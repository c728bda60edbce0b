/*
 * What ngx_http_kvroute_queue*.c, _choose.c and _attempt.c do, in virtual time:
 * core/ is linked, not copied.  Each worker has its own heaps and looks for
 * room when one of its own requests ends or begins to answer, and every 4 ms.
 */

#include "fleet_int.h"


static uint32_t
kvq_match(kvq_t *q, kvq_request_t *rq, uint32_t *matched)
{
    uint32_t  i, n, best;

    n = kvr_min(kvr_chain_entries(rq->units), KVQ_ENTRIES);

    for (i = 0; i < n; i++) {
        q->entry[i] = rq->chain[kvr_chain_depth(i) - 1];
    }

    memset(matched, 0, KVS_REPLICAS * sizeof(uint32_t));

    best = kvr_index_lookup(q->index, q->entry, n,
                            UINT64_MAX >> (64 - q->conf->replicas), matched);

    if (best * KVS_UNIT_BYTES <= KVR_SCORE_FLOOR) {
        best = 0;
    }

    kvr_popular_keys(q->entry, kvr_chain_entries(best), &rq->counted);
    kvr_popular_view(q->popular, &rq->counted, KVS_UNIT_BYTES, kvq_ms(q),
                     &q->view);

    return n;
}


void
kvq_count(kvq_t *q, kvq_request_t *rq, uint32_t replica, int32_t active,
    int32_t unanswered, int64_t pending)
{
    kvr_load_add(q->load, rq->worker, replica, active, pending);
    kvr_load_add(q->load, rq->worker, kvr_registry_resident(replica),
                 unanswered, active * (int64_t) rq->bytes);
}


/* as ngx_http_kvroute_capped(); own: its reservation does not count */
static int
kvq_capped(kvq_t *q, kvq_request_t *rq, uint32_t replica, uint64_t bytes,
    unsigned own)
{
    uint64_t  pending;

    if (q->conf->target == 0) {
        return 0;
    }

    pending = kvr_load_get(q->load, replica).pending;

    if (own && rq->held && rq->reserved == replica) {
        pending -= rq->pending;
    }

    return kvr_registry_capped(&q->registry->peer[replica], q->conf->target,
                               pending, bytes, q->conf->probed,
                               kvq_ms(q));
}


/* as ngx_http_kvroute_queue_room() */
static int
kvq_room(void *data, kvr_queue_item_t *item)
{
    kvq_request_t *rq = data;

    double          cost, least, best;
    kvq_t          *q;
    uint32_t        i, n, matched[KVS_REPLICAS];
    uint64_t        held, most, here, bytes, rate;
    kvr_score_t     s;
    kvr_load_sum_t  sum;

    q = rq->sim;

    if (item == NULL) {
        rq->held = 0;
        kvq_count(q, rq, rq->reserved, -1, -1, -(int64_t) rq->pending);
        return 1;
    }

    n = q->conf->replicas;

    rq->rather = 0;
    rq->gated = kvr_queue_long(q->shared, n, kvq_ms(q));

    bytes = rq->gated ? rq->bytes : 0;

    for (i = 0; i < n && kvq_capped(q, rq, i, bytes, 0); i++) { /* void */ }

    if (i == n) {
        return 0;
    }

    kvq_match(q, rq, matched);

    least = INFINITY;
    best = INFINITY;
    most = 0;
    here = 0;
    rate = 0;

    for (i = 0; i < n; i++) {

        sum = kvr_load_get(q->load, i);
        sum.pending = kvr_prefill_left(&q->registry->peer[i].prefill,
                                       sum.pending, kvq_ms(q));

        held = kvr_min((uint64_t) matched[i] * KVS_UNIT_BYTES, rq->bytes);

        memset(&s, 0, sizeof(s));

        s.pending = sum.pending;
        s.uncached = rq->bytes - held;
        s.active = sum.active;
        sum = kvr_load_get(q->load, kvr_registry_resident(i));
        s.waiting = sum.active;
        s.resident = sum.pending;
        s.weight = 1;
        s.shared = kvr_popular_shared(&q->view, matched[i], s.active);
        s.turnover = kvr_index_turnover(q->index, i, kvq_ms(q));

        cost = kvr_score_cost(&s);

        if (cost < best) {
            best = cost;
            rate = kvr_get(&q->registry->peer[i].prefill.rate) / KVR_PREFILL_RATE;
        }

        most = kvr_max(most, held);

        if (cost < least && !kvq_capped(q, rq, i, bytes, 0)) {
            least = cost;
            here = held;
            rq->reserved = i;
            rq->pending = rq->bytes - held;
        }
    }

    if ((rq->taste == KVQ_WARM && here + KVR_SCORE_FLOOR < most)
        || (rq->taste == KVQ_CHEAP && best < least
            && kvr_queue_may_wait(&rq->item, kvq_ms(q), rate)))
    {
        rq->rather = 1;
        return 0;
    }

    rq->held = 1;
    kvq_count(q, rq, rq->reserved, 1, 1, (int64_t) rq->pending);

    return 1;
}


/* get(): as ngx_http_kvroute_choose() and _attempt_begin() */
static void
kvq_give(kvq_t *q, kvq_request_t *rq)
{
    uint32_t              i, n, matched[KVS_REPLICAS];
    uint64_t              bytes;
    kvr_load_sum_t        sum;
    kvr_decision_t        d;
    kvr_candidate_t      *c, cand[KVS_REPLICAS];
    kvr_policy_request_t  req;

    n = kvq_match(q, rq, matched);

    memset(cand, 0, sizeof(cand));
    rq->rate = 0;

    for (i = 0; i < q->conf->replicas; i++) {
        c = &cand[i];
        sum = kvr_load_get(q->load, i);

        c->weight = 1;
        c->effective_weight = 1;
        c->active = sum.active;
        c->pending = sum.pending;
        c->delay = kvr_prefill_delay(&q->registry->peer[i].prefill, kvq_ms(q));
        c->turnover = kvr_index_turnover(q->index, i, kvq_ms(q));

        sum = kvr_load_get(q->load, kvr_registry_resident(i));
        c->unanswered = sum.active;
        c->resident = sum.pending;

        rq->rate = kvr_max(rq->rate, kvr_get(&q->registry->peer[i].prefill.rate));

        c->matched = kvr_min((uint64_t) matched[i] * KVS_UNIT_BYTES,
                             rq->bytes);
        c->full = kvq_capped(q, rq, i, rq->gated ? rq->bytes : 0, 1);
        c->place = i;
        c->idle = q->given - q->last[i];

        if (rq->held && rq->reserved == i) {
            c->active--;
            c->unanswered--;
            c->pending -= rq->pending;
            c->resident -= rq->bytes;
        }

        c->shared = kvr_popular_shared(&q->view, matched[i], c->active);
    }

    memset(&req, 0, sizeof(req));

    req.policy = KVR_POLICY_KV_CACHE;
    req.bytes = rq->bytes;
    req.random = kvs_rng_next(&q->rng);
    req.parsed = 1;
    req.rate = rq->rate;

    kvr_policy_pick(&req, cand, q->conf->replicas, &d);

    if (rq->held) {
        (void) kvq_room(rq, NULL);
    }

    i = d.pick;
    bytes = rq->bytes - kvr_min(d.matched, rq->bytes);

    rq->replica = i;
    rq->pending = bytes;
    rq->given = q->now;
    rq->hit = d.matched;

    rq->ahead = kvr_prefill_give(&q->registry->peer[i].prefill, bytes,
                                 kvr_load_get(q->load, i).pending, kvq_ms(q));

    kvq_count(q, rq, i, 1, 1, (int64_t) bytes);

    q->last[i] = ++q->given;

    kvr_index_insert(q->index, q->entry, n, rq->units, i, matched[i],
                     &rq->undo);

    if (q->now >= q->conf->window && q->now < q->conf->length) {
        q->res->stream[rq->stream].window_work += rq->item.work;
    }

    kve_replica_submit(q->replica[i], &rq->req, q->now);
    q->next[i] = kve_replica_next(q->replica[i]);
}


/*
 * One in a worker that is due earlier, in the same class and tenant, by more
 * than it may be passed by.
 */
static void
kvq_order(kvq_t *q, kvq_request_t *rq)
{
    uint32_t           i, pass;
    kvr_queue_item_t  *head;

    for (i = 0; i < q->conf->workers; i++) {
        head = q->waiting[i].heap[rq->item.class][rq->item.tenant];

        if (head == NULL) {
            continue;
        }

        pass = kvr_queue_pass(head, kvq_ms(q));

        if ((int32_t) (head->due + pass - rq->item.due) < 0) {
            q->res->out_of_order++;
        }
    }
}


static void
kvq_let_in(kvq_t *q, kvq_request_t *rq)
{
    kvq_stats_t  *st;

    st = &q->res->stream[rq->stream];

    kvq_order(q, rq);

    st->waited += rq->measured;

    if (rq->measured && q->now - rq->start > st->max_wait) {
        st->max_wait = q->now - rq->start;
    }

    kvq_give(q, rq);
}


/* as ngx_http_kvroute_queue_next() */
static kvr_queue_item_t *
kvq_next(kvq_t *q, uint32_t worker, kvr_queue_item_t *item)
{
    uint32_t           i, n;
    kvr_queue_t       *w;
    kvq_request_t     *rq;
    kvr_queue_item_t  *near[KVR_QUEUE_NEAR];

    w = &q->waiting[worker];
    n = kvr_queue_near(item, kvq_ms(q), near, KVR_QUEUE_NEAR);

    for (i = 0; i < n; i++) {
        rq = (kvq_request_t *) near[i];
        rq->taste = KVQ_WARM;

        if (kvr_queue_admit(q->shared, worker, w, near[i], kvq_ms(q), kvq_room,
                            rq)
            == KVR_OK)
        {
            return near[i];
        }

        if (!rq->rather) {
            return NULL;
        }
    }

    rq = (kvq_request_t *) item;
    rq->taste = KVQ_CHEAP;

    return kvr_queue_admit(q->shared, worker, w, item, kvq_ms(q), kvq_room, rq)
           == KVR_OK ? item : NULL;
}


void
kvq_worker_run(kvq_t *q, uint32_t worker)
{
    kvr_queue_t       *w;
    kvr_queue_key_t    key;
    kvr_queue_item_t  *item;

    w = &q->waiting[worker];

    kvr_queue_publish(q->shared, worker, w, kvq_ms(q));

    for ( ;; ) {
        item = kvr_queue_first(w, q->shared, &key);

        if (item) {
            item = kvq_next(q, worker, item);
        }

        if (item == NULL) {
            return;
        }

        kvq_let_in(q, (kvq_request_t *) item);
    }
}


/* as ngx_http_kvroute_queue_enter() */
void
kvq_enter(kvq_t *q, kvq_request_t *rq)
{
    uint32_t             i, best, wait, matched[KVS_REPLICAS];
    uint64_t             now;
    kvq_stats_t         *st;
    const kvq_stream_t  *s;
    kvr_queue_t         *w;
    kvr_queue_item_t    *item;

    s = &q->conf->stream[rq->stream];
    st = &q->res->stream[rq->stream];
    now = kvq_ms(q);
    w = &q->waiting[rq->worker];

    kvq_match(q, rq, matched);

    best = 0;

    for (i = 0; i < q->conf->replicas; i++) {
        best = kvr_max(best, matched[i]);
    }

    kvr_queue_item(&rq->item, now, s->class, q->tenant[rq->stream], s->weight,
                   rq->bytes - kvr_min((uint64_t) best * KVS_UNIT_BYTES,
                                       rq->bytes),
                   s->deadline);

    if (!q->conf->queue) {
        kvq_give(q, rq);
        return;
    }

    rq->taste = kvr_queue_depth(q->shared, KVR_QUEUE_CLASSES - 1, now)
                < q->conf->max ? KVQ_CHEAP : KVQ_ANY;

    if (kvr_queue_admit(q->shared, rq->worker, w, &rq->item, now, kvq_room, rq)
        == KVR_OK)
    {
        kvq_give(q, rq);
        return;
    }

    if (kvr_queue_depth(q->shared, KVR_QUEUE_CLASSES - 1, now) >= q->conf->max)
    {
        item = kvr_queue_last(w, s->class);
        item = item ? item : kvr_queue_rival(w, &rq->item);

        if (item == NULL) {
            kvq_reject(q, rq, &st->full);
            return;
        }

        kvr_queue_remove(w, item);
        kvq_reject(q, (kvq_request_t *) item,
                   &q->res->stream[((kvq_request_t *) item)->stream].shed);
    }

    wait = q->conf->timeout;

    if (s->deadline) {
        wait = kvr_min(wait, s->deadline);
    }

    kvr_queue_insert(w, q->shared, &rq->item);
    kvr_queue_publish(q->shared, rq->worker, w, now);

    kvq_push(q, q->now + wait / 1000.0, KVQ_TIMEOUT, rq);

    if (!q->ticking[rq->worker]) {
        q->ticking[rq->worker] = 1;
        kvq_push(q, q->now + KVQ_TICK, KVQ_TICKED,
                 (void *) (uintptr_t) rq->worker);
    }
}
