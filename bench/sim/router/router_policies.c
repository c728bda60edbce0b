/*
 * The configurations of the shipped router, for the contest and the studies.
 */

#include "bench/sim/router/router.h"


/* engines report nothing: only their first tokens are timed */

static const kvs_router_conf_t  kvs_conf_kv_cache = {
    .policy = KVR_POLICY_KV_CACHE, .timed = 1
};

/* kv_cache without ranks: 8 replicas are one server */
static const kvs_router_conf_t  kvs_conf_ranks = {
    .policy = KVR_POLICY_KV_CACHE, .timed = 1, .ranks = 8
};

static const kvs_router_conf_t  kvs_conf_reported = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1, .reported = 1
};

static const kvs_router_conf_t  kvs_conf_probed = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1, .reported = 1, .probe = 1
};

/* replies report cached tokens, and nothing else */

static const kvs_router_conf_t  kvs_conf_usage = {
    .policy = KVR_POLICY_KV_CACHE, .usage = 1, .timed = 1
};

/* the same, and metrics report the capacity, in tokens of another length */

#define KVS_TOLD                                                              \
    .usage = 1, .timed = 1, .probe = 1, .metrics = 1, .replies = 1

static const kvs_router_conf_t  kvs_conf_told = {
    .policy = KVR_POLICY_KV_CACHE, KVS_TOLD
};

/* each has one estimator switched off */

#define KVS_WITHOUT(base, what, ...)                                          \
    static const kvs_router_conf_t  kvs_conf_##base##_##what = {              \
        .policy = KVR_POLICY_KV_CACHE, __VA_ARGS__                            \
    };

KVS_WITHOUT(kv_cache, ttft, .timed = 0)
KVS_WITHOUT(kv_cache, delay, .timed = 1, .without = KVS_WITHOUT_DELAY)
KVS_WITHOUT(kv_cache, rest, .timed = 1, .without = KVS_WITHOUT_REST)
KVS_WITHOUT(kv_cache, rate, .timed = 1, .without = KVS_WITHOUT_RATE)
KVS_WITHOUT(kv_cache, turnover, .timed = 1, .without = KVS_WITHOUT_TURNOVER)

KVS_WITHOUT(usage, ttft, .usage = 1)
KVS_WITHOUT(usage, retention, .usage = 1, .timed = 1,
            .without = KVS_WITHOUT_RETENTION)
KVS_WITHOUT(usage, misses, .usage = 1, .timed = 1,
            .without = KVS_WITHOUT_MISSES)

KVS_WITHOUT(told, retention, KVS_TOLD, .without = KVS_WITHOUT_RETENTION)
KVS_WITHOUT(told, factor, KVS_TOLD, .without = KVS_WITHOUT_FACTOR)
KVS_WITHOUT(told, output, KVS_TOLD, .without = KVS_WITHOUT_OUTPUT)

#define KVS_ABLATED(base, name, what)                                         \
    KVS_ROUTER(name "-" #what, KVS_ABLATION, &kvs_conf_##base##_##what)

/* KV events with this delay; aliases also use cached tokens */

#define KVS_EVENTS(ms)                                                        \
    static const kvs_router_conf_t  kvs_conf_events_##ms = {                  \
        .policy = KVR_POLICY_KV_CACHE, .timed = 1, .flush = 1, .events = 1,   \
        .delay = ms / 1000.0                                                  \
    };                                                                        \
                                                                              \
    static const kvs_router_conf_t  kvs_conf_aliases_##ms = {                 \
        .policy = KVR_POLICY_KV_CACHE, .timed = 1, .flush = 1, .events = 1,   \
        .delay = ms / 1000.0, .aliases = 1, .usage = 1                                \
    };

KVS_EVENTS(5)
KVS_EVENTS(50)
KVS_EVENTS(500)

static const kvs_router_conf_t  kvs_conf_oracle = {
    .policy = KVR_POLICY_KV_CACHE, .state = KVS_STATE_TRUE
};

/* make bench-burst: two further options, alone and together */

#define KVS_FURTHER(name, ...)                                                \
    static const kvs_router_conf_t  kvs_conf_##name = {                       \
        .policy = KVR_POLICY_KV_CACHE, .usage = 1, .timed = 1, .probe = 1,    \
        .replies = 1, .tiers = 1, __VA_ARGS__                                 \
    };

KVS_FURTHER(knows, .fetch = 0)
KVS_FURTHER(fetch, .fetch = 1)
KVS_FURTHER(wait, .wait = 1)
KVS_FURTHER(both, .fetch = 1, .wait = 1)

/* make bench-tiers */

static const kvs_router_conf_t  kvs_conf_tiers_oracle = {
    .policy = KVR_POLICY_KV_CACHE, .state = KVS_STATE_TRUE, .tiers = 1
};

#define KVS_VLLM  .usage = 1, .timed = 1, .probe = 1, .replies = 1

static const kvs_router_conf_t  kvs_conf_tiers_told = {
    .policy = KVR_POLICY_KV_CACHE, KVS_VLLM, .tiers = 1
};

static const kvs_router_conf_t  kvs_conf_tiers_learned = {
    .policy = KVR_POLICY_KV_CACHE, KVS_VLLM
};

static const kvs_router_conf_t  kvs_conf_least = {
    .policy = KVR_POLICY_LEAST_REQUEST
};

static const kvs_router_conf_t  kvs_conf_turn = {
    .policy = KVR_POLICY_ROUND_ROBIN
};

static const kvs_router_conf_t  kvs_conf_sticky = {
    .policy = KVR_POLICY_STICKY
};

/* assumed capacities in MB, if engines report none */

#define KVS_ASSUMED(mb)                                                       \
    static const kvs_router_conf_t  kvs_conf_assumed_##mb = {                 \
        .policy = KVR_POLICY_KV_CACHE, .assumed = mb                          \
    };

KVS_ASSUMED(1)
KVS_ASSUMED(2)
KVS_ASSUMED(4)
KVS_ASSUMED(8)
KVS_ASSUMED(16)
KVS_ASSUMED(64)

/* the index study */

static const kvs_router_conf_t  kvs_conf_margin = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1.25, .reported = 1
};

static const kvs_router_conf_t  kvs_conf_half = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 0.5, .reported = 1
};

static const kvs_router_conf_t  kvs_conf_quarter = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 0.25, .reported = 1
};

static const kvs_router_conf_t  kvs_conf_double = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 2, .reported = 1
};

static const kvs_router_conf_t  kvs_conf_four = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 4, .reported = 1
};

static const kvs_router_conf_t  kvs_conf_misses = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1
};

static const kvs_router_conf_t  kvs_conf_misses4 = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 4
};

static const kvs_router_conf_t  kvs_conf_lru = {
    .policy = KVR_POLICY_KV_CACHE, .state = KVS_STATE_LRU, .capacity = 1
};

static const kvs_router_conf_t  kvs_conf_ttl = {
    .policy = KVR_POLICY_KV_CACHE, .state = KVS_STATE_LRU, .ttl = 120
};

static const kvs_router_conf_t  kvs_conf_lost = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1, .reported = 1, .lost = 0.02
};

static const kvs_router_conf_t  kvs_conf_lost_strict = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1, .reported = 1,
    .lost = 0.02, .strict = 1
};

static const kvs_router_conf_t  kvs_conf_replies = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1, .reported = 1, .replies = 1
};

static const kvs_router_conf_t  kvs_conf_flush = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1, .reported = 1, .flush = 1
};

static const kvs_router_conf_t  kvs_conf_headers = {
    .policy = KVR_POLICY_KV_CACHE, .capacity = 1, .reported = 1
};


const kvs_policy_t  kvs_router_policies[] = {
    KVS_ROUTER("kv_cache", KVS_OURS, &kvs_conf_kv_cache),
    KVS_ROUTER("kv_cache_reported", KVS_OURS, &kvs_conf_reported),
    KVS_ROUTER("kv_cache_probed", KVS_OURS, &kvs_conf_probed),
    KVS_ROUTER("kv_cache_usage", KVS_OURS, &kvs_conf_usage),
    { .name = "kv_cache_queued", .kind = KVS_OURS|KVS_QUEUED },
    KVS_ROUTER("kv_cache_events", KVS_STUDY, &kvs_conf_events_50),
    KVS_ROUTER("kv_cache_aliases", KVS_STUDY, &kvs_conf_aliases_50),
    KVS_ROUTER("events_5ms", KVS_STUDY, &kvs_conf_events_5),
    KVS_ROUTER("events_500ms", KVS_STUDY, &kvs_conf_events_500),
    KVS_ROUTER("aliases_5ms", KVS_STUDY, &kvs_conf_aliases_5),
    KVS_ROUTER("aliases_500ms", KVS_STUDY, &kvs_conf_aliases_500),
    KVS_ROUTER("kv_cache_8_ranks", KVS_STUDY, &kvs_conf_ranks),
    KVS_ROUTER("oracle", KVS_STUDY, &kvs_conf_oracle),
    KVS_ROUTER("least_request", KVS_RIVAL, &kvs_conf_least),
    KVS_ROUTER("round_robin", KVS_RIVAL, &kvs_conf_turn),
    KVS_ROUTER("sticky", KVS_OURS|KVS_RIVAL, &kvs_conf_sticky),

    KVS_ROUTER("kv_cache_told", KVS_ABLATION, &kvs_conf_told),
    KVS_ABLATED(kv_cache, "kv_cache", ttft),
    KVS_ABLATED(kv_cache, "kv_cache", delay),
    KVS_ABLATED(kv_cache, "kv_cache", rest),
    KVS_ABLATED(kv_cache, "kv_cache", rate),
    KVS_ABLATED(kv_cache, "kv_cache", turnover),
    KVS_ABLATED(usage, "kv_cache_usage", ttft),
    KVS_ABLATED(usage, "kv_cache_usage", retention),
    KVS_ABLATED(usage, "kv_cache_usage", misses),
    KVS_ABLATED(told, "kv_cache_told", retention),
    KVS_ABLATED(told, "kv_cache_told", factor),
    KVS_ABLATED(told, "kv_cache_told", output),

    KVS_ROUTER("knows", KVS_ABLATION, &kvs_conf_knows),
    KVS_ROUTER("fetch", KVS_ABLATION, &kvs_conf_fetch),
    KVS_ROUTER("wait", KVS_ABLATION, &kvs_conf_wait),
    KVS_ROUTER("both", KVS_ABLATION, &kvs_conf_both),

    KVS_ROUTER("assumed_1m", KVS_PARAM, &kvs_conf_assumed_1),
    KVS_ROUTER("assumed_2m", KVS_PARAM, &kvs_conf_assumed_2),
    KVS_ROUTER("assumed_4m", KVS_PARAM, &kvs_conf_assumed_4),
    KVS_ROUTER("assumed_8m", KVS_PARAM, &kvs_conf_assumed_8),
    KVS_ROUTER("assumed_16m", KVS_PARAM, &kvs_conf_assumed_16),
    KVS_ROUTER("assumed_64m", KVS_PARAM, &kvs_conf_assumed_64),

    KVS_ROUTER("index_1.25", KVS_STUDY, &kvs_conf_margin),
    KVS_ROUTER("index_1/2", KVS_STUDY, &kvs_conf_half),
    KVS_ROUTER("index_1/4", KVS_STUDY, &kvs_conf_quarter),
    KVS_ROUTER("index_2", KVS_STUDY, &kvs_conf_double),
    KVS_ROUTER("index_4", KVS_STUDY, &kvs_conf_four),
    KVS_ROUTER("index_misses_1", KVS_STUDY, &kvs_conf_misses),
    KVS_ROUTER("index_misses_4", KVS_STUDY, &kvs_conf_misses4),
    KVS_ROUTER("index_lru", KVS_STUDY, &kvs_conf_lru),
    KVS_ROUTER("index_ttl_120", KVS_STUDY, &kvs_conf_ttl),
    KVS_ROUTER("index_lost_2%", KVS_STUDY, &kvs_conf_lost),
    KVS_ROUTER("index_lost_strict", KVS_STUDY, &kvs_conf_lost_strict),
    KVS_ROUTER("index_replies", KVS_STUDY, &kvs_conf_replies),
    KVS_ROUTER("index_flush", KVS_STUDY, &kvs_conf_flush),

    { "release_at_headers", KVS_STUDY, kvs_router_create, kvs_router_destroy,
      kvs_router_pick, kvs_router_admitted, kvs_router_headers,
      kvs_router_first, kvs_router_restarted, kvs_router_done,
      &kvs_conf_headers },

    { .name = NULL }
};


const kvs_policy_t  kvs_router_tiers[] = {
    KVS_ROUTER("oracle", KVS_STUDY, &kvs_conf_tiers_oracle),
    KVS_ROUTER("told", KVS_OURS, &kvs_conf_tiers_told),
    KVS_ROUTER("learned", KVS_OURS, &kvs_conf_tiers_learned),
    KVS_ROUTER("usage", KVS_OURS, &kvs_conf_usage),
    KVS_ROUTER("least_request", KVS_RIVAL, &kvs_conf_least),
    { .name = NULL }
};
