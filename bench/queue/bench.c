/*
 * The queue past the knee, and its cost below it, simulated.  Prints a table
 * and writes JSON.
 *
 * Capacity is the knee: the highest rate at which 0.98 of the due requests are
 * completed under kv_cache without a queue.  A request is good if its TTFT is
 * at most 5 times the median of its class on an idle fleet.
 */

#include <getopt.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "bench/queue/fleet.h"


#define KVB_GOOD      5.0
#define KVB_REQUESTS  4000
#define KVB_NEAR      8         /* times the seeds, close to the knee */
#define KVB_TENANTS   4         /* and for a P99 of few requests */


static const char  *kvb_hardware[] = {
    "llama-8b-bf16-h100", "devstral-24b-fp8-h100", "llama-70b-bf16-h100-tp4",
    NULL
};

static uint32_t  kvb_target = 1000;    /* ms, the module's default */
static unsigned  kvb_probed = 1;
static unsigned  kvb_seeds = 3;
static uint32_t  kvb_replicas = 4;


/* one request in five of 1k tokens, the others of 30k */
static void
kvb_mixed(kvq_conf_t *c, const char *hardware, double rate, double requests,
    uint64_t seed)
{
    memset(c, 0, sizeof(kvq_conf_t));

    c->hardware = hardware;
    c->replicas = kvb_replicas;
    c->workers = 2;
    c->length = requests / rate;
    c->window = c->length / 6;
    c->seed = seed;
    c->probed = kvb_probed;
    c->max = 1000000;
    c->timeout = 100000000;

    c->stream[0] = (kvq_stream_t) {
        .rate = 0.2 * rate, .prompt = 1000, .shared = 700, .texts = 20,
        .output = 150, .class = 2, .weight = 1
    };

    c->stream[1] = (kvq_stream_t) {
        .rate = 0.8 * rate, .prompt = 30000, .shared = 10000, .texts = 40,
        .output = 300, .class = 6, .weight = 1
    };
}


/* chats only: short prompts, long replies */
static void
kvb_chats(kvq_conf_t *c, const char *hardware, double rate, double requests,
    uint64_t seed)
{
    kvb_mixed(c, hardware, rate, requests, seed);

    c->stream[0] = (kvq_stream_t) {
        .rate = 0.8 * rate, .prompt = 2000, .shared = 1500, .texts = 20,
        .output = 200, .class = 3, .weight = 1
    };

    c->stream[1] = (kvq_stream_t) {
        .rate = 0.2 * rate, .prompt = 6000, .shared = 1000, .texts = 200,
        .output = 200, .class = 3, .weight = 1
    };
}


typedef void (*kvb_workload_pt)(kvq_conf_t *c, const char *hardware,
    double rate, double requests, uint64_t seed);


static void
kvb_queue(kvq_conf_t *c)
{
    c->queue = 1;
    c->target = kvb_target;
}


static double
kvb_knee(kvb_workload_pt workload, const char *hardware)
{
    double        lo, hi, mid;
    uint32_t      i;
    kvq_conf_t    c;
    kvq_result_t  r;

    lo = 0.1;
    hi = 1000;

    for (i = 0; i < 12; i++) {
        mid = sqrt(lo * hi);

        workload(&c, hardware, mid, 4000, 1);
        kvq_run(&c, &r);

        if (r.completed >= 0.98) {
            lo = mid;

        } else {
            hi = mid;
        }

        kvq_free(&r);
    }

    return lo;
}


static cJSON *
kvb_row(cJSON *list, const char *name)
{
    cJSON  *row;

    row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "hardware", name);
    cJSON_AddItemToArray(list, row);

    return row;
}


/* 1: interactive requests at 1.3 times capacity */
static void
kvb_tail(cJSON *json, const char *hardware, double knee)
{
    double        p99, base, ratio, batch, wait, bare, bare_p99;
    uint32_t      seed, ooo;
    cJSON        *row;
    kvq_conf_t    c;
    kvq_result_t  r;

    p99 = base = batch = bare = bare_p99 = wait = 0;
    ooo = 0;

    for (seed = 1; seed <= kvb_seeds; seed++) {
        kvb_mixed(&c, hardware, 0.7 * knee, KVB_REQUESTS, seed);
        kvb_queue(&c);
        kvq_run(&c, &r);
        base += r.stream[0].p99 / kvb_seeds;
        kvq_free(&r);

        kvb_mixed(&c, hardware, 1.3 * knee, KVB_REQUESTS, seed);
        kvq_run(&c, &r);
        bare += r.stream[1].window_done / r.span / kvb_seeds;
        bare_p99 += r.stream[0].p99 / kvb_seeds;
        kvq_free(&r);

        kvb_queue(&c);
        kvq_run(&c, &r);
        p99 += r.stream[0].p99 / kvb_seeds;
        batch += r.stream[1].window_done / r.span / kvb_seeds;
        wait = fmax(wait, r.stream[1].max_wait);
        ooo += r.out_of_order;
        kvq_free(&r);
    }

    ratio = p99 / base;

    printf("1 %-24s interactive P99 %.2f s at 0.7, %.2f s at 1.3 (%.2f), "
           "%.0f s without; batch %.3f of without; %u out of order\n",
           hardware, base, p99, ratio, bare_p99, batch / bare, ooo);

    row = kvb_row(json, hardware);
    cJSON_AddNumberToObject(row, "capacity", knee);
    cJSON_AddNumberToObject(row, "interactive_p99_at_0.7", base);
    cJSON_AddNumberToObject(row, "interactive_p99_at_1.3", p99);
    cJSON_AddNumberToObject(row, "interactive_p99_without", bare_p99);
    cJSON_AddNumberToObject(row, "interactive_p99_ratio", ratio);
    cJSON_AddNumberToObject(row, "batch_throughput_ratio", batch / bare);
    cJSON_AddNumberToObject(row, "batch_longest_wait", wait);
    cJSON_AddNumberToObject(row, "out_of_order", ooo);
}


/* 2: cost below the knee */
static double
kvb_below(cJSON *json, const char *hardware, const char *name,
    kvb_workload_pt workload, double knee)
{
    double        with, without, worst, d, sum, square, error;
    uint32_t      seed, seeds, i;
    cJSON        *row;
    kvq_conf_t    c;
    kvq_result_t  r;

    static const double  loads[] = { 0.3, 0.5, 0.7, 0.9 };

    worst = 0;
    row = kvb_row(json, hardware);
    cJSON_AddStringToObject(row, "workload", name);

    for (i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        char  key[16];

        with = without = sum = square = 0;

        /* close to the knee runs differ much */

        seeds = kvb_seeds * (loads[i] < 0.8 ? 1 : KVB_NEAR);

        for (seed = 1; seed <= seeds; seed++) {
            workload(&c, hardware, loads[i] * knee, KVB_REQUESTS, seed);
            kvq_run(&c, &r);
            without += r.ttft;
            d = -r.ttft;
            kvq_free(&r);

            kvb_queue(&c);
            kvq_run(&c, &r);
            with += r.ttft;
            d += r.ttft;
            kvq_free(&r);

            sum += d;
            square += d * d;
        }

        /* the standard error of the ratio, from the differences of pairs */

        error = sqrt(fmax(square - sum * sum / seeds, 0)
                     / (seeds * fmax(seeds - 1, 1)))
                * seeds / without;

        printf("2 %-24s %-6s at %.1f: mean TTFT %.4f (+- %.4f) of %.4f s "
               "without\n",
               hardware, name, loads[i], with / without, error,
               without / seeds);

        snprintf(key, sizeof(key), "%.1f", loads[i]);
        cJSON_AddNumberToObject(row, key, with / without);

        snprintf(key, sizeof(key), "%.1f_error", loads[i]);
        cJSON_AddNumberToObject(row, key, error);

        worst = fmax(worst, with / without);
    }

    return worst;
}


/*
 * 3: goodput past the knee; the operator sets deadlines and a maximum length
 */
static void
kvb_goodput(cJSON *json, const char *hardware, double knee, double *ratio)
{
    double        rate, peak, good, limit[2], cached, at_knee;
    uint32_t      i, k;
    cJSON        *row;
    kvq_conf_t    c;
    kvq_result_t  r;

    static const double  loads[] = { 0.7, 0.8, 0.9, 1.0, 1.1 };
    static const double  over[] = { 1.5, 3 };

    kvb_mixed(&c, hardware, 0.02 * knee, 500, 1);
    kvq_run(&c, &r);
    limit[0] = KVB_GOOD * r.stream[0].p50;
    limit[1] = KVB_GOOD * r.stream[1].p50;
    kvq_free(&r);

    peak = 0;
    at_knee = 0;

    for (i = 0; i < 2 * sizeof(loads) / sizeof(loads[0]); i++) {
        kvb_mixed(&c, hardware, loads[i / 2] * knee, KVB_REQUESTS, 1);
        c.stream[0].limit = limit[0];
        c.stream[1].limit = limit[1];

        if (i % 2) {
            kvb_queue(&c);
        }

        kvq_run(&c, &r);
        good = (r.stream[0].good + r.stream[1].good) / r.span;
        peak = fmax(peak, good);

        if (loads[i / 2] == 1.0 && i % 2 == 0) {
            at_knee = r.cached;
        }

        kvq_free(&r);
    }

    row = kvb_row(json, hardware);
    cJSON_AddNumberToObject(row, "peak", peak);
    cJSON_AddNumberToObject(row, "cached_at_knee", at_knee);

    for (i = 0; i < 2; i++) {
        char  key[32];

        rate = over[i] * knee;

        kvb_mixed(&c, hardware, rate, over[i] * KVB_REQUESTS, 1);
        kvb_queue(&c);
        c.max = 512;
        c.timeout = 30000;

        for (k = 0; k < 2; k++) {
            c.stream[k].limit = limit[k];
            c.stream[k].deadline = (uint32_t) (700 * limit[k]);
        }

        kvq_run(&c, &r);
        good = (r.stream[0].good + r.stream[1].good) / r.span;
        cached = r.cached;
        ratio[i] = fmin(ratio[i], good / peak);

        printf("3 %-24s at %.1f: goodput %.3f of the peak %.2f/s "
               "(%.2f of interactive, %.2f of batch), cached %.3f, %.3f at the "
               "knee\n",
               hardware, over[i], good / peak, peak,
               (double) r.stream[0].good / r.stream[0].arrived,
               (double) r.stream[1].good / r.stream[1].arrived, cached,
               at_knee);

        snprintf(key, sizeof(key), "goodput_at_%.1f", over[i]);
        cJSON_AddNumberToObject(row, key, good / peak);
        snprintf(key, sizeof(key), "cached_at_%.1f", over[i]);
        cJSON_AddNumberToObject(row, key, cached);

        kvq_free(&r);
    }
}


static void
kvb_tenants(kvq_conf_t *c, const char *hardware, double a, double b,
    double length, uint64_t seed)
{
    kvb_mixed(c, hardware, 1, 1, seed);
    kvb_queue(c);

    c->length = length;
    c->window = length / 2;
    c->max = 512;
    c->timeout = 30000;

    c->stream[0] = c->stream[1];
    c->stream[0].rate = a;
    c->stream[1].rate = b;
    c->stream[1].tenant = 1;
}


/* 4: tenants of weights 1 and 3, and one that sends 100 times as much */
static void
kvb_fair(cJSON *json, const char *hardware, double knee, double *error,
    double *rise)
{
    double        share, e, p99[2];
    uint32_t      seed, seeds, i, lost;
    cJSON        *row;
    kvq_conf_t    c;
    kvq_result_t  r;

    e = 0;
    lost = 0;
    p99[0] = p99[1] = 0;

    seeds = kvb_seeds * KVB_TENANTS;

    for (seed = 1; seed <= seeds; seed++) {
        kvb_tenants(&c, hardware, 1.5 * knee, 1.5 * knee, 120, seed);
        c.stream[1].weight = 3;
        kvq_run(&c, &r);

        share = (double) r.stream[1].window_work
                / (double) (r.stream[0].window_work
                            + r.stream[1].window_work);
        e = fmax(e, fabs(share / 0.75 - 1));
        kvq_free(&r);

        /* the first has 0.3 of the capacity, the other 0.7 and then 30 */

        for (i = 0; i < 2; i++) {
            kvb_tenants(&c, hardware, (i ? 30 : 0.7) * knee, 0.3 * knee, 600,
                        seed);
            kvq_run(&c, &r);
            p99[i] += r.stream[1].p99 / seeds;
            lost += i ? r.stream[1].full + r.stream[1].shed
                        + r.stream[1].timeouts : 0;
            kvq_free(&r);
        }
    }

    *error = fmax(*error, e);
    *rise = fmax(*rise, p99[1] / p99[0]);

    printf("4 %-24s shares 1:3 within %.3f; P99 %.2f s next to 100 times the "
           "requests, %.2f s next to as many as fit (%.2f), %u rejected\n",
           hardware, e, p99[1], p99[0], p99[1] / p99[0], lost);

    row = kvb_row(json, hardware);
    cJSON_AddNumberToObject(row, "share_error", e);
    cJSON_AddNumberToObject(row, "p99_ratio", p99[1] / p99[0]);
    cJSON_AddNumberToObject(row, "turned_away", lost);
}


int
main(int argc, char **argv)
{
    int         opt;
    char       *text;
    FILE       *out;
    cJSON      *json, *tail, *below, *goodput, *tenants;
    double      knee, chats, worst, good[2], error, rise;
    uint32_t    i;
    const char  *path, *only, *parts;

    static const struct option  options[] = {
        { "out", required_argument, NULL, 'o' },
        { "hardware", required_argument, NULL, 'h' },
        { "parts", required_argument, NULL, 'p' },
        { "replicas", required_argument, NULL, 'r' },
        { "seeds", required_argument, NULL, 's' },
        { "target", required_argument, NULL, 't' },
        { "unprobed", no_argument, NULL, 'u' },
        { NULL, 0, NULL, 0 }
    };

    path = NULL;
    only = "";
    parts = "1234";

    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {

        switch (opt) {

        case 'o':
            path = optarg;
            break;

        case 't':
            kvb_target = (uint32_t) atoi(optarg);
            break;

        case 'h':
            only = optarg;
            break;

        case 'p':
            parts = optarg;
            break;

        case 'r':
            kvb_replicas = (uint32_t) atoi(optarg);
            break;

        case 's':
            kvb_seeds = (unsigned) atoi(optarg);
            break;

        case 'u':
            kvb_probed = 0;
            break;

        default:
            fprintf(stderr,
                    "usage: bench [--out FILE] [--target MS] [--unprobed] "
                    "[--hardware PART] [--parts 1234] [--seeds N] "
                    "[--replicas N]\n");
            return 2;
        }
    }

    setvbuf(stdout, NULL, _IOLBF, 0);

    json = cJSON_CreateObject();
    tail = cJSON_AddArrayToObject(json, "tail");
    below = cJSON_AddArrayToObject(json, "below");
    goodput = cJSON_AddArrayToObject(json, "goodput_detail");
    tenants = cJSON_AddArrayToObject(json, "tenants");

    worst = 0;
    error = 0;
    rise = 0;
    good[0] = good[1] = INFINITY;

    for (i = 0; kvb_hardware[i]; i++) {
        if (strstr(kvb_hardware[i], only) == NULL) {
            continue;
        }

        knee = kvb_knee(kvb_mixed, kvb_hardware[i]);
        chats = kvb_knee(kvb_chats, kvb_hardware[i]);

        printf("  %-24s capacity %.2f/s, for chats %.2f/s\n", kvb_hardware[i],
               knee, chats);

        if (strchr(parts, '1')) {
            kvb_tail(tail, kvb_hardware[i], knee);
        }

        if (strchr(parts, '2')) {
            worst = fmax(worst, kvb_below(below, kvb_hardware[i], "mixed",
                                          kvb_mixed, knee));
            worst = fmax(worst, kvb_below(below, kvb_hardware[i], "chats",
                                          kvb_chats, chats));
        }

        if (strchr(parts, '3')) {
            kvb_goodput(goodput, kvb_hardware[i], knee, good);
        }

        if (strchr(parts, '4')) {
            kvb_fair(tenants, kvb_hardware[i], knee, &error, &rise);
        }
    }

    cJSON_AddNumberToObject(json, "below_knee_ttft_ratio", worst);
    cJSON_AddNumberToObject(json, "goodput_1.5", good[0]);
    cJSON_AddNumberToObject(json, "goodput_3", good[1]);
    cJSON_AddNumberToObject(json, "tenant_share_error", error);
    cJSON_AddNumberToObject(json, "tenant_p99_ratio", rise);
    cJSON_AddNumberToObject(json, "target_ttft_ms", kvb_target);

    if (path) {
        text = cJSON_Print(json);
        out = fopen(path, "w");

        if (out == NULL || fprintf(out, "%s\n", text) < 0 || fclose(out) != 0)
        {
            perror(path);
            return 1;
        }

        cJSON_free(text);
    }

    cJSON_Delete(json);

    return 0;
}
