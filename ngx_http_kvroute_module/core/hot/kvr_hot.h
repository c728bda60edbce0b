
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HOT_H_INCLUDED_
#define _KVR_HOT_H_INCLUDED_


/*
 * How many requests of the last minute had a beginning that some peer held:
 * what it is worth to have that beginning at a further peer.
 *
 * The count of a beginning falls by itself, by half every 42 seconds: so it
 * comes to the requests of a minute when there are as many in each.  A request
 * is counted when its answer begins, not when it is given to a peer: siblings
 * of a burst would tell each other that their prompt is worth computing
 * everywhere, and be torn apart.  Only what was held is counted, so that
 * prompts which nobody repeats take no room.
 *
 * A chain is counted where what peers held of it ended: for new sessions with
 * one system prompt that is the end of the system prompt.  For chains that end
 * elsewhere it is counted at its first, 4th, 16th .. 1024th entry as well, as
 * far as it was held.  A block between two of these counts as often as the
 * deeper one: too little rather than too much.
 *
 * The counts are words of a fixed table, in buckets of four: a part of the
 * key, the time of the last change in seconds, the count then.  A beginning
 * that finds its bucket full lowers the lowest count there by its own, and has
 * its place when that is used up (Misra and Gries, 1982): so a count is never
 * too high, but for two keys that are alike in 30 bits, and those of popular
 * beginnings stay.  A word is changed by compare and swap, by any process; one
 * that is killed leaves nothing behind, and a change that is overtaken again
 * and again is dropped.
 */


#include "core/base/kvr_chain.h"
#include "core/policy/kvr_policy.h"


#define KVR_HOT_WAYS     4
#define KVR_HOT_BUCKETS  1024
#define KVR_HOT_POINTS   7           /* 1, 4 .. 1024, and the end */
#define KVR_HOT_TAGS     (1U << 20)
#define KVR_HOT_KEYS     (KVR_HOT_BUCKETS * KVR_HOT_TAGS)
#define KVR_HOT_COMMON   2           /* requests that make a place common */


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   word[KVR_HOT_BUCKETS][KVR_HOT_WAYS];
} kvr_hot_t;


/* where a request's beginning is counted: to be kept until it is answered */
typedef struct {
    uint32_t           n;
    uint32_t           entries;      /* of the chain, at the last of them */
    uint32_t           key[KVR_HOT_POINTS];      /* below KVR_HOT_KEYS */
} kvr_hot_keys_t;


/* how many requests had what part of its beginning: for one decision */
typedef struct {
    uint32_t           n;
    uint32_t           depth[KVR_HOT_POINTS];      /* units, falling */
    double             count[KVR_HOT_POINTS];      /* rising, from 1 / 4 */
    double             unit;                       /* bytes */
} kvr_hot_view_t;


/*
 * The places to count a chain at, of which peers held the first entries, at
 * most; none if entries is 0.
 */
void kvr_hot_keys(const uint64_t *chain, uint32_t entries,
    kvr_hot_keys_t *keys);

/* counts a request whose answer begins; now: ms, of a clock that all share */
void kvr_hot_add(kvr_hot_t *p, const kvr_hot_keys_t *keys,
    uint64_t now);

/* how many requests of the last minute are counted under keys->key[i] */
double kvr_hot_count(kvr_hot_t *p, uint32_t key, uint64_t now);

/*
 * What is counted of a chain in units of so many bytes.  Counts that differ by
 * less than an eighth are taken for the least of them: as a rule there is one
 * part that many have, and one that is the session's own.
 */
void kvr_hot_view(kvr_hot_t *p, const kvr_hot_keys_t *keys,
    uint64_t unit, uint64_t now, kvr_hot_view_t *view);


/*
 * Bytes that a peer which holds so many units of the prompt, with so many
 * requests in flight, and without work for so many minutes, need not be charged
 * for the remainder, as others will have the use of it; at most that remainder.
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

    return (uint64_t) (int64_t) (shared * view->unit);
}


/*
 * Whether so many units of the prompt are all that several requests of the last
 * minute had in common with what peers held, as with a system prompt that new
 * sessions begin with.  A conversation goes on from another place each time.
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
