/*
 * Events in order of time.
 */

#include <stdlib.h>

#include "fleet_int.h"


void
kvq_push(kvq_t *q, double t, kvq_event_e type, void *data)
{
    size_t       i, parent;
    kvq_event_t  ev = { t, q->seq++, type, data };

    if (q->nheap == q->size) {
        q->size = q->size ? 2 * q->size : 1024;
        q->heap = realloc(q->heap, q->size * sizeof(kvq_event_t));

        if (q->heap == NULL) {
            abort();
        }
    }

    for (i = q->nheap++; i > 0; i = parent) {
        parent = (i - 1) / 2;

        if (q->heap[parent].t <= t) {
            break;
        }

        q->heap[i] = q->heap[parent];
    }

    q->heap[i] = ev;
}


static int
kvq_less(const kvq_event_t *a, const kvq_event_t *b)
{
    return a->t < b->t || (a->t == b->t && a->seq < b->seq);
}


kvq_event_t
kvq_pop(kvq_t *q)
{
    size_t       i, child;
    kvq_event_t  first, last;

    first = q->heap[0];
    last = q->heap[--q->nheap];

    for (i = 0; (child = 2 * i + 1) < q->nheap; i = child) {

        if (child + 1 < q->nheap
            && kvq_less(&q->heap[child + 1], &q->heap[child]))
        {
            child++;
        }

        if (!kvq_less(&q->heap[child], &last)) {
            break;
        }

        q->heap[i] = q->heap[child];
    }

    q->heap[i] = last;

    return first;
}


double
kvq_now(kvq_t *q)
{
    return q->now;
}


uint64_t
kvq_ms(kvq_t *q)
{
    return 100000 + (uint64_t) (q->now * 1000);
}


void
kvq_over(kvq_t *q, kvq_request_t *rq)
{
    free(rq->own);
    rq->own = NULL;
    rq->chain = NULL;
    q->left -= rq->measured;

    if (q->conf->next) {
        q->conf->next(q->conf->data, q, &rq->ask, rq->out ? INFINITY : rq->ttft,
                      q->now - rq->start);
    }
}


void
kvq_reject(kvq_t *q, kvq_request_t *rq, uint32_t *counter)
{
    rq->out = 1;
    *counter += rq->measured;
    kvq_over(q, rq);
}
