/* The results of a run. */

#include "bench/sim/legs/legs_int.h"


/* gaps between tokens, counted by length in steps of 1 % from 1 ms */
#define KVS_LEGS_GAP_LEAST  0.001
#define KVS_LEGS_GAP_STEP   1.01

#define KVS_LEGS_TOKENS     65536


static uint32_t
kvs_legs_gap(double s)
{
    double  i;

    i = log(kvr_max(s, KVS_LEGS_GAP_LEAST) / KVS_LEGS_GAP_LEAST)
        / log(KVS_LEGS_GAP_STEP);

    return (uint32_t) kvr_min(i, KVS_LEGS_GAPS - 1);
}


void
kvs_legs_first(kvs_legs_t *legs, kvs_pair_t *pair)
{
    pair->first = legs->now;

    if (pair->measured) {
        kvs_sample_add(&legs->ttft, legs->now - pair->start);
    }
}


/* all tokens are generated; the engine still knows the times */
void
kvs_legs_tokens(kvs_legs_t *legs, kvs_pair_t *pair)
{
    double      gap;
    uint32_t    i, n, late;
    kve_req_t  *req;

    static double  time[KVS_LEGS_TOKENS];

    if (!pair->measured) {
        return;
    }

    req = &pair->leg[1].req;
    n = kvr_min(req->output_tokens, KVS_LEGS_TOKENS);
    late = 0;

    kve_req_times(legs->replica[pair->leg[1].replica], req, 1, n, time);

    for (i = 1; i < n; i++) {
        gap = kvr_max(time[i] - time[i - 1], 0);
        late += gap > KVS_LEGS_ITL;

        legs->gap[kvs_legs_gap(gap)]++;
        legs->gaps_sum += gap;
        legs->gaps++;
    }

    if (n > 1) {
        kvs_sample_add(&legs->tpt, (req->done_time - req->first_time)
                                   / (req->output_tokens - 1));
    }

    legs->done++;
    legs->apart += pair->apart;

    /* P99: one in a hundred can be late */

    legs->good += req->first_time - pair->start <= KVS_LEGS_TTFT
                  && late * 100 <= n - 1;
}


static double
kvs_legs_gap_quantile(const kvs_legs_t *legs, double q)
{
    uint32_t  i;
    uint64_t  n;

    n = 0;

    for (i = 0; i < KVS_LEGS_GAPS; i++) {
        n += legs->gap[i];

        if ((double) n >= q * (double) legs->gaps) {
            break;
        }
    }

    return KVS_LEGS_GAP_LEAST * pow(KVS_LEGS_GAP_STEP, i + 0.5);
}


void
kvs_legs_result(kvs_legs_t *legs, kvs_legs_result_t *res)
{
    memset(res, 0, sizeof(kvs_legs_result_t));

    kvs_sample_sort(&legs->ttft);
    kvs_sample_sort(&legs->tpt);

    res->measured = legs->measured;
    res->done = legs->done;
    res->rate = legs->load->rate;
    res->transfer = legs->transfer;

    res->ttft = kvs_sample_mean(&legs->ttft);
    res->ttft_p50 = kvs_sample_quantile(&legs->ttft, 0.5);
    res->ttft_p95 = kvs_sample_quantile(&legs->ttft, 0.95);
    res->tpt = kvs_sample_mean(&legs->tpt);
    res->tpt_p99 = kvs_sample_quantile(&legs->tpt, 0.99);
    res->itl = legs->gaps_sum / (double) legs->gaps;
    res->itl_p99 = kvs_legs_gap_quantile(legs, 0.99);

    /* requests that were given up are late */

    res->goodput = (double) legs->good / legs->measured;
    res->apart = (double) legs->apart / legs->done;
    res->computed = (double) legs->computed / (double) legs->prompt;
    res->transferred = (double) legs->transferred / (double) legs->prompt;
}
