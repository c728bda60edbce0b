/*
 * What ngx_http_kvroute_queue*.c, _choose.c and _attempt.c do, in virtual time:
 * core/ is linked, not copied.  Each worker has its own heaps and looks for
 * room when one of its own requests ends or begins to answer, and every 4 ms.
 */

#include <stdio.h>

#include "fleet.h"
#include "replica.h"

#include "kvr_index.h"
#include "kvr_load.h"
#include "kvr_policy.h"
#include "kvr_queue.h"
#include "kvr_registry.h"


#define KVQ_TICK      0.004
#define KVQ_WORKERS   8
#define KVQ_CAPACITY  (64 * 1024 * 1024)
#define KVQ_ZONE      (16 * 1024 * 1024)
#define KVQ_ENTRIES   8192


typedef struct kvq_request_s  kvq_request_t;
typedef struct kvq_s          kvq_t;


/* as in ngx_http_kvroute_queue.h */
typedef enum {
    KVQ_ANY,
    KVQ_CHEAP,
    KVQ_WARM
} kvq_taste_e;


struct kvq_request_s {
    kvr_queue_item_t  item;
    kve_req_t         req;

    kvq_t            *sim;
    kvq_request_t    *link;
    uint64_t         *chain;
    uint32_t          units;
    uint32_t          stream;
    uint32_t          worker;
    uint32_t          replica;
    uint32_t          reserved;      /* replica */
    uint64_t          bytes;
    uint64_t          pending;
    uint64_t          ahead;
    double            start;
    double            given;
    kvr_lesson_t      lesson;
    unsigned          held:1;
    unsigned          gated:1;       /* the queue is long */
    unsigned          rather:1;      /* not any place would do */
    kvq_taste_e       taste;
    unsigned          measured:1;
    unsigned          started:1;
    unsigned          out:1;         /* turned away */
};


typedef enum {
    KVQ_ARRIVE,
    KVQ_FIRST,
    KVQ_DONE,
    KVQ_TICKED,
    KVQ_PROBE,
    KVQ_TIMEOUT
} kvq_event_e;


typedef struct {
    double            t;
    uint64_t          seq;
    kvq_event_e       type;
    void             *data;
} kvq_event_t;


struct kvq_s {
    const kvq_conf_t  *conf;
    kvq_result_t      *res;
    double             now;

    kve_replica_t     *replica[KVS_REPLICAS];
    double             next[KVS_REPLICAS];

    kvr_index_t       *index;
    kvr_load_t        *load;
    kvr_registry_t    *registry;
    kvr_queue_board_t *board;
    kvr_queue_t        waiting[KVQ_WORKERS];
    unsigned           ticking[KVQ_WORKERS];
    uint8_t            tenant[KVQ_STREAMS];

    kvs_rng_t          rng;
    kvs_rng_t          rng_of[KVQ_STREAMS];
    uint64_t           serial;
    uint32_t           given;
    uint32_t           last[KVS_REPLICAS];

    kvq_event_t       *heap;
    size_t             nheap, size;
    uint64_t           seq;

    kvq_request_t     *all;
    uint32_t           left;          /* measured, not over */
    uint64_t           prompt, cached;
    uint32_t           due, done;

    uint64_t           entry[KVQ_ENTRIES];
};


static void kvq_worker_run(kvq_t *q, uint32_t worker);


static void *
kvq_zeroed(size_t size)
{
    void  *p;

    size = (size + KVR_CACHE_LINE) & ~(size_t) (KVR_CACHE_LINE - 1);
    p = aligned_alloc(KVR_CACHE_LINE, size);

    if (p == NULL) {
        abort();
    }

    return memset(p, 0, size);
}


static void
kvq_push(kvq_t *q, double t, kvq_event_e type, void *data)
{
    size_t       i, parent;
    kvq_event_t  ev = { t, q->seq++, type, data };

    if (q->nheap == q->size) {
        q->size = q->size ? 2 * q->size : 1024;
        q->heap = realloc(q->heap, q->size * sizeof(kvq_event_t));

        if (q->heap == NULL) {
            abort();
        }
    }

    for (i = q->nheap++; i > 0; i = parent) {
        parent = (i - 1) / 2;

        if (q->heap[parent].t <= t) {
            break;
        }

        q->heap[i] = q->heap[parent];
    }

    q->heap[i] = ev;
}


static int
kvq_less(const kvq_event_t *a, const kvq_event_t *b)
{
    return a->t < b->t || (a->t == b->t && a->seq < b->seq);
}


static kvq_event_t
kvq_pop(kvq_t *q)
{
    size_t       i, child;
    kvq_event_t  first, last;

    first = q->heap[0];
    last = q->heap[--q->nheap];

    for (i = 0; (child = 2 * i + 1) < q->nheap; i = child) {

        if (child + 1 < q->nheap
            && kvq_less(&q->heap[child + 1], &q->heap[child]))
        {
            child++;
        }

        if (!kvq_less(&q->heap[child], &last)) {
            break;
        }

        q->heap[i] = q->heap[child];
    }

    q->heap[i] = last;

    return first;
}


static uint64_t
kvq_ms(kvq_t *q)
{
    return 100000 + (uint64_t) (q->now * 1000);
}


static uint32_t
kvq_match(kvq_t *q, kvq_request_t *rq, uint32_t *matched)
{
    uint32_t  i, n;

    n = kvr_min(kvr_chain_entries(rq->units), KVQ_ENTRIES);

    for (i = 0; i < n; i++) {
        q->entry[i] = rq->chain[kvr_chain_depth(i) - 1];
    }

    memset(matched, 0, KVS_REPLICAS * sizeof(uint32_t));

    kvr_index_lookup(q->index, q->entry, n, (1ULL << q->conf->replicas) - 1,
                     matched);

    return n;
}


static void
kvq_count(kvq_t *q, kvq_request_t *rq, uint32_t replica, int32_t active,
    int32_t unanswered, int64_t pending)
{
    kvr_load_add(q->load, rq->worker, replica, active, pending);
    kvr_load_add(q->load, rq->worker, kvr_registry_resident(replica),
                 unanswered, 0);
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
    uint64_t        held, most, here, bytes;
    kvr_load_sum_t  sum;

    q = rq->sim;

    if (item == NULL) {
        rq->held = 0;
        kvq_count(q, rq, rq->reserved, -1, -1, -(int64_t) rq->pending);
        return 1;
    }

    n = q->conf->replicas;

    rq->rather = 0;
    rq->gated = kvr_queue_depth(q->board, KVR_QUEUE_CLASSES - 1, kvq_ms(q))
                > KVR_QUEUE_LONG * n;

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

    for (i = 0; i < n; i++) {

        sum = kvr_load_get(q->load, i);
        sum.pending = kvr_pace_left(&q->registry->peer[i].pace, sum.pending,
                                    kvq_ms(q));

        held = kvr_min((uint64_t) matched[i] * KVS_UNIT_BYTES, rq->bytes);

        cost = kvr_score_cost(sum.pending, rq->bytes - held, sum.active,
                              kvr_load_get(q->load, kvr_registry_resident(i))
                              .active, 1);

        best = fmin(best, cost);
        most = kvr_max(most, held);

        if (cost < least && !kvq_capped(q, rq, i, bytes, 0)) {
            least = cost;
            here = held;
            rq->reserved = i;
            rq->pending = rq->bytes - held;
        }
    }

    if ((rq->taste == KVQ_WARM && here + KVR_SCORE_FLOOR < most)
        || (rq->taste == KVQ_CHEAP && best < least))
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

    for (i = 0; i < q->conf->replicas; i++) {
        c = &cand[i];
        sum = kvr_load_get(q->load, i);

        c->weight = 1;
        c->effective_weight = 1;
        c->active = sum.active;
        c->pending = sum.pending;
        c->unanswered = kvr_load_get(q->load, kvr_registry_resident(i)).active;
        c->matched = kvr_min((uint64_t) matched[i] * KVS_UNIT_BYTES,
                             rq->bytes);
        c->full = kvq_capped(q, rq, i, rq->gated ? rq->bytes : 0, 1);
        c->place = i;
        c->idle = q->given - q->last[i];

        if (rq->held && rq->reserved == i) {
            c->active--;
            c->unanswered--;
            c->pending -= rq->pending;
        }
    }

    memset(&req, 0, sizeof(req));

    req.policy = KVR_POLICY_KV_CACHE;
    req.bytes = rq->bytes;
    req.random = kvs_rng_next(&q->rng);
    req.parsed = 1;

    kvr_policy_pick(&req, cand, q->conf->replicas, &d);

    if (rq->held) {
        (void) kvq_room(rq, NULL);
    }

    i = d.pick;
    bytes = rq->bytes - kvr_min(d.matched, rq->bytes);

    rq->replica = i;
    rq->pending = bytes;
    rq->given = q->now;

    rq->ahead = kvr_pace_give(&q->registry->peer[i].pace, bytes,
                              kvr_load_get(q->load, i).pending, kvq_ms(q));

    kvq_count(q, rq, i, 1, 1, (int64_t) bytes);

    q->last[i] = ++q->given;

    kvr_index_learn(q->index, q->entry, n, rq->units, i, matched[i],
                    &rq->lesson);

    if (q->now >= q->conf->window && q->now < q->conf->length) {
        q->res->stream[rq->stream].window_work += rq->item.work;
    }

    kve_replica_submit(q->replica[i], &rq->req, q->now);
    q->next[i] = kve_replica_next(q->replica[i]);
}


static void
kvq_over(kvq_t *q, kvq_request_t *rq)
{
    free(rq->chain);
    rq->chain = NULL;
    q->left -= rq->measured;
}


static void
kvq_reject(kvq_t *q, kvq_request_t *rq, uint32_t *counter)
{
    rq->out = 1;
    *counter += rq->measured;
    kvq_over(q, rq);
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

        pass = KVR_QUEUE_PASS + ((uint32_t) kvq_ms(q) - head->arrival) / 2;

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

        if (kvr_queue_admit(q->board, worker, w, near[i], kvq_ms(q), kvq_room,
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
    rq->taste = kvr_queue_young(item, kvq_ms(q)) ? KVQ_CHEAP : KVQ_ANY;

    return kvr_queue_admit(q->board, worker, w, item, kvq_ms(q), kvq_room, rq)
           == KVR_OK ? item : NULL;
}


static void
kvq_worker_run(kvq_t *q, uint32_t worker)
{
    kvr_queue_t       *w;
    kvr_queue_key_t    key;
    kvr_queue_item_t  *item;

    w = &q->waiting[worker];

    kvr_queue_publish(q->board, worker, w, kvq_ms(q));

    for ( ;; ) {
        item = kvr_queue_first(w, q->board, &key);

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
static void
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

    rq->taste = kvr_queue_depth(q->board, KVR_QUEUE_CLASSES - 1, now)
                < q->conf->max ? KVQ_CHEAP : KVQ_ANY;

    if (kvr_queue_admit(q->board, rq->worker, w, &rq->item, now, kvq_room, rq)
        == KVR_OK)
    {
        kvq_give(q, rq);
        return;
    }

    if (kvr_queue_depth(q->board, KVR_QUEUE_CLASSES - 1, now) >= q->conf->max)
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

    kvr_queue_insert(w, q->board, &rq->item);
    kvr_queue_publish(q->board, rq->worker, w, now);

    kvq_push(q, q->now + wait / 1000.0, KVQ_TIMEOUT, rq);

    if (!q->ticking[rq->worker]) {
        q->ticking[rq->worker] = 1;
        kvq_push(q, q->now + KVQ_TICK, KVQ_TICKED,
                 (void *) (uintptr_t) rq->worker);
    }
}


static void
kvq_arrive(kvq_t *q, uint32_t k)
{
    uint64_t             seed;
    kvs_text_t           text;
    kvq_request_t       *rq;
    const kvq_stream_t  *s;

    s = &q->conf->stream[k];

    rq = kvs_alloc(sizeof(kvq_request_t));

    rq->sim = q;
    rq->link = q->all;
    q->all = rq;

    rq->stream = k;
    rq->worker = kvs_rng_below(&q->rng, q->conf->workers);
    rq->start = q->now;
    rq->bytes = (uint64_t) s->prompt * KVS_TOKEN_BYTES;

    rq->chain = kvs_alloc(((s->prompt + s->output) / KVS_UNIT_TOKENS + 1)
                          * sizeof(uint64_t));

    kvs_text_init(&text, rq->chain, NULL,
                  (s->prompt + s->output) / KVS_UNIT_TOKENS);

    seed = kvs_rng_below(&q->rng_of[k], kvr_max(s->texts, 1));

    kvs_text_append(&text, kvr_mix(seed + 1, 1000 + k), 0, s->shared);
    kvs_text_append(&text, kvr_mix(++q->serial, q->conf->seed), 0,
                    s->prompt + s->output - s->shared);

    rq->units = s->prompt / KVS_UNIT_TOKENS;

    rq->req.hashes = rq->chain;
    rq->req.nhashes = text.units;
    rq->req.prompt_tokens = s->prompt;
    rq->req.output_tokens = s->output;
    rq->req.data = rq;

    rq->measured = q->now >= q->conf->window;

    if (rq->measured) {
        q->left++;
        q->due++;
        q->res->stream[k].arrived++;
    }

    kvq_enter(q, rq);

    if (q->now < q->conf->length) {
        kvq_push(q, q->now + kvs_rng_exp(&q->rng_of[k], 1 / s->rate),
                 KVQ_ARRIVE, (void *) (uintptr_t) k);
    }
}


static void
kvq_first(kvq_t *q, kvq_request_t *rq)
{
    double               ttft;
    kvq_stats_t         *st;
    const kvq_stream_t  *s;

    s = &q->conf->stream[rq->stream];
    st = &q->res->stream[rq->stream];

    rq->started = 1;

    kvq_count(q, rq, rq->replica, 0, -1, -(int64_t) rq->pending);
    rq->pending = 0;
    rq->lesson.valid = 0;

    kvr_pace_first(&q->registry->peer[rq->replica].pace, rq->ahead,
                   (uint64_t) ((q->now - rq->given) * 1000), kvq_ms(q));

    if (rq->measured) {
        ttft = q->now - rq->start;

        if (st->served % 1024 == 0) {
            st->sample = realloc(st->sample, (st->served + 1024)
                                             * sizeof(double));

            if (st->sample == NULL) {
                abort();
            }
        }

        st->sample[st->served++] = ttft;
        st->good += (s->limit == 0 || ttft <= s->limit);
    }

    kvq_worker_run(q, rq->worker);
}


static void
kvq_done(kvq_t *q, kvq_request_t *rq)
{
    kvq_count(q, rq, rq->replica, -1, 0, 0);

    if (q->now >= q->conf->window && q->now < q->conf->length) {
        q->res->stream[rq->stream].window_done++;
        q->done++;
    }

    if (rq->measured) {
        q->prompt += rq->req.prompt_tokens;
        q->cached += rq->req.cached_tokens;
    }

    kvq_over(q, rq);
    kvq_worker_run(q, rq->worker);
}


static void
kvq_timeout(kvq_t *q, kvq_request_t *rq)
{
    kvq_stats_t         *st;
    const kvq_stream_t  *s;

    if (!rq->item.waiting) {
        return;
    }

    s = &q->conf->stream[rq->stream];
    st = &q->res->stream[rq->stream];

    kvr_queue_remove(&q->waiting[rq->worker], &rq->item);
    kvr_queue_publish(q->board, rq->worker, &q->waiting[rq->worker],
                      kvq_ms(q));

    kvq_reject(q, rq, s->deadline && s->deadline <= q->conf->timeout
                      ? &st->late : &st->timeouts);
}


static void
kvq_advance(kvq_t *q, uint32_t i)
{
    size_t              n, k;
    const kve_event_t  *ev;

    n = kve_replica_advance(q->replica[i], q->now, &ev);

    for (k = 0; k < n; k++) {

        if (ev[k].type == KVE_FIRST || ev[k].type == KVE_DONE) {
            kvq_push(q, fmax(ev[k].time, q->now),
                     ev[k].type == KVE_FIRST ? KVQ_FIRST : KVQ_DONE,
                     ev[k].req->data);
        }

        if (ev[k].type == KVE_ABORTED) {
            abort();
        }
    }

    q->next[i] = kve_replica_next(q->replica[i]);
}


/* what an engine tells of itself, once a second */
static void
kvq_probe(kvq_t *q)
{
    uint32_t      i;
    kve_stats_t   st;

    for (i = 0; i < q->conf->replicas; i++) {
        kvq_advance(q, i);
        kve_replica_stats(q->replica[i], &st);
        kvr_set(&q->registry->peer[i].signal.kv,
                (uint32_t) (10000 * st.kv_usage));
    }
}


static void
kvq_event(kvq_t *q, kvq_event_t *ev)
{
    uint32_t  worker;

    switch (ev->type) {

    case KVQ_ARRIVE:
        kvq_arrive(q, (uint32_t) (uintptr_t) ev->data);
        return;

    case KVQ_FIRST:
        kvq_first(q, ev->data);
        return;

    case KVQ_DONE:
        kvq_done(q, ev->data);
        return;

    case KVQ_TIMEOUT:
        kvq_timeout(q, ev->data);
        return;

    case KVQ_PROBE:
        kvq_probe(q);
        kvq_push(q, q->now + 1, KVQ_PROBE, NULL);
        return;

    case KVQ_TICKED:
        worker = (uint32_t) (uintptr_t) ev->data;
        kvq_worker_run(q, worker);

        q->ticking[worker] = q->waiting[worker].n != 0;

        if (q->ticking[worker]) {
            kvq_push(q, q->now + KVQ_TICK, KVQ_TICKED, ev->data);
        }
    }
}


static void
kvq_create(kvq_t *q)
{
    size_t        size;
    uint32_t      i;
    kve_hw_t      hw;
    kve_config_t  cf;

    if (!kve_hw_find(q->conf->hardware, &hw)) {
        abort();
    }

    kve_config_init(&cf, &hw);
    cf.block_size = KVS_UNIT_TOKENS;
    cf.blocks = (uint32_t) (hw.kv_tokens / KVS_UNIT_TOKENS);

    q->load = kvq_zeroed(kvr_load_size(q->conf->workers, KVR_REGISTRY_COLUMNS));
    kvr_load_init(q->load, q->conf->workers, KVR_REGISTRY_COLUMNS);

    for (i = 0; i < q->conf->workers; i++) {
        kvr_load_claim(q->load, kvr_load_owner(i + 1, 1), 1);
    }

    size = KVQ_ZONE;
    q->index = kvq_zeroed(size);
    kvr_index_init(q->index, kvr_index_lines(size));

    q->registry = kvq_zeroed(sizeof(kvr_registry_t));
    q->board = kvq_zeroed(sizeof(kvr_queue_board_t));

    kvs_rng_seed(&q->rng, q->conf->seed, 0x7175657565ULL);

    for (i = 0; i < q->conf->replicas; i++) {
        q->replica[i] = kve_replica_create(&cf);
        q->next[i] = INFINITY;
        kvr_set(&q->registry->peer[i].signal.capacity,
                q->conf->probed ? (uint64_t) hw.kv_tokens : 0);
        kvr_index_flush(q->index, i);
        kvr_index_capacity(q->index, i, KVQ_CAPACITY / KVS_UNIT_BYTES, 0);
    }

    if (q->conf->probed) {
        kvq_push(q, 0, KVQ_PROBE, NULL);
    }

    for (i = 0; i < KVQ_STREAMS; i++) {
        kvs_rng_seed(&q->rng_of[i], q->conf->seed, 0x73747265616dULL + i);
        q->tenant[i] = kvr_queue_tenant(q->board,
                                        kvr_mix(q->conf->stream[i].tenant + 1,
                                                77),
                                        kvq_ms(q));

        if (q->conf->stream[i].rate > 0) {
            kvq_push(q, kvs_rng_exp(&q->rng_of[i],
                                    1 / q->conf->stream[i].rate),
                     KVQ_ARRIVE, (void *) (uintptr_t) i);
        }
    }
}


static int
kvq_compare(const void *a, const void *b)
{
    double  x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}


static void
kvq_finish(kvq_t *q)
{
    double        sum, all;
    uint32_t      i, k, n;
    kvq_stats_t  *st;
    kvq_request_t  *rq, *link;

    all = 0;
    n = 0;

    for (i = 0; i < KVQ_STREAMS; i++) {
        st = &q->res->stream[i];
        sum = 0;

        if (st->served) {
            qsort(st->sample, st->served, sizeof(double), kvq_compare);

            for (k = 0; k < st->served; k++) {
                sum += st->sample[k];
            }

            st->ttft = sum / st->served;
            st->p50 = st->sample[st->served / 2];
            st->p99 = st->sample[(size_t) (0.99 * (st->served - 1) + 0.5)];
        }

        all += sum;
        n += st->served;
    }

    q->res->ttft = n ? all / n : 0;
    q->res->cached = q->prompt ? (double) q->cached / (double) q->prompt : 0;
    q->res->completed = q->due ? (double) q->done / q->due : 1;
    q->res->span = q->conf->length - q->conf->window;

    for (i = 0; i < q->conf->replicas; i++) {
        q->res->rate += kvr_get(&q->registry->peer[i].pace.rate)
                        * 1000ULL / KVR_PACE_RATE / q->conf->replicas;
        kve_replica_destroy(q->replica[i]);
    }

    for (rq = q->all; rq; rq = link) {
        link = rq->link;
        free(rq->chain);
        free(rq);
    }

    free(q->heap);
    free((void *) q->index);
    free(q->load);
    free(q->registry);
    free(q->board);
}


void
kvq_run(const kvq_conf_t *conf, kvq_result_t *res)
{
    double       t;
    uint32_t     i, k;
    kvq_t       *q;
    kvq_event_t  ev;

    memset(res, 0, sizeof(kvq_result_t));

    q = kvs_alloc(sizeof(kvq_t));
    q->conf = conf;
    q->res = res;

    kvq_create(q);

    while (q->now <= conf->length || q->left) {

        k = 0;

        for (i = 1; i < conf->replicas; i++) {
            k = q->next[i] < q->next[k] ? i : k;
        }

        t = q->nheap ? q->heap[0].t : INFINITY;

        if (q->next[k] <= t) {

            if (q->next[k] == INFINITY) {
                break;
            }

            q->now = fmax(q->now, q->next[k]);
            kvq_advance(q, k);
            continue;
        }

        ev = kvq_pop(q);
        q->now = ev.t;
        kvq_event(q, &ev);
    }

    kvq_finish(q);
    free(q);
}


void
kvq_free(kvq_result_t *res)
{
    uint32_t  i;

    for (i = 0; i < KVQ_STREAMS; i++) {
        free(res->stream[i].sample);
    }
}
