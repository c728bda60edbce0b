
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

    kvr_share_counter(GAUGE, united.up,
        .json = "up", .metric = "kvroute_share_up",
        .help = "1 if this host receives its own batches back."),

    kvr_share_counter(GAUGE, hosts,
        .json = "others", .metric = "kvroute_share_hosts",
        .help = "Other hosts."),

    kvr_share_counter(SUMMARY, echoes,
        .sum = offsetof(kvr_share_stats_t, echo_ms),
        .json = "lag", .metric = "kvroute_share_lag_seconds",
        .help = "Time until an own batch is received back."),

    kvr_share_counter(GAUGE, lag_ms, .json = "lag_last"),

    kvr_share_counter(GAUGE, late,
        .json = "late", .metric = "kvroute_share_late",
        .help = "1 if that takes so long that loads of others do not count."),

    kvr_share_counter(GAUGE, waiting,
        .json = "waiting", .metric = "kvroute_share_waiting_bytes",
        .help = "Bytes of the ring to be sent."),

    kvr_share_counter(COUNT, sent,
        .json = "lessons_sent", .metric = "kvroute_share_lessons_sent_total",
        .help = "Index updates published to other hosts."),

    kvr_share_counter(COUNT, applied,
        .json = "lessons_applied",
        .metric = "kvroute_share_lessons_applied_total",
        .help = "Index updates of other hosts that were applied."),

    kvr_share_counter(COUNT, batches_sent,
        .json = "batches_sent", .metric = "kvroute_share_batches_sent_total",
        .help = "Batches that the store has confirmed."),

    kvr_share_counter(COUNT, batches_applied,
        .json = "batches_applied",
        .metric = "kvroute_share_batches_applied_total",
        .help = "Batches of other hosts that were applied."),

    kvr_share_counter(COUNT, bytes_sent,
        .json = "bytes_sent", .metric = "kvroute_share_sent_bytes_total",
        .help = "Bytes sent to the store."),

    kvr_share_counter(COUNT, bytes_received,
        .json = "bytes_received",
        .metric = "kvroute_share_received_bytes_total",
        .help = "Bytes of batches read."),

    kvr_share_counter(COUNT, dropped,
        .json = "dropped", .metric = "kvroute_share_dropped_total",
        .help = "Records that were not published, by reason.",
        .label = ",reason=\"full\""),

    kvr_share_counter(COUNT, lost,
        .json = "lost", .metric = "kvroute_share_dropped_total",
        .label = ",reason=\"unfinished\""),

    kvr_share_counter(COUNT, gaps,
        .json = "gaps", .metric = "kvroute_share_gaps_total",
        .help = "Missing batches of other hosts."),

    kvr_share_counter(COUNT, repeated,
        .json = "repeated", .metric = "kvroute_share_repeated_total",
        .help = "Batches received twice, and ignored."),

    kvr_share_counter(COUNT, ignored,
        .json = "ignored", .metric = "kvroute_share_ignored_total",
        .help = "Batches ignored, by reason.",
        .n = KVR_SHARE_IGNORED, .by = "reason",
        .name = kvr_share_counter_ignored, .total = 1),

    kvr_share_counter(COUNT, unknown,
        .json = "unknown_peers", .metric = "kvroute_share_unknown_peer_total",
        .help = "Records of servers unknown to this host."),

    kvr_share_counter(COUNT, reconnects,
        .json = "reconnects", .metric = "kvroute_share_reconnects_total",
        .help = "Connections to the store that failed."),

    kvr_share_counter(COUNT, refused,
        .json = "refused", .metric = "kvroute_share_refused_total",
        .help = "Commands refused by the store."),

    kvr_share_counter(COUNT, joined,
        .json = "joined", .metric = "kvroute_share_joined_total",
        .help = "Index entries received when this host was new."),
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
