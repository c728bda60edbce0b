/*
 * What an engine really has cached: "make bench-tiers".
 *
 * Engines have host memory, disk or a store below the GPU's memory, or they
 * are hybrid models, which resume only at some places.  The oracle is the
 * shipped score with the engines' true state and the true price of each load.
 * The router "told" gets the size of each tier.  "learned" gets vLLM's metrics
 * (the GPU's part) and the cached tokens in replies, "usage" the cached tokens
 * only.
 *
 * Rates are such that the oracle's engines are busy and do not fall behind.
 * Runs are long, because caches fill slowly.  A router with a wrong idea of the
 * caches also makes more and more copies: "told" had a ratio of 1.0 to the
 * oracle after 3,000 requests and of 1.15 after 12,000.
 */

#include <stdio.h>

#include <cjson/cJSON.h>

#include "bench/sim/contest/tiers.h"
#include "bench/sim/report/report_json.h"
#include "bench/sim/router/rivals_run.h"
#include "bench/sim/router/router.h"


#define KVS_24B   "devstral-24b-fp8-h100"
#define KVS_L40S  "llama-8b-bf16-l40s"

/* a document of 4,000 tokens that is used again, a question, an answer */

#define KVS_DOCUMENTS(n)                                                      \
    { .shape = KVS_HOT, .prefixes = n,                                        \
      .prefix_min = 3000, .prefix_max = 5000,                                 \
      .question = { 200, 0.5 }, .output = { 100, 0.5 } }

/* each request begins with one of eight prompts */

#define KVS_PROMPTS                                                           \
    { .shape = KVS_HOT, .prefixes = 8,                                        \
      .prefix_min = 4000, .prefix_max = 4000,                                 \
      .question = { 800, 0.5 }, .output = { 200, 0.5 } }

#define KVS_AGENT                                                             \
    { .shape = KVS_AGENTS, .prefixes = 4,                                     \
      .prefix_min = 1000, .prefix_max = 3000, .task = { 3000, 0.5 },          \
      .question = { 400, 0.8 }, .output = { 150, 0.6 },                       \
      .steps = { 12, 0.3 }, .pause = { 20, 0.6 } }

/* a prefix shared by 16 kinds of requests, and 700 tokens of their own */

#define KVS_BRANCH(n)                                                         \
    { .shape = KVS_HOT, .prefixes = 16, .prefix_min = n, .prefix_max = n,     \
      .question = { 700, 0 }, .output = { 60, 0.5 } }

/* 40,000 tokens on the GPU: 960,000 are three times the caches of eight */

#define KVS_BELOW(...)                                                        \
    { .hardware = KVS_24B, .replicas = 8, .kv_tokens = 40000, __VA_ARGS__ }

#define KVS_HYBRID(hw, ...)                                                   \
    { .hardware = hw, .replicas = 8, .state = 512, __VA_ARGS__ }

#define KVS_HOST  .host = 4, .host_rate = 50e9
#define KVS_DISK  .host = 2, .host_rate = 50e9, .disk = 16, .disk_rate = 10e9
#define KVS_STORE .disk = 4, .disk_rate = 12.5e9, .store = 1


static const struct {
    const char   *name;
    kvs_fleet_t   fleet;
    kvs_shape_t   shape;
    double        rate;
} kvs_tiers_cases[] = {
    { "host_documents", KVS_BELOW(KVS_HOST), KVS_DOCUMENTS(240), 30 },
    { "host_documents_busy", KVS_BELOW(KVS_HOST), KVS_DOCUMENTS(240), 40 },
    { "host_prompts", KVS_BELOW(KVS_HOST), KVS_PROMPTS, 40 },
    { "host_agents", KVS_BELOW(KVS_HOST, .closed = 120), KVS_AGENT, 0 },
    { "disk_documents", KVS_BELOW(KVS_DISK), KVS_DOCUMENTS(960), 25 },
    { "disk_agents", KVS_BELOW(KVS_DISK, .closed = 200), KVS_AGENT, 0 },
    { "store_documents", KVS_BELOW(KVS_STORE), KVS_DOCUMENTS(240), 40 },
    { "store_agents", KVS_BELOW(KVS_STORE, .closed = 150), KVS_AGENT, 0 },

    { "hybrid_agents", KVS_HYBRID(KVS_24B, .closed = 150), KVS_AGENT, 0 },
    { "hybrid_intervals", KVS_HYBRID(KVS_24B, .closed = 150, .states = 1),
      KVS_AGENT, 0 },
    { "hybrid_before", KVS_HYBRID(KVS_L40S), KVS_BRANCH(2000), 20 },
    { "hybrid_after", KVS_HYBRID(KVS_L40S), KVS_BRANCH(2100), 20 },
    { "hybrid_before_intervals", KVS_HYBRID(KVS_L40S, .states = 1),
      KVS_BRANCH(2000), 20 },
};

#define KVS_CASES      kvr_nelts(kvs_tiers_cases)
#define KVS_TIERS_RATE  1500      /* s; requests that a closed fleet makes */


typedef struct {
    const kvs_options_t  *options;
    const kvs_policy_t   *contender[16];
    uint32_t              npolicies;
    kvs_result_t         *result;
} kvs_tiers_t;


static kvs_result_t *
kvs_tiers_result(const kvs_tiers_t *t, size_t scenario, uint32_t policy,
    uint32_t seed)
{
    return &t->result[(scenario * t->npolicies + policy) * t->options->seeds
                      + seed];
}


static int
kvs_tiers_asked(const kvs_tiers_t *t, size_t scenario)
{
    return t->options->only == NULL
           || kvs_listed(t->options->only, kvs_tiers_cases[scenario].name);
}


static void
kvs_tiers_task(void *data, uint32_t i)
{
    kvs_tiers_t *t = data;

    double           rate;
    uint32_t         seed, p;
    size_t           k;
    kvs_workload_t  *w;

    seed = i % t->options->seeds;
    p = i / t->options->seeds % t->npolicies;
    k = i / t->options->seeds / t->npolicies;

    if (!kvs_tiers_asked(t, k)) {
        return;
    }

    rate = kvs_tiers_cases[k].rate;
    w = kvs_workload_create(&kvs_tiers_cases[k].shape, NULL);

    kvs_run(&kvs_tiers_cases[k].fleet, w, t->contender[p], rate,
            rate > 0 ? t->options->requests : KVS_TIERS_RATE,
            t->options->seed + seed, kvs_tiers_result(t, k, p, seed));

    kvs_workload_destroy(w);
}


/* returns the mean over the seeds */
static double
kvs_tiers_mean(const kvs_tiers_t *t, size_t scenario, uint32_t policy,
    size_t offset)
{
    double    sum;
    uint32_t  i;

    for (i = 0, sum = 0; i < t->options->seeds; i++) {
        sum += *(double *) (void *)
                ((char *) kvs_tiers_result(t, scenario, policy, i) + offset);
    }

    return sum / t->options->seeds;
}

#define kvs_tiers_value(t, scenario, policy, field)                           \
    kvs_tiers_mean(t, scenario, policy, offsetof(kvs_result_t, field))


/* returns the policy with this name, or the oracle */
static uint32_t
kvs_tiers_find(const kvs_tiers_t *t, const char *name)
{
    uint32_t  i;

    for (i = t->npolicies - 1; i && strcmp(t->contender[i]->name, name); i--) {
        /* void */
    }

    return i;
}


/* prints a row; returns 1 if it was run */
static void
kvs_tiers_row(const kvs_tiers_t *t, size_t k, uint32_t p, cJSON *json)
{
    double         ttft, oracle, cached, predicted;
    cJSON         *js;
    uint32_t       i, flushed, capped;
    kvs_result_t  *r;

    oracle = kvs_tiers_value(t, k, 0, ttft);
    ttft = kvs_tiers_value(t, k, p, ttft);
    cached = kvs_tiers_value(t, k, p, cached);
    predicted = kvs_tiers_value(t, k, p, predicted);

    for (i = 0, flushed = 0, capped = 0; i < t->options->seeds; i++) {
        r = kvs_tiers_result(t, k, p, i);
        flushed += r->flushed;
        capped += r->capped;
    }

    printf("  %-16s %8.1f %6.2f %8.1f %6.3f %6.3f %6.3f %4u%s\n",
           t->contender[p]->name, ttft * 1000, ttft / oracle,
           kvs_tiers_value(t, k, p, ttft_p99) * 1000, cached,
           kvs_tiers_value(t, k, p, loaded), predicted, flushed,
           capped ? " falls behind" : "");

    js = cJSON_AddObjectToObject(json, t->contender[p]->name);
    cJSON_AddNumberToObject(js, "ttft", ttft);
    cJSON_AddNumberToObject(js, "to_oracle", ttft / oracle);
    cJSON_AddNumberToObject(js, "ttft_p99",
                            kvs_tiers_value(t, k, p, ttft_p99));
    cJSON_AddNumberToObject(js, "cached", cached);
    cJSON_AddNumberToObject(js, "loaded", kvs_tiers_value(t, k, p, loaded));
    cJSON_AddNumberToObject(js, "predicted", predicted);
    cJSON_AddNumberToObject(js, "flushed", flushed);
}


/* returns the worst of a policy; hybrid: in hybrid scenarios, or in others */
static double
kvs_tiers_worst(const kvs_tiers_t *t, const char *name, int hybrid)
{
    double    worst;
    size_t    k;
    uint32_t  p;

    p = kvs_tiers_find(t, name);

    for (k = 0, worst = 0; k < KVS_CASES; k++) {
        if (kvs_tiers_asked(t, k)
            && hybrid == (kvs_tiers_cases[k].fleet.state != 0))
        {
            worst = fmax(worst, kvs_tiers_value(t, k, p, ttft)
                                / kvs_tiers_value(t, k, 0, ttft));
        }
    }

    return worst;
}


static void
kvs_tiers_hybrid(const kvs_tiers_t *t, cJSON *json)
{
    double    ratio, worst;
    size_t    k;
    uint32_t  i, p, flushed;

    p = kvs_tiers_find(t, "learned");

    for (k = 0, worst = 1, flushed = 0; k < KVS_CASES; k++) {

        if (!kvs_tiers_asked(t, k) || !kvs_tiers_cases[k].fleet.state) {
            continue;
        }

        ratio = kvs_tiers_value(t, k, p, predicted)
                / fmax(kvs_tiers_value(t, k, p, cached), 0.001);

        if (fabs(log(ratio)) > fabs(log(worst))) {
            worst = ratio;
        }

        for (i = 0; i < t->options->seeds; i++) {
            flushed += kvs_tiers_result(t, k, p, i)->flushed;
        }
    }

    cJSON_AddNumberToObject(json, "false_flushes", flushed);
    cJSON_AddNumberToObject(json, "predicted_to_delivered", worst);
    cJSON_AddNumberToObject(json, "to_oracle",
                            kvs_tiers_worst(t, "learned", 1));
}


/* the oracle always runs */
static void
kvs_tiers_contender(kvs_tiers_t *t, const kvs_policy_t *policy)
{
    if (t->npolicies == 0 || t->options->policies == NULL
        || kvs_listed(t->options->policies, policy->name))
    {
        t->contender[t->npolicies++] = policy;
    }
}


int
kvs_tiers(const kvs_options_t *o)
{
    int                  rc;
    size_t               k;
    uint32_t             p;
    cJSON               *json, *js;
    kvs_tiers_t          t;
    const kvs_policy_t  *list;

    memset(&t, 0, sizeof(kvs_tiers_t));

    t.options = o;

    for (list = kvs_router_tiers; list->name; list++) {
        kvs_tiers_contender(&t, list);
    }

    for (list = kvs_rival_tiers; list->name; list++) {
        kvs_tiers_contender(&t, list);
    }

    t.result = kvs_contest_shared(KVS_CASES * t.npolicies * o->seeds
                                  * sizeof(kvs_result_t));

    kvs_contest_spread(o->jobs, (uint32_t) KVS_CASES * t.npolicies * o->seeds,
                       kvs_tiers_task, &t);

    json = cJSON_CreateObject();
    js = cJSON_AddObjectToObject(json, "to_oracle");
    cJSON_AddNumberToObject(js, "told", kvs_tiers_worst(&t, "told", 0));
    cJSON_AddNumberToObject(js, "learned", kvs_tiers_worst(&t, "learned", 0));
    kvs_tiers_hybrid(&t, cJSON_AddObjectToObject(json, "hybrid"));

    for (k = 0; k < KVS_CASES; k++) {

        if (!kvs_tiers_asked(&t, k)) {
            continue;
        }

        printf("%s\n  %-16s %8s %6s %8s %6s %6s %6s %4s\n",
               kvs_tiers_cases[k].name, "", "TTFT ms", "oracle", "P99",
               "cached", "loaded", "belief", "lost");

        js = cJSON_AddObjectToObject(json, kvs_tiers_cases[k].name);

        for (p = 0; p < t.npolicies; p++) {
            kvs_tiers_row(&t, k, p, js);
        }
    }

    rc = o->out ? kvs_report_save(json, o->out) : KVR_OK;

    cJSON_Delete(json);

    return rc;
}
