
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INDEX_TABLE_H_INCLUDED_
#define _KVR_INDEX_TABLE_H_INCLUDED_


/* The layout of the index: lines, and peers with their clocks. */


#include "core/base/kvr_chain.h"
#include "core/base/kvr_set.h"


#define KVR_INDEX_HOLDERS   8
#define KVR_INDEX_FRACTION  8       /* bits of a clock below one unit */
#define KVR_INDEX_WAYS      4
#define KVR_INDEX_AHEAD     4       /* part of a capacity: kvr_index_heard() */

/* capacities in units; beyond this, old stamps would look new */
#define KVR_INDEX_CAPACITY_MAX  (1U << 28)

/* words with a time in their upper 24 bits, in units of 1024 ms */
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
    _Atomic uint32_t   masked;       /* table's clock when the mask began */
} kvr_index_line_t;

_Static_assert(sizeof(kvr_index_line_t) == KVR_CACHE_LINE, "index line");


/* sources of a peer's capacity, by rising trust */
typedef enum {
    KVR_INDEX_ASSUMED = 0,           /* "capacity=" */
    KVR_INDEX_LEARNED,               /* from deliveries and misses */
    KVR_INDEX_EXACT,
    KVR_INDEX_REPORTED = KVR_INDEX_EXACT,
    KVR_INDEX_EVENTS,                /* from the age of removed blocks */
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

    /* kvr_index_turnover(): clock and time */

    _Atomic uint64_t   mark;         /* of this minute */
    _Atomic uint64_t   before;       /* of the minute before */
    _Atomic uint64_t   turnover;     /* the result, and its time */

    _Atomic uint64_t   ahead;        /* 0: no reports of stored blocks; else 1
                                        more than the unconfirmed part */
} kvr_index_peer_t;

_Static_assert(sizeof(kvr_index_peer_t) == KVR_CACHE_LINE, "index peer");


/*
 * What a mask needs to know of a peer, where there are too many peers to read
 * their clocks each time.  It is updated when the peer's clock, floor or
 * capacity changes, and by each insert for one further peer in turn
 * (kvr_mask_mark()). The lower half has the most units that the peer can hold.
 * The upper half has 2^31 - 1 less the table's clock after which a mask must
 * have begun to count. One addition then tests both, by their highest bits.
 */
typedef _Atomic uint64_t  kvr_index_mask_t;

#define KVR_INDEX_MASK_TOP  0x80000000U


typedef struct {
    uint64_t           nlines;
    uint64_t           nbuckets;
    uint64_t           peers;        /* their offset, bytes */
    uint64_t           masks;        /* likewise */
    uint32_t           max_peers;
    uint32_t           words;        /* of a set of them */
    uint32_t           epoch;        /* kvr_index_tag.h: log2 of its units */

    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   clock;        /* units computed by all peers */
    _Atomic uint64_t   hand;         /* next line to be swept */
    _Atomic uint64_t   evicted;      /* lines replaced while in use, ever */
    _Atomic uint32_t   time;         /* s, at the last lookup of a session */
    _Atomic uint32_t   marked;       /* last peer of kvr_mask_mark() in turn */

    _Alignas(KVR_CACHE_LINE)
    kvr_index_line_t   line[];

    /* tags of the lines; then the peers; then a kvr_index_mask_t of each */
} kvr_index_t;


static inline kvr_index_peer_t *
kvr_index_peer(kvr_index_t *ix, uint32_t peer)
{
    return (kvr_index_peer_t *) (void *) ((uint8_t *) ix + ix->peers) + peer;
}


/* Returns a peer's clock in units. */
static inline uint64_t
kvr_index_units(kvr_index_peer_t *p)
{
    return kvr_get(&p->clock) >> KVR_INDEX_FRACTION;
}


/* Returns the unconfirmed part of a clock, with its fraction. */
static inline uint64_t
kvr_index_ahead(kvr_index_peer_t *p)
{
    uint64_t  ahead;

    ahead = kvr_get(&p->ahead);

    return ahead - kvr_min(ahead, 1);
}


/* Returns its maximum; expected: units of requests in flight. */
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
