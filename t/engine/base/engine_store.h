/*
 * Stored responses.
 */

#ifndef KVE_ENGINE_STORE_H
#define KVE_ENGINE_STORE_H


#include "base/engine_server.h"


/* takes the messages; an existing id gets new contents */
void kve_store_add(kve_server_t *s, const char *id, cJSON *messages,
    const char *object);
kve_stored_t *kve_store_find(kve_server_t *s, const char *id);
void kve_store_drop(kve_stored_t *r);
void kve_store_free(kve_server_t *s);


#endif
