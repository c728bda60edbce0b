/*
 * The contest's results: a table for each point, a summary, and JSON.
 *
 * Ratios are of means over the seeds.  A policy whose runs did not end, or
 * that failed requests, counts as infinitely slow at that point.
 */

#include <stdio.h>

#include "bench/sim/report/report.h"


typedef struct {
    const char  *name;
    size_t       offset;
    int          more;           /* more is better */
} kvs_metric_t;


static const kvs_metric_t  kvs_metrics[] = {
    { "ttft_mean", offsetof(kvs_result_t, ttft), 0 },
    { "ttft_p50", offsetof(kvs_result_t, ttft_p50), 0 },
    { "ttft_p95", offsetof(kvs_result_t, ttft_p95), 0 },
    { "ttft_p99", offsetof(kvs_result_t, ttft_p99), 0 },
    { "e2e_mean", offsetof(kvs_result_t, e2e), 0 },
    { "e2e_p95", offsetof(kvs_result_t, e2e_p95), 0 },
    { "tpt_mean", offsetof(kvs_result_t, tpt), 0 },
    { "tpt_p99", offsetof(kvs_result_t, tpt_p99), 0 },
    { "throughput", offsetof(kvs_result_t, throughput), 1 },
    { "cached", offsetof(kvs_result_t, cached), 1 },
    { "imbalance", offsetof(kvs_result_t, imbalance), 0 },
    { "urgent_p99", offsetof(kvs_result_t, urgent_p99), 0 },
    { "busiest", offsetof(kvs_result_t, most), 0 },
    { "least_busy", offsetof(kvs_result_t, least), 1 },
    { "predicted", offsetof(kvs_result_t, predicted), 1 },
    { "ttft_p90", offsetof(kvs_result_t, ttft_p90), 0 },
    { "fetched", offsetof(kvs_result_t, fetched), 1 },
    { "prefills", offsetof(kvs_result_t, prefills), 0 },
    { NULL, 0, 0 }
};

#define KVS_M_TPT      6
#define KVS_M_TPT99    7
#define KVS_M_BUSIEST  12
#define KVS_M_LEAST    13


double
kvs_report_value(const kvs_contest_t *c, uint32_t point, uint32_t policy,
    size_t offset)
{
    double               sum;
    uint32_t             i, n;
    const kvs_result_t  *r;

    sum = 0;
    n = 0;

    for (i = 0; i < c->seeds; i++) {
        r = kvs_contest_result(c, point, policy, i);

        if (r->measured == 0) {
            continue;
        }

        sum += *(const double *) (const void *) ((const char *) r + offset);
        n++;
    }

    return n ? sum / n : NAN;
}


int
kvs_report_failed(const kvs_contest_t *c, uint32_t point, uint32_t policy)
{
    uint32_t             i;
    const kvs_result_t  *r;

    for (i = 0; i < c->seeds; i++) {
        r = kvs_contest_result(c, point, policy, i);

        if (r->capped || r->failed * 100 > r->measured) {
            return 1;
        }
    }

    return 0;
}


double
kvs_report_latency(const kvs_contest_t *c, uint32_t point, uint32_t policy,
    uint32_t metric)
{
    if (kvs_report_failed(c, point, policy)) {
        return kvs_metrics[metric].more ? 0 : INFINITY;
    }

    return kvs_report_value(c, point, policy, kvs_metrics[metric].offset);
}


/* returns the best of a kind of policies at a point */
double
kvs_report_best(const kvs_contest_t *c, uint32_t point, uint32_t metric,
    unsigned kinds, uint32_t *which)
{
    int       more;
    double    v, best;
    uint32_t  p;

    more = kvs_metrics[metric].more;
    best = more ? 0 : INFINITY;

    for (p = 0; p < c->npolicies; p++) {

        if (!(c->policy[p]->kind & kinds)) {
            continue;
        }

        v = kvs_report_latency(c, point, p, metric);

        if (more ? v > best : v < best) {
            best = v;

            if (which) {
                *which = p;
            }
        }
    }

    return best;
}


/* returns whether kv_cache without the queue is past its own knee */
static int
kvs_report_full(const kvs_contest_t *c, uint32_t point)
{
    uint32_t  p;

    p = kvs_report_find(c, "kv_cache");

    return p < c->npolicies
           && kvs_report_value(c, point, p, offsetof(kvs_result_t, completed))
              < KVS_KNEE;
}


void
kvs_report_vs(const kvs_contest_t *c, uint32_t policy, uint32_t rival,
    kvs_side_e side, uint32_t metric, kvs_ratio_t *ratio)
{
    double    v, best, sum;
    uint32_t  i, n;

    ratio->worst = 0;
    ratio->where = 0;
    sum = 0;
    n = 0;

    for (i = 0; i < c->npoints; i++) {

        if (kvs_report_hot(&c->point[i]) != (side == KVS_HOT_ONES)
            || (side == KVS_FULL_ONES && !kvs_report_full(c, i))
            || (side == KVS_BELOW && c->point[i].load > 1)
            || (side == KVS_PAST && c->point[i].load <= 1))
        {
            continue;
        }

        v = kvs_report_latency(c, i, policy, metric);

        best = rival == KVS_BEST
               ? kvs_report_best(c, i, metric, KVS_RIVAL, NULL)
               : kvs_report_latency(c, i, rival, metric);

        if (isnan(v) || isnan(best) || best == INFINITY || best == 0) {
            continue;
        }

        /* an endless run counts as a thousand times slower */

        v = fmax(fmin(v / best, 1000), 0.001);

        if (kvs_metrics[metric].more) {

            if (v < ratio->worst || n == 0) {
                ratio->worst = v;
                ratio->where = i;
            }

            sum += log(v);
            n++;
            continue;
        }

        sum += log(v);
        n++;

        if (v > ratio->worst) {
            ratio->worst = v;
            ratio->where = i;
        }
    }

    ratio->n = n;
    ratio->geo = n ? exp(sum / n) : NAN;
}


/* returns the rival that is nearest to the best one over all points */
uint32_t
kvs_report_single(const kvs_contest_t *c, uint32_t metric)
{
    double       best;
    uint32_t     p, single;
    kvs_ratio_t  r;

    best = INFINITY;
    single = KVS_BEST;

    for (p = 0; p < c->npolicies; p++) {

        if (!(c->policy[p]->kind & KVS_RIVAL)) {
            continue;
        }

        kvs_report_vs(c, p, KVS_BEST, KVS_ALL, metric, &r);

        if (r.geo < best) {
            best = r.geo;
            single = p;
        }
    }

    return single;
}


static void
kvs_report_point(const kvs_contest_t *c, uint32_t i)
{
    double              best[4];
    uint32_t            p;
    const kvs_point_t  *point;

    point = &c->point[i];

    best[0] = kvs_report_best(c, i, KVS_M_TTFT, KVS_RIVAL, NULL);
    best[1] = kvs_report_best(c, i, KVS_M_P99, KVS_RIVAL, NULL);
    best[2] = kvs_report_best(c, i, KVS_M_E2E, KVS_RIVAL, NULL);
    best[3] = kvs_report_best(c, i, KVS_M_TPT, KVS_RIVAL, NULL);

    printf("\n%s: %u x %s, %.2f of the knee, %.2f/s\n", point->scenario->name,
           point->scenario->fleet.replicas, point->scenario->fleet.hardware,
           point->load, point->rate);
    printf("  %-20s %8s %8s %8s %8s %8s %6s %6s %6s %8s %8s %5s %5s   "
           "to the best rival's\n", "", "TTFT", "P50", "P95", "P99", "E2E",
           "cached", "imbal.", "busy", "a token", "P99", "most", "least");

    for (p = 0; p < c->npolicies; p++) {

        if (isnan(kvs_report_latency(c, i, p, KVS_M_TTFT))) {
            continue;
        }

#define V(field)  kvs_report_value(c, i, p, offsetof(kvs_result_t, field))

        printf("  %-20s %8.3f %8.3f %8.3f %8.3f %8.3f %6.3f %6.2f %6.2f "
               "%8.5f %8.5f %5.2f %5.2f",
               c->policy[p]->name, V(ttft), V(ttft_p50), V(ttft_p95),
               V(ttft_p99), V(e2e), V(cached), V(imbalance), V(busy),
               V(tpt), V(tpt_p99), V(most), V(least));

        if (best[0] < INFINITY) {
            printf("   %5.2f %5.2f %5.2f %5.2f", V(ttft) / best[0],
                   V(ttft_p99) / best[1], V(e2e) / best[2],
                   V(tpt) / best[3]);
        }

        printf("%s\n", kvs_report_failed(c, i, p) ? "  failed" : "");
    }
}


static void
kvs_report_row(const kvs_contest_t *c, uint32_t p, uint32_t rival)
{
    uint32_t     past, k;
    kvs_ratio_t  r[2][3];

    static const uint32_t  metric[3] = { KVS_M_TTFT, KVS_M_P99, KVS_M_E2E };

    for (past = 0; past < 2; past++) {
        for (k = 0; k < 3; k++) {
            kvs_report_vs(c, p, rival, past ? KVS_PAST : KVS_BELOW, metric[k],
                          &r[past][k]);
        }
    }

    printf("  %-20s", c->policy[p]->name);

    for (past = 0; past < 2; past++) {
        for (k = 0; k < 3; k++) {
            printf(" %6.3f", r[past][k].geo);
        }

        printf(" (");

        for (k = 0; k < 3; k++) {
            printf("%s%.1f", k ? " " : "", r[past][k].worst);
        }

        printf(")%s", past ? "\n" : "  ");
    }
}


double
kvs_report_extreme(const kvs_contest_t *c, uint32_t policy, uint32_t metric,
    uint32_t *where)
{
    double    v, extreme;
    uint32_t  i;

    extreme = NAN;

    for (i = 0; i < c->npoints; i++) {

        if (!kvs_report_hot(&c->point[i])) {
            continue;
        }

        v = kvs_report_value(c, i, policy, kvs_metrics[metric].offset);

        if (isnan(v)) {
            continue;
        }

        if (isnan(extreme)
            || (kvs_metrics[metric].more ? v < extreme : v > extreme))
        {
            extreme = v;
            *where = i;
        }
    }

    return extreme;
}


static void
kvs_report_hots(const kvs_contest_t *c)
{
    double        v;
    uint32_t      p, k, where;
    kvs_ratio_t   r;

    static const uint32_t  metric[5] = { KVS_M_TTFT, KVS_M_P99, KVS_M_E2E,
                                         KVS_M_TPT, KVS_M_TPT99 };
    static const uint32_t  share[2] = { KVS_M_BUSIEST, KVS_M_LEAST };

    printf("\nhot prefixes: TTFT, P99, E2E, time per token, its P99: geometric "
           "mean (worst); load of the busiest and the least busy, worst\n");

    for (p = 0; p < c->npolicies; p++) {

        kvs_report_vs(c, p, KVS_BEST, KVS_HOT_ONES, KVS_M_TTFT, &r);

        if (r.n == 0) {
            continue;
        }

        printf("  %-20s", c->policy[p]->name);

        for (k = 0; k < 5; k++) {
            kvs_report_vs(c, p, KVS_BEST, KVS_HOT_ONES, metric[k], &r);
            printf(" %5.3f (%.2f %s %g)", r.geo, r.worst,
                   c->point[r.where].scenario->name, c->point[r.where].load);
        }

        for (k = 0; k < 2; k++) {
            where = 0;
            v = kvs_report_extreme(c, p, share[k], &where);
            printf("  %.2f (%s %g)", v, c->point[where].scenario->name,
                   c->point[where].load);
        }

        printf("\n");
    }
}


/* prints the points where ours is far behind the best rival */
static void
kvs_report_above(const kvs_contest_t *c)
{
    double    v[3], best[3];
    uint32_t  i, p, k, which[3];

    static const uint32_t  metric[3] = { KVS_M_TTFT, KVS_M_P99, KVS_M_E2E };

    printf("\nTTFT or P99 above 1.5, or end to end above 1.25\n");

    for (p = 0; p < c->npolicies; p++) {

        if (strncmp(c->policy[p]->name, "kv_cache", 8) != 0) {
            continue;
        }

        for (i = 0; i < c->npoints; i++) {

            for (k = 0; k < 3; k++) {
                which[k] = p;
                best[k] = kvs_report_best(c, i, metric[k], KVS_RIVAL,
                                          &which[k]);
                v[k] = kvs_report_latency(c, i, p, metric[k]) / best[k];
            }

            if (kvs_report_hot(&c->point[i])
                || !(v[0] > 1.5 || v[1] > 1.5 || v[2] > 1.25))
            {
                continue;
            }

            printf("  %-20s %-18s %.2f   TTFT %.2f (%s)  P99 %.2f (%s)  "
                   "E2E %.2f (%s)\n", c->policy[p]->name,
                   c->point[i].scenario->name, c->point[i].load,
                   v[0], c->policy[which[0]]->name,
                   v[1], c->policy[which[1]]->name,
                   v[2], c->policy[which[2]]->name);
        }
    }
}


uint32_t
kvs_report_find(const kvs_contest_t *c, const char *name)
{
    uint32_t  p;

    for (p = 0; p < c->npolicies; p++) {
        if (strcmp(c->policy[p]->name, name) == 0) {
            break;
        }
    }

    return p;
}


/* prints the loss against the oracle in the scenarios of the study */
int
kvs_report_loss(const kvs_contest_t *c, uint32_t p, kvs_group_e group,
    uint32_t metric, kvs_ratio_t *ratio)
{
    double     v, o, sum;
    uint32_t   i, n, oracle;
    unsigned   flags;

    oracle = kvs_report_find(c, "oracle");

    if (oracle == c->npolicies) {
        return KVR_DECLINED;
    }

    sum = 0;
    n = 0;
    ratio->worst = 0;

    for (i = 0; i < c->npoints; i++) {
        flags = c->point[i].scenario->flags;

        if (!(flags & KVS_INDEX)
            || group != (flags & KVS_RESTART ? KVS_RESTART_ONES
                         : flags & KVS_STARVED ? KVS_STARVED_ONES
                         : KVS_AMPLE_ONES))
        {
            continue;
        }

        v = kvs_report_latency(c, i, p, metric);
        o = kvs_report_latency(c, i, oracle, metric);

        if (isnan(v) || isnan(o) || o == INFINITY) {
            continue;
        }

        v = fmin(v / o, 1000);
        sum += log(v);
        n++;

        if (v > ratio->worst) {
            ratio->worst = v;
            ratio->where = i;
        }
    }

    ratio->n = n;
    ratio->geo = n ? exp(sum / n) : NAN;

    return n ? KVR_OK : KVR_DECLINED;
}


static void
kvs_report_index(const kvs_contest_t *c)
{
    uint32_t     p, s, k;
    kvs_ratio_t  r;

    static const uint32_t  metric[3] = { KVS_M_TTFT, KVS_M_P99, KVS_M_E2E };

    printf("\nto the oracle, TTFT, P99, E2E (worst): replicas that can hold "
           "what is reused; starved ones; one restarted\n");

    for (p = 0; p < c->npolicies; p++) {

        if (!(c->policy[p]->kind
              & (KVS_STUDY|KVS_OURS|KVS_PARAM))
            || (kvs_report_loss(c, p, 0, KVS_M_TTFT, &r) == KVR_DECLINED
                && kvs_report_loss(c, p, 1, KVS_M_TTFT, &r) == KVR_DECLINED
                && kvs_report_loss(c, p, 2, KVS_M_TTFT, &r) == KVR_DECLINED))
        {
            continue;
        }

        printf("  %-20s", c->policy[p]->name);

        for (s = 0; s < KVS_GROUPS; s++) {
            for (k = 0; k < 3; k++) {
                if (kvs_report_loss(c, p, s, metric[k], &r) == KVR_OK) {
                    printf(" %6.3f (%.2f)", r.geo, r.worst);
                }
            }

            printf("  ");
        }

        printf("\n");
    }
}


void
kvs_report_tables(const kvs_contest_t *c)
{
    uint32_t     i, p, k, single;
    kvs_ratio_t  r;

    static const uint32_t  metric[3] = { KVS_M_TTFT, KVS_M_P99, KVS_M_E2E };

    if (!c->options->summary) {
        for (i = 0; i < c->npoints; i++) {
            kvs_report_point(c, i);
        }
    }

    printf("\ngeometric mean to the best rival of each point (worst), "
           "%u points, %u seeds\n"
           "  %-20s %-38s %s\n", c->npoints, c->seeds, "",
           "below the knee: TTFT, P99, E2E", "past the knee");

    for (p = 0; p < c->npolicies; p++) {
        if (!(c->policy[p]->kind & KVS_STUDY)) {
            kvs_report_row(c, p, KVS_BEST);
        }
    }

    printf("\nagainst the single rival that is best over all points\n");

    for (p = 0; p < c->npolicies; p++) {

        if (!(c->policy[p]->kind & (KVS_OURS|KVS_PARAM))) {
            continue;
        }

        printf("  %-20s", c->policy[p]->name);

        for (k = 0; k < 3; k++) {
            single = kvs_report_single(c, metric[k]);

            if (single == KVS_BEST) {
                continue;
            }

            kvs_report_vs(c, p, single, KVS_ALL, metric[k], &r);
            printf("  %s %+.1f%% (%s)", k == 0 ? "TTFT" : k == 1 ? "P99"
                   : "E2E", (r.geo - 1) * 100, c->policy[single]->name);
        }

        printf("\n");
    }

    kvs_report_hots(c);
    kvs_report_above(c);
    kvs_report_index(c);
}


uint32_t
kvs_report_metrics(uint32_t i, const char **name, size_t *offset, int *more)
{
    *name = kvs_metrics[i].name;
    *offset = kvs_metrics[i].offset;
    *more = kvs_metrics[i].more;

    return kvs_metrics[i].name != NULL;
}
