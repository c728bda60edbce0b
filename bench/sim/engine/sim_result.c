/*
 * The results of a run.
 */

#include "bench/sim/engine/sim_queue.h"
#include "bench/sim/engine/workload.h"


void
kvs_sim_sample(kvs_sim_t *sim, const kvs_request_t *rq, double ttft,
    double e2e)
{
    if (rq->req.output_tokens > 1) {
        kvs_sample_add(&sim->tpt,
                       (e2e - ttft) / (rq->req.output_tokens - 1));
    }

    if (rq->urgent) {
        kvs_sample_add(&sim->urgent, ttft);
    }

    kvs_sample_add(&sim->ttft, ttft);
    kvs_sample_add(&sim->e2e, e2e);
}


/* loads of the busiest and the least busy replica, after all could settle */
static void
kvs_sim_shares(kvs_sim_t *sim, kvs_result_t *res)
{
    uint32_t  i;
    uint64_t  sum, most, least;

    sum = 0;
    most = 0;
    least = UINT64_MAX;

    for (i = 0; i < sim->n; i++) {
        sum += sim->late[i];
        most = kvr_max(most, sim->late[i]);
        least = kvr_min(least, sim->late[i]);
    }

    res->most = sum ? (double) most * sim->n / sum : NAN;
    res->least = sum ? (double) least * sim->n / sum : NAN;
}


void
kvs_sim_result(kvs_sim_t *sim, kvs_result_t *res)
{
    double       span;
    uint32_t     i, n;
    uint64_t     sum, most;
    kve_stats_t  st;

    res->measured = (uint32_t) sim->ttft.n;
    res->failed = sim->failed + (res->capped ? sim->due : 0);
    res->aborted = sim->aborted;
    res->requests = sim->requests;
    res->makespan = sim->now;

    kvs_sample_sort(&sim->ttft);
    kvs_sample_sort(&sim->e2e);
    kvs_sample_sort(&sim->tpt);
    kvs_sample_sort(&sim->urgent);

    res->ttft = kvs_sample_mean(&sim->ttft);
    res->ttft_p50 = kvs_sample_quantile(&sim->ttft, 0.5);
    res->ttft_p90 = kvs_sample_quantile(&sim->ttft, 0.90);
    res->ttft_p95 = kvs_sample_quantile(&sim->ttft, 0.95);
    res->ttft_p99 = kvs_sample_quantile(&sim->ttft, 0.99);
    res->e2e = kvs_sample_mean(&sim->e2e);
    res->e2e_p50 = kvs_sample_quantile(&sim->e2e, 0.5);
    res->e2e_p90 = kvs_sample_quantile(&sim->e2e, 0.9);
    res->e2e_p95 = kvs_sample_quantile(&sim->e2e, 0.95);
    res->urgent = kvs_sample_mean(&sim->urgent);
    res->urgent_p99 = kvs_sample_quantile(&sim->urgent, 0.99);
    res->tpt = kvs_sample_mean(&sim->tpt);
    res->tpt_p99 = kvs_sample_quantile(&sim->tpt, 0.99);

    span = sim->length - sim->window;

    res->throughput = (double) sim->done / span;
    res->tokens = (double) sim->done_tokens / span;
    res->completed = sim->due_total ? (double) sim->done / sim->due_total : 1;
    res->cached = sim->prompt ? (double) sim->cached / sim->prompt : 0;
    res->loaded = sim->prompt ? (double) sim->loaded / sim->prompt : 0;
    res->fetched = sim->prompt ? (double) sim->fetched / sim->prompt : 0;
    res->flushed = sim->flushed;

    if (sim->workload->shape.shape == KVS_BURST && res->measured) {
        res->prefills = (double) sim->common / sim->workload->shape.prefix_min
                        / res->measured * sim->workload->shape.parts;
    }
    res->ideal = sim->had ? (double) sim->found / sim->had : 1;
    res->predicted = sim->prompt ? (double) sim->matched / sim->prompt : 0;

    sum = 0;
    most = 0;
    n = 0;

    for (i = 0; i < sim->n; i++) {
        sum += sim->load[i];
        most = kvr_max(most, sim->load[i]);
        n++;

        kve_replica_stats(sim->replica[i], &st);
        res->busy += st.busy / sim->n / sim->now;
    }

    res->imbalance = sum ? (double) most * n / sum : 1;

    kvs_sim_shares(sim, res);
}
