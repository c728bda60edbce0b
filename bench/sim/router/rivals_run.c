/*
 * The state of the other routers, and when it is updated: their own counts,
 * their own index of the published size, and scraped figures that are at most
 * 50 ms old.  Routers that read the engines' KV events see the replicas' true
 * state.
 */

#include "bench/model/prefix.h"
#include "bench/sim/engine/sim_caches.h"
#include "bench/sim/router/rivals.h"
#include "bench/sim/router/rivals_run.h"


#define KVS_SCRAPE  0.050


typedef enum {
    KVS_RIVAL_RANDOM = 0,
    KVS_RIVAL_TWO_CHOICES,
    KVS_RIVAL_SGLANG_FLEET,
    KVS_RIVAL_SGLANG_REQUEST,
    KVS_RIVAL_TWO_TIER,
    KVS_RIVAL_VLLM_HASH,
    KVS_RIVAL_KUBEAI,
    KVS_RIVAL_LLMD_BLEND,
    KVS_RIVAL_LLMD_STICKY,
    KVS_RIVAL_DYNAMO,
    KVS_RIVAL_LMETRIC,
    KVS_RIVAL_LMETRIC_DYNAMO,
    KVS_RIVAL_ADDITIVE,
    KVS_RIVAL_AIBRIX,
    KVS_RIVAL_RAMJET
} kvs_rival_e;


typedef enum {
    KVS_KEEP_NONE = 0,
    KVS_KEEP_TRUE,           /* cache events */
    KVS_KEEP_TIERS,          /* the same for all tiers, each with a weight */
    KVS_KEEP_RIGHT,          /* LRU as large as the engine's cache */
    KVS_KEEP_LLMD,           /* LRU of num_gpu_blocks blocks of 64 tokens */
    KVS_KEEP_SGLANG,         /* 2^26 characters a worker */
    KVS_KEEP_AIBRIX,         /* 200,000 blocks of 128 characters, 20 min */
    KVS_KEEP_TWO,            /* an LRU of its size for each of two tiers */
    KVS_KEEP_RAMJET          /* 100,000 blocks of 2 KB an upstream */
} kvs_keep_e;


typedef struct {
    kvs_rival_e    kind;
    kvs_keep_e     keep;
    kvs_gate_t     gate;
    double         credit;   /* Dynamo */
    double         worth[KVE_TIERS];   /* weight of a token in each tier */
    uint32_t       points;   /* ring */
} kvs_rival_conf_t;


typedef struct {
    kvs_sim_t         *sim;
    kvs_rival_conf_t   conf;
    kvs_prefix_t      *index;
    kvs_prefix_t      *lower;    /* host memory */
    kvs_prefix_t      *held;     /* blocks of requests in flight */
    kvs_ring_t         ring;
    kvs_hotspot_t      hot;
    double             scraped;
    uint32_t           turn;
    kvs_view_t         view[KVS_REPLICAS];
} kvs_rival_t;


static void *
kvs_rival_create(kvs_sim_t *sim, const kvs_policy_t *policy)
{
    kvs_rival_t        *rv;
    kvs_prefix_conf_t   px;

    rv = kvs_alloc(sizeof(kvs_rival_t));

    rv->sim = sim;
    rv->conf = *(const kvs_rival_conf_t *) policy->conf;
    rv->scraped = -1;

    memset(&px, 0, sizeof(px));

    switch (rv->conf.keep) {

    case KVS_KEEP_NONE:
    case KVS_KEEP_TRUE:
    case KVS_KEEP_TIERS:
        break;

    case KVS_KEEP_RIGHT:
    case KVS_KEEP_TWO:
        px.capacity = sim->blocks;
        break;

    case KVS_KEEP_LLMD:
        px.capacity = sim->blocks * (KVS_UNIT_TOKENS / 16);
        px.any = 1;
        break;

    case KVS_KEEP_SGLANG:
        px.capacity = (1 << 26) / KVS_UNIT_BYTES;
        break;

    case KVS_KEEP_AIBRIX:
        px.total = 200000 * 128 / KVS_UNIT_BYTES;
        px.ttl = 1200;
        break;

    case KVS_KEEP_RAMJET:
        px.capacity = 100000;
        px.stride = 2048 / KVS_UNIT_BYTES;
        break;
    }

    if (rv->conf.keep == KVS_KEEP_TRUE) {
        kvs_caches_watch(sim);
    }

    if (rv->conf.keep > KVS_KEEP_TIERS) {
        rv->index = kvs_prefix_create(&px);
    }

    if (rv->conf.keep == KVS_KEEP_TWO) {
        px.capacity = (uint32_t) (sim->blocks * kvr_max(sim->fleet.host, 1));
        rv->lower = kvs_prefix_create(&px);
    }

    if (rv->conf.kind == KVS_RIVAL_DYNAMO) {
        memset(&px, 0, sizeof(px));
        rv->held = kvs_prefix_create(&px);
    }

    if (rv->conf.points) {
        kvs_ring_init(&rv->ring, sim->n, rv->conf.points);
    }

    if (rv->conf.kind == KVS_RIVAL_LMETRIC_DYNAMO) {
        kvs_hotspot_init(&rv->hot, 1000);
    }

    return rv;
}


static void
kvs_rival_destroy(void *data)
{
    kvs_rival_t *rv = data;

    if (rv->index) {
        kvs_prefix_destroy(rv->index);
    }

    if (rv->lower) {
        kvs_prefix_destroy(rv->lower);
    }

    if (rv->held) {
        kvs_prefix_destroy(rv->held);
    }

    if (rv->conf.points) {
        kvs_ring_done(&rv->ring);
    }

    if (rv->hot.classes) {
        kvs_hotspot_done(&rv->hot);
    }

    free(rv);
}


static void
kvs_rival_scrape(kvs_rival_t *rv, double now)
{
    uint32_t     i;
    kve_stats_t  st;

    if (rv->scraped >= 0 && now < rv->scraped + KVS_SCRAPE) {
        return;
    }

    rv->scraped = now;

    for (i = 0; i < rv->sim->n; i++) {
        kve_replica_stats(rv->sim->replica[i], &st);
        rv->view[i].waiting = st.waiting;
        rv->view[i].usage = st.kv_usage;
    }
}


/* sets view[] to each replica's cached tokens, and the last tenant */
static uint32_t
kvs_rival_match(kvs_rival_t *rv, kvs_request_t *rq, double now)
{
    uint32_t    i, units, last, matched[KVS_REPLICAS], low[KVS_REPLICAS];
    uint32_t    tokens[KVE_TIERS];
    kvr_set_t   m;
    kvs_sim_t  *sim;

    sim = rv->sim;
    last = UINT32_MAX;

    if (rv->index) {
        units = rq->units;

        if (rv->conf.keep == KVS_KEEP_LLMD) {
            units = kvr_min(units, 131072 / KVS_UNIT_TOKENS);
        }

        kvs_prefix_match(rv->index, rq->chain, units, sim->up, now, matched,
                         &last);
    }

    if (rv->conf.keep == KVS_KEEP_TRUE) {
        kvs_sim_match(sim, rq, sim->up, matched);
    }

    for (m = sim->up;
         rv->conf.keep == KVS_KEEP_TIERS && kvr_set_next(&m, &i);
         /* void */ )
    {
        kvs_sim_settle(sim, i);
        kve_replica_reach(sim->replica[i], rq->chain, rq->units, rq->tokens,
                          tokens);

        matched[i] = (uint32_t) ((tokens[KVE_GPU] * rv->conf.worth[KVE_GPU]
                                  + tokens[KVE_HOST] * rv->conf.worth[KVE_HOST]
                                  + tokens[KVE_DISK] * rv->conf.worth[KVE_DISK])
                                 / KVS_UNIT_TOKENS);
    }

    for (m = sim->up; rv->conf.keep && kvr_set_next(&m, &i); /* void */ ) {
        rv->view[i].matched = matched[i] * KVS_UNIT_TOKENS;
    }

    if (rv->lower) {
        kvs_prefix_match(rv->lower, rq->chain, rq->units, sim->up, now, low,
                         NULL);

        for (m = sim->up; kvr_set_next(&m, &i); /* void */ ) {
            rv->view[i].matched = (matched[i] + low[i]) * KVS_UNIT_TOKENS / 2;
        }
    }

    if (rv->held) {
        kvs_prefix_match(rv->held, rq->chain, rq->units, sim->up, now, matched,
                         NULL);

        for (m = sim->up; kvr_set_next(&m, &i); /* void */ ) {

            rv->view[i].blocks = kvs_prefix_count(rv->held, i)
                                 + (rq->units - matched[i]);
        }
    }

    return last;
}


static uint32_t
kvs_rival_choose(kvs_rival_t *rv, kvs_request_t *rq, const kvs_view_t *v,
    const uint32_t *id, uint32_t n, uint32_t tenant)
{
    uint64_t     class;
    kvs_rng_t   *rng;

    rng = &rv->sim->rng;

    switch (rv->conf.kind) {

    case KVS_RIVAL_RANDOM:
        break;

    case KVS_RIVAL_TWO_CHOICES:
        return kvs_pick_two_choices(v, n, rng);

    case KVS_RIVAL_SGLANG_FLEET:
        return kvs_pick_sglang_fleet(v, n, rq->tokens, tenant, &rv->conf.gate);

    case KVS_RIVAL_SGLANG_REQUEST:
        return kvs_pick_sglang_request(v, n, rq->tokens, &rv->conf.gate, rng);

    case KVS_RIVAL_TWO_TIER:
        return kvs_pick_two_tier(v, n, rq->tokens, &rv->conf.gate);

    case KVS_RIVAL_VLLM_HASH:
        return kvs_pick_ring(&rv->ring, id, n, rq->key_session);

    case KVS_RIVAL_KUBEAI:
        return kvs_pick_ring_bounded(&rv->ring, v, id, n, rq->key_text, 1.25);

    case KVS_RIVAL_LLMD_BLEND:
        return kvs_pick_llmd_blend(v, n, rq->tokens, rng);

    case KVS_RIVAL_LLMD_STICKY:
        return kvs_pick_llmd_sticky(v, n, rq->tokens, rv->turn++);

    case KVS_RIVAL_DYNAMO:
        return kvs_pick_dynamo(v, n, rq->tokens, rv->conf.credit, rng);

    case KVS_RIVAL_LMETRIC:
        return kvs_pick_lmetric(v, n, rq->tokens, rng);

    case KVS_RIVAL_LMETRIC_DYNAMO:
        class = rq->units >= 4 ? rq->chain[3] : 0;
        return kvs_pick_lmetric_dynamo(v, n, rq->tokens, &rv->hot, class,
                                       4 * KVS_UNIT_TOKENS);

    case KVS_RIVAL_ADDITIVE:
        return kvs_pick_additive(v, n, rq->tokens, rv->turn++);

    case KVS_RIVAL_AIBRIX:
        return kvs_pick_aibrix(v, n, rq->tokens, rng);

    case KVS_RIVAL_RAMJET:
        return kvs_pick_ramjet(v, n, rv->turn++);
    }

    return kvs_pick_random(n, rng);
}


static uint32_t
kvs_rival_pick(void *data, kvs_request_t *rq, double now)
{
    kvs_rival_t *rv = data;

    uint32_t     i, n, tenant, last, id[KVS_REPLICAS];
    kvr_set_t    m;
    kvs_view_t  *v, view[KVS_REPLICAS];

    if (rv->conf.kind == KVS_RIVAL_LLMD_BLEND) {
        kvs_rival_scrape(rv, now);
    }

    last = kvs_rival_match(rv, rq, now);

    n = 0;
    tenant = UINT32_MAX;

    for (m = rv->sim->up; kvr_set_next(&m, &i); /* void */ ) {

        if (i == last) {
            tenant = n;
        }

        view[n] = rv->view[i];
        id[n++] = i;
    }

    i = id[kvs_rival_choose(rv, rq, view, id, n, tenant)];
    v = &rv->view[i];

    rq->replica = i;
    rq->matched = kvr_min(v->matched, rq->tokens);
    rq->pending = rq->tokens - rq->matched;
    rq->charge = kvs_ramjet_units(rq->bytes,
                                  (uint64_t) v->matched * KVS_TOKEN_BYTES);

    v->active++;
    v->picks++;
    v->pending += rq->pending;
    v->units += rq->charge;

    if (rv->index && rv->conf.keep != KVS_KEEP_RAMJET) {
        kvs_prefix_insert(rv->index, rq->chain, rq->units, i, now);
    }

    if (rv->lower) {
        kvs_prefix_insert(rv->lower, rq->chain, rq->units, i, now);
    }

    if (rv->held) {
        kvs_prefix_hold(rv->held, rq->chain, rq->units, i);
    }

    return i;
}


/* Ramjet learns from 2xx responses */
static void
kvs_rival_headers(void *data, kvs_request_t *rq, double now)
{
    kvs_rival_t *rv = data;

    kvs_prefix_insert(rv->index, rq->chain, rq->units, rq->replica, now);
}


static void
kvs_rival_first(void *data, kvs_request_t *rq, double now)
{
    kvs_rival_t *rv = data;

    (void) now;

    rv->view[rq->replica].pending -= rq->pending;
    rq->pending = 0;
}


static void
kvs_rival_done(void *data, kvs_request_t *rq, double now, unsigned ok)
{
    kvs_rival_t *rv = data;

    kvs_view_t  *v;

    (void) now;
    (void) ok;

    v = &rv->view[rq->replica];

    v->active--;
    v->pending -= rq->pending;
    v->units -= rq->charge;
    rq->pending = 0;

    if (rv->held) {
        kvs_prefix_drop(rv->held, rq->chain, rq->units, rq->replica);
    }
}


#define KVS_RIVAL_CONF(name, ...)                                             \
    static const kvs_rival_conf_t  kvs_rival_##name = { __VA_ARGS__ };

KVS_RIVAL_CONF(random, .kind = KVS_RIVAL_RANDOM)
KVS_RIVAL_CONF(two_choices, .kind = KVS_RIVAL_TWO_CHOICES)
KVS_RIVAL_CONF(sglang_fleet, .kind = KVS_RIVAL_SGLANG_FLEET,
               .keep = KVS_KEEP_SGLANG, .gate = { 0.3, 64, 1.5 })
KVS_RIVAL_CONF(sglang_request, .kind = KVS_RIVAL_SGLANG_REQUEST,
               .keep = KVS_KEEP_SGLANG, .gate = { 0.3, 64, 1.5 })
KVS_RIVAL_CONF(two_tier, .kind = KVS_RIVAL_TWO_TIER, .keep = KVS_KEEP_TRUE,
               .gate = { 0.5, 32, 1.1 })
KVS_RIVAL_CONF(vllm_hash, .kind = KVS_RIVAL_VLLM_HASH, .points = 160)
KVS_RIVAL_CONF(kubeai, .kind = KVS_RIVAL_KUBEAI, .points = 256)
KVS_RIVAL_CONF(llmd_blend, .kind = KVS_RIVAL_LLMD_BLEND,
               .keep = KVS_KEEP_LLMD)
KVS_RIVAL_CONF(llmd_sticky, .kind = KVS_RIVAL_LLMD_STICKY,
               .keep = KVS_KEEP_LLMD)
KVS_RIVAL_CONF(dynamo_1, .kind = KVS_RIVAL_DYNAMO, .keep = KVS_KEEP_TRUE,
               .credit = 1)
KVS_RIVAL_CONF(dynamo_64, .kind = KVS_RIVAL_DYNAMO, .keep = KVS_KEEP_TRUE,
               .credit = 64)
KVS_RIVAL_CONF(lmetric, .kind = KVS_RIVAL_LMETRIC, .keep = KVS_KEEP_RIGHT)
KVS_RIVAL_CONF(lmetric_dynamo, .kind = KVS_RIVAL_LMETRIC_DYNAMO,
               .keep = KVS_KEEP_TRUE)
KVS_RIVAL_CONF(lpwl, .kind = KVS_RIVAL_ADDITIVE, .keep = KVS_KEEP_RIGHT)
KVS_RIVAL_CONF(llumnix, .kind = KVS_RIVAL_ADDITIVE, .keep = KVS_KEEP_TRUE)
KVS_RIVAL_CONF(aibrix, .kind = KVS_RIVAL_AIBRIX, .keep = KVS_KEEP_AIBRIX)

/* make bench-tiers */

KVS_RIVAL_CONF(dynamo_tiers, .kind = KVS_RIVAL_DYNAMO, .keep = KVS_KEEP_TIERS,
               .credit = 1, .worth = { 1, 0.75, 0.25 })
KVS_RIVAL_CONF(llmd_tiers, .kind = KVS_RIVAL_LLMD_BLEND,
               .keep = KVS_KEEP_TIERS, .worth = { 1, 0.8, 0.8 })
KVS_RIVAL_CONF(llmd_two, .kind = KVS_RIVAL_LLMD_BLEND, .keep = KVS_KEEP_TWO)
KVS_RIVAL_CONF(ramjet, .kind = KVS_RIVAL_RAMJET, .keep = KVS_KEEP_RAMJET)


#define KVS_RIVAL_POLICY(name, headers)                                       \
    { #name, KVS_RIVAL, kvs_rival_create, kvs_rival_destroy, kvs_rival_pick,  \
      NULL, headers, kvs_rival_first, NULL, kvs_rival_done,                   \
      &kvs_rival_##name }


const kvs_policy_t  kvs_rival_policies[] = {
    KVS_RIVAL_POLICY(random, NULL),
    KVS_RIVAL_POLICY(two_choices, NULL),
    KVS_RIVAL_POLICY(sglang_fleet, NULL),
    KVS_RIVAL_POLICY(sglang_request, NULL),
    KVS_RIVAL_POLICY(two_tier, NULL),
    KVS_RIVAL_POLICY(vllm_hash, NULL),
    KVS_RIVAL_POLICY(kubeai, NULL),
    KVS_RIVAL_POLICY(llmd_blend, NULL),
    KVS_RIVAL_POLICY(llmd_sticky, NULL),
    KVS_RIVAL_POLICY(dynamo_1, NULL),
    KVS_RIVAL_POLICY(dynamo_64, NULL),
    KVS_RIVAL_POLICY(lmetric, NULL),
    KVS_RIVAL_POLICY(lmetric_dynamo, NULL),
    KVS_RIVAL_POLICY(lpwl, NULL),
    KVS_RIVAL_POLICY(llumnix, NULL),
    KVS_RIVAL_POLICY(aibrix, NULL),
    KVS_RIVAL_POLICY(ramjet, kvs_rival_headers),
    { NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
};


const kvs_policy_t  kvs_rival_tiers[] = {
    KVS_RIVAL_POLICY(dynamo_tiers, NULL),
    KVS_RIVAL_POLICY(llmd_tiers, NULL),
    KVS_RIVAL_POLICY(llmd_two, NULL),
    { NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
};
