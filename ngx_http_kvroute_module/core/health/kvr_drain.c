
/*
 * Copyright (C) kvroute contributors
 */


#include "core/health/kvr_drain.h"


/* a map: the minute's number above, one bit for each key below */
#define KVR_DRAIN_MINUTE  60000
#define KVR_DRAIN_BITS    48


static inline uint64_t
kvr_drain_minute(uint64_t now)
{
    return now / KVR_DRAIN_MINUTE & (((uint64_t) 1 << (64 - KVR_DRAIN_BITS))
                                     - 1);
}


void
kvr_drain_begin(kvr_drain_t *d, uint64_t timeout, uint64_t now)
{
    kvr_set(&d->until, timeout ? now + timeout : 0);
    kvr_set(&d->reported, 0);

    if (kvr_drain_on(d)) {
        kvr_set(&d->on, 1);
        return;
    }

    kvr_set(&d->since, now);
    kvr_set(&d->last, 0);
    kvr_set(&d->requests, 0);
    kvr_set(&d->seen[0], 0);
    kvr_set(&d->seen[1], 0);

    kvr_set(&d->on, 1);
}


int
kvr_drain_end(kvr_drain_t *d)
{
    int  on;

    on = kvr_drain_on(d);

    kvr_set(&d->on, 0);

    return on;
}


void
kvr_drain_move(kvr_drain_t *d, uint32_t rate)
{
    kvr_set(&d->on, 1 + rate);
}


int
kvr_drain_leaves(const kvr_drain_t *d, _Atomic uint64_t *next, uint64_t now)
{
    uint32_t  on;
    uint64_t  turn;

    on = kvr_get(&d->on);
    turn = kvr_get(next);

    return on > 1 && kvr_drain_over(d, now) && turn <= now * 1000
           && atomic_compare_exchange_strong(next, &turn,
                                             now * 1000 + 1000000 / (on - 1));
}


void
kvr_drain_copy(kvr_drain_t *d, const kvr_drain_t *as)
{
    if (!kvr_drain_on(as)) {
        kvr_set(&d->on, 0);
        return;
    }

    if (!kvr_drain_on(d)) {
        kvr_drain_begin(d, 0, kvr_get(&as->since));
    }

    kvr_set(&d->until, kvr_get(&as->until));
}


void
kvr_drain_given(kvr_drain_t *d, uint64_t now)
{
    if (kvr_drain_on(d)) {
        kvr_set(&d->last, now);
        kvr_add(&d->requests, 1);
    }
}


void
kvr_drain_session(kvr_drain_t *d, uint64_t key, uint64_t now)
{
    uint64_t           bit, minute, old, new;
    _Atomic uint64_t  *map;

    minute = kvr_drain_minute(now);
    map = &d->seen[minute & 1];
    bit = (uint64_t) 1 << kvr_reduce(kvr_mix(key, 0), KVR_DRAIN_BITS);

    old = kvr_get(map);

    do {
        new = (old >> KVR_DRAIN_BITS == minute)
              ? old | bit : minute << KVR_DRAIN_BITS | bit;

    } while (!atomic_compare_exchange_weak(map, &old, new));
}


uint32_t
kvr_drain_sessions(const kvr_drain_t *d, uint64_t now)
{
    int       i, n;
    double    keys;
    uint64_t  minute, map, all;

    minute = kvr_drain_minute(now);
    all = 0;

    for (i = 0; i < 2; i++) {
        map = kvr_get(&d->seen[i]);

        if (map >> KVR_DRAIN_BITS == minute
            || map >> KVR_DRAIN_BITS == kvr_drain_minute(now
                                                         - KVR_DRAIN_MINUTE))
        {
            all |= map << (64 - KVR_DRAIN_BITS);
        }
    }

    /* with n bits set the next one takes BITS / (BITS - n) keys */

    n = __builtin_popcountll(all);

    for (i = 0, keys = 0.5; i < n; i++) {
        keys += (double) KVR_DRAIN_BITS / (KVR_DRAIN_BITS - i);
    }

    return (uint32_t) (int32_t) keys;
}


uint64_t
kvr_drain_left(const kvr_drain_t *d, uint64_t now)
{
    uint64_t  until;

    until = kvr_get(&d->until);

    return until > now ? until - now : 0;
}


kvr_drain_e
kvr_drain_state(const kvr_drain_t *d, uint32_t active, uint64_t now)
{
    uint64_t  last;

    if (!kvr_drain_on(d)) {
        return KVR_DRAIN_NO;
    }

    last = kvr_max(kvr_get(&d->last), kvr_get(&d->since));

    return !active && (kvr_drain_over(d, now) || now >= last + KVR_DRAIN_IDLE)
           ? KVR_DRAIN_EMPTY : KVR_DRAIN_ON;
}


int
kvr_drain_report(kvr_drain_t *d, uint32_t active, uint64_t now)
{
    if (kvr_drain_state(d, active, now) != KVR_DRAIN_EMPTY) {
        kvr_set(&d->reported, 0);
        return 0;
    }

    return !atomic_exchange(&d->reported, 1);
}
