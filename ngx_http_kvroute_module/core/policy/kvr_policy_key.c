
/*
 * Copyright (C) kvroute contributors
 */


/* policies that go by a key: of the prefix, of the session */


#include "core/policy/kvr_policy_int.h"


/* prefixes with fewer requests than this at a peer are not spilled */
#define KVR_PICK_RING_FLOOR  4


static int kvr_pick_room(void *data, uint32_t place);


typedef struct {
    kvr_candidate_t  *cand;
    const uint32_t   *by_place;
    uint64_t          total;
    uint64_t          weights;
    double            factor;
} kvr_pick_rooms_t;


uint32_t
kvr_pick_prefix(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    uint32_t            i, place, first;
    kvr_pick_rooms_t  rooms;

    if (!req->keyed || req->ring == NULL || req->ring->n == 0) {

        i = kvr_pick_least_request(req, cand, n, d);

        if (!req->parsed && !req->light) {
            d->reason = KVR_REASON_UNPARSED;
        }

        return i;
    }

    rooms.cand = cand;
    rooms.by_place = req->by_place;
    rooms.total = 0;
    rooms.weights = 0;
    rooms.factor = req->conf->load_factor;

    for (i = 0; i < req->places; i++) {
        req->by_place[i] = KVR_POLICY_NONE;
    }

    for (i = 0; i < n; i++) {

        if (!cand[i].out) {
            req->by_place[cand[i].place] = i;
            rooms.total += cand[i].active;
            rooms.weights += cand[i].weight;
        }
    }

    place = kvr_ring_pick(req->ring, req->key, req->places, req->seen,
                          kvr_pick_room, &rooms, &first);

    if (place == req->places) {
        return kvr_pick_least_request(req, cand, n, d);
    }

    d->reason = (place == first) ? KVR_REASON_RING : KVR_REASON_SPILL;

    return req->by_place[place];
}


static int
kvr_pick_room(void *data, uint32_t place)
{
    kvr_pick_rooms_t *rooms = data;

    kvr_candidate_t  *c;

    if (rooms->by_place[place] == KVR_POLICY_NONE) {
        return -1;
    }

    c = &rooms->cand[rooms->by_place[place]];

    return c->active < kvr_ring_bound(rooms->total, c->weight, rooms->weights,
                                      rooms->factor, KVR_PICK_RING_FLOOR);
}


uint32_t
kvr_pick_sticky(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    uint32_t  i, pick, bound;

    if (!req->keyed) {
        return kvr_pick_round_robin(req, cand, n, d);
    }

    bound = KVR_POLICY_NONE;

    for (i = 0; i < n; i++) {

        if (!cand[i].bound) {
            continue;
        }

        /* if all are full it is as good as any */

        if (!cand[i].out) {
            d->reason = KVR_REASON_SESSION;
            return i;
        }

        bound = i;
    }

    /* what a session has lives on its peer only: rather wait for that */

    if (req->conf->strict && (bound != KVR_POLICY_NONE || req->was_bound)) {
        return KVR_POLICY_NONE;
    }

    pick = kvr_pick_round_robin(req, cand, n, d);

    d->reason = (bound == KVR_POLICY_NONE && !req->busy)
                ? KVR_REASON_BIND : KVR_REASON_OVERFLOW;

    return pick;
}
