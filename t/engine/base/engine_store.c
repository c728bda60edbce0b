#include <stdlib.h>
#include <string.h>

#include "base/engine_store.h"


/*
 * Stored responses, of one replica, in memory, while its process lives.
 * Requests can read them and continue them.
 */


void
kve_store_add(kve_server_t *s, const char *id, cJSON *messages,
    const char *object)
{
    kve_stored_t  *r;

    r = kve_store_find(s, id);

    if (r == NULL) {
        r = &s->stored[s->nstored++ % KVE_STORED];
        kve_store_drop(r);
        r->id = strdup(id);
    }

    cJSON_Delete(r->messages);
    r->messages = messages;

    free(r->object);
    r->object = strdup(object);
}


kve_stored_t *
kve_store_find(kve_server_t *s, const char *id)
{
    int  i;

    for (i = 0; i < KVE_STORED; i++) {
        if (s->stored[i].id && strcmp(s->stored[i].id, id) == 0) {
            return &s->stored[i];
        }
    }

    return NULL;
}


void
kve_store_drop(kve_stored_t *r)
{
    free(r->id);
    free(r->object);
    cJSON_Delete(r->messages);
    memset(r, 0, sizeof(kve_stored_t));
}


void
kve_store_free(kve_server_t *s)
{
    int  i;

    for (i = 0; i < KVE_STORED; i++) {
        kve_store_drop(&s->stored[i]);
    }
}
