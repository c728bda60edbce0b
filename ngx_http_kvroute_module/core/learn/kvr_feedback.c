
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_feedback.h"


#define KVR_FEEDBACK_FACTOR_MAX  (2 * KVR_FEEDBACK_ONE)
#define KVR_FEEDBACK_FACTOR_MIN  (KVR_FEEDBACK_ONE / 4)

/* s, without a count of tokens */
#define KVR_FEEDBACK_FADE  600

/* of the reported capacity; tokens of one reply */
#define KVR_FEEDBACK_USABLE_MAX  1.25
#define KVR_FEEDBACK_REPLY_MAX   (1U << 20)


static void kvr_feedback_output(kvr_feedback_t *l, uint64_t tokens);
static int kvr_feedback_missed(kvr_feedback_t *l,
    const kvr_feedback_response_t *r, uint32_t now, uint64_t *clock);
static void kvr_feedback_correct(kvr_feedback_t *l, int step);


int
kvr_feedback_old(const kvr_feedback_t *l, const kvr_feedback_response_t *r)
{
    uint32_t  retention;

    if (r->speculative) {
        return 0;
    }

    retention = r->capacity ? r->capacity : kvr_retention_get(&l->retention);

    return retention && r->age >= retention / 2;
}


int
kvr_feedback_take(kvr_feedback_t *l, const kvr_feedback_response_t *r,
    uint32_t now, uint64_t *clock)
{
    int       rc, old, held;
    int64_t   cached;
    uint32_t  kind;
    uint64_t  matched, delivered, margin;

    if (r->completion > 0) {
        kvr_add(&l->completion, (uint64_t) r->completion);
        kvr_feedback_output(l, (uint64_t) r->completion);
    }

    if (r->prompt <= 0 || r->bytes == 0) {
        return 0;
    }

    kvr_set(&l->counted, kvr_max(now, 1));

    if (!r->unsized) {
        kvr_ratio_take(&l->bytes, r->bytes, (uint64_t) r->prompt);
    }

    if (r->sampled) {
        return 0;
    }

    kind = 1U << (r->kind & 31);
    cached = r->cached;

    if (cached >= 0) {
        if (!(kvr_get(&l->reports) & kind)) {
            atomic_fetch_or_explicit(&l->reports, kind, memory_order_relaxed);
        }

    } else {

        /* engines that have the field omit it if it is 0 */

        if (!(kvr_get(&l->reports) & kind)) {
            return 0;
        }

        cached = 0;
    }

    matched = kvr_min(r->matched, r->bytes);
    delivered = (uint64_t) cached * r->bytes / (uint64_t) r->prompt;
    margin = (uint64_t) KVR_FEEDBACK_BLOCKS * r->block + r->step;

    kvr_add(&l->responses, 1);
    kvr_add(&l->prompt, (uint64_t) r->prompt);
    kvr_add(&l->delivered, (uint64_t) cached);
    kvr_add(&l->predicted, matched * (uint64_t) r->prompt / r->bytes);

    rc = matched >= delivered + margin ? KVR_FEEDBACK_SHORT : 0;

    /* old blocks are evicted normally, which is no sign of a reset */

    old = rc && kvr_feedback_old(l, r);

    held = (delivered + margin >= r->inserted);

    if (r->inserted && !r->speculative && (held || r->step == 0)) {
        kvr_retention_note(&l->retention, r->age, held);
    }

    if (rc && delivered * 2 < matched) {

        kvr_add(&l->missed, 1);

        if (r->speculative || r->step) {
            return KVR_FEEDBACK_MISSED;
        }

        if (old) {

            if (r->capacity) {
                kvr_feedback_correct(l, -1);
            }

            return KVR_FEEDBACK_MISSED;
        }

        return kvr_feedback_missed(l, r, now, clock);
    }

    if (delivered >= margin) {
        kvr_set(&l->hits, 1);
    }

    /* a hit that was not predicted does not prove that the rest is there */

    if (matched >= margin) {
        kvr_set(&l->misses, 0);
    }

    if (matched * 2 < delivered && delivered >= matched + margin) {
        rc |= KVR_FEEDBACK_MORE;
        kvr_feedback_correct(l, 1);

    } else if (rc && old && r->capacity && r->step == 0) {
        kvr_feedback_correct(l, -1);

    } else if (matched >= margin) {
        kvr_feedback_correct(l, 0);
    }

    return rc;
}


static void
kvr_feedback_output(kvr_feedback_t *l, uint64_t tokens)
{
    uint32_t  x, old;

    x = (uint32_t) kvr_min(tokens, KVR_FEEDBACK_REPLY_MAX)
        * KVR_FEEDBACK_OUTPUT;
    old = kvr_get(&l->output);

    kvr_set(&l->output, old ? kvr_max(old - old / 32 + x / 32, 1) : x);
}


static int
kvr_feedback_missed(kvr_feedback_t *l, const kvr_feedback_response_t *r,
    uint32_t now, uint64_t *clock)
{
    uint32_t  i, n;

    n = kvr_min(kvr_get(&l->misses), KVR_FEEDBACK_CHAINS - 1);

    for (i = 0; i < n; i++) {
        if (kvr_get(&l->key[i]) == r->key) {
            return KVR_FEEDBACK_MISSED;
        }
    }

    kvr_feedback_correct(l, -1);

    if (n == 0) {
        kvr_set(&l->clock, r->clock);
    }

    kvr_set(&l->key[n], r->key);
    kvr_set(&l->misses, n + 1);

    if (n + 1 == KVR_FEEDBACK_CHAINS && r->alive) {
        kvr_set(&l->misses, 0);
        return KVR_FEEDBACK_MISSED;
    }

    if (n + 1 < KVR_FEEDBACK_CHAINS || !kvr_get(&l->hits)
        || (kvr_get(&l->flushed) && now - kvr_get(&l->flushed)
                                    < KVR_FEEDBACK_PAUSE))
    {
        return KVR_FEEDBACK_MISSED;
    }

    *clock = kvr_get(&l->clock);

    kvr_feedback_restart(l);

    kvr_set(&l->flushed, kvr_max(now, 1));
    kvr_add(&l->by_usage, 1);

    return KVR_FEEDBACK_MISSED|KVR_FEEDBACK_FORGOT;
}


int
kvr_feedback_timed(kvr_feedback_t *l, uint32_t age, int held)
{
    if (kvr_get(&l->reports)) {
        return 0;
    }

    kvr_add(held ? &l->timed_held : &l->timed_lost, 1);
    kvr_retention_note(&l->retention, age, held);

    return 1;
}


/* Moves the factor by one or three percent, or back towards 1. */
static void
kvr_feedback_correct(kvr_feedback_t *l, int step)
{
    uint32_t  f;

    f = kvr_get(&l->factor);
    f = f ? f : KVR_FEEDBACK_ONE;

    if (step < 0) {
        f -= f / 32;

    } else if (step > 0) {
        f += f / 64 + 1;

    } else if (f < KVR_FEEDBACK_ONE) {
        f += (KVR_FEEDBACK_ONE - f) / 256;

    } else {
        f -= (f - KVR_FEEDBACK_ONE) / 256;
    }

    f = kvr_max(f, KVR_FEEDBACK_FACTOR_MIN);
    f = kvr_min(f, KVR_FEEDBACK_FACTOR_MAX);

    kvr_set(&l->factor, f);
}


void
kvr_feedback_restart(kvr_feedback_t *l)
{
    kvr_set(&l->misses, 0);
    kvr_set(&l->hits, 0);
    kvr_set(&l->reports, 0);
}


void
kvr_feedback_fade(kvr_feedback_t *l, uint32_t now)
{
    uint32_t  counted;

    counted = kvr_get(&l->counted);

    if (counted && (int32_t) (now - counted) > KVR_FEEDBACK_FADE) {
        kvr_ratio_reset(&l->bytes);
        kvr_set(&l->output, 0);
        kvr_set(&l->factor, 0);
        kvr_set(&l->counted, 0);
    }
}


double
kvr_feedback_bytes(const kvr_feedback_t *l)
{
    double  bytes;

    bytes = kvr_ratio_get(&l->bytes);

    return bytes > 0 ? bytes : KVR_RATIO_START;
}


double
kvr_feedback_factor(const kvr_feedback_t *l)
{
    uint32_t  f;

    f = kvr_get(&l->factor);

    return f ? (double) f / KVR_FEEDBACK_ONE : 1;
}


double
kvr_feedback_usable(const kvr_feedback_t *l, uint64_t tokens, uint32_t replies)
{
    double  all, taken;

    all = (double) tokens;
    taken = (double) replies * kvr_get(&l->output) / KVR_FEEDBACK_OUTPUT / 2;

    return (all - kvr_min(taken, all / 2))
           * kvr_min(kvr_feedback_factor(l), KVR_FEEDBACK_USABLE_MAX);
}
