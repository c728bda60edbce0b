
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_counter.h"
#include "core/queue/kvr_queue.h"
#include "core/state/kvr_snapshot.h"


#define kvr_counter_zone(t, field, ...)                                       \
    kvr_counter(ZONE, t, kvr_counter_zone_t, field, __VA_ARGS__)
#define kvr_counter_file(t, field, ...)                                       \
    kvr_counter(FILE, t, kvr_zone_file_t, field, __VA_ARGS__)
#define kvr_counter_upstream(t, field, ...)                                   \
    kvr_counter(UPSTREAM, t, kvr_upstream_t, field, __VA_ARGS__)
#define kvr_counter_stats(t, field, ...)                                      \
    kvr_counter(STATS, t, kvr_stats_t, field, __VA_ARGS__)
#define kvr_counter_queue(field, ...)                                         \
    kvr_counter(QUEUE, COUNT, kvr_queue_stats_t, field, __VA_ARGS__)
#define kvr_counter_at(t, field, ...)                                         \
    kvr_counter(NOW, t, kvr_snapshot_t, field, __VA_ARGS__)
#define kvr_counter_drain(t, needs_, field, ...)                              \
    kvr_counter(DRAIN, t, kvr_snapshot_t, field,                              \
                .needs = KVR_COUNTER_DRAINED | (needs_), __VA_ARGS__)
#define kvr_counter_member(t, field, ...)                                     \
    kvr_counter(MEMBER, t, kvr_member_t, field, __VA_ARGS__)
#define kvr_counter_load(field, ...)                                          \
    kvr_counter(LOAD, REAL, kvr_prefill_load_t, field, __VA_ARGS__)
#define kvr_counter_cache(field, ...)                                         \
    kvr_counter(CACHE, COUNT, kvr_feedback_t, field, __VA_ARGS__)
#define kvr_counter_health(field, ...)                                        \
    kvr_counter(HEALTH, COUNT, kvr_engine_t, field,                           \
                .needs = KVR_COUNTER_CHECKED, __VA_ARGS__)
#define kvr_counter_tally(g, field, ...)                                      \
    kvr_counter(g, COUNT, kvr_tally_counts_t, field, __VA_ARGS__)
#define kvr_counter_engine(t, field, ...)                                     \
    kvr_counter(ENGINE, t, kvr_engine_t, field, __VA_ARGS__)

/* the rows of a model or a tenant */
#define kvr_counter_usage(g, of)                                              \
    kvr_counter_tally(g, requests,                                            \
        .json = "requests", .metric = "kvroute_" of "_requests_total",        \
        .help = "Finished requests by " of "."),                              \
    kvr_counter_tally(g, errors,                                              \
        .json = "errors", .metric = "kvroute_" of "_errors_total",            \
        .help = "Requests with a 5xx or no answer, by " of "."),              \
    kvr_counter_tally(g, rejects,                                             \
        .json = "rejects", .metric = "kvroute_" of "_rejects_total",          \
        .help = "Requests rejected by the queue, by " of "."),                \
    kvr_counter_tally(g, prompt, .json = "prompt_bytes"),                     \
    kvr_counter_tally(g, matched, .json = "matched_bytes"),                   \
    kvr_counter_tally(g, tokens, .json = "prompt_tokens"),                    \
    kvr_counter_tally(g, cached,                                              \
        .json = "cached_tokens", .metric = "kvroute_" of "_tokens_total",     \
        .help = "Tokens that engines reported, by " of ".",                   \
        .label = ",type=\"cached\""),                                         \
    kvr_counter_tally(g, computed,                                            \
        .json = "computed_tokens", .metric = "kvroute_" of "_tokens_total",   \
        .label = ",type=\"computed\""),                                       \
    kvr_counter_tally(g, output,                                              \
        .json = "completion_tokens", .metric = "kvroute_" of "_tokens_total", \
        .label = ",type=\"completion\""),                                     \
    kvr_counter_tally(g, waited, .scale = 1000,                               \
        .json = "queue_time",                                                 \
        .metric = "kvroute_" of "_queue_seconds_total",                       \
        .help = "Time in the queue of finished requests, by " of "."),        \
    kvr_counter_tally(g, firsts, .json = "streams")


static const char *
kvr_counter_class(uint32_t class)
{
    static const char *const  names[] = { "1xx", "2xx", "3xx", "4xx", "5xx" };

    _Static_assert(kvr_nelts(names) == KVR_STATUS_CLASSES, "classes");

    return names[class];
}


const kvr_counter_t  kvr_counter_table[] = {

    /* a zone */

    kvr_counter_zone(GAUGE, size,
        .json = "size", .metric = "kvroute_zone_size_bytes",
        .help = "Size of the shared memory zone."),

    kvr_counter_zone(GAUGE, block, .json = "block"),

    kvr_counter_zone(GAUGE, lines,
        .json = "lines", .metric = "kvroute_index_lines",
        .help = "Lines of the zone's index."),

    kvr_counter_zone(REAL, fill,
        .json = "fill", .metric = "kvroute_index_fill_ratio",
        .help = "Share of the index in use, by a sample."),

    kvr_counter_zone(GAUGE, peers, .json = "peers"),
    kvr_counter_zone(GAUGE, max_peers, .json = "max_peers"),
    kvr_counter_zone(GAUGE, processes, .json = "processes"),
    kvr_counter_zone(GAUGE, max_processes, .json = "max_processes"),
    kvr_counter_zone(GAUGE, generation, .json = "generation"),

    kvr_counter(INDEX, COUNT, kvr_index_t, evicted,
        .json = "evicted", .metric = "kvroute_index_evictions_total",
        .help = "Lines of the index replaced while in use."),

    /* the file of a zone */

    kvr_counter_file(GAUGE, read,
        .json = "read", .metric = "kvroute_snapshot_read_entries",
        .help = "Entries read from the snapshot at start."),

    kvr_counter_file(GAUGE, refused,
        .json = "refused", .metric = "kvroute_snapshot_refused",
        .help = "1 if a snapshot was refused at start."),

    kvr_counter_file(COUNT, written,
        .json = "written", .metric = "kvroute_snapshot_written_total",
        .help = "Snapshots written."),

    kvr_counter_file(COUNT, failed,
        .json = "failed", .metric = "kvroute_snapshot_failed_total",
        .help = "Failures to write a snapshot."),

    kvr_counter_file(GAUGE, bytes,
        .json = "bytes", .metric = "kvroute_snapshot_bytes",
        .help = "Bytes of entries in the last snapshot."),

    kvr_counter_file(GAUGE, time,
        .metric = "kvroute_snapshot_timestamp_seconds",
        .help = "Time of the last snapshot."),

    /* an upstream */

    kvr_counter_upstream(COUNT, retries,
        .json = "retries", .metric = "kvroute_retries_total",
        .help = "Attempts after a request's first."),

    kvr_counter_upstream(COUNT, denied,
        .json = "retries_denied", .metric = "kvroute_retries_denied_total",
        .help = "Retries denied by the retry budget."),

    kvr_counter_upstream(COUNT, shadow,
        .needs = KVR_COUNTER_SHADOWED,
        .json = "shadow_requests", .metric = "kvroute_shadow_requests_total",
        .help = "Another balancer's picks, compared with the policy's."),

    kvr_counter_upstream(COUNT, same,
        .needs = KVR_COUNTER_SHADOWED,
        .json = "shadow_same", .metric = "kvroute_shadow_same_total",
        .help = "Shadow picks equal to the policy's."),

    kvr_counter_upstream(COUNT, asked,
        .needs = KVR_COUNTER_SHADOWED,
        .json = "shadow_prompt_bytes",
        .metric = "kvroute_shadow_prompt_bytes_total",
        .help = "Prompt bytes of shadow requests."),

    kvr_counter_upstream(COUNT, found,
        .needs = KVR_COUNTER_SHADOWED,
        .json = "shadow_found_bytes",
        .metric = "kvroute_shadow_found_bytes_total",
        .help = "Of these, bytes cached on the servers picked."),

    kvr_counter_upstream(COUNT, would,
        .needs = KVR_COUNTER_SHADOWED,
        .json = "shadow_would_bytes",
        .metric = "kvroute_shadow_would_bytes_total",
        .help = "Of these, bytes cached on the policy's picks."),

    kvr_counter_upstream(COUNT, legs,
        .json = "disaggregated", .metric = "kvroute_disaggregated_total",
        .help = "Requests with kvroute_prefill, by outcome.",
        .n = KVR_DISAGGREGATE_MAX, .first = 1, .sparse = 1,
        .by = "outcome", .name = kvr_reason_disaggregated),

    kvr_counter_stats(COUNT, policy,
        .json = "policies", .metric = "kvroute_policy_decisions_total",
        .help = "Decisions by policy.",
        .n = KVR_POLICIES, .by = "policy", .name = kvr_policy_name),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_TTFT],
        .json = "ttft_stream", .metric = "kvroute_ttft_seconds",
        .help = "Time from the pick to the first event of 2xx answers.",
        .label = ",stream=\"true\""),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_TTFT_WHOLE],
        .json = "ttft_whole", .metric = "kvroute_ttft_seconds",
        .label = ",stream=\"false\""),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_DECISION],
        .json = "decision_time", .metric = "kvroute_decision_seconds",
        .help = "Time of a decision, with reading the body."),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_MATCHED],
        .json = "matched_share", .metric = "kvroute_matched_ratio",
        .help = "Share of the prompt cached on the chosen peer."),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_LEG1],
        .needs = KVR_COUNTER_LEGS,
        .json = "leg1_time", .metric = "kvroute_leg1_seconds",
        .help = "Time of prefill legs, with all tries."),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_QUEUE],
        .needs = KVR_COUNTER_QUEUED,
        .json = "queue_time", .metric = "kvroute_queue_seconds",
        .help = "Waiting time of admitted requests."),

    /* a class of a queue */

    kvr_counter_queue(passed,
        .json = "passed", .metric = "kvroute_queue_passed_total",
        .help = "Requests that bypassed the queue."),

    kvr_counter_queue(waited,
        .json = "waited", .metric = "kvroute_queue_waited_total",
        .help = "Requests admitted after waiting."),

    kvr_counter_queue(wait_ms),

    kvr_counter_queue(full,
        .json = "full", .metric = "kvroute_queue_rejected_total",
        .help = "Requests not admitted, by reason.",
        .label = ",reason=\"full\""),

    kvr_counter_queue(timeouts,
        .json = "timeouts", .metric = "kvroute_queue_rejected_total",
        .label = ",reason=\"timeout\""),

    kvr_counter_queue(late,
        .json = "late", .metric = "kvroute_queue_rejected_total",
        .label = ",reason=\"deadline\""),

    kvr_counter_queue(shed,
        .json = "shed", .metric = "kvroute_queue_rejected_total",
        .label = ",reason=\"shed\""),

    kvr_counter_queue(gone,
        .json = "gone", .metric = "kvroute_queue_rejected_total",
        .label = ",reason=\"aborted\""),

    /* a server now */

    kvr_counter_at(GAUGE, active,
        .metric = "kvroute_peer_active_requests",
        .help = "Requests in flight."),

    kvr_counter_at(GAUGE, pending,
        .json = "pending", .metric = "kvroute_peer_pending_bytes",
        .help = "Prompt bytes sent, not yet prefilled."),

    kvr_counter_at(GAUGE, active_all, .json = "active_all"),
    kvr_counter_at(GAUGE, pending_all, .json = "pending_all"),
    kvr_counter_at(GAUGE, unanswered, .json = "unanswered_all"),

    kvr_counter_at(GAUGE, elsewhere,
        .needs = KVR_COUNTER_SHARED,
        .json = "elsewhere", .metric = "kvroute_peer_elsewhere_requests",
        .help = "Requests in flight from other hosts."),

    kvr_counter_at(GAUGE, capacity,
        .metric = "kvroute_peer_capacity_bytes",
        .help = "Assumed size of the peer's cache, in prompt bytes."),

    kvr_counter_at(GAUGE, throttled,
        .needs = KVR_COUNTER_KNOWN,
        .metric = "kvroute_peer_pressed",
        .help = "1 while the engine is overloaded."),

    kvr_counter_at(GAUGE, ejected,
        .needs = KVR_COUNTER_KNOWN,
        .metric = "kvroute_peer_ejected",
        .help = "1 while the peer is ejected."),

    kvr_counter_at(COUNT, flushes,
        .needs = KVR_COUNTER_KNOWN,
        .metric = "kvroute_peer_flushes_total",
        .help = "Times the peer lost its cache."),

    kvr_counter_at(GAUGE, age,
        .needs = KVR_COUNTER_REPORTS,
        .metric = "kvroute_peer_engine_age_seconds", .scale = 1e3,
        .help = "Time since the engine's last report."),

    /* while it is drained */

    kvr_counter_drain(GAUGE, 0, drain_requests,
        .json = "requests", .metric = "kvroute_peer_drain_requests",
        .help = "Requests to a draining peer."),

    kvr_counter_drain(GAUGE, 0, drain_sessions,
        .json = "sessions", .metric = "kvroute_peer_drain_sessions",
        .help = "Recent sessions at a draining peer, estimated."),

    kvr_counter_drain(GAUGE, KVR_COUNTER_UNTIL, drain_left,
        .json = "left", .metric = "kvroute_peer_drain_left_seconds",
        .scale = 1e3,
        .help = "Time until sessions leave a draining peer, too."),

    /* what was counted at it for this upstream */

    kvr_counter_member(COUNT, requests,
        .json = "requests", .metric = "kvroute_peer_requests_total",
        .help = "Attempts sent to the peer."),

    kvr_counter_member(COUNT, responses,
        .json = "responses", .metric = "kvroute_peer_responses_total",
        .help = "Responses by status class.",
        .n = KVR_STATUS_CLASSES, .by = "class", .name = kvr_counter_class,
        .total = 1),

    kvr_counter_member(COUNT, sent,
        .json = "sent", .metric = "kvroute_peer_sent_bytes_total",
        .help = "Bytes sent to the peer, with headers."),

    kvr_counter_member(COUNT, received,
        .json = "received", .metric = "kvroute_peer_received_bytes_total",
        .help = "Bytes received from the peer, with headers."),

    kvr_counter_member(COUNT, fails,
        .json = "fails", .metric = "kvroute_peer_failures_total",
        .help = "Attempts that failed."),

    kvr_counter_member(COUNT, unavail,
        .json = "unavail", .metric = "kvroute_peer_unavailable_total",
        .help = "Times the peer was marked failed."),

    kvr_counter_member(COUNT, ejections,
        .json = "ejections", .metric = "kvroute_peer_ejections_total",
        .help = "Times the peer was ejected."),

    kvr_counter_member(STAMP, selected,
        .json = "selected",
        .metric = "kvroute_peer_selected_timestamp_seconds",
        .help = "Time of the last pick."),

    kvr_counter_member(SUMMARY, headers,
        .sum = offsetof(kvr_member_t, header_ms),
        .json = "header_time", .metric = "kvroute_peer_header_seconds",
        .help = "Time to the header of the response."),

    kvr_counter_member(SUMMARY, ends,
        .sum = offsetof(kvr_member_t, end_ms),
        .json = "response_time", .metric = "kvroute_peer_response_seconds",
        .help = "Time to the end of the response."),

    kvr_counter_member(COUNT, reason,
        .json = "decisions", .metric = "kvroute_decisions_total",
        .help = "Decisions for the peer by reason.",
        .n = KVR_REASON_MAX, .first = 1, .sparse = 1,
        .by = "reason", .name = kvr_reason_name),

    kvr_counter_member(COUNT, prompt,
        .json = "prompt_bytes", .metric = "kvroute_peer_prompt_bytes_total",
        .help = "Bytes of the prompts sent to the peer."),

    kvr_counter_member(COUNT, matched,
        .json = "matched_bytes", .metric = "kvroute_peer_matched_bytes_total",
        .help = "Of these, bytes cached on the peer, by the index."),

    kvr_counter_member(COUNT, best,
        .json = "best_bytes", .metric = "kvroute_peer_best_bytes_total",
        .help = "Of these, bytes cached on the best peer."),

    kvr_counter_member(COUNT, mean,
        .json = "mean_bytes", .metric = "kvroute_peer_mean_bytes_total",
        .help = "Of these, bytes cached on the average peer."),

    kvr_counter_member(SUMMARY, firsts[1],
        .sum = offsetof(kvr_member_t, ttft[1]),
        .metric = "kvroute_peer_ttft_seconds",
        .help = "Time to the first event, by peer.",
        .label = ",stream=\"true\""),

    kvr_counter_member(SUMMARY, firsts[0],
        .sum = offsetof(kvr_member_t, ttft[0]),
        .metric = "kvroute_peer_ttft_seconds",
        .label = ",stream=\"false\""),

    /* recent */

    kvr_counter_load(rate,
        .needs = KVR_COUNTER_RATED, .json = "prefill_rate"),

    kvr_counter_load(utilization,
        .needs = KVR_COUNTER_RATED,
        .json = "utilization", .metric = "kvroute_peer_utilization_ratio",
        .help = "Recent prompt bytes over those it can prefill; 0: unknown."),

    /* what its responses told */

    kvr_counter_cache(responses, .json = "responses"),

    kvr_counter_cache(prompt,
        .json = "prompt_tokens", .metric = "kvroute_peer_prompt_tokens_total",
        .help = "Prompt tokens of responses that report cached ones."),

    kvr_counter_cache(predicted,
        .json = "predicted_tokens",
        .metric = "kvroute_peer_predicted_tokens_total",
        .help = "Of these, tokens predicted as cached."),

    kvr_counter_cache(delivered,
        .json = "delivered_tokens",
        .metric = "kvroute_peer_delivered_tokens_total",
        .help = "Of these, tokens that the engine had cached."),

    kvr_counter_cache(completion,
        .json = "completion_tokens",
        .metric = "kvroute_peer_completion_tokens_total",
        .help = "Completion tokens, as the engine counts them."),

    kvr_counter_cache(missed, .json = "missed"),
    kvr_counter_cache(timed_held, .json = "timed_held"),
    kvr_counter_cache(timed_lost, .json = "timed_lost"),
    kvr_counter_cache(by_usage, .json = "flushes_usage"),
    kvr_counter_cache(by_probe, .json = "flushes_probe"),
    kvr_counter_cache(by_event, .json = "flushes_event"),

    /* health checks */

    kvr_counter_health(checks,
        .json = "checks", .metric = "kvroute_peer_health_checks_total",
        .help = "Health checks."),

    kvr_counter_health(checks_failed,
        .json = "fails", .metric = "kvroute_peer_health_checks_failed_total",
        .help = "Failed health checks."),

    kvr_counter_health(unhealthy,
        .json = "unhealthy", .metric = "kvroute_peer_unhealthy_total",
        .help = "Times health checks marked the peer unhealthy."),

    /* probes, and what the engine told */

    kvr_counter_engine(COUNT, asked,
        .needs = KVR_COUNTER_PROBED,
        .json = "probes", .metric = "kvroute_peer_probes_total",
        .help = "Probes of the engine."),

    kvr_counter_engine(COUNT, failed,
        .needs = KVR_COUNTER_PROBED,
        .json = "failed", .metric = "kvroute_peer_probes_failed_total",
        .help = "Probes without a useful answer."),

    kvr_counter_engine(GAUGE, running,
        .needs = KVR_METRICS_RUNNING,
        .json = "running", .metric = "kvroute_peer_engine_running_requests",
        .help = "Requests running in the engine, as reported."),

    kvr_counter_engine(GAUGE, foreign,
        .needs = KVR_METRICS_RUNNING, .json = "foreign"),

    kvr_counter_engine(GAUGE, waiting,
        .needs = KVR_METRICS_WAITING,
        .json = "waiting", .metric = "kvroute_peer_engine_waiting_requests",
        .help = "Requests waiting in the engine, as reported."),

    kvr_counter_engine(GAUGE, kv,
        .needs = KVR_METRICS_KV, .scale = 10000,
        .json = "kv_usage", .metric = "kvroute_peer_engine_kv_usage_ratio",
        .help = "Share of KV memory in use, as reported."),

    kvr_counter_engine(GAUGE, capacity,
        .needs = KVR_METRICS_CAPACITY,
        .json = "capacity_tokens",
        .metric = "kvroute_peer_engine_capacity_tokens",
        .help = "Capacity of KV memory in tokens, as reported."),

    kvr_counter_engine(REPORTED, queries,
        .needs = KVR_METRICS_QUERIES, .json = "cache_queries"),

    kvr_counter_engine(REPORTED, hits,
        .needs = KVR_METRICS_HITS, .json = "cache_hits"),

    kvr_counter_engine(REPORTED, preemptions,
        .needs = KVR_METRICS_PREEMPTIONS,
        .json = "preemptions",
        .metric = "kvroute_peer_engine_preemptions_total",
        .help = "Requests preempted by the engine, as reported."),

    kvr_counter_engine(GAUGE, cap,
        .needs = KVR_METRICS_PREEMPTIONS, .json = "cap"),

    kvr_counter_engine(GAUGE, loras,
        .needs = KVR_METRICS_LORA, .json = "adapters"),

    kvr_counter_engine(GAUGE, max_loras,
        .needs = KVR_METRICS_LORA, .json = "max_adapters"),

    kvr_counter_usage(MODEL, "model"),
    kvr_counter_usage(TENANT, "tenant")
};


const uint32_t  kvr_counter_rows = kvr_nelts(kvr_counter_table);
