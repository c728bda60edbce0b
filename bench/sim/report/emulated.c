/*
 * One workload for the simulator and for the emulated engine behind nginx:
 * writes its sessions as JSON, and the simulator's results.  emulated.py plays
 * the sessions and compares.
 */

#include <stdio.h>

#include <cjson/cJSON.h>

#include "bench/sim/report/emulated.h"
#include "bench/sim/router/rivals_run.h"
#include "bench/sim/router/router.h"


#define KVS_EMULATED_RATE      5.0       /* requests per s */
#define KVS_EMULATED_REQUESTS  1200


static const kvs_fleet_t  kvs_emulated_fleet = {
    .hardware = "llama-8b-bf16-l40s", .replicas = 3
};

/* small caches, one replica with a quarter of it; bench/signals/ */

static const kvs_fleet_t  kvs_emulated_small = {
    .hardware = "llama-8b-bf16-l40s", .replicas = 3, .kv_tokens = 120000,
    .small = 0.25
};

/* one kind of agents, so that all share the first text */

static const kvs_shape_t  kvs_emulated_shape = {
    .shape = KVS_AGENTS, .prefixes = 1, .prefix_min = 2000,
    .prefix_max = 2000, .question = { 500, 1.0 }, .output = { 100, 0.8 },
    .steps = { 12, 0.5 }, .pause = { 3, 0.8 }
};


static void
kvs_emulated_sessions(kvs_workload_t *w, uint64_t seed, uint32_t limit,
    cJSON *array)
{
    cJSON          *js, *steps, *step;
    double          length;
    uint32_t        i;
    kvs_sim_t       sim;
    kvs_session_t  *s;

    memset(&sim, 0, sizeof(sim));
    kve_hw_find(kvs_emulated_fleet.hardware, &sim.hw);
    sim.fleet = kvs_emulated_fleet;
    sim.rate = KVS_EMULATED_RATE;

    length = KVS_EMULATED_REQUESTS / KVS_EMULATED_RATE;

    kvs_workload_start(w, seed, limit);

    for ( ;; ) {
        s = kvs_workload_next(w, &sim);

        if (s->arrival >= length) {
            free(s);
            return;
        }

        js = cJSON_CreateObject();
        cJSON_AddItemToArray(array, js);
        cJSON_AddNumberToObject(js, "arrival", s->arrival);
        steps = cJSON_AddArrayToObject(js, "steps");

        for (i = 0; i < s->nsteps; i++) {
            step = cJSON_CreateObject();
            cJSON_AddItemToArray(steps, step);
            cJSON_AddNumberToObject(step, "prompt", s->steps[i].prompt);
            cJSON_AddNumberToObject(step, "output", s->steps[i].output);
            cJSON_AddNumberToObject(step, "pause", s->steps[i].pause);
            cJSON_AddBoolToObject(step, "measured",
                                  s->steps[i].due >= length / 4
                                  && s->steps[i].due < length);
        }

        free(s);
    }
}


/* writes a fleet, its sessions, and the simulator's results */
static void
kvs_emulated_add(cJSON *json, const kvs_fleet_t *fleet, const char **names,
    uint64_t seed)
{
    cJSON               *js, *policies;
    double               limit;
    kve_hw_t             hw;
    kvs_result_t         res;
    kvs_workload_t      *w;
    const kvs_policy_t  *p, *lists[2];
    size_t               i, n;

    kve_hw_find(fleet->hardware, &hw);

    limit = fleet->kv_tokens ? fleet->kv_tokens : hw.kv_tokens;

    cJSON_AddStringToObject(json, "hardware", fleet->hardware);
    cJSON_AddNumberToObject(json, "replicas", fleet->replicas);
    cJSON_AddNumberToObject(json, "kv_tokens", fleet->kv_tokens);
    cJSON_AddNumberToObject(json, "small", fleet->small);
    cJSON_AddNumberToObject(json, "prefix", kvs_emulated_shape.prefix_min);

    policies = cJSON_AddObjectToObject(json, "policies");

    w = kvs_workload_create(&kvs_emulated_shape, NULL);

    lists[0] = kvs_router_policies;
    lists[1] = kvs_rival_policies;

    for (i = 0; i < 2; i++) {
        for (p = lists[i]; p->name; p++) {

            for (n = 0; names[n] && strcmp(p->name, names[n]) != 0; n++) {
                /* void */
            }

            if (names[n] == NULL) {
                continue;
            }

            kvs_run(fleet, w, p, KVS_EMULATED_RATE, KVS_EMULATED_REQUESTS,
                    seed, &res);

            js = cJSON_AddObjectToObject(policies, p->name);
            cJSON_AddNumberToObject(js, "requests", res.measured);
            cJSON_AddNumberToObject(js, "cached", res.cached);
            cJSON_AddNumberToObject(js, "ttft_mean", res.ttft);
            cJSON_AddNumberToObject(js, "ttft_p95", res.ttft_p95);
            cJSON_AddNumberToObject(js, "e2e_mean", res.e2e);
            cJSON_AddNumberToObject(js, "e2e_p95", res.e2e_p95);
        }
    }

    limit = (double) ((uint64_t) limit / KVS_UNIT_TOKENS * KVS_UNIT_TOKENS)
            * (fleet->small > 0 ? fleet->small : 1) / 2;

    kvs_emulated_sessions(w, seed, (uint32_t) limit,
                          cJSON_AddArrayToObject(json, "sessions"));

    kvs_workload_destroy(w);
}


int
kvs_emulated(const kvs_options_t *o)
{
    char   *text;
    FILE   *f;
    cJSON  *json;

    static const char  *names[] = { "random", "least_request", "kv_cache",
                                    NULL };
    static const char  *small[] = { "round_robin", "kv_cache", "oracle",
                                    NULL };

    json = cJSON_CreateObject();

    kvs_emulated_add(json, &kvs_emulated_fleet, names, o->seed);
    kvs_emulated_add(cJSON_AddObjectToObject(json, "small_replica"),
                     &kvs_emulated_small, small, o->seed);

    text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);

    f = o->out ? fopen(o->out, "w") : stdout;

    if (f == NULL) {
        perror(o->out);
        return KVR_ERROR;
    }

    fprintf(f, "%s\n", text);
    free(text);

    return o->out && fclose(f) ? KVR_ERROR : KVR_OK;
}
