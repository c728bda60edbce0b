#include "bench/model/sample.h"


void
kvs_sample_add(kvs_sample_t *s, double v)
{
    s->v = kvs_grow(s->v, s->n, &s->size, sizeof(double));
    s->v[s->n++] = v;
}


void
kvs_sample_all(kvs_sample_t *s, const kvs_sample_t *more)
{
    size_t  i;

    for (i = 0; i < more->n; i++) {
        kvs_sample_add(s, more->v[i]);
    }
}


static int
kvs_sample_compare(const void *a, const void *b)
{
    double  x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}


void
kvs_sample_sort(kvs_sample_t *s)
{
    if (s->n) {
        qsort(s->v, s->n, sizeof(double), kvs_sample_compare);
    }
}


double
kvs_sample_mean(const kvs_sample_t *s)
{
    size_t  i;
    double  sum;

    sum = 0;

    for (i = 0; i < s->n; i++) {
        sum += s->v[i];
    }

    return s->n ? sum / (double) s->n : NAN;
}


double
kvs_sample_quantile(const kvs_sample_t *s, double q)
{
    return s->n ? s->v[(size_t) (q * (double) (s->n - 1) + 0.5)] : NAN;
}
