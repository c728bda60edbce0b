
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INDEX_TABLE_H_INCLUDED_
#define _KVR_INDEX_TABLE_H_INCLUDED_


/* What the index is in memory: lines, and peers with their clocks. */


#include "core/base/kvr_chain.h"
#include "core/base/kvr_set.h"


#define KVR_INDEX_HOLDERS   8
#define KVR_INDEX_FRACTION  8       /* bits of a clock below one unit */
#define KVR_INDEX_WAYS      4
#define KVR_INDEX_AHEAD     4       /* part of a capacity: kvr_index_heard() */

/* capacities in units; larger ones would not tell old stamps from new */
#define KVR_INDEX_CAPACITY_MAX  (1U << 28)

/* words with a time, in units of 1024 ms, in their upper 24 bits */
#define KVR_INDEX_TIME_AT     40
#define KVR_INDEX_TIME_MASK   0xffffff
#define KVR_INDEX_TIME_SHIFT  10
#define KVR_INDEX_TURNED      64         /* a turnover of 1 */


typedef struct {
    _Atomic uint64_t   key;          /* chain value, 0 if free */
    _Atomic uint64_t   mask;         /* further holders, by peer % 64 */
    _Atomic uint64_t   ids;          /* peer of each slot, 7 bits a byte */

    union {
        _Atomic uint32_t  stamp[KVR_INDEX_HOLDERS];  /* kvr_index_stamp() */
        _Atomic uint64_t  stamps[KVR_INDEX_HOLDERS / 2];  /* two at a time */
    };

    _Atomic uint32_t   touched;      /* table's clock less depth, last use */
    _Atomic uint32_t   masked;       /* table's clock as the mask began */
} kvr_index_line_t;

_Static_assert(sizeof(kvr_index_line_t) == KVR_CACHE_LINE, "index line");


/* where the capacity of a peer comes from, by rising trust */
typedef enum {
    KVR_INDEX_ASSUMED = 0,           /* "capacity=": nothing else is known */
    KVR_INDEX_LEARNED,               /* from what it delivered */
    KVR_INDEX_EXACT,
    KVR_INDEX_REPORTED = KVR_INDEX_EXACT,
    KVR_INDEX_EVENTS,                /* from the age of what it removes */
    KVR_INDEX_CONFIGURED,            /* "capacity=" with "!" */
    KVR_INDEX_SET,                   /* by the API */
    KVR_INDEX_SOURCES
} kvr_index_source_e;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   clock;        /* units computed, 8 bits of fraction */
    _Atomic uint64_t   floor;        /* units at the last restart */
    _Atomic uint64_t   since;        /* table's clock then */
    _Atomic uint32_t   capacity;     /* units; 0: no such peer */
    _Atomic uint32_t   source;       /* of capacity, kvr_index_source_e */

    /* kvr_index_turnover(): where the clock stood, and when */

    _Atomic uint64_t   mark;         /* this minute */
    _Atomic uint64_t   before;       /* the minute before */
    _Atomic uint64_t   turnover;     /* what came of it, and when */

    _Atomic uint64_t   ahead;        /* 0: nobody tells what is stored; else 1
                                        more than the clock is ahead of that */
} kvr_index_peer_t;

_Static_assert(sizeof(kvr_index_peer_t) == KVR_CACHE_LINE, "index peer");


/*
 * What a mask is asked of a peer, where there are so many that its clocks
 * cannot be read each time: reckoned when the peer is taught, when something
 * becomes of it, and in turn by whoever teaches (kvr_mask_mark()).  Below are
 * the units that it may hold at most, above 2^31 - 1 less the
 * table's clock after which a mask has begun that still counts.  So one sum, of
 * both halves, tells by their highest bits.
 */
typedef _Atomic uint64_t  kvr_index_mask_t;

#define KVR_INDEX_MASK_TOP  0x80000000U


typedef struct {
    uint64_t           nlines;
    uint64_t           nbuckets;
    uint64_t           peers;        /* where they are: bytes from here */
    uint64_t           masks;        /* likewise */
    uint32_t           max_peers;
    uint32_t           words;        /* of a set of them */
    uint32_t           epoch;        /* kvr_index_tag.h: log2 of its units */

    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   clock;        /* units computed by all peers */
    _Atomic uint64_t   hand;         /* next line to be swept */
    _Atomic uint64_t   evicted;      /* lines that others took, ever */
    _Atomic uint32_t   time;         /* seconds, when last told */
    _Atomic uint32_t   marked;       /* peer whose turn it was last */

    _Alignas(KVR_CACHE_LINE)
    kvr_index_line_t   line[];

    /* a tag for each line; then the peers; then, of each, a kvr_index_mask_t */
} kvr_index_t;


static inline kvr_index_peer_t *
kvr_index_peer(kvr_index_t *ix, uint32_t peer)
{
    return (kvr_index_peer_t *) (void *) ((uint8_t *) ix + ix->peers) + peer;
}


/* a peer's clock */
static inline uint64_t
kvr_index_units(kvr_index_peer_t *p)
{
    return kvr_get(&p->clock) >> KVR_INDEX_FRACTION;
}


/* by how much it is ahead of what is told to be stored, with its fraction */
static inline uint64_t
kvr_index_ahead(kvr_index_peer_t *p)
{
    uint64_t  ahead;

    ahead = kvr_get(&p->ahead);

    return ahead - kvr_min(ahead, 1);
}


/* the most that it may be ahead; expected: units of requests in flight */
static inline uint64_t
kvr_index_ahead_max(kvr_index_peer_t *p, uint64_t expected)
{
    uint64_t  units;

    units = kvr_get(&p->capacity) / KVR_INDEX_AHEAD;

    return kvr_max(units, expected) << KVR_INDEX_FRACTION;
}


static inline kvr_index_mask_t *
kvr_index_masks(kvr_index_t *ix)
{
    return (kvr_index_mask_t *) (void *) ((uint8_t *) ix + ix->masks);
}


#endif /* _KVR_INDEX_TABLE_H_INCLUDED_ */
