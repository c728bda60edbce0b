#include <time.h>

#include "bench/sim/engine/sim_caches.h"
#include "bench/sim/engine/sim_queue.h"
#include "bench/sim/engine/workload.h"


#define KVS_PATIENCE   40       /* lengths of a run until it is given up */
#define KVS_SETTLED    60       /* s until each replica should have its share */


static void kvs_sim_loop(kvs_sim_t *sim, kvs_result_t *res);
static void kvs_sim_event(kvs_sim_t *sim, kvs_event_t *ev);
static void kvs_sim_events(kvs_sim_t *sim, size_t n,
    const kve_event_t *events);
static void kvs_sim_start(kvs_sim_t *sim);
static void kvs_sim_arrive(kvs_sim_t *sim);
static void kvs_sim_step(kvs_sim_t *sim, kvs_session_t *s);
static void kvs_sim_send(kvs_sim_t *sim, kvs_request_t *rq);
static void kvs_sim_again(kvs_sim_t *sim, uint32_t replica);
static void kvs_sim_done(kvs_sim_t *sim, kvs_request_t *rq);
static void kvs_sim_lost(kvs_sim_t *sim, kvs_request_t *rq);
static void kvs_sim_abort(kvs_sim_t *sim, kvs_request_t *rq);
static void kvs_sim_end(kvs_sim_t *sim, kvs_request_t *rq);
static void kvs_sim_foreign(kvs_sim_t *sim);
static void kvs_sim_restart(kvs_sim_t *sim);


int
kvs_run(const kvs_fleet_t *fleet, kvs_workload_t *workload,
    const kvs_policy_t *policy, double rate, uint32_t requests, uint64_t seed,
    kvs_result_t *res)
{
    uint32_t          i;
    kvs_sim_t        *sim;
    struct timespec   t0, t1;

    memset(res, 0, sizeof(kvs_result_t));

    sim = kvs_alloc(sizeof(kvs_sim_t));

    if (!kve_hw_find(fleet->hardware, &sim->hw)) {
        free(sim);
        return KVR_ERROR;
    }

    sim->fleet = *fleet;
    sim->n = fleet->replicas;
    sim->rate = rate;
    sim->length = rate > 0 ? requests / rate : requests;
    sim->window = fleet->finite ? 0 : sim->length / 4;
    sim->seed = seed;
    sim->workload = workload;
    sim->policy = policy;

    sim->settled = fleet->add_at * sim->length + KVS_SETTLED;

    kvs_rng_seed(&sim->rng, seed, 0x706f6c6963790a11ULL);
    kvs_rng_seed(&sim->chance, seed, 0x6368616e63650b22ULL);

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);

    kvs_sim_create(sim);
    kvs_sim_start(sim);
    kvs_sim_loop(sim, res);
    kvs_sim_result(sim, res);

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);

    res->cpu = (double) (t1.tv_sec - t0.tv_sec)
               + (double) (t1.tv_nsec - t0.tv_nsec) / 1e9;

    for (i = 0; i < sim->nstates; i++) {
        policy->destroy(sim->state[i]);
    }

    for (i = 0; i < sim->n; i++) {
        kve_replica_destroy(sim->replica[i]);
    }

    kve_blocks_destroy(sim->store);
    kvs_caches_free(sim);
    kvs_sim_free(sim);

    return KVR_OK;
}


/* the first arrivals */
static void
kvs_sim_start(kvs_sim_t *sim)
{
    uint32_t  i;

    if (sim->fleet.closed) {
        for (i = 0; i < sim->fleet.closed; i++) {
            kvs_sim_arrive(sim);
        }

    } else {
        sim->coming = kvs_workload_next(sim->workload, sim);
        kvs_events_push(&sim->events, sim->coming->arrival, KVS_EV_ARRIVE, NULL,
                        0);
    }
}


static void
kvs_sim_loop(kvs_sim_t *sim, kvs_result_t *res)
{
    double       t;
    uint32_t     i, k;
    kvs_event_t  ev;

    for ( ;; ) {

        k = 0;

        for (i = 1; i < sim->n; i++) {
            if (sim->next[i] < sim->next[k]) {
                k = i;
            }
        }

        t = kvs_events_next(&sim->events);

        if (sim->next[k] <= t) {

            if (sim->next[k] == INFINITY) {
                break;
            }

            if (sim->next[k] > sim->now) {
                sim->now = sim->next[k];
            }

            kvs_sim_settle(sim, k);
            continue;
        }

        ev = kvs_events_pop(&sim->events);
        sim->now = ev.t;

        kvs_sim_event(sim, &ev);

        if (sim->now > sim->length && sim->due == 0
            && !(sim->fleet.finite && sim->nsessions))
        {
            break;
        }

        if (sim->now > KVS_PATIENCE * sim->length) {
            res->capped = 1;
            break;
        }
    }
}


static void
kvs_sim_event(kvs_sim_t *sim, kvs_event_t *ev)
{
    kvs_request_t  *rq;

    rq = ev->data;

    switch (ev->type) {

    case KVS_EV_ARRIVE:
        kvs_sim_arrive(sim);
        return;

    case KVS_EV_STEP:
        kvs_sim_step(sim, ev->data);
        return;

    case KVS_EV_FOREIGN:
        kvs_sim_foreign(sim);
        return;

    case KVS_EV_RESTART:
        kvs_sim_restart(sim);
        return;

    case KVS_EV_RECOVER:
        kvr_set_add(&sim->up, 1);
        return;

    case KVS_EV_ADD:
        kvr_set_add(&sim->up, sim->n - 1);
        return;

    case KVS_EV_ABORT:
        if (ev->gen == (uint32_t) rq->id) {
            kvs_sim_abort(sim, rq);
        }

        return;
    }

    /* an event of an attempt that can be over */

    if (ev->gen != rq->gen) {
        return;
    }

    switch (ev->type) {

    case KVS_EV_PARKED:
        if (rq->parked < KVS_REPLICAS) {
            kvs_sim_again(sim, rq->parked);
        }

        return;

    case KVS_EV_HEADERS:
        sim->policy->headers(sim->state[rq->router], rq, sim->now);
        return;

    case KVS_EV_FIRST:
        rq->started = 1;

        if (rq->first == 0) {
            rq->first = sim->now;
        }

        if (sim->policy->first) {
            sim->policy->first(sim->state[rq->router], rq, sim->now);
        }

        kvs_sim_again(sim, rq->replica);
        return;

    case KVS_EV_DONE:
        kvs_sim_done(sim, rq);
        return;

    case KVS_EV_LOST:
        kvs_sim_lost(sim, rq);
        return;
    }
}


void
kvs_sim_settle(kvs_sim_t *sim, uint32_t i)
{
    size_t              n;
    const kve_event_t  *events;

    n = kve_replica_advance(sim->replica[i], sim->now, &events);

    kvs_sim_events(sim, n, events);

    sim->next[i] = kve_replica_next(sim->replica[i]);
}


void
kvs_sim_match(kvs_sim_t *sim, const kvs_request_t *rq, kvr_set_t set,
    uint32_t *matched)
{
    uint32_t   i;
    kvr_set_t  m;

    for (m = set; kvr_set_next(&m, &i); /* void */ ) {
        kvs_sim_settle(sim, i);
    }

    kvs_caches_match(sim, rq, set, matched);
}


static void
kvs_sim_events(kvs_sim_t *sim, size_t n, const kve_event_t *events)
{
    double              t;
    kvs_request_t      *rq;
    const kve_event_t  *ev;

    for (ev = events; ev < events + n; ev++) {

        rq = ev->req->data;
        t = ev->time > sim->now ? ev->time : sim->now;

        if (rq->session == NULL) {

            if (ev->type == KVE_DONE || ev->type == KVE_ABORTED) {
                kvs_sim_release(sim, rq);
            }

            continue;
        }

        switch (ev->type) {

        case KVE_ADMITTED:
            rq->admitted = 1;

            if (sim->policy->admitted) {
                sim->policy->admitted(sim->state[rq->router], rq, sim->now);
            }

            break;

        case KVE_FIRST:
            kvs_events_push(&sim->events, t, KVS_EV_FIRST, rq, rq->gen);
            break;

        case KVE_DONE:
            kvs_events_push(&sim->events, t, KVS_EV_DONE, rq, rq->gen);
            break;

        case KVE_ABORTED:
            kvs_events_push(&sim->events, sim->now, KVS_EV_LOST, rq, rq->gen);
            break;

        case KVE_PREEMPTED:
            break;
        }
    }
}


/* returns whether a step that is due at t is measured */
static int
kvs_sim_measured(const kvs_sim_t *sim, double t)
{
    return t >= sim->window && t < sim->length;
}


static void
kvs_sim_arrive(kvs_sim_t *sim)
{
    uint32_t        i;
    kvs_session_t  *s;

    if (sim->fleet.closed) {
        s = kvs_workload_next(sim->workload, sim);
        sim->nsessions++;

        /* they arrive one after another within a second */

        s->arrival = sim->arrived < sim->fleet.closed && !sim->fleet.at_once
                     ? (double) sim->arrived / sim->fleet.closed : sim->now;
        sim->arrived++;

        kvs_events_push(&sim->events, s->arrival, KVS_EV_STEP, s, 0);
        return;
    }

    s = sim->coming;
    sim->coming = NULL;
    sim->arrived++;

    for (i = 0; i < s->nsteps; i++) {
        if (kvs_sim_measured(sim, s->steps[i].due)) {
            sim->due++;
            sim->due_total++;
        }
    }

    kvs_sim_step(sim, s);

    sim->coming = kvs_workload_next(sim->workload, sim);

    if (sim->coming->arrival < sim->length) {
        kvs_events_push(&sim->events, sim->coming->arrival, KVS_EV_ARRIVE, NULL,
                        0);
    }
}


static void
kvs_sim_step(kvs_sim_t *sim, kvs_session_t *s)
{
    kvs_step_t     *step;
    kvs_request_t  *rq;

    step = &s->steps[s->step];

    rq = kvs_sim_request(sim);

    rq->session = s;
    s->live++;

    rq->tokens = step->prompt;
    rq->bytes = (uint64_t) step->prompt * KVS_TOKEN_BYTES;
    rq->units = kvr_min(step->prompt / KVS_UNIT_TOKENS, s->units);
    rq->chain = s->chain;
    rq->key_session = s->key_session;
    rq->key_text = s->key_text;
    rq->urgent = kvs_urgent(s);
    rq->start = sim->now;

    rq->req.hashes = s->chain;
    rq->req.nhashes = kvr_min((step->prompt + step->output)
                              / KVS_UNIT_TOKENS, s->units);
    rq->req.prompt_tokens = step->prompt;
    rq->req.output_tokens = step->output;

    if (sim->fleet.closed) {
        rq->measured = kvs_sim_measured(sim, sim->now) || sim->fleet.finite;
        sim->due += rq->measured;
        sim->due_total += rq->measured;

    } else {
        rq->measured = kvs_sim_measured(sim, step->due);
    }

    sim->requests++;

    if (sim->fleet.aborts > 0
        && kvs_rng_uniform(&sim->chance) < sim->fleet.aborts)
    {
        /* a time within its duration on an idle replica, or later */

        kvs_events_push(&sim->events, sim->now
                          + 2 * kvs_rng_uniform(&sim->chance)
                            * kvs_session_nominal(&sim->hw, step->prompt,
                                                  step->output),
                     KVS_EV_ABORT, rq, (uint32_t) rq->id);
    }

    kvs_sim_send(sim, rq);
}


static void
kvs_sim_send(kvs_sim_t *sim, kvs_request_t *rq)
{
    uint32_t  i;

    rq->router = sim->nstates > 1
                 ? kvs_rng_below(&sim->chance, sim->nstates) : 0;
    rq->attempts++;
    rq->submitted = 1;
    rq->admitted = 0;
    rq->started = 0;
    rq->pending = 0;
    rq->matched = 0;
    rq->inserted = 0;

    rq->parked = KVS_REPLICAS;
    rq->req.source = NULL;

    i = sim->policy->pick(sim->state[rq->router], rq, sim->now);

    if (i == KVS_REPLICAS) {
        sim->parked[sim->nparked++] = rq;
        kvs_events_push(&sim->events, rq->until, KVS_EV_PARKED, rq, rq->gen);
        return;
    }

    rq->replica = i;
    sim->picked[i]++;
    sim->late[i] += (sim->now >= sim->settled && sim->now < sim->length);

    kve_replica_submit(sim->replica[i], &rq->req, sim->now);

    sim->next[i] = kve_replica_next(sim->replica[i]);

    if (sim->policy->headers) {
        kvs_events_push(&sim->events, sim->now + sim->hw.api, KVS_EV_HEADERS,
                        rq, rq->gen);
    }
}


/*
 * picks again for the requests that wait for a replica's first token, in order
 */
static void
kvs_sim_again(kvs_sim_t *sim, uint32_t replica)
{
    uint32_t        i, k, n;
    kvs_request_t  *rq;

    for (i = 0, k = 0, n = sim->nparked; i < n; i++) {
        rq = sim->parked[i];

        if (rq->parked != replica) {
            sim->parked[k++] = rq;
            continue;
        }

        /* it can be parked again, behind those that are still to be picked */

        sim->nparked = i;
        rq->attempts--;
        kvs_sim_send(sim, rq);

        if (sim->nparked > i) {
            sim->parked[k++] = rq;
        }
    }

    sim->nparked = k;
}


static void
kvs_sim_done(kvs_sim_t *sim, kvs_request_t *rq)
{
    uint32_t        had;
    kvs_session_t  *s;

    if (sim->policy->done) {
        sim->policy->done(sim->state[rq->router], rq, sim->now, 1);
    }

    if (sim->now >= sim->window && sim->now < sim->length) {
        sim->done++;
        sim->done_tokens += rq->req.output_tokens;
    }

    if (rq->measured) {
        sim->due--;
        sim->prompt += rq->tokens;
        sim->cached += rq->req.cached_tokens;
        sim->loaded += rq->req.loaded[KVE_HOST] + rq->req.loaded[KVE_DISK];
        sim->fetched += rq->req.loaded[KVE_PEER];
        sim->matched += (uint64_t) rq->matched;
        sim->common += sim->workload->shape.prefix_min
                       - kvr_min(rq->req.cached_tokens,
                                 sim->workload->shape.prefix_min);
        sim->load[rq->replica]++;

        /* only the session's own earlier prompts count */

        s = rq->session;
        had = s->step ? s->steps[s->step - 1].prompt / KVS_UNIT_TOKENS
                        * KVS_UNIT_TOKENS : 0;
        sim->had += had;
        sim->found += kvr_min(had, rq->req.cached_tokens);

        kvs_sim_sample(sim, rq, rq->first - rq->start, sim->now - rq->start);
    }

    kvs_sim_end(sim, rq);
}


/* the replica is gone, or too small: picks another one */
static void
kvs_sim_lost(kvs_sim_t *sim, kvs_request_t *rq)
{
    if (sim->policy->done) {
        sim->policy->done(sim->state[rq->router], rq, sim->now, 0);
    }

    kvs_sim_again(sim, rq->replica);

    rq->gen++;
    rq->submitted = 0;

    if (rq->attempts < 3) {
        kvs_sim_send(sim, rq);
        return;
    }

    if (rq->measured) {
        sim->due--;
        sim->failed++;
    }

    kvs_sim_end(sim, rq);
}


static void
kvs_sim_abort(kvs_sim_t *sim, kvs_request_t *rq)
{
    uint32_t  i;

    /* 0: the replica has finished it, but the client does not know yet */

    if (rq->req.state == 0) {
        return;
    }

    i = rq->replica;

    kve_replica_abort(sim->replica[i], &rq->req, sim->now);
    sim->next[i] = kve_replica_next(sim->replica[i]);

    if (sim->policy->done) {
        sim->policy->done(sim->state[rq->router], rq, sim->now, 0);
    }

    if (rq->measured) {
        sim->due--;
        sim->aborted++;
    }

    kvs_sim_end(sim, rq);
}


/* a request has ended; its session continues */
static void
kvs_sim_end(kvs_sim_t *sim, kvs_request_t *rq)
{
    kvs_session_t  *s;

    s = rq->session;

    kvs_sim_release(sim, rq);

    s->live--;

    if (++s->step < s->nsteps) {
        kvs_events_push(&sim->events, sim->now + s->steps[s->step].pause,
                        KVS_EV_STEP, s,
                     0);
        return;
    }

    free(s);

    if (!sim->fleet.closed) {
        return;
    }

    sim->nsessions--;

    if (sim->fleet.finite ? sim->arrived < sim->fleet.finite
                          : sim->now < sim->length)
    {
        kvs_sim_arrive(sim);
    }
}


/* a request that no router knows, to one of the first quarter */
static void
kvs_sim_foreign(kvs_sim_t *sim)
{
    double          mean, prompt, output;
    uint32_t        i;
    kvs_request_t  *rq;

    prompt = sim->workload->prompt;
    output = sim->workload->output;

    rq = kvs_sim_request(sim);

    rq->req.prompt_tokens = 1 + (uint32_t)
                            fmin(kvs_rng_exp(&sim->chance, prompt),
                                 sim->blocks * KVS_UNIT_TOKENS / 4);
    rq->req.output_tokens = 1 + (uint32_t)
                            fmin(kvs_rng_exp(&sim->chance, output), 4 * output);

    i = kvs_rng_below(&sim->chance, (sim->n + 3) / 4);

    if (kvr_set_test(&sim->up, i)) {
        kve_replica_submit(sim->replica[i], &rq->req, sim->now);
        sim->next[i] = kve_replica_next(sim->replica[i]);

    } else {
        kvs_sim_release(sim, rq);
    }

    mean = 1 / (sim->rate * sim->fleet.foreign);

    if (sim->now < sim->length) {
        kvs_events_push(&sim->events, sim->now
                        + kvs_rng_exp(&sim->chance, mean),
                     KVS_EV_FOREIGN, NULL, 0);
    }
}


static void
kvs_sim_restart(kvs_sim_t *sim)
{
    size_t              n;
    const kve_event_t  *events;

    kvr_set_del(&sim->up, 1);

    kvs_sim_settle(sim, 1);
    n = kve_replica_restart(sim->replica[1], sim->now, &events);
    kvs_sim_events(sim, n, events);
    kvs_caches_restarted(sim, 1);
    sim->next[1] = kve_replica_next(sim->replica[1]);

    if (sim->policy->restarted) {
        for (n = 0; n < sim->nstates; n++) {
            sim->policy->restarted(sim->state[n], 1, sim->now);
        }
    }

    kvs_events_push(&sim->events, sim->now + sim->fleet.restart_for,
                    KVS_EV_RECOVER, NULL, 0);
}
