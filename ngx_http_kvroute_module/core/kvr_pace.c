
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_pace.h"


/* bytes that take longer to compute than the rest of a request */
#define KVR_PACE_RATE_MIN  8192

/* the largest prompt is forgotten by a part of it with each one */
#define KVR_PACE_FADE      16


static uint64_t kvr_pace_average(uint64_t average, uint64_t value,
    uint32_t gap);
static uint32_t kvr_pace_since(_Atomic uint32_t *moment, uint64_t now);


void
kvr_pace_reset(kvr_pace_t *p)
{
    kvr_set(&p->rate, 0);
    kvr_set(&p->moved, 0);
    kvr_set(&p->largest, 0);
    kvr_set(&p->active, 0);
    kvr_set(&p->given, 0);
    kvr_set(&p->ended, 0);
    kvr_set(&p->bytes, 0);
    kvr_set(&p->ends, 0);
    kvr_set(&p->time, 0);
}


uint64_t
kvr_pace_give(kvr_pace_t *p, uint64_t bytes, uint64_t pending, uint64_t now)
{
    uint32_t  gap, largest;

    if (pending == 0) {
        kvr_set(&p->moved, (uint32_t) now);
    }

    largest = kvr_get(&p->largest);
    largest -= largest / KVR_PACE_FADE;

    kvr_set(&p->largest, (uint32_t) kvr_max(largest,
                                            kvr_min(bytes, INT32_MAX)));

    gap = kvr_pace_since(&p->given, now);

    kvr_set(&p->bytes, kvr_pace_average(kvr_get(&p->bytes), 1000 * bytes,
                                        gap));
    kvr_set(&p->given, (uint32_t) now);

    return kvr_pace_left(p, pending, now) + bytes;
}


void
kvr_pace_first(kvr_pace_t *p, uint64_t left, uint64_t ms, uint64_t now)
{
    uint32_t  rate, sample;

    kvr_set(&p->moved, (uint32_t) now);

    if (left < KVR_PACE_RATE_MIN) {
        return;
    }

    left = kvr_min(left * KVR_PACE_RATE / kvr_max(ms, 1), INT32_MAX);

    sample = (uint32_t) left;
    rate = kvr_get(&p->rate);

    if (rate == 0 || sample > rate) {
        rate = rate ? rate + (sample - rate) / 8 : sample;

    } else {
        rate -= (rate - sample) / 64;
    }

    kvr_set(&p->rate, kvr_max(rate, 1));
}


void
kvr_pace_end(kvr_pace_t *p, uint64_t ms, uint64_t now)
{
    uint32_t  gap;

    gap = kvr_pace_since(&p->ended, now);

    kvr_set(&p->ends, kvr_pace_average(kvr_get(&p->ends), 1000000000,
                                       gap));
    kvr_set(&p->time, kvr_pace_average(kvr_get(&p->time),
                                       1000000 * kvr_min(ms, INT32_MAX),
                                       gap));
    kvr_set(&p->ended, (uint32_t) now);
}


void
kvr_pace_sample(kvr_pace_t *p, uint32_t active)
{
    uint64_t  mean;

    mean = kvr_get(&p->active) * (uint64_t) (KVR_PACE_WINDOW - 1000)
           + 1000ULL * 1000 * active;

    mean /= KVR_PACE_WINDOW;

    kvr_set(&p->active, (uint32_t) kvr_min(mean, UINT32_MAX));
}


uint64_t
kvr_pace_left(kvr_pace_t *p, uint64_t pending, uint64_t now)
{
    uint64_t  done;

    done = (uint64_t) kvr_get(&p->rate) * kvr_pace_since(&p->moved, now)
           / KVR_PACE_RATE;

    done = kvr_min(done, kvr_get(&p->largest));

    return pending - kvr_min(done, pending);
}


int
kvr_pace_full(kvr_pace_t *p, uint64_t target, uint64_t pending, uint64_t now)
{
    uint64_t  cap;

    cap = kvr_get(&p->rate) * target / KVR_PACE_RATE / 2;

    return cap && kvr_pace_left(p, pending, now) >= cap;
}


void
kvr_pace_load(kvr_pace_t *p, uint64_t now, kvr_pace_load_t *load)
{
    double  bytes, ends, time;

    bytes = (double) kvr_pace_average(kvr_get(&p->bytes), 0,
                                      kvr_pace_since(&p->given, now));
    ends = (double) kvr_pace_average(kvr_get(&p->ends), 0,
                                     kvr_pace_since(&p->ended, now));
    time = (double) kvr_pace_average(kvr_get(&p->time), 0,
                                     kvr_pace_since(&p->ended, now));

    load->rate = 1000.0 * kvr_get(&p->rate) / KVR_PACE_RATE;
    load->utilization = load->rate > 0 ? bytes / load->rate : 0;
    load->ends = ends / 1000000;
    load->latency = ends > 0 ? time / ends : 0;
    load->active = kvr_get(&p->active) / 1000.0;
    load->expected = time / 1000000;
}


/*
 * An average over time that fades, of a value that comes after a gap: what
 * comes evenly is found as it is.
 */
static uint64_t
kvr_pace_average(uint64_t average, uint64_t value, uint32_t gap)
{
    return (uint64_t) (((double) average + (double) value / KVR_PACE_WINDOW)
                       * KVR_PACE_WINDOW / ((double) KVR_PACE_WINDOW + gap));
}


/* ms since; clocks of processes differ a little, and it may be to come */
static uint32_t
kvr_pace_since(_Atomic uint32_t *moment, uint64_t now)
{
    int32_t  since;

    since = (int32_t) ((uint32_t) now - kvr_get(moment));

    return (uint32_t) kvr_max(since, 0);
}
