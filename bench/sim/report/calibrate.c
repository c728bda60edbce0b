/*
 * The knee of a scenario: the highest rate at which at least 0.98 of the due
 * requests are completed, under least_request.  It was found before any policy
 * was tuned, and is in knees.inc.
 */

#include <stdio.h>

#include "bench/sim/report/calibrate.h"
#include "bench/sim/router/router.h"


#define KVS_KNEE_RUNS   14
#define KVS_KNEE_SEEDS  3
#define KVS_KNEE_LONGER 4     /* times as long as in the contest */


typedef struct {
    const kvs_options_t  *options;
    double               *knee;
} kvs_calibration_t;


static const kvs_policy_t *
kvs_policy_least(void)
{
    const kvs_policy_t  *p;

    for (p = kvs_router_policies; strcmp(p->name, "least_request"); p++) {
        /* void */
    }

    return p;
}


static int
kvs_calibrate_holds(const kvs_scenario_t *sc, kvs_workload_t *w, double rate,
    uint32_t requests)
{
    double        completed;
    uint32_t      i;
    kvs_result_t  res;

    completed = 0;

    for (i = 0; i < KVS_KNEE_SEEDS; i++) {
        kvs_run(&sc->fleet, w, kvs_policy_least(), rate,
                KVS_KNEE_LONGER * kvs_scenario_requests(sc, rate, requests),
                1000 + i, &res);
        completed += res.completed / KVS_KNEE_SEEDS;
    }

    return completed >= KVS_KNEE;
}


static void
kvs_calibrate_one(void *data, uint32_t i)
{
    kvs_calibration_t *cal = data;

    double                 lo, hi, mid, work;
    uint32_t               k, requests;
    kve_hw_t               hw;
    kvs_workload_t        *w;
    const kvs_scenario_t  *sc;

    sc = &kvs_scenarios[i];

    if (sc->knee_of || sc->fleet.closed
        || (cal->options->only && !kvs_listed(cal->options->only, sc->name))
        || (w = kvs_workload_create(&sc->shape, cal->options->traces)) == NULL
        || !kve_hw_find(sc->fleet.hardware, &hw))
    {
        return;
    }

    kvs_workload_start(w, 1, (uint32_t) (sc->fleet.kv_tokens
                                         ? sc->fleet.kv_tokens
                                         : hw.kv_tokens) / 2);

    /* upper bound: the rate if there were prefill only */

    work = fmax(w->prompt * hw.linear / 20, w->output * hw.kv * w->prompt);
    hi = sc->fleet.replicas / fmax(work, 1e-4);
    lo = 0;
    requests = cal->options->requests;

    mid = sc->fleet.replicas * 0.5 / (w->prompt * hw.linear
                                      + w->output * (hw.floor + hw.step) / 30);

    for (k = 0; k < KVS_KNEE_RUNS; k++) {

        if (kvs_calibrate_holds(sc, w, mid, requests)) {
            lo = mid;
            mid = hi < 2 * mid ? (lo + hi) / 2 : 1.5 * mid;

        } else {
            hi = mid;
            mid = lo > 0 ? (lo + hi) / 2 : mid / 1.5;
        }

        if (lo > 0 && hi / lo < 1.01) {
            break;
        }
    }

    kvs_workload_destroy(w);

    cal->knee[i] = lo;

    fprintf(stderr, "%-24s %.3f\n", sc->name, lo);
}


void
kvs_calibrate(const kvs_options_t *o)
{
    uint32_t           i, n;
    kvs_calibration_t  cal;

    for (n = 0; kvs_scenarios[n].name; n++) {
        /* void */
    }

    cal.options = o;
    cal.knee = kvs_contest_shared(n * sizeof(double));

    kvs_contest_spread(o->jobs, n, kvs_calibrate_one, &cal);

    for (i = 0; i < n; i++) {
        if (cal.knee[i] > 0) {
            printf("    { \"%s\", %.4g },\n", kvs_scenarios[i].name,
                   cal.knee[i]);
        }
    }
}


double
kvs_cpu(const kvs_options_t *o)
{
    kvs_fleet_t          fleet;
    kvs_shape_t          shape;
    kvs_result_t         res;
    kvs_workload_t      *w;
    const kvs_policy_t  *p;

    memset(&fleet, 0, sizeof(fleet));
    memset(&shape, 0, sizeof(shape));

    fleet.hardware = "llama-8b-bf16-h100";
    fleet.replicas = 8;

    shape.shape = KVS_HOT;
    shape.prefixes = 400;
    shape.zipf = 1;
    shape.prefix_min = 500;
    shape.prefix_max = 3000;
    shape.question.mean = 250;
    shape.question.sigma = 1;
    shape.output.mean = 150;
    shape.output.sigma = 0.8;

    w = kvs_workload_create(&shape, NULL);
    p = kvs_router_policies;

    kvs_run(&fleet, w, p, 150, 1000000, o->seed, &res);

    printf("%s: %u requests of %.0f tokens on average, %.1f s of CPU, "
           "TTFT %.3f s\n", p->name, res.requests, w->prompt, res.cpu,
           res.ttft);

    kvs_workload_destroy(w);

    return res.cpu;
}
