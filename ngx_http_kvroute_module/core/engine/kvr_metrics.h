
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_METRICS_H_INCLUDED_
#define _KVR_METRICS_H_INCLUDED_


/*
 * What an engine says of itself: the text of Prometheus, with a ":" behind the
 * prefix or, under Ray, a "_"; or JSON.  What names mean is in kvr_dialect.h.
 *
 * Is fed piece by piece and keeps one line at most.  What is not known, or no
 * sensible number, is passed over.  A field that was not there is not set: an
 * engine that exports nothing is not idle.
 */


#include "core/engine/kvr_dialect.h"


#define KVR_METRICS_LINE   4096  /* longer ones are passed over */
#define KVR_METRICS_LORAS  16
#define KVR_METRICS_RANKS  64    /* of those beyond nothing is told apart */


/* fields that are set */
#define KVR_METRICS_RUNNING     0x001
#define KVR_METRICS_WAITING     0x002
#define KVR_METRICS_KV          0x004
#define KVR_METRICS_CAPACITY    0x008
#define KVR_METRICS_HITS        0x010
#define KVR_METRICS_QUERIES     0x020
#define KVR_METRICS_PREEMPTIONS 0x040
#define KVR_METRICS_START       0x080
#define KVR_METRICS_LORA        0x100
#define KVR_METRICS_NO_CACHE    0x200  /* prefix caching is switched off */


/* of all data-parallel ranks, summed; or of one of them */
typedef struct {
    uint32_t       set;
    uint32_t       engine;       /* whose names these were: a dialect */
    uint32_t       running;      /* requests */
    uint32_t       waiting;
    double         kv;           /* share in use, 0 .. 1, mean of the ranks */
    uint64_t       capacity;     /* of the KV cache, tokens */
    uint64_t       hits;         /* of the prefix cache, tokens, ever */
    uint64_t       queries;      /* tokens of prompts, ever */
    uint64_t       preemptions;  /* ever */
    double         start;        /* of the process, s since 1970 */

    uint32_t       max_loras;    /* that can be loaded at a time; 0: unknown */
    uint32_t       loras;        /* in use, as FNV-1a of their names: */
    uint64_t       lora[KVR_METRICS_LORAS];
} kvr_metrics_t;


/* so far, by kvr_series_e */
typedef struct {
    double         sum[KVR_SERIES_MAX];
    uint32_t       count[KVR_SERIES_MAX];
} kvr_metrics_sums_t;


typedef struct {
    kvr_metrics_t  m;

    kvr_metrics_sums_t  all;
    kvr_metrics_sums_t  each[KVR_METRICS_RANKS];
    uint32_t       lowest;       /* rank that the engine has */
    uint32_t       ranks;        /* from that to the highest that was named; 0:
                                    no series has named any */
    uint32_t       rank;         /* of what is read, as in each[], from 1; 0:
                                    not named */
    double         newest;       /* of the sets of adapters */

    kvr_push_t     json;
    uint8_t        mode;         /* 0: at the start, 'p'rometheus, 'j'son */
    uint32_t       dialect;      /* of the JSON */
    unsigned       drop:1;       /* the rest of a line that is too long */
    uint32_t       len;
    char           line[KVR_METRICS_LINE + 1];
} kvr_metrics_reader_t;


void kvr_metrics_init(kvr_metrics_reader_t *r);
void kvr_metrics_read(kvr_metrics_reader_t *r, const uint8_t *data,
    size_t len);

/* the text is over; what was found is in r->m */
void kvr_metrics_end(kvr_metrics_reader_t *r);

/*
 * What the text said of one rank, from 0 to r->ranks - 1 by its number among
 * those that the engine has, after it is over.
 * What names no rank (start, adapters) is said of each.
 */
void kvr_metrics_rank(const kvr_metrics_reader_t *r, uint32_t rank,
    kvr_metrics_t *m);

/* of a name, as in m->lora[] */
uint64_t kvr_metrics_lora(const void *name, size_t len);


#endif /* _KVR_METRICS_H_INCLUDED_ */
