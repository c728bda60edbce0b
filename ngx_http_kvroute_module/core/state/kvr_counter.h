
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_COUNTER_H_INCLUDED_
#define _KVR_COUNTER_H_INCLUDED_


/*
 * All numbers of the router that the status shows, as one table: a row has the
 * names of a number in JSON and in Prometheus, and the field that it is kept in.
 * Reset and both formats walk the table.  A new counter is a field and a row.
 * Extensions have rows of their own (core/state/kvr_hooks.h).
 *
 * Rows come in groups.  A group is the rows of one structure that JSON has in
 * one object; who walks it hands in the address of the structure.  The order of
 * the rows is the order in both formats.
 */


#include "core/state/kvr_zone.h"


/* groups, and the structure that the fields of each are in */
typedef enum {
    KVR_COUNTER_ZONE = 0,        /* kvr_counter_zone_t */
    KVR_COUNTER_INDEX,           /* kvr_index_t */
    KVR_COUNTER_FILE,            /* kvr_zone_file_t of a zone */
    KVR_COUNTER_UPSTREAM,        /* kvr_upstream_t */
    KVR_COUNTER_STATS,           /* kvr_stats_t of an upstream */
    KVR_COUNTER_QUEUE,           /* kvr_queue_stats_t of a class */
    KVR_COUNTER_NOW,             /* kvr_snapshot_t of a member */
    KVR_COUNTER_DRAIN,           /* the same, while it is drained */
    KVR_COUNTER_MEMBER,          /* kvr_member_t */
    KVR_COUNTER_LOAD,            /* kvr_prefill_load_t */
    KVR_COUNTER_CACHE,           /* kvr_feedback_t of a peer */
    KVR_COUNTER_HEALTH,          /* kvr_engine_t of a peer: health checks */
    KVR_COUNTER_ENGINE,          /* the same: what the engine told */
    KVR_COUNTER_TALLY,           /* kvr_tally_counts_t of a model or tenant */
    KVR_COUNTER_GROUPS
} kvr_counter_group_e;


typedef enum {
    KVR_COUNTER_COUNT = 0,       /* counted by us: reset sets it to zero */
    KVR_COUNTER_REPORTED,        /* counted by the engine */
    KVR_COUNTER_GAUGE,
    KVR_COUNTER_REAL,            /* a gauge that is a double */
    KVR_COUNTER_STAMP,           /* a time, s since 1970; 0: never */
    KVR_COUNTER_SUMMARY,         /* how many, and their ms together */
    KVR_COUNTER_HISTOGRAM,       /* kvr_histogram_t */
    KVR_COUNTER_TYPES
} kvr_counter_type_e;


/*
 * Bits of needs: a row is shown if all of its bits are set.  KVR_METRICS_...
 * are further bits: the engine told this number.
 */
#define KVR_COUNTER_KNOWN    0x010000  /* the server has a number in the zone */
#define KVR_COUNTER_PROBED   0x020000  /* the engine is asked */
#define KVR_COUNTER_CHECKED  0x040000  /* its health is */
#define KVR_COUNTER_REPORTS    0x080000  /* it has told anything, ever */
#define KVR_COUNTER_RATED    0x100000  /* its prefill rate is known */
#define KVR_COUNTER_QUEUED   0x200000  /* the upstream has a queue */
#define KVR_COUNTER_DRAINED  0x400000  /* it is being drained */
#define KVR_COUNTER_UNTIL    0x800000  /* and for how long is known */
#define KVR_COUNTER_SHADOWED 0x1000000 /* another balancer routes */
#define KVR_COUNTER_LEGS     0x2000000 /* others compute prompts for it */
#define KVR_COUNTER_SHARED   0x8000000 /* with other hosts */
#define KVR_COUNTER_OWN      0x40000000 /* an extension's own */


typedef struct {
    kvr_counter_group_e   group;
    kvr_counter_type_e    metric_type;
    uint32_t              needs;
    size_t                offset;
    size_t                size;      /* of the field: all of an array */

    const char           *json;      /* NULL: not in JSON, or not by this row */
    const char           *metric;    /* NULL: not in Prometheus */
    const char           *help;      /* NULL: the metric of the row before */
    const char           *label;     /* of that metric: ,name="value" */
    double                scale;     /* units of the field in one; 0: one */

    /* a SUMMARY: where its milliseconds are */
    size_t                sum;

    /* an array */
    uint32_t              n;         /* places */
    uint32_t              first;     /* that is shown */
    unsigned              sparse:1;  /* zeros are not shown */
    unsigned              total:1;   /* JSON has their sum as well */
    const char           *by;        /* label of a place, and its value */
    const char         *(*name)(uint32_t place);
} kvr_counter_t;


/* a zone, put together from several places */
typedef struct {
    uint64_t              size;      /* bytes */
    uint64_t              block;     /* bytes */
    uint64_t              lines;
    double                fill;      /* share of the lines, by a sample */
    uint64_t              peers;
    uint64_t              max_peers;
    uint64_t              processes;
    uint64_t              max_processes;
    uint64_t              generation;
} kvr_counter_zone_t;


/* a row: its group and type without their prefix, the structure, the field */
#define kvr_counter(g, t, type_, field, ...)                                  \
    { .group = KVR_COUNTER_##g, .metric_type = KVR_COUNTER_##t,               \
      .offset = offsetof(type_, field),                                       \
      .size = sizeof(((type_ *) 0)->field), __VA_ARGS__ }


extern const kvr_counter_t  kvr_counter_table[];
extern const uint32_t       kvr_counter_rows;


/* the number of a row's place in the structure at base; 0 if there is none */
double kvr_counter_get(const kvr_counter_t *row, const void *base,
    uint32_t place);

/* likewise the milliseconds of a SUMMARY */
double kvr_counter_sum(const kvr_counter_t *row, const void *base);

/* which histogram a HISTOGRAM is */
static inline kvr_stats_e
kvr_counter_kind(const kvr_counter_t *row)
{
    return (kvr_stats_e) ((row->offset - offsetof(kvr_stats_t, histogram))
                          / sizeof(kvr_histogram_t));
}


/* sets to zero what is counted in a group's structure; and that of other rows */
void kvr_counter_reset(kvr_counter_group_e group, void *base);
void kvr_counter_reset_rows(const kvr_counter_t *row, uint32_t n,
    kvr_counter_group_e group, void *base);

/* copies a structure that has nothing but words of 8 bytes, word by word */
void kvr_counter_copy(void *dst, const void *src, size_t size);


#endif /* _KVR_COUNTER_H_INCLUDED_ */
