
/*
 * Copyright (C) kvroute contributors
 */


#include "core/watch/kvr_history.h"


static void kvr_history_grown_member(const kvr_member_t *m,
    kvr_history_member_t *hm, uint64_t *now, uint64_t *grown);
static uint64_t kvr_history_grown(uint64_t now, uint64_t before);
static void kvr_history_fill(kvr_history_member_t *hm, const uint64_t *grown);
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
    uint32_t  i, k;
    uint64_t  stepped, step;

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

    /* a member without a look keeps zeros for this step */

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
        kvr_set(&h->upstream[i].sample[step % KVR_HISTORY_SAMPLES].time, 0);
    }

    for (i = 0; i < h->max_members; i++) {
        for (k = 0; k < KVR_HISTORY_SHOWN; k++) {
            kvr_set(&h->member[i].part[step % KVR_HISTORY_PARTS][k], 0);
        }
    }

    atomic_thread_fence(memory_order_release);

    return 1;
}


void
kvr_history_upstream(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, uint64_t rejects)
{
    kvr_upstream_t          *counted;
    kvr_history_upstream_t  *u;

    u = &h->upstream[upstream];
    counted = &zone->registry->upstream[upstream];

    if (!kvr_get(&counted->looked)) {
        memset((void *) u, 0, sizeof(kvr_history_upstream_t));
        kvr_set(&u->rejects, rejects);
        kvr_set(&counted->looked, 1);
    }
}


void
kvr_history_begin(kvr_history_t *h, const kvr_zone_t *zone, uint32_t member)
{
    kvr_member_t  *m;

    m = &zone->registry->member[member];

    if (!kvr_get(&m->looked)) {
        memset((void *) &h->member[member], 0, sizeof(kvr_history_member_t));
        kvr_set(&m->looked, 1);
    }
}


void
kvr_history_look(kvr_history_t *h, const kvr_zone_t *zone, uint32_t upstream,
    uint64_t rejects, uint32_t time)
{
    uint32_t                 i, k, p50, p95;
    uint64_t                 step, active, now[KVR_HISTORY_COUNTERS];
    uint64_t                 grown[KVR_HISTORY_COUNTERS];
    uint64_t                 all[KVR_HISTORY_COUNTERS];
    kvr_member_t            *m;
    kvr_upstream_t          *counted;
    kvr_history_member_t    *hm;
    kvr_history_sample_t    *s;
    kvr_history_upstream_t  *u;

    step = kvr_get(&h->steps);
    u = &h->upstream[upstream];
    s = &u->sample[step % KVR_HISTORY_SAMPLES];
    counted = &zone->registry->upstream[upstream];

    kvr_history_upstream(h, zone, upstream, rejects);

    memset(all, 0, sizeof(all));
    active = 0;

    for (i = 0; i < h->max_members; i++) {
        m = &zone->registry->member[i];

        if (!kvr_get(&m->used) || m->upstream != upstream) {
            continue;
        }

        hm = &h->member[i];

        kvr_history_begin(h, zone, i);

        kvr_history_grown_member(m, hm, now, grown);
        kvr_history_fill(hm, grown);

        for (k = 0; k < KVR_HISTORY_COUNTERS; k++) {
            kvr_set(&hm->was[k], now[k]);
            all[k] += grown[k];
        }

        for (k = 0; k < KVR_HISTORY_SHOWN; k++) {
            kvr_set(&hm->part[step % KVR_HISTORY_PARTS][k],
                    (uint32_t) grown[k]);
        }

        active += kvr_load_get(zone->load,
                               kvr_registry_column(zone->registry, i)).active;
    }

    kvr_history_quantiles(u, &counted->stats.histogram[KVR_STATS_TTFT], &p50,
                          &p95);

    kvr_set(&s->requests, (uint32_t) all[KVR_HISTORY_REQUESTS]);
    kvr_set(&s->errors, (uint32_t) all[KVR_HISTORY_ERRORS]);
    kvr_set(&s->rejects, (uint32_t) kvr_history_grown(rejects,
                                                      kvr_get(&u->rejects)));
    kvr_set(&s->p50, p50);
    kvr_set(&s->p95, p95);
    kvr_set(&s->active, (uint32_t) active);
    kvr_set(&s->matched,
            (uint16_t) (all[KVR_HISTORY_PROMPT]
                        ? kvr_min(all[KVR_HISTORY_MATCHED],
                                  all[KVR_HISTORY_PROMPT])
                          * 10000 / all[KVR_HISTORY_PROMPT]
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

        memcpy((void *) &sample[n], (const void *) s,
               sizeof(kvr_history_sample_t));
        kvr_set(&sample[n].time, time);

        atomic_thread_fence(memory_order_acquire);

        n += (kvr_get(&s->time) == time);
    }

    return n;
}


void
kvr_history_member(kvr_history_t *h, const kvr_zone_t *zone, uint32_t member,
    kvr_verdict_server_t *s)
{
    uint32_t               i, k;
    uint64_t               now[KVR_HISTORY_COUNTERS];
    uint64_t               n[KVR_HISTORY_COUNTERS], firsts, ttft;
    kvr_member_t          *m;
    kvr_history_member_t  *hm;

    m = &zone->registry->member[member];
    hm = &h->member[member];

    kvr_history_grown_member(m, hm, now, n);

    firsts = n[KVR_HISTORY_FIRSTS];
    ttft = n[KVR_HISTORY_TTFT];

    if (kvr_get(&m->looked)) {
        firsts += kvr_get(&hm->firsts[0]);
        ttft += kvr_get(&hm->ttft[0]);

        if (firsts < KVR_VERDICT_FIRSTS) {
            firsts = kvr_get(&hm->firsts[1]);
            ttft = kvr_get(&hm->ttft[1]);
        }
    }

    s->window = firsts < KVR_VERDICT_FIRSTS ? 0 : kvr_max(ttft / firsts, 1);

    for (i = 0; i < KVR_HISTORY_PARTS && kvr_get(&m->looked); i++) {
        for (k = 0; k < KVR_HISTORY_SHOWN; k++) {
            n[k] += kvr_get(&hm->part[i][k]);
        }
    }

    s->requests = n[KVR_HISTORY_REQUESTS];
    s->errors = n[KVR_HISTORY_ERRORS];
    s->refused = n[KVR_HISTORY_REFUSED];
    s->firsts = n[KVR_HISTORY_FIRSTS];
    s->ttft = n[KVR_HISTORY_TTFT];
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


/*
 * Reads the counters of a member, and their growth since the last look, or
 * ever.  An attempt that failed with a 5xx can be in both counters: it is one
 * error.
 */
static void
kvr_history_grown_member(const kvr_member_t *m, kvr_history_member_t *hm,
    uint64_t *now, uint64_t *grown)
{
    uint32_t  i, looked;

    now[KVR_HISTORY_REQUESTS] = kvr_get(&m->requests);
    now[KVR_HISTORY_ERRORS] = kvr_get(&m->responses[KVR_STATUS_CLASSES - 1]);
    now[KVR_HISTORY_REFUSED] = kvr_get(&m->responses[KVR_STATUS_CLASSES - 2]);
    now[KVR_HISTORY_FIRSTS] = kvr_get(&m->firsts[1]);
    now[KVR_HISTORY_TTFT] = kvr_get(&m->ttft[1]);
    now[KVR_HISTORY_FAILS] = kvr_get(&m->fails);
    now[KVR_HISTORY_PROMPT] = kvr_get(&m->prompt);
    now[KVR_HISTORY_MATCHED] = kvr_get(&m->matched);

    looked = kvr_get(&m->looked);

    for (i = 0; i < KVR_HISTORY_COUNTERS; i++) {
        grown[i] = kvr_history_grown(now[i], looked ? kvr_get(&hm->was[i]) : 0);
    }

    grown[KVR_HISTORY_ERRORS] = kvr_max(grown[KVR_HISTORY_ERRORS],
                                        grown[KVR_HISTORY_FAILS]);
}


/* Fills a window until it has enough streams; then the next one begins. */
static void
kvr_history_fill(kvr_history_member_t *hm, const uint64_t *grown)
{
    uint32_t  firsts, ttft;

    firsts = kvr_get(&hm->firsts[0]) + (uint32_t) grown[KVR_HISTORY_FIRSTS];
    ttft = kvr_get(&hm->ttft[0]) + (uint32_t) grown[KVR_HISTORY_TTFT];

    if (firsts >= KVR_VERDICT_FIRSTS) {
        kvr_set(&hm->firsts[1], firsts);
        kvr_set(&hm->ttft[1], ttft);
        firsts = 0;
        ttft = 0;
    }

    kvr_set(&hm->firsts[0], firsts);
    kvr_set(&hm->ttft[0], ttft);
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


/*
 * Returns ms, assuming that values are spread evenly over a bucket; 0: no
 * values.
 */
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
