#include <stdio.h>

#include "bench/model/kvs.h"


void *
kvs_alloc(size_t size)
{
    void  *p;

    p = calloc(1, size ? size : 1);

    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }

    return p;
}


void *
kvs_grow(void *p, size_t n, size_t *size, size_t element)
{
    if (n < *size) {
        return p;
    }

    *size = *size ? 2 * *size : 1024;
    p = realloc(p, *size * element);

    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }

    return p;
}


static double
kvs_rng_normal(kvs_rng_t *r)
{
    double  u, v;

    u = 1.0 - kvs_rng_uniform(r);
    v = kvs_rng_uniform(r);

    return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}


double
kvs_rng_lognormal(kvs_rng_t *r, double mean, double sigma, double lo,
    double hi)
{
    double  x;

    x = mean * exp(sigma * kvs_rng_normal(r) - sigma * sigma / 2);

    return x < lo ? lo : x > hi ? hi : x;
}


void
kvs_zipf_init(kvs_zipf_t *z, uint32_t n, double s)
{
    double    sum;
    uint32_t  i;

    z->n = n;
    z->cdf = kvs_alloc(n * sizeof(double));
    sum = 0;

    for (i = 0; i < n; i++) {
        sum += pow(i + 1, -s);
        z->cdf[i] = sum;
    }

    for (i = 0; i < n; i++) {
        z->cdf[i] /= sum;
    }
}


uint32_t
kvs_zipf_draw(const kvs_zipf_t *z, kvs_rng_t *r)
{
    double    u;
    uint32_t  lo, hi, mid;

    u = kvs_rng_uniform(r);
    lo = 0;
    hi = z->n - 1;

    while (lo < hi) {
        mid = (lo + hi) / 2;

        if (z->cdf[mid] <= u) {
            lo = mid + 1;

        } else {
            hi = mid;
        }
    }

    return lo;
}


void
kvs_zipf_done(kvs_zipf_t *z)
{
    free(z->cdf);
    z->cdf = NULL;
}


void
kvs_text_append(kvs_text_t *t, uint64_t seed, uint32_t from, uint32_t n)
{
    uint32_t  take;

    while (n) {
        take = kvr_min(KVS_UNIT_TOKENS - t->fill, n);

        t->part = kvr_mix(t->part, kvr_mix(seed, from)) + take;
        t->fill += take;
        from += take;
        n -= take;

        if (t->fill < KVS_UNIT_TOKENS) {
            break;
        }

        if (t->units < t->max) {
            t->last = kvr_mix(t->last, t->part);
            t->chain[t->units] = t->last;
            t->units++;
        }

        t->fill = 0;
        t->part = 0;
    }
}
