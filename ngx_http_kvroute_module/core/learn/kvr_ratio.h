
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RATIO_H_INCLUDED_
#define _KVR_RATIO_H_INCLUDED_


/*
 * Bytes per token: a running mean that resists outliers.
 *
 * The n-th response counts 1/n, from the 32nd on 1/32.  A response counts for
 * at most a quarter above or below the mean; the first three for more, as the
 * mean is a guess then.  So one response moves the mean by less than a
 * hundredth, and many move it all the way, within what a tokenizer can do.  It
 * is Huber's estimator of location, with a window.
 *
 * In shared memory.  The two words are independent: of two processes that write
 * at once one response is lost.
 */


#include "core/base/kvr_core.h"


#define KVR_RATIO_ONE    1024    /* 1, as a fixed-point number */
#define KVR_RATIO_START  4       /* bytes per token, if unknown */
#define KVR_RATIO_LAST   32
#define KVR_RATIO_CLOSE  4       /* part of the mean that a response counts */
#define KVR_RATIO_MIN    1000    /* bytes; less is mostly the template's */

/* of a mean: images have less than a byte per token, blanks more than 8 */
#define KVR_RATIO_LEAST  (KVR_RATIO_ONE / 4)
#define KVR_RATIO_MOST   (KVR_RATIO_ONE * 16)


typedef struct {
    _Atomic uint32_t   mean;     /* in 1/KVR_RATIO_ONE; 0: unknown */
    _Atomic uint32_t   n;        /* responses, at most KVR_RATIO_LAST */
} kvr_ratio_t;


/* Returns bytes per token; 0: unknown. */
static inline double
kvr_ratio_get(const kvr_ratio_t *r)
{
    return (double) kvr_get(&r->mean) / KVR_RATIO_ONE;
}


static inline void
kvr_ratio_reset(kvr_ratio_t *r)
{
    kvr_set(&r->n, 0);
    kvr_set(&r->mean, 0);
}


/* Takes the size of a prompt in both units; short prompts do not count. */
static inline void
kvr_ratio_take(kvr_ratio_t *r, uint64_t bytes, uint64_t tokens)
{
    int64_t   mean, x, most;
    uint32_t  n;

    if (bytes < KVR_RATIO_MIN || tokens == 0) {
        return;
    }

    mean = kvr_get(&r->mean);
    mean = mean ? mean : KVR_RATIO_START * KVR_RATIO_ONE;

    n = kvr_min(kvr_get(&r->n) + 1, KVR_RATIO_LAST);
    most = mean / kvr_min(n, KVR_RATIO_CLOSE);

    x = (int64_t) (kvr_min(bytes, INT32_MAX) * KVR_RATIO_ONE / tokens);
    x = kvr_max(x, mean - most);
    x = kvr_min(x, mean + most);

    mean += (x - mean) / (int64_t) n;

    mean = kvr_max(mean, KVR_RATIO_LEAST);
    mean = kvr_min(mean, KVR_RATIO_MOST);

    kvr_set(&r->mean, (uint32_t) mean);
    kvr_set(&r->n, n);
}


#endif /* _KVR_RATIO_H_INCLUDED_ */
