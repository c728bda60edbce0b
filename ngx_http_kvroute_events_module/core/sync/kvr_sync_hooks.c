
/*
 * Copyright (C) kvroute contributors
 */


/* The hooks that the router calls, and the counters of a peer with events. */


#include "core/sync/kvr_sync.h"


/* with aliases, blocks without events expire at this many times the age */
#define KVR_SYNC_LEFT     2


#define kvr_sync_counter(t, field, ...)                                       \
    kvr_counter(NOW, t, kvr_events_t, field, __VA_ARGS__)

#define kvr_sync_counter_alias(t, field, ...)                                 \
    kvr_counter(NOW, t, kvr_events_t, alias.field,                            \
                __VA_ARGS__, .needs = KVR_SYNC_ALIASED)


static uint64_t kvr_sync_age(const kvr_zone_t *zone, void *data, uint32_t peer);
static uint64_t kvr_sync_doubt(const kvr_zone_t *zone, void *data,
    uint32_t peer);
static int kvr_sync_wants(const kvr_zone_t *zone, void *data, uint32_t peer);
static void kvr_sync_settled(const kvr_zone_t *zone, void *data,
    const kvr_settled_t *s);
static void *kvr_sync_base(const kvr_zone_t *zone, void *data,
    kvr_counter_group_e group, uint32_t number, uint32_t *set);


static const kvr_counter_t  kvr_sync_counters[] = {

    /* KV events */

    kvr_sync_counter(GAUGE, connected, "sources",
        "kvroute_peer_events_sources",
        "Publishers of KV events that are connected."),

    kvr_sync_counter(GAUGE, fresh, NULL, "kvroute_peer_events_fresh",
        "1 while the index uses the KV events of the peer."),

    kvr_sync_counter(COUNT, messages, "messages",
        "kvroute_peer_events_messages_total",
        "Messages of KV events that were read."),

    kvr_sync_counter(COUNT, stored, "stored",
        "kvroute_peer_events_blocks_stored_total",
        "Blocks stored in the cache, by its events."),

    kvr_sync_counter(COUNT, removed, "removed",
        "kvroute_peer_events_blocks_removed_total",
        "Blocks removed from the cache, by its events."),

    kvr_sync_counter(COUNT, tokens, "tokens",
        "kvroute_peer_events_tokens_total",
        "Tokens that entered the cache, by its events."),

    kvr_sync_counter(COUNT, cleared, "cleared",
        "kvroute_peer_events_cleared_total",
        "Times the engine reported an emptied cache."),

    kvr_sync_counter(COUNT, restarts, "restarts",
        "kvroute_peer_events_restarts_total",
        "Times a new process began to publish."),

    kvr_sync_counter(COUNT, connects, "connects",
        "kvroute_peer_events_connects_total", "Connections to publishers."),

    kvr_sync_counter(COUNT, lost, "lost", "kvroute_peer_events_lost_total",
        "Messages lost, not in any replay."),

    kvr_sync_counter(COUNT, replayed, "replayed",
        "kvroute_peer_events_replayed_total",
        "Messages that were missing, and replayed."),

    kvr_sync_counter(COUNT, repeated, "repeated"),

    kvr_sync_counter(COUNT, garbled, "garbled",
        "kvroute_peer_events_garbled_total", "Invalid messages."),

    kvr_sync_counter(COUNT, refused, "refused",
        "kvroute_peer_events_refused_total",
        "Unusable answers to /kv_event_sources."),

    kvr_sync_counter(GAUGE, ages, "ages"),

    /* aliases */

    kvr_sync_counter_alias(COUNT, attributed, "attributed",
        "kvroute_peer_events_requests_attributed_total",
        "Requests whose blocks were found."),

    kvr_sync_counter_alias(COUNT, session, "by_session",
        "kvroute_peer_events_requests_by_session_total",
        "Requests whose blocks were found by their session."),

    kvr_sync_counter_alias(COUNT, ambiguous, "ambiguous",
        "kvroute_peer_events_requests_ambiguous_total",
        "Requests with several possible runs of blocks."),

    kvr_sync_counter_alias(COUNT, missing, "unmatched",
        "kvroute_peer_events_requests_unmatched_total",
        "Requests without a matching run of blocks."),

    kvr_sync_counter_alias(COUNT, dropped, "passed_over"),

    kvr_sync_counter_alias(COUNT, wrong, "wrong",
        "kvroute_peer_events_aliases_wrong_total",
        "Blocks that two prompts claim."),

    kvr_sync_counter_alias(COUNT, removed, "taken_away",
        "kvroute_peer_events_entries_taken_away_total",
        "Entries of prompts removed with their blocks."),

    kvr_sync_counter_alias(COUNT, restored, "given_back",
        "kvroute_peer_events_entries_given_back_total",
        "Entries of prompts restored, by stored blocks."),

    kvr_sync_counter_alias(GAUGE, used, "aliases",
        "kvroute_peer_events_aliases",
        "Blocks with a known entry of a prompt."),
};


const kvr_hooks_t  kvr_sync_hooks = {
    .age = kvr_sync_age,
    .doubt = kvr_sync_doubt,
    .wants = kvr_sync_wants,
    .settled = kvr_sync_settled,
    .counters = kvr_sync_counters,
    .ncounters = kvr_nelts(kvr_sync_counters),
    .base = kvr_sync_base
};


static uint64_t
kvr_sync_age(const kvr_zone_t *zone, void *data, uint32_t peer)
{
    uint64_t      age;
    kvr_feeds_t  *h = data;

    age = kvr_events_age(&h->events[peer]);

    /* events remove most blocks one by one: the age is for the others */

    return kvr_attribute_most(h, peer) ? age * KVR_SYNC_LEFT : age;
}


static uint64_t
kvr_sync_doubt(const kvr_zone_t *zone, void *data, uint32_t peer)
{
    kvr_feeds_t  *h = data;

    return kvr_get(&h->events[peer].doubt);
}


/* whether requests at a peer are to be matched with stored blocks */
static int
kvr_sync_wants(const kvr_zone_t *zone, void *data, uint32_t peer)
{
    kvr_feeds_t  *h = data;

    return h->aliases && kvr_get(&h->events[peer].connected);
}


static void
kvr_sync_settled(const kvr_zone_t *zone, void *data, const kvr_settled_t *s)
{
    uint64_t             cached;
    kvr_feeds_t         *h = data;
    kvr_alias_request_t  r;

    if (!kvr_sync_wants(zone, data, s->peer)) {
        return;
    }

    cached = (uint64_t) kvr_max(s->cached, 0);

    memset(&r, 0, sizeof(r));

    r.start = s->start;
    r.first = s->first;
    r.now = s->now;
    r.session = s->session;
    r.prompt = (uint32_t) kvr_min((uint64_t) s->prompt, UINT32_MAX);
    r.cached = (uint32_t) kvr_min(cached, r.prompt);
    r.bytes = s->bytes;

    /* from the end of the previous prompt: its reply is cached */

    cached = s->units * (uint64_t) r.cached / r.prompt;
    cached = kvr_min(cached, kvr_min(s->held, s->prompted));

    r.from = kvr_chain_entries((uint32_t) cached);
    r.from -= kvr_min(r.from, 1);
    r.n = s->entries - kvr_min(r.from, s->entries);
    r.key = &s->chain[r.from];

    /* engines leave out zero; an engine that never reports may have any */

    if (s->cached < 0 && s->held
        && !kvr_get(&zone->registry->peer[s->peer].feedback.reports))
    {
        r.unknown = 1;
    }

    kvr_attribute_put(h, s->peer, &r);
}


static void *
kvr_sync_base(const kvr_zone_t *zone, void *data, kvr_counter_group_e group,
    uint32_t number, uint32_t *set)
{
    kvr_events_t  *e;
    kvr_feeds_t   *h = data;

    if (group != KVR_COUNTER_NOW) {
        return NULL;
    }

    e = &h->events[number];

    /* the slot may belong to another server now, without events */

    if (kvr_get(&e->generation)
        != kvr_get(&zone->registry->peer[number].generation))
    {
        return NULL;
    }

    *set |= h->aliases ? KVR_SYNC_ALIASED : 0;

    return e;
}
