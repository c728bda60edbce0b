#ifndef KVS_REPORT_H
#define KVS_REPORT_H


#include "bench/sim/contest/results.h"


#define KVS_BEST  UINT32_MAX     /* as a rival: the best of each point */

/* metrics, by their place in the table */
#define KVS_M_TTFT     0
#define KVS_M_P99      3
#define KVS_M_E2E      4


typedef enum {
    KVS_ALL = 0,                 /* all but the hot ones */
    KVS_BELOW,                   /* below the knee */
    KVS_PAST,
    KVS_HOT_ONES,
    KVS_FULL_ONES                /* kv_cache itself cannot complete all */
} kvs_side_e;


/* scenarios of the index study */
typedef enum {
    KVS_AMPLE_ONES = 0,
    KVS_STARVED_ONES,
    KVS_RESTART_ONES,
    KVS_GROUPS
} kvs_group_e;


typedef struct {
    double      geo;
    double      worst;
    uint32_t    where;           /* point */
    uint32_t    n;
} kvs_ratio_t;


/* returns the mean over the seeds; NAN: was not run */
double kvs_report_value(const kvs_contest_t *c, uint32_t point,
    uint32_t policy, size_t offset);

/* returns the same, but infinity if it failed */
double kvs_report_latency(const kvs_contest_t *c, uint32_t point,
    uint32_t policy, uint32_t metric);
int kvs_report_failed(const kvs_contest_t *c, uint32_t point,
    uint32_t policy);

/* returns the best of some kinds of policies; sets *which, if not NULL */
double kvs_report_best(const kvs_contest_t *c, uint32_t point,
    uint32_t metric, unsigned kinds, uint32_t *which);

/* returns the policy of this name; npolicies if it does not take part */
uint32_t kvs_report_find(const kvs_contest_t *c, const char *name);

void kvs_report_vs(const kvs_contest_t *c, uint32_t policy, uint32_t rival,
    kvs_side_e side, uint32_t metric, kvs_ratio_t *ratio);
uint32_t kvs_report_single(const kvs_contest_t *c, uint32_t metric);
int kvs_report_loss(const kvs_contest_t *c, uint32_t policy, kvs_group_e group,
    uint32_t metric, kvs_ratio_t *ratio);

/*
 * Returns the most, or the least, of a metric over the hot points; NAN: no
 * such point.
 */
double kvs_report_extreme(const kvs_contest_t *c, uint32_t policy,
    uint32_t metric, uint32_t *where);

/* returns whether a point is one of the hot prefixes */
static inline int
kvs_report_hot(const kvs_point_t *point)
{
    return (point->scenario->flags & KVS_HOTS) != 0;
}

/* prints a table of each point, and the summary */
void kvs_report_tables(const kvs_contest_t *c);

/* returns the i-th metric; 0 past the last */
uint32_t kvs_report_metrics(uint32_t i, const char **name, size_t *offset,
    int *more);


#endif
