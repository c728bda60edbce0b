
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_metrics: each of the ways in which engines tell of themselves, and the
 * traps in them.
 */


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
    const char     *name;
    const char     *text;
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

    { "vllm",
      "# HELP vllm:num_requests_running Number of requests.\n"
      "# TYPE vllm:num_requests_running gauge\n"
      "process_start_time_seconds 1.7886264577e+09\n"
      "vllm:num_requests_running{engine=\"0\"," M "4.0\n"
      "vllm:num_requests_waiting{engine=\"0\"," M "3.0\n"
      "vllm:kv_cache_usage_perc{engine=\"0\"," M "0.25\n"
      "vllm:prefix_cache_queries_total{engine=\"0\"," M "1.2e+06\n"
      "vllm:prefix_cache_queries_created{engine=\"0\"," M "1.78e+09\n"
      "vllm:prefix_cache_hits_total{engine=\"0\"," M "9000.0\n"
      "vllm:prefix_cache_hits_created{engine=\"0\"," M "1.78e+09\n"
      "vllm:external_prefix_cache_hits_total{engine=\"0\"," M "77.0\n"
      "vllm:num_preemptions_total{engine=\"0\"," M "2.0\n"
      "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\","
      "enable_prefix_caching=\"True\",engine=\"0\",num_cpu_blocks=\"None\","
      "num_gpu_blocks=\"27000\",num_gpu_blocks_override=\"None\"} 1.0\n",
      "vllm", R|W|K|C|H|Q|P|S, 4, 3, 0.25, 432000, 9000, 1200000, 2,
      1788626457.7 },

    { "vllm, waiting by reason",
      "vllm:num_requests_waiting{engine=\"0\"," M "9.0\n"
      "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"m\","
      "reason=\"capacity\"} 2.0\n"
      "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"m\","
      "reason=\"deferred\"} 7.0\n",
      "vllm", W, 0, 2, 0, 0, 0, 0, 0, 0 },

    { "vllm, old names",
      "vllm:num_requests_running{" M "1.0\n"
      "vllm:gpu_cache_usage_perc{" M "0.5\n"
      "vllm:cpu_cache_usage_perc{" M "0.9\n"
      "vllm:gpu_prefix_cache_queries_total{" M "10.0\n"
      "vllm:gpu_prefix_cache_hits_total{" M "5.0\n"
      "vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"10\"} 1\n",
      "vllm", R|K|C|H|Q, 1, 0, 0.5, 320, 5, 10, 0, 0 },

    { "vllm, old and new",
      "vllm:gpu_cache_usage_perc{" M "0.5\n"
      "vllm:kv_cache_usage_perc{" M "0.25\n"
      "vllm:gpu_prefix_cache_hits_total{" M "5.0\n"
      "vllm:prefix_cache_hits_total{" M "6.0\n",
      "vllm", K|H, 0, 0, 0.25, 0, 6, 0, 0, 0 },

    { "vllm, ranks",
      "vllm:num_requests_running{engine=\"0\"," M "4.0\n"
      "vllm:num_requests_running{engine=\"1\"," M "1.0\n"
      "vllm:kv_cache_usage_perc{engine=\"0\"," M "0.2\n"
      "vllm:kv_cache_usage_perc{engine=\"1\"," M "0.4\n"
      "vllm:cache_config_info{block_size=\"16\",engine=\"0\","
      "num_gpu_blocks=\"100\"} 1.0\n"
      "vllm:cache_config_info{block_size=\"16\",engine=\"1\","
      "num_gpu_blocks=\"200\"} 1.0\n",
      "vllm", R|K|C, 5, 0, 0.3, 4800, 0, 0, 0, 0 },

    { "vllm, Ray",
      "ray_dashboard 1\nvllm_num_requests_running{WorkerId=\"x\"," M "3\n",
      "vllm", R, 3, 0, 0, 0, 0, 0, 0, 0 },

    { "vllm, hybrid", "vllm:cache_config_info{block_size=\"1600\","
      "kv_cache_size_tokens=\"90000\",num_gpu_blocks=\"300\"} 1.0\n",
      "vllm", C, 0, 0, 0, 90000, 0, 0, 0, 0 },

    { "vllm, no prefix caching", "vllm:cache_config_info{block_size=\"16\","
      "enable_prefix_caching=\"False\",num_gpu_blocks=\"3\"} 1.0\n",
      "vllm", C|NC, 0, 0, 0, 48, 0, 0, 0, 0 },

    { "vllm, stats switched off",
      "python_info{version=\"3.12.3\"} 1.0\nprocess_start_time_seconds 5.0\n",
      "auto", S, 0, 0, 0, 0, 0, 0, 0, 5 },

    { "vllm, blocks not known", "vllm:cache_config_info{block_size=\"16\","
      "num_gpu_blocks=\"None\"} 1.0\n",
      "vllm", 0, 0, 0, 0, 0, 0, 0, 0, 0 },

    { "sglang",
      "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\","
      "pp_rank=\"0\",tp_rank=\"0\"} 7.0\n"
      "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\","
      "pp_rank=\"0\",tp_rank=\"1\"} 7.0\n"
      "sglang:num_queue_reqs{tp_rank=\"0\"} 2.0\n"
      "sglang:num_grammar_queue_reqs{tp_rank=\"0\"} 5.0\n"
      "sglang:token_usage{tp_rank=\"0\"} 0.12\n"
      "sglang:full_token_usage{tp_rank=\"0\"} 0.125\n"
      "sglang:cache_hit_rate{tp_rank=\"0\"} 0.0\n"
      "sglang:max_total_num_tokens{tp_rank=\"0\"} 450000.0\n"
      "sglang:cache_config_info{num_pages=\"28125\",page_size=\"16\"} 1.0\n"
      "sglang:cached_tokens_total{cache_source=\"device\"} 600.0\n"
      "sglang:cached_tokens_total{cache_source=\"host\"} 100.0\n"
      "sglang:prompt_tokens_total{tp_rank=\"0\"} 900.0\n"
      "sglang:num_retracted_requests_total{tp_rank=\"0\"} 3.0\n",
      "sglang", R|W|K|C|H|Q|P, 7, 2, 0.125, 450000, 700, 900, 3,
      0 },

    { "sglang, data-parallel",
      "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 7.0\n"
      "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\"} 1.0\n",
      "sglang", R, 8, 0, 0, 0, 0, 0, 0, 0 },

    { "sglang, loads",
      "{\"timestamp\":\"2026-01-01T00:00:00+00:00\",\"version\":\"0.5\","
      "\"loads\":[{\"dp_rank\":0,\"num_running_reqs\":3,"
      "\"num_waiting_reqs\":1,\"num_waiting_uncached_tokens\":900,"
      "\"num_used_tokens\":100,\"max_total_num_tokens\":1000,"
      "\"token_usage\":0.1},{\"dp_rank\":1,\"num_running_reqs\":2,"
      "\"num_waiting_reqs\":0,\"num_used_tokens\":300,"
      "\"max_total_num_tokens\":1000}]}",
      "sglang", R|W|K|C, 5, 1, 0.2, 2000, 0, 0, 0, 0 },

    { "sglang, not ready", "{\"loads\":[{\"num_running_reqs\":0,"
      "\"max_total_num_tokens\":0}]}",
      "sglang", R, 0, 0, 0, 0, 0, 0, 0, 0 },

    { "sglang, broken", "{\"version\":\"x\",\"loads\":[]}",
      "auto", 0, 0, 0, 0, 0, 0, 0, 0, 0 },

    { "sglang, loads as text",
      "sglang_num_running_reqs{dp_rank=\"0\"} 3\n"
      "sglang_num_waiting_reqs{dp_rank=\"0\"} 2\n"
      "sglang_max_total_num_tokens{dp_rank=\"0\"} 640\n"
      "sglang_token_usage{dp_rank=\"0\"} 0.5\n",
      "sglang", R|W|K|C, 3, 2, 0.5, 640, 0, 0, 0, 0 },

    { "trtllm",
      "trtllm_num_requests_running{" M "2.0\n"
      "trtllm_num_requests_waiting{" M "1.0\n"
      "trtllm_kv_cache_utilization{" M "0.75\n"
      "trtllm_kv_cache_hit_rate{" M "0.5\n"
      "trtllm_kv_cache_max_blocks{" M "1000.0\n"
      "trtllm_kv_cache_tokens_per_block{" M "32.0\n",
      "trtllm", R|W|K|C, 2, 1, 0.75, 32000, 0, 0, 0, 0 },

    { "triton",
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\"} 4\n"
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\"} 6\n"
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\"} 64\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} "
      "0.5\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} "
      "64\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 100\n",
      "trtllm", R|W|K|C, 6, 4, 0.5, 6400, 0, 0, 0, 0 },

    { "trtllm, iterations", "[{\"iter\":1,\"numActiveRequests\":2}]",
      "auto", 0, 0, 0, 0, 0, 0, 0, 0, 0 },

    { "llama.cpp",
      "llamacpp:prompt_tokens_total 100\n"
      "llamacpp:prompt_tokens_cached_total 300\n"
      "llamacpp:prompt_tokens_seconds 54.2\n"
      "llamacpp:requests_processing 2\n"
      "llamacpp:requests_deferred 1\n"
      "llamacpp:n_tokens_max 900\n",
      "llamacpp", R|W|H|Q, 2, 1, 0, 0, 300, 400, 0, 0 },

    { "tgi",
      "tgi_queue_size 3\ntgi_batch_current_size 5\n"
      "tgi_batch_current_max_tokens 500\ntgi_batch_max_total_tokens 40000\n",
      "tgi", R|W|C, 5, 3, 0, 40000, 0, 0, 0, 0 },

    { "CRLF, times, spaces, no last line end",
      "  tgi_queue_size   3   1700000000000\r\n"
      "tgi_batch_current_size\t5\r\n\r\n"
      "tgi_batch_max_total_tokens 7",
      "tgi", R|W|C, 5, 3, 0, 7, 0, 0, 0, 0 },

    { "labels that look like others",
      "vllm:num_requests_running{a=\"}\",b=\"\\\"} 9\",c=\",d=\"} 1\n"
      "vllm:num_requests_running_total{" M "9\n"
      "vllm:num_requests_runnin{" M "9\nvllm 9\nvllm: 9\nvllm:x\n",
      "vllm", R, 1, 0, 0, 0, 0, 0, 0, 0 },

    { "garbage",
      "# HELP\n# TYPE vllm:num_requests_running\n"
      "vllm:num_requests_running{engine=\"0\n"
      "vllm:num_requests_running} 4\n"
      "vllm:num_requests_waiting{model_name=\"\\\"} -nan\n"
      "vllm:kv_cache_usage_perc 1e999\nvllm:kv_cache_usage_perc -5\n"
      "vllm:kv_cache_usage_perc NaN\nvllm:kv_cache_usage_perc +Inf\n"
      "vllm:cache_config_info{block_size=\"-1\","
      "num_gpu_blocks=\"99999999999999999999\"} 1\n"
      "sglang:num_running_reqs{} 0x10\n"
      "<html><body>502 Bad Gateway</body></html>\n\xff\xfe\x01\n",
      "vllm", 0, 0, 0, 0, 0, 0, 0, 0, 0 },

    { "shares above one", "vllm:kv_cache_usage_perc 40\n",
      "vllm", 0, 0, 0, 0, 0, 0, 0, 0, 0 },

    { "empty", "", "auto", 0, 0, 0, 0, 0, 0, 0, 0, 0 }
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
    size_t                i, step, len;
    const sample_t       *s;
    const kvr_metrics_t  *m;

    for (i = 0; i < SAMPLES; i++) {
        s = &samples[i];
        len = strlen(s->text);

        for (step = 1; step <= len + 1; step += step / 3 + 1) {

            m = read_in(s->text, len, step);

            util_check(m->set == s->set, "%s: set %x", s->name, m->set);
            util_check(strcmp(kvr_dialect_name(m->engine), s->engine) == 0
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
}


/* old sets of adapters linger: the newest counts */
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


/* lines that are too long, ten megabytes of others, then what is wanted */
TEST(test_metrics_huge)
{
    unsigned              i;
    util_buf_t            b;
    const kvr_metrics_t  *m;

    memset(&b, 0, sizeof(b));

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


/* numbers that are none of anything: their sum is more than 64 bits hold */
TEST(test_metrics_sums)
{
    unsigned              i;
    util_buf_t            b;
    const kvr_metrics_t  *m;

    memset(&b, 0, sizeof(b));

    for (i = 0; i < 100; i++) {
        util_puts(&b, "vllm:prefix_cache_queries_total{" M "9e17\n"
                      "vllm:prefix_cache_hits_total{" M "9e17\n"
                      "vllm:num_preemptions_total{" M "9e17\n"
                      "process_start_time_seconds 9e17\n");
    }

    m = read_in((char *) b.p, b.len, 65536);
    util_check(!(m->set & KVR_METRICS_START), "no time of any process");
    util_check(m->queries == 1000000000000000000ULL
               && m->hits == m->queries && m->preemptions == m->queries,
               "%ju %ju %ju", (uintmax_t) m->queries, (uintmax_t) m->hits,
               (uintmax_t) m->preemptions);

    util_drop(&b);
}


/* each rank's own, and of those that name none what is said of all */
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
                   "all: %u %u", m->running, m->waiting);
        util_check(reader.ranks == 3, "%u ranks", reader.ranks);

        kvr_metrics_rank(&reader, 0, &one);
        util_check(one.running == 3 && one.capacity == 100
                   && !(one.set & KVR_METRICS_WAITING)
                   && one.set & KVR_METRICS_START && one.start == 1000,
                   "0: %u %x", one.running, one.set);

        kvr_metrics_rank(&reader, 1, &one);
        util_check(!(one.set & (KVR_METRICS_RUNNING|KVR_METRICS_CAPACITY)),
                   "1: nothing is told, which is not zero: %x", one.set);

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

    /* a node's ranks of many, in any order: they are asked for from 0 on */

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
    util_check(reader.ranks == 1, "one of several, with a port of its own");

    text = "vllm:num_requests_running 3\n";

    (void) read_in(text, strlen(text), 7);
    util_check(reader.ranks == 0, "nobody names a rank");
}


/* servers of several nodes: names go on, what a header may say begins anew */
TEST(test_metrics_nodes)
{
    unsigned        i, k;
    kvr_metrics_t   one;
    const char     *name;
    char            text[512];
    size_t          len;

    /* names as they come, how many ranks they are, the name of the second one */

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

    /* what was told of one that is too far away is forgotten */

    name = "vllm:num_requests_running{engine=\"81\"} 7\n"
           "vllm:num_requests_running{engine=\"17\"} 2\n"
           "vllm:num_requests_running{engine=\"16\"} 1\n";

    (void) read_in(name, strlen(name), 7);
    kvr_metrics_rank(&reader, 0, &one);
    util_check(one.running == 1, "its first: %u", one.running);

    /* of SGLang all ranks are behind one server: those not told of are idle */

    name = "sglang:num_running_reqs{dp_rank=\"3\"} 2\n";

    (void) read_in(name, strlen(name), 7);
    util_check(reader.ranks == 4, "SGLang: %u", reader.ranks);
}


TEST(test_metrics_orca)
{
    size_t         i;
    uint32_t       set;
    kvr_metrics_t  m;

    static const struct {
        const char  *value;
        uint32_t     set;
        double       kv;
        uint32_t     waiting;
    } values[] = {
        { "TEXT named_metrics.kv_cache_usage_perc=0.4, "
          "named_metrics.num_requests_waiting=2.0", K|W, 0.4, 2 },
        { "named_metrics.kv_cache_usage_perc=0.4,"
          "named_metrics.num_requests_waiting=0", K|W, 0.4, 0 },
        { "JSON {\"named_metrics\": {\"kv_cache_usage_perc\": 0.4, "
          "\"num_requests_waiting\": 3.0}}", K|W, 0.4, 3 },
        { "{\"named_metrics\":{\"num_requests_waiting\":1}}", W, 0, 1 },
        { "TEXT cpu_utilization=0.3, named_metrics.custom=0.4", 0, 0, 0 },
        { "kv_cache_usage_perc=7, num_requests_waiting=-1", 0, 0, 0 },
        { "kv_cache_usage_perc", 0, 0, 0 },
        { "kv_cache_usage_perc=", 0, 0, 0 },
        { "kv_cache_usage_perc 0.4", 0, 0, 0 },
        { "", 0, 0, 0 }
    };

    for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        memset(&m, 0, sizeof(m));

        set = kvr_orca_read(&m, (const uint8_t *) values[i].value,
                            strlen(values[i].value));

        util_check(set == values[i].set && m.set == set
                   && m.waiting == values[i].waiting
                   && m.kv > values[i].kv - 1e-9
                   && m.kv < values[i].kv + 1e-9, "%s", values[i].value);
    }
}


/* paths in their order; and auto tries all there are */
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
                   && kvr_dialect_name(n) == d->name && d->paths[0]
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

    util_check(n > 1 && kvr_dialect_name(n) == NULL
               && kvr_dialect_by_name("x", 1) == KVR_DIALECT_NONE, "names");
}
