/* A run: pools of servers in virtual time, and the requests. */

#include "bench/sim/legs/legs_int.h"


#define KVS_LEGS_SLAB      256
#define KVS_LEGS_PATIENCE  8       /* lengths of a run until it is given up */

/* s, the longest shift of an arrival by "again" */
#define KVS_LEGS_JITTER    0.001

/* s from the end of leg 1 to the transfer: its answer, and the next request */
#define KVS_LEGS_HOP       0.001


enum {
    KVS_LEGS_ARRIVE = 0,
    KVS_LEGS_STEP,
    KVS_LEGS_FIRST,
    KVS_LEGS_DONE
};


static void kvs_legs_create(kvs_legs_t *legs, uint64_t seed);
static void kvs_legs_destroy(kvs_legs_t *legs);
static void kvs_legs_loop(kvs_legs_t *legs);
static void kvs_legs_settle(kvs_legs_t *legs, uint32_t i);
static void kvs_legs_event(kvs_legs_t *legs, const kvs_event_t *ev);
static void kvs_legs_arrive(kvs_legs_t *legs);
static void kvs_legs_step(kvs_legs_t *legs, kvs_session_t *s);
static kvs_pair_t *kvs_legs_pair(kvs_legs_t *legs);
static void kvs_legs_send(kvs_legs_t *legs, kvs_pair_t *pair, uint32_t leg);
static void kvs_legs_done(kvs_legs_t *legs, kvs_leg_t *l);
static void kvs_legs_move(kvs_legs_t *legs, kvs_pair_t *pair);
static void kvs_legs_moved(kvs_legs_t *legs, kvs_pair_t *pair);
static void kvs_legs_end(kvs_legs_t *legs, kvs_pair_t *pair);


void
kvs_legs_run(const kvs_legs_conf_t *conf, uint64_t seed,
    kvs_legs_result_t *res)
{
    kvs_legs_t  *legs;

    legs = kvs_alloc(sizeof(kvs_legs_t));
    legs->conf = conf;

    kvs_legs_create(legs, seed);
    kvs_legs_loop(legs);
    kvs_legs_result(legs, res);
    kvs_legs_destroy(legs);
}


/*
 * Tokens of a mean request: those to be computed, its context, and its answer.
 */
static void
kvs_legs_mean(const kvs_legs_conf_t *conf, const kve_hw_t *hw, double *fresh,
    double *context, double *output)
{
    kvs_workload_t  *w;

    w = kvs_workload_create(&conf->shape, NULL);

    kvs_workload_start(w, 1, (uint32_t) hw->kv_tokens / 2);

    *context = w->prompt + w->output / 2;
    *output = w->output;
    *fresh = w->prompt;

    if (conf->shape.shape == KVS_AGENTS) {
        *fresh = conf->shape.question.mean
                 + conf->shape.prefix_max / conf->shape.steps.mean;
    }

    kvs_workload_destroy(w);
}


double
kvs_legs_capacity(const kvs_legs_conf_t *conf)
{
    double    fresh, context, output, batch, prefill, decode, n;
    kve_hw_t  hw;

    if (!kve_hw_find(conf->hardware, &hw)) {
        abort();
    }

    kvs_legs_mean(conf, &hw, &fresh, &context, &output);

    /* per request, in a step with as many as there is room for */

    batch = kvr_min((double) hw.kv_tokens / context, hw.max_seqs);

    decode = output * ((kvr_max(hw.floor, batch * hw.linear) + hw.step) / batch
                       + hw.request + hw.kv * context);
    prefill = fresh * hw.linear
              + hw.attention * fresh * (context - fresh / 2);

    n = conf->prefill + conf->decode;

    return kvr_min(n / (prefill + decode), conf->decode / decode);
}


static void
kvs_legs_create(kvs_legs_t *legs, uint64_t seed)
{
    uint32_t                i, blocks;
    kve_hw_t               *hw;
    kve_config_t            cf;
    const kvs_legs_conf_t  *conf;

    conf = legs->conf;

    legs->load = kvs_alloc(sizeof(kvs_sim_t));
    hw = &legs->load->hw;

    if (!kve_hw_find(conf->hardware, hw)) {
        abort();
    }

    legs->n = conf->prefill + conf->decode;
    legs->link = conf->bandwidth / conf->kv_bytes * KVS_TOKEN_BYTES / 1000;

    legs->load->rate = conf->load * kvs_legs_capacity(conf);
    legs->length = conf->requests / legs->load->rate;
    legs->load->length = legs->length;
    legs->window = legs->length / 4;

    kvs_rng_seed(&legs->rng, seed, 0x6c65677300bULL);
    kvs_network_init(&legs->network, conf->setup, conf->bandwidth);

    kve_config_init(&cf, hw);

    cf.block_size = KVS_UNIT_TOKENS;
    cf.token_log = 1;

    blocks = (uint32_t) (hw->kv_tokens / KVS_UNIT_TOKENS);

    kvs_zone_create(&legs->zone, 1, legs->n, blocks);

    for (i = 0; i < legs->n; i++) {
        legs->replica[i] = kve_replica_create(&cf);

        if (legs->replica[i] == NULL) {
            abort();
        }

        legs->next[i] = INFINITY;
        kvr_capacity_set(&legs->zone.core, &legs->zone.pool, i, blocks, 0);
    }

    for (i = 0; i < 2; i++) {
        legs->pool[i] = legs->zone;
        legs->pool[i].pool.set = kvr_set_none();
    }

    for (i = 0; i < legs->n; i++) {
        kvr_set_add(&legs->pool[i >= conf->prefill
                                || conf->rule == KVS_LEGS_ONE].pool.set, i);
    }

    legs->gap = kvs_alloc(KVS_LEGS_GAPS * sizeof(uint64_t));
    legs->workload = kvs_workload_create(&conf->shape, NULL);

    kvs_workload_start(legs->workload, seed, (uint32_t) hw->kv_tokens / 2);

    legs->coming = kvs_workload_next(legs->workload, legs->load);
    kvs_events_push(&legs->events, legs->coming->arrival, KVS_LEGS_ARRIVE,
                    NULL, 0);
}


/* sessions of a run that was given up are not freed */
static void
kvs_legs_destroy(kvs_legs_t *legs)
{
    size_t  i;

    for (i = 0; i < legs->n; i++) {
        kve_replica_destroy(legs->replica[i]);
    }

    for (i = 0; i < legs->nslabs; i++) {
        free(legs->slabs[i]);
    }

    kvs_zone_destroy(&legs->zone);
    kvs_workload_destroy(legs->workload);

    free(legs->slabs);
    free(legs->coming);
    free(legs->events.event);
    free(legs->ttft.v);
    free(legs->tpt.v);
    free(legs->gap);
    free(legs->load);
    free(legs);
}


static void
kvs_legs_loop(kvs_legs_t *legs)
{
    double       t, moved, happens;
    void        *pair;
    uint32_t     i, k;
    kvs_event_t  ev;

    while (legs->now < KVS_LEGS_PATIENCE * legs->length
           && (legs->now <= legs->length || legs->due))
    {
        k = 0;

        for (i = 1; i < legs->n; i++) {
            if (legs->next[i] < legs->next[k]) {
                k = i;
            }
        }

        moved = kvs_network_next(&legs->network);
        happens = kvs_events_next(&legs->events);

        t = kvr_min(legs->next[k], kvr_min(moved, happens));

        if (t == INFINITY) {
            break;
        }

        legs->now = kvr_max(legs->now, t);

        pair = kvs_network_advance(&legs->network, legs->now);

        if (pair) {
            kvs_legs_moved(legs, pair);

        } else if (t == legs->next[k]) {
            kvs_legs_settle(legs, k);

        } else if (t == happens) {
            ev = kvs_events_pop(&legs->events);
            kvs_legs_event(legs, &ev);
        }
    }
}


static void
kvs_legs_settle(kvs_legs_t *legs, uint32_t i)
{
    size_t              n, k;
    kvs_leg_t          *l;
    const kve_event_t  *ev;

    n = kve_replica_advance(legs->replica[i], legs->now, &ev);

    for (k = 0; k < n; k++) {
        l = ev[k].req->data;

        switch (ev[k].type) {

        case KVE_FIRST:
            kvs_events_push(&legs->events, ev[k].time, KVS_LEGS_FIRST, l, 0);
            break;

        case KVE_DONE:
            if (l == &l->pair->leg[1]) {
                kvs_legs_tokens(legs, l->pair);
            }

            kvs_events_push(&legs->events, ev[k].time, KVS_LEGS_DONE, l, 0);
            break;

        case KVE_ABORTED:

            /* each prompt fits into a cache */

            abort();

        default:
            break;
        }
    }

    legs->next[i] = kve_replica_next(legs->replica[i]);
}


static void
kvs_legs_event(kvs_legs_t *legs, const kvs_event_t *ev)
{
    kvs_leg_t  *l;

    l = ev->data;

    switch (ev->type) {

    case KVS_LEGS_ARRIVE:
        kvs_legs_arrive(legs);
        break;

    case KVS_LEGS_STEP:
        kvs_legs_step(legs, ev->data);
        break;

    case KVS_LEGS_FIRST:
        kvs_route_first(&legs->pool[l == &l->pair->leg[1]], &l->route, 0,
                        legs->now);

        if (l == &l->pair->leg[1]) {
            kvs_legs_first(legs, l->pair);
        }

        break;

    case KVS_LEGS_DONE:
        kvs_legs_done(legs, l);
        break;
    }
}


static int
kvs_legs_measured(const kvs_legs_t *legs, double t)
{
    return t >= legs->window && t < legs->length;
}


static void
kvs_legs_arrive(kvs_legs_t *legs)
{
    double          jitter;
    uint32_t        i;
    kvs_session_t  *s;

    s = legs->coming;

    for (i = 0; i < s->nsteps; i++) {
        legs->due += (uint32_t) kvs_legs_measured(legs, s->steps[i].due);
    }

    kvs_legs_step(legs, s);

    legs->coming = kvs_workload_next(legs->workload, legs->load);

    if (legs->coming->arrival < legs->length) {
        jitter = legs->conf->again
                 ? kvs_rng_uniform(&legs->rng) * KVS_LEGS_JITTER : 0;

        kvs_events_push(&legs->events, legs->coming->arrival + jitter,
                        KVS_LEGS_ARRIVE, NULL, 0);
    }
}


static void
kvs_legs_step(kvs_legs_t *legs, kvs_session_t *s)
{
    uint32_t     i;
    kvs_leg_t   *l;
    kvs_pair_t  *pair;

    pair = kvs_legs_pair(legs);

    pair->session = s;
    pair->step = &s->steps[s->step];
    pair->start = legs->now;
    pair->measured = kvs_legs_measured(legs, pair->step->due);
    legs->measured += pair->measured;

    for (i = 0; i < 2; i++) {
        l = &pair->leg[i];

        l->pair = pair;
        l->req.data = l;
        l->req.hashes = s->chain;
        l->req.prompt_tokens = pair->step->prompt;
        l->req.output_tokens = i ? pair->step->output : 1;
        l->req.nhashes = kvr_min((pair->step->prompt + l->req.output_tokens)
                                 / KVS_UNIT_TOKENS, s->units);

        l->route.chain = s->chain;
        l->route.units = kvr_min(pair->step->prompt / KVS_UNIT_TOKENS,
                                 s->units);
        l->route.bytes = (uint64_t) pair->step->prompt * KVS_TOKEN_BYTES;
    }

    if (kvs_legs_rule(legs, pair) != KVR_DISAGGREGATE_YES) {
        kvs_legs_send(legs, pair, 1);
        return;
    }

    pair->apart = 1;
    pair->leg[0].req.keep = 1;
    pair->leg[1].req.given = 1;

    kvs_legs_reserve(legs, pair);
    kvs_legs_send(legs, pair, 0);
}


static kvs_pair_t *
kvs_legs_pair(kvs_legs_t *legs)
{
    uint32_t     i;
    kvs_pair_t  *pair;

    if (legs->pairs == NULL) {
        pair = kvs_alloc(KVS_LEGS_SLAB * sizeof(kvs_pair_t));

        legs->slabs = kvs_grow(legs->slabs, legs->nslabs, &legs->slabs_size,
                               sizeof(void *));
        legs->slabs[legs->nslabs++] = pair;

        for (i = 0; i < KVS_LEGS_SLAB; i++) {
            pair[i].free = legs->pairs;
            legs->pairs = &pair[i];
        }
    }

    pair = legs->pairs;
    legs->pairs = pair->free;

    memset(pair, 0, sizeof(kvs_pair_t));

    return pair;
}


static void
kvs_legs_send(kvs_legs_t *legs, kvs_pair_t *pair, uint32_t leg)
{
    kvs_leg_t  *l;

    l = &pair->leg[leg];

    if (leg == 0 || !pair->apart) {
        kvs_legs_pick(legs, pair, leg, NULL);
    }

    kve_replica_submit(legs->replica[l->replica], &l->req, legs->now);

    legs->next[l->replica] = kve_replica_next(legs->replica[l->replica]);
}


static void
kvs_legs_done(kvs_legs_t *legs, kvs_leg_t *l)
{
    uint32_t       first, n;
    uint64_t      *entries;
    kvr_tokens_t   tokens;
    kvs_pair_t    *pair;

    pair = l->pair;

    tokens.prompt = l->req.prompt_tokens;
    tokens.cached = l->req.cached_tokens;
    tokens.completion = l->req.output_tokens;

    if (l == &pair->leg[1]) {

        /* the reply is cached, and part of the session's next prompt */

        entries = kvs_route_chain(l->req.hashes, l->req.nhashes, &n);
        first = kvr_min(kvr_chain_entries(l->route.units), n);

        kvr_index_extend(legs->zone.core.index, entries + first, first,
                         n - first, l->req.nhashes - l->route.units,
                         l->replica, 0);
    }

    /* transferred tokens are reported as cached */

    kvs_route_end(&legs->pool[l == &pair->leg[1]], &l->route,
                  l == &pair->leg[1] && pair->apart ? NULL : &tokens,
                  legs->now);

    if (pair->measured && !(l == &pair->leg[1] && pair->apart)) {
        legs->prompt += l->req.prompt_tokens;
        legs->computed += l->req.prompt_tokens - l->req.cached_tokens;
    }

    if (l == &pair->leg[0]) {
        kvs_legs_move(legs, pair);

    } else {
        kvs_legs_end(legs, pair);
    }
}


/* leg 1 has ended: transfers what the decode server lacks */
static void
kvs_legs_move(kvs_legs_t *legs, kvs_pair_t *pair)
{
    uint32_t        held, lacks, to;
    kvs_leg_t      *l;
    kve_replica_t  *r;

    l = &pair->leg[1];

    kvs_legs_pick(legs, pair, 1, &pair->reserved);

    to = l->replica;
    r = legs->replica[to];

    held = kve_replica_match(r, l->req.hashes, l->req.nhashes,
                             l->req.prompt_tokens);
    lacks = l->req.prompt_tokens - held;

    if (pair->measured) {
        legs->transferred += lacks;
    }

    kvs_network_begin(&legs->network, pair->leg[0].replica, to,
                      lacks * legs->conf->kv_bytes, pair,
                      legs->now + KVS_LEGS_HOP);
}


static void
kvs_legs_moved(kvs_legs_t *legs, kvs_pair_t *pair)
{
    uint32_t  i;

    i = pair->leg[0].replica;

    kve_replica_release(legs->replica[i], &pair->leg[0].req, legs->now);
    legs->next[i] = kve_replica_next(legs->replica[i]);

    kvs_legs_send(legs, pair, 1);
}


static void
kvs_legs_end(kvs_legs_t *legs, kvs_pair_t *pair)
{
    double          pause;
    kvs_session_t  *s;

    s = pair->session;

    legs->due -= pair->measured;

    if (++s->step < s->nsteps) {
        pause = s->steps[s->step].pause;
        kvs_events_push(&legs->events, legs->now + pause, KVS_LEGS_STEP, s, 0);

    } else {
        free(s);
    }

    pair->free = legs->pairs;
    legs->pairs = pair;
}
