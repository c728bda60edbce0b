/*
 * Requests, which are reused, and the end of a run.
 */

#include "bench/sim/engine/sim_queue.h"


kvs_request_t *
kvs_sim_request(kvs_sim_t *sim)
{
    uint32_t        i, gen;
    kvs_request_t  *rq, *slab;

    if (sim->free == NULL) {

        slab = kvs_alloc(KVS_SLAB * sizeof(kvs_request_t));

        sim->slabs = kvs_grow(sim->slabs, sim->nslabs, &sim->slabs_size,
                              sizeof(void *));
        sim->slabs[sim->nslabs++] = slab;

        for (i = KVS_SLAB; i-- > 0; /* void */ ) {
            slab[i].link = sim->free;
            sim->free = &slab[i];
        }
    }

    rq = sim->free;
    sim->free = rq->link;

    gen = rq->gen;
    memset(rq, 0, sizeof(kvs_request_t));
    rq->gen = gen + 1;
    rq->id = ++sim->ids;
    rq->req.data = rq;

    return rq;
}


void
kvs_sim_release(kvs_sim_t *sim, kvs_request_t *rq)
{
    rq->gen++;
    rq->id = 0;
    rq->link = sim->free;
    sim->free = rq;
}


void
kvs_sim_free(kvs_sim_t *sim)
{
    size_t          i, k;
    kvs_request_t  *rq;

    free(sim->coming);

    for (k = 0; k < sim->nslabs; k++) {

        /* a session is freed with its last request */

        for (i = 0; i < KVS_SLAB; i++) {
            rq = (kvs_request_t *) sim->slabs[k] + i;

            if (rq->id && rq->session && --rq->session->live == 0) {
                free(rq->session);
            }
        }

        free(sim->slabs[k]);
    }

    for (k = 0; k < sim->events.n; k++) {
        if (sim->events.event[k].type == KVS_EV_STEP) {
            free(sim->events.event[k].data);
        }
    }

    free(sim->slabs);
    free(sim->events.event);
    free(sim->ttft.v);
    free(sim->e2e.v);
    free(sim->tpt.v);
    free(sim->urgent.v);
    free(sim);
}
