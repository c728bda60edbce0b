/*
 * The simulator's command line.
 */

#include <getopt.h>
#include <stdio.h>

#include "bench/sim/contest/contest.h"
#include "bench/sim/contest/tiers.h"
#include "bench/sim/contest/whatif.h"
#include "bench/sim/report/calibrate.h"
#include "bench/sim/report/demo.h"
#include "bench/sim/report/emulated.h"
#include "bench/sim/legs/pools.h"
#include "bench/sim/report/several.h"
#include "bench/sim/report/published.h"
#include "bench/sim/report/report.h"
#include "bench/sim/report/report_json.h"


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
        "  --load X           this load only, a share of the knee\n"
        "  --length X         share of a run's usual length\n"
        "  --cache DIR        keeps results and reuses them, to continue\n"
        "                     a run; empty it when the code "
        "changes\n"
        "  --summary          no table of each point\n"
        "  --lab              other parameters of our policies, too\n"
        "  --study            the index study in all scenarios\n"
        "  --ablation         what each estimator improves\n"
        "  --calibrate        finds the knees (of --only)\n"
        "  --published        only cases that others have published\n"
        "  --demo             make demo, simulated, with --policies\n"
        "  --emulated         the workload of emulated.py, and its results\n"
        "  --hosts            several hosts in front of one fleet\n"
        "  --legs             prefill and decode by two pools\n"
        "  --tiers            tiers of cache, and hybrid models\n"
        "  --whatif           what another fleet would improve\n"
        "  --cpu              time of a million requests\n"
        "  --list             scenarios and policies\n");
}


/* parses a number, or prints the usage */
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


static int
kvs_contest(const kvs_options_t *o)
{
    kvs_contest_t  c;

    if (kvs_contest_run(&c, o) != KVR_OK) {
        return 2;
    }

    kvs_report_tables(&c);

    return o->out && kvs_report_json(&c, o->out) != KVR_OK ? 2 : 0;
}


static int
kvs_contest_without(kvs_options_t *o)
{
    kvs_contest_t  c;

    if (o->policies == NULL) {
        o->policies = "-,=kv_cache,=kv_cache_usage,=kv_cache_told";
    }

    if (kvs_contest_run(&c, o) != KVR_OK) {
        return 2;
    }

    return kvs_report_ablation(&c, o->out) == KVR_OK ? 0 : 2;
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
        { "length", required_argument, NULL, 'h' },
        { "lab", no_argument, NULL, 'L' },
        { "study", no_argument, NULL, 'S' },
        { "quiet", no_argument, NULL, 'q' },
        { "summary", no_argument, NULL, 'm' },
        { "ablation", no_argument, NULL, 'A' },
        { "calibrate", no_argument, NULL, 'C' },
        { "published", no_argument, NULL, 'P' },
        { "demo", no_argument, NULL, 'D' },
        { "emulated", no_argument, NULL, 'E' },
        { "hosts", no_argument, NULL, 'H' },
        { "legs", no_argument, NULL, 'G' },
        { "tiers", no_argument, NULL, 'T' },
        { "whatif", no_argument, NULL, 'W' },
        { "cpu", no_argument, NULL, 'U' },
        { "list", no_argument, NULL, 'i' },
        { NULL, 0, NULL, 0 }
    };

    memset(&o, 0, sizeof(o));
    o.seeds = 3;
    o.seed = 1;
    o.requests = 6000;
    o.length = 1;
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
        case 'h': o.length = kvs_number("length", optarg, 0.01, 1); break;
        case 'L': o.lab = 1; break;
        case 'S': o.study = 1; break;
        case 'q': o.quiet = 1; break;
        case 'm': o.summary = 1; break;
        case 'A':
        case 'C':
        case 'D':
        case 'E':
        case 'G':
        case 'H':
        case 'P':
        case 'T':
        case 'U':
        case 'W':
        case 'i': what = c; break;
        default:
            kvs_usage();
            return 2;
        }
    }

    if (optind < argc) {
        fprintf(stderr, "unknown argument \"%s\"\n", argv[optind]);
        kvs_usage();
        return 2;
    }

    switch (what) {
    case 'A': return kvs_contest_without(&o);
    case 'C': kvs_calibrate(&o); break;
    case 'P': kvs_published(&o, NULL); break;
    case 'D': kvs_demo(&o, NULL); break;
    case 'E': return kvs_emulated(&o) != KVR_OK;
    case 'G': return kvs_pools(&o) != KVR_OK;
    case 'H': return kvs_several(&o) != KVR_OK;
    case 'T': return kvs_tiers(&o) != KVR_OK;
    case 'W': return kvs_whatif(&o) != KVR_OK;
    case 'U': kvs_cpu(&o); break;
    case 'i': kvs_list(); break;
    default: return kvs_contest(&o);
    }

    return 0;
}
