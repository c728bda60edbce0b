
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_ttft.h"


/*
 * T(held) is the time to the first token if the prompt is cached, T(lost) the
 * time if it is computed.
 */

/* new bytes that a sample of the prefill rate needs */
#define KVR_TTFT_NEW       4096

/* inserted bytes that a prompt needs to be judged */
#define KVR_TTFT_INSERTED    4096

/* a reply, kept or not, may be at most this part of the new bytes */
#define KVR_TTFT_KEPT      8

/* bytes that any request costs besides its prompt */
#define KVR_TTFT_SMALL     512

/* later requests may bring at most this part of the inserted bytes */
#define KVR_TTFT_LATER     2

/* T(lost) is at least this multiple of T(held) */
#define KVR_TTFT_APART     3.0

/* T(lost) is at least this many ms more than T(held) */
#define KVR_TTFT_SAVED     20

/* a lost prompt takes at least this multiple of T(held) */
#define KVR_TTFT_TWICE     2.0

/* a lost prompt takes at least T(held) and this part of the difference */
#define KVR_TTFT_FROM      0.4

/* a lost prompt takes at most this multiple of T(lost) */
#define KVR_TTFT_TO        1.6

/* a sample is near the median if it differs by no more than this factor */
#define KVR_TTFT_NEAR      1.5

/* the share of samples that must be near the median */
#define KVR_TTFT_MOST      0.75

/* the base is a fixed-point number: this many are 1 ms */
#define KVR_TTFT_ONE       256

/* the base rises by this part of the difference, each time */
#define KVR_TTFT_RISE      128


static void kvr_ttft_base(kvr_ttft_t *t, uint64_t ms, int small);
static void kvr_ttft_note(kvr_ttft_prefill_t *p, uint64_t ms,
    uint64_t bytes);


uint64_t
kvr_ttft_give(kvr_ttft_t *t, uint64_t bytes, int busy)
{
    uint64_t  given;

    bytes = kvr_min(bytes, INT32_MAX) + KVR_TTFT_SMALL;
    given = kvr_add(&t->given, bytes) + bytes;

    return busy ? 0 : given;
}


int
kvr_ttft_first(kvr_ttft_t *t, kvr_ttft_prefill_t *all,
    const kvr_ttft_first_t *f)
{
    double    base, prefill, held, lost, ms, least;
    uint64_t  new, most, sure, later, net;

    if (f->given == 0 || f->ms >= INT32_MAX || f->bytes > INT32_MAX
        || f->inserted > f->bytes || f->reply > f->inserted)
    {
        return KVR_TTFT_NOTHING;
    }

    /* to be computed; at most, if the reply was not kept */

    new = f->bytes - f->inserted;
    most = new + f->reply;
    sure = f->inserted - f->reply;
    later = kvr_get(&t->given) - f->given;

    if (later == 0) {
        kvr_ttft_base(t, f->ms, most <= KVR_TTFT_NEW);
    }

    base = (double) kvr_get(&t->base) / KVR_TTFT_ONE;
    net = f->ms - kvr_min((uint64_t) base, f->ms);

    if (new >= KVR_TTFT_NEW && new >= f->bytes / 4 && net && later == 0
        && f->reply <= new / KVR_TTFT_KEPT)
    {
        kvr_ttft_note(&t->prefill, net, new);

        if (all) {
            kvr_ttft_note(all, net, new);
        }
    }

    if (sure < KVR_TTFT_INSERTED || base == 0) {
        return KVR_TTFT_NOTHING;
    }

    prefill = kvr_ttft_prefill(&t->prefill);

    if (prefill == 0 && all) {
        prefill = kvr_ttft_prefill(all);
    }

    ms = (double) f->ms;
    held = base + prefill * (double) most;
    lost = base + prefill * (double) f->bytes;

    if (lost < held * KVR_TTFT_APART || lost - held < KVR_TTFT_SAVED) {
        return KVR_TTFT_NOTHING;
    }

    if (ms * ms <= held * lost) {
        return KVR_TTFT_HELD;
    }

    /* it may also have waited for later requests */

    if (later > sure / KVR_TTFT_LATER) {
        return KVR_TTFT_NOTHING;
    }

    least = ms - prefill * (double) later;

    if (least >= held * KVR_TTFT_TWICE
        && least >= held + (lost - held) * KVR_TTFT_FROM
        && ms <= lost * KVR_TTFT_TO)
    {
        return KVR_TTFT_LOST;
    }

    return KVR_TTFT_NOTHING;
}


/* Follows the least time; it rises slowly, in case the engine became slower. */
static void
kvr_ttft_base(kvr_ttft_t *t, uint64_t ms, int small)
{
    uint32_t  base, x;

    base = kvr_get(&t->base);
    x = (uint32_t) (kvr_max(kvr_min(ms, 1 << 20), 1) * KVR_TTFT_ONE);

    if (base == 0 || x < base) {
        kvr_set(&t->base, x);

    } else if (small) {
        kvr_set(&t->base, base + kvr_min(x - base, base) / KVR_TTFT_RISE);
    }
}


static void
kvr_ttft_note(kvr_ttft_prefill_t *p, uint64_t ms, uint64_t bytes)
{
    kvr_set(&p->seen[kvr_add(&p->hand, 1) % KVR_TTFT_SEEN],
            ms << 32 | bytes);
}


double
kvr_ttft_prefill(const kvr_ttft_prefill_t *p)
{
    double    x, median, sorted[KVR_TTFT_SEEN];
    uint32_t  i, k, n, near;
    uint64_t  seen;

    n = 0;

    for (i = 0; i < KVR_TTFT_SEEN; i++) {

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

    if (n < KVR_TTFT_LEAST) {
        return 0;
    }

    median = sorted[n / 2];
    near = 0;

    for (i = 0; i < n; i++) {
        near += sorted[i] * KVR_TTFT_NEAR >= median
                && sorted[i] <= median * KVR_TTFT_NEAR;
    }

    return near >= KVR_TTFT_MOST * n ? median : 0;
}
