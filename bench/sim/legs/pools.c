/*
 * The grid of two pools: prompts and answers, the sizes of the pools, the
 * speed of transfers, the load; and at each point all rules.
 *
 * The grid runs twice: with the requested seeds, and for our rule and those
 * that it is compared with, with as many seeds that were not used during
 * development.
 *
 * Two rules run again with the same prompts, each later by less than a
 * millisecond.  The difference to the first run is noise.
 */

#include <cjson/cJSON.h>
#include <stdio.h>

#include "bench/sim/legs/legs.h"
#include "bench/sim/legs/pools.h"
#include "bench/sim/report/report_json.h"


#define KVS_POOLS_SERVERS   8
#define KVS_POOLS_HARDWARE  "llama-8b-bf16-h100"
#define KVS_POOLS_KV        131072     /* bytes per token */
#define KVS_POOLS_REQUESTS  1500
#define KVS_POOLS_UNSEEN    1000       /* from a seed to the unseen one */

/* allowed difference to the better rule */
#define KVS_POOLS_WORSE     1.02

/* smaller shares are compared as if they were this */
#define KVS_POOLS_LEAST     0.01


typedef struct {
    const char       *name;
    kvs_shape_t       shape;
} kvs_pools_shape_t;


typedef struct {
    const char       *name;
    double            setup;       /* s */
    double            bandwidth;   /* bytes/s */
} kvs_pools_link_t;


static const kvs_pools_shape_t  kvs_pools_shapes[] = {
    { "10k/1k", { .shape = KVS_HOT, .question = { 10000, 0.2 },
                  .output = { 1000, 0.3 } } },
    { "8k/200", { .shape = KVS_HOT, .question = { 8000, 0.2 },
                  .output = { 200, 0.3 } } },
    { "200/200", { .shape = KVS_HOT, .question = { 200, 0.3 },
                   .output = { 200, 0.3 } } },
    { "agents", { .shape = KVS_AGENTS, .prefixes = 4, .zipf = 1.0,
                  .prefix_min = 3000, .prefix_max = 5000,
                  .question = { 400, 1.1 }, .output = { 200, 0.8 },
                  .steps = { 15, 0.6 }, .pause = { 2, 0.8 } } }
};

static const kvs_pools_link_t  kvs_pools_links[] = {
    { "NVLink", 0.0005, 600e9 },
    { "200 Gbit/s", 0.002, 20e9 },
    { "25 Gbit/s", 0.005, 2.5e9 }
};

/* prefill servers of 8: 1:3, 1:1, 3:1 */
static const uint32_t     kvs_pools_prefill[] = { 2, 4, 6 };
static const char *const  kvs_pools_ratios[] = { "1:3", "1:1", "3:1" };

/* shares of kvs_legs_capacity(); without --full the first ones */
static const double  kvs_pools_loads[] = { 0.3, 0.6, 0.45, 0.75 };

#define KVS_POOLS_LOADS  2


/* compared figures; for the last one higher is better */
enum {
    KVS_POOLS_TTFT = 0,
    KVS_POOLS_TPT,
    KVS_POOLS_GOODPUT,
    KVS_POOLS_FIGURES
};

static const char *const  kvs_pools_figures[] = {
    "ttft", "tpt_p99", "goodput"
};

_Static_assert(kvr_nelts(kvs_pools_figures) == KVS_POOLS_FIGURES, "figures");


/* runs of a point: all rules, and two of them again */
enum {
    KVS_POOLS_AGAIN_ALWAYS = KVS_LEGS_RULES,
    KVS_POOLS_AGAIN_NEVER,
    KVS_POOLS_RUNS
};


typedef struct {
    const kvs_pools_shape_t  *shape;
    const kvs_pools_link_t   *link;
    const char               *ratio;
    double                    load;
    kvs_legs_conf_t           conf;
    kvs_legs_result_t         mean[KVS_POOLS_RUNS];
} kvs_pools_point_t;


#define KVS_POOLS_POINTS                                                      \
    (kvr_nelts(kvs_pools_shapes) * kvr_nelts(kvs_pools_links)                 \
     * kvr_nelts(kvs_pools_ratios) * kvr_nelts(kvs_pools_loads))


typedef struct {
    const kvs_options_t  *options;
    uint64_t              seed;      /* the first one */
    uint32_t              runs;      /* at each point, the first ones */
    uint32_t              n;
    kvs_pools_point_t     point[KVS_POOLS_POINTS];
    kvs_legs_result_t    *result;    /* [point][run][seed] */
} kvs_pools_grid_t;


static void
kvs_pools_points(kvs_pools_grid_t *g)
{
    size_t              s, r, l, k, loads;
    kvs_pools_point_t  *p;

    loads = g->options->full ? kvr_nelts(kvs_pools_loads) : KVS_POOLS_LOADS;

    for (s = 0; s < kvr_nelts(kvs_pools_shapes); s++) {

        if (g->options->only
            && !kvs_listed(g->options->only, kvs_pools_shapes[s].name))
        {
            continue;
        }

        for (r = 0; r < kvr_nelts(kvs_pools_ratios); r++) {
            for (l = 0; l < kvr_nelts(kvs_pools_links); l++) {
                for (k = 0; k < loads; k++) {
                    p = &g->point[g->n++];

                    p->shape = &kvs_pools_shapes[s];
                    p->link = &kvs_pools_links[l];
                    p->ratio = kvs_pools_ratios[r];
                    p->load = g->options->load > 0 ? g->options->load
                                                   : kvs_pools_loads[k];

                    p->conf.hardware = KVS_POOLS_HARDWARE;
                    p->conf.prefill = kvs_pools_prefill[r];
                    p->conf.decode = KVS_POOLS_SERVERS - p->conf.prefill;
                    p->conf.setup = p->link->setup;
                    p->conf.bandwidth = p->link->bandwidth;
                    p->conf.kv_bytes = KVS_POOLS_KV;
                    p->conf.load = p->load;
                    p->conf.requests = KVS_POOLS_REQUESTS;
                    p->conf.shape = p->shape->shape;

                    if (g->options->load > 0) {
                        break;
                    }
                }
            }
        }
    }
}


static void
kvs_pools_run(void *data, uint32_t i)
{
    kvs_pools_grid_t *g = data;

    uint32_t         run, rule, point;
    kvs_legs_conf_t  conf;

    point = i / g->options->seeds / KVS_POOLS_RUNS;
    run = i / g->options->seeds % KVS_POOLS_RUNS;

    rule = run == KVS_POOLS_AGAIN_ALWAYS ? KVS_LEGS_WHEN_ALWAYS
           : run == KVS_POOLS_AGAIN_NEVER ? KVS_LEGS_NEVER
           : run;

    if (run >= g->runs) {
        return;
    }

    if (g->options->policies
        && !kvs_listed(g->options->policies, kvs_legs_rules[rule]))
    {
        return;
    }

    conf = g->point[point].conf;
    conf.rule = (kvs_legs_rule_e) rule;
    conf.again = run != rule;

    kvs_legs_run(&conf, g->seed + i % g->options->seeds, &g->result[i]);
}


/* returns a figure, lower is better */
static double
kvs_pools_figure(const kvs_legs_result_t *r, uint32_t figure)
{
    switch (figure) {

    case KVS_POOLS_TTFT:
        return r->ttft;

    case KVS_POOLS_TPT:
        return r->tpt_p99;
    }

    return 1 / kvr_max(r->goodput, KVS_POOLS_LEAST);
}


static double
kvs_pools_ratio(const kvs_pools_point_t *p, uint32_t rule, uint32_t other,
    uint32_t figure)
{
    return kvs_pools_figure(&p->mean[rule], figure)
           / kvs_pools_figure(&p->mean[other], figure);
}


/*
 * Returns the better of an "always" rule and "never" at a point: the one with
 * more goodput, or with equal goodput (within the allowed difference) the one
 * with the lower TTFT.
 */
static uint32_t
kvs_pools_better(const kvs_pools_point_t *p, uint32_t always)
{
    double  ratio;

    ratio = kvs_pools_ratio(p, always, KVS_LEGS_NEVER, KVS_POOLS_GOODPUT);

    if (ratio <= KVS_POOLS_WORSE && ratio >= 1 / KVS_POOLS_WORSE) {
        ratio = kvs_pools_ratio(p, always, KVS_LEGS_NEVER, KVS_POOLS_TTFT);
    }

    return ratio < 1 ? always : KVS_LEGS_NEVER;
}


static void
kvs_pools_means(kvs_pools_grid_t *g)
{
    double                    seeds;
    uint32_t                  i, k, s;
    kvs_legs_result_t        *m;
    const kvs_legs_result_t  *r;

    seeds = g->options->seeds;
    r = g->result;

    for (i = 0; i < g->n; i++) {
        for (k = 0; k < KVS_POOLS_RUNS; k++) {
            m = &g->point[i].mean[k];

            memset(m, 0, sizeof(kvs_legs_result_t));

            for (s = 0; s < g->options->seeds; s++, r++) {
                m->measured += r->measured;
                m->done += r->done;
                m->rate += r->rate / seeds;
                m->transfer += r->transfer / seeds;
                m->ttft += r->ttft / seeds;
                m->ttft_p50 += r->ttft_p50 / seeds;
                m->ttft_p95 += r->ttft_p95 / seeds;
                m->tpt += r->tpt / seeds;
                m->tpt_p99 += r->tpt_p99 / seeds;
                m->itl += r->itl / seeds;
                m->itl_p99 += r->itl_p99 / seeds;
                m->goodput += r->goodput / seeds;
                m->apart += r->apart / seeds;
                m->computed += r->computed / seeds;
                m->transferred += r->transferred / seeds;
            }
        }
    }
}


static void
kvs_pools_rows(const kvs_pools_point_t *p, cJSON *points)
{
    cJSON                    *js, *rules, *row;
    uint32_t                  k;
    const kvs_legs_result_t  *m;

    printf("\n%s, %s, %s, load %.2f: %.2f requests/s, transfer=%.2f\n",
           p->shape->name, p->ratio, p->link->name, p->load,
           p->mean[0].rate, p->mean[0].transfer);
    printf("  %-12s %8s %8s %8s %8s %8s %8s %6s\n", "", "TTFT", "P95",
           "per tok.", "P99", "ITL P99", "goodput", "apart");

    js = cJSON_CreateObject();
    cJSON_AddItemToArray(points, js);

    cJSON_AddStringToObject(js, "shape", p->shape->name);
    cJSON_AddStringToObject(js, "pools", p->ratio);
    cJSON_AddStringToObject(js, "link", p->link->name);
    cJSON_AddNumberToObject(js, "load", p->load);
    cJSON_AddNumberToObject(js, "rate", p->mean[0].rate);
    cJSON_AddNumberToObject(js, "transfer", p->mean[0].transfer);
    cJSON_AddStringToObject(js, "better",
        kvs_legs_rules[kvs_pools_better(p, KVS_LEGS_WHEN_ALWAYS)]);
    rules = cJSON_AddObjectToObject(js, "rules");

    for (k = 0; k < KVS_LEGS_RULES; k++) {
        m = &p->mean[k];

        if (m->done == 0) {
            continue;
        }

        printf("  %-12s %8.3f %8.3f %8.4f %8.4f %8.4f %8.3f %6.2f\n",
               kvs_legs_rules[k], m->ttft, m->ttft_p95, m->tpt, m->tpt_p99,
               m->itl_p99, m->goodput, m->apart);

        row = cJSON_AddObjectToObject(rules, kvs_legs_rules[k]);

        cJSON_AddNumberToObject(row, "measured", m->measured);
        cJSON_AddNumberToObject(row, "done", m->done);
        cJSON_AddNumberToObject(row, "ttft_s", m->ttft);
        cJSON_AddNumberToObject(row, "ttft_p50_s", m->ttft_p50);
        cJSON_AddNumberToObject(row, "ttft_p95_s", m->ttft_p95);
        cJSON_AddNumberToObject(row, "tpt_s", m->tpt);
        cJSON_AddNumberToObject(row, "tpt_p99_s", m->tpt_p99);
        cJSON_AddNumberToObject(row, "itl_s", m->itl);
        cJSON_AddNumberToObject(row, "itl_p99_s", m->itl_p99);
        cJSON_AddNumberToObject(row, "goodput", m->goodput);
        cJSON_AddNumberToObject(row, "disaggregated", m->apart);
        cJSON_AddNumberToObject(row, "computed", m->computed);
        cJSON_AddNumberToObject(row, "transferred", m->transferred);
    }
}


/* our rule relative to each rule, geometric means; below 1 ours is better */
static void
kvs_pools_means_of(const kvs_pools_grid_t *g, cJSON *json)
{
    double    log_of, all;
    cJSON    *rules, *row;
    uint32_t  i, k, f;

    rules = cJSON_AddObjectToObject(json, "ours_by_rule");

    printf("\ncost by each rule, geometric means: below 1, cost is better\n"
           "  %-12s %8s %8s %8s %8s\n", "", "TTFT", "tok. P99", "goodput",
           "all");

    for (k = 1; k < kvr_min(g->runs, KVS_LEGS_RULES); k++) {
        row = cJSON_AddObjectToObject(rules, kvs_legs_rules[k]);
        all = 0;

        printf("  %-12s", kvs_legs_rules[k]);

        for (f = 0; f < KVS_POOLS_FIGURES; f++) {
            log_of = 0;

            for (i = 0; i < g->n; i++) {
                log_of += log(kvs_pools_ratio(&g->point[i], KVS_LEGS_COST, k,
                                              f)) / g->n;
            }

            all += log_of / KVS_POOLS_FIGURES;

            printf(" %8.3f", exp(log_of));
            cJSON_AddNumberToObject(row, kvs_pools_figures[f], exp(log_of));
        }

        printf(" %8.3f\n", exp(all));
        cJSON_AddNumberToObject(row, "all", exp(all));
    }
}


/*
 * Points where our rule is worse than the better of an "always" rule and
 * "never", by more than the allowed difference.
 */
static void
kvs_pools_misses(const kvs_pools_grid_t *g, uint32_t always, cJSON *held)
{
    double                    ratio, best;
    cJSON                    *js, *misses, *row;
    uint32_t                  i, f, n, strict, better;
    uint32_t                  count[KVS_POOLS_FIGURES];
    const kvs_pools_point_t  *p;

    js = cJSON_CreateObject();
    cJSON_AddItemToArray(held, js);

    cJSON_AddStringToObject(js, "always", kvs_legs_rules[always]);
    misses = cJSON_AddArrayToObject(js, "misses");

    memset(count, 0, sizeof(count));
    n = 0;
    strict = 0;

    printf("\nworse than the better one of \"%s\" and \"never\" by more than "
           "%.0f %%\n", kvs_legs_rules[always], (KVS_POOLS_WORSE - 1) * 100);

    for (i = 0; i < g->n; i++) {
        p = &g->point[i];
        better = kvs_pools_better(p, always);

        for (f = 0; f < KVS_POOLS_FIGURES; f++) {
            ratio = kvs_pools_ratio(p, KVS_LEGS_COST, better, f);

            best = kvr_max(kvs_pools_ratio(p, KVS_LEGS_COST, always, f),
                           kvs_pools_ratio(p, KVS_LEGS_COST, KVS_LEGS_NEVER,
                                           f));
            strict += best > KVS_POOLS_WORSE;

            if (ratio <= KVS_POOLS_WORSE) {
                continue;
            }

            n++;
            count[f]++;

            printf("  %-8s %s %-10s %.2f  %-11s  %s %.3f\n", p->shape->name,
                   p->ratio, p->link->name, p->load, kvs_legs_rules[better],
                   kvs_pools_figures[f], ratio);

            row = cJSON_CreateObject();
            cJSON_AddItemToArray(misses, row);

            cJSON_AddNumberToObject(row, "point", i);
            cJSON_AddStringToObject(row, "figure", kvs_pools_figures[f]);
            cJSON_AddStringToObject(row, "better", kvs_legs_rules[better]);
            cJSON_AddNumberToObject(row, "ratio", ratio);
        }
    }

    printf("%u of %u: %u in TTFT, %u in time per token, %u in goodput; %u if "
           "each figure\nis held against the better one in that figure\n", n,
           g->n * KVS_POOLS_FIGURES, count[0], count[1], count[2], strict);

    cJSON_AddNumberToObject(js, "compared", g->n * KVS_POOLS_FIGURES);
    cJSON_AddNumberToObject(js, "missed", n);

    for (f = 0; f < KVS_POOLS_FIGURES; f++) {
        cJSON_AddNumberToObject(js, kvs_pools_figures[f], count[f]);
    }

    cJSON_AddNumberToObject(js, "misses_by_figure", strict);
}


/* returns whether a figure of two runs differs by more than allowed */
static uint32_t
kvs_pools_differs(const kvs_legs_result_t *a, const kvs_legs_result_t *b,
    uint32_t figure)
{
    double  ratio;

    ratio = kvs_pools_figure(a, figure) / kvs_pools_figure(b, figure);

    return ratio > KVS_POOLS_WORSE || ratio < 1 / KVS_POOLS_WORSE;
}


/* counts differences of the better rule to itself, of means and single runs */
static void
kvs_pools_noise(const kvs_pools_grid_t *g, cJSON *json)
{
    cJSON                    *js;
    uint32_t                  i, f, s, better, again, means, single, seeds;
    const kvs_legs_result_t  *r;

    means = 0;
    single = 0;
    seeds = g->options->seeds;

    for (i = 0; i < g->n; i++) {
        better = kvs_pools_better(&g->point[i], KVS_LEGS_WHEN_ALWAYS);
        again = better == KVS_LEGS_NEVER ? KVS_POOLS_AGAIN_NEVER
                                         : KVS_POOLS_AGAIN_ALWAYS;

        r = &g->result[i * KVS_POOLS_RUNS * seeds];

        for (f = 0; f < KVS_POOLS_FIGURES; f++) {
            means += kvs_pools_differs(&g->point[i].mean[better],
                                       &g->point[i].mean[again], f);

            for (s = 0; s < seeds; s++) {
                single += kvs_pools_differs(&r[better * seeds + s],
                                            &r[again * seeds + s], f);
            }
        }
    }

    printf("\nnoise: the better rule differs from itself by more than %.0f %% "
           "in %u of %u;\nwith one seed in %.1f\n",
           (KVS_POOLS_WORSE - 1) * 100, means, g->n * KVS_POOLS_FIGURES,
           (double) single / seeds);

    js = cJSON_AddObjectToObject(json, "noise");

    cJSON_AddNumberToObject(js, "compared", g->n * KVS_POOLS_FIGURES);
    cJSON_AddNumberToObject(js, "differ", means);
    cJSON_AddNumberToObject(js, "differ_with_one_seed",
                            (double) single / seeds);
}


/* runs the grid with these seeds and runs per point; points or NULL */
static void
kvs_pools_seeds(kvs_pools_grid_t *g, uint64_t seed, uint32_t each, cJSON *json,
    cJSON *points)
{
    cJSON     *held;
    uint32_t   i, runs;

    g->seed = seed;
    g->runs = each;

    runs = g->n * KVS_POOLS_RUNS * g->options->seeds;

    g->result = kvs_contest_shared((runs + 1) * sizeof(kvs_legs_result_t));

    kvs_contest_spread(g->options->jobs, runs, kvs_pools_run, g);
    kvs_pools_means(g);

    for (i = 0; points && i < g->n; i++) {
        kvs_pools_rows(&g->point[i], points);
    }

    printf("\nseeds %llu to %llu\n", (unsigned long long) seed,
           (unsigned long long) seed + g->options->seeds - 1);

    cJSON_AddNumberToObject(json, "first_seed", (double) seed);

    kvs_pools_means_of(g, json);

    held = cJSON_AddArrayToObject(json, "held_against");

    kvs_pools_misses(g, KVS_LEGS_WHEN_ALWAYS, held);
    kvs_pools_misses(g, KVS_LEGS_ALWAYS, held);

    if (each == KVS_POOLS_RUNS) {
        kvs_pools_noise(g, json);
    }
}


int
kvs_pools(const kvs_options_t *o)
{
    int     rc;
    cJSON  *json, *points;

    static kvs_pools_grid_t  g;

    g.options = o;

    kvs_pools_points(&g);

    json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "hardware", KVS_POOLS_HARDWARE);
    cJSON_AddNumberToObject(json, "servers", KVS_POOLS_SERVERS);
    cJSON_AddNumberToObject(json, "seeds", o->seeds);
    cJSON_AddNumberToObject(json, "goodput_ttft_s", KVS_LEGS_TTFT);
    cJSON_AddNumberToObject(json, "goodput_itl_p99_s", KVS_LEGS_ITL);
    points = cJSON_AddArrayToObject(json, "points");

    kvs_pools_seeds(&g, o->seed, KVS_POOLS_RUNS, json, points);
    kvs_pools_seeds(&g, o->seed + KVS_POOLS_UNSEEN, KVS_LEGS_NEVER + 1,
                    cJSON_AddObjectToObject(json, "unseen_seeds"), NULL);

    rc = o->out ? kvs_report_save(json, o->out) : KVR_OK;

    cJSON_Delete(json);

    return rc;
}
