#ifndef KVS_PUBLISHED_H
#define KVS_PUBLISHED_H


#include <cjson/cJSON.h>

#include "contest.h"


/* runs them, prints a table, and adds an object for each policy or outline */
void kvs_published_case(const kvs_options_t *o, cJSON *json);
void kvs_published_outlines(const kvs_options_t *o, cJSON *json);


#endif
