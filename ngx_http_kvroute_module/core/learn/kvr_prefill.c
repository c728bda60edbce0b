
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_prefill.h"


/* bytes whose prefill takes longer than the rest of a request */
#define KVR_PREFILL_RATE_MIN  8192

/* samples during which the rate falls faster */
#define KVR_PREFILL_NEW    32

/* the part of a window, in 1/1000000, that one second is */
#define KVR_PREFILL_BEGUN  (1000000 * 1000 / KVR_PREFILL_WINDOW)

/* the upper bits of a delay's word are its time, in units of 1024 ms */
#define KVR_PREFILL_DELAY_AT     40
#define KVR_PREFILL_DELAY_SHIFT  10
#define KVR_PREFILL_DELAY_MASK   0xffffff
#define KVR_PREFILL_DELAY_HALF   7

/* less than this, in ms, is noise of timers and networks */
#define KVR_PREFILL_DELAY_NOISE  16

/* ms; a later first event had other reasons than a queue */
#define KVR_PREFILL_DELAY_MAX  600000

/* with each prompt the largest one fades by this part */
#define KVR_PREFILL_FADE   16


static uint64_t kvr_prefill_average(uint64_t average, uint64_t value,
    uint32_t gap);
static uint32_t kvr_prefill_since(_Atomic uint64_t *moment, uint64_t now);


uint64_t
kvr_prefill_give(kvr_prefill_t *p, uint64_t bytes, uint64_t pending,
    uint64_t now)
{
    uint32_t  gap, largest;
    uint64_t  left;

    if (pending == 0) {
        kvr_set(&p->moved, now);
    }

    largest = kvr_get(&p->largest);

    /* without a rate, half of the running prefill is assumed to be done */

    left = kvr_get(&p->rate) ? kvr_prefill_left(p, pending, now)
                             : pending - kvr_min(pending, largest) / 2;

    largest -= largest / KVR_PREFILL_FADE;

    kvr_set(&p->largest, (uint32_t) kvr_max(largest,
                                            kvr_min(bytes, INT32_MAX)));

    gap = kvr_prefill_since(&p->given, now);

    kvr_set(&p->bytes, kvr_prefill_average(kvr_get(&p->bytes), 1000 * bytes,
                                           gap));
    kvr_set(&p->given_full, kvr_prefill_average(kvr_get(&p->given_full),
                                                1000000ULL * gap, gap));
    kvr_set(&p->given, now);

    return left + bytes;
}


void
kvr_prefill_first(kvr_prefill_t *p, uint64_t left, uint64_t ms, uint64_t now)
{
    uint32_t  rate, sample, n;

    kvr_set(&p->moved, now);

    if (left < KVR_PREFILL_RATE_MIN) {
        return;
    }

    left = kvr_min(left * KVR_PREFILL_RATE / kvr_max(ms, 1), INT32_MAX);

    sample = (uint32_t) left;
    rate = kvr_get(&p->rate);
    n = kvr_get(&p->samples);

    if (rate == 0 || sample > rate) {
        rate = rate ? rate + (sample - rate) / 8 : sample;

    } else {
        rate -= (rate - sample) / (n < KVR_PREFILL_NEW ? 8 : 64);
    }

    if (n < KVR_PREFILL_NEW) {
        kvr_set(&p->samples, n + 1);
    }

    kvr_set(&p->rate, kvr_max(rate, 1));
}


void
kvr_prefill_waited(kvr_prefill_t *p, uint64_t left, uint64_t held, uint64_t ms,
    uint32_t rate, uint64_t now)
{
    int64_t  base, took, delay, miss;

    if (rate == 0) {
        return;
    }

    /* in 1/256 ms */

    took = (int64_t) (kvr_min(ms, KVR_PREFILL_DELAY_MAX) * 256);
    base = kvr_get(&p->base);

    if (base == 0 || took < base) {
        base = took;
    }

    base += (took - base) / 256;

    kvr_set(&p->base, (uint32_t) kvr_max(base, 1));

    /* in 1/16 ms: bytes * 256 / rate */

    left = kvr_min(left, INT64_MAX / 256);
    held = kvr_min(held, INT64_MAX / 256);

    took = (took - base) / 16 - (int64_t) (left * 256 / rate)
           - KVR_PREFILL_DELAY_NOISE * KVR_PREFILL_RATE;
    took = kvr_max(took, 0);
    miss = (int64_t) (held * 256 / rate);

    if (took > miss / 2) {
        took -= miss;

        if (took < 0) {
            return;
        }
    }

    delay = kvr_prefill_delay(p, now);
    delay += (took - delay) / 8;

    kvr_set(&p->delay, (now >> KVR_PREFILL_DELAY_SHIFT & KVR_PREFILL_DELAY_MASK)
                       << KVR_PREFILL_DELAY_AT | (uint64_t) delay);
}


uint32_t
kvr_prefill_faded(uint64_t word, uint64_t now)
{
    uint32_t  delay, time;

    delay = (uint32_t) word;
    time = (uint32_t) ((now >> KVR_PREFILL_DELAY_SHIFT)
                       - (word >> KVR_PREFILL_DELAY_AT))
           & KVR_PREFILL_DELAY_MASK;

    if (time == 0 || time > KVR_PREFILL_DELAY_MASK / 2) {
        return delay;
    }

    if (time >= 32 * KVR_PREFILL_DELAY_HALF) {
        return 0;
    }

    /* linear from one half-life to the next */

    return (delay - (uint32_t) ((uint64_t) delay
                                * (time % KVR_PREFILL_DELAY_HALF)
                                / (2 * KVR_PREFILL_DELAY_HALF)))
           >> time / KVR_PREFILL_DELAY_HALF;
}


uint64_t
kvr_prefill_left(kvr_prefill_t *p, uint64_t pending, uint64_t now)
{
    uint64_t  done;

    done = (uint64_t) kvr_get(&p->rate) * kvr_prefill_since(&p->moved, now)
           / KVR_PREFILL_RATE;

    done = kvr_min(done, kvr_get(&p->largest));

    return pending - kvr_min(done, pending);
}


int
kvr_prefill_full(kvr_prefill_t *p, uint64_t target, uint64_t pending,
    uint64_t now)
{
    uint64_t  cap;

    cap = kvr_get(&p->rate) * target / KVR_PREFILL_RATE / 2;

    return cap && kvr_prefill_left(p, pending, now) >= cap;
}


void
kvr_prefill_load(kvr_prefill_t *p, uint64_t now, kvr_prefill_load_t *load)
{
    double    bytes, given;
    uint32_t  gap;

    gap = kvr_prefill_since(&p->given, now);

    bytes = (double) kvr_prefill_average(kvr_get(&p->bytes), 0, gap);
    given = (double) kvr_prefill_average(kvr_get(&p->given_full),
                                         1000000ULL * gap, gap);

    /* the part of a window that has passed */

    bytes /= kvr_max(given, KVR_PREFILL_BEGUN) / 1000000;

    load->rate = 1000.0 * kvr_get(&p->rate) / KVR_PREFILL_RATE;
    load->utilization = load->rate > 0 ? bytes / load->rate : 0;
}


/*
 * Adds a value, "gap" ms after the one before, to a fading average: for evenly
 * spaced values it is the rate.
 */
static uint64_t
kvr_prefill_average(uint64_t average, uint64_t value, uint32_t gap)
{
    return (uint64_t) (((double) average + (double) value / KVR_PREFILL_WINDOW)
                       * KVR_PREFILL_WINDOW / ((double) KVR_PREFILL_WINDOW
                                               + gap));
}


/*
 * Returns the ms since a moment; 0 if there was none.  The moment can be in the
 * future, by another process's clock.
 */
static uint32_t
kvr_prefill_since(_Atomic uint64_t *moment, uint64_t now)
{
    uint64_t  then;

    then = kvr_get(moment);

    return then && now > then ? (uint32_t) kvr_min(now - then, UINT32_MAX)
                              : 0;
}
