/*
 * Writes the results of the contest as JSON.
 */

#include <stdio.h>

#include <cjson/cJSON.h>

#include "bench/sim/report/calibrate.h"
#include "bench/sim/report/demo.h"
#include "bench/sim/report/published.h"
#include "bench/sim/report/report_json.h"


/* the policy that is compared with the rivals: the default one */
#define KVS_DEFAULT  "kv_cache"


static const struct {
    const char  *name;
    const char  *metric;
} kvs_headlines[] = {
    { "ttft", "ttft_mean" },
    { "p99", "ttft_p99" },
    { "e2e", "e2e_mean" },
    { "tpt", "tpt_mean" },
    { NULL, NULL }
};


/* adds a number with five significant digits */
static void
kvs_json_number(cJSON *js, const char *name, double v)
{
    char  text[32];

    if (isnan(v) || isinf(v)) {
        cJSON_AddNullToObject(js, name);
        return;
    }

    snprintf(text, sizeof(text), "%.5g", v);
    cJSON_AddRawToObject(js, name, text);
}


static uint32_t
kvs_json_metric(const char *name)
{
    int          more;
    size_t       offset;
    uint32_t     i;
    const char  *s;

    for (i = 0; kvs_report_metrics(i, &s, &offset, &more); i++) {
        if (strcmp(s, name) == 0) {
            break;
        }
    }

    return i;
}


static void
kvs_json_policies(const kvs_contest_t *c, cJSON *json)
{
    int           more;
    cJSON        *js, *m;
    size_t        offset;
    uint32_t      p, i;
    const char   *name;
    kvs_ratio_t   r;

    for (p = 0; p < c->npolicies; p++) {

        if (c->policy[p]->kind & KVS_STUDY) {
            continue;
        }

        js = cJSON_AddObjectToObject(json, c->policy[p]->name);

        cJSON_AddStringToObject(js, "kind",
                                c->policy[p]->kind & KVS_RIVAL ? "rival"
                                : c->policy[p]->kind & KVS_OURS ? "ours"
                                : "tried");

        for (i = 0; kvs_report_metrics(i, &name, &offset, &more); i++) {
            kvs_report_vs(c, p, KVS_BEST, KVS_ALL, i, &r);

            m = cJSON_AddObjectToObject(js, name);
            kvs_json_number(m, "geo", r.geo);
            kvs_json_number(m, "worst", r.worst);

            if (r.n) {
                cJSON_AddStringToObject(m, "worst_in",
                                        c->point[r.where].scenario->name);
            }
        }
    }
}


static void
kvs_json_vs(const kvs_contest_t *c, uint32_t policy, cJSON *json)
{
    cJSON        *js;
    uint32_t      side, k;
    kvs_ratio_t   r;

    for (side = KVS_BELOW; side <= KVS_PAST; side++) {

        js = cJSON_AddObjectToObject(json, side == KVS_BELOW ? "below_knee"
                                                             : "past_knee");

        for (k = 0; kvs_headlines[k].name; k++) {
            kvs_report_vs(c, policy, KVS_BEST, side,
                          kvs_json_metric(kvs_headlines[k].metric), &r);
            kvs_json_number(js, kvs_headlines[k].name, r.geo);
        }
    }
}


/* the change against the rival that is best overall, for each metric */
static void
kvs_json_single(const kvs_contest_t *c, uint32_t policy, cJSON *json)
{
    char          rival[32];
    uint32_t      k, metric, single;
    kvs_ratio_t   r;

    for (k = 0; kvs_headlines[k].name; k++) {
        metric = kvs_json_metric(kvs_headlines[k].metric);
        single = kvs_report_single(c, metric);

        if (single == KVS_BEST) {
            continue;
        }

        kvs_report_vs(c, policy, single, KVS_ALL, metric, &r);
        kvs_json_number(json, kvs_headlines[k].name, r.geo);

        snprintf(rival, sizeof(rival), "%s_rival", kvs_headlines[k].name);
        cJSON_AddStringToObject(json, rival, c->policy[single]->name);
    }
}


static void
kvs_json_point(const kvs_contest_t *c, uint32_t i, uint32_t ours, cJSON *json)
{
    int                 more;
    cJSON              *js, *res, *vs;
    double              v, best;
    size_t              offset;
    uint32_t            p, k, metric, which;
    const char         *name;
    const kvs_point_t  *point;

    point = &c->point[i];

    cJSON_AddStringToObject(json, "scenario", point->scenario->name);

    if (kvs_report_hot(point)) {
        cJSON_AddTrueToObject(json, "hot");
    }

    kvs_json_number(json, "load", point->load);
    kvs_json_number(json, "rate", point->rate);
    cJSON_AddNumberToObject(json, "requests", point->requests);

    vs = cJSON_AddObjectToObject(json, "vs_best_rival");

    for (k = 0; kvs_headlines[k].name && ours < c->npolicies; k++) {
        metric = kvs_json_metric(kvs_headlines[k].metric);
        which = KVS_BEST;
        best = kvs_report_best(c, i, metric, KVS_RIVAL, &which);
        v = kvs_report_latency(c, i, ours, metric);

        js = cJSON_AddObjectToObject(vs, kvs_headlines[k].name);
        kvs_json_number(js, "ratio", v / best);

        if (which != KVS_BEST) {
            cJSON_AddStringToObject(js, "rival", c->policy[which]->name);
        }
    }

    js = cJSON_AddObjectToObject(json, "policies");

    for (p = 0; p < c->npolicies; p++) {

        if (isnan(kvs_report_value(c, i, p, offsetof(kvs_result_t, ttft)))) {
            continue;
        }

        res = cJSON_AddObjectToObject(js, c->policy[p]->name);

        for (k = 0; kvs_report_metrics(k, &name, &offset, &more); k++) {
            kvs_json_number(res, name, kvs_report_value(c, i, p, offset));
        }

        if (kvs_report_failed(c, i, p)) {
            cJSON_AddTrueToObject(res, "failed");
        }
    }
}


static void
kvs_json_loss(const kvs_contest_t *c, cJSON *json)
{
    cJSON        *js, *side;
    uint32_t      p, s, k;
    kvs_ratio_t   r;

    static const char  *const groups[] = { "ample", "starved", "restart" };

    _Static_assert(sizeof(groups) / sizeof(groups[0]) == KVS_GROUPS,
                   "names of the groups");

    for (p = 0; p < c->npolicies; p++) {

        if (!(c->policy[p]->kind & (KVS_STUDY|KVS_OURS))
            || kvs_report_loss(c, p, 0, 0, &r) == KVR_DECLINED)
        {
            continue;
        }

        js = cJSON_AddObjectToObject(json, c->policy[p]->name);

        for (s = 0; s < KVS_GROUPS; s++) {
            side = cJSON_AddObjectToObject(js, groups[s]);

            for (k = 0; kvs_headlines[k].name; k++) {
                if (kvs_report_loss(c, p, s,
                                    kvs_json_metric(kvs_headlines[k].metric),
                                    &r)
                    == KVR_OK)
                {
                    kvs_json_number(side, kvs_headlines[k].name, r.geo);
                }
            }
        }
    }
}


static void
kvs_json_scenarios(const kvs_contest_t *c, cJSON *json)
{
    uint32_t  i;

    for (i = 0; i < c->npoints; i++) {
        if (i == 0 || c->point[i].scenario != c->point[i - 1].scenario) {
            cJSON_AddItemToArray(json,
                           cJSON_CreateString(c->point[i].scenario->name));
        }
    }
}


/* the same comparison for a variant of our policy that knows more of engines */
static void
kvs_json_more(const kvs_contest_t *c, const char *policy, const char *name,
    cJSON *json)
{
    cJSON     *js;
    uint32_t   p;

    p = kvs_report_find(c, policy);

    if (p == c->npolicies) {
        return;
    }

    js = cJSON_AddObjectToObject(json, name);

    kvs_json_vs(c, p, cJSON_AddObjectToObject(js, "vs_best_rival"));
    kvs_json_single(c, p, cJSON_AddObjectToObject(js, "vs_single_rival"));
}


/*
 * Hot prefixes: each policy's ratios to the best rival of each point, and the
 * load of its busiest and its least busy replica after the first minute.
 */
static void
kvs_json_hot(const kvs_contest_t *c, cJSON *json)
{
    double        v;
    cJSON        *js, *m;
    uint32_t      p, k, metric, where;
    kvs_ratio_t   r;

    static const struct {
        const char  *name;
        const char  *metric;
        int          ratio;
    } figure[] = {
        { "ttft", "ttft_mean", 1 }, { "p99", "ttft_p99", 1 },
        { "e2e", "e2e_mean", 1 }, { "tpt", "tpt_mean", 1 },
        { "tpt_p99", "tpt_p99", 1 }, { "busiest", "busiest", 0 },
        { "least_busy", "least_busy", 0 }
    };

    for (p = 0; p < c->npolicies; p++) {

        kvs_report_vs(c, p, KVS_BEST, KVS_HOT_ONES, 0, &r);

        if (r.n == 0) {
            continue;
        }

        js = cJSON_AddObjectToObject(json, c->policy[p]->name);

        for (k = 0; k < sizeof(figure) / sizeof(figure[0]); k++) {
            m = cJSON_AddObjectToObject(js, figure[k].name);
            metric = kvs_json_metric(figure[k].metric);

            if (figure[k].ratio) {
                kvs_report_vs(c, p, KVS_BEST, KVS_HOT_ONES, metric, &r);
                kvs_json_number(m, "geo", r.geo);
                kvs_json_number(m, "worst", r.worst);
                where = r.where;

            } else {
                where = 0;
                v = kvs_report_extreme(c, p, metric, &where);
                kvs_json_number(m, "worst", v);
            }

            cJSON_AddStringToObject(m, "worst_in",
                                    c->point[where].scenario->name);
            kvs_json_number(m, "worst_at", c->point[where].load);
        }
    }
}


/*
 * kv_cache with the queue, over the best rival: P99 of the urgent requests'
 * TTFT, and means.  First over the points past the knee, then over those past
 * the policy's own knee.
 */
static void
kvs_json_queue(const kvs_contest_t *c, cJSON *json)
{
    cJSON        *js;
    uint32_t      p, k, metric, i;
    kvs_ratio_t   r;

    static const char  *const name[2] = { "past_knee", "past_own_knee" };
    static const kvs_side_e  sides[2] = { KVS_PAST, KVS_FULL_ONES };
    static const char  *const figure[] = { "urgent_p99", "ttft_mean",
                                           "ttft_p99", "e2e_mean" };

    p = kvs_report_find(c, "kv_cache_queued");

    if (p == c->npolicies) {
        return;
    }

    for (i = 0; i < 2; i++) {

        js = cJSON_AddObjectToObject(json, name[i]);

        for (k = 0; k < sizeof(figure) / sizeof(figure[0]); k++) {
            metric = kvs_json_metric(figure[k]);
            kvs_report_vs(c, p, KVS_BEST, sides[i], metric, &r);
            kvs_json_number(js, figure[k], r.geo);

            if (k == 0 && r.n) {
                kvs_json_number(js, "urgent_p99_worst", r.worst);
                cJSON_AddStringToObject(js, "worst_in",
                                        c->point[r.where].scenario->name);
                cJSON_AddNumberToObject(js, "points", r.n);
            }
        }
    }
}


/* returns a member that another command has added to the file, or NULL */
static cJSON *
kvs_json_kept(const char *path, const char *name)
{
    long    size;
    char   *text;
    FILE   *f;
    cJSON  *old, *js;

    f = fopen(path, "r");

    if (f == NULL) {
        return NULL;
    }

    js = NULL;
    text = NULL;

    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 0) {
        rewind(f);

        text = kvs_alloc((size_t) size + 1);
        text[fread(text, 1, (size_t) size, f)] = '\0';

        old = cJSON_Parse(text);
        js = cJSON_DetachItemFromObject(old, name);
        cJSON_Delete(old);
    }

    fclose(f);
    free(text);

    return js;
}


int
kvs_report_json(const kvs_contest_t *c, const char *path)
{
    int        rc;
    cJSON     *json, *js, *array;
    uint32_t   i, ours;

    json = cJSON_CreateObject();
    ours = kvs_report_find(c, KVS_DEFAULT);

    kvs_json_scenarios(c, cJSON_AddArrayToObject(json, "scenarios"));
    cJSON_AddNumberToObject(json, "seeds", c->seeds);
    cJSON_AddNumberToObject(json, "first_seed", (double) c->options->seed);
    cJSON_AddBoolToObject(json, "full", c->options->full);

    kvs_json_policies(c, cJSON_AddObjectToObject(json, "policies"));

    if (ours < c->npolicies) {
        kvs_json_vs(c, ours, cJSON_AddObjectToObject(json, "vs_best_rival"));
        kvs_json_single(c, ours,
                        cJSON_AddObjectToObject(json, "vs_single_rival"));
    }

    kvs_json_more(c, "kv_cache_reported", "capacity_reported", json);
    kvs_json_more(c, "kv_cache_probed", "probed", json);
    kvs_json_more(c, "kv_cache_usage", "usage", json);

    kvs_json_hot(c, cJSON_AddObjectToObject(json, "hot"));

    kvs_json_queue(c, cJSON_AddObjectToObject(json, "with_queue"));

    array = cJSON_AddArrayToObject(json, "per_scenario");

    for (i = 0; i < c->npoints; i++) {
        js = cJSON_CreateObject();
        cJSON_AddItemToArray(array, js);
        kvs_json_point(c, i, ours, js);
    }

    kvs_json_loss(c, cJSON_AddObjectToObject(json, "index_loss"));

    /* keep the member that "make bench-sim-emulated" has added */

    js = kvs_json_kept(path, "sim_vs_emulated");

    cJSON_AddItemToObject(json, "sim_vs_emulated",
                          js ? js : cJSON_CreateObject());

    if (c->options->only == NULL) {
        printf("\n");
        kvs_json_number(json, "cpu_s_1m", kvs_cpu(c->options));

        kvs_published(c->options, json);

        kvs_demo(c->options, cJSON_AddObjectToObject(json, "demo"));
    }

    rc = kvs_report_save(json, path);

    cJSON_Delete(json);

    return rc;
}


int
kvs_report_save(const cJSON *json, const char *path)
{
    int    rc;
    char  *text;
    FILE  *f;

    rc = KVR_ERROR;
    text = cJSON_Print(json);
    f = fopen(path, "w");

    if (f && text && fprintf(f, "%s\n", text) > 0) {
        rc = KVR_OK;
    }

    if ((f && fclose(f) != 0) || rc != KVR_OK) {
        perror(path);
        rc = KVR_ERROR;
    }

    free(text);

    return rc;
}


/* the ablation: what each estimator of the router improves */

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


/*
 * Returns the policy BASE of an ablation named "BASE-WHAT", which is BASE
 * without WHAT; returns npolicies if the name is not of this form.
 */
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
kvs_report_ablation(const kvs_contest_t *c, const char *path)
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

    printf("\nratio without / with: TTFT, P99, E2E; %u points, %u seeds\n"
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
