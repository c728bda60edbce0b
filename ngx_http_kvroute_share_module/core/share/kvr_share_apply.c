
/*
 * Copyright (C) kvroute contributors
 */


#include "core/share/kvr_share.h"


_Static_assert(KVR_SHARE_RESULTS - KVR_SHARE_NONE == KVR_SHARE_IGNORED,
               "ignored");

/*
 * Records applied together: their lines of the index are far apart in memory,
 * so all are prefetched before the first record is applied.
 */
#define KVR_SHARE_APPLY_AHEAD  8


static void kvr_share_apply_prefetch(const kvr_share_self_t *self,
    const kvr_share_record_t *r, uint32_t n);
static kvr_share_host_t *kvr_share_apply_host(kvr_share_t *s,
    const kvr_share_reader_t *r, uint64_t now);
static int kvr_share_apply_flags(kvr_share_t *s, kvr_share_host_t *host,
    unsigned flags, uint64_t now);
static void kvr_share_apply_record(const kvr_share_self_t *self,
    kvr_share_host_t *host, const kvr_share_record_t *r, const uint16_t *peers,
    uint32_t npeers, uint64_t now, uint32_t seconds);
static void kvr_share_apply_update(const kvr_share_self_t *self,
    kvr_share_host_t *host, const kvr_share_record_t *r, uint32_t peer,
    uint64_t now);
static void kvr_share_apply_hot(const kvr_share_self_t *self,
    const kvr_share_record_t *r, uint64_t now);
static void kvr_share_apply_bind(const kvr_share_self_t *self,
    const kvr_share_record_t *r, uint32_t peer, uint32_t seconds);
static void kvr_share_apply_floor(const kvr_share_self_t *self,
    const kvr_share_record_t *r, uint32_t peer, uint64_t now);
static void kvr_share_apply_echo(const kvr_share_self_t *self,
    kvr_share_reader_t *r, const uint16_t *peer, uint64_t now,
    uint32_t seconds);


kvr_share_e
kvr_share_apply(const kvr_share_self_t *self, kvr_share_owner_t *o,
    const uint8_t *data, size_t len, uint64_t now, uint32_t seconds)
{
    uint16_t            peer[KVR_PEERS];
    uint32_t            i, n, place;
    uint64_t            last, skip, mark, name[KVR_SHARE_NAME / 8];
    kvr_set_t           loads;
    kvr_share_e         rc;
    kvr_share_t        *s;
    kvr_share_host_t   *host;
    kvr_share_record_t  record[KVR_SHARE_APPLY_AHEAD];
    kvr_share_reader_t  r;

    s = self->share;

    kvr_add(&s->stats.bytes_received, len);

    rc = kvr_share_batch_open(&r, &self->key, data, len);

    if (rc == KVR_SHARE_FOREIGN) {
        memcpy(name, r.name, KVR_SHARE_NAME);

        for (i = 0; i < kvr_nelts(name); i++) {
            kvr_set(&s->foreign_name[i], name[i]);
        }
    }

    if (rc != KVR_SHARE_OK) {
        kvr_add(&s->stats.ignored[rc - KVR_SHARE_NONE], 1);
        return rc;
    }

    kvr_share_names(self, &o->names, now);

    for (i = 0; i < r.npeers; i++) {
        peer[i] = (uint16_t) kvr_share_named(&o->names,
                                             kvr_share_batch_digest(&r, i));
    }

    if (r.host == s->id) {
        kvr_share_apply_echo(self, &r, peer, now, seconds);
        return KVR_SHARE_ECHO;
    }

    host = kvr_share_apply_host(s, &r, now);

    if (host == NULL) {
        kvr_add(&s->stats.ignored[KVR_SHARE_CROWDED - KVR_SHARE_NONE], 1);
        return KVR_SHARE_CROWDED;
    }

    last = kvr_get(&host->number);

    if (r.number <= last) {
        kvr_add(&s->stats.repeated, 1);
        return KVR_SHARE_REPEATED;
    }

    if (last && r.number - last > 1) {
        kvr_add(&host->gaps, r.number - last - 1);
        kvr_add(&s->stats.gaps, r.number - last - 1);
    }

    /* skip records that an earlier owner has applied */

    mark = kvr_mix(r.host, r.number);
    skip = kvr_get(&s->current) == mark ? kvr_get(&s->done) : 0;

    if (skip == 0) {
        kvr_set(&s->done, 0);
        kvr_set(&s->current, mark);
    }

    loads = kvr_set_below(0);

    place = 0;

    do {
        for (n = 0; n < KVR_SHARE_APPLY_AHEAD; n++) {
            if (!kvr_share_batch_next(&r, &record[n])) {
                break;
            }
        }

        kvr_share_apply_prefetch(self, record, n);

        for (i = 0; i < n; i++) {

            if (place++ < skip) {
                continue;
            }

            kvr_set(&s->done, place);

            kvr_share_apply_record(self, host, &record[i], peer, r.npeers, now,
                                   seconds);

            if (record[i].type == KVR_SHARE_LOAD
                && peer[record[i].peer] != KVR_PEERS)
            {
                kvr_set_add(&loads, peer[record[i].peer]);
            }
        }

    } while (n == KVR_SHARE_APPLY_AHEAD);

    /* a process that was stopped for long must not set it back */

    if (kvr_get(&host->number) < r.number) {
        kvr_set(&host->number, r.number);
    }

    kvr_set(&host->heard, now);

    if (kvr_share_apply_flags(s, host, r.flags, now)) {
        loads = kvr_set_below(self->zone->registry->max_peers);
    }

    kvr_share_sum(self, loads);

    kvr_add(&s->stats.batches_applied, 1);

    return KVR_SHARE_OK;
}


/* prefetches the tags of all, which show where the lines are; then the lines */
static void
kvr_share_apply_prefetch(const kvr_share_self_t *self,
    const kvr_share_record_t *r, uint32_t n)
{
    int       lines;
    uint32_t  i;

    for (lines = 0; lines < 2; lines++) {
        for (i = 0; i < n; i++) {
            if (r[i].type == KVR_SHARE_UPDATE) {
                kvr_index_prefetch(self->zone->index, &r[i].word[2],
                                   r[i].n - 2, lines);
            }
        }
    }
}


/* returns whether the host's loads have begun or ceased to count */
static int
kvr_share_apply_flags(kvr_share_t *s, kvr_share_host_t *host, unsigned flags,
    uint64_t now)
{
    uint64_t  want, alive, late, changed;

    alive = !(flags & KVR_SHARE_BYE);
    late = (flags & KVR_SHARE_LATE) != 0;

    changed = kvr_get(&host->alive) != alive || kvr_get(&host->late) != late;

    kvr_set(&host->alive, alive);
    kvr_set(&host->late, late);

    want = kvr_get(&host->want);

    if (!(flags & KVR_SHARE_WANT)) {
        kvr_set(&host->want, 0);

    } else if (want == 0) {
        kvr_set(&host->want, now);
    }

    if (flags & KVR_SHARE_HELP) {
        kvr_set(&s->helped, now);
    }

    if (flags & KVR_SHARE_HELPED) {
        kvr_set(&s->wants, 0);
    }

    return changed != 0;
}


/* returns the host's place in the table, a new one if there is room */
static kvr_share_host_t *
kvr_share_apply_host(kvr_share_t *s, const kvr_share_reader_t *r, uint64_t now)
{
    uint32_t           i, k;
    uint64_t           id, name[KVR_SHARE_NAME / 8];
    kvr_share_host_t  *host, *found;

    found = NULL;

    for (i = 0; i < KVR_SHARE_HOSTS; i++) {
        host = &s->host[i];
        id = kvr_get(&host->id);

        if (id == r->host) {
            found = host;
            break;
        }

        /* a free place, or that of the host that is silent for longest */

        if ((id == 0 || kvr_get(&host->alive) == 0)
            && (found == NULL
                || (kvr_get(&found->id)
                    && (id == 0
                        || kvr_get(&host->heard) < kvr_get(&found->heard)))))
        {
            found = host;
        }
    }

    if (found == NULL) {
        return NULL;
    }

    if (kvr_get(&found->id) != r->host) {
        kvr_set(&found->id, 0);

        atomic_thread_fence(memory_order_release);

        memset((void *) &found->number, 0, sizeof(kvr_share_host_t)
                                    - offsetof(kvr_share_host_t, number));

        kvr_set(&found->heard, now);
        atomic_store_explicit(&found->id, r->host, memory_order_release);
    }

    memcpy(name, r->name, KVR_SHARE_NAME);

    for (k = 0; k < kvr_nelts(name); k++) {
        kvr_set(&found->name[k], name[k]);
    }

    return found;
}


/* peers: slots here, by the places in the batch */
static void
kvr_share_apply_record(const kvr_share_self_t *self, kvr_share_host_t *host,
    const kvr_share_record_t *r, const uint16_t *peers, uint32_t npeers,
    uint64_t now, uint32_t seconds)
{
    uint32_t  peer;

    if (r->type == KVR_SHARE_KNOWN) {

        if (kvr_get(&self->share->wants)) {
            kvr_share_help_take(self, r, peers, npeers);
        }

        return;
    }

    peer = peers[r->peer];

    if (peer == KVR_PEERS) {
        kvr_add(&self->share->stats.unknown, 1);
        return;
    }

    switch (r->type) {

    case KVR_SHARE_UPDATE:
        kvr_share_apply_update(self, host, r, peer, now);
        break;

    case KVR_SHARE_UNDO:
        kvr_share_index_undo(self->zone->index, &r->word[1],
                             kvr_share_upper(r->word[0]), r->n - 1,
                             kvr_share_lower(r->word[0]), peer);
        break;

    case KVR_SHARE_BIND:
        kvr_share_apply_bind(self, r, peer, seconds);
        break;

    case KVR_SHARE_FLOOR:
        kvr_share_apply_floor(self, r, peer, now);
        break;

    case KVR_SHARE_LOAD:
        kvr_set(&host->load[peer], r->word[0]);
        kvr_set(&host->context[peer], r->word[1]);
        kvr_share_index_advance(self->zone->index, peer, r->word[2],
                                kvr_get(&self->share->wants) != 0);
        break;

    case KVR_SHARE_HOT:
        kvr_share_apply_hot(self, r, now);
        break;
    }
}


static void
kvr_share_apply_update(const kvr_share_self_t *self, kvr_share_host_t *host,
    const kvr_share_record_t *r, uint32_t peer, uint64_t now)
{
    uint32_t         from, first;
    kvr_registry_t  *registry;

    registry = self->zone->registry;

    kvr_registry_given(registry, peer);
    kvr_prefill_remote(&registry->peer[peer].prefill, now);

    from = kvr_share_upper(r->word[0]);
    first = kvr_share_lower(r->word[1]);

    kvr_index_update(self->zone->index, &r->word[2], from, first,
                     r->n - 2 - kvr_share_index_count(from, first),
                     kvr_share_lower(r->word[0]), peer,
                     kvr_share_upper(r->word[1]));

    kvr_add(&host->updates, 1);
    kvr_add(&self->share->stats.applied, 1);
}


static void
kvr_share_apply_hot(const kvr_share_self_t *self,
    const kvr_share_record_t *r, uint64_t now)
{
    kvr_hot_keys_t  keys;

    for (keys.n = 0; keys.n < r->n; keys.n++) {
        keys.key[keys.n] = (uint32_t) r->word[keys.n];
    }

    kvr_hot_add(self->zone->hot, &keys, now);
}


static void
kvr_share_apply_bind(const kvr_share_self_t *self, const kvr_share_record_t *r,
    uint32_t peer, uint32_t seconds)
{
    uint32_t  left;

    left = kvr_min(kvr_share_lower(r->word[1]), INT32_MAX);

    kvr_share_index_bind(self->zone->index, r->word[0], peer,
                         kvr_get(&self->zone->registry->peer[peer].generation),
                         seconds + left, seconds,
                         kvr_share_upper(r->word[1]) != 0);
}


/* limited in time, so a faulty host cannot keep a peer empty */
static void
kvr_share_apply_floor(const kvr_share_self_t *self, const kvr_share_record_t *r,
    uint32_t peer, uint64_t now)
{
    uint64_t      clock, before;
    kvr_share_t  *s;

    s = self->share;
    before = kvr_get(&s->floored[peer]);

    if (before && kvr_share_since(before, now) < KVR_SHARE_FLOORS) {
        return;
    }

    kvr_set(&s->floored[peer], now);

    clock = kvr_index_clock(self->zone->index, peer);

    kvr_index_floor(self->zone->index, peer,
                    clock - kvr_min(r->word[0], clock));

    /* the next probe must not detect the same restart */

    kvr_engine_renew(&self->zone->registry->peer[peer].engine, now);
}


/* an own batch: measures its time; its bindings are ordered by the stream */
static void
kvr_share_apply_echo(const kvr_share_self_t *self, kvr_share_reader_t *r,
    const uint16_t *peer, uint64_t now, uint32_t seconds)
{
    uint64_t            lag, timed;
    kvr_share_t        *s;
    kvr_share_record_t  record;

    s = self->share;

    kvr_set(&s->echoed, now);

    timed = kvr_get(&s->timed);

    if (timed && r->number >= timed) {
        lag = kvr_share_since(kvr_get(&s->since), now);
        kvr_set(&s->timed, 0);

        kvr_add(&s->stats.echoes, 1);
        kvr_add(&s->stats.echo_ms, lag);
        kvr_set(&s->stats.lag_ms, lag);

        if (kvr_share_late(s, now)) {
            kvr_share_sum(self,
                          kvr_set_below(self->zone->registry->max_peers));
        }
    }

    while (kvr_share_batch_next(r, &record)) {
        if (record.type == KVR_SHARE_BIND
            && peer[record.peer] != KVR_PEERS)
        {
            kvr_share_apply_bind(self, &record, peer[record.peer],
                                 seconds);
        }
    }
}
