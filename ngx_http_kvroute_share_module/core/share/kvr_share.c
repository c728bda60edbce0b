
/*
 * Copyright (C) kvroute contributors
 */


#include "core/share/kvr_share.h"


static _Atomic uint64_t *kvr_share_row(kvr_load_t *load);
static void kvr_share_silence(kvr_share_host_t *host, uint64_t lease,
    uint64_t now);


void
kvr_share_init(kvr_share_t *s, uint64_t id)
{
    s->id = id;
}


void
kvr_share_tick(const kvr_share_self_t *self, kvr_share_owner_t *o, uint64_t now)
{
    uint32_t           i, n;
    uint64_t           wants;
    kvr_share_t       *s;
    kvr_share_host_t  *host;

    s = self->share;
    n = 0;

    kvr_share_names(self, &o->names, now);

    for (i = 0; i < KVR_SHARE_HOSTS; i++) {
        host = &s->host[i];

        if (kvr_get(&host->id)) {
            kvr_share_silence(host, self->lease, now);
            n += kvr_get(&host->alive) != 0;
        }
    }

    wants = kvr_get(&s->wants);

    if (wants && now >= wants) {
        kvr_set(&s->wants, 0);
    }

    (void) kvr_share_late(s, now);

    kvr_share_sum(self, kvr_set_below(self->zone->registry->max_peers));

    kvr_set(&s->stats.hosts, n);
    kvr_add(&s->stats.dropped, atomic_exchange(&s->ring.dropped, 0));
    kvr_set(&s->stats.waiting, (kvr_get(&s->ring.head) - kvr_get(&s->ring.tail))
                               * sizeof(kvr_fifo_slot_t));
}


static void
kvr_share_silence(kvr_share_host_t *host, uint64_t lease, uint64_t now)
{
    uint64_t  heard;

    heard = kvr_get(&host->heard);

    if (kvr_share_since(heard, now) >= lease) {
        kvr_set(&host->alive, 0);
    }

    if (kvr_share_since(heard, now) >= KVR_SHARE_FORGET) {
        kvr_set(&host->id, 0);
    }
}


int
kvr_share_late(kvr_share_t *s, uint64_t now)
{
    uint64_t  lag, late;

    lag = kvr_get(&s->stats.lag_ms);

    if (kvr_get(&s->timed)) {
        lag = kvr_max(lag, kvr_share_since(kvr_get(&s->since), now));
    }

    late = lag > KVR_SHARE_OLD;

    if (late == kvr_get(&s->stats.late)) {
        return 0;
    }

    kvr_set(&s->stats.late, late);

    return 1;
}


void
kvr_share_sum(const kvr_share_self_t *self, kvr_set_t set)
{
    uint32_t           i, n, peer, active, unanswered;
    uint64_t           pending, resident;
    kvr_share_t       *s;
    kvr_load_sum_t     load, context;
    _Atomic uint64_t  *row;
    kvr_share_host_t  *host, *counted[KVR_SHARE_HOSTS];

    s = self->share;
    n = 0;

    row = kvr_share_row(self->zone->load);

    if (row == NULL) {
        return;
    }

    for (i = 0; i < KVR_SHARE_HOSTS && !kvr_get(&s->stats.late); i++) {
        host = &s->host[i];

        if (kvr_get(&host->id) && kvr_get(&host->alive)
            && !kvr_get(&host->late))
        {
            counted[n++] = host;
        }
    }

    while (kvr_set_next(&set, &peer)) {

        active = 0;
        unanswered = 0;
        pending = 0;
        resident = 0;

        for (i = 0; i < n; i++) {
            load = kvr_load_split(kvr_get(&counted[i]->load[peer]));
            context = kvr_load_split(kvr_get(&counted[i]->context[peer]));

            active += load.active;
            pending += load.pending;
            unanswered += context.active;
            resident += context.pending;
        }

        kvr_set(&row[peer], kvr_share_word(active, pending));
        kvr_set(&row[kvr_registry_resident(self->zone->registry, peer)],
                kvr_share_word(unanswered, resident));
    }
}


/*
 * Returns the row of other hosts, and takes one if needed; NULL if none is
 * free. A killed process can leave a row that it has claimed, which is found
 * here.
 */
static _Atomic uint64_t *
kvr_share_row(kvr_load_t *load)
{
    uint32_t  n, high;

    if (kvr_get(&load->remote) == 0) {

        high = kvr_min(kvr_get(&load->high), load->rows);

        for (n = 0; n < high; n++) {
            if (atomic_load(&load->row[n].owner) == KVR_LOAD_REMOTE) {
                break;
            }
        }

        if (n == high) {
            n = kvr_load_claim(load, KVR_LOAD_REMOTE, 0);
        }

        if (n == load->rows) {
            return NULL;
        }

        kvr_set(&load->remote, n + 1);
    }

    return kvr_load_words(load, kvr_get(&load->remote) - 1);
}
