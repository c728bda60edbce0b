
/*
 * Copyright (C) kvroute contributors
 */


/* Tests kvr_metrics with the metrics of all engines, and special cases. */


#include "util.h"
#include "core/engine/kvr_engine.h"


#define R   KVR_METRICS_RUNNING
#define W   KVR_METRICS_WAITING
#define K   KVR_METRICS_KV
#define C   KVR_METRICS_CAPACITY
#define H   KVR_METRICS_HITS
#define Q   KVR_METRICS_QUERIES
#define P   KVR_METRICS_PREEMPTIONS
#define S   KVR_METRICS_START
#define L   KVR_METRICS_LORA
#define NC  KVR_METRICS_NO_CACHE

#define M   "model_name=\"m\"} "


typedef struct {
    const char     *name;        /* of a file in t/fuzz/corpus/metrics */
    const char     *engine;
    uint32_t        set;
    uint32_t        running;
    uint32_t        waiting;
    double          kv;
    uint64_t        capacity;
    uint64_t        hits;
    uint64_t        queries;
    uint64_t        preemptions;
    double          start;
} sample_t;


static const sample_t  samples[] = {
    { "vllm", "vllm", R|W|K|C|H|Q|P|S, 4, 3, 0.25, 432000, 9000, 1200000, 2,
      1788626457.7 },
    { "vllm_waiting_by_reason", "vllm", W, 0, 2, 0, 0, 0, 0, 0, 0 },
    { "vllm_old_names", "vllm", R|K|C|H|Q, 1, 0, 0.5, 320, 5, 10, 0, 0 },
    { "vllm_old_and_new", "vllm", K|H, 0, 0, 0.25, 0, 6, 0, 0, 0 },
    { "vllm_ranks", "vllm", R|K|C, 5, 0, 0.3, 4800, 0, 0, 0, 0 },
    { "vllm_Ray", "vllm", R, 3, 0, 0, 0, 0, 0, 0, 0 },
    { "vllm_hybrid", "vllm", C, 0, 0, 0, 90000, 0, 0, 0, 0 },
    { "vllm_no_prefix_caching", "vllm", C|NC, 0, 0, 0, 48, 0, 0, 0, 0 },
    { "vllm_stats_switched_off", "auto", S, 0, 0, 0, 0, 0, 0, 0, 5 },
    { "vllm_blocks_not_known", "vllm", 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "sglang", "sglang", R|W|K|C|H|Q|P, 7, 2, 0.125, 450000, 700, 900, 3, 0 },
    { "sglang_data_parallel", "sglang", R, 8, 0, 0, 0, 0, 0, 0, 0 },
    { "sglang_loads", "sglang", R|W|K|C, 5, 1, 0.2, 2000, 0, 0, 0, 0 },
    { "sglang_not_ready", "sglang", R, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "sglang_broken", "auto", 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "sglang_loads_as_text", "sglang", R|W|K|C, 3, 2, 0.5, 640, 0, 0, 0, 0 },
    { "trtllm", "trtllm", R|W|K|C, 2, 1, 0.75, 32000, 0, 0, 0, 0 },
    { "triton", "trtllm", R|W|K|C, 6, 4, 0.5, 6400, 0, 0, 0, 0 },
    { "trtllm_iterations", "auto", 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "llama_cpp", "llamacpp", R|W|H|Q, 2, 1, 0, 0, 300, 400, 0, 0 },
    { "tgi", "tgi", R|W|C, 5, 3, 0, 40000, 0, 0, 0, 0 },
    { "CRLF_times_spaces_no_last_line_end", "tgi", R|W|C, 5, 3, 0, 7, 0, 0, 0,
      0 },
    { "labels_that_look_like_others", "vllm", R, 1, 0, 0, 0, 0, 0, 0, 0 },
    { "garbage", "vllm", 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "shares_above_one", "vllm", 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "empty", "auto", 0, 0, 0, 0, 0, 0, 0, 0, 0 }
};

#define SAMPLES  (sizeof(samples) / sizeof(samples[0]))


static kvr_metrics_reader_t  reader;


static const kvr_metrics_t *
read_in(const char *text, size_t len, size_t step)
{
    size_t    off, n;
    uint8_t  *copy;

    kvr_metrics_init(&reader);

    for (off = 0; off < len; off += n) {
        n = kvr_min(step, len - off);
        copy = malloc(n);
        memcpy(copy, text + off, n);
        kvr_metrics_read(&reader, copy, n);
        free(copy);
    }

    kvr_metrics_end(&reader);

    return &reader.m;
}


TEST(test_metrics_samples)
{
    size_t                i, step;
    util_buf_t            b = { 0 };
    const sample_t       *s;
    const kvr_metrics_t  *m;

    for (i = 0; i < SAMPLES; i++) {
        s = &samples[i];
        util_sample(&b, "metrics", s->name);

        for (step = 1; step <= b.len + 1; step += step / 3 + 1) {

            m = read_in((char *) b.p, b.len, step);

            util_check(m->set == s->set, "%s: set %x", s->name, m->set);
            util_check(strcmp(kvr_dialect(m->engine)->name, s->engine) == 0
                       || m->set == 0,
                       "%s: engine %u", s->name, m->engine);
            util_check(m->running == s->running && m->waiting == s->waiting,
                       "%s: %u %u", s->name, m->running, m->waiting);
            util_check(m->kv > s->kv - 1e-9 && m->kv < s->kv + 1e-9,
                       "%s: kv %f", s->name, m->kv);
            util_check(m->capacity == s->capacity, "%s: capacity %lu",
                       s->name, (unsigned long) m->capacity);
            util_check(m->hits == s->hits && m->queries == s->queries,
                       "%s: hits %lu of %lu", s->name,
                       (unsigned long) m->hits, (unsigned long) m->queries);
            util_check(m->preemptions == s->preemptions, "%s: preemptions",
                       s->name);
            util_check(m->start > s->start - 1 && m->start < s->start + 1,
                       "%s: start %f", s->name, m->start);
        }
    }

    util_drop(&b);
}


/* old sets of adapters stay in the text: the newest counts */
TEST(test_metrics_lora)
{
    const char           *text;
    const kvr_metrics_t  *m;

    text = "vllm:lora_requests_info{max_lora=\"4\","
           "running_lora_adapters=\"old\",waiting_lora_adapters=\"\"} "
           "1.7e+09\n"
           "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters="
           "\"a,b\",waiting_lora_adapters=\"c\"} 1.7886264577368872e+09\n"
           "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters="
           "\"older\",waiting_lora_adapters=\"\"} 1.6e+09\n";

    m = read_in(text, strlen(text), 7);

    util_check(m->set == L && m->max_loras == 4 && m->loras == 3, "%u of %u",
               m->loras, m->max_loras);
    util_check(m->lora[0] == kvr_metrics_lora("a", 1)
               && m->lora[1] == kvr_metrics_lora("b", 1)
               && m->lora[2] == kvr_metrics_lora("c", 1), "names");

    text = "vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters="
           "\",,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18\"} 1\n";

    m = read_in(text, strlen(text), 1000);
    util_check(m->loras == KVR_METRICS_LORAS && m->max_loras == 0, "%u",
               m->loras);
}


/* long lines, ten megabytes of other lines, then the series */
TEST(test_metrics_huge)
{
    unsigned              i;
    util_buf_t            b = { 0 };
    const kvr_metrics_t  *m;

    util_puts(&b, "vllm:num_requests_running{x=\"");

    for (i = 0; i < KVR_METRICS_LINE; i++) {
        util_byte(&b, 'y');
    }

    util_puts(&b, "\"} 7\n");

    while (b.len < 10 * 1024 * 1024) {
        util_puts(&b, "vllm:filler_1{engine=\"0\",model_name=\"a long name of "
                      "no use\"} 1.0\n");
    }

    util_puts(&b, "vllm:num_requests_running{" M "3.0\n");

    m = read_in((char *) b.p, b.len, 65536);
    util_check(m->set == R && m->running == 3, "%x %u", m->set, m->running);

    util_drop(&b);
}


/* values whose sum does not fit in 64 bits */
TEST(test_metrics_sums)
{
    unsigned              i;
    util_buf_t            b = { 0 };
    const kvr_metrics_t  *m;

    for (i = 0; i < 100; i++) {
        util_puts(&b, "vllm:prefix_cache_queries_total{" M "9e17\n"
                      "vllm:prefix_cache_hits_total{" M "9e17\n"
                      "vllm:num_preemptions_total{" M "9e17\n"
                      "process_start_time_seconds 9e17\n");
    }

    m = read_in((char *) b.p, b.len, 65536);
    util_check(!(m->set & KVR_METRICS_START), "no start time");
    util_check(m->queries == 1000000000000000000ULL
               && m->hits == m->queries && m->preemptions == m->queries,
               "%ju %ju %ju", (uintmax_t) m->queries, (uintmax_t) m->hits,
               (uintmax_t) m->preemptions);

    util_drop(&b);
}


/* series with a rank belong to that rank, series without one to all ranks */
TEST(test_metrics_ranks)
{
    unsigned              step;
    kvr_metrics_t         one;
    const char           *text;
    const kvr_metrics_t  *m;

    text = "vllm:num_requests_running{engine=\"0\"} 3\n"
           "vllm:num_requests_running{engine=\"2\"} 5\n"
           "vllm:num_requests_running{engine=\"999\"} 7\n"
           "vllm:num_requests_running{engine=\"x\"} 11\n"
           "vllm:num_requests_waiting{engine=\"2\"} 1\n"
           "vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"100\"} 1\n"
           "vllm:cache_config_info{engine=\"2\",kv_cache_size_tokens=\"300\"} 1\n"
           "process_start_time_seconds 1000\n";

    for (step = 1; step < 100; step += 31) {
        m = read_in(text, strlen(text), step);

        util_check(m->running == 26 && m->waiting == 1 && m->capacity == 400,
                   "all ranks: %u %u", m->running, m->waiting);
        util_check(reader.ranks == 3, "%u ranks", reader.ranks);

        kvr_metrics_rank(&reader, 0, &one);
        util_check(one.running == 3 && one.capacity == 100
                   && !(one.set & KVR_METRICS_WAITING)
                   && one.set & KVR_METRICS_START && one.start == 1000,
                   "0: %u %x", one.running, one.set);

        kvr_metrics_rank(&reader, 1, &one);
        util_check(!(one.set & (KVR_METRICS_RUNNING|KVR_METRICS_CAPACITY)),
                   "1: not reported, which is not zero: %x", one.set);

        kvr_metrics_rank(&reader, 2, &one);
        util_check(one.running == 5 && one.waiting == 1 && one.capacity == 300,
                   "2: %u %u", one.running, one.waiting);
    }

    text = "{\"loads\":[{\"dp_rank\":0,\"num_running_reqs\":1},"
           "{\"dp_rank\":1,\"num_running_reqs\":4,"
           "\"max_total_num_tokens\":50}]}";

    m = read_in(text, strlen(text), 7);
    kvr_metrics_rank(&reader, 1, &one);
    util_check(m->running == 5 && reader.ranks == 2 && one.running == 4
               && one.capacity == 50, "JSON: %u %u", m->running, one.running);

    text = "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\"} 2\n"
           "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"1\"} 2\n";

    m = read_in(text, strlen(text), 7);
    kvr_metrics_rank(&reader, 1, &one);
    util_check(reader.ranks == 2 && one.running == 2, "SGLang");

    /*
     * one of many nodes reports its ranks, in any order: they are read from 0
     * on
     */

    text = "vllm:num_requests_running{engine=\"63\"} 2\n"
           "vllm:num_requests_running{engine=\"62\"} 1\n"
           "vllm:num_requests_running{engine=\"65\"} 4\n"
           "vllm:num_requests_running{engine=\"64\"} 3\n"
           "vllm:num_requests_running{engine=\"127\"} 99\n";

    m = read_in(text, strlen(text), 7);
    util_check(m->running == 109 && reader.ranks == 4, "a part: %u of %u",
               reader.ranks, m->running);

    for (step = 0; step < 4; step++) {
        kvr_metrics_rank(&reader, step, &one);
        util_check(one.running == step + 1, "a part, %u: %u", step, one.running);
    }

    text = "vllm:num_requests_running{engine=\"3\"} 2\n";

    (void) read_in(text, strlen(text), 7);
    util_check(reader.ranks == 1, "one of several ranks, with its own port");

    text = "vllm:num_requests_running 3\n";

    (void) read_in(text, strlen(text), 7);
    util_check(reader.ranks == 0, "no rank");
}


/* several nodes: ranks are numbered across them, in the header from 0 on */
TEST(test_metrics_nodes)
{
    unsigned        i, k;
    kvr_metrics_t   one;
    const char     *name;
    char            text[512];
    size_t          len;

    /* ranks in the order of the text, their number, the second rank */

    static const struct {
        uint32_t  n;
        uint32_t  label[4];
        uint32_t  ranks;
        uint32_t  second;
    } nodes[] = {
        { 4, { 8, 9, 10, 11 }, 4, 9 },
        { 4, { 11, 9, 10, 8 }, 4, 9 },
        { 3, { 100, 101, 102 }, 3, 101 },
        { 1, { 3 }, 1, 0 },
        { 3, { 0, 1, 999 }, 2, 1 },
        { 3, { 999, 1, 0 }, 2, 1 },
        { 3, { 81, 17, 16 }, 2, 17 },
        { 3, { 79, 17, 16 }, 64, 17 },
        { 4, { 4294967295, 65536, 5, 6 }, 2, 6 }
    };

    for (i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {

        for (k = 0, len = 0; k < nodes[i].n; k++) {
            len += (size_t) snprintf(text + len, sizeof(text) - len,
                                     "vllm:num_requests_running{engine=\"%u\"}"
                                     " %u\n", nodes[i].label[k],
                                     1 + nodes[i].label[k] % 1000);
        }

        (void) read_in(text, len, 7);
        name = text;
        util_check(reader.ranks == nodes[i].ranks, "%u ranks: %s",
                   reader.ranks, name);

        if (nodes[i].second) {
            kvr_metrics_rank(&reader, 1, &one);
            util_check(one.running == 1 + nodes[i].second,
                       "its second: %u: %s", one.running, name);
        }
    }

    /* the values of a rank that is too far away are dropped */

    name = "vllm:num_requests_running{engine=\"81\"} 7\n"
           "vllm:num_requests_running{engine=\"17\"} 2\n"
           "vllm:num_requests_running{engine=\"16\"} 1\n";

    (void) read_in(name, strlen(name), 7);
    kvr_metrics_rank(&reader, 0, &one);
    util_check(one.running == 1, "its first: %u", one.running);

    /* SGLang has all ranks behind one server: ranks without values are idle */

    name = "sglang:num_running_reqs{dp_rank=\"3\"} 2\n";

    (void) read_in(name, strlen(name), 7);
    util_check(reader.ranks == 4, "SGLang: %u", reader.ranks);
}


/* paths in order; auto tries all of them */
TEST(test_metrics_dialects)
{
    unsigned              i, k;
    uint32_t              n;
    const kvr_dialect_t  *d, *any;

    static const struct {
        const char  *name;
        const char  *path[4];
    } paths[] = {
        { "auto", { "/metrics", "/prometheus/metrics", "/v1/loads",
                    "/metrics" } },
        { "vllm", { "/metrics", "/metrics", "/metrics", "/metrics" } },
        { "sglang", { "/metrics", "/v1/loads", "/metrics", "/v1/loads" } },
        { "trtllm", { "/prometheus/metrics", "/metrics",
                      "/prometheus/metrics", "/metrics" } }
    };

    for (i = 0; i < kvr_nelts(paths); i++) {
        n = kvr_dialect_by_name(paths[i].name, strlen(paths[i].name));

        for (k = 0; k < 4; k++) {
            util_check(strcmp(kvr_dialect_path(n, k), paths[i].path[k]) == 0,
                       "%s: %s", paths[i].name, kvr_dialect_path(n, k));
        }
    }

    any = kvr_dialect(KVR_DIALECT_AUTO);

    for (n = 0; (d = kvr_dialect(n)) != NULL; n++) {

        util_check(kvr_dialect_by_name(d->name, strlen(d->name)) == n
                   && d->paths[0]
                   && d->series && (d->prefixes[0] || n == 0), "%s", d->name);

        for (i = 0; i < KVR_DIALECT_PATHS && d->paths[i]; i++) {

            for (k = 0; k < KVR_DIALECT_PATHS && any->paths[k]; k++) {
                if (strcmp(d->paths[i], any->paths[k]) == 0) {
                    break;
                }
            }

            util_check(k < KVR_DIALECT_PATHS && any->paths[k], "%s: %s",
                       d->name, d->paths[i]);
        }

        for (i = 0; d->series[i].name; i++) {
            util_check(!d->series[i].label == !d->series[i].value, "%s: %s",
                       d->name, d->series[i].name);
        }
    }

    util_check(n > 1
               && kvr_dialect_by_name("x", 1) == KVR_DIALECT_NONE, "names");
}
