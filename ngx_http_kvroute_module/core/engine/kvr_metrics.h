
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_METRICS_H_INCLUDED_
#define _KVR_METRICS_H_INCLUDED_


/*
 * Reads the metrics of an engine: Prometheus text, with a ":" after the prefix,
 * or a "_" under Ray; or JSON.  kvr_dialect.h has the meaning of the names.
 *
 * The text comes piece by piece, and at most one line is stored.  Series that
 * are not known and values out of range are ignored.  A field is set only if
 * its series is there: an engine without metrics is not idle.
 */


#include "core/engine/kvr_dialect.h"


#define KVR_METRICS_LINE   4096  /* longer lines are ignored */
#define KVR_METRICS_LORAS  16
#define KVR_METRICS_RANKS  64    /* ranks that are kept apart */
#define KVR_METRICS_NAMES  65536 /* numbers of ranks on all nodes */


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
#define KVR_METRICS_NO_CACHE    0x200  /* prefix caching is disabled */


/* the metrics of all data-parallel ranks, summed, or of one rank */
typedef struct {
    uint32_t       set;
    uint32_t       engine;       /* its dialect */
    uint32_t       running;      /* requests */
    uint32_t       waiting;
    double         kv;           /* used share, 0 .. 1, mean of the ranks */
    uint64_t       capacity;     /* of the KV cache, tokens */
    uint64_t       hits;         /* total tokens found in the prefix cache */
    uint64_t       queries;      /* total tokens of prompts */
    uint64_t       preemptions;  /* total */
    double         start;        /* of the process, s since 1970 */

    uint32_t       max_loras;    /* maximum loaded; 0: unknown */
    uint32_t       loras;        /* adapters in use, as FNV-1a of their names */
    uint64_t       lora[KVR_METRICS_LORAS];
} kvr_metrics_t;


/* sums so far, by kvr_series_e */
typedef struct {
    double         sum[KVR_SERIES_MAX];
    uint32_t       count[KVR_SERIES_MAX];
} kvr_metrics_sums_t;


typedef struct {
    kvr_metrics_t  m;

    kvr_metrics_sums_t  all;
    kvr_metrics_sums_t  each[KVR_METRICS_RANKS];
    uint32_t       first;        /* number of the first rank of this server */
    uint32_t       ranks;        /* from the first to the highest rank; 0: no
                                    series has a rank */
    uint32_t       rank;         /* of the current series, index in each[] + 1;
                                    0: none */
    double         newest;       /* value of the newest set of adapters */

    kvr_push_t     json;
    uint8_t        mode;         /* 0: at the start, 'p'rometheus, 'j'son */
    uint32_t       dialect;      /* of the JSON */
    unsigned       drop:1;       /* inside a line that is too long */
    uint32_t       len;
    char           line[KVR_METRICS_LINE + 1];
} kvr_metrics_reader_t;


void kvr_metrics_init(kvr_metrics_reader_t *r);
void kvr_metrics_read(kvr_metrics_reader_t *r, const uint8_t *data,
    size_t len);

/* Ends the text; the result is in r->m. */
void kvr_metrics_end(kvr_metrics_reader_t *r);

/*
 * Returns the metrics of one rank, from 0 to r->ranks - 1, after the text has
 * ended.  Series without a rank (start, adapters) belong to each.
 */
void kvr_metrics_rank(const kvr_metrics_reader_t *r, uint32_t rank,
    kvr_metrics_t *m);

/* Hashes the name of an adapter, as in m->lora[]. */
uint64_t kvr_metrics_lora(const void *name, size_t len);


#endif /* _KVR_METRICS_H_INCLUDED_ */
