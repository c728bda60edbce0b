#ifndef KVS_DEMO_H
#define KVS_DEMO_H


#include <cjson/cJSON.h>

#include "bench/sim/contest/contest.h"


/* runs it, prints a table, and adds an object for each policy; json or NULL */
void kvs_demo(const kvs_options_t *o, cJSON *json);


#endif
