/*
 * Which policy runs where, and the runs, in several processes.
 */

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/sim/contest/cache.h"
#include "bench/sim/contest/contest.h"
#include "bench/sim/contest/with_queue.h"
#include "bench/sim/router/rivals_run.h"
#include "bench/sim/router/router.h"


/* length of a run, in mean sessions or replies */
#define KVS_SPANS    5
#define KVS_REPLIES  40

/* s, at least, for hot prefixes: shares count after the first minute */
#define KVS_LONG     180
#define KVS_CLOSED   1500

/* enough requests for such a run */
#define KVS_FEW      2000


/* returns whether the name contains one of the list's parts */
int
kvs_listed(const char *list, const char *name)
{
    char         part[128];
    size_t       n;
    const char  *p;

    for (p = list; *p; p += n + (p[n] == ',')) {

        n = strcspn(p, ",");

        if (n == 0 || n >= sizeof(part)) {
            continue;
        }

        memcpy(part, p, n);
        part[n] = '\0';

        if (part[0] == '=' ? strcmp(part + 1, name) == 0
                           : strstr(name, part) != NULL)
        {
            return 1;
        }
    }

    return 0;
}


void *
kvs_contest_shared(size_t size)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1,
             0);

    if (p == MAP_FAILED) {
        perror("mmap()");
        exit(2);
    }

    return p;
}


void
kvs_contest_spread(uint32_t jobs, uint32_t n,
    void (*fn)(void *data, uint32_t i), void *data)
{
    int                failed, status;
    uint32_t           i, k;
    _Atomic uint32_t  *next;

    next = kvs_contest_shared(sizeof(uint32_t));

    fflush(stdout);
    fflush(stderr);

    for (k = 0; k < jobs; k++) {

        if (fork() == 0) {

            while ((i = atomic_fetch_add(next, 1)) < n) {
                fn(data, i);
            }

            fflush(stdout);
            _exit(0);
        }
    }

    failed = 0;

    while (wait(&status) > 0) {
        failed |= status;
    }

    munmap((void *) next, sizeof(uint32_t));

    if (failed) {
        fprintf(stderr, "a process failed\n");
        exit(2);
    }
}


static int
kvs_contest_takes(const kvs_contest_t *c, const kvs_point_t *point,
    const kvs_policy_t *policy)
{
    if ((policy->kind & KVS_QUEUED)
        && (point->load <= 1 || (point->scenario->flags & KVS_HOTS)
            || !kvs_with_queue_takes(point->scenario)))
    {
        return 0;
    }

    if (c->options->policies && kvs_listed(c->options->policies, policy->name))
    {
        return 1;
    }

    if (policy->kind & KVS_ABLATION) {
        return 0;
    }

    if (policy->kind & (KVS_RIVAL|KVS_OURS)) {
        return c->options->policies == NULL;
    }

    if (policy->kind & KVS_PARAM) {
        return c->options->lab && c->options->policies == NULL;
    }

    return c->options->policies == NULL
           && (c->options->study || (point->scenario->flags & KVS_INDEX));
}


/* a run is long enough for sessions and batches to come and go */
uint32_t
kvs_scenario_requests(const kvs_scenario_t *sc, double rate, uint32_t least)
{
    double              reply, length;
    kve_hw_t            hw;
    const kvs_shape_t  *s;

    if (!kve_hw_find(sc->fleet.hardware, &hw)) {
        return least;
    }

    s = &sc->shape;
    reply = s->output.mean * (hw.floor + hw.step);
    length = KVS_REPLIES * reply;

    if (sc->flags & KVS_HOTS) {
        length = fmax(length, KVS_LONG);
        least = kvr_min(least, KVS_FEW);
    }

    if (s->shape == KVS_AGENTS) {
        length = fmax(length, KVS_SPANS * s->steps.mean
                              * (s->pause.mean + reply));
    }

    return (uint32_t) fmax(least, length * rate);
}


static uint32_t
kvs_contest_points(const kvs_options_t *o, kvs_point_t *point)
{
    double                 knee, single[2];
    uint32_t               n;
    const double          *load;
    kvs_workload_t        *w;
    const kvs_scenario_t  *sc;

    n = 0;
    single[0] = o->load;
    single[1] = 0;

    for (sc = kvs_scenarios; sc->name; sc++) {

        if (o->only ? !kvs_listed(o->only, sc->name)
                    : !(o->full || (sc->flags & KVS_ALWAYS)))
        {
            continue;
        }

        w = kvs_workload_create(&sc->shape, o->traces);

        if (w == NULL) {
            if (point == NULL) {
                fprintf(stderr, "%s: skipped, no trace \"%s\" %s%s\n",
                        sc->name, sc->shape.trace,
                        o->traces ? "in " : "(--traces DIR)",
                        o->traces ? o->traces : "");
            }

            continue;
        }

        kvs_workload_destroy(w);

        if (sc->fleet.closed) {

            if (point) {
                point[n].scenario = sc;
                point[n].load = KVS_NO_LOAD;
                point[n].rate = 0;
                point[n].requests = KVS_CLOSED;
            }

            n++;
            continue;
        }

        knee = kvs_scenario_knee(sc);

        if (knee == 0) {
            fprintf(stderr, "%s: skipped, not calibrated\n", sc->name);
            continue;
        }

        load = o->load > 0 ? single
               : sc->flags & KVS_HOTS ? kvs_loads_hot
               : o->full ? kvs_loads_full : kvs_loads_always;

        for ( /* void */ ; *load > 0; load++) {

            if (point) {
                point[n].scenario = sc;
                point[n].load = *load;
                point[n].rate = *load * knee;
                point[n].requests = (uint32_t)
                    (o->length * kvs_scenario_requests(sc, *load * knee,
                                                       o->requests));
            }

            n++;
        }
    }

    return n;
}


uint32_t
kvs_contest_policies(const kvs_options_t *o, const kvs_policy_t **policy)
{
    size_t               i;
    uint32_t             n;
    const kvs_policy_t  *p, *lists[2];

    lists[0] = kvs_router_policies;
    lists[1] = kvs_rival_policies;

    n = 0;

    for (i = 0; i < 2; i++) {
        for (p = lists[i]; p->name && n < KVS_POLICIES; p++) {

            if (o->policies ? kvs_listed(o->policies, p->name)
                            : !(p->kind & KVS_ABLATION)
                              && (o->lab || !(p->kind & KVS_PARAM)))
            {
                policy[n++] = p;
            }
        }
    }

    return n;
}


static void
kvs_contest_task(void *data, uint32_t i)
{
    kvs_contest_t *c = data;

    uint32_t         p, k, seed;
    kvs_point_t     *point;
    kvs_result_t    *res;
    kvs_workload_t  *w;

    point = &c->point[i / c->seeds];
    seed = i % c->seeds;

    w = kvs_workload_create(&point->scenario->shape, c->options->traces);

    k = 0;

    kvs_cache_load(c, i / c->seeds, seed);

    for (p = 0; p < c->npolicies; p++) {

        res = kvs_contest_result(c, i / c->seeds, p, seed);

        if (!kvs_contest_takes(c, point, c->policy[p])) {
            memset(res, 0, sizeof(kvs_result_t));
            continue;
        }

        if (res->measured) {
            continue;
        }

        if (c->policy[p]->kind & KVS_QUEUED) {
            kvs_with_queue_run(&point->scenario->fleet, w, point->rate,
                               point->requests, c->options->seed + seed, res);

        } else {
            kvs_run(&point->scenario->fleet, w, c->policy[p], point->rate,
                    point->requests, c->options->seed + seed, res);
        }

        kvs_cache_save(c, i / c->seeds, p, seed);
        k++;
    }

    kvs_workload_destroy(w);

    if (!c->options->quiet) {
        fprintf(stderr, "%4u/%u %s at %.2f of the knee, seed %ju: %u "
                "policies\n", i + 1, c->npoints * c->seeds,
                point->scenario->name, point->load,
                (uintmax_t) (c->options->seed + seed), k);
    }
}


int
kvs_contest_run(kvs_contest_t *c, const kvs_options_t *o)
{
    memset(c, 0, sizeof(kvs_contest_t));

    c->options = o;
    c->seeds = o->seeds;
    c->npoints = kvs_contest_points(o, NULL);

    if (c->npoints == 0) {
        fprintf(stderr, "no scenario to run\n");
        return KVR_ERROR;
    }

    c->point = kvs_alloc(c->npoints * sizeof(kvs_point_t));
    c->npolicies = kvs_contest_policies(o, c->policy);

    if (c->npolicies == 0) {
        fprintf(stderr, "no policy to run\n");
        return KVR_ERROR;
    }

    kvs_contest_points(o, c->point);

    c->result = kvs_contest_shared((size_t) c->npoints * c->npolicies
                                   * c->seeds * sizeof(kvs_result_t));

    kvs_contest_spread(o->jobs, c->npoints * c->seeds, kvs_contest_task, c);

    return KVR_OK;
}
