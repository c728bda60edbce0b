
/*
 * Copyright (C) kvroute contributors
 */


#include "core/base/kvr_core.h"
#include "core/engine/kvr_dialect.h"


/* series of Prometheus client libraries, in any process */

static const kvr_dialect_series_t  kvr_dialect_any[] = {
    { "process_start_time_seconds", KVR_SERIES_START, NULL, NULL },
    { 0 }
};


static const kvr_dialect_series_t  kvr_dialect_vllm[] = {
    { "num_requests_running", KVR_SERIES_RUNNING, NULL, NULL },
    { "num_requests_waiting", KVR_SERIES_WAITING, NULL, NULL },
    { "num_requests_waiting_by_reason", KVR_SERIES_WAITING_ROOM, "reason",
      "capacity" },
    { "kv_cache_usage_perc", KVR_SERIES_KV, NULL, NULL },
    { "gpu_cache_usage_perc", KVR_SERIES_KV_OLD, NULL, NULL },
    { "prefix_cache_hits_total", KVR_SERIES_HITS, NULL, NULL },
    { "gpu_prefix_cache_hits_total", KVR_SERIES_HITS_OLD, NULL, NULL },
    { "prefix_cache_queries_total", KVR_SERIES_QUERIES, NULL, NULL },
    { "gpu_prefix_cache_queries_total", KVR_SERIES_QUERIES_OLD, NULL, NULL },
    { "num_preemptions_total", KVR_SERIES_PREEMPTIONS, NULL, NULL },
    { "cache_config_info", KVR_SERIES_CONFIG, NULL, NULL },
    { "lora_requests_info", KVR_SERIES_LORA, NULL, NULL },
    { 0 }
};


static const kvr_dialect_series_t  kvr_dialect_sglang[] = {
    { "num_running_reqs", KVR_SERIES_RUNNING, NULL, NULL },
    { "num_queue_reqs", KVR_SERIES_WAITING, NULL, NULL },
    { "num_waiting_reqs", KVR_SERIES_WAITING, NULL, NULL },
    { "full_token_usage", KVR_SERIES_KV, NULL, NULL },
    { "token_usage", KVR_SERIES_KV_OLD, NULL, NULL },
    { "cached_tokens_total", KVR_SERIES_HITS, NULL, NULL },
    { "prompt_tokens_total", KVR_SERIES_QUERIES, NULL, NULL },
    { "num_retracted_requests_total", KVR_SERIES_PREEMPTIONS, NULL, NULL },
    { "max_total_num_tokens", KVR_SERIES_TOKENS, NULL, NULL },
    { "cache_config_info", KVR_SERIES_NOTHING, NULL, NULL },
    { 0 }
};

/* /v1/loads, which works without --enable-metrics */

#define kvr_dialect_sglang_root(_)                                            \
    _("loads", KVR_PUSH_ARRAY, 1, 0, 0)

#define kvr_dialect_sglang_load(_)                                            \
    _("dp_rank", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_RANK, 0)                  \
    _("num_running_reqs", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_RUNNING, 0)      \
    _("num_waiting_reqs", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_WAITING, 0)      \
    _("num_used_tokens", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_BLOCKS, 0)        \
    _("max_total_num_tokens", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_TOKENS, 0)

static const kvr_push_node_t  kvr_dialect_sglang_json[] = {
    kvr_push_node(kvr_dialect_sglang_root),
    kvr_push_node(kvr_dialect_sglang_load)
};

_Static_assert(1 + KVR_SERIES_MAX <= 256, "leaves are bytes");


/* names of its own server, and of Triton */

static const kvr_dialect_series_t  kvr_dialect_trtllm[] = {
    { "num_requests_running", KVR_SERIES_RUNNING, NULL, NULL },
    { "num_requests_waiting", KVR_SERIES_WAITING, NULL, NULL },
    { "kv_cache_utilization", KVR_SERIES_KV, NULL, NULL },
    { "kv_cache_max_blocks", KVR_SERIES_BLOCKS, NULL, NULL },
    { "kv_cache_tokens_per_block", KVR_SERIES_BLOCK_SIZE, NULL, NULL },
    { "request_metrics", KVR_SERIES_WAITING, "request_type", "waiting" },
    { "request_metrics", KVR_SERIES_RUNNING, "request_type", "scheduled" },
    { "kv_cache_block_metrics", KVR_SERIES_KV, "kv_cache_block_type",
      "fraction" },
    { "kv_cache_block_metrics", KVR_SERIES_BLOCK_SIZE, "kv_cache_block_type",
      "tokens_per" },
    { "kv_cache_block_metrics", KVR_SERIES_BLOCKS, "kv_cache_block_type",
      "max" },
    { 0 }
};


static const kvr_dialect_series_t  kvr_dialect_llamacpp[] = {
    { "requests_processing", KVR_SERIES_RUNNING, NULL, NULL },
    { "requests_deferred", KVR_SERIES_WAITING, NULL, NULL },
    { "kv_cache_usage_ratio", KVR_SERIES_KV, NULL, NULL },
    { "prompt_tokens_cached_total", KVR_SERIES_HITS, NULL, NULL },
    { "prompt_tokens_total", KVR_SERIES_COMPUTED, NULL, NULL },
    { 0 }
};


static const kvr_dialect_series_t  kvr_dialect_tgi[] = {
    { "batch_current_size", KVR_SERIES_RUNNING, NULL, NULL },
    { "queue_size", KVR_SERIES_WAITING, NULL, NULL },
    { "batch_max_total_tokens", KVR_SERIES_TOKENS, NULL, NULL },
    { 0 }
};


static const kvr_dialect_t  kvr_dialects[] = {
    {
        .name = "auto",
        .paths = { "/metrics", "/prometheus/metrics", "/v1/loads" },
        .series = kvr_dialect_any
    },
    {
        .name = "vllm",
        .prefixes = { "vllm" },
        .paths = { "/metrics" },
        .series = kvr_dialect_vllm,
        .rank = "engine",
        .nodes = 1,
        .adapters = { "running_lora_adapters", "waiting_lora_adapters" },
        .max_adapters = "max_lora"
    },
    {
        .name = "sglang",
        .prefixes = { "sglang" },
        .paths = { "/metrics", "/v1/loads" },
        .series = kvr_dialect_sglang,
        .repeats = { "tp_rank", "pp_rank" },
        .rank = "dp_rank",
        .json = kvr_dialect_sglang_json
    },
    {
        /* /metrics of its own server only has statistics of its last steps */

        .name = "trtllm",
        .prefixes = { "trtllm", "nv_trt_llm" },
        .paths = { "/prometheus/metrics", "/metrics" },
        .series = kvr_dialect_trtllm
    },
    {
        .name = "llamacpp",
        .prefixes = { "llamacpp" },
        .paths = { "/metrics" },
        .series = kvr_dialect_llamacpp
    },
    {
        .name = "tgi",
        .prefixes = { "tgi" },
        .paths = { "/metrics" },
        .series = kvr_dialect_tgi
    }
};


const kvr_dialect_t *
kvr_dialect(uint32_t number)
{
    return number < kvr_nelts(kvr_dialects) ? &kvr_dialects[number] : NULL;
}


const char *
kvr_dialect_path(uint32_t number, uint32_t n)
{
    uint32_t              paths;
    const kvr_dialect_t  *d;

    d = &kvr_dialects[number];

    for (paths = 0; paths < KVR_DIALECT_PATHS && d->paths[paths]; paths++) {
        /* void */
    }

    return d->paths[n % paths];
}


uint32_t
kvr_dialect_by_name(const void *name, size_t len)
{
    uint32_t  i;

    for (i = 0; i < kvr_nelts(kvr_dialects); i++) {
        if (strlen(kvr_dialects[i].name) == len
            && memcmp(kvr_dialects[i].name, name, len) == 0)
        {
            return i;
        }
    }

    return KVR_DIALECT_NONE;
}
