
/*
 * Copyright (C) kvroute contributors
 */


#include "core/share/kvr_share.h"


/* words reserved behind the records for the load of a peer */
#define KVR_SHARE_FRAME_REST  4

_Static_assert(KVR_PEERS * (KVR_SHARE_FRAME_REST + 1) * 8
               + KVR_FIFO_MAX * 8 < KVR_SHARE_BATCH - 1024,
               "room for a record");


static int kvr_share_frame_beat(kvr_share_owner_t *o, uint64_t now);
static void kvr_share_frame_records(const kvr_share_self_t *self,
    kvr_share_owner_t *o, kvr_share_writer_t *w, int again, uint64_t now);
static int kvr_share_frame_claim(kvr_share_t *s, kvr_share_owner_t *o,
    uint64_t end, uint64_t number);
static void kvr_share_frame_load(const kvr_share_self_t *self,
    kvr_share_owner_t *o, kvr_share_writer_t *w, int all);
static int kvr_share_frame_changed(const kvr_share_self_t *self,
    kvr_share_owner_t *o, uint32_t peer, uint64_t *load, uint64_t *context);


int
kvr_share_due(const kvr_share_self_t *self, kvr_share_owner_t *o, uint64_t now)
{
    uint32_t      i;
    uint64_t      load, context;
    kvr_share_t  *s;

    s = self->share;

    if (kvr_get(&s->number) != kvr_get(&s->acked)
        || kvr_get(&s->ring.head) != kvr_get(&s->ring.tail)
        || kvr_share_frame_beat(o, now)
        || kvr_share_help_due(self, now))
    {
        return 1;
    }

    for (i = 0; i < self->zone->registry->max_peers; i++) {
        if (o->names.digest[i]
            && kvr_share_frame_changed(self, o, i, &load, &context))
        {
            return 1;
        }
    }

    return 0;
}


/* whether a complete load is due */
static int
kvr_share_frame_beat(kvr_share_owner_t *o, uint64_t now)
{
    return !o->begun || now - o->beat >= KVR_SHARE_BEAT;
}


size_t
kvr_share_frame(const kvr_share_self_t *self, kvr_share_owner_t *o, void *buf,
    unsigned flags, uint64_t now, uint32_t seconds)
{
    int                 again, all;
    uint64_t            number, end;
    kvr_share_t        *s;
    kvr_share_writer_t  w;

    s = self->share;

    number = kvr_get(&s->number);
    end = kvr_get(&s->end);
    again = kvr_get(&s->acked) < number;

    /* a new host needs the clocks first */

    all = again || flags || kvr_share_frame_beat(o, now)
          || kvr_get(&s->helping) == 1;

    kvr_share_names(self, &o->names, now);
    kvr_share_batch_begin(&w, buf, KVR_SHARE_BATCH, o->names.digest);

    /* a batch that was not confirmed gets the same records */

    kvr_share_frame_records(self, o, &w, again, now);

    /* behind the updates, which move the clocks that the load contains */

    kvr_share_frame_load(self, o, &w, all);

    if (all) {
        o->beat = now;
        o->begun = 1;
    }

    if (kvr_get(&s->wants) > now) {
        flags |= KVR_SHARE_WANT;
    }

    if (kvr_get(&s->stats.late)) {
        flags |= KVR_SHARE_LATE;
    }

    if (kvr_get(&s->helping)) {
        flags |= kvr_share_help_frame(self, o, &w, again, seconds);
    }

    if (!again && !kvr_share_frame_claim(s, o, end, number++)) {
        return 0;
    }

    o->number = number;

    if (kvr_get(&s->timed) == 0) {
        kvr_set(&s->since, now);
        kvr_set(&s->timed, number);
    }

    return kvr_share_batch_finish(&w, &self->key, s->id, number, self->name,
                                  flags);
}


/* stores the end first, so that it is valid with the number */
static int
kvr_share_frame_claim(kvr_share_t *s, kvr_share_owner_t *o, uint64_t end,
    uint64_t number)
{
    return atomic_compare_exchange_strong(&s->end, &end, o->end)
           && atomic_compare_exchange_strong(&s->number, &number, number + 1);
}


void
kvr_share_acked(const kvr_share_self_t *self, kvr_share_owner_t *o)
{
    uint64_t      from, before;
    kvr_share_t  *s;

    s = self->share;
    from = o->from;
    before = o->number - 1;

    /* another owner may have confirmed it, and framed a later one */

    if (kvr_get(&s->number) != o->number || kvr_get(&s->acked) != before) {
        return;
    }

    /* in this order: see kvr_share.h */

    kvr_share_help_acked(self);

    (void) atomic_compare_exchange_strong(&s->ring.tail, &from, o->end);
    (void) atomic_compare_exchange_strong(&s->acked, &before, o->number);

    kvr_add(&s->stats.batches_sent, 1);
}


static void
kvr_share_frame_records(const kvr_share_self_t *self, kvr_share_owner_t *o,
    kvr_share_writer_t *w, int again, uint64_t now)
{
    int           n;
    uint32_t      rest, peer;
    uint64_t      place, end, next;
    kvr_share_t  *s;

    s = self->share;

    place = kvr_get(&s->ring.tail);
    end = again ? kvr_get(&s->end) : UINT64_MAX;

    o->from = place;

    rest = self->zone->registry->max_peers * (KVR_SHARE_FRAME_REST + 1);
    w->max -= rest;

    while (place < end) {

        next = place;

        if (w->max - w->n <= KVR_FIFO_MAX) {
            break;
        }

        n = kvr_fifo_get(&s->ring, &next, &w->word[w->n],
                         again ? KVR_FIFO_SKIP : now);

        if (n == KVR_DECLINED || n == KVR_AGAIN) {
            break;
        }

        if (n == KVR_ERROR) {
            kvr_add(&s->stats.lost, !again);
        }

        if (n > 0) {
            peer = w->word[w->n] >> 8 & (KVR_PEERS - 1);

            if (place >= kvr_get(&s->renamed[peer])) {
                kvr_share_batch_accept(w, (uint32_t) n);
            }
        }

        place = next;
    }

    w->max += rest;
    o->end = again ? end : place;
}


/* whether the load by this host, without others, has changed */
static int
kvr_share_frame_changed(const kvr_share_self_t *self, kvr_share_owner_t *o,
    uint32_t peer, uint64_t *load, uint64_t *context)
{
    kvr_load_t      *table;
    kvr_load_sum_t   sum;

    table = self->zone->load;

    sum = kvr_load_here(table, peer);
    *load = kvr_share_word(sum.active, sum.pending);

    sum = kvr_load_here(table,
                        kvr_registry_resident(self->zone->registry, peer));
    *context = kvr_share_word(sum.active, sum.pending);

    return *load != o->load[peer] || *context != o->context[peer];
}


static void
kvr_share_frame_load(const kvr_share_self_t *self, kvr_share_owner_t *o,
    kvr_share_writer_t *w, int all)
{
    uint32_t  i;
    uint64_t  words[4];

    for (i = 0; i < self->zone->registry->max_peers; i++) {

        if (o->names.digest[i] == 0
            || (!kvr_share_frame_changed(self, o, i, &words[1], &words[2])
                && !all))
        {
            continue;
        }

        o->load[i] = words[1];
        o->context[i] = words[2];

        words[0] = kvr_share_head(KVR_SHARE_LOAD, i, 3);
        words[3] = kvr_share_index_units(self->zone->index, i);

        (void) kvr_share_batch_put(w, words, 4);
    }
}
