/*
 * The fleet's engines, what befalls a request, and what came of a run.
 */

#include <stdio.h>

#include "fleet_int.h"


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

    rq->own = kvs_alloc(((s->prompt + s->output) / KVS_UNIT_TOKENS + 1)
                        * sizeof(uint64_t));
    rq->chain = rq->own;

    kvs_text_init(&text, rq->own, NULL,
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


void
kvq_submit(kvq_t *q, const kvq_ask_t *ask)
{
    kvq_request_t  *rq;

    rq = kvs_alloc(sizeof(kvq_request_t));

    rq->sim = q;
    rq->link = q->all;
    q->all = rq;

    rq->ask = *ask;
    rq->stream = ask->stream;
    rq->worker = kvs_rng_below(&q->rng, q->conf->workers);
    rq->bytes = (uint64_t) ask->prompt * KVS_TOKEN_BYTES;
    rq->chain = ask->chain;
    rq->units = kvr_min(ask->prompt / KVS_UNIT_TOKENS, ask->units);

    rq->req.hashes = ask->chain;
    rq->req.nhashes = kvr_min((ask->prompt + ask->output) / KVS_UNIT_TOKENS,
                              ask->units);
    rq->req.prompt_tokens = ask->prompt;
    rq->req.output_tokens = ask->output;
    rq->req.data = rq;

    rq->measured = ask->measured;

    if (rq->measured) {
        q->left++;
        q->due++;
        q->res->stream[rq->stream].arrived++;
    }

    kvq_push(q, fmax(ask->t, q->now), KVQ_ASKED, rq);
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
    rq->undo.valid = 0;

    kvr_prefill_first(&q->registry->peer[rq->replica].prefill, rq->ahead,
                      (uint64_t) ((q->now - rq->given) * 1000), kvq_ms(q));
    kvr_prefill_waited(&q->registry->peer[rq->replica].prefill, rq->ahead,
                       rq->hit,
                       (uint64_t) ((q->now - rq->given) * 1000), rq->rate,
                       kvq_ms(q));
    kvr_popular_add(q->popular, &rq->counted, kvq_ms(q));

    ttft = q->now - rq->start;
    rq->ttft = ttft;

    if (rq->measured) {

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
    kvr_queue_publish(q->shared, rq->worker, &q->waiting[rq->worker],
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

    case KVQ_ASKED:
        ((kvq_request_t *) ev->data)->start = q->now;
        kvq_enter(q, ev->data);
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
    hw.kv_tokens = q->conf->kv_tokens ? q->conf->kv_tokens : hw.kv_tokens;
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
    q->popular = kvq_zeroed(sizeof(kvr_popular_t));
    q->shared = kvq_zeroed(sizeof(kvr_queue_shared_t));

    kvs_rng_seed(&q->rng, q->conf->seed, 0x7175657565ULL);

    for (i = 0; i < q->conf->replicas; i++) {
        cf.speed = i == 0 && q->conf->slow > 0 ? q->conf->slow : 1;
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
        q->tenant[i] = kvr_queue_tenant(q->shared,
                                        kvr_mix(q->conf->stream[i].tenant + 1,
                                                77),
                                        kvq_ms(q));

        if (q->conf->stream[i].rate > 0) {
            kvq_push(q, kvs_rng_exp(&q->rng_of[i],
                                    1 / q->conf->stream[i].rate),
                     KVQ_ARRIVE, (void *) (uintptr_t) i);
        }
    }

    if (q->conf->first) {
        q->conf->first(q->conf->data, q);
    }
}


static int
kvq_compare(const void *a, const void *b)
{
    double  x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}


/* percentiles of all streams' first tokens */
static void
kvq_together(kvq_result_t *res, uint32_t n)
{
    double    *all;
    uint32_t   i, k;

    if (n == 0) {
        return;
    }

    all = kvs_alloc(n * sizeof(double));
    k = 0;

    for (i = 0; i < KVQ_STREAMS; i++) {
        memcpy(all + k, res->stream[i].sample,
               res->stream[i].served * sizeof(double));
        k += res->stream[i].served;
    }

    qsort(all, n, sizeof(double), kvq_compare);

    res->p50 = all[n / 2];
    res->p95 = all[(size_t) (0.95 * (n - 1) + 0.5)];
    res->p99 = all[(size_t) (0.99 * (n - 1) + 0.5)];

    free(all);
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

    kvq_together(q->res, n);

    q->res->ttft = n ? all / n : 0;
    q->res->cached = q->prompt ? (double) q->cached / (double) q->prompt : 0;
    q->res->completed = q->due ? (double) q->done / q->due : 1;
    q->res->span = q->conf->length - q->conf->window;

    for (i = 0; i < q->conf->replicas; i++) {
        q->res->rate += kvr_get(&q->registry->peer[i].prefill.rate)
                        * 1000ULL / KVR_PREFILL_RATE / q->conf->replicas;
        kve_replica_destroy(q->replica[i]);
    }

    for (rq = q->all; rq; rq = link) {
        link = rq->link;
        free(rq->own);
        free(rq);
    }

    free(q->heap);
    free((void *) q->index);
    free(q->load);
    free(q->registry);
    free((void *) q->popular);
    free(q->shared);
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
