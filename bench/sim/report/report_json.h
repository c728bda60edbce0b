#ifndef KVS_REPORT_JSON_H
#define KVS_REPORT_JSON_H


#include <cjson/cJSON.h>

#include "bench/sim/report/report.h"


/* writes the summary to a file; runs the cases outside the contest */
int kvs_report_json(const kvs_contest_t *c, const char *path);

/*
 * Prints a table of the policies "BASE-WHAT", which are BASE without WHAT,
 * relative to BASE with the same seeds; writes it as JSON to a file, if not
 * NULL.
 */
int kvs_report_ablation(const kvs_contest_t *c, const char *path);

int kvs_report_save(const cJSON *json, const char *path);


#endif
