#include "bench/model/events.h"


static int
kvs_event_less(const kvs_event_t *a, const kvs_event_t *b)
{
    return a->t < b->t || (a->t == b->t && a->seq < b->seq);
}


void
kvs_events_push(kvs_events_t *e, double t, uint32_t type, void *data,
    uint32_t gen)
{
    size_t       i, parent;
    kvs_event_t  ev = { t, e->seq++, type, gen, data };

    e->event = kvs_grow(e->event, e->n, &e->size, sizeof(kvs_event_t));

    for (i = e->n++; i > 0; i = parent) {
        parent = (i - 1) / 2;

        if (!kvs_event_less(&ev, &e->event[parent])) {
            break;
        }

        e->event[i] = e->event[parent];
    }

    e->event[i] = ev;
}


kvs_event_t
kvs_events_pop(kvs_events_t *e)
{
    size_t       i, child;
    kvs_event_t  first, last;

    first = e->event[0];
    last = e->event[--e->n];

    for (i = 0; (child = 2 * i + 1) < e->n; i = child) {

        if (child + 1 < e->n
            && kvs_event_less(&e->event[child + 1], &e->event[child]))
        {
            child++;
        }

        if (!kvs_event_less(&e->event[child], &last)) {
            break;
        }

        e->event[i] = e->event[child];
    }

    e->event[i] = last;

    return first;
}
