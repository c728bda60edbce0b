
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HOT_H_INCLUDED_
#define _KVR_HOT_H_INCLUDED_


/*
 * Counts how many requests of the last minute had a prefix that some peer has
 * cached: this tells what it is worth to have the prefix at one more peer.
 *
 * A count halves every 42 seconds, so with a constant rate it is the number of
 * requests of a minute.  A request is counted when its answer starts, not at
 * the pick: otherwise siblings of a burst would make their prompt look worth
 * computing everywhere, and be scattered.  It is counted at the pick if peers
 * can fetch the prefix, or if the burst is large (kvr_attempt_burst()).  Only
 * cached prefixes are counted, so prompts that are never repeated take no
 * place.
 *
 * A chain is counted at the end of what peers have cached: for new sessions
 * with a common system prompt that is the end of the system prompt.  For other
 * chains it is also counted at its first, 4th, 16th .. 1024th entry, as far as
 * it is cached.  A block between two of these has the count of the deeper one,
 * which may be too low, but not too high.
 *
 * The counts are words of a fixed table, in buckets of four: a part of the
 * key, the time of the last change in seconds, and the count then.  A prefix
 * that finds its bucket full decrements the lowest count there, and takes its
 * place when that is used up (Misra and Gries, 1982).  So a count is never too
 * high, except for two keys with the same 30 bits, and hot prefixes stay.  Any
 * process changes a word by compare and swap; if it is killed it leaves
 * nothing behind, and a change that is overtaken repeatedly is dropped.
 */


#include "core/base/kvr_chain.h"
#include "core/policy/kvr_policy.h"


#define KVR_HOT_WAYS     4
#define KVR_HOT_BUCKETS  1024
#define KVR_HOT_POINTS   7           /* 1, 4 .. 1024, and the end */
#define KVR_HOT_TAGS     (1U << 20)
#define KVR_HOT_KEYS     (KVR_HOT_BUCKETS * KVR_HOT_TAGS)
#define KVR_HOT_COMMON   2           /* requests that make a prefix common */


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   word[KVR_HOT_BUCKETS][KVR_HOT_WAYS];
} kvr_hot_t;


/* where a request's prefix is counted: kept until it is answered */
typedef struct {
    uint32_t           n;
    uint32_t           entries;      /* of the chain, at the last key */
    uint32_t           key[KVR_HOT_POINTS];      /* below KVR_HOT_KEYS */
} kvr_hot_keys_t;


/* how many requests had which part of the prefix: for one decision */
typedef struct {
    uint32_t           n;
    uint32_t           depth[KVR_HOT_POINTS];  /* units, falling */
    double             count[KVR_HOT_POINTS];  /* rising, from 1 / 4 */
} kvr_hot_view_t;


/*
 * Sets the places at which a chain is counted.  entries: the most of its
 * leading entries that a peer has; 0: no places.
 */
void kvr_hot_keys(const uint64_t *chain, uint32_t entries,
    kvr_hot_keys_t *keys);

/* Counts a request whose answer starts; now: ms of a clock that all share. */
void kvr_hot_add(kvr_hot_t *p, const kvr_hot_keys_t *keys,
    uint64_t now);

/*
 * Reads the counts of a chain.  Counts that differ by less than an eighth
 * become the least of them: usually there is one common part and one of the
 * session's own.
 */
void kvr_hot_view(kvr_hot_t *p, const kvr_hot_keys_t *keys, uint64_t now,
    kvr_hot_view_t *view);


/*
 * Returns the bytes of the uncached part that others will use, at a peer with
 * these units of the prompt, these requests in flight, and "rest" minutes
 * without work.
 */
static inline uint64_t
kvr_hot_shared(const kvr_hot_view_t *view, uint32_t units,
    uint32_t active, uint32_t rest)
{
    double    shared;
    uint32_t  i, from;

    shared = 0;

    for (i = 0; i < view->n && units < view->depth[i]; i++) {
        from = i + 1 < view->n ? kvr_max(units, view->depth[i + 1]) : units;

        shared += (int32_t) (view->depth[i] - from)
                  * kvr_score_hot(view->count[i], active, rest);
    }

    return (uint64_t) (int64_t) (shared * KVR_BLOCK);
}


/*
 * Tells whether these units of the prompt are just the common part of several
 * requests of the last minute, as with a system prompt of new sessions.  A
 * conversation continues from a different place each time.
 */
static inline int
kvr_hot_common(const kvr_hot_view_t *view, uint32_t units)
{
    uint32_t  entries;

    entries = kvr_chain_entries(units);

    return entries && view->n
           && view->depth[0] >= kvr_chain_depth(entries - 1)
           && view->count[0] >= KVR_HOT_COMMON;
}


#endif /* _KVR_HOT_H_INCLUDED_ */
