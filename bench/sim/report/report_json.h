#ifndef KVS_REPORT_JSON_H
#define KVS_REPORT_JSON_H


#include "bench/sim/report/report.h"


/* the summary, to a file; runs what is no part of the contest */
int kvs_report_json(const kvs_contest_t *c, const char *path);


#endif
