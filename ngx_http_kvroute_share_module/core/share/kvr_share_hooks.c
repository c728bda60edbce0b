
/*
 * Copyright (C) kvroute contributors
 */


/* The hooks that the router calls, and the counters of a shared zone. */


#include "core/share/kvr_share.h"


#define kvr_share_counter(t, field, ...)                                      \
    kvr_counter(ZONE, t, kvr_share_stats_t, field, __VA_ARGS__)


static const char *kvr_share_counter_ignored(uint32_t place);
static void *kvr_share_base(const kvr_zone_t *zone, void *data,
    kvr_counter_group_e group, uint32_t number, uint32_t *set);


static const kvr_counter_t  kvr_share_counters[] = {

    kvr_share_counter(GAUGE, united.up, "up", "kvroute_share_up",
        "1 if this host receives its own batches back."),

    kvr_share_counter(GAUGE, hosts, "others", "kvroute_share_hosts",
        "Other hosts."),

    kvr_share_counter(SUMMARY, echoes, "lag", "kvroute_share_lag_seconds",
        "Time until an own batch is received back.",
        .sum = offsetof(kvr_share_stats_t, echo_ms)),

    kvr_share_counter(GAUGE, lag_ms, "lag_last"),

    kvr_share_counter(GAUGE, late, "late", "kvroute_share_late",
        "1 if own batches are so late that other hosts' loads do not count."),

    kvr_share_counter(GAUGE, waiting, "waiting", "kvroute_share_waiting_bytes",
        "Bytes of the ring to be sent."),

    kvr_share_counter(COUNT, sent, "lessons_sent",
        "kvroute_share_lessons_sent_total",
        "Index updates published to other hosts."),

    kvr_share_counter(COUNT, applied, "lessons_applied",
        "kvroute_share_lessons_applied_total",
        "Index updates of other hosts that were applied."),

    kvr_share_counter(COUNT, batches_sent, "batches_sent",
        "kvroute_share_batches_sent_total",
        "Batches that the store has confirmed."),

    kvr_share_counter(COUNT, batches_applied, "batches_applied",
        "kvroute_share_batches_applied_total",
        "Batches of other hosts that were applied."),

    kvr_share_counter(COUNT, bytes_sent, "bytes_sent",
        "kvroute_share_sent_bytes_total", "Bytes sent to the store."),

    kvr_share_counter(COUNT, bytes_received, "bytes_received",
        "kvroute_share_received_bytes_total", "Bytes of batches read."),

    kvr_share_counter(COUNT, dropped, "dropped", "kvroute_share_dropped_total",
        "Records that were not published, by reason.",
        .label = ",reason=\"full\""),

    kvr_share_counter(COUNT, lost, "lost", "kvroute_share_dropped_total",
        .label = ",reason=\"unfinished\""),

    kvr_share_counter(COUNT, gaps, "gaps", "kvroute_share_gaps_total",
        "Missing batches of other hosts."),

    kvr_share_counter(COUNT, repeated, "repeated",
        "kvroute_share_repeated_total",
        "Batches received twice, and ignored."),

    kvr_share_counter(COUNT, ignored, "ignored", "kvroute_share_ignored_total",
        "Batches ignored, by reason.", .n = KVR_SHARE_IGNORED, .by = "reason",
        .name = kvr_share_counter_ignored, .total = 1),

    kvr_share_counter(COUNT, unknown, "unknown_peers",
        "kvroute_share_unknown_peer_total",
        "Records of servers unknown to this host."),

    kvr_share_counter(COUNT, reconnects, "reconnects",
        "kvroute_share_reconnects_total",
        "Connections to the store that failed."),

    kvr_share_counter(COUNT, refused, "refused", "kvroute_share_refused_total",
        "Commands refused by the store."),

    kvr_share_counter(COUNT, joined, "joined", "kvroute_share_joined_total",
        "Index entries received when this host was new."),
};


const kvr_hooks_t  kvr_share_hooks = {
    .inserted = kvr_share_publish_update,
    .undone = kvr_share_publish_undo,
    .extended = kvr_share_publish_reply,
    .counted = kvr_share_publish_hot,
    .bound = kvr_share_publish_bind,
    .flushed = kvr_share_publish_floor,
    .counters = kvr_share_counters,
    .ncounters = kvr_nelts(kvr_share_counters),
    .base = kvr_share_base
};


static const char *
kvr_share_counter_ignored(uint32_t place)
{
    static const char *const  names[] = {
        "no_batch", "version", "key", "length", "damaged", "crowded"
    };

    _Static_assert(kvr_nelts(names) == KVR_SHARE_IGNORED, "ignored");

    return names[place];
}


static void *
kvr_share_base(const kvr_zone_t *zone, void *data, kvr_counter_group_e group,
    uint32_t number, uint32_t *set)
{
    kvr_share_t  *s = data;

    return group == KVR_COUNTER_ZONE ? &s->stats : NULL;
}
