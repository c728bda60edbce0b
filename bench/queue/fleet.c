/*
 * The fleet's engines, the events of a request, and the results of a run.
 */

#include <stdio.h>

#include "bench/queue/fleet_int.h"


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
    rq->route.row = kvs_rng_below(&q->rng, q->conf->workers);
    rq->start = q->now;
    rq->route.bytes = (uint64_t) s->prompt * KVS_TOKEN_BYTES;

    rq->own = kvs_alloc(((s->prompt + s->output) / KVS_UNIT_TOKENS + 1)
                        * sizeof(uint64_t));
    rq->route.chain = rq->own;

    kvs_text_init(&text, rq->own,
                  (s->prompt + s->output) / KVS_UNIT_TOKENS);

    seed = kvs_rng_below(&q->rng_of[k], kvr_max(s->texts, 1));

    kvs_text_append(&text, kvr_mix(seed + 1, 1000 + k), 0, s->shared);
    kvs_text_append(&text, kvr_mix(++q->serial, q->conf->seed), 0,
                    s->prompt + s->output - s->shared);

    rq->route.units = s->prompt / KVS_UNIT_TOKENS;

    rq->req.hashes = rq->route.chain;
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
        kvs_events_push(&q->events,
                        q->now + kvs_rng_exp(&q->rng_of[k], 1 / s->rate),
                        KVQ_ARRIVE, (void *) (uintptr_t) k, 0);
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
    rq->route.row = kvs_rng_below(&q->rng, q->conf->workers);
    rq->route.bytes = (uint64_t) ask->prompt * KVS_TOKEN_BYTES;
    rq->route.chain = ask->chain;
    rq->route.units = kvr_min(ask->prompt / KVS_UNIT_TOKENS, ask->units);

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

    kvs_events_push(&q->events, fmax(ask->t, q->now), KVQ_ASKED, rq, 0);
}


static void
kvq_first(kvq_t *q, kvq_request_t *rq)
{
    double               ttft;
    kvq_stats_t         *st;
    const kvq_stream_t  *s;

    s = &q->conf->stream[rq->stream];
    st = &q->res->stream[rq->stream];

    kvs_route_first(&q->zone, &rq->route, 1, q->now);

    ttft = q->now - rq->start;
    rq->ttft = ttft;

    if (rq->measured) {

        kvs_sample_add(&st->sample, ttft);
        st->served++;
        st->good += (s->limit == 0 || ttft <= s->limit);
    }

    kvq_worker_run(q, rq->route.row);
}


static void
kvq_done(kvq_t *q, kvq_request_t *rq)
{
    kvs_route_end(&q->zone, &rq->route, NULL, q->now);

    if (q->now >= q->conf->window && q->now < q->conf->length) {
        q->res->stream[rq->stream].window_done++;
        q->done++;
    }

    if (rq->measured) {
        q->prompt += rq->req.prompt_tokens;
        q->cached += rq->req.cached_tokens;
    }

    kvq_over(q, rq);
    kvq_worker_run(q, rq->route.row);
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

    kvr_queue_remove(&q->waiting[rq->route.row], &rq->item);
    kvr_queue_publish(q->shared, rq->route.row, &q->waiting[rq->route.row],
                      kvq_ms(q));

    kvq_reject(q, rq, s->deadline && s->deadline <= q->conf->timeout
                      ? &st->deadline : &st->timeouts);
}


static void
kvq_advance(kvq_t *q, uint32_t i)
{
    size_t              n, k;
    const kve_event_t  *ev;

    n = kve_replica_advance(q->replica[i], q->now, &ev);

    for (k = 0; k < n; k++) {

        if (ev[k].type == KVE_FIRST || ev[k].type == KVE_DONE) {
            kvs_events_push(&q->events, fmax(ev[k].time, q->now),
                     ev[k].type == KVE_FIRST ? KVQ_FIRST : KVQ_DONE,
                     ev[k].req->data, 0);
        }

        if (ev[k].type == KVE_ABORTED) {
            abort();
        }
    }

    q->next[i] = kve_replica_next(q->replica[i]);
}


/* the metrics of an engine, once a second */
static void
kvq_probe(kvq_t *q)
{
    uint32_t      i;
    kve_stats_t   st;

    for (i = 0; i < q->conf->replicas; i++) {
        kvq_advance(q, i);
        kve_replica_stats(q->replica[i], &st);
        kvs_zone_probed(&q->zone, i, &st, q->capacity, q->now);
    }
}


static void
kvq_event(kvq_t *q, kvs_event_t *ev)
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
        kvs_events_push(&q->events, q->now + 1, KVQ_PROBE, NULL, 0);
        return;

    case KVQ_TICKED:
        worker = (uint32_t) (uintptr_t) ev->data;
        kvq_worker_run(q, worker);

        q->ticking[worker] = q->waiting[worker].n != 0;

        if (q->ticking[worker]) {
            kvs_events_push(&q->events, q->now + KVQ_TICK, KVQ_TICKED, ev->data,
                            0);
        }
    }
}


static void
kvq_create(kvq_t *q)
{
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

    kvs_zone_create(&q->zone, q->conf->workers, q->conf->replicas,
                    KVQ_CAPACITY / KVS_UNIT_BYTES);

    q->zone.pool.target_ttft = q->conf->target;
    q->capacity = (uint64_t) hw.kv_tokens;

    q->shared = kvs_zone_alloc(sizeof(kvr_queue_shared_t));

    kvs_rng_seed(&q->rng, q->conf->seed, 0x7175657565ULL);

    for (i = 0; i < q->conf->replicas; i++) {
        cf.speed = i == 0 && q->conf->slow > 0 ? q->conf->slow : 1;
        q->replica[i] = kve_replica_create(&cf);
        q->next[i] = INFINITY;
    }

    if (q->conf->probed) {
        q->zone.pool.probe = 1000;
        kvs_events_push(&q->events, 0, KVQ_PROBE, NULL, 0);
    }

    for (i = 0; i < KVQ_STREAMS; i++) {
        kvs_rng_seed(&q->rng_of[i], q->conf->seed, 0x73747265616dULL + i);
        q->tenant[i] = kvr_queue_tenant(q->shared,
                                        kvr_mix(q->conf->stream[i].tenant + 1,
                                                77),
                                        kvq_ms(q));

        if (q->conf->stream[i].rate > 0) {
            kvs_events_push(&q->events, kvs_rng_exp(&q->rng_of[i],
                                    1 / q->conf->stream[i].rate),
                     KVQ_ARRIVE, (void *) (uintptr_t) i, 0);
        }
    }

    if (q->conf->first) {
        q->conf->first(q->conf->data, q);
    }
}


static void
kvq_finish(kvq_t *q)
{
    uint32_t        i;
    kvq_stats_t    *st;
    kvq_request_t  *rq, *link;
    kvs_sample_t    all;

    memset(&all, 0, sizeof(all));

    for (i = 0; i < KVQ_STREAMS; i++) {
        st = &q->res->stream[i];

        if (st->served) {
            kvs_sample_sort(&st->sample);
            kvs_sample_all(&all, &st->sample);

            st->ttft = kvs_sample_mean(&st->sample);
            st->p50 = kvs_sample_quantile(&st->sample, 0.5);
            st->p99 = kvs_sample_quantile(&st->sample, 0.99);
        }
    }

    if (all.n) {
        kvs_sample_sort(&all);

        q->res->ttft = kvs_sample_mean(&all);
        q->res->p50 = kvs_sample_quantile(&all, 0.5);
        q->res->p95 = kvs_sample_quantile(&all, 0.95);
        q->res->p99 = kvs_sample_quantile(&all, 0.99);
    }

    free(all.v);

    q->res->cached = q->prompt ? (double) q->cached / (double) q->prompt : 0;
    q->res->completed = q->due ? (double) q->done / q->due : 1;
    q->res->span = q->conf->length - q->conf->window;

    for (i = 0; i < q->conf->replicas; i++) {
        q->res->rate += kvr_get(&q->zone.core.registry->peer[i].prefill.rate)
                        * 1000ULL / KVR_PREFILL_RATE / q->conf->replicas;
        kve_replica_destroy(q->replica[i]);
    }

    for (rq = q->all; rq; rq = link) {
        link = rq->link;
        free(rq->own);
        free(rq);
    }

    free(q->events.event);
    kvs_zone_destroy(&q->zone);
    free(q->shared);
}


void
kvq_run(const kvq_conf_t *conf, kvq_result_t *res)
{
    double       t;
    uint32_t     i, k;
    kvq_t       *q;
    kvs_event_t  ev;

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

        t = kvs_events_next(&q->events);

        if (q->next[k] <= t) {

            if (q->next[k] == INFINITY) {
                break;
            }

            q->now = fmax(q->now, q->next[k]);
            kvq_advance(q, k);
            continue;
        }

        ev = kvs_events_pop(&q->events);
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
        free(res->stream[i].sample.v);
    }
}
