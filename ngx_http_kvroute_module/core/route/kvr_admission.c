
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_admission.h"


static int kvr_admission_offered(const kvr_admission_t *a,
    const kvr_offer_t *offer, int last);
static int kvr_admission_capped(const kvr_admission_t *a, uint32_t peer);
static double kvr_admission_cost(const kvr_admission_t *a,
    const kvr_offer_t *offer, uint64_t *held);
static uint64_t kvr_admission_rate(const kvr_admission_t *a, uint32_t peer);


kvr_admission_e
kvr_admission_choose(const kvr_admission_t *a, const kvr_offer_t *offer,
    uint32_t n, kvr_reservation_t *r)
{
    int              last;
    double           cost, least, best;
    uint32_t         i;
    uint64_t         held, most, here, rate;
    kvr_admission_e  rc;

    rc = KVR_ADMISSION_NOBODY;
    least = 0;
    best = 0;
    most = 0;
    here = 0;
    rate = 0;

    for (last = 0; last < 2 && rc == KVR_ADMISSION_NOBODY; last++) {

        for (i = 0; i < n; i++) {

            if (!kvr_admission_offered(a, &offer[i], last)) {
                continue;
            }

            if (offer[i].taken) {
                rc = kvr_max(rc, KVR_ADMISSION_TAKEN);
                continue;
            }

            if (r == NULL) {
                if (!kvr_admission_capped(a, offer[i].peer)) {
                    return KVR_ADMISSION_ROOM;
                }

                rc = KVR_ADMISSION_CAPPED;
                continue;
            }

            cost = kvr_admission_cost(a, &offer[i], &held);

            if (best == 0 || cost < best) {
                best = cost;
                rate = kvr_admission_rate(a, offer[i].peer);
            }

            most = kvr_max(most, held);

            if (kvr_admission_capped(a, offer[i].peer)) {
                rc = kvr_max(rc, KVR_ADMISSION_CAPPED);
                continue;
            }

            if (rc == KVR_ADMISSION_ROOM && cost >= least) {
                continue;
            }

            rc = KVR_ADMISSION_ROOM;
            least = cost;
            here = held;

            r->peer = offer[i].peer;
            r->member = offer[i].member;
            r->pending = a->bytes - held;
            r->resident = a->resident;
            r->unanswered = !a->no_prefill;
        }
    }

    if (rc != KVR_ADMISSION_ROOM) {
        return rc;
    }

    if (a->prefer == KVR_ADMISSION_WARM && here + KVR_SCORE_FLOOR < most) {
        return KVR_ADMISSION_LATER;
    }

    if (a->prefer == KVR_ADMISSION_CHEAP && best < least
        && kvr_queue_may_wait(a->item, a->view->now, rate))
    {
        return KVR_ADMISSION_LATER;
    }

    a->item->charge = r->pending;

    return rc;
}


/* Tells whether a peer is looked at in this round: spared ones in the last. */
static int
kvr_admission_offered(const kvr_admission_t *a, const kvr_offer_t *offer,
    int last)
{
    int  spared;

    /* an engine that rejects everything always has room */

    spared = kvr_candidate_spared(a->view->zone, a->view->pool, offer->peer,
                                  a->view->now)
             || (a->view->pool->eject.on
                 && kvr_eject_sick(a->view->zone, offer->member, a->view->now));

    return spared == last;
}


static int
kvr_admission_capped(const kvr_admission_t *a, uint32_t peer)
{
    return kvr_candidate_capped(a->view->zone, a->view->pool, peer,
                                a->view->fit, NULL, a->view->now);
}


/* as in the choice, but with what is left of running prefills */
static double
kvr_admission_cost(const kvr_admission_t *a, const kvr_offer_t *offer,
    uint64_t *held)
{
    kvr_score_t             s;
    kvr_prefill_t          *prefill;
    kvr_view_t             *v;
    kvr_reservation_load_t  load;

    v = a->view;

    memset(&s, 0, sizeof(kvr_score_t));

    s.active = offer->conns;
    s.weight = offer->weight;

    *held = 0;

    if (offer->peer != KVR_REGISTRY_NONE) {
        prefill = &v->zone->registry->peer[offer->peer].prefill;
        load = kvr_reservation_load(&v->load, v->zone->registry, offer->peer,
                                    NULL);

        s.active = load.active;
        s.waiting = load.unanswered;
        s.resident = load.resident;
        s.pending = kvr_prefill_left(prefill, load.pending, v->now);

        if (v->matched) {
            *held = kvr_min((uint64_t) v->matched[offer->peer] * KVR_BLOCK,
                            a->bytes);
        }

        if (v->hot) {
            s.shared = kvr_hot_shared(v->hot,
                                      v->matched[offer->peer], s.active,
                                      kvr_prefill_rest(prefill, v->now));
        }

        s.turnover = kvr_index_turnover(v->zone->index, offer->peer, v->now);
    }

    s.uncached = a->bytes - *held;

    return kvr_score_cost(&s);
}


/* Returns the bytes that a peer prefills per ms; 0: unknown. */
static uint64_t
kvr_admission_rate(const kvr_admission_t *a, uint32_t peer)
{
    if (peer == KVR_REGISTRY_NONE) {
        return 0;
    }

    return kvr_get(&a->view->zone->registry->peer[peer].prefill.rate)
           / KVR_PREFILL_RATE;
}
