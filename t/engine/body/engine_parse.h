/*
 * A request body of any API -> fields and prompts.
 */

#ifndef KVE_ENGINE_PARSE_H
#define KVE_ENGINE_PARSE_H


#include "body/engine_parsed.h"


void kve_parse(kve_server_t *s, kve_api_e api, const char *data, size_t len,
    kve_parsed_t *p);


#endif
