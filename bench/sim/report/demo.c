/*
 * "make demo", simulated: 12 agents that begin at once, 7 turns each, on three
 * small engines with 5 slots, whose caches are little larger than their
 * sessions. A session that moves is computed again, and evicts others.  A
 * score that scatters sessions shows it in the cached share of what a session
 * has sent before.
 *
 * The engines' speed is unknown, because they share two cores with other work.
 * So the demo runs at several speeds, once with equal engines and once with
 * one slower engine.  The mean and the worst result count.
 */

#include <stdio.h>

#include "bench/sim/report/demo.h"
#include "bench/sim/router/rivals_run.h"
#include "bench/sim/router/router.h"


#define KVS_DEMO_SEEDS  40


static const struct {
    double  speed;
    double  slow;                /* speed of one of them, 0: like the others */
} kvs_demo_speeds[] = {
    { 2, 0 }, { 1, 0 }, { 0.5, 0 }, { 0.25, 0 }, { 0.125, 0 },
    { 2, 0.5 }, { 1, 0.5 }, { 0.5, 0.5 }, { 0.25, 0.5 }, { 0.125, 0.5 }
};

#define KVS_DEMO_SPEEDS                                                       \
    (sizeof(kvs_demo_speeds) / sizeof(kvs_demo_speeds[0]))


/* prompts of 5 to 12 KB, which grow by 1.2 KB a turn */

static const kvs_shape_t  kvs_demo_shape = {
    .shape = KVS_AGENTS, .prefixes = 1, .prefix_min = 200, .prefix_max = 200,
    .task = { 850, 0 }, .question = { 290, 0.1 }, .output = { 8, 0 },
    .steps = { 7.5, 0 }, .pause = { 0.45, 0.2 }
};


/*
 * 24 agents with a long common prefix, on engines that can each cache a third
 * of them.  Few agents are active at a time.  A policy that packs them on few
 * engines loses their caches while another engine is idle.
 */

static const kvs_shape_t  kvs_demo_thirds = {
    .shape = KVS_AGENTS, .prefixes = 1, .prefix_min = 1500, .prefix_max = 1500,
    .task = { 850, 0.2 }, .question = { 290, 0.1 }, .output = { 8, 0 },
    .steps = { 7.5, 0 }, .pause = { 8, 0.8 }
};

#define KVS_DEMO_THIRDS_KV  25600     /* 1,500 tokens and 8 times 3,000 */


static void
kvs_demo_thirds_policy(const kvs_policy_t *policy, cJSON *json)
{
    double           found, ttft, e2e, most;
    uint32_t         k;
    cJSON           *js;
    kvs_fleet_t      fleet;
    kvs_result_t     res;
    kvs_workload_t  *w;

    w = kvs_workload_create(&kvs_demo_thirds, NULL);

    found = 0;
    ttft = 0;
    e2e = 0;
    most = 0;

    memset(&fleet, 0, sizeof(fleet));

    fleet.hardware = "demo-cpu";
    fleet.replicas = 3;
    fleet.closed = 24;
    fleet.finite = 24;
    fleet.kv_tokens = KVS_DEMO_THIRDS_KV;

    for (k = 0; k < KVS_DEMO_SEEDS; k++) {
        kvs_run(&fleet, w, policy, 0, 168, k + 1, &res);
        found += res.cached / KVS_DEMO_SEEDS;
        ttft += res.ttft / KVS_DEMO_SEEDS;
        e2e += res.e2e / KVS_DEMO_SEEDS;
        most += res.imbalance / KVS_DEMO_SEEDS;
    }

    kvs_workload_destroy(w);

    printf("  %-20s %6.3f %6.3f %6.3f %6.2f\n", policy->name, found, ttft,
           e2e, most);

    if (json) {
        js = cJSON_AddObjectToObject(json, policy->name);
        cJSON_AddNumberToObject(js, "cached", found);
        cJSON_AddNumberToObject(js, "ttft_mean", ttft);
        cJSON_AddNumberToObject(js, "e2e_mean", e2e);
        cJSON_AddNumberToObject(js, "busiest", most);
    }
}


static void
kvs_demo_policy(const kvs_policy_t *policy, cJSON *json)
{
    double           sum, least, ttft, ideal[KVS_DEMO_SPEEDS];
    size_t           i;
    uint32_t         k;
    cJSON           *js;
    kvs_fleet_t      fleet;
    kvs_result_t     res;
    kvs_workload_t  *w;

    w = kvs_workload_create(&kvs_demo_shape, NULL);
    sum = 0;
    least = 1;
    ttft = 0;

    for (i = 0; i < KVS_DEMO_SPEEDS; i++) {

        memset(&fleet, 0, sizeof(fleet));

        fleet.hardware = "demo-cpu";
        fleet.replicas = 3;
        fleet.closed = 12;
        fleet.finite = 12;
        fleet.at_once = 1;
        fleet.speed = kvs_demo_speeds[i].speed;
        fleet.slow = kvs_demo_speeds[i].slow;

        ideal[i] = 0;

        for (k = 0; k < KVS_DEMO_SEEDS; k++) {
            kvs_run(&fleet, w, policy, 0, 84, k + 1, &res);
            ideal[i] += res.ideal / KVS_DEMO_SEEDS;
            ttft += res.ttft / KVS_DEMO_SEEDS / KVS_DEMO_SPEEDS;
        }

        sum += ideal[i] / KVS_DEMO_SPEEDS;
        least = fmin(least, ideal[i]);
    }

    kvs_workload_destroy(w);

    printf("  %-20s %6.3f %6.3f %6.3f ", policy->name, sum, least, ttft);

    for (i = 0; i < KVS_DEMO_SPEEDS; i++) {
        printf(" %5.3f", ideal[i]);
    }

    printf("\n");

    if (json) {
        js = cJSON_AddObjectToObject(json, policy->name);
        cJSON_AddNumberToObject(js, "of_ideal", sum);
        cJSON_AddNumberToObject(js, "of_ideal_least", least);
        cJSON_AddNumberToObject(js, "ttft_mean", ttft);
    }
}


void
kvs_demo(const kvs_options_t *o, cJSON *json)
{
    size_t               i, k;
    cJSON               *thirds;
    const kvs_policy_t  *p, *lists[2];

    static const char  defaults[] =
        "=random,=round_robin,=least_request,=sticky,=kv_cache,"
        "=kv_cache_reported,=kv_cache_usage,=oracle";

    lists[0] = kvs_router_policies;
    lists[1] = kvs_rival_policies;

    thirds = json ? cJSON_AddObjectToObject(json, "thirds") : NULL;

    for (k = 0; k < 2; k++) {

        printf(k == 0
               ? "\nmake demo, simulated: cached of what the session has sent, "
                 "mean and least; TTFT; of ideal at each speed\n"
               : "\n24 agents on engines that hold a third of them: cached, "
                 "TTFT, end to end, busiest\n");

        for (i = 0; i < 2; i++) {
            for (p = lists[i]; p->name; p++) {

                if ((p->kind & KVS_QUEUED)
                    || !kvs_listed(o->policies ? o->policies : defaults,
                                   p->name))
                {
                    continue;
                }

                if (k == 0) {
                    kvs_demo_policy(p, json);

                } else {
                    kvs_demo_thirds_policy(p, thirds);
                }
            }
        }
    }
}
