/*
 * What each estimator of the router brings: the router without it, beside the
 * same router with it, by the same seeds.
 */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/sim/report/ablation.h"
#include "bench/sim/report/report_json.h"


typedef enum {
    KVS_ABLATION_BELOW = 0,          /* the knee */
    KVS_ABLATION_PAST,
    KVS_ABLATION_HOT,
    KVS_ABLATION_STARVED,
    KVS_ABLATION_GROUPS
} kvs_ablation_e;


static const char *const  kvs_ablation_names[] = {
    "below", "past", "hot", "starved"
};


static int
kvs_ablation_in(const kvs_point_t *point, kvs_ablation_e group)
{
    switch (group) {

    case KVS_ABLATION_HOT:
        return kvs_report_hot(point);

    case KVS_ABLATION_STARVED:
        return (point->scenario->flags & KVS_STARVED) != 0;

    default:
        return !kvs_report_hot(point)
               && (point->load > 1) == (group == KVS_ABLATION_PAST);
    }
}


/* geometric mean of the ratios over the points of a group; NAN: none */
static double
kvs_ablation_ratio(const kvs_contest_t *c, uint32_t policy, uint32_t base,
    kvs_ablation_e group, uint32_t metric)
{
    double    v, b, sum;
    uint32_t  i, n;

    sum = 0;
    n = 0;

    for (i = 0; i < c->npoints; i++) {

        if (!kvs_ablation_in(&c->point[i], group)) {
            continue;
        }

        v = kvs_report_latency(c, i, policy, metric);
        b = kvs_report_latency(c, i, base, metric);

        if (isfinite(v) && isfinite(b) && b > 0) {
            sum += log(v / b);
            n++;
        }
    }

    return n ? exp(sum / n) : NAN;
}


/* "BASE-WHAT" is BASE without WHAT; npolicies: it is none */
static uint32_t
kvs_ablation_base(const kvs_contest_t *c, const char *name, const char **what)
{
    char  base[64];

    *what = strchr(name, '-');

    if (*what == NULL) {
        return c->npolicies;
    }

    snprintf(base, sizeof(base), "%.*s", (int) (*what - name), name);
    ++*what;

    return kvs_report_find(c, base);
}


int
kvs_ablation(const kvs_contest_t *c, const char *path)
{
    int          rc;
    cJSON       *json, *js, *bases, *item;
    double       r;
    uint32_t     p, b, g, k;
    const char  *what, *name;

    static const uint32_t  metric[] = { KVS_M_TTFT, KVS_M_P99, KVS_M_E2E };
    static const char     *names[] = { "ttft_mean", "ttft_p99", "e2e_mean" };

    json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "points", c->npoints);
    cJSON_AddNumberToObject(json, "seeds", c->seeds);
    cJSON_AddNumberToObject(json, "first_seed", (double) c->options->seed);
    bases = cJSON_AddObjectToObject(json, "without");

    printf("\nwithout it, to with it: TTFT, P99, E2E; %u points, %u seeds\n"
           "  %-28s", c->npoints, c->seeds, "");

    for (g = 0; g < KVS_ABLATION_GROUPS; g++) {
        printf(" %-22s", kvs_ablation_names[g]);
    }

    printf("\n");

    for (p = 0; p < c->npolicies; p++) {
        name = c->policy[p]->name;
        b = kvs_ablation_base(c, name, &what);

        if (b == c->npolicies) {
            continue;
        }

        item = cJSON_GetObjectItem(bases, c->policy[b]->name);

        if (item == NULL) {
            item = cJSON_AddObjectToObject(bases, c->policy[b]->name);
        }

        item = cJSON_AddObjectToObject(item, what);

        printf("  %-28s", name);

        for (g = 0; g < KVS_ABLATION_GROUPS; g++) {
            js = cJSON_AddObjectToObject(item, kvs_ablation_names[g]);

            for (k = 0; k < 3; k++) {
                r = kvs_ablation_ratio(c, p, b, g, metric[k]);
                printf(" %6.4f", r);

                if (isfinite(r)) {
                    cJSON_AddNumberToObject(js, names[k], round(r * 1e4) / 1e4);
                }
            }

            printf("  ");
        }

        printf("\n");
    }

    rc = path ? kvs_report_save(json, path) : KVR_OK;

    cJSON_Delete(json);

    return rc;
}
