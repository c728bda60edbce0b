/*
 * The grid of several hosts: without sharing, with homes, and sharing with a
 * lag and a loss.  Each cell is several runs, compared with those of one host.
 */

#include <cjson/cJSON.h>
#include <stdio.h>

#include "bench/sim/report/report_json.h"
#include "bench/sim/report/several.h"
#include "bench/sim/router/hosts.h"


#define KVS_CELLS       1024

/* unless --only and --load say otherwise */
#define KVS_HOSTS_ONLY  "=agents,=zipf,=conversation"
#define KVS_HOSTS_LOAD  0.9

/* credit of homes if nothing else is shared, and if all is */
#define KVS_HOSTS_HOME  KVR_HOME_CREDIT
#define KVS_HOSTS_TIE   0.02


static const double    kvs_hosts_lags[] = { 0, 0.005, 0.1, 1, 10 };
static const double    kvs_hosts_losses[] = { 0, 0.01, 0.1, 0.5 };
static const double    kvs_hosts_homes[] = { 0, 0.1, KVS_HOSTS_HOME, 0.9 };
static const uint32_t  kvs_hosts_counts[] = { 2, 4, 8 };

static const char *const  kvs_hosts_refresh[] = { "none", "thin", "all" };
static const char *const  kvs_hosts_by[] = { "crowd", "user", "begin" };

_Static_assert(kvr_nelts(kvs_hosts_refresh) == KVS_REFRESH_MAX, "refresh");
_Static_assert(kvr_nelts(kvs_hosts_by) == KVS_HOME_MAX, "homes");


typedef struct {
    kvs_hosts_conf_t       conf;
    const kvs_scenario_t  *scenario;
    uint32_t               one;        /* the cell of one host */
    kvs_result_t           mean;
} kvs_cell_t;


typedef struct {
    const kvs_options_t   *options;
    double                 load;
    kvs_cell_t             cell[KVS_CELLS];
    uint32_t               n;
    uint32_t               one;
    kvs_result_t          *result;     /* [cell][seed] */
} kvs_grid_t;


/* adds a cell of hosts without sharing; the caller can change it */
static kvs_hosts_conf_t *
kvs_hosts_cell(kvs_grid_t *g, const kvs_scenario_t *sc, uint32_t hosts)
{
    kvs_cell_t  *c;

    if (g->n == KVS_CELLS) {
        fprintf(stderr, "more than %u cells\n", KVS_CELLS);
        exit(2);
    }

    c = &g->cell[g->n++];

    c->scenario = sc;
    c->one = g->one;
    c->conf.hosts = hosts;
    c->conf.router.policy = KVR_POLICY_KV_CACHE;
    c->conf.router.timed = 1;
    c->conf.router.usage = 1;

    return &c->conf;
}


static kvs_hosts_conf_t *
kvs_hosts_shared(kvs_grid_t *g, const kvs_scenario_t *sc, uint32_t hosts,
    double lag, double loss)
{
    kvs_hosts_conf_t  *conf;

    conf = kvs_hosts_cell(g, sc, hosts);

    conf->shared = 1;
    conf->load = 1;
    conf->refresh = KVS_REFRESH_THIN;
    conf->lag = lag;
    conf->loss = loss;

    return conf;
}


static void
kvs_hosts_cells(kvs_grid_t *g, const kvs_scenario_t *sc)
{
    size_t             i, k, m;
    kvs_hosts_conf_t  *conf;

    g->one = g->n;
    (void) kvs_hosts_cell(g, sc, 1);

    /* the cost of homes where they are not needed */

    kvs_hosts_cell(g, sc, 1)->router.home = KVS_HOSTS_HOME;

    for (i = 0; i < kvr_nelts(kvs_hosts_counts); i++) {
        for (k = 0; k < kvr_nelts(kvs_hosts_homes); k++) {
            conf = kvs_hosts_cell(g, sc, kvs_hosts_counts[i]);
            conf->router.home = kvs_hosts_homes[k];
        }
    }

    /* other keys of a home */

    for (k = KVS_HOME_USER; k <= KVS_HOME_BEGIN; k++) {
        conf = kvs_hosts_cell(g, sc, 8);
        conf->router.home = KVS_HOSTS_HOME;
        conf->router.home_by = k;
    }

    for (i = 0; i < kvr_nelts(kvs_hosts_lags); i++) {
        for (k = 0; k < kvr_nelts(kvs_hosts_losses); k++) {

            (void) kvs_hosts_shared(g, sc, 8, kvs_hosts_lags[i],
                                    kvs_hosts_losses[k]);

            conf = kvs_hosts_shared(g, sc, 8, kvs_hosts_lags[i],
                                    kvs_hosts_losses[k]);
            conf->load = 0;
        }

        conf = kvs_hosts_shared(g, sc, 8, kvs_hosts_lags[i], 0);
        conf->router.home = KVS_HOSTS_TIE;
    }

    /* loads alone, and loads that count however old they are */

    conf = kvs_hosts_shared(g, sc, 8, 0.005, 0);
    conf->shared = 0;

    conf = kvs_hosts_shared(g, sc, 8, 10, 0);
    conf->stale = 1;

    for (k = KVS_REFRESH_NONE; k <= KVS_REFRESH_ALL; k += 2) {
        for (i = 0; i < kvr_nelts(kvs_hosts_losses); i++) {
            conf = kvs_hosts_shared(g, sc, 8, 0.005, kvs_hosts_losses[i]);
            conf->refresh = k;
        }
    }

    if (!g->options->full) {
        return;
    }

    for (i = 0; i < kvr_nelts(kvs_hosts_lags); i++) {
        for (k = 0; k < kvr_nelts(kvs_hosts_losses); k++) {

            for (m = 1; m < kvr_nelts(kvs_hosts_homes); m++) {
                conf = kvs_hosts_shared(g, sc, 8, kvs_hosts_lags[i],
                                        kvs_hosts_losses[k]);
                conf->router.home = kvs_hosts_homes[m];

                conf = kvs_hosts_shared(g, sc, 8, kvs_hosts_lags[i],
                                        kvs_hosts_losses[k]);
                conf->router.home = kvs_hosts_homes[m];
                conf->load = 0;
            }

            for (m = 0; m + 1 < kvr_nelts(kvs_hosts_counts); m++) {
                (void) kvs_hosts_shared(g, sc, kvs_hosts_counts[m],
                                        kvs_hosts_lags[i],
                                        kvs_hosts_losses[k]);
            }
        }
    }
}


static void
kvs_hosts_run(void *data, uint32_t i)
{
    kvs_grid_t *g = data;

    double           rate;
    kvs_cell_t      *c;
    kvs_fleet_t      fleet;
    kvs_policy_t     policy;
    kvs_workload_t  *w;

    c = &g->cell[i / g->options->seeds];

    w = kvs_workload_create(&c->scenario->shape, g->options->traces);

    fleet = c->scenario->fleet;
    fleet.routers = c->conf.hosts;

    policy = kvs_hosts_policy;
    policy.conf = &c->conf;

    rate = kvs_scenario_knee(c->scenario) * g->load;

    kvs_run(&fleet, w, &policy, rate,
            kvs_scenario_requests(c->scenario, rate, g->options->requests),
            g->options->seed + i % g->options->seeds, &g->result[i]);

    kvs_workload_destroy(w);
}


static void
kvs_hosts_mean(kvs_grid_t *g, kvs_cell_t *c)
{
    double         seeds;
    uint32_t       s;
    kvs_result_t  *r;

    seeds = g->options->seeds;

    for (s = 0; s < g->options->seeds; s++) {
        r = &g->result[(size_t) (c - g->cell) * g->options->seeds + s];

        c->mean.cached += r->cached / seeds;
        c->mean.ttft += r->ttft / seeds;
        c->mean.ttft_p99 += r->ttft_p99 / seeds;
        c->mean.imbalance += r->imbalance / seeds;
    }
}


static void
kvs_hosts_row(const kvs_grid_t *g, const kvs_cell_t *c, cJSON *cells)
{
    char                     text[96];
    cJSON                   *js;
    const kvs_result_t      *one;
    const kvs_hosts_conf_t  *conf;

    conf = &c->conf;
    one = &g->cell[c->one].mean;

    snprintf(text, sizeof(text), "%u %s%s", conf->hosts,
             conf->shared ? "shared" : conf->load ? "gauges" : "apart",
             conf->shared && !conf->load ? ", no gauges" : "");

    printf("  %-22s %6.3f %5.2f  %-4s %4.2f %-6s %6.4f %6.4f %8.3f %7.3f "
           "%8.3f %6.3f%s\n", text, conf->lag, conf->loss,
           kvs_hosts_refresh[conf->refresh], conf->router.home,
           conf->router.home > 0 ? kvs_hosts_by[conf->router.home_by] : "",
           c->mean.cached, c->mean.cached / one->cached, c->mean.ttft,
           c->mean.ttft / one->ttft, c->mean.ttft_p99, c->mean.imbalance,
           conf->stale ? "  (old gauges count)" : "");

    js = cJSON_CreateObject();
    cJSON_AddItemToArray(cells, js);

    cJSON_AddStringToObject(js, "scenario", c->scenario->name);
    cJSON_AddNumberToObject(js, "hosts", conf->hosts);
    cJSON_AddBoolToObject(js, "shared", conf->shared);
    cJSON_AddBoolToObject(js, "gauges", conf->load);
    cJSON_AddBoolToObject(js, "old_gauges_count", conf->stale);
    cJSON_AddNumberToObject(js, "lag_s", conf->lag);
    cJSON_AddNumberToObject(js, "loss", conf->loss);
    cJSON_AddStringToObject(js, "refresh", kvs_hosts_refresh[conf->refresh]);
    cJSON_AddNumberToObject(js, "home", conf->router.home);
    cJSON_AddStringToObject(js, "home_by", kvs_hosts_by[conf->router.home_by]);
    cJSON_AddNumberToObject(js, "cached", c->mean.cached);
    cJSON_AddNumberToObject(js, "cached_of_one", c->mean.cached / one->cached);
    cJSON_AddNumberToObject(js, "ttft_s", c->mean.ttft);
    cJSON_AddNumberToObject(js, "ttft_of_one", c->mean.ttft / one->ttft);
    cJSON_AddNumberToObject(js, "ttft_p99_s", c->mean.ttft_p99);
    cJSON_AddNumberToObject(js, "imbalance", c->mean.imbalance);
}


int
kvs_several(const kvs_options_t *o)
{
    int                    rc;
    cJSON                 *json, *cells;
    uint32_t               i;
    const kvs_scenario_t  *sc;

    static kvs_grid_t  g;

    g.options = o;
    g.load = o->load > 0 ? o->load : KVS_HOSTS_LOAD;

    for (sc = kvs_scenarios; sc->name; sc++) {

        if (!kvs_listed(o->only ? o->only : KVS_HOSTS_ONLY, sc->name)) {
            continue;
        }

        if (sc->shape.trace && o->traces == NULL) {
            fprintf(stderr, "%s: skipped, no trace (--traces DIR)\n",
                    sc->name);
            continue;
        }

        kvs_hosts_cells(&g, sc);
    }

    g.result = kvs_contest_shared((g.n * o->seeds + 1) * sizeof(kvs_result_t));

    kvs_contest_spread(o->jobs, g.n * o->seeds, kvs_hosts_run, &g);

    for (i = 0; i < g.n; i++) {
        kvs_hosts_mean(&g, &g.cell[i]);
    }

    json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "load", g.load);
    cJSON_AddNumberToObject(json, "seeds", o->seeds);
    cells = cJSON_AddArrayToObject(json, "cells");

    for (i = 0; i < g.n; i++) {

        if (g.cell[i].one == i) {
            printf("\n%s at %.2f of the knee\n  %-22s %6s %5s  %-4s %-11s "
                   "%6s %6s %8s %7s %8s %6s\n", g.cell[i].scenario->name,
                   g.load, "hosts", "lag", "loss", "told", "home", "cached",
                   "of one", "TTFT", "of one", "P99", "imbal.");
        }

        kvs_hosts_row(&g, &g.cell[i], cells);
    }

    rc = o->out ? kvs_report_save(json, o->out) : KVR_OK;

    cJSON_Delete(json);

    return rc;
}
