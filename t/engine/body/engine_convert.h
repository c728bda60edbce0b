/*
 * Other APIs' bodies -> the messages of a chat.
 */

#ifndef KVE_ENGINE_CONVERT_H
#define KVE_ENGINE_CONVERT_H


#include "body/engine_parsed.h"


void kve_convert_messages(kve_parsed_t *p);
void kve_convert_responses(kve_server_t *s, kve_parsed_t *p);


#endif
