
/*
 * Copyright (C) kvroute contributors
 */


#include "core/watch/kvr_since.h"


static uint32_t kvr_since_cause(_Atomic uint64_t *word, uint32_t now);


uint32_t
kvr_since_state(kvr_history_t *h, const kvr_zone_t *zone, uint32_t member,
    uint32_t state, uint32_t now)
{
    uint64_t           was, next;
    _Atomic uint64_t  *word;

    kvr_history_begin(h, zone, member);

    word = &h->member[member].state;
    was = kvr_get(word);
    next = (uint64_t) now << 8 | state;

    if (was >> 8 == 0 || (was & 0xff) != state) {

        /* another process may have seen it first */

        if (atomic_compare_exchange_strong(word, &was, next)
            || (was & 0xff) != state)
        {
            was = next;
        }
    }

    return (uint32_t) (was >> 8);
}


void
kvr_since_causes(kvr_history_t *h, const kvr_zone_t *zone, uint32_t upstream,
    const kvr_verdict_server_t *server, kvr_verdict_t *v, uint32_t now)
{
    uint32_t                     i;
    _Atomic uint64_t            *word;
    kvr_verdict_why_t           *why;
    const kvr_verdict_server_t  *s;

    for (i = 0; i < v->n; i++) {
        why = &v->why[i];
        word = h->upstream[upstream].cause;

        s = &server[why->server[0]];

        if (why->reason < KVR_VERDICT_SINGLE && !s->uncounted) {
            kvr_history_begin(h, zone, s->member);
            word = h->member[s->member].cause;
        }

        why->since = kvr_since_cause(&word[why->reason], now);

        if (why->reason == KVR_VERDICT_SILENT) {
            why->since = now - (uint32_t) why->n;
        }
    }
}


uint32_t
kvr_since_full(kvr_history_t *h, double fill, uint64_t evicted, uint32_t now)
{
    return fill > KVR_SINCE_FULL && evicted ? kvr_since_cause(&h->full, now)
                                            : 0;
}


/* The word has when the cause began, and when it was last seen. */
static uint32_t
kvr_since_cause(_Atomic uint64_t *word, uint32_t now)
{
    uint64_t  was, since;

    was = kvr_get(word);
    since = was >> 32;

    if (since == 0 || now - (uint32_t) was > KVR_SINCE_HOLD) {
        since = now;
    }

    kvr_set(word, since << 32 | now);

    return (uint32_t) since;
}
