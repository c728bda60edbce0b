#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/engine_dialects.h"
#include "reply/engine_request.h"


/*
 * The metrics of each engine, with its names and labels.
 */


/* tokens found in GPU memory, without those loaded from lower tiers */

static uint64_t
kve_dialect_device(const kve_scrape_t *m)
{
    return m->st.hits - m->st.loaded[KVE_HOST] - m->st.loaded[KVE_DISK];
}


static void
kve_metrics_process(kve_scrape_t *m)
{
    kve_metrics_head(m, "python_info", "gauge",
                     "Python platform information");
    kve_buf_str(m->b, "python_info{implementation=\"CPython\",major=\"3\","
                      "minor=\"12\",patchlevel=\"3\",version=\"3.12.3\"} "
                      "1.0\n");

    kve_metrics_head(m, "process_start_time_seconds", "gauge",
                     "Start time of the process since unix epoch in "
                     "seconds.");
    kve_buf_str(m->b, "process_start_time_seconds ");
    kve_metrics_number(m->b, m->s->started);
    kve_buf_str(m->b, "\n");

    kve_metrics_head(m, "process_open_fds", "gauge",
                     "Number of open file descriptors.");
    kve_buf_str(m->b, "process_open_fds ");
    kve_metrics_number(m->b, 64 + m->s->nconns);
    kve_buf_str(m->b, "\n");
}


static void
kve_metrics_vllm_config(kve_scrape_t *m)
{
    int                  e;
    const kve_config_t  *cf;

    cf = kve_replica_config(m->s->model);

    kve_metrics_head(m, "vllm:cache_config_info", "gauge",
                     "Information of the LLMEngine CacheConfig");

    if (m->s->engine->opt.dialect == KVE_VLLM_OLD) {
        kve_buf_printf(m->b, "vllm:cache_config_info{block_size=\"%u\","
                       "cache_dtype=\"auto\",calculate_kv_scales=\"False\","
                       "cpu_offload_gb=\"0\",enable_prefix_caching=\"%s\","
                       "gpu_memory_utilization=\"0.9\","
                       "is_attention_free=\"False\",num_cpu_blocks=\"2048\","
                       "num_gpu_blocks=\"%u\","
                       "num_gpu_blocks_override=\"None\","
                       "sliding_window=\"None\","
                       "swap_space_bytes=\"4294967296\"} 1.0\n",
                       cf->block_size, cf->no_cache ? "False" : "True",
                       m->st.blocks);
        return;
    }

    for (e = 0; e < m->engines; e++) {
        kve_buf_printf(m->b, "vllm:cache_config_info{block_size=\"%u\","
                       "cache_dtype=\"auto\",calculate_kv_scales=\"False\","
                       "cpu_kvcache_space_bytes=\"None\","
                       "cpu_offload_gb=\"0\",enable_prefix_caching=\"%s\","
                       "engine=\"%d\",gpu_memory_utilization=\"0.9\","
                       "is_attention_free=\"False\","
                       "kv_cache_memory_bytes=\"None\","
                       "kv_cache_size_tokens=\"%u\","
                       "mamba_block_size=\"None\","
                       "mamba_cache_dtype=\"auto\",num_cpu_blocks=\"None\","
                       "num_gpu_blocks=\"%u\","
                       "num_gpu_blocks_override=\"None\","
                       "prefix_caching_hash_algo=\"sha256\","
                       "sliding_window=\"None\",swap_space=\"4\","
                       "swap_space_bytes=\"4294967296\","
                       "user_specified_block_size=\"False\"} 1.0\n",
                       cf->block_size, cf->no_cache ? "False" : "True",
                       m->rank + e,
                       m->st.blocks / m->engines * cf->block_size,
                       m->st.blocks / m->engines);
    }
}


void
kve_metrics_vllm(kve_scrape_t *m)
{
    int            e, old;
    kve_server_t  *s;

    s = m->s;
    old = s->engine->opt.dialect == KVE_VLLM_OLD;

    if (m->rank == 0) {
        kve_metrics_process(m);
    }

    if (s->engine->opt.no_log_stats) {
        return;
    }

    kve_metrics_gauge(m, "vllm:num_requests_running",
                      "Number of requests in model execution batches.",
                      m->running);
    kve_metrics_gauge(m, "vllm:num_requests_waiting",
                      "Number of requests waiting to be processed.",
                      m->waiting);

    if (old) {
        kve_metrics_gauge(m, "vllm:num_requests_swapped",
                          "Number of requests swapped to CPU.", 0);
        kve_metrics_gauge(m, "vllm:gpu_cache_usage_perc",
                          "GPU KV-cache usage. 1 means 100 percent usage.",
                          m->kv_usage);
        kve_metrics_gauge(m, "vllm:cpu_cache_usage_perc",
                          "CPU KV-cache usage. 1 means 100 percent usage.",
                          0);
        kve_metrics_gauge(m, "vllm:gpu_prefix_cache_hit_rate",
                          "GPU prefix cache block hit rate.",
                          m->st.queries ? (double) m->st.hits / m->st.queries
                                        : 0);
    } else {
        kve_metrics_head(m, "vllm:num_requests_waiting_by_reason", "gauge",
                         "Number of requests waiting, by reason.");

        for (e = 0; e < m->engines; e++) {
            kve_metrics_series(m, "vllm:num_requests_waiting_by_reason", "",
                               e, "reason=\"capacity\"",
                               kve_metrics_share(m, e, m->waiting));
            kve_metrics_series(m, "vllm:num_requests_waiting_by_reason", "",
                               e, "reason=\"deferred\"", 0);
        }

        kve_metrics_gauge(m, "vllm:kv_cache_usage_perc",
                          "KV-cache usage. 1 means 100 percent usage.",
                          m->kv_usage);
        kve_metrics_head(m, "vllm:engine_sleep_state", "gauge",
                         "Engine sleep state.");
        kve_metrics_series(m, "vllm:engine_sleep_state", "", 0,
                           "sleep_state=\"awake\"", 1);
        kve_metrics_series(m, "vllm:engine_sleep_state", "", 0,
                           "sleep_state=\"weights_offloaded\"", 0);
        kve_metrics_series(m, "vllm:engine_sleep_state", "", 0,
                           "sleep_state=\"discard_all\"", 0);
        kve_metrics_counter(m, "vllm:external_prefix_cache_queries",
                            "External prefix cache queries, in tokens.",
                            m->st.queries - kve_dialect_device(m));
        kve_metrics_counter(m, "vllm:external_prefix_cache_hits",
                            "External prefix cache hits, in tokens.",
                            m->st.loaded[KVE_HOST] + m->st.loaded[KVE_DISK]);
    }

    kve_metrics_counter(m, old ? "vllm:gpu_prefix_cache_queries"
                               : "vllm:prefix_cache_queries",
                        "Prefix cache queries, in terms of number of "
                        "queried tokens.", m->st.queries);
    kve_metrics_counter(m, old ? "vllm:gpu_prefix_cache_hits"
                               : "vllm:prefix_cache_hits",
                        "Prefix cache hits, in terms of number of cached "
                        "tokens.", kve_dialect_device(m));
    kve_metrics_counter(m, "vllm:num_preemptions",
                        "Cumulative number of preemption from the engine.",
                        m->st.preemptions);
    kve_metrics_counter(m, "vllm:prompt_tokens",
                        "Number of prefill tokens processed.",
                        m->st.prompt_tokens);

    if (!old) {
        kve_metrics_counter(m, "vllm:prompt_tokens_cached",
                            "Number of cached prompt tokens.", m->st.hits);
        kve_metrics_counter(m, "vllm:prompt_tokens_recomputed",
                            "Number of recomputed prompt tokens.",
                            m->st.recomputed_tokens);
    }

    kve_metrics_counter(m, "vllm:generation_tokens",
                        "Number of generation tokens processed.",
                        m->st.generation_tokens);

    if (!old) {
        kve_metrics_head(m, "vllm:admission_rejections_total", "counter",
                         "Count of requests that were not admitted.");
        kve_metrics_series(m, "vllm:admission_rejections_total", "", 0,
                           "reason=\"max_num_queued_reqs\"",
                           s->counters.rejected);
    }

    kve_metrics_head(m, "vllm:request_success_total", "counter",
                     "Count of successfully processed requests.");

    kve_metrics_series(m, "vllm:request_success_total", "", 0,
                       "finished_reason=\"stop\"",
                       s->counters.stops + s->counters.tool_calls);
    kve_metrics_series(m, "vllm:request_success_total", "", 0,
                       "finished_reason=\"length\"", s->counters.lengths);
    kve_metrics_series(m, "vllm:request_success_total", "", 0,
                       "finished_reason=\"abort\"", s->counters.aborted);

    kve_metrics_hist(m, "vllm:time_to_first_token_seconds",
                     "Histogram of time to first token in seconds.",
                     &s->ttft);
    kve_metrics_hist(m, old ? "vllm:time_per_output_token_seconds"
                            : "vllm:inter_token_latency_seconds",
                     "Histogram of inter-token latency in seconds.", &s->itl);
    kve_metrics_hist(m, "vllm:e2e_request_latency_seconds",
                     "Histogram of e2e request latency in seconds.", &s->e2e);
    kve_metrics_hist(m, "vllm:request_queue_time_seconds",
                     "Histogram of time spent in WAITING phase for request.",
                     &s->queue);
    kve_metrics_hist(m, "vllm:request_prefill_time_seconds",
                     "Histogram of time spent in PREFILL phase for request.",
                     &s->prefill);
    kve_metrics_hist(m, "vllm:request_decode_time_seconds",
                     "Histogram of time spent in DECODE phase for request.",
                     &s->decode);

    kve_metrics_vllm_config(m);
}


void
kve_metrics_sglang(kve_scrape_t *m)
{
    double               tokens, rate;
    kve_server_t        *s;
    const kve_config_t  *cf;

    s = m->s;
    cf = kve_replica_config(s->model);
    tokens = (double) m->st.blocks * cf->block_size;
    rate = m->st.decoding ? 0 : m->st.queries
                                ? (double) m->st.hits / m->st.queries : 0;

    kve_metrics_gauge(m, "sglang:num_running_reqs",
                      "The number of running requests.", m->running);
    kve_metrics_gauge(m, "sglang:num_queue_reqs",
                      "The number of requests in the waiting queue.",
                      m->waiting);
    kve_metrics_gauge(m, "sglang:num_grammar_queue_reqs",
                      "The number of requests in the grammar waiting queue.",
                      0);
    kve_metrics_gauge(m, "sglang:num_used_tokens",
                      "The number of used tokens.",
                      (double) m->st.held_blocks * cf->block_size);
    kve_metrics_gauge(m, "sglang:token_usage", "The token usage.",
                      round(m->kv_usage * 100) / 100);
    kve_metrics_gauge(m, "sglang:full_token_usage",
                      "The token usage of the full attention layers.",
                      m->kv_usage);
    kve_metrics_gauge(m, "sglang:gen_throughput",
                      "The generation throughput (token/s).",
                      m->st.busy > 0 ? m->st.generation_tokens / m->st.busy
                                     : 0);

    /* a report during decode sets it to zero, as in SGLang */

    kve_metrics_gauge(m, "sglang:cache_hit_rate", "The prefix cache hit "
                      "rate.", rate);
    kve_metrics_gauge(m, "sglang:max_total_num_tokens",
                      "Maximum total number of tokens in the KV cache pool.",
                      tokens);
    kve_metrics_gauge(m, "sglang:page_size", "Page size of the KV cache.",
                      cf->block_size);
    kve_metrics_gauge(m, "sglang:context_len", "Context length.",
                      s->engine->opt.max_model_len);
    kve_metrics_head(m, "sglang:cache_config_info", "gauge",
                     "Cache configuration.");
    kve_buf_printf(m->b, "sglang:cache_config_info{num_pages=\"%u\","
                   "page_size=\"%u\"} 1.0\n", m->st.blocks,
                   cf->block_size);

    kve_metrics_counter(m, "sglang:prompt_tokens",
                        "Number of prefill tokens processed.",
                        m->st.prompt_tokens);
    kve_metrics_counter(m, "sglang:generation_tokens",
                        "Number of generation tokens processed.",
                        m->st.generation_tokens);
    kve_metrics_counter_of(m, "sglang:cached_tokens",
                           "Number of cached prompt tokens.",
                           "cache_source=\"device\"", kve_dialect_device(m));

    if (cf->tier[KVE_HOST].blocks) {
        kve_metrics_series(m, "sglang:cached_tokens_total", "", 0,
                           "cache_source=\"host\"", m->st.loaded[KVE_HOST]);
        kve_metrics_gauge(m, "sglang:hicache_host_total_tokens",
                          "Tokens that host memory holds.",
                          (double) cf->tier[KVE_HOST].blocks
                          * cf->block_size * s->ranks);
    }

    kve_metrics_counter(m, "sglang:num_requests",
                        "Number of requests processed.", m->st.done);
    kve_metrics_counter(m, "sglang:num_retracted_requests",
                        "Number of retracted requests.", m->st.preemptions);

    kve_metrics_hist(m, "sglang:time_to_first_token_seconds",
                     "Histogram of time to first token in seconds.",
                     &s->ttft);
    kve_metrics_hist(m, "sglang:inter_token_latency_seconds",
                     "Histogram of inter-token latency in seconds.", &s->itl);
    kve_metrics_hist(m, "sglang:e2e_request_latency_seconds",
                     "Histogram of end-to-end request latency in seconds.",
                     &s->e2e);
}


void
kve_metrics_trtllm(kve_scrape_t *m)
{
    kve_server_t        *s;
    const kve_config_t  *cf;

    s = m->s;
    cf = kve_replica_config(s->model);

    kve_metrics_gauge(m, "trtllm_num_requests_running",
                      "Number of requests running.", m->running);
    kve_metrics_gauge(m, "trtllm_num_requests_waiting",
                      "Number of requests waiting.", m->waiting);
    kve_metrics_gauge(m, "trtllm_kv_cache_utilization",
                      "KV cache utilization.", m->kv_usage);
    kve_metrics_gauge(m, "trtllm_kv_cache_hit_rate", "KV cache hit rate.",
                      m->st.queries ? (double) m->st.hits / m->st.queries
                                    : 0);
    kve_metrics_gauge(m, "trtllm_kv_cache_max_blocks",
                      "Blocks of the KV cache.", m->st.blocks);
    kve_metrics_gauge(m, "trtllm_kv_cache_tokens_per_block",
                      "Tokens per block of the KV cache.", cf->block_size);
    kve_metrics_counter_of(m, "trtllm_request_success",
                           "Count of successfully processed requests.",
                           "finished_reason=\"stop\"",
                           s->counters.stops + s->counters.tool_calls);
    kve_metrics_counter(m, "trtllm_prompt_tokens",
                        "Number of prompt tokens.", m->st.prompt_tokens);
    kve_metrics_counter(m, "trtllm_generation_tokens",
                        "Number of generated tokens.",
                        m->st.generation_tokens);
    kve_metrics_hist(m, "trtllm_time_to_first_token_seconds",
                     "Histogram of time to first token in seconds.",
                     &s->ttft);
    kve_metrics_hist(m, "trtllm_time_per_output_token_seconds",
                     "Histogram of time per output token in seconds.",
                     &s->itl);
    kve_metrics_hist(m, "trtllm_e2e_request_latency_seconds",
                     "Histogram of end to end request latency in seconds.",
                     &s->e2e);
    kve_metrics_hist(m, "trtllm_request_queue_time_seconds",
                     "Histogram of time spent in WAITING phase for request.",
                     &s->queue);
}


/* no labels, and integers without a fraction */

static void
kve_metrics_llamacpp_one(kve_scrape_t *m, const char *name, const char *type,
    const char *help, double value)
{
    kve_buf_printf(m->b, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\n"
                   "llamacpp:%s %.6g\n", name, help, name, type, name, value);
}


void
kve_metrics_llamacpp(kve_scrape_t *m)
{
    double         prompt, rate;
    kve_server_t  *s;

    s = m->s;
    prompt = (double) m->st.prompt_tokens - (double) m->st.hits;
    prompt = prompt < 0 ? 0 : prompt;

    kve_metrics_llamacpp_one(m, "prompt_tokens_total", "counter",
                             "Number of prompt tokens processed, excluding "
                             "cached tokens", prompt);
    kve_metrics_llamacpp_one(m, "prompt_tokens_cached_total", "counter",
                             "Number of prompt tokens reused from the cache",
                             m->st.hits);
    kve_metrics_llamacpp_one(m, "prompt_seconds_total", "counter",
                             "Total time spent processing prompts",
                             s->prefill.sum);
    kve_metrics_llamacpp_one(m, "tokens_predicted_total", "counter",
                             "Number of generation tokens processed",
                             m->st.generation_tokens);
    kve_metrics_llamacpp_one(m, "tokens_predicted_seconds_total", "counter",
                             "Total time spent generating tokens",
                             s->decode.sum);
    kve_metrics_llamacpp_one(m, "n_decode_total", "counter",
                             "Total number of llama_decode() calls",
                             m->st.steps);
    kve_metrics_llamacpp_one(m, "n_tokens_max", "counter",
                             "Largest observed sequence length", 0);

    rate = s->prefill.sum > 0 ? prompt / s->prefill.sum : 0;
    kve_metrics_llamacpp_one(m, "prompt_tokens_seconds", "gauge",
                             "Average prompt throughput in tokens/s", rate);

    rate = s->decode.sum > 0 ? m->st.generation_tokens / s->decode.sum : 0;
    kve_metrics_llamacpp_one(m, "predicted_tokens_seconds", "gauge",
                             "Average generation throughput in tokens/s",
                             rate);
    kve_metrics_llamacpp_one(m, "requests_processing", "gauge",
                             "Number of requests processing", m->running);
    kve_metrics_llamacpp_one(m, "requests_deferred", "gauge",
                             "Number of requests deferred", m->waiting);
    kve_metrics_llamacpp_one(m, "n_busy_slots_per_decode", "gauge",
                             "Average number of busy slots per "
                             "llama_decode() call",
                             m->st.steps ? (double) m->st.generation_tokens
                                           / m->st.steps : 0);
}


void
kve_metrics_tgi(kve_scrape_t *m)
{
    double               size;
    kve_server_t        *s;
    const kve_config_t  *cf;

    s = m->s;
    cf = kve_replica_config(s->model);
    size = cf->block_size;

    kve_metrics_gauge(m, "tgi_queue_size", "Queue size", m->waiting);
    kve_metrics_gauge(m, "tgi_batch_current_size", "Batch size", m->running);
    kve_metrics_gauge(m, "tgi_batch_current_max_tokens",
                      "Tokens of the batch at most", m->st.held_blocks * size);
    kve_metrics_gauge(m, "tgi_batch_max_total_tokens",
                      "Tokens of any batch at most", m->st.blocks * size);

    kve_buf_printf(m->b, "# TYPE tgi_request_count counter\n"
                   "tgi_request_count %llu\n"
                   "# TYPE tgi_request_success counter\n"
                   "tgi_request_success{method=\"generate\"} %llu\n"
                   "# TYPE tgi_request_skipped_tokens histogram\n"
                   "tgi_request_skipped_tokens_sum %llu\n"
                   "tgi_request_skipped_tokens_count %llu\n"
                   "# TYPE tgi_request_input_length histogram\n"
                   "tgi_request_input_length_sum %llu\n"
                   "tgi_request_input_length_count %llu\n",
                   (unsigned long long) m->st.requests,
                   (unsigned long long) m->st.done,
                   (unsigned long long) m->st.hits,
                   (unsigned long long) m->st.done,
                   (unsigned long long) m->st.prompt_tokens,
                   (unsigned long long) m->st.done);

    kve_metrics_hist(m, "tgi_request_queue_duration", "Queue", &s->queue);
    kve_metrics_hist(m, "tgi_request_duration", "Request", &s->e2e);
    kve_metrics_hist(m, "tgi_request_mean_time_per_token_duration",
                     "Time per token", &s->itl);
}
