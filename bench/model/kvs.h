/*
 * The common part of the policy simulator.
 *
 * Text is modelled as a sequence of units of 64 tokens (256 bytes), named by
 * chained 64-bit hashes, as the replica model and the router's core expect it.
 * Text consists of segments: a seed that stands for some content, and a number
 * of tokens.  Equal segments in equal order make equal chains.
 */

#ifndef KVS_H
#define KVS_H


#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/kvr_set.h"


#define KVS_UNIT_TOKENS  64
#define KVS_UNIT_BYTES   256
#define KVS_TOKEN_BYTES  (KVS_UNIT_BYTES / KVS_UNIT_TOKENS)
#define KVS_REPLICAS     KVR_PEERS


typedef struct {
    uint64_t   s;
} kvs_rng_t;


/* splitmix64: any seed is good, and seeds give independent streams */
static inline uint64_t
kvs_rng_next(kvs_rng_t *r)
{
    uint64_t  z;

    z = (r->s += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;

    return z ^ (z >> 31);
}


/* [0, 1) */
static inline double
kvs_rng_uniform(kvs_rng_t *r)
{
    return (double) (kvs_rng_next(r) >> 11) * 0x1p-53;
}


/* [0, n) */
static inline uint32_t
kvs_rng_below(kvs_rng_t *r, uint32_t n)
{
    return (uint32_t) kvr_reduce(kvs_rng_next(r), n);
}


static inline double
kvs_rng_exp(kvs_rng_t *r, double mean)
{
    return -mean * log(1.0 - kvs_rng_uniform(r));
}


static inline void
kvs_rng_seed(kvs_rng_t *r, uint64_t a, uint64_t b)
{
    r->s = kvr_mix(a + 1, b);
}


/* returns a log-normal value with this mean and sigma, within [lo, hi] */
double kvs_rng_lognormal(kvs_rng_t *r, double mean, double sigma, double lo,
    double hi);


/* draws 0 .. n - 1 with probability proportional to 1 / (i + 1)^s */
typedef struct {
    uint32_t   n;
    double    *cdf;
} kvs_zipf_t;

void kvs_zipf_init(kvs_zipf_t *z, uint32_t n, double s);
uint32_t kvs_zipf_draw(const kvs_zipf_t *z, kvs_rng_t *r);
void kvs_zipf_done(kvs_zipf_t *z);


typedef struct {
    uint64_t  *chain;
    uint32_t   units;      /* complete units */
    uint32_t   max;
    uint32_t   fill;       /* tokens in the incomplete unit */
    uint64_t   part;       /* digest of these tokens */
    uint64_t   last;       /* chain value before the unit */
} kvs_text_t;


static inline void
kvs_text_init(kvs_text_t *t, uint64_t *chain, uint32_t max)
{
    t->chain = chain;
    t->units = 0;
    t->max = max;
    t->fill = 0;
    t->part = 0;
    t->last = 0x5bd1e9955bd1e995ULL;
}


/* appends tokens [from, from + n) of the content of a seed */
void kvs_text_append(kvs_text_t *t, uint64_t seed, uint32_t from, uint32_t n);

void *kvs_alloc(size_t size);

/* makes room for another of n elements; the memory can move */
void *kvs_grow(void *p, size_t n, size_t *size, size_t element);


#endif
