#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/engine_options.h"
#include "model/hardware.h"


typedef enum {
    KVE_OPT_INT = 0,
    KVE_OPT_LONG,
    KVE_OPT_NUM,
    KVE_OPT_TIME,               /* "100ms", "1s", or milliseconds */
    KVE_OPT_STR,
    KVE_OPT_LIST,
    KVE_OPT_FLAG
} kve_opt_e;


typedef struct {
    const char  *name;
    kve_opt_e    kind;
    size_t       offset;
    const char  *help;
} kve_opt_t;


#define KVE_OPT(n, k, f, h)   { n, k, offsetof(kve_options_t, f), h }
#define KVE_SET(n, k, f, h)                                                  \
    { n, k, offsetof(kve_options_t, settings)                                \
            + offsetof(kve_settings_t, f), h }


static const kve_opt_t  kve_opts[] = {

    KVE_OPT("port", KVE_OPT_INT, port, "first port (8000)"),
    KVE_OPT("count", KVE_OPT_INT, count, "replicas, on ports in a row (1)"),
    KVE_OPT("data-parallel-size", KVE_OPT_INT, count, "same as --count"),
    KVE_OPT("data-parallel", KVE_OPT_INT, ranks,
            "ranks behind each port, with a cache each (1)"),
    KVE_OPT("host", KVE_OPT_STR, host, "address (127.0.0.1)"),
    KVE_OPT("engine", KVE_OPT_STR, dialect_name,
            "vllm, vllm-old, sglang, trtllm, llamacpp or tgi"),
    KVE_OPT("model", KVE_OPT_STR, model, "name of the model (emulated)"),
    KVE_OPT("served-model-name", KVE_OPT_LIST, served,
            "names for the API (the model's)"),
    KVE_OPT("lora-modules", KVE_OPT_LIST, loras,
            "names, or JSON objects with a name"),

    KVE_OPT("hardware", KVE_OPT_STR, hw_name,
            "model and GPU; \"list\" shows them"),
    KVE_OPT("speed", KVE_OPT_NUM, speed, "factor: faster than real time (1)"),
    KVE_OPT("prefill-overhead", KVE_OPT_TIME, prefill_overhead, "likewise"),
    KVE_OPT("prefill-time-per-token", KVE_OPT_TIME, prefill_per_token,
            "likewise"),
    KVE_OPT("inter-token-latency", KVE_OPT_TIME, itl, "likewise"),

    KVE_OPT("block-size", KVE_OPT_INT, block_size, "tokens (16)"),
    KVE_OPT("kv-cache-size", KVE_OPT_INT, blocks,
            "blocks (as the hardware can hold)"),
    KVE_OPT("num-gpu-blocks-override", KVE_OPT_INT, blocks, "same as above"),
    KVE_OPT("kv-host-size", KVE_OPT_INT, host_blocks,
            "blocks in host memory, a lower tier (0)"),
    KVE_OPT("hybrid-blocks", KVE_OPT_INT, state_blocks,
            "hybrid model: blocks from one state to the next"),
    KVE_OPT("max-num-seqs", KVE_OPT_INT, max_seqs, "sequences in a batch"),
    KVE_OPT("max-model-len", KVE_OPT_LONG, max_model_len,
            "prompt and reply (131072)"),
    KVE_OPT("max-num-queued-reqs", KVE_OPT_INT, max_queued,
            "vLLM: limit of requests, else 503 (no limit)"),
    KVE_OPT("enable-prefix-caching", KVE_OPT_FLAG, caching, "(true)"),
    KVE_OPT("continue", KVE_OPT_FLAG, continues,
            "completions continue a reply at the prompt's end"),

    KVE_OPT("bytes-per-token", KVE_OPT_INT, bytes_per_token, "(4)"),
    KVE_SET("output-tokens", KVE_OPT_NUM, output_tokens,
            "tokens of a reply, by default (128)"),

    KVE_OPT("enable-prompt-tokens-details", KVE_OPT_FLAG,
            prompt_tokens_details, "vLLM: cached tokens in usage"),
    KVE_OPT("enable-force-include-usage", KVE_OPT_FLAG, force_include_usage,
            "vLLM: usage in every stream"),
    KVE_OPT("enable-cache-report", KVE_OPT_FLAG, cache_report,
            "SGLang: cached tokens in usage"),
    KVE_OPT("disable-log-stats", KVE_OPT_FLAG, no_log_stats,
            "vLLM: /metrics without vllm: names"),
    KVE_OPT("disable-metrics", KVE_OPT_FLAG, no_metrics, "404 for /metrics"),
    KVE_OPT("metrics-engines", KVE_OPT_INT, metrics_engines,
            "vLLM: series per gauge, to be summed (1)"),

    KVE_SET("keepalive-timeout", KVE_OPT_NUM, keepalive_timeout,
            "s until an idle connection is closed (5)"),


    KVE_OPT("kv-events", KVE_OPT_INT, kv_events,
            "first port of KV events, one for each replica (none)"),
    KVE_OPT("kv-replay", KVE_OPT_INT, kv_replay,
            "first port of their replay (none)"),
    KVE_OPT("kv-encoding", KVE_OPT_STR, kv_encoding_name,
            "vllm-map, vllm-array, vllm-bytes, sglang or trtllm (the "
            "engine's)"),
    KVE_OPT("kv-bandwidth", KVE_OPT_NUM, kv_bandwidth,
            "bytes/s of a replica's link, over which transfers come one after "
            "the other (0: at once)"),
    KVE_OPT("kv-bytes-per-token", KVE_OPT_NUM, kv_bytes,
            "bytes of a token's KV, for transfers (131072)"),
    KVE_OPT("kv-transfers", KVE_OPT_STR, kv_transfers,
            "file with the transfers of several processes"),
    KVE_OPT("disaggregation-mode", KVE_OPT_STR, disaggregation,
            "prefill or decode, as SGLang's (none)"),

    KVE_OPT("request-log", KVE_OPT_INT, request_log,
            "requests to remember for /control (0)"),
    KVE_OPT("seed", KVE_OPT_INT, seed, "of rates and ids (1)")
};


#define KVE_OPTS  (sizeof(kve_opts) / sizeof(kve_opts[0]))


static const char  *kve_dialects[] = {
    "vllm", "vllm-old", "sglang", "trtllm", "llamacpp", "tgi", NULL
};


static void
kve_options_usage(void)
{
    size_t  i;

    printf("usage: engine [--flag value | --flag=value] ...\n\n");

    for (i = 0; i < KVE_OPTS; i++) {
        printf("  --%-29s %s\n", kve_opts[i].name, kve_opts[i].help);
    }
}


static void
kve_options_hardware(void)
{
    size_t    i;
    kve_hw_t  hw;

    for (i = 0; kve_hw_get(i, &hw); i++) {
        printf("%-28s floor %.1f ms, %.1f us/token, %.1f ns/context token, "
               "%llu tokens\n", hw.name, hw.floor * 1e3, hw.linear * 1e6,
               hw.kv * 1e9, (unsigned long long) hw.kv_tokens);
    }
}


static double
kve_options_time(const char *s, char **end)
{
    double  x;

    x = strtod(s, end);

    if (strcmp(*end, "us") == 0) {
        *end += 2;
        return x / 1e6;
    }

    if (strcmp(*end, "s") == 0) {
        *end += 1;
        return x;
    }

    if (strcmp(*end, "ms") == 0) {
        *end += 2;
    }

    return x / 1e3;
}


static int
kve_options_set(kve_options_t *opt, const kve_opt_t *o, const char *arg)
{
    char         *end, *field;
    kve_names_t  *names;

    field = (char *) opt + o->offset;
    end = "";

    switch (o->kind) {

    case KVE_OPT_INT:
        *(int *) field = strtol(arg, &end, 10);
        break;

    case KVE_OPT_LONG:
        *(int64_t *) field = strtoll(arg, &end, 10);
        break;

    case KVE_OPT_NUM:
        *(double *) field = strtod(arg, &end);
        break;

    case KVE_OPT_TIME:
        *(double *) field = kve_options_time(arg, &end);
        break;

    case KVE_OPT_STR:
        *(const char **) field = arg;
        break;

    case KVE_OPT_LIST:
        names = (kve_names_t *) field;
        if (names->n < KVE_NAMES_MAX) {
            names->name[names->n++] = arg;
        }

        break;

    case KVE_OPT_FLAG:
        *(int *) field = arg == NULL || strcmp(arg, "false") != 0;
        break;
    }

    if (*end != '\0') {
        fprintf(stderr, "engine: --%s: bad value \"%s\"\n", o->name, arg);
        return -1;
    }

    return 0;
}


static void
kve_options_defaults(kve_options_t *opt)
{
    memset(opt, 0, sizeof(kve_options_t));

    opt->host_rate = 50;

    opt->port = 8000;
    opt->count = 1;
    opt->host = "127.0.0.1";
    opt->dialect_name = "vllm";
    opt->model = "emulated";
    opt->hw_name = "llama-8b-bf16-h100";
    opt->speed = 1;
    opt->bytes_per_token = 4;
    opt->max_model_len = 131072;
    opt->max_queued = -1;
    opt->metrics_engines = 1;
    opt->ranks = 1;
    opt->seed = 1;
    opt->kv_bytes = 131072;
    opt->prefill_overhead = -1;
    opt->prefill_per_token = -1;
    opt->itl = -1;
    opt->caching = 1;

    opt->settings.retry_after = -1;
    opt->settings.fault_rate = 1;
    opt->settings.fault_count = -1;
    opt->settings.keepalive_timeout = 5;
    opt->settings.output_tokens = 128;
}


static void
kve_options_tier(kve_config_t *cf, kve_tier_e tier, int blocks, double rate)
{
    cf->tier[tier].blocks = blocks > 0 ? blocks : 0;
    cf->tier[tier].load = rate > 0 ? cf->hw.kv_bytes / (rate * 1e9) : 0;
}


/* fixed latencies replace those of the hardware */

static int
kve_options_config(kve_options_t *opt)
{
    kve_hw_t  hw;

    if (!kve_hw_find(opt->hw_name, &hw)) {
        fprintf(stderr, "engine: unknown hardware \"%s\"\n", opt->hw_name);
        return -1;
    }

    if (opt->prefill_overhead >= 0 || opt->prefill_per_token >= 0
        || opt->itl >= 0)
    {
        kve_hw_find("none", &hw);
        hw.floor = opt->itl > 0 ? opt->itl : 0;
        hw.api = opt->prefill_overhead > 0 ? opt->prefill_overhead : 0;
        hw.linear = opt->prefill_per_token > 0 ? opt->prefill_per_token : 0;
    }

    kve_config_init(&opt->config, &hw);

    opt->config.token_log = 1;
    opt->config.no_cache = !opt->caching;

    if (opt->block_size > 0) {
        opt->config.block_size = opt->block_size;
    }

    if (opt->blocks > 0) {
        opt->config.blocks = opt->blocks;
    }

    kve_options_tier(&opt->config, KVE_HOST, opt->host_blocks, opt->host_rate);
    kve_options_tier(&opt->config, KVE_PEER, 0, opt->kv_bandwidth / 1e9);

    opt->config.state = opt->state_blocks > 0 ? opt->state_blocks : 0;

    if (opt->max_seqs > 0) {
        opt->config.max_seqs = opt->max_seqs;
    }

    return 0;
}


static int
kve_options_names(kve_options_t *opt)
{
    int          i;
    cJSON       *lora;
    const char  *name;

    if (opt->served.n == 0) {
        opt->served.name[opt->served.n++] = opt->model;
    }

    opt->model = opt->served.name[0];

    for (i = 0; i < opt->loras.n; i++) {
        lora = cJSON_Parse(opt->loras.name[i]);
        name = kve_json_str(lora, "name");
        opt->lora[opt->nloras++] = strdup(name ? name : opt->loras.name[i]);
        cJSON_Delete(lora);
    }

    return 0;
}


static int
kve_options_check(kve_options_t *opt)
{
    int              i;
    kve_settings_t  *set;

    set = &opt->settings;

    for (i = 0; kve_dialects[i]; i++) {
        if (strcmp(opt->dialect_name, kve_dialects[i]) == 0) {
            break;
        }
    }

    if (kve_dialects[i] == NULL) {
        fprintf(stderr, "engine: unknown engine \"%s\"\n", opt->dialect_name);
        return -1;
    }

    opt->dialect = (kve_dialect_e) i;

    if (opt->count < 1 || opt->port < 1 || opt->port + opt->count > 65536
        || opt->speed <= 0 || opt->bytes_per_token < 1
        || opt->metrics_engines < 1 || opt->request_log < 0
        || opt->ranks < 1 || opt->ranks > KVE_RANKS
        || opt->kv_events < 0 || opt->kv_replay < 0
        || opt->kv_events + opt->count * opt->ranks > 65536
        || opt->kv_replay + opt->count * opt->ranks > 65536)
    {
        fprintf(stderr, "engine: value out of range\n");
        return -1;
    }

    strcpy(set->metrics, "ok");

    /* llama.cpp must know of an error first */

    set->first_token_headers = opt->dialect == KVE_LLAMACPP;

    set->keepalive_max = opt->dialect == KVE_LLAMACPP ? 100 : 0;

    return 0;
}


int
kve_options_parse(kve_options_t *opt, int argc, char **argv)
{
    int               c, i;
    struct option     longs[KVE_OPTS + 2] = { 0 };
    const kve_opt_t  *list;

    kve_options_defaults(opt);

    for (i = 0; i < (int) KVE_OPTS; i++) {
        longs[i].name = kve_opts[i].name;
        longs[i].has_arg = kve_opts[i].kind == KVE_OPT_FLAG
                           ? optional_argument : required_argument;
        longs[i].val = 256 + i;
    }

    longs[i].name = "help";
    longs[i].val = 'h';

    list = NULL;

    /* the leading "-": words after a list's first one belong to the list */

    while ((c = getopt_long(argc, argv, "-h", longs, NULL)) != -1) {

        if (c == 'h') {
            kve_options_usage();
            return EXIT_SUCCESS + 1;
        }

        if (c == 1 && list) {
            (void) kve_options_set(opt, list, optarg);
            continue;
        }

        if (c < 256) {
            if (c == 1) {
                fprintf(stderr, "engine: unexpected \"%s\"\n", optarg);
            }

            return EXIT_FAILURE + 1;
        }

        list = kve_opts[c - 256].kind == KVE_OPT_LIST ? &kve_opts[c - 256]
                                                      : NULL;

        if (kve_options_set(opt, &kve_opts[c - 256], optarg) != 0) {
            return EXIT_FAILURE + 1;
        }
    }

    if (strcmp(opt->hw_name, "list") == 0) {
        kve_options_hardware();
        return EXIT_SUCCESS + 1;
    }

    if (kve_options_check(opt) != 0 || kve_options_config(opt) != 0
        || kve_options_names(opt) != 0)
    {
        return EXIT_FAILURE + 1;
    }

    return 0;
}


void
kve_options_free(kve_options_t *opt)
{
    int  i;

    for (i = 0; i < opt->nloras; i++) {
        free(opt->lora[i]);
    }
}


uint32_t
kve_tokens(const kve_options_t *opt, size_t bytes)
{
    return (bytes + opt->bytes_per_token - 1) / opt->bytes_per_token;
}
