
/*
 * Copyright (C) kvroute contributors
 */


/* Help for a new host: another one publishes its whole index. */


#include "core/share/kvr_share.h"


#define KVR_SHARE_HELP_ENTRIES  256      /* at most, in a record */

/* lines examined for a batch, at most: most of a large table may be free */
#define KVR_SHARE_HELP_LINES    16384

/* "want" of a host that is receiving help: it asks until it has read all */
#define KVR_SHARE_HELPING       UINT64_MAX


static uint32_t kvr_share_help_rank(kvr_share_t *s, uint32_t wants);
static int kvr_share_help_last(const kvr_share_self_t *self);


void
kvr_share_help_want(kvr_share_t *s, uint64_t now)
{
    kvr_set(&s->wants, now + KVR_SHARE_WANTS);
}


int
kvr_share_help_due(const kvr_share_self_t *self, uint64_t now)
{
    uint32_t           i;
    uint64_t           want;
    kvr_share_t       *s;
    kvr_share_host_t  *host;

    s = self->share;

    if (kvr_get(&s->helping)) {
        return 1;
    }

    for (i = 0; i < KVR_SHARE_HOSTS; i++) {

        host = &s->host[i];
        want = kvr_get(&host->want);

        if (kvr_get(&host->id) == 0 || kvr_get(&host->alive) == 0
            || want == 0 || want == KVR_SHARE_HELPING)
        {
            continue;
        }

        if (kvr_share_since(want, now)
            >= (uint64_t) kvr_share_help_rank(s, i) * KVR_SHARE_TURN
            && kvr_share_since(kvr_get(&s->helped), now) >= KVR_SHARE_TURN)
        {
            kvr_set(&s->line, 0);
            kvr_set(&s->line_end, 0);
            kvr_set(&s->helping, 1);

            /* it is helped once */

            kvr_set(&host->want, KVR_SHARE_HELPING);

            return 1;
        }
    }

    return 0;
}


/*
 * Returns how many hosts are before this one in the order of helping, which is
 * the same on all hosts.  New hosts come last.
 */
static uint32_t
kvr_share_help_rank(kvr_share_t *s, uint32_t wants)
{
    int                own, new;
    uint32_t           i, rank;
    uint64_t           id, who, turn;
    kvr_share_host_t  *host;

    who = kvr_get(&s->host[wants].id);
    turn = kvr_mix(s->id, who);
    own = kvr_get(&s->wants) != 0;
    rank = 0;

    for (i = 0; i < KVR_SHARE_HOSTS; i++) {
        host = &s->host[i];
        id = kvr_get(&host->id);

        if (id == 0 || i == wants || kvr_get(&host->alive) == 0) {
            continue;
        }

        new = kvr_get(&host->want) != 0;
        rank += new == own ? kvr_mix(id, who) < turn : own;
    }

    return rank;
}


unsigned
kvr_share_help_frame(const kvr_share_self_t *self, kvr_share_owner_t *o,
    kvr_share_writer_t *w, int again, uint32_t seconds)
{
    int                 room;
    uint32_t            i, n, looked, place;
    uint64_t            line, end, *words, bind[3];
    kvr_index_t        *ix;
    kvr_share_t        *s;
    kvr_share_index_t   k;

    s = self->share;
    ix = self->zone->index;
    words = o->word;

    line = kvr_get(&s->line);
    end = ix->nlines;

    /* a batch that is sent again gets no further lines */

    if (again) {
        end = kvr_get(&s->line_end);

        if (line >= end) {
            return 0;
        }
    }

    n = 1;
    room = 1;

    for (looked = 0; room && looked < KVR_SHARE_HELP_LINES; looked++) {

        if (line >= end) {
            break;
        }

        if (!kvr_share_index_read(ix, line, seconds, &k)) {
            line++;
            continue;
        }

        if (k.session) {
            bind[0] = kvr_share_head(KVR_SHARE_BIND, k.peer[0], 2);
            bind[1] = k.key;
            bind[2] = kvr_share_pair(k.age[0], 0);

            room = w->max - w->n > n + 3 && kvr_share_batch_put(w, bind, 3);
            line += (uint64_t) room;
            continue;
        }

        /* each holder takes two words, and one for the digest */

        if (w->max - w->n < n + 3 * k.n) {
            break;
        }

        for (i = 0; i < k.n; i++) {
            place = kvr_share_batch_place(w, k.peer[i]);

            if (place) {
                words[n++] = k.key;
                words[n++] = kvr_share_known(k.age[i], place - 1, k.marked);
            }
        }

        line++;

        if (n > 2 * (KVR_SHARE_HELP_ENTRIES - KVR_INDEX_HOLDERS)) {
            kvr_share_batch_known(w, words, n);
            n = 1;
        }
    }

    if (n > 1) {
        kvr_share_batch_known(w, words, n);
    }

    kvr_set(&s->line_end, line);

    return kvr_share_help_last(self) ? KVR_SHARE_HELP|KVR_SHARE_HELPED
                                     : KVR_SHARE_HELP;
}


/* whether the batch under way is the last one */
static int
kvr_share_help_last(const kvr_share_self_t *self)
{
    kvr_share_t  *s;

    s = self->share;

    return kvr_get(&s->line_end) >= self->zone->index->nlines
           || kvr_get(&s->helping) >= KVR_SHARE_HELPS;
}


void
kvr_share_help_acked(const kvr_share_self_t *self)
{
    kvr_share_t  *s;

    s = self->share;

    if (kvr_get(&s->helping) == 0) {
        return;
    }

    if (kvr_share_help_last(self)) {
        kvr_set(&s->helping, 0);
        return;
    }

    if (kvr_get(&s->line_end) > kvr_get(&s->line)) {
        kvr_set(&s->line, kvr_get(&s->line_end));
        kvr_add(&s->helping, 1);
    }
}


void
kvr_share_help_take(const kvr_share_self_t *self, const kvr_share_record_t *r,
    const uint16_t *peer, uint32_t npeers)
{
    uint32_t  i, place;

    for (i = 0; i < r->n; i += 2) {

        place = kvr_share_upper(r->word[i + 1]) & UINT16_MAX;

        if (place < npeers && peer[place] != KVR_PEERS) {
            kvr_share_index_write(self->zone->index, r->word[i], peer[place],
                                  kvr_share_lower(r->word[i + 1]),
                                  kvr_share_upper(r->word[i + 1]) >> 16 & 1);
        }
    }

    kvr_add(&self->share->stats.joined, r->n / 2);
}
