/* Policies that hash a key to a ring. */

#include "bench/sim/router/rivals.h"


typedef struct {
    uint64_t  hash;
    uint8_t   replica;
} kvs_ring_point_t;


static int
kvs_ring_compare(const void *a, const void *b)
{
    const kvs_ring_point_t  *x = a, *y = b;

    return (x->hash > y->hash) - (x->hash < y->hash);
}


void
kvs_ring_init(kvs_ring_t *ring, uint32_t replicas, uint32_t points)
{
    uint32_t      i, k;
    kvs_ring_point_t  *p;

    ring->n = replicas * points;
    ring->hash = kvs_alloc(ring->n * sizeof(uint64_t));
    ring->replica = kvs_alloc(ring->n);

    p = kvs_alloc(ring->n * sizeof(kvs_ring_point_t));

    for (i = 0; i < replicas; i++) {
        for (k = 0; k < points; k++) {
            p[i * points + k].hash = kvr_mix(kvr_mix(i, 0x72696e67), k);
            p[i * points + k].replica = (uint8_t) i;
        }
    }

    qsort(p, ring->n, sizeof(kvs_ring_point_t), kvs_ring_compare);

    for (i = 0; i < ring->n; i++) {
        ring->hash[i] = p[i].hash;
        ring->replica[i] = p[i].replica;
    }

    free(p);
}


void
kvs_ring_done(kvs_ring_t *ring)
{
    free(ring->hash);
    free(ring->replica);
}


static uint32_t
kvs_ring_find(const kvs_ring_t *ring, uint64_t key)
{
    uint32_t  lo, hi, mid;

    lo = 0;
    hi = ring->n;

    while (lo < hi) {
        mid = (lo + hi) / 2;

        if (ring->hash[mid] < key) {
            lo = mid + 1;

        } else {
            hi = mid;
        }
    }

    return lo == ring->n ? 0 : lo;
}


static uint32_t
kvs_ring_index(const uint32_t *id, uint32_t n, uint32_t replica)
{
    uint32_t  i;

    for (i = 0; i < n && id[i] != replica; i++) {
        /* void */
    }

    return i;
}


/*
 * an absent replica is replaced by the first that is present, as in the
 * original
 */
uint32_t
kvs_pick_ring(const kvs_ring_t *ring, const uint32_t *id, uint32_t n,
    uint64_t key)
{
    uint32_t  i;

    i = kvs_ring_index(id, n, ring->replica[kvs_ring_find(ring, key)]);

    return i < n ? i : 0;
}


uint32_t
kvs_pick_ring_bounded(const kvs_ring_t *ring, const kvs_view_t *v,
    const uint32_t *id, uint32_t n, uint64_t key, double factor)
{
    double    bound;
    uint32_t  i, k, p, total, first;

    total = 0;

    for (i = 0; i < n; i++) {
        total += v[i].active;
    }

    bound = (double) (total + 1) / n * factor;
    first = n;

    p = kvs_ring_find(ring, key);

    for (k = 0; k < ring->n; k++) {

        i = kvs_ring_index(id, n, ring->replica[p]);
        p = p + 1 < ring->n ? p + 1 : 0;

        if (i == n) {
            continue;
        }

        if (first == n) {
            first = i;
        }

        if (total == 0 || v[i].active + 1 <= bound) {
            return i;
        }
    }

    return first;
}
