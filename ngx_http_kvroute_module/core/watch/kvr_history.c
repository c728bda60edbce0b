
/*
 * Copyright (C) kvroute contributors
 */


#include "core/watch/kvr_history.h"


/* counters of a member, those that the history looks at */
typedef struct {
    uint64_t   requests;
    uint64_t   errors;
    uint64_t   refused;
    uint64_t   fails;
    uint64_t   firsts;
    uint64_t   ttft;
    uint64_t   prompt;
    uint64_t   matched;
} kvr_history_now_t;


/* what a counter of a member has grown by since it was looked at */
#define kvr_history_since(f)                                                  \
    kvr_history_grown(now.f, kvr_get(&hm->f))

/* an attempt that failed with a 5xx may be counted as both: it is one */
#define kvr_history_errors()                                                  \
    kvr_max(kvr_history_since(errors), kvr_history_since(fails))


static void kvr_history_begin(kvr_history_upstream_t *u, uint64_t rejects);
static void kvr_history_begin_member(kvr_history_member_t *hm);
static void kvr_history_now(const kvr_member_t *m, kvr_history_now_t *now);
static uint64_t kvr_history_grown(uint64_t now, uint64_t before);
static void kvr_history_quantiles(kvr_history_upstream_t *u,
    const kvr_histogram_t *histogram, uint32_t *p50, uint32_t *p95);
static uint32_t kvr_history_quantile(const uint64_t *bucket, uint64_t all,
    uint64_t percent);


size_t
kvr_history_size(uint32_t max_members)
{
    return sizeof(kvr_history_t) + max_members * sizeof(kvr_history_member_t);
}


int
kvr_history_step(kvr_history_t *h, uint64_t now)
{
    uint32_t             i;
    uint64_t             stepped, step;
    kvr_history_part_t  *part;

    stepped = kvr_get(&h->stepped);

    if (stepped && now < stepped + KVR_HISTORY_STEP) {
        return 0;
    }

    if (!atomic_compare_exchange_strong_explicit(&h->stepped, &stepped, now,
                                                 memory_order_relaxed,
                                                 memory_order_relaxed))
    {
        return 0;
    }

    step = kvr_add(&h->steps, 1) + 1;

    /* who is not looked at has nothing of this step */

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
        kvr_set(&h->upstream[i].sample[step % KVR_HISTORY_SAMPLES].time, 0);
    }

    for (i = 0; i < h->max_members; i++) {
        part = &h->member[i].part[step % KVR_HISTORY_PARTS];

        kvr_set(&part->requests, 0);
        kvr_set(&part->errors, 0);
        kvr_set(&part->refused, 0);
        kvr_set(&part->firsts, 0);
        kvr_set(&part->ttft, 0);
    }

    atomic_thread_fence(memory_order_release);

    return 1;
}


void
kvr_history_look(kvr_history_t *h, const kvr_zone_t *zone, uint32_t upstream,
    uint64_t rejects, uint32_t time)
{
    uint32_t                 i, p50, p95;
    uint64_t                 step, prompt, matched, requests, errors, active;
    kvr_member_t            *m;
    kvr_history_now_t        now;
    kvr_history_part_t      *part;
    kvr_history_member_t    *hm;
    kvr_upstream_t          *counted;
    kvr_history_sample_t    *s;
    kvr_history_upstream_t  *u;

    step = kvr_get(&h->steps);
    u = &h->upstream[upstream];
    s = &u->sample[step % KVR_HISTORY_SAMPLES];
    counted = &zone->registry->upstream[upstream];

    if (!kvr_get(&counted->looked)) {
        kvr_history_begin(u, rejects);
        kvr_set(&counted->looked, 1);
    }

    requests = errors = prompt = matched = active = 0;

    for (i = 0; i < h->max_members; i++) {
        m = &zone->registry->member[i];

        if (!kvr_get(&m->used) || m->upstream != upstream) {
            continue;
        }

        hm = &h->member[i];

        if (!kvr_get(&m->looked)) {
            kvr_history_begin_member(hm);
            kvr_set(&m->looked, 1);
        }

        part = &hm->part[step % KVR_HISTORY_PARTS];

        kvr_history_now(m, &now);

        kvr_set(&part->requests, (uint32_t) kvr_history_since(requests));
        kvr_set(&part->errors, (uint32_t) kvr_history_errors());
        kvr_set(&part->refused, (uint32_t) kvr_history_since(refused));
        kvr_set(&part->firsts, (uint32_t) kvr_history_since(firsts));
        kvr_set(&part->ttft, (uint32_t) kvr_history_since(ttft));

        requests += kvr_history_since(requests);
        errors += kvr_history_errors();
        prompt += kvr_history_since(prompt);
        matched += kvr_history_since(matched);

        kvr_set(&hm->requests, now.requests);
        kvr_set(&hm->errors, now.errors);
        kvr_set(&hm->refused, now.refused);
        kvr_set(&hm->fails, now.fails);
        kvr_set(&hm->firsts, now.firsts);
        kvr_set(&hm->ttft, now.ttft);
        kvr_set(&hm->prompt, now.prompt);
        kvr_set(&hm->matched, now.matched);

        active += kvr_load_get(zone->load,
                               kvr_registry_column(zone->registry, i)).active;
    }

    kvr_history_quantiles(u, &counted->stats.histogram[KVR_STATS_TTFT], &p50,
                          &p95);

    kvr_set(&s->requests, (uint32_t) requests);
    kvr_set(&s->errors, (uint32_t) errors);
    kvr_set(&s->rejects, (uint32_t) kvr_history_grown(rejects,
                                                      kvr_get(&u->rejects)));
    kvr_set(&s->p50, p50);
    kvr_set(&s->p95, p95);
    kvr_set(&s->active, (uint32_t) active);
    kvr_set(&s->matched, (uint16_t) (prompt
                                     ? kvr_min(matched, prompt) * 10000 / prompt
                                     : KVR_HISTORY_NONE));

    kvr_set(&u->rejects, rejects);

    atomic_store_explicit(&s->time, time, memory_order_release);
}


uint32_t
kvr_history_samples(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, kvr_history_sample_t *sample)
{
    uint32_t               i, n, time;
    uint64_t               step;
    kvr_history_sample_t  *s;

    if (!kvr_get(&zone->registry->upstream[upstream].looked)) {
        return 0;
    }

    step = kvr_get(&h->steps);

    for (i = 1, n = 0; i <= KVR_HISTORY_SAMPLES; i++) {
        s = &h->upstream[upstream].sample[(step + i) % KVR_HISTORY_SAMPLES];

        time = atomic_load_explicit(&s->time, memory_order_acquire);

        if (time == 0) {
            continue;
        }

        kvr_set(&sample[n].requests, kvr_get(&s->requests));
        kvr_set(&sample[n].errors, kvr_get(&s->errors));
        kvr_set(&sample[n].rejects, kvr_get(&s->rejects));
        kvr_set(&sample[n].p50, kvr_get(&s->p50));
        kvr_set(&sample[n].p95, kvr_get(&s->p95));
        kvr_set(&sample[n].active, kvr_get(&s->active));
        kvr_set(&sample[n].matched, kvr_get(&s->matched));
        kvr_set(&sample[n].time, time);

        atomic_thread_fence(memory_order_acquire);

        n += (kvr_get(&s->time) == time);
    }

    return n;
}


void
kvr_history_member(kvr_history_t *h, const kvr_zone_t *zone, uint32_t member,
    kvr_history_minute_t *minute)
{
    uint32_t               i;
    kvr_member_t          *m;
    kvr_history_now_t      now;
    kvr_history_member_t  *hm;

    m = &zone->registry->member[member];
    hm = &h->member[member];

    kvr_history_now(m, &now);

    if (!kvr_get(&m->looked)) {
        minute->requests = now.requests;
        minute->errors = kvr_max(now.errors, now.fails);
        minute->refused = now.refused;
        minute->firsts = now.firsts;
        minute->ttft = now.ttft;
        return;
    }

    minute->requests = kvr_history_since(requests);
    minute->errors = kvr_history_errors();
    minute->refused = kvr_history_since(refused);
    minute->firsts = kvr_history_since(firsts);
    minute->ttft = kvr_history_since(ttft);

    for (i = 0; i < KVR_HISTORY_PARTS; i++) {
        minute->requests += kvr_get(&hm->part[i].requests);
        minute->errors += kvr_get(&hm->part[i].errors);
        minute->refused += kvr_get(&hm->part[i].refused);
        minute->firsts += kvr_get(&hm->part[i].firsts);
        minute->ttft += kvr_get(&hm->part[i].ttft);
    }
}


uint64_t
kvr_history_rejects(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, uint64_t rejects)
{
    uint32_t                 i;
    uint64_t                 n, step;
    kvr_history_sample_t    *s;
    kvr_history_upstream_t  *u;

    if (!kvr_get(&zone->registry->upstream[upstream].looked)) {
        return 0;
    }

    u = &h->upstream[upstream];
    step = kvr_get(&h->steps) + KVR_HISTORY_SAMPLES;

    n = kvr_history_grown(rejects, kvr_get(&u->rejects));

    for (i = 0; i < KVR_HISTORY_PARTS; i++) {
        s = &u->sample[(step - i) % KVR_HISTORY_SAMPLES];

        if (kvr_get(&s->time)) {
            n += kvr_get(&s->rejects);
        }
    }

    return n;
}


static void
kvr_history_begin(kvr_history_upstream_t *u, uint64_t rejects)
{
    uint32_t  i;

    for (i = 0; i < KVR_HISTORY_SAMPLES; i++) {
        kvr_set(&u->sample[i].time, 0);
    }

    for (i = 0; i <= KVR_STATS_BUCKETS; i++) {
        kvr_set(&u->bucket[i], 0);
    }

    kvr_set(&u->rejects, rejects);
}


static void
kvr_history_begin_member(kvr_history_member_t *hm)
{
    uint32_t  i;

    kvr_set(&hm->requests, 0);
    kvr_set(&hm->errors, 0);
    kvr_set(&hm->fails, 0);
    kvr_set(&hm->firsts, 0);
    kvr_set(&hm->ttft, 0);
    kvr_set(&hm->prompt, 0);
    kvr_set(&hm->matched, 0);

    for (i = 0; i < KVR_HISTORY_PARTS; i++) {
        kvr_set(&hm->part[i].requests, 0);
        kvr_set(&hm->part[i].errors, 0);
        kvr_set(&hm->part[i].firsts, 0);
        kvr_set(&hm->part[i].ttft, 0);
    }
}


static void
kvr_history_now(const kvr_member_t *m, kvr_history_now_t *now)
{
    now->requests = kvr_get(&m->requests);
    now->errors = kvr_get(&m->responses[KVR_STATUS_CLASSES - 1]);
    now->refused = kvr_get(&m->responses[KVR_STATUS_CLASSES - 2]);
    now->fails = kvr_get(&m->fails);
    now->firsts = kvr_get(&m->firsts[1]);
    now->ttft = kvr_get(&m->ttft[1]);
    now->prompt = kvr_get(&m->prompt);
    now->matched = kvr_get(&m->matched);
}


static uint64_t
kvr_history_grown(uint64_t now, uint64_t before)
{
    return now >= before ? now - before : now;
}


static void
kvr_history_quantiles(kvr_history_upstream_t *u,
    const kvr_histogram_t *histogram, uint32_t *p50, uint32_t *p95)
{
    uint32_t  i;
    uint64_t  n, all, bucket[KVR_STATS_BUCKETS + 1];

    for (i = 0, all = 0; i <= KVR_STATS_BUCKETS; i++) {
        n = kvr_get(&histogram->bucket[i]);

        bucket[i] = kvr_history_grown(n, kvr_get(&u->bucket[i]));
        all += bucket[i];

        kvr_set(&u->bucket[i], n);
    }

    *p50 = kvr_history_quantile(bucket, all, 50);
    *p95 = kvr_history_quantile(bucket, all, 95);
}


/* in ms, as if the values of a bucket were spread evenly; 0 of none */
static uint32_t
kvr_history_quantile(const uint64_t *bucket, uint64_t all, uint64_t percent)
{
    uint32_t         i, n;
    uint64_t         low, rank, before;
    const uint64_t  *bound;

    if (all == 0) {
        return 0;
    }

    bound = kvr_stats_bounds(KVR_STATS_TTFT, &n);
    rank = (all * percent + 99) / 100;
    low = 0;
    before = 0;

    for (i = 0; i < n; i++) {

        if (before + bucket[i] >= rank) {
            low += (bound[i] - low) * (rank - before) / bucket[i];
            break;
        }

        low = bound[i];
        before += bucket[i];
    }

    return (uint32_t) kvr_max(low / 1000, 1);
}
