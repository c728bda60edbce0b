/*
 * What another fleet would improve: "make bench-whatif".
 *
 * Each scenario runs with the present fleet, whose router estimates the effect
 * of a change (core/learn/kvr_whatif.h).  Then the fleet is changed and runs
 * the same sessions.
 *
 * The scenarios were fixed before the estimate was tuned.
 */

#include <stdio.h>

#include <cjson/cJSON.h>

#include "bench/sim/contest/whatif.h"
#include "bench/sim/report/report_json.h"
#include "bench/sim/router/router.h"


#define KVS_8B    "llama-8b-bf16-h100"
#define KVS_24B   "devstral-24b-fp8-h100"
#define KVS_24B2  "devstral-24b-fp8-h100-tp2"

#define KVS_AGENT(pause_s)                                                    \
    { .shape = KVS_AGENTS, .prefixes = 4, .zipf = 1.0,                        \
      .prefix_min = 3000, .prefix_max = 5000,                                 \
      .question = { 400, 1.1 }, .output = { 200, 0.8 },                       \
      .steps = { 15, 0.6 }, .pause = { pause_s, 0.8 } }

#define KVS_DOCUMENTS(n)                                                      \
    { .shape = KVS_HOT, .prefixes = n,                                        \
      .prefix_min = 3000, .prefix_max = 5000,                                 \
      .question = { 200, 0.5 }, .output = { 100, 0.5 } }

#define KVS_PEOPLE                                                            \
    { .shape = KVS_AGENTS, .prefixes = 20, .zipf = 1.0,                       \
      .prefix_min = 200, .prefix_max = 1500,                                  \
      .question = { 120, 1.0 }, .output = { 300, 0.8 },                       \
      .steps = { 5, 0.8 }, .pause = { 60, 0.8 } }

#define KVS_ZIPF                                                              \
    { .shape = KVS_HOT, .prefixes = 400, .zipf = 1.0,                         \
      .prefix_min = 1000, .prefix_max = 8000,                                 \
      .question = { 200, 1.0 }, .output = { 150, 0.8 } }

#define KVS_AGAIN                                                             \
    { .shape = KVS_MIXED, .prefixes = 50, .zipf = 1.0,                        \
      .prefix_min = 300, .prefix_max = 2000,                                  \
      .question = { 200, 1.0 }, .output = { 200, 0.8 },                       \
      .document = { 14000, 0.5 }, .share = 0.2, .parts = 300 }

#define KVS_DOCS                                                              \
    { .shape = KVS_RAG, .prefixes = 2000, .zipf = 0.9,                        \
      .prefix_min = 400, .prefix_max = 1000, .parts = 8,                      \
      .question = { 60, 0.6 }, .output = { 120, 0.6 } }


/* a fleet before and after a change: engines, and tokens of each */
static const struct {
    const char   *name;
    const char   *hardware;
    uint32_t      n, tokens;
    kvs_shape_t   shape;
    double        rate;

    kvr_whatif_change_e  change;
} kvs_whatif_cases[] = {
    { "agents, twice", KVS_24B, 8, 50000, KVS_AGENT(20), 7,
      KVR_WHATIF_TWICE },
    { "agents, four times", KVS_24B, 8, 50000, KVS_AGENT(20), 7,
      KVR_WHATIF_FOUR },
    { "agents, one more", KVS_24B, 8, 50000, KVS_AGENT(20), 7,
      KVR_WHATIF_MORE },
    { "agents, host 4", KVS_24B, 8, 50000, KVS_AGENT(20), 7,
      KVR_WHATIF_HOST_4 },
    { "paced agents, half", KVS_24B, 8, 250000, KVS_AGENT(30), 8,
      KVR_WHATIF_HALF },
    { "paced agents, one less", KVS_24B, 8, 120000, KVS_AGENT(30), 8,
      KVR_WHATIF_LESS },
    { "few agents, one more", KVS_24B2, 4, 150000, KVS_AGENT(20), 11,
      KVR_WHATIF_MORE },
    { "documents, twice", KVS_24B, 8, 40000, KVS_DOCUMENTS(240), 20,
      KVR_WHATIF_TWICE },
    { "documents, host 4", KVS_24B, 8, 40000, KVS_DOCUMENTS(240), 20,
      KVR_WHATIF_HOST_4 },
    { "popular, half", KVS_8B, 8, 120000, KVS_ZIPF, 40,
      KVR_WHATIF_HALF },
    { "popular, four times", KVS_8B, 8, 120000, KVS_ZIPF, 40,
      KVR_WHATIF_FOUR },
    { "mixed, twice", KVS_8B, 8, 358400, KVS_AGAIN, 40,
      KVR_WHATIF_TWICE },
    { "mixed, one less", KVS_8B, 8, 358400, KVS_AGAIN, 40,
      KVR_WHATIF_LESS },
    { "retrieval, half", KVS_8B, 8, 450000, KVS_DOCS, 30,
      KVR_WHATIF_HALF },
    { "people, one more", KVS_8B, 4, 100000, KVS_PEOPLE, 22,
      KVR_WHATIF_MORE },
};

/* aims for the errors */
#define KVS_WHATIF_CACHED  0.03
#define KVS_WHATIF_FIRST   0.25

#define KVS_CASES  kvr_nelts(kvs_whatif_cases)


typedef struct {
    kvs_result_t   result;
    kvr_whatif_t   whatif;
} kvs_whatif_run_t;


typedef struct {
    const kvs_options_t  *options;
    kvs_whatif_run_t     *run;       /* [case][changed][seed] */
} kvs_whatif_t;


/*
 * sums of all points: the worst errors, the mean, and how many meet the aims
 */
typedef struct {
    double         cached;
    double         first;
    double         cached_sum;
    uint32_t       cached_within;
    uint32_t       first_within;
    uint32_t       cached_between;   /* within the stated range */
    uint32_t       first_between;
} kvs_whatif_sum_t;


static const kvs_router_conf_t  kvs_whatif_conf = {
    .policy = KVR_POLICY_KV_CACHE, .usage = 1, .timed = 1, .probe = 1,
    .metrics = 1, .replies = 1, .zone = 256
};

/* state of the process, for one run at a time */

static kvs_whatif_run_t  *kvs_whatif_here;
static int                kvs_whatif_begun;


static kvr_whatif_t *
kvs_whatif_of(kvs_router_t *ro)
{
    return kvr_registry_whatif(ro->zone.core.registry, 0);
}


/* the start of a run does not count */
static uint32_t
kvs_whatif_pick(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    if (!kvs_whatif_begun && now >= ro->sim->window) {
        kvs_whatif_begun = 1;
        memset((void *) kvs_whatif_of(ro), 0, sizeof(kvr_whatif_t));
    }

    return kvs_router_pick(data, rq, now);
}


static void
kvs_whatif_destroy(void *data)
{
    memcpy((void *) &kvs_whatif_here->whatif, (void *) kvs_whatif_of(data),
           sizeof(kvr_whatif_t));

    kvs_router_destroy(data);
}


static const kvs_policy_t  kvs_whatif_policy = {
    "kv_cache", KVS_OURS, kvs_router_create, kvs_whatif_destroy,
    kvs_whatif_pick, kvs_router_admitted, NULL, kvs_router_first,
    kvs_router_restarted, kvs_router_done, &kvs_whatif_conf
};


static void
kvs_whatif_change(kvs_fleet_t *fleet, kvr_whatif_change_e change)
{
    switch (change) {
    case KVR_WHATIF_LESS: fleet->replicas--; break;
    case KVR_WHATIF_MORE: fleet->replicas++; break;
    case KVR_WHATIF_HALF: fleet->kv_tokens /= 2; break;
    case KVR_WHATIF_TWICE: fleet->kv_tokens *= 2; break;
    case KVR_WHATIF_FOUR: fleet->kv_tokens *= 4; break;
    case KVR_WHATIF_HOST_4: fleet->host = 4; fleet->host_rate = 50e9; break;
    default: abort();
    }
}


static void
kvs_whatif_task(void *data, uint32_t i)
{
    kvs_whatif_t *t = data;

    size_t           k;
    uint32_t         seed, changed;
    kvs_fleet_t      fleet;
    kvs_workload_t  *w;

    seed = i % t->options->seeds;
    changed = i / t->options->seeds % 2;
    k = i / t->options->seeds / 2;

    if (t->options->only
        && !kvs_listed(t->options->only, kvs_whatif_cases[k].name))
    {
        return;
    }

    memset(&fleet, 0, sizeof(kvs_fleet_t));

    fleet.hardware = kvs_whatif_cases[k].hardware;
    fleet.replicas = kvs_whatif_cases[k].n;
    fleet.kv_tokens = kvs_whatif_cases[k].tokens;

    if (changed) {
        kvs_whatif_change(&fleet, kvs_whatif_cases[k].change);
    }

    kvs_whatif_here = &t->run[i];
    kvs_whatif_begun = 0;

    w = kvs_workload_create(&kvs_whatif_cases[k].shape, NULL);

    kvs_run(&fleet, w, &kvs_whatif_policy, kvs_whatif_cases[k].rate,
            t->options->requests, t->options->seed + seed, &t->run[i].result);

    kvs_workload_destroy(w);
}


static double
kvs_whatif_error(double estimate, double real)
{
    return real > 0 ? estimate / real - 1 : 0;
}


/* runs a point, and adds its errors to the sums */
static void
kvs_whatif_point(const kvs_whatif_t *t, size_t k, uint32_t seed, cJSON *list,
    kvs_whatif_sum_t *sum)
{
    int                     low, soon;
    cJSON                  *json;
    double                  cached, first;
    kvs_whatif_run_t       *today, *changed;
    kvr_whatif_estimate_t   e, now;

    today = &t->run[k * 2 * t->options->seeds + seed];
    changed = today + t->options->seeds;

    if (kvr_whatif_estimate(&today->whatif, KVR_WHATIF_NOW,
                            kvs_whatif_cases[k].n, &now)
        != KVR_OK
        || kvr_whatif_estimate(&today->whatif, kvs_whatif_cases[k].change,
                               kvs_whatif_cases[k].n, &e)
           != KVR_OK)
    {
        return;
    }

    cached = e.cached - changed->result.cached;
    first = kvs_whatif_error(e.first, changed->result.ttft_p95);

    low = changed->result.cached >= e.low && changed->result.cached <= e.high;
    soon = changed->result.ttft_p95 >= e.soonest
           && changed->result.ttft_p95 <= e.latest;

    printf("  %-24s %3.0f %7.3f %7.3f %7.3f %+6.3f%c %7.3f %7.3f %7.3f %+6.2f%c"
           "\n",
           kvs_whatif_cases[k].name, (double) (t->options->seed + seed),
           today->result.cached, changed->result.cached, e.cached, cached,
           low ? ' ' : '!', today->result.ttft_p95, changed->result.ttft_p95,
           e.first, first, soon ? ' ' : '!');

    json = cJSON_CreateObject();
    cJSON_AddItemToArray(list, json);

    cJSON_AddStringToObject(json, "name", kvs_whatif_cases[k].name);
    cJSON_AddNumberToObject(json, "seed",
                            (double) (t->options->seed + seed));
    cJSON_AddNumberToObject(json, "cached_today", today->result.cached);
    cJSON_AddNumberToObject(json, "cached", changed->result.cached);
    cJSON_AddNumberToObject(json, "cached_estimate", e.cached);
    cJSON_AddNumberToObject(json, "cached_low", e.low);
    cJSON_AddNumberToObject(json, "cached_high", e.high);
    cJSON_AddNumberToObject(json, "p95_today", today->result.ttft_p95);
    cJSON_AddNumberToObject(json, "p95_today_estimate", now.first);
    cJSON_AddNumberToObject(json, "p95", changed->result.ttft_p95);
    cJSON_AddNumberToObject(json, "p95_estimate", e.first);
    cJSON_AddNumberToObject(json, "p95_low", e.soonest);
    cJSON_AddNumberToObject(json, "p95_high", e.latest);

    sum->cached = fmax(sum->cached, fabs(cached));
    sum->first = fmax(sum->first, fabs(first));
    sum->cached_sum += fabs(cached);
    sum->cached_within += fabs(cached) <= KVS_WHATIF_CACHED;
    sum->first_within += fabs(first) <= KVS_WHATIF_FIRST;
    sum->cached_between += low;
    sum->first_between += soon;
}


int
kvs_whatif(const kvs_options_t *o)
{
    int                rc;
    cJSON             *json, *list;
    size_t             k;
    uint32_t           seed;
    kvs_whatif_t       t;
    kvs_whatif_sum_t   sum;

    memset(&sum, 0, sizeof(kvs_whatif_sum_t));

    t.options = o;
    t.run = kvs_contest_shared(KVS_CASES * 2 * o->seeds
                               * sizeof(kvs_whatif_run_t));

    kvs_contest_spread(o->jobs, (uint32_t) KVS_CASES * 2 * o->seeds,
                       kvs_whatif_task, &t);

    json = cJSON_CreateObject();
    list = cJSON_CreateArray();

    printf("  %-24s %3s %7s %7s %7s %6s %8s %7s %7s %6s\n", "", "", "cached",
           "then", "told", "error", "P95 s", "then", "told", "error");

    for (k = 0; k < KVS_CASES; k++) {
        for (seed = 0; seed < o->seeds; seed++) {
            kvs_whatif_point(&t, k, seed, list, &sum);
        }
    }

    cJSON_AddNumberToObject(json, "points", cJSON_GetArraySize(list));
    cJSON_AddNumberToObject(json, "cached_error", sum.cached);
    cJSON_AddNumberToObject(json, "p95_error", sum.first);
    cJSON_AddNumberToObject(json, "cached_within_0.03", sum.cached_within);
    cJSON_AddNumberToObject(json, "p95_within_0.25", sum.first_within);
    cJSON_AddNumberToObject(json, "cached_between", sum.cached_between);
    cJSON_AddNumberToObject(json, "p95_between", sum.first_between);
    cJSON_AddItemToObject(json, "point", list);

    printf("\n%d points; worst: cached %.3f, P95 %.2f; within 0.03: %u, "
           "within 0.25: %u; mean: cached %.4f; within the stated range (!:  "
           "not): %u, and P95: %u\n",
           cJSON_GetArraySize(list), sum.cached, sum.first, sum.cached_within,
           sum.first_within, sum.cached_sum / cJSON_GetArraySize(list),
           sum.cached_between, sum.first_between);

    rc = o->out ? kvs_report_save(json, o->out) : KVR_OK;

    cJSON_Delete(json);

    return rc;
}
