/*
 * What is measured of a run.
 */

#include "sim_queue.h"


void
kvs_sim_sample(kvs_sim_t *sim, const kvs_request_t *rq, double ttft,
    double e2e)
{
    if (sim->nsamples == sim->samples_size) {
        sim->samples_size = sim->samples_size ? sim->samples_size * 2 : 4096;

        sim->ttft = realloc(sim->ttft, sim->samples_size * sizeof(double));
        sim->e2e = realloc(sim->e2e, sim->samples_size * sizeof(double));

        sim->tpt = realloc(sim->tpt, sim->samples_size * sizeof(double));

        sim->urgent = realloc(sim->urgent,
                              sim->samples_size * sizeof(double));

        if (sim->ttft == NULL || sim->e2e == NULL || sim->tpt == NULL
            || sim->urgent == NULL)
        {
            abort();
        }
    }

    if (rq->req.output_tokens > 1) {
        sim->tpt[sim->ntpt++] = (e2e - ttft) / (rq->req.output_tokens - 1);
    }

    if (rq->urgent) {
        sim->urgent[sim->nurgent++] = ttft;
    }

    sim->ttft[sim->nsamples] = ttft;
    sim->e2e[sim->nsamples++] = e2e;
}


static int
kvs_sim_compare(const void *a, const void *b)
{
    double  x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}


static double
kvs_sim_quantile(const double *v, size_t n, double q)
{
    return n ? v[(size_t) (q * (double) (n - 1) + 0.5)] : NAN;
}


static double
kvs_sim_mean(const double *v, size_t n)
{
    size_t  i;
    double  sum;

    sum = 0;

    for (i = 0; i < n; i++) {
        sum += v[i];
    }

    return n ? sum / (double) n : NAN;
}


/* of the busiest and the least busy replica, once all could have settled */
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

    res->measured = (uint32_t) sim->nsamples;
    res->failed = sim->failed + (res->capped ? sim->due : 0);
    res->aborted = sim->aborted;
    res->requests = sim->requests;
    res->makespan = sim->now;

    qsort(sim->ttft, sim->nsamples, sizeof(double), kvs_sim_compare);
    qsort(sim->e2e, sim->nsamples, sizeof(double), kvs_sim_compare);
    qsort(sim->tpt, sim->ntpt, sizeof(double), kvs_sim_compare);
    qsort(sim->urgent, sim->nurgent, sizeof(double), kvs_sim_compare);

    res->ttft = kvs_sim_mean(sim->ttft, sim->nsamples);
    res->ttft_p50 = kvs_sim_quantile(sim->ttft, sim->nsamples, 0.5);
    res->ttft_p95 = kvs_sim_quantile(sim->ttft, sim->nsamples, 0.95);
    res->ttft_p99 = kvs_sim_quantile(sim->ttft, sim->nsamples, 0.99);
    res->e2e = kvs_sim_mean(sim->e2e, sim->nsamples);
    res->e2e_p50 = kvs_sim_quantile(sim->e2e, sim->nsamples, 0.5);
    res->e2e_p90 = kvs_sim_quantile(sim->e2e, sim->nsamples, 0.9);
    res->e2e_p95 = kvs_sim_quantile(sim->e2e, sim->nsamples, 0.95);
    res->urgent = kvs_sim_mean(sim->urgent, sim->nurgent);
    res->urgent_p99 = kvs_sim_quantile(sim->urgent, sim->nurgent, 0.99);
    res->tpt = kvs_sim_mean(sim->tpt, sim->ntpt);
    res->tpt_p99 = kvs_sim_quantile(sim->tpt, sim->ntpt, 0.99);

    span = sim->length - sim->window;

    res->throughput = (double) sim->done / span;
    res->tokens = (double) sim->done_tokens / span;
    res->completed = sim->due_total ? (double) sim->done / sim->due_total : 1;
    res->cached = sim->prompt ? (double) sim->cached / sim->prompt : 0;
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
