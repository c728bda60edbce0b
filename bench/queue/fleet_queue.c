/*
 * Waiting and admission in virtual time, as in the glue's queue/: each worker
 * has its own heaps.  It looks for room when one of its own requests ends or
 * begins to answer, and every 4 ms.
 */

#include "bench/queue/fleet_int.h"


/* looks up what replicas have cached of a prompt, and common values */
static void
kvq_match(kvq_t *q, kvq_request_t *rq)
{
    kvs_choice_t  *ch;

    ch = &q->choice;
    ch->set = q->zone.pool.set;

    kvs_route_view(&q->zone, &rq->route, ch, KVR_POLICY_KV_CACHE, 0, q->now);
    kvs_route_match(&q->zone, &rq->route, ch, q->now);

    ch->view.fit = rq->fit;
}


static int
kvq_room(void *data, kvr_queue_item_t *item)
{
    kvq_request_t *rq = data;

    kvq_t            *q;
    uint32_t          i, n;
    kvr_zone_t        zone;
    kvr_offer_t       offer[KVS_REPLICAS];
    kvr_admission_e   rc;
    kvr_admission_t   a;

    q = rq->sim;

    zone = q->zone.core;
    zone.row = rq->route.row;

    if (item == NULL) {
        kvr_reservation_release(&zone, &rq->reserved);
        return 1;
    }

    n = q->conf->replicas;

    rq->later = 0;
    rq->fit = kvr_queue_long(q->shared, n, kvq_ms(q)) ? rq->route.bytes : 0;

    memset(offer, 0, sizeof(offer));

    for (i = 0; i < n; i++) {
        offer[i].peer = i;
        offer[i].member = q->zone.member[i];
        offer[i].weight = 1;
    }

    a.view = &q->choice.view;
    a.item = item;
    a.bytes = rq->route.bytes;
    a.resident = kvr_attempt_resident(rq->route.bytes, 0);
    a.prefer = rq->prefer;
    a.no_prefill = 0;

    kvs_route_view(&q->zone, &rq->route, &q->choice, KVR_POLICY_KV_CACHE, 0,
                   q->now);

    q->choice.view.fit = rq->fit;
    kvr_candidate_view(&q->choice.view);

    if (kvr_admission_choose(&a, offer, n, NULL) != KVR_ADMISSION_ROOM) {
        return 0;
    }

    kvq_match(q, rq);
    kvr_candidate_view(&q->choice.view);

    rc = kvr_admission_choose(&a, offer, n, &rq->reserved);

    rq->later = (rc == KVR_ADMISSION_LATER);

    if (rc != KVR_ADMISSION_ROOM) {
        return 0;
    }

    rq->reserved.queued = 1;
    kvr_reservation_take(&zone, &rq->reserved);

    return 1;
}


static void
kvq_give(kvq_t *q, kvq_request_t *rq)
{
    uint32_t  i;

    kvq_match(q, rq);

    q->choice.req.random = kvs_rng_next(&q->rng);
    q->choice.view.own = rq->reserved.held ? &rq->reserved : NULL;

    kvs_route_offer(&q->zone, &q->choice);

    i = kvs_route_pick(&q->zone, &rq->route, &q->choice, &rq->reserved, q->now);

    kvs_route_insert(&q->zone, &rq->route, q->choice.matched[i]);

    if (q->now >= q->conf->window && q->now < q->conf->length) {
        q->res->stream[rq->stream].window_work += rq->item.charge;
    }

    kve_replica_submit(q->replica[i], &rq->req, q->now);
    q->next[i] = kve_replica_next(q->replica[i]);
}


/*
 * Returns a request of a worker that is due earlier, in the same class and
 * tenant, by more than the limit for passing.
 */
static void
kvq_order(kvq_t *q, kvq_request_t *rq)
{
    uint32_t           i, pass;
    kvr_queue_item_t  *head;

    for (i = 0; i < q->conf->workers; i++) {
        head = q->waiting[i].heap[rq->item.class][rq->item.tenant];

        if (head == NULL) {
            continue;
        }

        pass = kvr_queue_pass(head, kvq_ms(q));

        if ((int32_t) (head->due + pass - rq->item.due) < 0) {
            q->res->out_of_order++;
        }
    }
}


static void
kvq_let_in(kvq_t *q, kvq_request_t *rq)
{
    kvq_stats_t  *st;

    st = &q->res->stream[rq->stream];

    kvq_order(q, rq);

    st->waited += rq->measured;

    if (rq->measured && q->now - rq->start > st->max_wait) {
        st->max_wait = q->now - rq->start;
    }

    kvq_give(q, rq);
}


/* admits the first request of a worker, or one close behind it */
static kvr_queue_item_t *
kvq_next(kvq_t *q, uint32_t worker, kvr_queue_item_t *item)
{
    uint32_t           i, n;
    kvr_queue_t       *w;
    kvq_request_t     *rq;
    kvr_queue_item_t  *near[KVR_QUEUE_NEAR];

    w = &q->waiting[worker];
    n = kvr_queue_near(item, kvq_ms(q), near, KVR_QUEUE_NEAR);

    for (i = 0; i < n; i++) {
        rq = (kvq_request_t *) near[i];
        rq->prefer = KVR_ADMISSION_WARM;

        if (kvr_queue_admit(q->shared, worker, w, near[i], kvq_ms(q), kvq_room,
                            rq)
            == KVR_OK)
        {
            return near[i];
        }

        if (!rq->later) {
            return NULL;
        }
    }

    rq = (kvq_request_t *) item;
    rq->prefer = KVR_ADMISSION_CHEAP;

    return kvr_queue_admit(q->shared, worker, w, item, kvq_ms(q), kvq_room, rq)
           == KVR_OK ? item : NULL;
}


void
kvq_worker_run(kvq_t *q, uint32_t worker)
{
    kvr_queue_t       *w;
    kvr_queue_key_t    key;
    kvr_queue_item_t  *item;

    w = &q->waiting[worker];

    kvr_queue_publish(q->shared, worker, w, kvq_ms(q));

    for ( ;; ) {
        item = kvr_queue_first(w, q->shared, &key);

        if (item) {
            item = kvq_next(q, worker, item);
        }

        if (item == NULL) {
            return;
        }

        kvq_let_in(q, (kvq_request_t *) item);
    }
}


void
kvq_enter(kvq_t *q, kvq_request_t *rq)
{
    uint32_t             i, best, wait, *matched;
    uint64_t             now;
    kvq_stats_t         *st;
    const kvq_stream_t  *s;
    kvr_queue_t         *w;
    kvr_queue_item_t    *item;

    s = &q->conf->stream[rq->stream];
    st = &q->res->stream[rq->stream];
    now = kvq_ms(q);
    w = &q->waiting[rq->route.row];

    kvq_match(q, rq);

    matched = q->choice.matched;
    best = 0;

    for (i = 0; i < q->conf->replicas; i++) {
        best = kvr_max(best, matched[i]);
    }

    kvr_queue_item(&rq->item, now, s->class, q->tenant[rq->stream], s->weight,
                   rq->route.bytes - kvr_min((uint64_t) best * KVS_UNIT_BYTES,
                                       rq->route.bytes),
                   s->deadline);

    if (!q->conf->queue) {
        kvq_give(q, rq);
        return;
    }

    rq->prefer = kvr_queue_depth(q->shared, KVR_QUEUE_CLASSES - 1, now)
               < q->conf->max ? KVR_ADMISSION_CHEAP : KVR_ADMISSION_ANY;

    if (kvr_queue_admit(q->shared, rq->route.row, w, &rq->item, now, kvq_room,
                        rq)
        == KVR_OK)
    {
        kvq_give(q, rq);
        return;
    }

    if (kvr_queue_depth(q->shared, KVR_QUEUE_CLASSES - 1, now) >= q->conf->max)
    {
        item = kvr_queue_last(w, s->class);
        item = item ? item : kvr_queue_rival(w, &rq->item);

        if (item == NULL) {
            kvq_reject(q, rq, &st->full);
            return;
        }

        kvr_queue_remove(w, item);
        kvq_reject(q, (kvq_request_t *) item,
                   &q->res->stream[((kvq_request_t *) item)->stream].shed);
    }

    wait = q->conf->timeout;

    if (s->deadline) {
        wait = kvr_min(wait, s->deadline);
    }

    kvr_queue_insert(w, q->shared, &rq->item);
    kvr_queue_publish(q->shared, rq->route.row, w, now);

    kvs_events_push(&q->events, q->now + wait / 1000.0, KVQ_TIMEOUT, rq, 0);

    if (!q->ticking[rq->route.row]) {
        q->ticking[rq->route.row] = 1;
        kvs_events_push(&q->events, q->now + KVQ_TICK, KVQ_TICKED,
                 (void *) (uintptr_t) rq->route.row, 0);
    }
}
