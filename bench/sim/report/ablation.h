#ifndef KVS_ABLATION_H
#define KVS_ABLATION_H


#include "bench/sim/report/report.h"


/* the policies that are compared; "-" is in the names of those without */
#define KVS_ABLATED_POLICIES                                                  \
    "-,=kv_cache,=kv_cache_usage,=kv_cache_told"


/* a table of each ratio, and the same as JSON, to a file unless it is NULL */
int kvs_ablation(const kvs_contest_t *c, const char *path);


#endif
