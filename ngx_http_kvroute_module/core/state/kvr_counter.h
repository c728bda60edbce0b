
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_COUNTER_H_INCLUDED_
#define _KVR_COUNTER_H_INCLUDED_


/*
 * All numbers that the status shows, as one table.  A row has a number's names
 * in JSON and in Prometheus, and its field.  Reset and both formats walk the
 * table.  A new counter is a field and a row.  Extensions have rows of their
 * own (core/state/kvr_hooks.h).
 *
 * A group is the rows of one structure, which JSON has in one object; the
 * caller passes the structure's address.  The order of the rows is the order
 * in both formats.
 */


#include "core/state/kvr_zone.h"


/* groups, and the structures of their fields */
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
    KVR_COUNTER_ENGINE,          /* the same: what the engine reports */
    KVR_COUNTER_MODEL,           /* kvr_tally_counts_t of a model */
    KVR_COUNTER_TENANT,          /* and of a tenant: in kvr_tally_kind_e's
                                    order */
    KVR_COUNTER_GROUPS
} kvr_counter_group_e;


typedef enum {
    KVR_COUNTER_COUNT = 0,       /* counted by nginx: reset sets it to zero */
    KVR_COUNTER_REPORTED,        /* counted by the engine */
    KVR_COUNTER_GAUGE,
    KVR_COUNTER_REAL,            /* a gauge that is a double */
    KVR_COUNTER_STAMP,           /* a time, s since 1970; 0: never */
    KVR_COUNTER_SUMMARY,         /* a count, and a sum of ms */
    KVR_COUNTER_HISTOGRAM,       /* kvr_histogram_t */
    KVR_COUNTER_TYPES
} kvr_counter_type_e;


/*
 * Bits of needs: a row is shown if all of its bits are set.  KVR_METRICS_...
 * are further bits: the engine reports this number.
 */
#define KVR_COUNTER_KNOWN    0x010000  /* the server has a slot in the zone */
#define KVR_COUNTER_PROBED   0x020000  /* the engine is probed */
#define KVR_COUNTER_CHECKED  0x040000  /* its health is checked */
#define KVR_COUNTER_REPORTS  0x080000  /* it has reported something, ever */
#define KVR_COUNTER_RATED    0x100000  /* its prefill rate is known */
#define KVR_COUNTER_QUEUED   0x200000  /* the upstream has a queue */
#define KVR_COUNTER_DRAINED  0x400000  /* it is being drained */
#define KVR_COUNTER_UNTIL    0x800000  /* with an end of that */
#define KVR_COUNTER_SHADOWED 0x1000000 /* another balancer routes */
#define KVR_COUNTER_LEGS     0x2000000 /* it has prefill servers */
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
    const char           *help;      /* NULL: same metric as the row before */
    const char           *label;     /* of the metric: ,name="value" */
    double                scale;     /* field units per shown unit; 0: 1 */

    /* for a SUMMARY: offset of its milliseconds */
    size_t                sum;

    /* for an array */
    uint32_t              n;         /* its length */
    uint32_t              first;     /* first index that is shown */
    unsigned              sparse:1;  /* zeros are not shown */
    unsigned              total:1;   /* JSON has their sum as well */
    const char           *by;        /* label of an index, and its value */
    const char         *(*name)(uint32_t place);
} kvr_counter_t;


/* a zone, collected from several places */
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


/*
 * A row: group and type without prefix, structure and field; then json,
 * metric and help, of which the last may be left out; then other members.
 */
#define kvr_counter(g, t, type_, field, ...)                                  \
    { .group = KVR_COUNTER_##g, .metric_type = KVR_COUNTER_##t,               \
      .offset = offsetof(type_, field),                                       \
      .size = sizeof(((type_ *) 0)->field), .json = __VA_ARGS__ }


extern const kvr_counter_t  kvr_counter_table[];
extern const uint32_t       kvr_counter_rows;


/* Returns the number of a row in the structure at base; 0 if base is NULL. */
double kvr_counter_get(const kvr_counter_t *row, const void *base,
    uint32_t place);

/* Returns the milliseconds of a SUMMARY. */
double kvr_counter_sum(const kvr_counter_t *row, const void *base);

/* Returns which histogram a HISTOGRAM is. */
static inline kvr_stats_e
kvr_counter_kind(const kvr_counter_t *row)
{
    return (kvr_stats_e) ((row->offset - offsetof(kvr_stats_t, histogram))
                          / sizeof(kvr_histogram_t));
}


/* Set to zero the counters of a group, by this table or by other rows. */
void kvr_counter_reset(kvr_counter_group_e group, void *base);
void kvr_counter_reset_rows(const kvr_counter_t *row, uint32_t n,
    kvr_counter_group_e group, void *base);

/* Copies a structure of 8-byte words, word by word. */
void kvr_counter_copy(void *dst, const void *src, size_t size);


#endif /* _KVR_COUNTER_H_INCLUDED_ */
