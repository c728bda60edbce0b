#ifndef KVS_REPORT_JSON_H
#define KVS_REPORT_JSON_H


#include <cjson/cJSON.h>

#include "bench/sim/report/report.h"


/* the summary, to a file; runs what is no part of the contest */
int kvs_report_json(const kvs_contest_t *c, const char *path);

/*
 * A table of the policies "BASE-WHAT", which are BASE without WHAT, beside BASE
 * by the same seeds, and the same as JSON, to a file unless it is NULL.
 */
int kvs_report_ablation(const kvs_contest_t *c, const char *path);

int kvs_report_save(const cJSON *json, const char *path);


#endif
