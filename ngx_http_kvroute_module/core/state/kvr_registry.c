
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_registry.h"
#include "core/state/kvr_counter.h"


static size_t kvr_registry_rank_name(kvr_registry_t *reg, uint32_t address,
    uint32_t rank, uint8_t *name);
static uint32_t kvr_registry_upstream(kvr_registry_t *reg, kvr_load_t *load,
    const void *name, size_t len);
static int kvr_registry_member_used(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t member);
static int kvr_registry_joined(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t upstream);
static int kvr_registry_is(_Atomic uint32_t *stored, const uint8_t *data,
    const void *name, size_t len);
static void kvr_registry_set(_Atomic uint32_t *stored, uint8_t *data,
    const void *name, size_t len);


size_t
kvr_registry_size(uint32_t max_peers)
{
    return sizeof(kvr_registry_shared_t) + max_peers * sizeof(kvr_peer_t)
           + kvr_registry_max_members(max_peers) * sizeof(kvr_member_t);
}


void
kvr_registry_view(kvr_registry_t *reg, kvr_registry_shared_t *shared,
    uint32_t max_peers)
{
    reg->max_peers = max_peers;
    reg->max_members = kvr_registry_max_members(max_peers);
    reg->peer = shared->peer;
    reg->member = (kvr_member_t *) (void *) &shared->peer[max_peers];
    reg->upstream = shared->upstream;
    reg->tally = &shared->tally;
    reg->whatif = shared->whatif;
    reg->given = &shared->given;
    reg->ranked = &shared->ranked;
    reg->named = &shared->named;
    reg->tiered = &shared->tiered;
}


uint32_t
kvr_registry_find_peer(kvr_registry_t *reg, const void *name, size_t len)
{
    uint32_t  i;

    for (i = 0; i < reg->max_peers; i++) {
        if (kvr_registry_is(&reg->peer[i].len, reg->peer[i].name, name, len)) {
            return i;
        }
    }

    return KVR_REGISTRY_NONE;
}


uint32_t
kvr_registry_peer(kvr_registry_t *reg, kvr_load_t *load, uint32_t row,
    kvr_index_t *ix, const void *name, size_t len, uint64_t capacity)
{
    uint32_t     i, n, age, oldest, given;
    kvr_peer_t  *peer;

    if (len == 0 || len > KVR_REGISTRY_NAME_LEN) {
        return KVR_REGISTRY_NONE;
    }

    i = kvr_registry_find_peer(reg, name, len);

    if (i != KVR_REGISTRY_NONE) {
        kvr_load_name(load, row, i);

        /* a learned capacity survives workers and reloads */

        if (kvr_get(&reg->peer[i].assumed) != capacity) {
            kvr_set(&reg->peer[i].assumed, capacity);

            if (kvr_get(&kvr_index_peer(ix, i)->source) < KVR_INDEX_EXACT) {
                kvr_index_capacity(ix, i, capacity, KVR_INDEX_ASSUMED);
            }
        }

        return i;
    }

    /* a slot that was never used, or the unused one that is idle longest */

    n = KVR_REGISTRY_NONE;
    oldest = 0;
    given = atomic_load(reg->given);

    for (i = 0; i < reg->max_peers; i++) {
        peer = &reg->peer[i];

        if (atomic_load(&peer->len) == 0) {
            n = i;
            break;
        }

        age = given - atomic_load(&peer->given);

        if ((n == KVR_REGISTRY_NONE || age > oldest)
            && !kvr_load_used(load, i))
        {
            n = i;
            oldest = age;
        }
    }

    if (n == KVR_REGISTRY_NONE) {
        return n;
    }

    peer = &reg->peer[n];

    /* members of the old name must not be found under the new one */

    for (i = 0; i < reg->max_members; i++) {
        if (atomic_load(&reg->member[i].used) && reg->member[i].peer == n) {
            atomic_store(&reg->member[i].used, 0);
        }
    }

    atomic_store(&peer->len, 0);
    atomic_fetch_add(reg->named, 1);

    kvr_index_flush(ix, n);
    kvr_index_capacity(ix, n, capacity, KVR_INDEX_ASSUMED);
    kvr_set(&peer->assumed, capacity);
    kvr_set(&peer->fixed, 0);
    kvr_set(&peer->capacity, 0);

    atomic_store(&peer->given, given);
    atomic_fetch_add(&peer->generation, 1);
    atomic_store(&peer->since, 0);

    peer->address = n;
    peer->rank = 0;
    kvr_set(&peer->ranks, 0);

    (void) kvr_drain_end(&peer->drain);

    kvr_engine_reset(&peer->engine);
    memset((void *) peer->tier, 0, sizeof(peer->tier));
    memset((void *) &peer->feedback, 0, sizeof(kvr_feedback_t));
    memset((void *) &peer->prefill, 0, sizeof(kvr_prefill_t));
    memset((void *) &peer->ttft, 0, sizeof(kvr_ttft_t));

    kvr_registry_set(&peer->len, peer->name, name, len);

    atomic_fetch_add(reg->named, 1);

    kvr_load_name(load, row, n);

    return n;
}


uint32_t
kvr_registry_find_rank(kvr_registry_t *reg, uint32_t address, uint32_t rank)
{
    uint8_t  name[KVR_REGISTRY_NAME_LEN + 1];
    size_t   len;

    if (rank == 0) {
        return address;
    }

    len = kvr_registry_rank_name(reg, address, rank, name);

    return kvr_registry_find_peer(reg, name, len);
}


uint32_t
kvr_registry_rank(kvr_registry_t *reg, kvr_load_t *load, uint32_t row,
    kvr_index_t *ix, uint32_t address, uint32_t rank, uint64_t capacity)
{
    uint8_t   name[KVR_REGISTRY_NAME_LEN + 1];
    size_t    len;
    uint32_t  n;

    if (rank == 0) {
        return address;
    }

    len = kvr_registry_rank_name(reg, address, rank, name);

    n = kvr_registry_peer(reg, load, row, ix, name, len, capacity);

    if (n != KVR_REGISTRY_NONE) {
        reg->peer[n].address = address;
        reg->peer[n].rank = rank;
    }

    return n;
}


/* Makes ADDRESS#RANK; returns more than the limit if it does not fit. */
static size_t
kvr_registry_rank_name(kvr_registry_t *reg, uint32_t address, uint32_t rank,
    uint8_t *name)
{
    size_t       len, n;
    uint32_t     i;
    kvr_peer_t  *peer;

    peer = &reg->peer[address];
    len = kvr_get(&peer->len);

    for (n = 2, i = rank; i >= 10; i /= 10) {
        n++;
    }

    if (len + n > KVR_REGISTRY_NAME_LEN) {
        return KVR_REGISTRY_NAME_LEN + 1;
    }

    memcpy(name, peer->name, len);
    name[len] = '#';

    for (i = (uint32_t) (len + n); i > len + 1; rank /= 10) {
        name[--i] = (uint8_t) ('0' + rank % 10);
    }

    return len + n;
}


int
kvr_registry_ranks(kvr_registry_t *reg, uint32_t address, uint32_t ranks)
{
    ranks = kvr_min(ranks, KVR_REGISTRY_RANKS);

    if (kvr_get(&reg->peer[address].ranks) == ranks) {
        return 0;
    }

    kvr_set(&reg->peer[address].ranks, ranks);
    atomic_fetch_add(reg->ranked, 1);

    return 1;
}


void
kvr_registry_share(kvr_registry_t *reg, uint32_t address)
{
    uint32_t     i;
    kvr_peer_t  *own, *peer;

    own = &reg->peer[address];

    for (i = 0; i < reg->max_peers; i++) {
        peer = &reg->peer[i];

        if (i == address || !kvr_registry_behind(reg, i, address)) {
            continue;
        }

        kvr_set(&peer->since, kvr_max(kvr_get(&peer->since),
                                      kvr_get(&own->since)));
        kvr_set(&peer->engine.health, kvr_get(&own->engine.health));
        kvr_set(&peer->engine.pressure, kvr_get(&own->engine.pressure));
        kvr_drain_copy(&peer->drain, &own->drain);
    }
}


uint32_t
kvr_registry_member(kvr_registry_t *reg, kvr_load_t *load, uint32_t row,
    uint32_t peer, const void *upstream, size_t len)
{
    uint32_t       i, n, u;
    kvr_member_t  *member;

    u = kvr_registry_upstream(reg, load, upstream, len);

    if (u == KVR_REGISTRY_NONE) {
        return u;
    }

    n = KVR_REGISTRY_NONE;

    for (i = 0; i < reg->max_members; i++) {
        member = &reg->member[i];

        if (!atomic_load(&member->used)) {
            n = kvr_min(n, i);

        } else if (member->upstream == u && member->peer == peer) {
            kvr_load_name(load, row, kvr_registry_column(reg, i));
            return i;
        }
    }

    for (i = 0; i < reg->max_members && n == KVR_REGISTRY_NONE; i++) {
        if (!kvr_registry_member_used(reg, load, i)) {
            n = i;
        }
    }

    if (n == KVR_REGISTRY_NONE) {
        return n;
    }

    member = &reg->member[n];

    atomic_store(&member->used, 0);

    memset((void *) member, 0, sizeof(kvr_member_t));
    member->upstream = u;
    member->peer = peer;

    atomic_store(&member->used, 1);

    kvr_load_name(load, row, kvr_registry_column(reg, n));

    return n;
}


kvr_registry_limit_e
kvr_registry_limit(kvr_registry_t *reg, const void *name, size_t len,
    uint32_t rank, const void *upstream, size_t upstream_len)
{
    uint8_t          ranked[KVR_REGISTRY_NAME_LEN + 1];
    uint32_t         i, n;
    kvr_upstream_t  *u;

    n = kvr_registry_find_peer(reg, name, len);

    if (rank && n != KVR_REGISTRY_NONE) {
        len = kvr_registry_rank_name(reg, n, rank, ranked);
        n = kvr_registry_find_peer(reg, ranked, len);
    }

    if (len == 0 || len > KVR_REGISTRY_NAME_LEN) {
        return KVR_REGISTRY_LIMIT_NAME;
    }

    if (upstream_len == 0 || upstream_len > KVR_REGISTRY_TITLE_LEN) {
        return KVR_REGISTRY_LIMIT_TITLE;
    }

    if (n == KVR_REGISTRY_NONE) {
        return KVR_REGISTRY_LIMIT_PEERS;
    }

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
        u = &reg->upstream[i];

        if (kvr_registry_is(&u->len, u->name, upstream, upstream_len)) {
            return KVR_REGISTRY_LIMIT_MEMBERS;
        }
    }

    return KVR_REGISTRY_LIMIT_UPSTREAMS;
}


void
kvr_registry_reset(kvr_registry_t *reg, uint32_t peer)
{
    uint32_t       i;
    kvr_member_t  *member;

    for (i = 0; i < reg->max_members; i++) {
        member = &reg->member[i];

        if (!atomic_load(&member->used)
            || (peer != KVR_REGISTRY_NONE && member->peer != peer))
        {
            continue;
        }

        kvr_counter_reset(KVR_COUNTER_MEMBER, member);
    }

    for (i = 0; i < reg->max_peers; i++) {
        if (peer == KVR_REGISTRY_NONE || peer == i) {
            kvr_counter_reset(KVR_COUNTER_CACHE, &reg->peer[i].feedback);
            kvr_counter_reset(KVR_COUNTER_HEALTH, &reg->peer[i].engine);
            kvr_counter_reset(KVR_COUNTER_ENGINE, &reg->peer[i].engine);
        }
    }

    if (peer != KVR_REGISTRY_NONE) {
        return;
    }

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
        kvr_counter_reset(KVR_COUNTER_UPSTREAM, &reg->upstream[i]);
        kvr_counter_reset(KVR_COUNTER_STATS, &reg->upstream[i].stats);
    }

    kvr_tally_reset(reg->tally);
}


static uint32_t
kvr_registry_upstream(kvr_registry_t *reg, kvr_load_t *load, const void *name,
    size_t len)
{
    uint32_t         i, n;
    kvr_upstream_t  *u;

    n = KVR_REGISTRY_NONE;

    /* not truncated, as it could equal another name */

    if (len == 0 || len > KVR_REGISTRY_TITLE_LEN) {
        return n;
    }

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
        u = &reg->upstream[i];

        if (kvr_registry_is(&u->len, u->name, name, len)) {
            return i;
        }

        if (n == KVR_REGISTRY_NONE && atomic_load(&u->len) == 0) {
            n = i;
        }
    }

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS && n == KVR_REGISTRY_NONE; i++) {
        if (!kvr_registry_joined(reg, load, i)) {
            n = i;
        }
    }

    if (n == KVR_REGISTRY_NONE) {
        return n;
    }

    u = &reg->upstream[n];

    /* as above, members of the old name */

    for (i = 0; i < reg->max_members; i++) {
        if (atomic_load(&reg->member[i].used) && reg->member[i].upstream == n) {
            atomic_store(&reg->member[i].used, 0);
        }
    }

    kvr_counter_reset(KVR_COUNTER_STATS, &u->stats);
    kvr_tally_forget(reg->tally, n);

    if (kvr_registry_whatif(reg, n)) {
        memset((void *) kvr_registry_whatif(reg, n), 0, sizeof(kvr_whatif_t));
    }
    memset((void *) &u->prefill, 0, sizeof(kvr_ttft_prefill_t));
    memset((void *) &u->fleet, 0, sizeof(kvr_outlier_fleet_t));
    atomic_store(&u->looked, 0);
    kvr_registry_set(&u->len, u->name, name, len);

    return n;
}


/* A member's own column does not have its reservations. */
static int
kvr_registry_member_used(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t member)
{
    return kvr_load_used(load, kvr_registry_column(reg, member))
           || kvr_load_used(load, kvr_registry_reserved(reg, member));
}


/* Tells whether any member of an upstream is in use or counts anything. */
static int
kvr_registry_joined(kvr_registry_t *reg, kvr_load_t *load, uint32_t upstream)
{
    uint32_t       i;
    kvr_member_t  *member;

    for (i = 0; i < reg->max_members; i++) {
        member = &reg->member[i];

        if (atomic_load(&member->used) && member->upstream == upstream
            && kvr_registry_member_used(reg, load, i))
        {
            return 1;
        }
    }

    return 0;
}


static int
kvr_registry_is(_Atomic uint32_t *stored, const uint8_t *data,
    const void *name, size_t len)
{
    return len && atomic_load(stored) == len && memcmp(data, name, len) == 0;
}


static void
kvr_registry_set(_Atomic uint32_t *stored, uint8_t *data, const void *name,
    size_t len)
{
    atomic_store(stored, 0);
    memcpy(data, name, len);
    atomic_store(stored, (uint32_t) len);
}
