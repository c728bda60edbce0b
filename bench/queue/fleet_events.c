/*
 * The clock, and the end of a request.
 */

#include "bench/queue/fleet_int.h"


double
kvq_now(kvq_t *q)
{
    return q->now;
}


uint64_t
kvq_ms(kvq_t *q)
{
    return kvs_zone_ms(q->now);
}


void
kvq_over(kvq_t *q, kvq_request_t *rq)
{
    free(rq->own);
    rq->own = NULL;
    rq->route.chain = NULL;
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
