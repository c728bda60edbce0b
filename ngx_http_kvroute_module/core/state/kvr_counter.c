
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
                __VA_ARGS__, .needs = KVR_COUNTER_DRAINED | (needs_))
#define kvr_counter_member(t, field, ...)                                     \
    kvr_counter(MEMBER, t, kvr_member_t, field, __VA_ARGS__)
#define kvr_counter_load(field, ...)                                          \
    kvr_counter(LOAD, REAL, kvr_prefill_load_t, field, __VA_ARGS__)
#define kvr_counter_cache(field, ...)                                         \
    kvr_counter(CACHE, COUNT, kvr_feedback_t, field, __VA_ARGS__)
#define kvr_counter_health(field, ...)                                        \
    kvr_counter(HEALTH, COUNT, kvr_engine_t, field,                           \
                __VA_ARGS__, .needs = KVR_COUNTER_CHECKED)
#define kvr_counter_tally(g, field, ...)                                      \
    kvr_counter(g, COUNT, kvr_tally_counts_t, field, __VA_ARGS__)
#define kvr_counter_engine(t, field, ...)                                     \
    kvr_counter(ENGINE, t, kvr_engine_t, field, __VA_ARGS__)

/* the rows of a model or a tenant */
#define kvr_counter_usage(g, of)                                              \
    kvr_counter_tally(g, requests, "requests",                                \
        "kvroute_" of "_requests_total", "Finished requests by " of "."),     \
    kvr_counter_tally(g, errors, "errors", "kvroute_" of "_errors_total",     \
        "Requests with a 5xx or no answer, by " of "."),                      \
    kvr_counter_tally(g, rejects, "rejects", "kvroute_" of "_rejects_total",  \
        "Requests rejected by the queue, by " of "."),                        \
    kvr_counter_tally(g, prompt, "prompt_bytes"),                             \
    kvr_counter_tally(g, matched, "matched_bytes"),                           \
    kvr_counter_tally(g, tokens, "prompt_tokens"),                            \
    kvr_counter_tally(g, cached, "cached_tokens",                             \
        "kvroute_" of "_tokens_total", "Tokens that engines reported, by " of \
        ".", .label = ",type=\"cached\""),                                    \
    kvr_counter_tally(g, computed, "computed_tokens",                         \
        "kvroute_" of "_tokens_total", .label = ",type=\"computed\""),        \
    kvr_counter_tally(g, output, "completion_tokens",                         \
        "kvroute_" of "_tokens_total", .label = ",type=\"completion\""),      \
    kvr_counter_tally(g, waited, "queue_time",                                \
        "kvroute_" of "_queue_seconds_total",                                 \
        "Time in the queue of finished requests, by " of ".", .scale = 1000), \
    kvr_counter_tally(g, firsts, "streams")


static const char *
kvr_counter_class(uint32_t class)
{
    static const char *const  names[] = { "1xx", "2xx", "3xx", "4xx", "5xx" };

    _Static_assert(kvr_nelts(names) == KVR_STATUS_CLASSES, "classes");

    return names[class];
}


const kvr_counter_t  kvr_counter_table[] = {

    /* a zone */

    kvr_counter_zone(GAUGE, size, "size", "kvroute_zone_size_bytes",
        "Size of the shared memory zone."),

    kvr_counter_zone(GAUGE, block, "block"),

    kvr_counter_zone(GAUGE, lines, "lines", "kvroute_index_lines",
        "Lines of the zone's index."),

    kvr_counter_zone(REAL, fill, "fill", "kvroute_index_fill_ratio",
        "Share of the index in use, by a sample."),

    kvr_counter_zone(GAUGE, peers, "peers"),
    kvr_counter_zone(GAUGE, max_peers, "max_peers"),
    kvr_counter_zone(GAUGE, processes, "processes"),
    kvr_counter_zone(GAUGE, max_processes, "max_processes"),
    kvr_counter_zone(GAUGE, generation, "generation"),

    kvr_counter(INDEX, COUNT, kvr_index_t, evicted, "evicted",
        "kvroute_index_evictions_total",
        "Lines of the index replaced while in use."),

    /* the file of a zone */

    kvr_counter_file(GAUGE, read, "read", "kvroute_snapshot_read_entries",
        "Entries read from the snapshot at start."),

    kvr_counter_file(GAUGE, refused, "refused", "kvroute_snapshot_refused",
        "1 if a snapshot was refused at start."),

    kvr_counter_file(COUNT, written, "written",
        "kvroute_snapshot_written_total", "Snapshots written."),

    kvr_counter_file(COUNT, failed, "failed", "kvroute_snapshot_failed_total",
        "Failures to write a snapshot."),

    kvr_counter_file(GAUGE, bytes, "bytes", "kvroute_snapshot_bytes",
        "Bytes of entries in the last snapshot."),

    kvr_counter_file(GAUGE, time, NULL, "kvroute_snapshot_timestamp_seconds",
        "Time of the last snapshot."),

    /* an upstream */

    kvr_counter_upstream(COUNT, retries, "retries", "kvroute_retries_total",
        "Attempts after a request's first."),

    kvr_counter_upstream(COUNT, denied, "retries_denied",
        "kvroute_retries_denied_total", "Retries denied by the retry budget."),

    kvr_counter_upstream(COUNT, shadow, "shadow_requests",
        "kvroute_shadow_requests_total",
        "Another balancer's picks, compared with the policy's.",
        .needs = KVR_COUNTER_SHADOWED),

    kvr_counter_upstream(COUNT, same, "shadow_same",
        "kvroute_shadow_same_total", "Shadow picks equal to the policy's.",
        .needs = KVR_COUNTER_SHADOWED),

    kvr_counter_upstream(COUNT, asked, "shadow_prompt_bytes",
        "kvroute_shadow_prompt_bytes_total",
        "Prompt bytes of shadow requests.", .needs = KVR_COUNTER_SHADOWED),

    kvr_counter_upstream(COUNT, found, "shadow_found_bytes",
        "kvroute_shadow_found_bytes_total",
        "Of these, bytes cached on the servers picked.",
        .needs = KVR_COUNTER_SHADOWED),

    kvr_counter_upstream(COUNT, would, "shadow_would_bytes",
        "kvroute_shadow_would_bytes_total",
        "Of these, bytes cached on the policy's picks.",
        .needs = KVR_COUNTER_SHADOWED),

    kvr_counter_upstream(COUNT, legs, "disaggregated",
        "kvroute_disaggregated_total",
        "Requests with kvroute_prefill, by outcome.",
        .n = KVR_DISAGGREGATE_MAX, .first = 1, .sparse = 1, .by = "outcome",
        .name = kvr_reason_disaggregated),

    kvr_counter_stats(COUNT, policy, "policies",
        "kvroute_policy_decisions_total", "Decisions by policy.",
        .n = KVR_POLICIES, .by = "policy", .name = kvr_policy_name),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_TTFT], "ttft_stream",
        "kvroute_ttft_seconds",
        "Time from the pick to the first event of 2xx answers.",
        .label = ",stream=\"true\""),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_TTFT_WHOLE], "ttft_whole",
        "kvroute_ttft_seconds", .label = ",stream=\"false\""),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_DECISION],
        "decision_time", "kvroute_decision_seconds",
        "Time of a decision, with reading the body."),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_MATCHED], "matched_share",
        "kvroute_matched_ratio",
        "Share of the prompt cached on the chosen peer."),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_LEG1], "leg1_time",
        "kvroute_leg1_seconds", "Time of prefill legs, with all tries.",
        .needs = KVR_COUNTER_LEGS),

    kvr_counter_stats(HISTOGRAM, histogram[KVR_STATS_QUEUE], "queue_time",
        "kvroute_queue_seconds", "Waiting time of admitted requests.",
        .needs = KVR_COUNTER_QUEUED),

    /* a class of a queue */

    kvr_counter_queue(passed, "passed", "kvroute_queue_passed_total",
        "Requests that bypassed the queue."),

    kvr_counter_queue(waited, "waited", "kvroute_queue_waited_total",
        "Requests admitted after waiting."),

    kvr_counter_queue(wait_ms, NULL),

    kvr_counter_queue(full, "full", "kvroute_queue_rejected_total",
        "Requests not admitted, by reason.", .label = ",reason=\"full\""),

    kvr_counter_queue(timeouts, "timeout", "kvroute_queue_rejected_total",
        .label = ",reason=\"timeout\""),

    kvr_counter_queue(deadline, "deadline", "kvroute_queue_rejected_total",
        .label = ",reason=\"deadline\""),

    kvr_counter_queue(shed, "shed", "kvroute_queue_rejected_total",
        .label = ",reason=\"shed\""),

    kvr_counter_queue(gone, "aborted", "kvroute_queue_rejected_total",
        .label = ",reason=\"aborted\""),

    /* a server now */

    kvr_counter_at(GAUGE, active, NULL, "kvroute_peer_active_requests",
        "Requests in flight."),

    kvr_counter_at(GAUGE, pending, "pending", "kvroute_peer_pending_bytes",
        "Prompt bytes sent, not yet prefilled."),

    kvr_counter_at(GAUGE, active_all, "active_all"),
    kvr_counter_at(GAUGE, pending_all, "pending_all"),
    kvr_counter_at(GAUGE, unanswered, "unanswered_all"),

    kvr_counter_at(GAUGE, elsewhere, "elsewhere",
        "kvroute_peer_elsewhere_requests",
        "Requests in flight from other hosts.", .needs = KVR_COUNTER_SHARED),

    kvr_counter_at(GAUGE, capacity, NULL, "kvroute_peer_capacity_bytes",
        "Assumed size of the peer's cache, in prompt bytes."),

    kvr_counter_at(GAUGE, throttled, NULL, "kvroute_peer_pressed",
        "1 while the engine is overloaded.", .needs = KVR_COUNTER_KNOWN),

    kvr_counter_at(GAUGE, ejected, NULL, "kvroute_peer_ejected",
        "1 while the peer is ejected.", .needs = KVR_COUNTER_KNOWN),

    kvr_counter_at(COUNT, flushes, NULL, "kvroute_peer_flushes_total",
        "Times the peer lost its cache.", .needs = KVR_COUNTER_KNOWN),

    kvr_counter_at(GAUGE, age, NULL, "kvroute_peer_engine_age_seconds",
        "Time since the engine's last report.", .needs = KVR_COUNTER_REPORTS,
        .scale = 1e3),

    /* a server that is being drained */

    kvr_counter_drain(GAUGE, 0, drain_requests, "requests",
        "kvroute_peer_drain_requests", "Requests to a draining peer."),

    kvr_counter_drain(GAUGE, 0, drain_sessions, "sessions",
        "kvroute_peer_drain_sessions",
        "Recent sessions at a draining peer, estimated."),

    kvr_counter_drain(GAUGE, KVR_COUNTER_UNTIL, drain_left, "left",
        "kvroute_peer_drain_left_seconds",
        "Time until sessions leave a draining peer, too.", .scale = 1e3),

    /* a server in one upstream */

    kvr_counter_member(COUNT, requests, "requests",
        "kvroute_peer_requests_total", "Attempts sent to the peer."),

    kvr_counter_member(COUNT, responses, "responses",
        "kvroute_peer_responses_total", "Responses by status class.",
        .n = KVR_STATUS_CLASSES, .by = "class", .name = kvr_counter_class,
        .total = 1),

    kvr_counter_member(COUNT, sent, "sent", "kvroute_peer_sent_bytes_total",
        "Bytes sent to the peer, with headers."),

    kvr_counter_member(COUNT, received, "received",
        "kvroute_peer_received_bytes_total",
        "Bytes received from the peer, with headers."),

    kvr_counter_member(COUNT, fails, "fails", "kvroute_peer_failures_total",
        "Attempts that failed."),

    kvr_counter_member(COUNT, unavail, "unavail",
        "kvroute_peer_unavailable_total", "Times the peer was marked failed."),

    kvr_counter_member(COUNT, ejections, "ejections",
        "kvroute_peer_ejections_total", "Times the peer was ejected."),

    kvr_counter_member(STAMP, selected, "selected",
        "kvroute_peer_selected_timestamp_seconds", "Time of the last pick."),

    kvr_counter_member(SUMMARY, headers, "header_time",
        "kvroute_peer_header_seconds", "Time to the header of the response.",
        .sum = offsetof(kvr_member_t, header_ms)),

    kvr_counter_member(SUMMARY, ends, "response_time",
        "kvroute_peer_response_seconds", "Time to the end of the response.",
        .sum = offsetof(kvr_member_t, end_ms)),

    kvr_counter_member(COUNT, reason, "decisions", "kvroute_decisions_total",
        "Decisions for the peer by reason.", .n = KVR_REASON_MAX, .first = 1,
        .sparse = 1, .by = "reason", .name = kvr_reason_name),

    kvr_counter_member(COUNT, prompt, "prompt_bytes",
        "kvroute_peer_prompt_bytes_total",
        "Bytes of the prompts sent to the peer."),

    kvr_counter_member(COUNT, matched, "matched_bytes",
        "kvroute_peer_matched_bytes_total",
        "Of these, bytes cached on the peer, by the index."),

    kvr_counter_member(COUNT, best, "best_bytes",
        "kvroute_peer_best_bytes_total",
        "Of these, bytes cached on the best peer."),

    kvr_counter_member(COUNT, mean, "mean_bytes",
        "kvroute_peer_mean_bytes_total",
        "Of these, bytes cached on the average peer."),

    kvr_counter_member(SUMMARY, firsts[1], NULL, "kvroute_peer_ttft_seconds",
        "Time to the first event, by peer.",
        .sum = offsetof(kvr_member_t, ttft[1]), .label = ",stream=\"true\""),

    kvr_counter_member(SUMMARY, firsts[0], NULL, "kvroute_peer_ttft_seconds",
        .sum = offsetof(kvr_member_t, ttft[0]), .label = ",stream=\"false\""),

    /* the recent load of a server */

    kvr_counter_load(rate, "prefill_rate", .needs = KVR_COUNTER_RATED),

    kvr_counter_load(utilization, "utilization",
        "kvroute_peer_utilization_ratio",
        "Recent prompt bytes, relative to what it can prefill; 0: unknown.",
        .needs = KVR_COUNTER_RATED),

    /* a server's cache, as its responses report it */

    kvr_counter_cache(responses, "responses"),

    kvr_counter_cache(prompt, "prompt_tokens",
        "kvroute_peer_prompt_tokens_total",
        "Prompt tokens of responses that report cached ones."),

    kvr_counter_cache(predicted, "predicted_tokens",
        "kvroute_peer_predicted_tokens_total",
        "Of these, tokens predicted as cached."),

    kvr_counter_cache(delivered, "delivered_tokens",
        "kvroute_peer_delivered_tokens_total",
        "Of these, tokens that the engine had cached."),

    kvr_counter_cache(completion, "completion_tokens",
        "kvroute_peer_completion_tokens_total",
        "Completion tokens, as the engine counts them."),

    kvr_counter_cache(missed, "missed"),
    kvr_counter_cache(timed_held, "timed_held"),
    kvr_counter_cache(timed_lost, "timed_lost"),
    kvr_counter_cache(by_usage, "flushes_usage"),
    kvr_counter_cache(by_probe, "flushes_probe"),
    kvr_counter_cache(by_event, "flushes_event"),

    /* health checks */

    kvr_counter_health(checks, "checks", "kvroute_peer_health_checks_total",
        "Health checks."),

    kvr_counter_health(checks_failed, "fails",
        "kvroute_peer_health_checks_failed_total", "Failed health checks."),

    kvr_counter_health(unhealthy, "unhealthy", "kvroute_peer_unhealthy_total",
        "Times health checks marked the peer unhealthy."),

    /* probes, and what the engine reported */

    kvr_counter_engine(COUNT, asked, "probes", "kvroute_peer_probes_total",
        "Probes of the engine.", .needs = KVR_COUNTER_PROBED),

    kvr_counter_engine(COUNT, failed, "failed",
        "kvroute_peer_probes_failed_total", "Probes without a useful answer.",
        .needs = KVR_COUNTER_PROBED),

    kvr_counter_engine(GAUGE, running, "running",
        "kvroute_peer_engine_running_requests",
        "Requests running in the engine, as reported.",
        .needs = KVR_METRICS_RUNNING),

    kvr_counter_engine(GAUGE, foreign, "foreign",
        .needs = KVR_METRICS_RUNNING),

    kvr_counter_engine(GAUGE, waiting, "waiting",
        "kvroute_peer_engine_waiting_requests",
        "Requests waiting in the engine, as reported.",
        .needs = KVR_METRICS_WAITING),

    kvr_counter_engine(GAUGE, kv, "kv_usage",
        "kvroute_peer_engine_kv_usage_ratio",
        "Share of KV memory in use, as reported.", .needs = KVR_METRICS_KV,
        .scale = 10000),

    kvr_counter_engine(GAUGE, capacity, "capacity_tokens",
        "kvroute_peer_engine_capacity_tokens",
        "Capacity of KV memory in tokens, as reported.",
        .needs = KVR_METRICS_CAPACITY),

    kvr_counter_engine(REPORTED, queries, "cache_queries",
        .needs = KVR_METRICS_QUERIES),

    kvr_counter_engine(REPORTED, hits, "cache_hits",
        .needs = KVR_METRICS_HITS),

    kvr_counter_engine(REPORTED, preemptions, "preemptions",
        "kvroute_peer_engine_preemptions_total",
        "Requests preempted by the engine, as reported.",
        .needs = KVR_METRICS_PREEMPTIONS),

    kvr_counter_engine(GAUGE, cap, "cap", .needs = KVR_METRICS_PREEMPTIONS),

    kvr_counter_engine(GAUGE, loras, "adapters", .needs = KVR_METRICS_LORA),

    kvr_counter_engine(GAUGE, max_loras, "max_adapters",
        .needs = KVR_METRICS_LORA),

    kvr_counter_usage(MODEL, "model"),
    kvr_counter_usage(TENANT, "tenant")
};


const uint32_t  kvr_counter_rows = kvr_nelts(kvr_counter_table);
