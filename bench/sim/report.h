#ifndef KVS_REPORT_H
#define KVS_REPORT_H


#include "contest.h"


#define KVS_BEST  UINT32_MAX     /* as a rival: the best of each point */


typedef enum {
    KVS_ALL = 0,
    KVS_BELOW,                   /* the knee */
    KVS_PAST
} kvs_side_e;


typedef struct {
    double      geo;
    double      worst;
    uint32_t    where;           /* point */
    uint32_t    n;
} kvs_ratio_t;


/* mean over the seeds; NAN: was not run */
double kvs_report_value(const kvs_contest_t *c, uint32_t point,
    uint32_t policy, size_t offset);

void kvs_report_vs(const kvs_contest_t *c, uint32_t policy, uint32_t rival,
    kvs_side_e side, uint32_t metric, kvs_ratio_t *ratio);
uint32_t kvs_report_single(const kvs_contest_t *c, uint32_t metric);
int kvs_report_loss(const kvs_contest_t *c, uint32_t policy, int starved,
    uint32_t metric, kvs_ratio_t *ratio);
void kvs_report_index(const kvs_contest_t *c);

/* the i-th metric; 0 past the last */
uint32_t kvs_report_metrics(uint32_t i, const char **name, size_t *offset,
    int *more);


#endif
