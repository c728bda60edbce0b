
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_STATS_H_INCLUDED_
#define _KVR_STATS_H_INCLUDED_


/*
 * Histograms of an upstream's decisions and answers.
 *
 * Counters only grow, so a killed process costs at most one observation.  They
 * are added to atomically, in no order; a sum may miss what is being added just
 * then.  A row for each process, as in kvr_load, would take a megabyte of each
 * zone, which a few additions per request do not justify.
 */


#include "core/policy/kvr_policy.h"


#define KVR_STATS_BUCKETS   14      /* and one for all beyond */


typedef enum {
    KVR_STATS_TTFT = 0,             /* us, to the first event of a stream */
    KVR_STATS_TTFT_WHOLE,           /* us, to the whole of another answer */
    KVR_STATS_DECISION,             /* ns, with reading and lookup */
    KVR_STATS_MATCHED,              /* ppm of the prompt held by the pick */
    KVR_STATS_QUEUE,                /* ms, of requests that have waited */
    KVR_STATS_LEG1,                 /* us, of a prefill leg */
    KVR_STATS_HISTOGRAMS
} kvr_stats_e;


typedef struct {
    _Atomic uint64_t   bucket[KVR_STATS_BUCKETS + 1];
    _Atomic uint64_t   sum;
} kvr_histogram_t;


/* of an upstream */
typedef struct {
    kvr_histogram_t    histogram[KVR_STATS_HISTOGRAMS];
    _Atomic uint64_t   policy[KVR_POLICIES];
} kvr_stats_t;


/* Returns the upper bounds of the buckets, and sets *n to their number. */
const uint64_t *kvr_stats_bounds(kvr_stats_e kind, uint32_t *n);

/* Returns how many of a kind's units make a second, or one. */
double kvr_stats_scale(kvr_stats_e kind);

/* Counts a value in the kind's unit; bounds are inclusive. */
void kvr_stats_observe(kvr_stats_t *stats, kvr_stats_e kind, uint64_t value);

/*
 * Adds up the histograms from one kind to another.  Their bounds must be the
 * same.
 */
void kvr_stats_sum(const kvr_stats_t *stats, kvr_stats_e first,
    kvr_stats_e last, kvr_histogram_t *sum);


#endif /* _KVR_STATS_H_INCLUDED_ */
