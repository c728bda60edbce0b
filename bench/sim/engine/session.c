#include "bench/sim/engine/session.h"


kvs_session_t *
kvs_session_create(uint32_t nsteps, uint32_t tokens)
{
    size_t          units, size;
    uint8_t        *p;
    kvs_session_t  *s;

    units = tokens / KVS_UNIT_TOKENS + 1;

    size = sizeof(kvs_session_t) + nsteps * sizeof(kvs_step_t)
           + units * sizeof(uint64_t);

    p = malloc(size);

    if (p == NULL) {
        abort();
    }

    s = (kvs_session_t *) (void *) p;

    memset(s, 0, sizeof(kvs_session_t));

    p += sizeof(kvs_session_t);
    s->steps = (kvs_step_t *) (void *) p;
    memset(s->steps, 0, nsteps * sizeof(kvs_step_t));

    p += nsteps * sizeof(kvs_step_t);
    s->chain = (uint64_t *) (void *) p;

    s->nsteps = nsteps;
    s->units = (uint32_t) units;   /* room for kvs_text_init() */

    return s;
}
