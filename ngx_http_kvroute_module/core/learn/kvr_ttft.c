
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_ttft.h"


/*
 * T(held) is the time that a first token takes if the cache still has the
 * prompt, T(lost) the time if the prompt is computed.
 */

/* new bytes that a sample of the prefill rate needs */
#define KVR_TIMING_NEW     4096

/* inserted bytes that a prompt needs to be judged */
#define KVR_TIMING_TAUGHT  4096

/* a reply, kept or not, may be this part of the new bytes */
#define KVR_TIMING_KEPT    8

/* bytes that any request costs beside its prompt */
#define KVR_TIMING_SMALL   512

/* later requests may bring this part of the inserted bytes */
#define KVR_TIMING_LATER   2

/* T(lost) is at least so many times T(held) */
#define KVR_TIMING_APART   3.0

/* T(lost) is at least so many ms more than T(held) */
#define KVR_TIMING_SAVED   20

/* a lost prompt takes at least so many times T(held) */
#define KVR_TIMING_TWICE   2.0

/* a lost prompt takes at least T(held) and this part of the difference */
#define KVR_TIMING_FROM    0.4

/* a lost prompt takes at most so many times T(lost) */
#define KVR_TIMING_TO      1.6

/* a sample is near the median if it differs by no more than this factor */
#define KVR_TIMING_NEAR    1.5

/* the share of samples that must be near the median */
#define KVR_TIMING_MOST    0.75

/* the base is a fixed-point number: so many are 1 ms */
#define KVR_TIMING_ONE     256

/* the base rises by this part of the difference, each time */
#define KVR_TIMING_RISE    128


static void kvr_timing_base(kvr_timing_t *t, uint64_t ms, int small);
static void kvr_timing_note(kvr_timing_pace_t *p, uint64_t ms,
    uint64_t bytes);


void
kvr_timing_reset(kvr_timing_t *t)
{
    kvr_set(&t->base, 0);
    kvr_timing_pace_reset(&t->pace);
}


void
kvr_timing_pace_reset(kvr_timing_pace_t *p)
{
    uint32_t  i;

    for (i = 0; i < KVR_TIMING_SEEN; i++) {
        kvr_set(&p->seen[i], 0);
    }
}


uint64_t
kvr_timing_give(kvr_timing_t *t, uint64_t bytes, int busy)
{
    uint64_t  given;

    bytes = kvr_min(bytes, INT32_MAX) + KVR_TIMING_SMALL;
    given = kvr_add(&t->given, bytes) + bytes;

    return busy ? 0 : given;
}


int
kvr_timing_first(kvr_timing_t *t, kvr_timing_pace_t *all,
    const kvr_timing_first_t *f)
{
    double    base, pace, held, lost, ms, least;
    uint64_t  new, most, sure, later, net;

    if (f->given == 0 || f->ms >= INT32_MAX || f->bytes > INT32_MAX
        || f->taught > f->bytes || f->reply > f->taught)
    {
        return KVR_TIMING_NOTHING;
    }

    /* to be computed; at most, if it did not keep the reply */

    new = f->bytes - f->taught;
    most = new + f->reply;
    sure = f->taught - f->reply;
    later = kvr_get(&t->given) - f->given;

    if (later == 0) {
        kvr_timing_base(t, f->ms, most <= KVR_TIMING_NEW);
    }

    base = (double) kvr_get(&t->base) / KVR_TIMING_ONE;
    net = f->ms - kvr_min((uint64_t) base, f->ms);

    if (new >= KVR_TIMING_NEW && new >= f->bytes / 4 && net && later == 0
        && f->reply <= new / KVR_TIMING_KEPT)
    {
        kvr_timing_note(&t->pace, net, new);

        if (all) {
            kvr_timing_note(all, net, new);
        }
    }

    if (sure < KVR_TIMING_TAUGHT || base == 0) {
        return KVR_TIMING_NOTHING;
    }

    pace = kvr_timing_pace(&t->pace);

    if (pace == 0 && all) {
        pace = kvr_timing_pace(all);
    }

    ms = (double) f->ms;
    held = base + pace * (double) most;
    lost = base + pace * (double) f->bytes;

    if (lost < held * KVR_TIMING_APART || lost - held < KVR_TIMING_SAVED) {
        return KVR_TIMING_NOTHING;
    }

    if (ms * ms <= held * lost) {
        return KVR_TIMING_HELD;
    }

    /* it may have waited for what came later, too */

    if (later > sure / KVR_TIMING_LATER) {
        return KVR_TIMING_NOTHING;
    }

    least = ms - pace * (double) later;

    if (least >= held * KVR_TIMING_TWICE
        && least >= held + (lost - held) * KVR_TIMING_FROM
        && ms <= lost * KVR_TIMING_TO)
    {
        return KVR_TIMING_LOST;
    }

    return KVR_TIMING_NOTHING;
}


/* near the least of what is seen; it may have become slower, but not lost */
static void
kvr_timing_base(kvr_timing_t *t, uint64_t ms, int small)
{
    uint32_t  base, x;

    base = kvr_get(&t->base);
    x = (uint32_t) (kvr_max(kvr_min(ms, 1 << 20), 1) * KVR_TIMING_ONE);

    if (base == 0 || x < base) {
        kvr_set(&t->base, x);

    } else if (small) {
        kvr_set(&t->base, base + kvr_min(x - base, base) / KVR_TIMING_RISE);
    }
}


static void
kvr_timing_note(kvr_timing_pace_t *p, uint64_t ms, uint64_t bytes)
{
    kvr_set(&p->seen[kvr_add(&p->hand, 1) % KVR_TIMING_SEEN],
            ms << 32 | bytes);
}


double
kvr_timing_pace(const kvr_timing_pace_t *p)
{
    double    x, median, sorted[KVR_TIMING_SEEN];
    uint32_t  i, k, n, near;
    uint64_t  seen;

    n = 0;

    for (i = 0; i < KVR_TIMING_SEEN; i++) {

        seen = kvr_get(&p->seen[i]);

        if (seen == 0) {
            continue;
        }

        x = (double) (seen >> 32) / (double) (seen & UINT32_MAX);

        for (k = n++; k && sorted[k - 1] > x; k--) {
            sorted[k] = sorted[k - 1];
        }

        sorted[k] = x;
    }

    if (n < KVR_TIMING_LEAST) {
        return 0;
    }

    median = sorted[n / 2];
    near = 0;

    for (i = 0; i < n; i++) {
        near += sorted[i] * KVR_TIMING_NEAR >= median
                && sorted[i] <= median * KVR_TIMING_NEAR;
    }

    return near >= KVR_TIMING_MOST * n ? median : 0;
}
