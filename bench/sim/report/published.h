#ifndef KVS_PUBLISHED_H
#define KVS_PUBLISHED_H


#include <cjson/cJSON.h>

#include "bench/sim/contest/contest.h"


/* runs them, prints tables, and adds an object for each; json or NULL */
void kvs_published(const kvs_options_t *o, cJSON *json);


#endif
