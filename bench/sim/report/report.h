#ifndef KVS_REPORT_H
#define KVS_REPORT_H


#include "bench/sim/contest/results.h"


#define KVS_BEST  UINT32_MAX     /* as a rival: the best of each point */

/* metrics, by their place in the table */
#define KVS_M_TTFT     0
#define KVS_M_P99      3
#define KVS_M_E2E      4


typedef enum {
    KVS_ALL = 0,                 /* but for the hot ones */
    KVS_BELOW,                   /* the knee */
    KVS_PAST,
    KVS_HOT_ONES,
    KVS_FULL_ONES                /* past what kv_cache itself completes */
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


/* mean over the seeds; NAN: was not run */
double kvs_report_value(const kvs_contest_t *c, uint32_t point,
    uint32_t policy, size_t offset);

/* the same, but as bad as can be if it failed */
double kvs_report_latency(const kvs_contest_t *c, uint32_t point,
    uint32_t policy, uint32_t metric);
int kvs_report_failed(const kvs_contest_t *c, uint32_t point,
    uint32_t policy);

/* the best of some kinds of policies, and which it is, unless NULL */
double kvs_report_best(const kvs_contest_t *c, uint32_t point,
    uint32_t metric, unsigned kinds, uint32_t *which);

/* a policy of this name; npolicies if it does not take part */
uint32_t kvs_report_find(const kvs_contest_t *c, const char *name);

void kvs_report_vs(const kvs_contest_t *c, uint32_t policy, uint32_t rival,
    kvs_side_e side, uint32_t metric, kvs_ratio_t *ratio);
uint32_t kvs_report_single(const kvs_contest_t *c, uint32_t metric);
int kvs_report_loss(const kvs_contest_t *c, uint32_t policy, kvs_group_e group,
    uint32_t metric, kvs_ratio_t *ratio);

/*
 * The most, or the least, that a metric comes to in one of the hot points;
 * NAN: in none.
 */
double kvs_report_extreme(const kvs_contest_t *c, uint32_t policy,
    uint32_t metric, uint32_t *where);

/* whether a point is one of the hot beginnings */
static inline int
kvs_report_hot(const kvs_point_t *point)
{
    return (point->scenario->flags & KVS_HOTS) != 0;
}

/* a table of each point, and what comes of all */
void kvs_report_tables(const kvs_contest_t *c);

/* the i-th metric; 0 past the last */
uint32_t kvs_report_metrics(uint32_t i, const char **name, size_t *offset,
    int *more);


#endif
