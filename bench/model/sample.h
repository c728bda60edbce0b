/* Samples of a figure, their mean and quantiles. */

#ifndef KVS_SAMPLE_H
#define KVS_SAMPLE_H


#include "bench/model/kvs.h"


typedef struct {
    double    *v;
    size_t     n, size;
} kvs_sample_t;


void kvs_sample_add(kvs_sample_t *s, double v);
void kvs_sample_all(kvs_sample_t *s, const kvs_sample_t *more);
void kvs_sample_sort(kvs_sample_t *s);

/* NAN without samples; quantiles (0 .. 1) need sorted samples */
double kvs_sample_mean(const kvs_sample_t *s);
double kvs_sample_quantile(const kvs_sample_t *s, double q);


#endif
