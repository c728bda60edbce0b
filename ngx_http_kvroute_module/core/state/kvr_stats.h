
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_STATS_H_INCLUDED_
#define _KVR_STATS_H_INCLUDED_


/*
 * What an upstream's decisions and answers were like, as histograms, and the
 * last decisions one by one.
 *
 * All of it only grows, so that a process killed anywhere leaves nothing to put
 * right: one observation is lost at most.  Counters are added to atomically
 * and without order; sums of them may be off by what is being added just then.
 * A row for each process, as kvr_load has, would take a megabyte of each zone:
 * the few additions a request makes do not need it.
 */


#include "core/policy/kvr_policy.h"


#define KVR_STATS_BUCKETS   14      /* and one for all beyond */
#define KVR_STATS_RECEIPTS  128     /* a power of two */


typedef enum {
    KVR_STATS_TTFT = 0,             /* us, to the first event of a stream */
    KVR_STATS_TTFT_WHOLE,           /* us, to an answer that is none */
    KVR_STATS_DECISION,             /* ns, reading, look-up and pick */
    KVR_STATS_MATCHED,              /* ppm of the prompt held by the pick */
    KVR_STATS_QUEUE,                /* ms, of those let in after waiting */
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


/*
 * A receipt.  The entry is not to be believed unless its number is the same
 * before and after it was read; while it is written its number is 0.
 */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   number;      /* from 1 */
    _Atomic uint64_t   time;        /* ms since the epoch */
    _Atomic uint64_t   hash;        /* of the whole prompt; keyed */
    _Atomic uint64_t   prompt;      /* bytes */
    _Atomic uint64_t   matched;
    _Atomic uint64_t   best;
    _Atomic uint32_t   ttft;        /* ms + 1, 0: not yet known */
    _Atomic uint8_t    upstream;
    _Atomic uint8_t    peer;
    _Atomic uint8_t    policy;
    _Atomic uint8_t    reason;
    _Atomic uint8_t    stream;      /* of ttft */
} kvr_receipt_entry_t;

_Static_assert(sizeof(kvr_receipt_entry_t) == KVR_CACHE_LINE, "receipt");
_Static_assert(KVR_POLICIES <= 256 && KVR_REASON_MAX <= 256,
               "bytes of a receipt");


typedef struct {
    uint64_t           number;
    uint64_t           time;
    uint64_t           hash;
    uint64_t           prompt;
    uint64_t           matched;
    uint64_t           best;
    uint32_t           ttft;
    uint8_t            upstream;
    uint8_t            peer;
    uint8_t            policy;
    uint8_t            reason;
    uint8_t            stream;
} kvr_receipt_t;


typedef struct {
    _Atomic uint64_t     last;      /* number given out last */
    kvr_receipt_entry_t  entry[KVR_STATS_RECEIPTS];
} kvr_receipts_t;


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

/* for an upstream that gets another's place */
void kvr_stats_reset(kvr_stats_t *stats);

/* writes a receipt, all but its number, ttft, stream; returns the number */
uint64_t kvr_receipts_put(kvr_receipts_t *ring, const kvr_receipt_t *receipt);

/*
 * Fills in what was not known at the decision, if it is still there: the time
 * to the first event, and whether that was one of a stream.
 */
void kvr_receipts_ttft(kvr_receipts_t *ring, uint64_t number, uint32_t ms,
    int stream);

/*
 * Reads the receipt of a number.  KVR_DECLINED if it is gone or is just being
 * written.
 */
int kvr_receipts_get(kvr_receipts_t *ring, uint64_t number,
    kvr_receipt_t *receipt);


#endif /* _KVR_STATS_H_INCLUDED_ */
