
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_STATS_H_INCLUDED_
#define _KVR_STATS_H_INCLUDED_


/*
 * What an upstream's decisions and answers were like, as histograms.
 *
 * All of it only grows, so that a process killed anywhere leaves nothing to put
 * right: one observation is lost at most.  Counters are added to atomically
 * and without order; sums of them may be off by what is being added just then.
 * A row for each process, as kvr_load has, would take a megabyte of each zone:
 * the few additions a request makes do not need it.
 */


#include "core/policy/kvr_policy.h"


#define KVR_STATS_BUCKETS   14      /* and one for all beyond */


typedef enum {
    KVR_STATS_TTFT = 0,             /* us, to the first event of a stream */
    KVR_STATS_TTFT_WHOLE,           /* us, to an answer that is none */
    KVR_STATS_DECISION,             /* ns, reading, look-up and pick */
    KVR_STATS_MATCHED,              /* ppm of the prompt held by the pick */
    KVR_STATS_QUEUE,                /* ms, of those let in after waiting */
    KVR_STATS_LEG1,                 /* us, of a prefill by another server */
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


/* the upper bounds of the buckets, KVR_STATS_BUCKETS of them at most */
const uint64_t *kvr_stats_bounds(kvr_stats_e kind, uint32_t *n);

/* how many of a kind's units make a second, or one */
double kvr_stats_scale(kvr_stats_e kind);

/* counts a value, in the kind's unit; bounds are inclusive */
void kvr_stats_observe(kvr_stats_t *stats, kvr_stats_e kind, uint64_t value);

/*
 * Adds up the histograms of two kinds, and of those between, to *sum.  Their
 * bounds must be the same.
 */
void kvr_stats_sum(const kvr_stats_t *stats, kvr_stats_e first,
    kvr_stats_e last, kvr_histogram_t *sum);


#endif /* _KVR_STATS_H_INCLUDED_ */
