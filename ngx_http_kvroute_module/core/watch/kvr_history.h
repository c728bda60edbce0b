
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HISTORY_H_INCLUDED_
#define _KVR_HISTORY_H_INCLUDED_


/*
 * The last ten minutes of each upstream, and the last minute of each server:
 * fixed memory in the zone, so that whoever looks sees the same, after a reload
 * as well.
 *
 * Every KVR_HISTORY_STEP ms one process looks at the counters.  What they have
 * grown by since the last look is a sample of the upstream, and a part of the
 * last minute of the server.  A counter that went down was reset: it begins
 * with what it has now.
 *
 * The first look at an upstream clears what an earlier one of that number has
 * left.  Rejects of the queue are not counted by it: the queue keeps its
 * counters when the zone is made anew.  The counters of the zone itself begin
 * at 0 with the history.
 *
 * Who takes a step takes it by compare and swap of the time of the last one, so
 * each sample has one writer.  A sample has no time while it is written: one
 * that is left so by a process that was killed is shown to nobody, and written
 * over ten minutes later.  Readers take no lock; they leave out a sample whose
 * time has changed while they read it.
 */


#include "core/state/kvr_zone.h"


#define KVR_HISTORY_STEP     10000   /* ms */
#define KVR_HISTORY_SAMPLES  60      /* of an upstream: ten minutes */
#define KVR_HISTORY_PARTS    6       /* of a server: one minute */

#define KVR_HISTORY_NONE     0xffff  /* matched: no prompts */


/* what counters have grown by */
typedef struct {
    _Atomic uint32_t   requests;
    _Atomic uint32_t   errors;       /* answers of 5xx, and none at all */
    _Atomic uint32_t   refused;      /* answers of 4xx */
    _Atomic uint32_t   firsts;       /* streams that began */
    _Atomic uint32_t   ttft;         /* ms, of those together */
} kvr_history_part_t;


/* counters of a member when last looked at */
typedef struct {
    _Atomic uint64_t    requests;
    _Atomic uint64_t    errors;
    _Atomic uint64_t    refused;
    _Atomic uint64_t    fails;
    _Atomic uint64_t    firsts;
    _Atomic uint64_t    ttft;
    _Atomic uint64_t    prompt;
    _Atomic uint64_t    matched;
    kvr_history_part_t  part[KVR_HISTORY_PARTS];
} kvr_history_member_t;


/* of an upstream: one step */
typedef struct {
    _Atomic uint32_t   time;         /* s since the epoch; 0: none */
    _Atomic uint32_t   requests;
    _Atomic uint32_t   errors;
    _Atomic uint32_t   rejects;      /* by the queue */
    _Atomic uint32_t   p50;          /* ms to the first token, of streams; 0: */
    _Atomic uint32_t   p95;          /*   there were none */
    _Atomic uint32_t   active;       /* at its end */
    _Atomic uint16_t   matched;      /* 1/10000 of the prompt bytes */
    _Atomic uint16_t   unused;
} kvr_history_sample_t;


typedef struct {
    _Atomic uint64_t      rejects;   /* when last looked at */
    _Atomic uint64_t      bucket[KVR_STATS_BUCKETS + 1];
    kvr_history_sample_t  sample[KVR_HISTORY_SAMPLES];
} kvr_history_upstream_t;


typedef struct {
    _Atomic uint64_t        stepped;  /* when, ms */
    _Atomic uint64_t        steps;
    uint32_t                max_members;
    kvr_history_upstream_t  upstream[KVR_REGISTRY_UPSTREAMS];
    kvr_history_member_t    member[];
} kvr_history_t;


/* a minute of a server */
typedef struct {
    uint64_t           requests;
    uint64_t           errors;
    uint64_t           refused;
    uint64_t           firsts;
    uint64_t           ttft;         /* ms, of those together */
} kvr_history_minute_t;


/* bytes of it: zeroed, but for max_members, as the zone's registry has it */
size_t kvr_history_size(uint32_t max_members);

/*
 * Whether it is time for a step, and the caller takes it.  now: ms, of a clock
 * that only goes forward and all processes share.  The caller looks at each
 * upstream then.
 */
int kvr_history_step(kvr_history_t *h, uint64_t now);

/*
 * Looks at an upstream and its members.  rejects: how many requests its queue
 * has rejected so far; time: s since the epoch.
 */
void kvr_history_look(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, uint64_t rejects, uint32_t time);

/*
 * Copies the samples of an upstream, the oldest first, to
 * sample[KVR_HISTORY_SAMPLES].  Returns how many.
 */
uint32_t kvr_history_samples(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, kvr_history_sample_t *sample);

/* the last minute of a member, up to now: KVR_HISTORY_PARTS steps and the rest */
void kvr_history_member(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t member, kvr_history_minute_t *minute);

/* what the queue of an upstream has rejected in that time */
uint64_t kvr_history_rejects(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, uint64_t rejects);


#endif /* _KVR_HISTORY_H_INCLUDED_ */
