
/*
 * Copyright (C) kvroute contributors
 */


#include "core/policy/kvr_ring.h"

#include <stdlib.h>


static uint32_t kvr_ring_points(const kvr_ring_peer_t *peer, uint32_t n,
    uint32_t i, uint32_t gcd);
static uint32_t kvr_ring_gcd(const kvr_ring_peer_t *peer, uint32_t n);
static int kvr_ring_cmp(const void *one, const void *two);


uint32_t
kvr_ring_size(const kvr_ring_peer_t *peer, uint32_t n)
{
    uint32_t  i, gcd, points;

    gcd = kvr_ring_gcd(peer, n);
    points = 0;

    for (i = 0; i < n; i++) {
        points += kvr_ring_points(peer, n, i, gcd);
    }

    return points;
}


void
kvr_ring_build(kvr_ring_t *ring, const kvr_ring_peer_t *peer, uint32_t n)
{
    uint32_t           i, j, gcd, points;
    kvr_ring_point_t  *point;

    gcd = kvr_ring_gcd(peer, n);
    point = ring->point;

    for (i = 0; i < n; i++) {

        points = kvr_ring_points(peer, n, i, gcd);

        for (j = 0; j < points; j++) {

            /* mixed once, a peer's points would be evenly spaced */

            point->hash = kvr_mix(kvr_mix(peer[i].hash, j), j);
            point->place = i;
            point++;
        }
    }

    ring->n = (uint32_t) (point - ring->point);

    qsort(ring->point, ring->n, sizeof(kvr_ring_point_t), kvr_ring_cmp);
}


/* Limits the ring's size, whatever weights are configured or resolved. */
static uint32_t
kvr_ring_points(const kvr_ring_peer_t *peer, uint32_t n, uint32_t i,
    uint32_t gcd)
{
    uint32_t  k;
    uint64_t  total;

    total = 0;

    for (k = 0; k < n; k++) {
        total += peer[k].weight;
    }

    if (total / gcd <= KVR_RING_UNITS) {
        return peer[i].weight / gcd * KVR_RING_POINTS;
    }

    return (uint32_t) kvr_max((uint64_t) peer[i].weight * KVR_RING_UNITS
                              * KVR_RING_POINTS / total, 1);
}


/* weights of 100 and 200 are the same as 1 and 2 */
static uint32_t
kvr_ring_gcd(const kvr_ring_peer_t *peer, uint32_t n)
{
    uint32_t  i, a, b, t;

    a = 0;

    for (i = 0; i < n; i++) {

        for (b = peer[i].weight; b; b = t) {
            t = a % b;
            a = b;
        }
    }

    return a ? a : 1;
}


static int
kvr_ring_cmp(const void *one, const void *two)
{
    const kvr_ring_point_t  *a = one;
    const kvr_ring_point_t  *b = two;

    if (a->hash != b->hash) {
        return a->hash < b->hash ? -1 : 1;
    }

    return a->place < b->place ? -1 : 1;
}


uint32_t
kvr_ring_pick(const kvr_ring_t *ring, uint64_t key, uint32_t n,
    uint64_t *seen, kvr_ring_room_pt room, void *data, uint32_t *first)
{
    int       rc;
    uint32_t  i, lo, hi, mid, left, place;

    lo = 0;
    hi = ring->n;

    while (lo < hi) {
        mid = lo + (hi - lo) / 2;

        if (ring->point[mid].hash < key) {
            lo = mid + 1;

        } else {
            hi = mid;
        }
    }

    memset(seen, 0, (n + 63) / 64 * sizeof(uint64_t));

    *first = n;
    left = n;

    for (i = 0; i < ring->n && left; i++, lo++) {

        if (lo == ring->n) {
            lo = 0;
        }

        place = ring->point[lo].place;

        if (seen[place / 64] >> place % 64 & 1) {
            continue;
        }

        seen[place / 64] |= 1ULL << place % 64;
        left--;

        rc = room(data, place);

        if (rc >= 0 && *first == n) {
            *first = place;
        }

        if (rc > 0) {
            return place;
        }
    }

    return n;
}
