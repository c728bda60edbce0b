/*
 * The queue of events, by time and then in order, and the requests, which are
 * used again.
 */

#include "sim_queue.h"


static int
kvs_event_less(const kvs_event_t *a, const kvs_event_t *b)
{
    return a->t < b->t || (a->t == b->t && a->seq < b->seq);
}


void
kvs_sim_push(kvs_sim_t *sim, double t, uint32_t type, void *data, uint32_t gen)
{
    size_t       i, parent;
    kvs_event_t  ev;

    if (sim->nheap == sim->heap_size) {
        sim->heap_size = sim->heap_size ? sim->heap_size * 2 : 1024;
        sim->heap = realloc(sim->heap, sim->heap_size * sizeof(kvs_event_t));

        if (sim->heap == NULL) {
            abort();
        }
    }

    ev.t = t;
    ev.seq = sim->seq++;
    ev.gen = gen;
    ev.type = type;
    ev.data = data;

    for (i = sim->nheap++; i > 0; i = parent) {
        parent = (i - 1) / 2;

        if (!kvs_event_less(&ev, &sim->heap[parent])) {
            break;
        }

        sim->heap[i] = sim->heap[parent];
    }

    sim->heap[i] = ev;
}


void
kvs_sim_pop(kvs_sim_t *sim, kvs_event_t *ev)
{
    size_t       i, child;
    kvs_event_t  last;

    *ev = sim->heap[0];
    last = sim->heap[--sim->nheap];

    for (i = 0; (child = 2 * i + 1) < sim->nheap; i = child) {

        if (child + 1 < sim->nheap
            && kvs_event_less(&sim->heap[child + 1], &sim->heap[child]))
        {
            child++;
        }

        if (!kvs_event_less(&sim->heap[child], &last)) {
            break;
        }

        sim->heap[i] = sim->heap[child];
    }

    sim->heap[i] = last;
}


kvs_request_t *
kvs_sim_request(kvs_sim_t *sim)
{
    uint32_t        i, gen;
    kvs_request_t  *rq, *slab;

    if (sim->free == NULL) {

        slab = kvs_alloc(KVS_SLAB * sizeof(kvs_request_t));

        sim->slabs = realloc(sim->slabs, (sim->nslabs + 1) * sizeof(void *));
        if (sim->slabs == NULL) {
            abort();
        }

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
