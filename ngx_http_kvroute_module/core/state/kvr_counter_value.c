
/*
 * Copyright (C) kvroute contributors
 */


/* Reads and resets the fields of the table's rows. */


#include "core/state/kvr_counter.h"


double
kvr_counter_get(const kvr_counter_t *row, const void *base, uint32_t place)
{
    size_t          size;
    double          value;
    const uint8_t  *p;

    if (base == NULL) {
        return 0;
    }

    size = row->n ? row->size / row->n : row->size;
    p = (const uint8_t *) base + row->offset + place * size;

    if (row->metric_type == KVR_COUNTER_REAL) {
        return *(const double *) p;
    }

    value = size == sizeof(uint64_t)
            ? (double) kvr_get((const _Atomic uint64_t *) p)
            : (double) kvr_get((const _Atomic uint32_t *) p);

    return row->scale > 0 ? value / row->scale : value;
}


double
kvr_counter_sum(const kvr_counter_t *row, const void *base)
{
    const uint8_t  *p;

    p = (const uint8_t *) base + row->sum;

    return (double) kvr_get((const _Atomic uint64_t *) p);
}


void
kvr_counter_reset(kvr_counter_group_e group, void *base)
{
    kvr_counter_reset_rows(kvr_counter_table, kvr_counter_rows, group, base);
}


void
kvr_counter_reset_rows(const kvr_counter_t *row, uint32_t n,
    kvr_counter_group_e group, void *base)
{
    size_t    i;
    uint8_t  *p;

    for ( /* void */ ; n; n--, row++) {

        if (row->group != group) {
            continue;
        }

        p = (uint8_t *) base + row->offset;

        switch (row->metric_type) {

        case KVR_COUNTER_SUMMARY:
            kvr_set((_Atomic uint64_t *) ((uint8_t *) base + row->sum), 0);

            /* fall through */

        case KVR_COUNTER_COUNT:
        case KVR_COUNTER_STAMP:
        case KVR_COUNTER_HISTOGRAM:

            for (i = 0; i < row->size; i += sizeof(uint64_t)) {
                kvr_set((_Atomic uint64_t *) (p + i), 0);
            }

            break;

        default:
            break;
        }
    }
}


void
kvr_counter_copy(void *dst, const void *src, size_t size)
{
    size_t                   i;
    uint64_t                *d;
    const _Atomic uint64_t  *s;

    d = dst;
    s = src;

    for (i = 0; i < size / sizeof(uint64_t); i++) {
        d[i] = kvr_get(&s[i]);
    }
}
