
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_LINE_H_INCLUDED_
#define _KVR_LINE_H_INCLUDED_


/*
 * Lines of the index and who holds them: what kvr_index.c is made of, and of no
 * use to others.  kvr_index.h has the rules by which processes share them.
 */


#include "kvr_index.h"


#define KVR_INDEX_CLAIMED   UINT32_MAX  /* keys up to here are claims */
#define KVR_INDEX_CLAIM     (1 << 24)   /* units that a claim is good for */
#define KVR_INDEX_FRACTION  8       /* bits of a clock below one unit */

/* the bits of ids that no peer's number takes hold bits of the key */
#define KVR_INDEX_TAG       0xc0c0c0c0c0c0c0c0ULL


/* what a look-up needs to know of the peers, read once */
typedef struct {
    uint32_t            clock[KVR_INDEX_PEERS];
    uint32_t            limit[KVR_INDEX_PEERS];  /* age at which it forgot */

    uint64_t            set;                     /* peers asked for */
    uint64_t            ready;                   /* peers in expire[] */
    uint64_t            now;                     /* table's clock */
    uint32_t            expire[KVR_INDEX_PEERS]; /* the same for a mask */
} kvr_line_view_t;


/* the line of a block, or that with a key; NULL if there is none */
kvr_index_line_t *kvr_line_find(kvr_index_t *ix, uint64_t h);
kvr_index_line_t *kvr_line_find_key(kvr_index_t *ix, uint64_t key);

/* reads what is to be known of a set of peers, once for many lines */
void kvr_line_view(kvr_index_t *ix, uint64_t set, kvr_line_view_t *view);

/* those of them that hold the line's block; none if it is another's by now */
uint64_t kvr_line_holders(kvr_index_t *ix, kvr_index_line_t *line,
    uint64_t key, kvr_line_view_t *view);

/*
 * Puts a new line in the place of the oldest of its bucket, unless all are
 * younger.  Returns 1 if another block had to go for this one.
 */
unsigned kvr_line_insert(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t stamp, uint32_t touched);

/* makes the peer a holder of a line, or a more recent one */
void kvr_line_add(kvr_index_t *ix, kvr_index_line_t *line, uint64_t key,
    unsigned peer, uint32_t stamp, uint32_t touched);

/*
 * Passes over the next count lines, clears slots whose holders have forgotten
 * the block and frees lines without any: or stamps would come round again
 * after 2^32 units and claims of killed processes stay for ever.
 */
void kvr_line_sweep(kvr_index_t *ix, uint64_t count);


static inline unsigned
kvr_index_id(uint64_t ids, unsigned slot)
{
    return ids >> slot * 8 & (KVR_INDEX_PEERS - 1);
}


/* 0 marks a free slot; the one stamp that it takes the place of is near */
static inline uint32_t
kvr_index_stamp(uint32_t clock, uint32_t depth)
{
    uint32_t  stamp;

    stamp = clock - (depth - 1);

    return stamp ? stamp : 1;
}


/* a peer's clock */
static inline uint64_t
kvr_index_units(kvr_index_peer_t *p)
{
    return kvr_get(&p->clock) >> KVR_INDEX_FRACTION;
}


/*
 * Keys of lines: small ones mean a free line or a claimed one; even ones are
 * of blocks, odd ones of sessions.
 */
static inline uint64_t
kvr_index_key(uint64_t h)
{
    if (kvr_unlikely(h <= KVR_INDEX_CLAIMED)) {
        h += KVR_INDEX_CLAIMED + 1ULL;
    }

    return h & ~1ULL;
}


static inline uint64_t
kvr_index_session_key(uint64_t h)
{
    return kvr_index_key(h) | 1;
}


static inline kvr_index_line_t *
kvr_line_bucket(kvr_index_t *ix, uint64_t key)
{
    return &ix->line[kvr_reduce(key, ix->nbuckets) * KVR_INDEX_WAYS];
}


#endif /* _KVR_LINE_H_INCLUDED_ */
