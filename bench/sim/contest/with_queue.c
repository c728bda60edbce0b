/*
 * The contest's sessions as requests of bench/queue's model, with waiting and
 * admission by core/kvr_queue.  One session in five is urgent, the others are
 * batch.  Requests wait as long as needed, and none is rejected.
 */

#include "bench/queue/fleet.h"

#include "bench/sim/contest/with_queue.h"


#define KVS_QUEUE_URGENT   0       /* streams */
#define KVS_QUEUE_BATCH    1


typedef struct {
    kvs_sim_t         sim;         /* as the workload needs it */
    kvs_workload_t   *workload;
    uint32_t          due, done;
    kvs_sample_t      e2e;
} kvs_queue_t;


static void
kvs_queue_step(kvs_queue_t *wq, kvq_t *q, kvs_session_t *s, double t)
{
    kvq_ask_t    ask;
    kvs_step_t  *step;

    step = &s->steps[s->step];

    memset(&ask, 0, sizeof(ask));

    ask.t = t;
    ask.stream = kvs_urgent(s) ? KVS_QUEUE_URGENT : KVS_QUEUE_BATCH;
    ask.prompt = step->prompt;
    ask.output = step->output;
    ask.chain = s->chain;
    ask.units = s->units;
    ask.data = s;
    ask.measured = step->due >= wq->sim.window && step->due < wq->sim.length;

    kvq_submit(q, &ask);
}


/* arrivals do not depend on the results: submit all of them now */
static void
kvs_queue_first(void *data, kvq_t *q)
{
    kvs_queue_t *wq = data;

    kvs_session_t  *s;

    for ( ;; ) {
        s = kvs_workload_next(wq->workload, &wq->sim);

        if (s->arrival >= wq->sim.length) {
            free(s);
            return;
        }

        kvs_queue_step(wq, q, s, s->arrival);
    }
}


static void
kvs_queue_next(void *data, kvq_t *q, const kvq_ask_t *ask, double ttft,
    double e2e)
{
    kvs_queue_t *wq = data;

    double          now;
    kvs_session_t  *s;

    s = ask->data;
    now = kvq_now(q);

    wq->done += (now >= wq->sim.window && now < wq->sim.length);
    wq->due += ask->measured;

    if (ask->measured && ttft < INFINITY) {

        kvs_sample_add(&wq->e2e, e2e);
    }

    if (++s->step < s->nsteps) {
        kvs_queue_step(wq, q, s, now + s->steps[s->step].pause);
        return;
    }

    free(s);
}


int
kvs_with_queue_takes(const kvs_scenario_t *sc)
{
    const kvs_fleet_t  *f = &sc->fleet;

    return !f->closed && !f->foreign && !f->restart_at && !f->add_at
           && !f->aborts && !f->routers && !f->small;
}


int
kvs_with_queue_run(const kvs_fleet_t *fleet, kvs_workload_t *workload,
    double rate, uint32_t requests, uint64_t seed, kvs_result_t *res)
{
    kvq_conf_t     c;
    kvs_queue_t    wq;
    kvq_result_t   r;

    memset(res, 0, sizeof(kvs_result_t));
    memset(&c, 0, sizeof(c));
    memset(&wq, 0, sizeof(wq));

    if (!kve_hw_find(fleet->hardware, &wq.sim.hw)) {
        return KVR_ERROR;
    }

    wq.sim.rate = rate;
    wq.sim.length = requests / rate;
    wq.sim.window = wq.sim.length / 4;
    wq.workload = workload;

    c.hardware = fleet->hardware;
    c.kv_tokens = fleet->kv_tokens ? fleet->kv_tokens : wq.sim.hw.kv_tokens;
    c.slow = fleet->slow;
    c.replicas = fleet->replicas;
    c.workers = 2;
    c.length = wq.sim.length;
    c.window = wq.sim.window;
    c.seed = seed;
    c.queue = 1;
    c.target = 1000;
    c.max = UINT32_MAX;
    c.timeout = UINT32_MAX;

    c.stream[KVS_QUEUE_URGENT].class = 2;
    c.stream[KVS_QUEUE_URGENT].weight = 1;
    c.stream[KVS_QUEUE_BATCH].class = 6;
    c.stream[KVS_QUEUE_BATCH].weight = 1;

    c.first = kvs_queue_first;
    c.next = kvs_queue_next;
    c.data = &wq;

    kvs_workload_start(workload, seed,
                       (uint32_t) (c.kv_tokens / KVS_UNIT_TOKENS
                                   * KVS_UNIT_TOKENS / 2));

    kvq_run(&c, &r);

    res->measured = (uint32_t) wq.e2e.n;
    res->requests = wq.due;
    res->failed = wq.due - (uint32_t) wq.e2e.n;
    res->ttft = r.ttft;
    res->ttft_p50 = r.p50;
    res->ttft_p95 = r.p95;
    res->ttft_p99 = r.p99;
    res->urgent = r.stream[KVS_QUEUE_URGENT].ttft;
    res->urgent_p99 = r.stream[KVS_QUEUE_URGENT].p99;
    res->e2e = kvs_sample_mean(&wq.e2e);
    res->e2e_p95 = NAN;
    res->tpt = NAN;
    res->tpt_p99 = NAN;
    res->most = NAN;
    res->least = NAN;
    res->imbalance = NAN;
    res->cached = r.cached;
    res->throughput = wq.done / (wq.sim.length - wq.sim.window);

    free(wq.e2e.v);
    kvq_free(&r);

    return KVR_OK;
}
