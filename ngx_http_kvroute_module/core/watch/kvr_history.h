
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HISTORY_H_INCLUDED_
#define _KVR_HISTORY_H_INCLUDED_


/*
 * Keeps the last ten minutes of each upstream, and the last minute of each
 * server.  The memory is part of the zone and has a fixed size, so all readers
 * see the same, also after a reload.
 *
 * Every KVR_HISTORY_STEP ms one process looks at the counters.  Their growth
 * since the last look is a sample of the upstream, and a part of the last
 * minute of each server.  The growth of a counter that went down, because it
 * was reset, is its value.
 *
 * The first look at an upstream clears the samples of an earlier one that had
 * the same number.  It does not count the queue's rejects, because the queue
 * keeps its counters when the zone is created again.  The zone's own counters
 * start at 0 together with the history.
 *
 * The process that swaps the time of the last step takes the step, so each
 * sample has one writer.  A sample has no time while it is written.  If
 * the writer is killed, readers ignore the sample, and it is overwritten ten
 * minutes later.  Readers take no lock; they leave out a sample whose time
 * changed while they read it.
 */


#include "core/state/kvr_zone.h"
#include "core/watch/kvr_verdict.h"


#define KVR_HISTORY_STEP     10000   /* ms */
#define KVR_HISTORY_SAMPLES  60      /* per upstream: ten minutes */
#define KVR_HISTORY_PARTS    6       /* per server: one minute */

#define KVR_HISTORY_NONE     0xffff  /* value of matched without prompts */


/* counters of a member; those before _SHOWN are kept for a minute */
typedef enum {
    KVR_HISTORY_REQUESTS = 0,
    KVR_HISTORY_ERRORS,              /* 5xx responses and no response */
    KVR_HISTORY_REFUSED,             /* 4xx responses */
    KVR_HISTORY_FIRSTS,              /* streams that have started */
    KVR_HISTORY_TTFT,                /* sum, ms */
    KVR_HISTORY_SHOWN,
    KVR_HISTORY_FAILS = KVR_HISTORY_SHOWN,
    KVR_HISTORY_PROMPT,              /* bytes */
    KVR_HISTORY_MATCHED,
    KVR_HISTORY_COUNTERS
} kvr_history_counter_e;


typedef struct {
    _Atomic uint64_t    was[KVR_HISTORY_COUNTERS];  /* values at the last
                                                       look */
    _Atomic uint32_t    part[KVR_HISTORY_PARTS][KVR_HISTORY_SHOWN];
    _Atomic uint32_t    firsts[2];   /* streams of the window that fills, and of
                                        the last one that was full */
    _Atomic uint32_t    ttft[2];     /* of them; sum, ms */
    _Atomic uint64_t    state;       /* s since 1970 << 8, and what it is */
    _Atomic uint64_t    cause[KVR_VERDICT_SINGLE];  /* see kvr_since.h */
} kvr_history_member_t;


/* a step of an upstream */
typedef struct {
    _Atomic uint32_t   time;         /* s since the epoch; 0: no sample */
    _Atomic uint32_t   requests;
    _Atomic uint32_t   errors;
    _Atomic uint32_t   rejects;      /* of the queue */
    _Atomic uint32_t   p50;          /* TTFT of streams in ms; 0: */
    _Atomic uint32_t   p95;          /* no stream started */
    _Atomic uint32_t   active;       /* at the end of the step */
    _Atomic uint16_t   matched;      /* 1/10000 of the prompt bytes */
    _Atomic uint16_t   unused;
} kvr_history_sample_t;


typedef struct {
    _Atomic uint64_t      rejects;   /* at the last look */
    _Atomic uint64_t      bucket[KVR_STATS_BUCKETS + 1];
    _Atomic uint64_t      cause[KVR_VERDICT_REASONS];  /* see kvr_since.h */
    kvr_history_sample_t  sample[KVR_HISTORY_SAMPLES];
} kvr_history_upstream_t;


typedef struct {
    _Atomic uint64_t        stepped;  /* time of the last step, ms */
    _Atomic uint64_t        steps;
    _Atomic uint64_t        full;     /* the index; see kvr_since.h */
    uint32_t                max_members;
    kvr_history_upstream_t  upstream[KVR_REGISTRY_UPSTREAMS];
    kvr_history_member_t    member[];
} kvr_history_t;


/*
 * Returns the size.  The caller zeroes the memory and sets max_members to that
 * of the zone's registry.
 */
size_t kvr_history_size(uint32_t max_members);

/*
 * Tells whether a step is due; then the caller has taken it, and looks at each
 * upstream.  now: ms of a monotonic clock that all processes share.
 */
int kvr_history_step(kvr_history_t *h, uint64_t now);

/*
 * Begins with an upstream, and with a member, unless it is known.  Their slots
 * may have been those of others.
 */
void kvr_history_upstream(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, uint64_t rejects);
void kvr_history_begin(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t member);

/*
 * Looks at an upstream and its members.  rejects: all rejects of its queue so
 * far; time: s since the epoch.
 */
void kvr_history_look(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, uint64_t rejects, uint32_t time);

/*
 * Copies the samples of an upstream to sample[KVR_HISTORY_SAMPLES], the oldest
 * first.  Returns their number.
 */
uint32_t kvr_history_samples(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, kvr_history_sample_t *sample);

/*
 * Reads the last minute of a member: KVR_HISTORY_PARTS steps and the time
 * since.
 */
void kvr_history_member(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t member, kvr_verdict_server_t *s);

/* Returns how many requests the queue has rejected in the same time. */
uint64_t kvr_history_rejects(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, uint64_t rejects);


#endif /* _KVR_HISTORY_H_INCLUDED_ */
