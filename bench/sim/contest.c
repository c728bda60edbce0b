#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contest.h"
#include "demo.h"
#include "report.h"
#include "rivals_run.h"
#include "router.h"
#include "with_queue.h"


/* how many mean sessions, or replies, a run lasts */
#define KVS_SPANS    5
#define KVS_REPLIES  40

/* s: and of hot beginnings at least, as shares count from the first minute on */
#define KVS_LONG     180
#define KVS_CLOSED   1500

/* requests of such a run that are enough */
#define KVS_FEW      2000


static void kvs_contest_run(const kvs_options_t *o);
static void kvs_contest_task(void *data, uint32_t i);


static void
kvs_usage(void)
{
    fprintf(stderr,
        "usage: sim [options]\n"
        "  --full             all scenarios, at more loads\n"
        "  --traces DIR       where Mooncake's traces are\n"
        "  --out FILE         summary as JSON\n"
        "  --seeds N          runs of each point (3)\n"
        "  --seed S           the first seed (1)\n"
        "  --requests N       of a run, at least (6000)\n"
        "  --jobs N           processes (2)\n"
        "  --only A,B         scenarios whose names have A or B in them;\n"
        "                     =A for exactly A\n"
        "  --policies A,B     the same for policies\n"
        "  --load X           at this share of the knee only\n"
        "  --cache DIR        keeps results, and takes those it has: for\n"
        "                     going on with a run; empty it when the code "
        "changes\n"
        "  --summary          no table of each point\n"
        "  --lab              other parameters of our policies, too\n"
        "  --study            the index study in all scenarios\n"
        "  --calibrate        finds the knees (of --only)\n"
        "  --published        only the cases that others have published\n"
        "  --demo             make demo, simulated; of --policies\n"
        "  --emulated         the workload of emulated.py, and its results\n"
        "  --cpu              time of a million requests\n"
        "  --list             scenarios and policies\n");
}


/* a number and nothing else, or the usage */
static double
kvs_number(const char *name, const char *text, double least, double most)
{
    char    *end;
    double   v;

    v = strtod(text, &end);

    if (end == text || *end || !(v >= least && v <= most)) {
        fprintf(stderr, "--%s: \"%s\" is not a number from %g to %g\n", name,
                text, least, most);
        exit(2);
    }

    return v;
}


/* whether one of the list's parts is in the name */
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


int
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

    if (policy->kind & (KVS_RIVAL|KVS_OURS)) {
        return c->options->policies == NULL;
    }

    if (policy->kind & KVS_PARAM) {
        return c->options->lab && c->options->policies == NULL;
    }

    return c->options->policies == NULL
           && (c->options->study || (point->scenario->flags & KVS_INDEX));
}


/* a run must be long enough for sessions and for batches to come and go */
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
                point[n].requests = kvs_scenario_requests(sc, *load * knee,
                                                          o->requests);
            }

            n++;
        }
    }

    return n;
}


static uint32_t
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
                            : o->lab || !(p->kind & KVS_PARAM))
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
            kvs_cache_save(c, i / c->seeds, p, seed);
            k++;
            continue;
        }

        kvs_run(&point->scenario->fleet, w, c->policy[p], point->rate,
                point->requests, c->options->seed + seed, res);
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


static void
kvs_contest_run(const kvs_options_t *o)
{
    kvs_contest_t        c;
    const kvs_policy_t  *policy[KVS_POLICIES];

    memset(&c, 0, sizeof(c));

    c.options = o;
    c.seeds = o->seeds;
    c.npoints = kvs_contest_points(o, NULL);

    if (c.npoints == 0) {
        fprintf(stderr, "no scenario to run\n");
        exit(2);
    }

    c.point = kvs_alloc(c.npoints * sizeof(kvs_point_t));
    c.policy = policy;
    c.npolicies = kvs_contest_policies(o, policy);

    if (c.npolicies == 0) {
        fprintf(stderr, "no policy to run\n");
        exit(2);
    }

    kvs_contest_points(o, c.point);

    c.result = kvs_contest_shared(kvr_max((size_t) c.npoints * c.npolicies
                                          * c.seeds, 1)
                                  * sizeof(kvs_result_t));

    kvs_contest_spread(o->jobs, c.npoints * c.seeds, kvs_contest_task, &c);

    kvs_report_tables(&c);

    if (o->out && kvs_report_json(&c, o->out) != KVR_OK) {
        exit(2);
    }

    free(c.point);
}


static void
kvs_list(void)
{
    size_t                 i;
    kvs_options_t          o;
    const kvs_policy_t    *policy[KVS_POLICIES];
    const kvs_scenario_t  *sc;

    memset(&o, 0, sizeof(o));
    o.lab = 1;

    printf("scenarios (* not only with --full; knee in requests per s):\n");

    for (sc = kvs_scenarios; sc->name; sc++) {
        printf("  %c %-20s %-26s x %-2u %8.2f\n",
               sc->flags & KVS_ALWAYS ? '*' : ' ', sc->name,
               sc->fleet.hardware, sc->fleet.replicas, kvs_scenario_knee(sc));
    }

    printf("policies:\n");

    for (i = kvs_contest_policies(&o, policy); i-- > 0; /* void */ ) {
        printf("    %-20s%s\n", policy[i]->name,
               policy[i]->kind & KVS_RIVAL ? " rival"
               : policy[i]->kind & KVS_OURS ? " ours" : "");
    }
}


int
main(int argc, char **argv)
{
    int            c, what;
    kvs_options_t  o;

    static const struct option  options[] = {
        { "full", no_argument, NULL, 'f' },
        { "traces", required_argument, NULL, 't' },
        { "out", required_argument, NULL, 'o' },
        { "seeds", required_argument, NULL, 'n' },
        { "seed", required_argument, NULL, 's' },
        { "requests", required_argument, NULL, 'r' },
        { "jobs", required_argument, NULL, 'j' },
        { "only", required_argument, NULL, 'y' },
        { "cache", required_argument, NULL, 'k' },
        { "policies", required_argument, NULL, 'p' },
        { "load", required_argument, NULL, 'l' },
        { "lab", no_argument, NULL, 'L' },
        { "study", no_argument, NULL, 'S' },
        { "quiet", no_argument, NULL, 'q' },
        { "summary", no_argument, NULL, 'm' },
        { "calibrate", no_argument, NULL, 'C' },
        { "published", no_argument, NULL, 'P' },
        { "demo", no_argument, NULL, 'D' },
        { "emulated", no_argument, NULL, 'E' },
        { "cpu", no_argument, NULL, 'U' },
        { "list", no_argument, NULL, 'i' },
        { NULL, 0, NULL, 0 }
    };

    memset(&o, 0, sizeof(o));
    o.seeds = 3;
    o.seed = 1;
    o.requests = 6000;
    o.jobs = 2;
    what = 0;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {

        switch (c) {
        case 'f': o.full = 1; break;
        case 't': o.traces = *optarg ? optarg : NULL; break;
        case 'o': o.out = optarg; break;
        case 'n':
            o.seeds = (uint32_t) kvs_number("seeds", optarg, 1, KVS_SEEDS);
            break;
        case 's':
            o.seed = (uint64_t) kvs_number("seed", optarg, 0, 0x1p53);
            break;
        case 'r':
            o.requests = (uint32_t) kvs_number("requests", optarg, 1, 1e8);
            break;
        case 'j':
            o.jobs = (uint32_t) kvs_number("jobs", optarg, 1, KVS_JOBS);
            break;
        case 'y': o.only = optarg; break;
        case 'k': o.cache = optarg; break;
        case 'p': o.policies = optarg; break;
        case 'l': o.load = kvs_number("load", optarg, 0.01, 100); break;
        case 'L': o.lab = 1; break;
        case 'S': o.study = 1; break;
        case 'q': o.quiet = 1; break;
        case 'm': o.summary = 1; break;
        case 'C':
        case 'D':
        case 'E':
        case 'P':
        case 'U':
        case 'i': what = c; break;
        default:
            kvs_usage();
            return 2;
        }
    }

    if (optind < argc) {
        fprintf(stderr, "what is \"%s\"?\n", argv[optind]);
        kvs_usage();
        return 2;
    }

    switch (what) {
    case 'C': kvs_calibrate(&o); break;
    case 'P': kvs_report_published(&o); break;
    case 'D': kvs_demo(&o, NULL); break;
    case 'E': return kvs_emulated(&o) != KVR_OK;
    case 'U': kvs_cpu(&o); break;
    case 'i': kvs_list(); break;
    default: kvs_contest_run(&o); break;
    }

    return 0;
}
