
/*
 * Copyright (C) kvroute contributors
 */


#include "core/continue/kvr_late.h"


/* the first factor, and its bounds, 1/256 */
#define KVR_LATE_FACTOR  (4 * 256)
#define KVR_LATE_LEAST   (2 * 256)
#define KVR_LATE_MOST    (64 * 256)

/* noise of a first token, ms */
#define KVR_LATE_NOISE   16

/* first tokens in the mean, about */
#define KVR_LATE_MEAN    16


uint64_t
kvr_late_after(kvr_late_t *l, kvr_prefill_t *p, uint64_t ahead, uint64_t now)
{
    uint64_t  ms, rate, factor;

    rate = kvr_get(&p->rate);
    ms = kvr_get(&l->mean) / 16;

    if (rate) {
        ms = kvr_get(&p->base) / 256 + kvr_prefill_delay(p, now) / 16
             + ahead * KVR_PREFILL_RATE / rate;

    } else if (ms == 0) {
        return 0;
    }

    factor = kvr_get(&l->factor);

    return (KVR_LATE_NOISE + ms) * (factor ? factor : KVR_LATE_FACTOR) / 256;
}


void
kvr_late_first(kvr_late_t *l, uint64_t ms)
{
    int64_t  mean, last;

    last = (int64_t) (16 * kvr_min(ms, INT32_MAX / 16));
    mean = kvr_get(&l->mean);
    mean = mean ? mean + (last - mean) / KVR_LATE_MEAN : last;

    kvr_set(&l->mean, (uint32_t) kvr_max(mean, 1));
}


void
kvr_late_seen(kvr_late_t *l, int late)
{
    uint32_t  factor;

    factor = kvr_get(&l->factor);
    factor = factor ? factor : KVR_LATE_FACTOR;

    /* + 1: a small factor falls too */

    factor = late ? factor + factor / 5 : factor - factor / 512 - 1;

    factor = kvr_max(factor, KVR_LATE_LEAST);

    kvr_set(&l->factor, kvr_min(factor, KVR_LATE_MOST));
}


void
kvr_late_earn(kvr_late_t *l, uint32_t percent)
{
    if (kvr_get(&l->credit) < 100 * KVR_LATE_SAVED) {
        kvr_add(&l->credit, percent);
    }
}


int
kvr_late_spend(kvr_late_t *l)
{
    uint32_t  credit;

    credit = kvr_get(&l->credit);

    while (credit >= 100) {
        if (atomic_compare_exchange_weak(&l->credit, &credit, credit - 100)) {
            return 1;
        }
    }

    return 0;
}


int
kvr_late_room(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t peer,
    uint64_t now)
{
    uint32_t     i, n, room;
    kvr_peer_t  *known;

    n = 0;
    room = 0;

    for (i = 0; i < zone->registry->max_peers; i++) {

        if (i == peer || !kvr_set_test(&pool->set, i)) {
            continue;
        }

        known = &zone->registry->peer[i];
        n++;

        room += !kvr_candidate_spared(zone, pool, i, now)
                && !kvr_candidate_capped(zone, pool, i, 0, NULL, now)
                && !kvr_prefill_full(&known->prefill, 2 * KVR_LATE_ROOM,
                                     kvr_load_get(zone->load, i).pending, now);
    }

    return room && 2 * room >= n;
}


int
kvr_late_other(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t peer,
    uint64_t now)
{
    uint32_t  i;

    for (i = 0; i < zone->registry->max_peers; i++) {

        if (i != peer && kvr_set_test(&pool->set, i)
            && !kvr_candidate_spared(zone, pool, i, now))
        {
            return 1;
        }
    }

    return 0;
}
