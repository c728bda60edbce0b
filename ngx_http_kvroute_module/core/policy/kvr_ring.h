
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RING_H_INCLUDED_
#define _KVR_RING_H_INCLUDED_


/*
 * Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam:
 * arXiv 1608.01350).  A peer has 160 points on a ring for each unit of its
 * weight; a key belongs to the peer of the next point.  If that peer already
 * has its share of the load, the key goes to the next peer, always the same
 * one, so overflow keeps its locality.  If one of n peers is added or removed,
 * about 1/n of the keys move.
 */


#include "core/base/kvr_core.h"


#define KVR_RING_POINTS  160

/* larger sums of weights are scaled down to this */
#define KVR_RING_UNITS   4096


typedef struct {
    uint64_t           hash;
    uint32_t           place;      /* index of the peer in the list */
} kvr_ring_point_t;


typedef struct {
    uint32_t           n;
    kvr_ring_point_t  *point;      /* sorted by hash */
} kvr_ring_t;


/* a peer of the list: the hash of its name, and its weight from 1 */
typedef struct {
    uint64_t           hash;
    uint32_t           weight;
} kvr_ring_peer_t;


/*
 * Tells whether the peer at a place has room: 1 yes, 0 not now, -1 it is not
 * usable.
 */
typedef int (*kvr_ring_room_pt)(void *data, uint32_t place);


/* Returns the number of points of n peers: the size of point[]. */
uint32_t kvr_ring_size(const kvr_ring_peer_t *peer, uint32_t n);

/* Builds a ring in ring->point[], which the caller has allocated. */
void kvr_ring_build(kvr_ring_t *ring, const kvr_ring_peer_t *peer, uint32_t n);

/*
 * Walks the ring from a key on.  Returns the place of the first peer with
 * room, or n.  Sets *first to the place of the key among the usable peers, or
 * n.  n is the number of places; seen[] is scratch of (n + 63) / 64 words.
 */
uint32_t kvr_ring_pick(const kvr_ring_t *ring, uint64_t key, uint32_t n,
    uint64_t *seen, kvr_ring_room_pt room, void *data, uint32_t *first);

/*
 * Returns the most requests that a peer of this weight may have, including the
 * new one: its share of the total times the factor, but at least the floor.
 */
static inline uint32_t
kvr_ring_bound(uint64_t total, uint32_t weight, uint64_t weights,
    double factor, uint32_t floor)
{
    double  bound;

    bound = factor * (double) (total + 1) * (double) weight / (double) weights;

    return kvr_max(floor, (uint32_t) bound + (bound > (uint32_t) bound));
}


#endif /* _KVR_RING_H_INCLUDED_ */
